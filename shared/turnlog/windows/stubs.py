"""Stubs: tool results cut to their beginnings, each with its values and the ref by which the whole result is found.

A stub is made from facts that a card has too, so a result that is stored separately need not be read for it.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Literal

from pydantic import Field

from turnlog.core.token_bounds import lower_bound_tokens, upper_bound_tokens
from turnlog.providers.token_rules import MESSAGE_OVERHEAD
from turnlog.windows.digests import value_cost
from turnlog.windows.ledger import chosen, is_said
from turnlog.windows.steps import Room, Step
from turnlog.windows.text import truncation_mark
from turnlog.windows.view import CallResult, Entry, Stub, Unit, WindowDraft

PREVIEW_TOKENS = 100
OVER_TOKENS = 200
MAX_VALUES = 20
_CARD_CHARS = 700
"""Characters of a message's results that its card has."""
_VALUES = "\nvalues: "
_VALUES_TOKENS = upper_bound_tokens(_VALUES)
_ERROR_MARK = 6
_CHARS_PER_TOKEN = 4


def stub_results(
    unit: Unit,
    reason: str,
    *,
    over_tokens: int = OVER_TOKENS,
    preview_tokens: int = PREVIEW_TOKENS,
    whole: Container[int] = (),
) -> Unit:
    """Return the unit with its large results as stubs.

    Applies to messages with results of more than ``over_tokens`` tokens, where the stub is smaller. Messages at the positions
    ``whole`` stay whole.
    """
    if unit.level != "whole" or unit.pinned or not unit.answers:
        return unit
    known, stubs, tokens = {stub.position for stub in unit.stubs}, list(unit.stubs), unit.tokens
    for entry in result_entries(unit):
        cost = results_cost(unit, entry)
        if entry.position in known or entry.position in whole or cost <= over_tokens:
            continue
        stub = _stub(entry, answers_in(unit, entry), reason, preview_tokens)
        if stub.tokens < cost:
            stubs.append(stub)
            tokens -= cost - stub.tokens
    return replace(unit, stubs=tuple(stubs), tokens=tokens) if len(stubs) > len(unit.stubs) else unit


def result_entries(unit: Unit) -> Sequence[Entry]:
    """Return the messages with results of the unit's calls, also those that have calls and results."""
    positions = {answer.entry.position for answer in unit.answers if answer.entry is not None}
    both = [entry for entry in unit.said if entry.position in positions]
    return [*both, *unit.entries[len(unit.said) :]]


def results_cost(unit: Unit, entry: Entry) -> int:
    """Return the tokens that a unit charges for the results of one of its messages, at most: all that stubs can save."""
    if all(entry.position != member.position for member in unit.said):
        return entry.cost
    if entry.message is None:
        return 0
    return sum(lower_bound_tokens(entry.message.tool_results[answer.index].text) for answer in answers_in(unit, entry))


def stub_overhead(name: str) -> int:
    """Return the most tokens that a shortened result takes besides its text; ``name`` is the name in the result."""
    return upper_bound_tokens(name) + MESSAGE_OVERHEAD + _ERROR_MARK


def answers_in(unit: Unit, entry: Entry) -> list[CallResult]:
    """Return the unit's results that stand in one message."""
    return [answer for answer in unit.answers if answer.entry is not None and answer.entry.position == entry.position]


def _stub(entry: Entry, answers: Sequence[CallResult], reason: str, preview_tokens: int) -> Stub:
    chars = _CARD_CHARS // max(1, len(entry.facts.results))
    texts, tokens = list[str](), 0
    for answer in answers:
        result = entry.facts.results[answer.index]
        shown, bound = beginning(result.text[:chars], preview_tokens)
        missing = result.chars - len(shown)
        mark = f"{truncation_mark(missing) if missing > 0 else ''}\n[shortened; ref {answer.ref}]"
        texts.append(shown + mark)
        tokens += bound + upper_bound_tokens(mark) + stub_overhead(result.name)
    said = "\n".join(texts)
    values = chosen((value for value in entry.values() if not is_said(value, said)), MAX_VALUES)
    if values:
        texts[0] += _VALUES + ", ".join(values)
        tokens += _VALUES_TOKENS + sum(map(value_cost, values))
    refs = [answer.ref for answer in answers]
    return Stub(entry.position, tuple(zip(refs, texts, strict=True)), tokens, reason)


@lru_cache(maxsize=1024)
def beginning(text: str, tokens: int) -> tuple[str, int]:
    """Return the text's beginning of at most ``tokens`` tokens, and an upper bound of its tokens."""
    text = text[: tokens * _CHARS_PER_TOKEN]
    while text and (bound := upper_bound_tokens(text)) > tokens:
        text = text[: min(len(text) - 1, len(text) * tokens // bound)]
    return text, bound if text else 0


class StubToolResults(Step):
    """Tool results of more than ``over_tokens`` are sent as stubs: their first ``preview_tokens``, their ref and their values.

    The newest ``keep_newest`` messages with results stay whole, and so do pinned ones. Applies to the current loop too. Without
    this step, results are stubbed only when the budget demands it.
    """

    step: Literal["stub_tool_results"] = "stub_tool_results"
    keep_newest: int = Field(default=3, ge=0, le=1_000_000)
    over_tokens: int = Field(default=OVER_TOKENS, ge=0, le=100_000_000)
    preview_tokens: int = Field(default=PREVIEW_TOKENS, ge=0, le=1_000)

    def apply(self, view: WindowDraft, room: Room) -> WindowDraft:
        units = [unit for loop in view.loops if loop.level == "whole" for unit in loop.units if unit.level == "whole"]
        positions = sorted({entry.position for unit in units for entry in result_entries(unit)})
        kept = frozenset(positions[max(0, len(positions) - self.keep_newest) :])
        if len(kept) == len(positions):
            return view
        loops = [
            replace(loop, units=tuple(self._stubbed(unit, kept) for unit in loop.units))
            if loop.level == "whole"
            else loop
            for loop in view.loops
        ]
        return replace(view, loops=tuple(loops))

    def _stubbed(self, unit: Unit, kept: frozenset[int]) -> Unit:
        return stub_results(
            unit, self.step, over_tokens=self.over_tokens, preview_tokens=self.preview_tokens, whole=kept
        )
