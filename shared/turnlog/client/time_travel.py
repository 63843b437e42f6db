"""Going back in a session, from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from turnlog.client.backend import OfSession
from turnlog.client.paging import Paged
from turnlog.client.policies import policy_field

if TYPE_CHECKING:
    from typing import Self

    from turnlog.client.replaying import Replayed
    from turnlog.contracts.history import HistoryEntry, HistoryPage
    from turnlog.contracts.sessions import Session as SessionInfo
    from turnlog.contracts.time_travel import Diff


class TimeTravel(OfSession):
    """What a `Session` can do with its earlier moments: a position, or a time as text (RFC 3339)."""

    def rewind(self, to: int | str, *, if_head: int | None = None, key: str | None = None) -> SessionInfo:
        """From now on all is as it was at that moment: messages, state, settings, summary. The log keeps what came after, and a
        later rewind can go back to it."""
        body = {"to": to} | ({"if_head": if_head} if if_head is not None else {})
        answer: SessionInfo = self._backend.call("rewind_session", path=self._path, body=body, key=key)
        return answer

    def fork(
        self, session_id: str | None = None, *, at: int | str | None = None, key: str | None = None, **settings: Any
    ) -> Self:
        """A new session that begins as this one was at that moment (by default now) and shares its log; nothing is copied.

        ``settings`` are put in place of this session's: ``title``, ``system``, ``model``, ``tools``, ``policy`` and the others
        that can be changed.
        """
        fork = {"session_id": self.id} | ({"at": at} if at is not None else {})
        fields: dict[str, Any] = {**settings, "fork": fork}
        if session_id is not None:
            fields["session_id"] = session_id
        if "policy" in fields:
            fields["policy"] = policy_field(fields["policy"])
        info: SessionInfo = self._backend.call("create_session", body=fields, key=key)
        return type(self)(self._backend, info.session_id)

    def replay(self, *, base_state: Mapping[str, Any] | None = None, until: int | str | None = None) -> Replayed:
        """The state, folded again from the history: up to a position or time, on ``base_state`` in place of what the session was
        created with. Rewinds are followed."""
        from turnlog.client.replaying import replayed

        entries = list(self.history())
        return replayed(reversed(entries), base_state=base_state, until=until)

    def history(self, *, action: str | None = None, agent: str | None = None) -> Paged[HistoryEntry]:
        """What was done, newest first, page by page."""

        def fetch(before: int | None) -> tuple[Sequence[HistoryEntry], int | None]:
            query = {"before": before, "action": action, "agent": agent}
            page: HistoryPage = self._backend.call("read_history", path=self._path, query=query)
            return page.entries, page.next

        return Paged(fetch)

    def diff(self, from_: int | str, to: int | str | None = None, *, after: int = 0, limit: int = 100) -> Diff:
        """What is different at ``to`` (by default now): messages that came into view, a page of them, and stretches that left
        it; a JSON Patch of the state; the names of other settings."""
        query = {"from": from_, "to": to, "after": after or None, "limit": limit}
        answer: Diff = self._backend.call("diff_session", path=self._path, query=query)
        return answer
