"""Which values of summarised loops a tool call takes, and where the window still has them.

Values are found as by the benchmark of windows, without the extractor that the facts come from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from benchmarks.windows.histories import FORMAT, calls_in, text_of
from benchmarks.windows.values import identifiers_of, leaves_of, stands
from turnlog.core.calls import outline_of
from turnlog.providers.registry import CODECS
from turnlog.summaries.routes import SummaryAnswer
from turnlog.windows.ledger import ledger_of_facts
from turnlog.windows.text import summary_body

Cause: TypeAlias = Literal["no room", "not extracted", "only said"]
"""Facts had no room for it; it stands in calls or results and is no value to the ledger; it stands in talk alone."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A value that a call takes and that stood in summarised loops. ``beside``: the window has it outside the summary."""

    value: str
    beside: bool
    in_text: bool
    in_facts: bool

    @property
    def lost_with_facts(self) -> bool:
        return not (self.beside or self.in_text or self.in_facts)

    @property
    def lost_without_facts(self) -> bool:
        return not (self.beside or self.in_text)


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call. ``is_again``: summarised loops have it word for word, so it takes all that it says itself."""

    is_again: bool
    identifiers: tuple[Taken, ...]
    leaves: tuple[Taken, ...]


class Moment:
    """One model call behind a summary. ``covered`` are the messages that the summary stands for, ``window`` what is sent."""

    def __init__(
        self, summary: SummaryAnswer, covered: Sequence[dict[str, Any]], window: Sequence[dict[str, Any]]
    ) -> None:
        result = summary_body(summary.text, [(fact.position, fact.value) for fact in summary.facts])
        texts = [text_of(body) for body in window]
        beside = [text for text in texts if result not in text]
        if len(beside) == len(texts):
            raise ValueError("the window does not have the summary that is in force")
        self._covered = [(body, text_of(body)) for body in covered]
        self._called = [function for body in covered for function in calls_in(body)]
        self._beside, self._text = "\n".join(beside), summary.text
        self._facts = "\n".join(fact.value for fact in summary.facts)

    def calls(self, body: Mapping[str, Any]) -> Iterator[Call]:
        """Yield the tool calls of the message that came next."""
        for function in calls_in(body):
            arguments = function.get("arguments")
            identifiers, leaves = self._taken(identifiers_of(arguments)), self._taken(leaves_of(arguments))
            yield Call(function in self._called, identifiers, leaves)

    def cause(self, value: str) -> Cause:
        """Return why a value of the covered messages is not in the summary."""
        where = [body for body, text in self._covered if stands(value, text)]
        if any(
            stands(value, match) for body in where for match in ledger_of_facts(outline_of(CODECS[FORMAT].parse(body)))
        ):
            return "no room"
        return "not extracted" if any(body.get("role") == "tool" or calls_in(body) for body in where) else "only said"

    def _taken(self, values: Sequence[str]) -> tuple[Taken, ...]:
        return tuple(
            Taken(value, stands(value, self._beside), stands(value, self._text), stands(value, self._facts))
            for value in values
            if any(stands(value, text) for _, text in self._covered)
        )
