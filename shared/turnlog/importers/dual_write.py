"""Moving from an old store step by step: both are written, every read compares them, and the old one is the truth until the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Literal, Protocol

from turnlog.client.model import Session
from turnlog.client.parts import parts_of
from turnlog.core.errors import TurnlogError
from turnlog.core.json_values import canonical_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.sessions.message_models import StoredMessage

MAX_KEPT = 1_000


class OldStore(Protocol):
    """What there was before, as a few lines of one's own make it look."""

    def append(self, *messages: Mapping[str, Any]) -> object: ...

    def messages(self) -> Iterable[Mapping[str, Any]]: ...


@lazy_dataclass(frozen=True, slots=True)
class Difference:
    """``kind``: ``missing`` in Turnlog, ``more`` in Turnlog, ``differs``, or ``write_failed`` and ``read_failed`` with the
    error's code. ``index`` is the message's place in the old store, from 0. Never what was said."""

    kind: Literal["missing", "more", "differs", "write_failed", "read_failed"]
    index: int | None = None
    position: int | None = None
    error: str | None = None


class DualWrite:
    """One session in two places.

    The old store is written first, and its errors are the caller's. Turnlog comes second: what goes wrong there is reported
    and breaks nothing, and the next append brings it up to date from the old store, as the first one does with what was there
    before. One writer a session: two that bring it up to date at once may both append what is missing, which is reported.

    ``read_from`` says whose messages `messages` gives. ``format`` is of the messages. ``on_difference`` is called with each
    difference; `differences` keeps the newest `MAX_KEPT`.
    """

    def __init__(
        self,
        old: OldStore,
        session: Session,
        *,
        read_from: Literal["old", "turnlog"] = "old",
        format: str | None = None,
        on_difference: Callable[[Difference], None] | None = None,
    ) -> None:
        self.old = old
        self.session = session
        self.differences = list[Difference]()
        self._read_from = read_from
        self._format = format
        self._on_difference = on_difference
        self._is_level = False

    def append(self, *messages: Mapping[str, Any]) -> None:
        """Appends to both."""
        self.old.append(*messages)
        try:
            if self._is_level:
                self._append(messages)
            else:
                self._level(messages)
        except Exception as error:  # noqa: BLE001 - whatever it is, the old path goes on
            self._is_level = False
            self._report(Difference("write_failed", error=_code(error)))

    def messages(self) -> list[dict[str, Any]]:
        """All messages, from where `read_from` says, compared with the other place; the old one's where Turnlog fails."""
        old = [dict(message) for message in self.old.messages()]
        try:
            stored = self._said()
        except Exception as error:  # noqa: BLE001 - whatever it is, the old path goes on
            self._report(Difference("read_failed", error=_code(error)))
            return old
        for difference in _differences(old, stored):
            self._report(difference)
        return old if self._read_from == "old" else [one.body for one in stored]

    def _said(self) -> list[StoredMessage]:
        """Not what the session was begun with from memory: the old place never had it."""
        return [one for one in self.session.messages() if one.origin is None]

    def _level(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Appends what the old store has beyond the log; the new messages alone where they differ before: the next read tells."""
        head = self.session.info().head
        old, stored = [dict(message) for message in self.old.messages()], self._said()
        if any(difference.kind != "missing" for difference in _differences(old, stored)):
            self._append(messages)
            return
        self._append(old[len(stored) :], head=head)
        self._is_level = True

    def _append(self, messages: Sequence[Mapping[str, Any]], *, head: int | None = None) -> None:
        for part in parts_of(messages):
            answer = self.session.append(*messages[part], format=self._format, if_head=head)
            head = answer.head if head is not None else None

    def _report(self, difference: Difference) -> None:
        self.differences = [*self.differences[-MAX_KEPT + 1 :], difference]
        if self._on_difference is not None:
            self._on_difference(difference)


def _differences(old: Sequence[Mapping[str, Any]], stored: Sequence[StoredMessage]) -> Iterator[Difference]:
    for index, (ours, theirs) in enumerate(zip_longest(old, stored)):
        if theirs is None:
            yield Difference("missing", index)
        elif ours is None:
            yield Difference("more", index, theirs.position)
        elif canonical_json(ours) != canonical_json(theirs.body):
            yield Difference("differs", index, theirs.position)


def _code(error: Exception) -> str:
    return error.error_code if isinstance(error, TurnlogError) else type(error).__name__
