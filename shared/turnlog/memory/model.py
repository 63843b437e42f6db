"""Facts by a model: one call for a stretch of a conversation, and the checks of what it answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any, cast, get_args

from turnlog.core.errors import SummaryRefusedError
from turnlog.core.memory import MadeFacts, MemoryFact, MemoryKind, SpokenMessage
from turnlog.ports import TokenCounter
from turnlog.providers.blocks import fenced
from turnlog.summaries.model import ChatModel, ModelAnswer, Prompt
from turnlog.windows.ledger import is_said, values_of

MAX_FACTS = 40
"""Of one call."""
_ASKED_CHARS, _ANSWERED_CHARS = 600, 200
_FACT_CHARS, _SUBJECT_CHARS = 300, 80
_MAX_TOKENS = 4_096
_NONE = "none"
_DIGITS = re.compile(r"\d+")


class ModelFacts:
    """Implements `FactMaker`. A fact whose message was not given, or is not the person's, or has an identifier or number in it that
    the message has not, is dropped."""

    def __init__(self, model: ChatModel, counter: TokenCounter) -> None:
        self._model = model
        self._counter = counter

    @property
    def name(self) -> str:
        return self._model.name

    def facts(self, said: Iterable[SpokenMessage]) -> MadeFacts:
        """`SummaryRefusedError`, with the tokens that it cost, where the answer is none."""
        told = [one for one in said if one.role in ("user", "assistant")]
        if not any(one.role == "user" for one in told):
            return MadeFacts(())
        prompt = prompt_for(told)
        answer = self._model.answer(prompt, max_tokens=_MAX_TOKENS)
        spent_in, spent_out = answer.input_tokens, answer.output_tokens
        if spent_in is None:
            spent_in = self._counter.count(prompt.system) + self._counter.count(prompt.record)
        if spent_out is None:
            spent_out = self._counter.count(answer.text)
        found = _read(answer, told)
        if found is None:
            raise SummaryRefusedError(
                f"the answer of {self.name} is no list of facts",
                details={"reason": "no_facts", "input_tokens": spent_in, "output_tokens": spent_out},
            )
        return MadeFacts(tuple(sorted(found, key=lambda fact: fact.position)), spent_in, spent_out)


def prompt_for(said: Sequence[SpokenMessage]) -> Prompt:
    """The rules, and a record with a line for each message, quoted as data."""
    lines = [f"{one.position} {'person' if one.role == 'user' else 'agent'}: {_line(one)}" for one in said]
    record = fenced("record of the conversation", "\n".join(lines))
    return Prompt(_rules().substitute(limit=MAX_FACTS), record, 0)


@cache
def _rules() -> Template:
    return Template(files(__package__).joinpath("prompt.txt").read_text(encoding="utf-8").strip())


def _line(one: SpokenMessage) -> str:
    line, width = " ".join(one.text.split()), _ASKED_CHARS if one.role == "user" else _ANSWERED_CHARS
    return line if len(line) <= width else line[:width] + "..."


def _read(answer: ModelAnswer, said: Sequence[SpokenMessage]) -> list[MemoryFact] | None:
    """The facts of an answer; None where it is none. One that was cut off is as good as its whole lines."""
    if answer.ending == "filtered":
        return None
    by_position = {one.position: one for one in said if one.role == "user"}
    found, is_list = list[MemoryFact](), answer.text.strip().strip(".").casefold() == _NONE
    for line in answer.text.splitlines():
        try:
            given = json.loads(line.strip().rstrip(","))
        except (ValueError, RecursionError):
            continue
        if not isinstance(given, dict):
            continue
        is_list = True
        fact = _fact(given, by_position)
        if fact is not None and len(found) < MAX_FACTS:
            found.append(fact)
    return found if is_list else None


def _fact(given: dict[str, Any], by_position: dict[int, SpokenMessage]) -> MemoryFact | None:
    kind, subject, text = given.get("kind"), given.get("subject"), given.get("fact")
    position = given.get("position")
    source = by_position.get(position) if type(position) is int else None
    if source is None or kind not in get_args(MemoryKind) or not isinstance(text, str) or not isinstance(subject, str):
        return None
    text, subject = " ".join(text.split()), " ".join(subject.split()).casefold()
    if not 2 <= len(text) <= _FACT_CHARS or any(not is_said(value, source.text) for value in values_of(text)):
        return None
    if not set(_DIGITS.findall(text)) <= set(_DIGITS.findall(source.text)):
        return None
    return MemoryFact(cast("MemoryKind", kind), text, subject[:_SUBJECT_CHARS], source.position, source.time_ms)
