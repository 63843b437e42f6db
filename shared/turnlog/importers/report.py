"""Report of an import or a dry run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from turnlog.core.errors import TurnlogError
from turnlog.importers.source_sessions import Noted


@dataclass(slots=True)
class SessionReport:
    """The report of one session.

    ``status``: ``new``, ``grown`` (messages were appended), ``settings`` (only settings or state were updated), ``same``,
    ``refused`` (``error`` says why; nothing was written after it) or ``skipped`` (nothing to import). Of the source's
    ``messages``, ``present`` were in the log before and ``written`` were appended. ``changed`` lists messages that were changed
    to fit, ``skipped`` entries that are not messages and are kept in metadata. ``more`` counts messages of the log that the
    source does not have.
    """

    file: str
    shape: str
    session_id: str
    source_id: str
    status: str
    messages: int = 0
    present: int = 0
    written: int = 0
    more: int = 0
    changed: list[Noted] = field(default_factory=list)
    skipped: list[Noted] = field(default_factory=list)
    warnings: list[Noted] = field(default_factory=list)
    first_at: str | None = None
    last_at: str | None = None
    error: TurnlogError | None = None

    def as_json(self) -> dict[str, Any]:
        names = ("file", "shape", "session_id", "source_id", "status", "messages", "present", "written", "more")
        lists = {name: _noted(getattr(self, name)) for name in ("changed", "skipped", "warnings")}
        times = {"first_at": self.first_at, "last_at": self.last_at}
        error = {"code": self.error.error_code, "detail": self.error.detail} if self.error is not None else None
        return {**{name: getattr(self, name) for name in names}, **lists, **times, "error": error}


@dataclass(slots=True)
class Report:
    """The report of an import: one row for each session, in the order of the sources. A dry run differs in ``seconds`` and
    ``dry_run`` only.
    """

    sessions: list[SessionReport]
    dry_run: bool
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether no session was refused."""
        return all(row.status != "refused" for row in self.sessions)

    @property
    def written(self) -> int:
        """Number of messages that were appended."""
        return sum(row.written for row in self.sessions)

    def check(self) -> Report:
        """Return the report. Raises the error of the first refused session."""
        for row in self.sessions:
            if row.error is not None:
                raise row.error
        return self

    def as_json(self) -> dict[str, Any]:
        counts = Counter(row.status for row in self.sessions)
        return {
            "dry_run": self.dry_run,
            "seconds": round(self.seconds, 3),
            "sessions": [row.as_json() for row in self.sessions],
            "totals": {
                "sessions": len(self.sessions),
                "status": dict(sorted(counts.items())),
                **{
                    name: sum(getattr(row, name) for row in self.sessions)
                    for name in ("messages", "present", "written")
                },
                **{name: self.reasons(name) for name in ("changed", "skipped", "warnings")},
            },
        }

    def reasons(self, name: str) -> dict[str, int]:
        """Count the reasons of ``changed``, ``skipped`` or ``warnings``."""
        noted = [note.reason.split(" /")[0] for row in self.sessions for note in getattr(row, name)]
        return dict(sorted(Counter(noted).items()))


def _noted(notes: Iterable[Noted]) -> list[dict[str, str]]:
    return [{"place": note.place, "reason": note.reason} for note in notes]
