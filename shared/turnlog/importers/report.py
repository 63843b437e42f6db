"""What an import has done, or would do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from turnlog.core.errors import TurnlogError
from turnlog.importers.source_sessions import Noted


@dataclass(slots=True)
class SessionReport:
    """``status``: ``new``, ``grown`` (messages were appended), ``settings`` (only those have changed), ``same``, ``refused``
    (``error`` says why; nothing was written from there on) or ``skipped`` (nothing in it to import).

    Of the source's ``messages``, ``present`` were in the log before and ``written`` are now. ``changed`` are kept with a
    change, ``skipped`` are no messages and kept in metadata. ``more``: messages of the log that the source does not have.
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
    """One row a session, in the order of the sources. A dry run's differs in ``seconds`` and ``dry_run`` only."""

    sessions: list[SessionReport]
    dry_run: bool
    seconds: float

    @property
    def ok(self) -> bool:
        return all(one.status != "refused" for one in self.sessions)

    @property
    def written(self) -> int:
        return sum(one.written for one in self.sessions)

    def check(self) -> Report:
        """The report; raises the error of the first session that was refused."""
        for one in self.sessions:
            if one.error is not None:
                raise one.error
        return self

    def as_json(self) -> dict[str, Any]:
        counts = Counter(one.status for one in self.sessions)
        return {
            "dry_run": self.dry_run,
            "seconds": round(self.seconds, 3),
            "sessions": [one.as_json() for one in self.sessions],
            "totals": {
                "sessions": len(self.sessions),
                "status": dict(sorted(counts.items())),
                **{
                    name: sum(getattr(one, name) for one in self.sessions)
                    for name in ("messages", "present", "written")
                },
                **{name: self.reasons(name) for name in ("changed", "skipped", "warnings")},
            },
        }

    def reasons(self, name: str) -> dict[str, int]:
        """How often each reason of ``changed``, ``skipped`` or ``warnings`` is given."""
        noted = [one.reason.split(" /")[0] for row in self.sessions for one in getattr(row, name)]
        return dict(sorted(Counter(noted).items()))


def _noted(found: Iterable[Noted]) -> list[dict[str, str]]:
    return [{"place": one.place, "reason": one.reason} for one in found]
