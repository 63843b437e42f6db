"""The history of a session and its earlier moments: rewind, fork, replay, diff and snapshots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from turnlog.client import Paged, SessionResource, sent_settings
from turnlog.core.errors import InvalidInputError
from turnlog.core.events import CREATE, FORK, RESTORE, REWIND
from turnlog.core.json_patch import apply_patches
from turnlog.core.json_values import without_none
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.times import milliseconds_of
from turnlog.jobs.models import Job
from turnlog.sessions.history_routes import Diff, HistoryEntry, HistoryPage
from turnlog.sessions.models import Session as SessionInfo
from turnlog.snapshots.routes import Snapshot, SnapshotDeleted, SnapshotPage, WholeSnapshot

if TYPE_CHECKING:
    from typing import Self


class TimeTravel(SessionResource):
    """Calls for the history and earlier moments of a session. A moment is a position, or a time as text (RFC 3339)."""

    def rewind(self, to: int | str, *, if_head: int | None = None, idempotency_key: str | None = None) -> SessionInfo:
        """Return the session to an earlier moment: messages, state, settings and summary.

        The log keeps what came after; a later rewind can return to it.
        """
        body = without_none({"to": to, "if_head": if_head})
        return self._call(SessionInfo, "rewind_session", body=body, idempotency_key=idempotency_key)

    def fork(
        self,
        /,
        session_id: str | None = None,
        *,
        at: int | str | None = None,
        idempotency_key: str | None = None,
        **settings: Any,
    ) -> Self:
        """Create a session that begins as this one was at a moment (by default its head) and shares its log; copy nothing.

        ``settings`` replace this session's: ``title``, ``system``, ``model``, ``tools``, ``policy`` and the others that can be
        changed.
        """
        fork = without_none({"session_id": self.id, "at": at})
        fields = {**sent_settings(settings), "fork": fork, **without_none({"session_id": session_id})}
        info = self._call(SessionInfo, "create_session", body=fields, idempotency_key=idempotency_key)
        return type(self)(self.backend, info.session_id)

    def replay(self, *, base_state: Mapping[str, Any] | None = None, until: int | str | None = None) -> Replayed:
        """Fold the state again from the history, up to a position or time. Rewinds are followed.

        ``base_state`` replaces the state that the session was created with. Raises `PatchError` when a change does not apply.
        """
        last = until if isinstance(until, int) else None
        time_ms = _milliseconds(until) if isinstance(until, str) else None
        results = [Replayed(0, {}, 0)]
        for entry in reversed(list(self.history())):
            position = int(entry.history_id)
            is_later = last is not None and position > last
            if is_later or (time_ms is not None and milliseconds_of(entry.created_at) > time_ms):
                break
            results.append(_after(results, entry, position, base_state))
        return results[-1]

    def history(self, *, action: str | None = None, agent: str | None = None) -> Paged[HistoryEntry]:
        """Iterate over history entries, newest first, page by page."""

        def fetch(before: int | None) -> tuple[Sequence[HistoryEntry], int | None]:
            page = self.history_page(before=before, action=action, agent=agent)
            return page.entries, page.next

        return Paged(fetch)

    def history_page(
        self, *, limit: int = 100, before: int | None = None, action: str | None = None, agent: str | None = None
    ) -> HistoryPage:
        """Return one page of history entries, newest first."""
        query = {"limit": limit, "before": before, "action": action, "agent": agent}
        return self._call(HistoryPage, "read_history", query=query)

    def record(
        self,
        action: str,
        *,
        agent_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> HistoryEntry:
        """Add an entry of your own to the history. Nothing else changes."""
        body = without_none({"action": action, "agent_id": agent_id, "metadata": metadata})
        return self._call(HistoryEntry, "record_history", body=body, idempotency_key=idempotency_key)

    def diff(self, from_: int | str, to: int | str | None = None, *, after: int = 0, limit: int = 100) -> Diff:
        """Compare two moments of the session; ``to`` is the head by default.

        The answer has a page of the messages that came into view, and the ranges that left it. It also has a JSON Patch of the
        state and the names of changed settings.
        """
        query = {"from": from_, "to": to, "after": after or None, "limit": limit}
        return self._call(Diff, "diff_session", query=query)


class SnapshotCalls(SessionResource):
    """Calls that make, list, read, restore and delete snapshots."""

    def create_snapshot(  # noqa: PLR0913 - the fields of a snapshot
        self,
        name: str | None = None,
        *,
        kind: Literal["ref", "full"] = "ref",
        metadata: Mapping[str, Any] | None = None,
        agent_id: str | None = None,
        if_name_absent: bool = False,
        keep: int | None = None,
        pinned: bool = False,
        mode: Literal["sync", "async"] = "sync",
        idempotency_key: str | None = None,
    ) -> Snapshot | Job:
        """Name the session's head; ``kind="full"`` copies the history, so that it outlives the session.

        ``keep`` deletes older snapshots of this name, kind and agent, and leaves that many of the newest. The session's
        policy (``snapshots={"keep_named": 10, "named_days": 30}``) deletes old named ones, but for ``pinned`` ones. Raises
        `ConflictError` with ``if_name_absent`` when a snapshot has the name. For a full snapshot of a long history the answer
        is a job.
        """
        fields = {"name": name, "kind": kind, "metadata": metadata, "agent_id": agent_id, "keep": keep, "mode": mode}
        body = without_none(fields) | {"if_name_absent": if_name_absent, "pinned": pinned}
        answer: Snapshot | Job = self.backend.call(
            "create_snapshot", path=self._path, body=body, idempotency_key=idempotency_key
        )
        return answer

    def snapshot(self, snapshot: str, *, after: int | None = None) -> WholeSnapshot:
        """Return a snapshot by id or name (the newest of that name), with the session's contents at its position.

        ``after`` is the ``next`` of the page of messages before.
        """
        return self._call(WholeSnapshot, "get_snapshot", path={"snapshot": snapshot}, query={"after": after})

    def snapshots(self, *, name: str | None = None, agent: str | None = None) -> Paged[Snapshot]:
        """Iterate over snapshots, newest first, page by page."""

        def fetch(cursor: str | None) -> tuple[Sequence[Snapshot], str | None]:
            query = {"limit": 100, "cursor": cursor, "name": name, "agent": agent}
            page = self._call(SnapshotPage, "list_snapshots", query=query)
            return page.snapshots, page.next_cursor

        return Paged(fetch)

    def restore_snapshot(
        self,
        snapshot: str,
        *,
        as_: Literal["rewind", "fork"] = "fork",
        session_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> SessionInfo | Job:
        """Create a session that begins with the snapshot (``fork``), or rewind this session to it (``rewind``).

        A full snapshot can also be restored after the session has expired. For a long history the answer is a job.
        """
        path, body = {**self._path, "snapshot": snapshot}, without_none({"as": as_, "session_id": session_id})
        answer: SessionInfo | Job = self.backend.call(
            "restore_snapshot", path=path, body=body, idempotency_key=idempotency_key
        )
        return answer

    def delete_snapshot(self, snapshot: str, *, idempotency_key: str | None = None) -> SnapshotDeleted:
        """Delete a snapshot by id or name, and the parts of the session's history that only it needs."""
        path = {"snapshot": snapshot}
        return self._call(SnapshotDeleted, "delete_snapshot", path=path, idempotency_key=idempotency_key)


@lazy_dataclass(frozen=True, slots=True)
class Replayed:
    """The state after the event at ``position``.

    ``changes`` counts the changes that made it; changes that a rewind took back are not counted.
    """

    position: int
    state: dict[str, Any]
    changes: int


_GOES_BACK_TO = {REWIND: "to", RESTORE: "to", FORK: "at"}
"""Actions that go back to an earlier position, and the metadata that names it."""


def _after(
    results: Sequence[Replayed], entry: HistoryEntry, position: int, base_state: Mapping[str, Any] | None
) -> Replayed:
    """Return the result after an entry. ``results`` are those before it; a rewind takes the one at its target."""
    before = results[-1]
    if entry.action == CREATE and position == 1 and base_state is not None:
        return Replayed(position, dict(base_state), 0)
    back_to = entry.metadata.get(_GOES_BACK_TO.get(entry.action, ""))
    if back_to is not None:
        target = next(result for result in reversed(results) if result.position <= back_to)
        return Replayed(position, target.state, target.changes)
    if entry.diff is None:
        return Replayed(position, before.state, before.changes)
    return Replayed(position, apply_patches(before.state, [entry.diff])[0], before.changes + 1)


def _milliseconds(time: str) -> int:
    try:
        return milliseconds_of(time)
    except ValueError as error:
        raise InvalidInputError.at("/until", f"{time[:64]!r} is not a time in RFC 3339") from error
