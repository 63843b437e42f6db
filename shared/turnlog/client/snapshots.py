"""Snapshots of a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from turnlog.client.backend import OfSession, given
from turnlog.client.paging import Paged
from turnlog.contracts.jobs import Job
from turnlog.contracts.sessions import Session as SessionInfo
from turnlog.contracts.snapshots import Snapshot, SnapshotDeleted, SnapshotPage, WholeSnapshot


class SnapshotCalls(OfSession):
    """Making, listing, reading and deleting snapshots."""

    def create_snapshot(
        self,
        name: str | None = None,
        *,
        kind: Literal["ref", "full"] = "ref",
        metadata: Mapping[str, Any] | None = None,
        agent_id: str | None = None,
        if_name_absent: bool = False,
        keep: int | None = None,
        mode: Literal["sync", "async"] = "sync",
        key: str | None = None,
    ) -> Snapshot | Job:
        """Names the session's head; ``kind="full"`` copies the history, so that it outlives the session's expiry.

        ``keep``: unnamed ones of this kind and agent are deleted but for so many of the newest. `ConflictError` when
        ``if_name_absent`` and a snapshot has the name. A full one of a long history is a job at first.
        """
        fields = {"name": name, "kind": kind, "metadata": metadata, "agent_id": agent_id, "keep": keep, "mode": mode}
        body = given(fields) | {"if_name_absent": if_name_absent}
        answer: Snapshot | Job = self._backend.call("create_snapshot", path=self._path, body=body, key=key)
        return answer

    def snapshot(self, snapshot: str, *, after: int | None = None) -> WholeSnapshot:
        """A snapshot by id or name (the newest of that name), with what the session was at its position.

        ``after`` is the ``next`` of the page of messages before.
        """
        path = {**self._path, "snapshot": snapshot}
        answer: WholeSnapshot = self._backend.call("get_snapshot", path=path, query={"after": after})
        return answer

    def snapshots(self, *, name: str | None = None, agent: str | None = None) -> Paged[Snapshot]:
        """Newest first, page by page."""

        def fetch(cursor: str | None) -> tuple[Sequence[Snapshot], str | None]:
            query = {"limit": 100, "cursor": cursor, "name": name, "agent": agent}
            page: SnapshotPage = self._backend.call("list_snapshots", path=self._path, query=query)
            return page.snapshots, page.next_cursor

        return Paged(fetch)

    def restore_snapshot(
        self,
        snapshot: str,
        *,
        as_: Literal["rewind", "fork"] = "fork",
        session_id: str | None = None,
        key: str | None = None,
    ) -> SessionInfo | Job:
        """Another session that begins with the snapshot (``fork``), or this one goes back to it (``rewind``).

        A full one can be restored after the session has expired too. A long history is a job at first.
        """
        path, body = {**self._path, "snapshot": snapshot}, given({"as": as_, "session_id": session_id})
        answer: SessionInfo | Job = self._backend.call("restore_snapshot", path=path, body=body, key=key)
        return answer

    def delete_snapshot(self, snapshot: str, *, key: str | None = None) -> SnapshotDeleted:
        """Deletes a snapshot by id or name, and what only it needs of the session's history."""
        path = {**self._path, "snapshot": snapshot}
        answer: SnapshotDeleted = self._backend.call("delete_snapshot", path=path, key=key)
        return answer
