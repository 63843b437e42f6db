"""Migrate from an old store step by step: write to both stores, compare them at every read, and trust the old one until the
end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import Any, Literal, Protocol

from turnlog.client.model import Session
from turnlog.core.errors import InvalidInputError, LoopUnfinishedError, TurnlogError
from turnlog.core.json_values import canonical_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.sessions.message_models import StoredMessage

MAX_DIFFERENCES = 1_000


class OldStore(Protocol):
    """The old store, behind the two methods that `DualWrite` needs."""

    def append(self, *messages: Mapping[str, Any]) -> object: ...

    def messages(self) -> Iterable[Mapping[str, Any]]: ...


@lazy_dataclass(frozen=True, slots=True)
class Difference:
    """A difference between the two stores, or a failure of Turnlog. It never holds message content.

    ``kind``: ``missing`` in Turnlog, ``more`` in Turnlog, ``differs``, or ``write_failed`` and ``read_failed`` with the code in
    ``error``. ``index`` is the message's index in the old store, from 0; ``position`` is its position in Turnlog.
    """

    kind: Literal["missing", "more", "differs", "write_failed", "read_failed"]
    index: int | None = None
    position: int | None = None
    error: str | None = None


class DualWrite:
    """One session in two stores.

    The old store is written first, and its errors are raised. Turnlog is written second: a failure there is reported and does
    not stop the caller. The next append then brings Turnlog up to date from the old store; the first append does so with the
    messages from before. Use one writer for a session: two that update Turnlog at once may both append a missing message, which
    is reported.

    ``read_from`` names the store whose messages `messages` returns. ``format`` is the messages' format. ``on_difference`` is
    called with each difference; `differences` keeps the newest `MAX_DIFFERENCES`.
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
        self._is_up_to_date = False

    def append(self, *messages: Mapping[str, Any]) -> None:
        """Append messages to both stores."""
        self.old.append(*messages)
        try:
            if self._is_up_to_date:
                self._append(messages)
            else:
                self._catch_up(messages)
        except Exception as error:  # noqa: BLE001 - no failure of Turnlog may stop the old store
            self._is_up_to_date = False
            self._report(Difference("write_failed", error=_code(error)))

    def messages(self) -> list[dict[str, Any]]:
        """Return all messages of the store that ``read_from`` names, compared with the other one.

        When Turnlog fails or lacks messages, the messages are the old store's.
        """
        old = [dict(message) for message in self.old.messages()]
        try:
            stored = self._stored_messages()
        except Exception as error:  # noqa: BLE001 - no failure of Turnlog may stop the old store
            self._report(Difference("read_failed", error=_code(error)))
            return old
        differences = list(_differences(old, stored))
        for difference in differences:
            self._report(difference)
        is_short = any(difference.kind == "missing" for difference in differences)
        return old if self._read_from == "old" or is_short else [message.body for message in stored]

    def _stored_messages(self) -> list[StoredMessage]:
        """Return the messages in Turnlog, without those from long-term memory, which the old store never had."""
        return [message for message in self.session.messages() if message.origin is None]

    def _catch_up(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Append what the old store has beyond the log; report each message that Turnlog refuses, and go on behind it.

        When they differ, append new messages only; the next read reports it.
        """
        head = self.session.info().head
        old, stored = [dict(message) for message in self.old.messages()], self._stored_messages()
        if any(difference.kind != "missing" for difference in _differences(old, stored)):
            self._append(messages)
            return
        try:
            self._append(old[len(stored) :], head=head)
        except (InvalidInputError, LoopUnfinishedError):
            for index in range(len(self._stored_messages()), len(old)):
                try:
                    self._append(old[index : index + 1])
                except (InvalidInputError, LoopUnfinishedError) as error:
                    self._report(Difference("write_failed", index, error=_code(error)))
        self._is_up_to_date = True

    def _append(self, messages: Sequence[Mapping[str, Any]], *, head: int | None = None) -> None:
        self.session.extend(messages, format=self._format, if_head=head, lenient=True)

    def _report(self, difference: Difference) -> None:
        self.differences = [*self.differences[-MAX_DIFFERENCES + 1 :], difference]
        if self._on_difference is not None:
            self._on_difference(difference)


def _differences(old: Sequence[Mapping[str, Any]], stored: Sequence[StoredMessage]) -> Iterator[Difference]:
    for index, (old_message, stored_message) in enumerate(zip_longest(old, stored)):
        if stored_message is None:
            yield Difference("missing", index)
        elif old_message is None:
            yield Difference("more", index, stored_message.position)
        elif not _is_equal(old_message, stored_message.body):
            yield Difference("differs", index, stored_message.position)


def _is_equal(old: Mapping[str, Any], stored: Mapping[str, Any]) -> bool:
    with suppress(ValueError, TypeError, RecursionError):  # the old store may hold what is no JSON, such as NaN
        return canonical_json(dict(old)) == canonical_json(dict(stored))
    return False


def _code(error: Exception) -> str:
    return error.error_code if isinstance(error, TurnlogError) else type(error).__name__
