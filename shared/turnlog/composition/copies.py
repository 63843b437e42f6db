"""Copies of sessions: snapshots, restores, exports, imports, and the segments that they share."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from turnlog.composition.conversations import Conversations

if TYPE_CHECKING:
    from turnlog.log.full_snapshots import FullSnapshots
    from turnlog.log.materialise import Materialiser
    from turnlog.services.delete_snapshots import DeleteSnapshots, SweepSnapshots
    from turnlog.services.export import ExportSessions
    from turnlog.services.import_sessions import ImportSessions
    from turnlog.services.links import Links
    from turnlog.services.read_snapshots import GetSnapshot, SnapshotLogs
    from turnlog.services.restore import RestoreSnapshots
    from turnlog.services.seal import SealSessions
    from turnlog.services.snapshots import CreateSnapshots, ListSnapshots


class Copies(Conversations):
    """The use cases of copies. A restore rewinds and creates, and has room made for a session that begins again."""

    @cached_property
    def create_snapshot(self) -> CreateSnapshots:
        from turnlog.services.snapshots import CreateSnapshots

        return CreateSnapshots(self._log, self._full_snapshots, self._start_job, self._snapshot_cleaner)

    @cached_property
    def _full_snapshots(self) -> FullSnapshots:
        from turnlog.log.full_snapshots import FullSnapshots

        return FullSnapshots(self.engine.blobs, self.segments, self._log.records, self._clock)

    @cached_property
    def _snapshot_logs(self) -> SnapshotLogs:
        from turnlog.services.read_snapshots import SnapshotLogs

        return SnapshotLogs(self._log, self.engine.blobs, self._full_snapshots)

    @cached_property
    def _materialiser(self) -> Materialiser:
        from turnlog.log.materialise import Materialiser

        return Materialiser(self._log, self.engine.blobs)

    @cached_property
    def restore_snapshot(self) -> RestoreSnapshots:
        from turnlog.services.restore import RestoreSnapshots

        return RestoreSnapshots(
            self._log,
            self._payloads,
            self._snapshot_logs,
            self._full_snapshots,
            self._materialiser,
            self.rewind_session,
            self.create_session,
            self.erase_session,
            self._start_job,
        )

    @cached_property
    def export_sessions(self) -> ExportSessions:
        from turnlog.services.export import ExportSessions

        return ExportSessions(
            self._log,
            self._payloads,
            self.engine.blobs,
            self.links,
            self._start_job,
            lambda: self._told_memory,
            self._documents,
        )

    @cached_property
    def import_session(self) -> ImportSessions:
        from turnlog.services.import_sessions import ImportSessions

        return ImportSessions(self._log, self._materialiser, self._documents)

    @cached_property
    def links(self) -> Links:
        from turnlog.services.links import Links

        return Links(self.engine.blobs, self._clock, self._log.cursor_secret)

    @cached_property
    def delete_snapshot(self) -> DeleteSnapshots:
        from turnlog.services.delete_snapshots import DeleteSnapshots

        return DeleteSnapshots(self._log, self._snapshot_cleaner)

    @cached_property
    def sweep_snapshots(self) -> SweepSnapshots:
        from turnlog.services.delete_snapshots import SweepSnapshots

        return SweepSnapshots(self._log, self.engine.blobs, self._full_snapshots)

    @cached_property
    def list_snapshots(self) -> ListSnapshots:
        from turnlog.services.snapshots import ListSnapshots

        return ListSnapshots(self._log)

    @cached_property
    def get_snapshot(self) -> GetSnapshot:
        from turnlog.services.read_snapshots import GetSnapshot

        return GetSnapshot(self._log, self._snapshot_logs, self.links)

    @cached_property
    def seal_session(self) -> SealSessions:
        from turnlog.services.seal import SealSessions

        return SealSessions(self._log, self.segments)
