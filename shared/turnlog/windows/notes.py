"""The note of a past loop: a line per tool call, and the values that stood in calls and results, kept verbatim.

It stands in a message of its own, in the user role, fenced as data: a model imitates what it seems to have written itself. A
value that an earlier note of the window has is not said again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from turnlog.domain.refs import Ref
from turnlog.windows.bounds import upper_bound_tokens
from turnlog.windows.ledger import bounded, is_identifier, ledger_of_message
from turnlog.windows.text import escaped, fenced
from turnlog.windows.view import MESSAGE_OVERHEAD, Entry, Note, Unit

MAX_LINES = 20
_ARGUMENT_CHARS, _ERROR_CHARS, _NAME_CHARS = 120, 120, 64
_VALUES, _SEPARATOR = "values: ", ", "
_SEPARATOR_TOKENS = 3
"""Of a comma and a space between two values, and of what their borders may add."""


def note_of(title: str, units: Sequence[Unit], *, shown: str, max_values: int, closing: str = "") -> Note | None:
    """The note of units; None when there is nothing to say. ``shown`` is the text that stands beside it."""
    lines = [line for unit in units for line in _call_lines(unit)]
    if len(lines) > MAX_LINES:
        lines = [f"({len(lines) - MAX_LINES} earlier calls)", *lines[-MAX_LINES:]]
    if closing:
        lines.append(closing)
    # Refs and counts are ours: a value that looks like one is not said by it.
    said = "\n".join((shown, *(line.partition(" ")[2] for line in lines)))
    values = _chosen([value for value in _values(units) if not _is_said(value, said)], max_values)
    if not lines and not values:
        return None
    fixed = upper_bound_tokens(fenced(title, "\n".join([*lines, _VALUES]))) + MESSAGE_OVERHEAD
    return Note(title, tuple(lines), tuple(values), fixed)


def note_text(note: Note, said: Iterable[str]) -> str:
    """The note as it is sent. ``said`` are values that earlier notes have."""
    seen = set(said)
    values = [value for value in note.values if value not in seen]
    lines = [*note.lines, *([_VALUES + _SEPARATOR.join(values)] if values else [])]
    return fenced(note.title, "\n".join(lines))


def value_cost(value: str) -> int:
    """The most tokens that one more value takes."""
    return upper_bound_tokens(escaped(value)) + _SEPARATOR_TOKENS


def notes_tokens(notes: Iterable[Note | None]) -> int:
    """The most that the notes of one window take together: a value is said once."""
    tally = Tally()
    for note in notes:
        tally.add(note)
    return tally.tokens


class Tally:
    """The tokens of a growing and shrinking set of notes."""

    def __init__(self) -> None:
        self.tokens = 0
        self._counts: Counter[str] = Counter()

    def add(self, note: Note | None) -> int:
        """What the notes take more with this one."""
        before = self.tokens
        if note is not None:
            self.tokens += note.fixed
            for value in note.values:
                self._counts[value] += 1
                if self._counts[value] == 1:
                    self.tokens += value_cost(value)
        return self.tokens - before

    def remove(self, note: Note | None) -> int:
        """What the notes take less without this one."""
        before = self.tokens
        if note is not None:
            self.tokens -= note.fixed
            for value in note.values:
                self._counts[value] -= 1
                if self._counts[value] == 0:
                    self.tokens -= value_cost(value)
        return before - self.tokens


def _call_lines(unit: Unit) -> Iterator[str]:
    """``3.0 get_order {"id": "A17"}``, and for a failed call ``-> error: `` with the beginning of what it said."""
    answers = {answer.ref: answer for answer in unit.answers}
    for at, call in enumerate(unit.entry.facts.calls):
        answer = answers.get(Ref(unit.position, at))
        if answer is None:
            continue
        outcome = ""
        if answer.entry is None:
            outcome = " -> no result"
        elif answer.entry.facts.results[answer.index].is_error:
            outcome = f" -> error: {_short(answer.entry.facts.results[answer.index].text, _ERROR_CHARS)}".rstrip(": ")
        yield (
            f"{answer.ref} {_short(call.name, _NAME_CHARS)} {_short(call.arguments, _ARGUMENT_CHARS)}".rstrip()
            + outcome
        )


def _values(units: Sequence[Unit]) -> Iterator[str]:
    """Of each message once, in order; of a message whose results belong to several units, in each of them."""
    seen = set[str]()
    for unit in units:
        if not unit.answers:
            continue
        for entry in unit.entries:
            for value in ledger_of(entry):
                if value not in seen:
                    seen.add(value)
                    yield value


def ledger_of(entry: Entry) -> tuple[str, ...]:
    """The values of a message's calls and results: of its body, or of its card."""
    return bounded(ledger_of_message(entry.message)) if entry.message is not None else entry.facts.ledger


def _chosen(values: list[str], limit: int) -> list[str]:
    """At most ``limit`` of the values, in their order: identifiers before other scalars, which are easier to come by again."""
    if len(values) <= limit:
        return values
    ranked = sorted(range(len(values)), key=lambda at: (not is_identifier(values[at]), at))
    return [values[at] for at in sorted(ranked[:limit])]


def _is_said(value: str, text: str) -> bool:
    """Whether the text has the value on its own, not as a part of a longer word or number."""
    at = text.find(value)
    while at >= 0:
        before, after = text[at - 1 : at], text[at + len(value) : at + len(value) + 1]
        if not before.isalnum() and not after.isalnum():
            return True
        at = text.find(value, at + 1)
    return False


def _short(text: str, limit: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[:limit] + "..."
