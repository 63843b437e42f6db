"""What every checker of the package does: name a rule, note a violation, put a value in words."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeGuard

from turnlog.linter.rules import Violation


@dataclass(frozen=True, slots=True)
class Rule:
    """What the provider answers when the rule is broken, how to mend the history, and where that is written."""

    answer: str
    fix: str
    source: str


class Findings:
    """The violations of one list of messages, in the order in which they were noted."""

    def __init__(self, rules: Mapping[str, Rule]) -> None:
        self._rules = rules
        self.violations: list[Violation] = []

    def add(self, rule: str, pointer: str, message: str) -> None:
        text = self._rules[rule]
        self.violations.append(Violation(rule, pointer, message, text.answer, text.fix, text.source))

    def unknown_keys(self, at: str, value: Mapping[str, object], known: Collection[str]) -> None:
        """Notes ``unknown_key`` for each key of ``value`` that is not ``known``."""
        for key in value:
            if key not in known:
                self.add("unknown_key", f"{at}/{escaped(key)}", f"the key {quoted(key)} is not known here")


class TurnPairing:
    """The calls of an assistant turn, and the results in the user turn behind it, which must answer all of them.

    A call or a result whose own id is at fault (told by who checks ids) may pair with any, so that one fault is told
    once. Notes ``call_id_repeated``, ``call_unanswered``, ``result_unknown`` and ``second_result``.
    """

    def __init__(self, found: Findings) -> None:
        self._found = found
        self._ids: set[str] = set()
        self._waiting: dict[str, str] = {}
        self._answered: set[str] = set()
        self._faulty_calls = 0
        self._faulty_results = 0

    @property
    def open(self) -> bool:
        """Whether a call of the turn has no result yet."""
        return bool(self._waiting) or self._faulty_calls > 0

    def once(self, pointer: str, call_id: str) -> bool:
        """Whether no earlier call has the id ``call_id``, which stands at ``pointer``; notes it when one has."""
        fresh = call_id not in self._ids
        if not fresh:
            self._found.add("call_id_repeated", pointer, f"an earlier call has the id {quoted(call_id)} too")
        self._ids.add(call_id)
        return fresh

    def call(self, at: str, key: str, call_id: str | None) -> None:
        """A call at ``at`` with its id under ``key``; ``None`` for an id at fault."""
        if call_id is None:
            self._faulty_calls += 1
        elif self.once(f"{at}/{key}", call_id) or call_id not in self._waiting:
            self._waiting[call_id] = at
        else:
            self._faulty_calls += 1

    def result(self, pointer: str, call_id: str | None) -> bool:
        """A result whose call's id stands at ``pointer``, ``None`` for an id at fault: whether it answers a call."""
        answers = call_id in self._waiting
        if call_id is None:
            self._faulty_results += 1
        elif call_id in self._waiting:
            del self._waiting[call_id]
            self._answered.add(call_id)
        elif self._faulty_calls:
            self._faulty_calls -= 1
        elif call_id in self._answered:
            self._found.add("second_result", pointer, f"the call {quoted(call_id)} has a result already")
        else:
            self._found.add("result_unknown", pointer, f"no call of the turn before has the id {quoted(call_id)}")
        return answers

    def close(self) -> None:
        """The user turn is over, or never came: what has no result by now will have none."""
        for call_id, at in list(self._waiting.items())[self._faulty_results :]:
            self._found.add("call_unanswered", at, f"the call {quoted(call_id)} has no result in the next user turn")
        self._waiting, self._answered = {}, set()
        self._faulty_calls = self._faulty_results = 0


def entries(
    found: Findings, value: object, *, kind: str = "messages", name: str = "messages"
) -> Iterator[tuple[str, object]]:
    """The entries of a request's list, each with its pointer. Notes ``<kind>_not_list`` and ``<kind>_empty``."""
    if not isinstance(value, list):
        found.add(f"{kind}_not_list", "/messages", f"{name} is {kind_of(value)}, not a list")
    elif not value:
        found.add(f"{kind}_empty", "/messages", f"{name} is empty")
    else:
        for index, entry in enumerate(value):
            yield f"/messages/{index}", entry


def is_filled(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and value != ""


def is_one_of(value: object, words: Collection[str]) -> TypeGuard[str]:
    return isinstance(value, str) and value in words


def escaped(key: object) -> str:
    """A key as a step of a JSON pointer (RFC 6901), cut to 64 characters: no step leads on from an unknown key."""
    return str(key)[:64].replace("~", "~0").replace("/", "~1")


def quoted(value: object) -> str:
    """The value as a message names it: a string cut to 64 characters, of anything else only the kind."""
    if not isinstance(value, str):
        return kind_of(value)
    return repr(value) if len(value) <= 64 else f"{value[:64]!r}…"


def kind_of(value: object) -> str:
    if value is None:
        return "missing or null"
    for types, name in ((bool, "a boolean"), (int | float, "a number"), (str, "a string"), (list, "a list")):
        if isinstance(value, types):
            return name
    return "an object" if isinstance(value, dict) else f"a {type(value).__name__}"
