"""Read a session as it was at a snapshot: from its log while that exists, then from a full snapshot's own history."""

from __future__ import annotations

from base64 import b64encode
from typing import cast

from turnlog.core.errors import CorruptError
from turnlog.core.identity import Owner, safe_id
from turnlog.core.json_values import encode_json
from turnlog.core.limits import MAX_ANSWER_BYTES
from turnlog.log.commit import Commit
from turnlog.log.keys import SessionKeys, commit_sort_key
from turnlog.log.links import Links
from turnlog.log.payloads import Payloads
from turnlog.log.records import Record
from turnlog.ports import BlobStore
from turnlog.sessions.messages import ReadMessages
from turnlog.sessions.session_log import SessionLog
from turnlog.sessions.state_store import state_at
from turnlog.snapshots.full import ArchiveItems, FullSnapshots, SnapshotStretch, parts_of
from turnlog.snapshots.lifecycle import find_snapshot, snapshot_fields
from turnlog.snapshots.routes import SnapshotContent, SnapshotPart, WholeSnapshot


class SnapshotLogs:
    """Finds the log that a snapshot can be read from."""

    def __init__(self, log: SessionLog, blobs: BlobStore, full: FullSnapshots) -> None:
        self._log = log
        self._blobs = blobs
        self._full = full

    def live_commit(self, keys: SessionKeys, record: Record) -> Commit | None:
        """Return the commit that the snapshot was made at, in its session's log; None after the log has gone.

        A session that was restored to an earlier moment has another log. A full snapshot does not need it, so the answer is
        None; a ``ref`` raises `CorruptError`.
        """
        first = cast("int", record.content["commit"])
        if self._log.commits.find_tail(keys) is None:
            return None
        commit = self._log.commits.get(keys, first)
        if commit is not None and commit.header.hash.hex() != record.content["hash"]:
            if record.content["kind"] == "full":
                return None
            raise CorruptError("the log is not the one that the snapshot was made of", item=commit_sort_key(first))
        return commit

    def log_of(self, keys: SessionKeys, record: Record) -> tuple[SessionLog, Commit]:
        """Return the log and the commit to read the snapshot from. Raises `NotFoundError` for a ``ref`` without its log."""
        commit = self.live_commit(keys, record)
        if commit is not None:
            return self._log, commit
        items = ArchiveItems(self._full.archive(keys, record))
        log = SessionLog(items, Payloads(items, self._blobs), self._log.clock, self._log.ids, expires=False)
        commit = log.commits.get(keys, cast("int", record.content["commit"]))
        if commit is None or commit.header.hash.hex() != record.content["hash"]:
            raise CorruptError("a snapshot does not hold the commit that it was made at", item=record.id)
        return log, commit


class GetSnapshot:
    """Use case: return a snapshot by id or name, with the session as it was at its position."""

    def __init__(self, log: SessionLog, logs: SnapshotLogs, links: Links) -> None:
        self._log = log
        self._logs = logs
        self._links = links

    def __call__(self, owner: Owner, session_id: str, snapshot: str, *, after: int = 0) -> WholeSnapshot:
        """Return the snapshot. ``after`` is the ``next`` of the page of messages before."""
        keys = SessionKeys(owner, session_id)
        record = find_snapshot(self._log.records, keys, snapshot)
        log, commit = self._logs.log_of(keys, record)
        content = self._content(log, keys, commit, record, after)
        parts = [self._part(keys, part, record.id) for part in parts_of(record)]
        answer = WholeSnapshot(**snapshot_fields(record), content=content, parts=parts)
        fits = len(encode_json(answer.model_dump(mode="python"))) <= MAX_ANSWER_BYTES
        return answer if fits else answer.model_copy(update={"content": None})

    def _content(
        self, log: SessionLog, keys: SessionKeys, commit: Commit, record: Record, after: int
    ) -> SnapshotContent:
        settings = log.settings_at(keys, commit.header).settings
        state = state_at(log, keys, commit.header.last_state)
        position = cast("int", record.content["position"])
        page = ReadMessages(log)(keys.owner, keys.session_id, after=after, at=position)
        flow = commit.header.flow
        return SnapshotContent(
            system=settings.system,
            model=settings.model,
            tools=list(settings.tools),
            policy=settings.policy,
            metadata=settings.metadata,
            state=state.value,
            message_count=flow.messages,
            loops=flow.loop.number,
            tokens=flow.tokens,
            messages=page.messages,
            next=page.next,
        )

    def _part(self, keys: SessionKeys, part: SnapshotStretch, snapshot_id: str) -> SnapshotPart:
        link = None
        if part.inline is None:
            filename = f"{safe_id(keys.session_id)}-{snapshot_id}-{part.first}-{part.last}.seg"
            link = self._links.make(keys.owner, keys.blob_prefix + part.blob, filename=filename)
        return SnapshotPart(
            first=part.first,
            last=part.last,
            sha256=part.sha256,
            size_bytes=part.size_bytes,
            url=link.url if link is not None else None,
            expires_at=link.expires_at if link is not None else None,
            data=b64encode(part.inline).decode("ascii") if part.inline is not None else None,
        )
