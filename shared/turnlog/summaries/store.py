"""Summaries of sessions as they are stored: in their commits, and the current one in the cache ``E#SUM`` too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from turnlog.core.errors import CorruptError
from turnlog.core.events import SummaryEvent
from turnlog.core.json_values import encode_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.log.caches import reflected_position
from turnlog.log.headers import Covered, attribute
from turnlog.log.keys import SessionKeys, commit_sort_key
from turnlog.log.lines import stored_line
from turnlog.log.packing import json_in, pack
from turnlog.log.read_lines import summary_from
from turnlog.log.tombstones import is_cache_tombstone
from turnlog.ports import AttributeValue, Item
from turnlog.sessions.session_log import SessionLog


@lazy_dataclass(frozen=True, slots=True)
class CurrentSummary:
    """A summary and the time of its commit."""

    event: SummaryEvent
    time_ms: int


class Summaries:
    """A reader of summaries of sessions, which also writes the cache of the current one."""

    def __init__(self, log: SessionLog) -> None:
        self._commits = log.commits
        self._caches = log.caches

    def current(self, keys: SessionKeys, covered: Covered | None) -> CurrentSummary | None:
        """Return the summary that a header names, or None. Takes one request when ``E#SUM`` holds the summary."""
        if covered is not None:
            summary = self.cached_or_logged(keys, covered, self._caches.read(keys.summary))
            return None if summary.event.is_redacted else summary
        return None

    def cached_or_logged(self, keys: SessionKeys, covered: Covered, cached: Item | None) -> CurrentSummary:
        """Return the summary that a header names, from the ``E#SUM`` item in ``cached`` or else from its commit."""
        if cached is not None and not is_cache_tombstone(cached):
            position = reflected_position(cached)
            if position == covered.position:
                event = summary_from(json_in(cached), position=position)
                return CurrentSummary(event, attribute(cached, "t", int))
        return self.at(keys, [covered.position])[0]

    def at(self, keys: SessionKeys, positions: Sequence[int]) -> list[CurrentSummary]:
        """Return the summaries at these positions from their commits.

        Takes one request, and one more when texts are out of line.
        """
        commits = self._commits.at(keys, positions)
        summaries = list[CurrentSummary]()
        for commit, event in zip(commits, self._commits.events(keys, commits), strict=True):
            if not isinstance(event, SummaryEvent):
                raise CorruptError(
                    "no summary where the log says there is one", item=commit_sort_key(commit.header.first)
                )
            summaries.append(CurrentSummary(event, commit.header.time_ms))
        return summaries

    def write_cache(self, keys: SessionKeys, event: SummaryEvent, *, time_ms: int, rewound: int = 0) -> None:
        """Write ``E#SUM``.

        ``time_ms`` is the time of the summary's commit. ``rewound`` is the position of a rewind that made the summary
        current again, or 0.
        """
        line = stored_line(replace(event, outline=""), None)
        content: dict[str, AttributeValue] = {"t": time_ms, "b": pack(encode_json(line))}
        self._caches.write(keys.summary, content, position=event.position, rewound=rewound)
