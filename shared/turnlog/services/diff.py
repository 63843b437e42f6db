"""The difference of two moments of a session: messages, state, settings, summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnlog.contracts.time_travel import Diff
from turnlog.contracts.time_travel import Stretch as StretchAnswer
from turnlog.domain.identity import Owner
from turnlog.domain.patches import difference
from turnlog.domain.session import Settings
from turnlog.domain.view import Stretch, without
from turnlog.log.headers import Header
from turnlog.log.keys import SessionKeys
from turnlog.log.sessions import SessionLog
from turnlog.services.moments import header_of
from turnlog.services.read_messages import MAX_LIMIT, ReadMessages

_ORIGIN = frozenset({"reset_of", "forked_from", "forked_at"})


class CompareMoments:
    """The use case. ``to`` may come before ``from_``, and either may be a moment that a rewind has taken out of view."""

    def __init__(self, log: SessionLog, read_messages: ReadMessages) -> None:
        self._log = log
        self._read_messages = read_messages

    def __call__(
        self,
        owner: Owner,
        session_id: str,
        *,
        from_: int | str,
        to: int | str | None = None,
        after: int = 0,
        limit: int = MAX_LIMIT,
    ) -> Diff:
        """``to`` is the head when it is left out. ``after`` and ``limit`` are of the messages."""
        keys = SessionKeys(owner, session_id)
        before = header_of(self._log, keys, from_, pointer="/query/from")
        head = self._log.commits.tail(keys).header
        then = head if to is None else header_of(self._log, keys, to, pointer="/query/to")
        shown_before, shown = self._shown(keys, before), self._shown(keys, then)
        page = self._read_messages.among(keys, then, without(shown, shown_before), after=after, limit=limit)
        return Diff(
            from_position=before.last,
            to_position=then.last,
            messages=page.messages,
            next=page.next,
            left=[StretchAnswer(first=first, last=last) for first, last in without(shown_before, shown)],
            state=self._changes(keys, before, then),
            settings=self._other_settings(keys, before, then),
            summary_from=before.summary.position if before.summary is not None else None,
            summary_to=then.summary.position if then.summary is not None else None,
        )

    def _shown(self, keys: SessionKeys, header: Header) -> Sequence[Stretch]:
        return self._log.commits.view(keys, header).up_to(header.last)

    def _changes(self, keys: SessionKeys, before: Header, then: Header) -> list[Any]:
        if before.last_state == then.last_state:
            return []
        states = [self._log.states.at(keys, header.last_state).value for header in (before, then)]
        return list(difference(*states))

    def _other_settings(self, keys: SessionKeys, before: Header, then: Header) -> list[str]:
        if before.last_settings == then.last_settings:
            return []
        old, new = (self._log.settings_at(keys, header).settings for header in (before, then))
        named = (name for name in Settings.__slots__ if not name.endswith("_tokens") and name not in _ORIGIN)
        return [name for name in named if getattr(old, name) != getattr(new, name)]
