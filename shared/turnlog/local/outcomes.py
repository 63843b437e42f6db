"""What became of replayed conversations: counts, findings, and their sums by source."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from turnlog.local.compressing import Compression

MAX_FINDINGS = 50


@dataclass(slots=True)
class Row:
    """Sums. ``tokens_full`` is what sending everything at each call would take, ``tokens_window`` what the windows take,
    ``tokens_stable`` how many of these are as the call before was sent them; ``breaks`` counts by reason the windows whose
    beginning is not.

    ``lost`` counts messages that did not come back, or not equal as JSON, or not in their place. Calls for which no window
    fits the budget are in ``too_small`` and in no other column.
    """

    sessions: int = 0
    messages: int = 0
    windows: int = 0
    tokens_full: int = 0
    tokens_window: int = 0
    tokens_stable: int = 0
    invalid: int = 0
    lost: int = 0
    too_small: int = 0
    failed: int = 0
    breaks: dict[str, int] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        return self.tokens_window / self.tokens_full if self.tokens_full else None

    def add(self, other: Row) -> None:
        for name, value in asdict(other).items():
            if name != "breaks":
                setattr(self, name, getattr(self, name) + value)
        for reason, count in other.breaks.items():
            self.broke(reason, count)

    def broke(self, reason: str, count: int = 1) -> None:
        self.breaks[reason] = self.breaks.get(reason, 0) + count


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong: in which session, where, and what."""

    session: str
    source: str
    code: str
    place: str
    message: str


@dataclass(frozen=True, slots=True)
class Call:
    """One model call: what sending everything takes, what the window takes (None: none fits), and whether it is valid."""

    full: int
    window: int | None
    is_valid: bool


@dataclass(slots=True)
class Outcome:
    """What became of one conversation. ``repeated_ids`` counts calls whose id stood earlier in the session; ``compression`` is
    there when it was replayed with summaries."""

    id: str
    source: str
    session_id: str | None = None
    row: Row = field(default_factory=lambda: Row(sessions=1))
    warnings: Counter[str] = field(default_factory=Counter)
    repeated_ids: int = 0
    findings: list[Finding] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    compression: Compression | None = None

    def find(self, code: str, place: str, message: str) -> None:
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(Finding(self.id, self.source, code, place, message))


@dataclass(slots=True)
class Report:
    """All outcomes, summed per source. ``ok``: every message came back, every window was valid, and with summaries every job
    is over, none failed, and no summary covers what it must not. ``sessions``: these by themselves."""

    rows: dict[str, Row] = field(default_factory=dict)
    total: Row = field(default_factory=Row)
    warnings: Counter[str] = field(default_factory=Counter)
    repeated_ids: int = 0
    findings: list[Finding] = field(default_factory=list)
    compressed: dict[str, Compression] = field(default_factory=dict)
    sessions: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        is_well = not (self.total.invalid or self.total.lost or self.total.failed)
        return is_well and all(one.ok for one in self.compressed.values())

    def add(self, outcome: Outcome) -> None:
        self.rows.setdefault(outcome.source, Row()).add(outcome.row)
        self.total.add(outcome.row)
        self.warnings.update(outcome.warnings)
        self.repeated_ids += outcome.repeated_ids
        self.findings += outcome.findings[: MAX_FINDINGS - len(self.findings)]
        if outcome.compression is not None:
            self.compressed.setdefault(outcome.source, Compression()).add(outcome.compression)
            named = {"session": outcome.id, "source": outcome.source, "session_id": outcome.session_id}
            self.sessions.append({**named, **outcome.compression.as_json()})

    @property
    def all_compressed(self) -> Compression:
        total = Compression()
        for one in self.compressed.values():
            total.add(one)
        return total

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "sources": {name: _row_json(row) for name, row in sorted(self.rows.items())},
            "total": _row_json(self.total),
            "warnings": dict(sorted(self.warnings.items())),
            "repeated_ids": self.repeated_ids,
            "findings": [asdict(finding) for finding in self.findings],
            **(self._compression_json() if self.compressed else {}),
        }

    def _compression_json(self) -> dict[str, Any]:
        sources = {name: one.as_json() for name, one in sorted(self.compressed.items())}
        sessions = sorted(self.sessions, key=lambda one: (one["source"], one["session"]))
        total = self.all_compressed.as_json()
        return {"compression": {"sources": sources, "total": total, "sessions": sessions}}


def _row_json(row: Row) -> dict[str, Any]:
    breaks = dict(sorted(row.breaks.items()))
    return {**asdict(row), "breaks": breaks, "ratio": None if row.ratio is None else round(row.ratio, 4)}
