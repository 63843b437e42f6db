"""Files that `turnlog export` wrote: sessions are restored equal, with their positions and times, not appended again."""

from __future__ import annotations

import re
from collections.abc import Iterator

from turnlog.client.exports import ExportedSession, ExportFile, import_checked
from turnlog.client.model import Turnlog
from turnlog.core.errors import ConflictError, InvalidInputError, NotFoundError
from turnlog.importers.models import SessionReport, SourceFile, SourceRemark
from turnlog.snapshots.export_routes import never_added

SHAPE = "turnlog"
_BEGINNING = re.compile(rb"PK\x03\x04.{26}(manifest\.json|memory\.jsonl|sessions/[\w-]+/)", re.DOTALL)


def recognises(file: SourceFile) -> bool:
    """Return whether the file begins as an export: a zip whose first member is one of an export's. It may be cut."""
    return _BEGINNING.match(file.beginning) is not None


def run(log: Turnlog, file: SourceFile, dry_run: bool) -> Iterator[SessionReport]:
    """Import the sessions of an export, with a report for each.

    Raises `InvalidInputError` when the file is not what its manifest says. A session whose id another session has is refused
    alone.
    """
    with ExportFile(file.path) as export:
        export.check()
        for exported in [*export.sessions(), *export.only_remembered()]:
            error: InvalidInputError | ConflictError | None = None
            left_out = memories = missing = 0
            try:
                if dry_run:
                    status = _compare(log, exported)
                    memories = len(export.memories.get(exported.session_id, ())) if status == "new" else 0
                else:
                    answer = import_checked(log.backend, export, exported, documents=file.documents)
                    left_out, memories = answer.snapshots_left_out, answer.memories
                    missing = export.left_out(exported, answer)
                    status = "new" if answer.status == "imported" else "same"
            except (InvalidInputError, ConflictError) as refusal:
                status, error = "refused", refusal
            yield SessionReport(
                file.name,
                SHAPE,
                exported.session_id,
                exported.session_id,
                status if exported.head or error is not None else "skipped",
                messages=exported.messages,
                present=exported.messages if status == "same" else 0,
                written=exported.messages if status == "new" and not dry_run else 0,
                changed=_as_refs(export, exported) if status == "new" else [],
                warnings=[SourceRemark("snapshots", "snapshot_left_out")] * left_out
                + [SourceRemark("memory.jsonl", "memory_left_out")] * missing,
                memories=memories,
                error=error,
            )
        if unknown := len(export.memories.get("", ())):
            warnings = [SourceRemark("memory.jsonl", "memory_left_out")] * unknown
            yield SessionReport(file.name, SHAPE, "", "", "skipped", warnings=warnings)


def _as_refs(export: ExportFile, exported: ExportedSession) -> list[SourceRemark]:
    """Return a remark for each full snapshot, which comes back as a ``ref``. Older exports say not where it points to."""
    snapshots = export.snapshots(exported.session_id)
    return [
        SourceRemark(f"snapshot {snapshot.get('snapshot_id')}", "full_snapshot_is_ref")
        for snapshot in snapshots
        if snapshot["kind"] == "full" and "hash" in snapshot
    ]


def _compare(log: Turnlog, exported: ExportedSession) -> str:
    """Return the status that an import would report, judged by the head of an existing session."""
    try:
        info = log.sessions.of(exported.session_id).info()
    except NotFoundError:
        return "new"
    if info.head < exported.head:
        raise never_added(exported.session_id)
    return "same"
