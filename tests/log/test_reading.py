"""How much of a log a reader takes: the newest commits that have as many events as it needs, and no more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from turnlog.log.reading import newest_commits


@pytest.mark.parametrize(
    ("events", "count"), [(0, 1), (1, 1), (2, 1), (3, 2), (5, 2), (6, 3), (7, 4), (10, 4), (11, 4), (100, 4)]
)
def test_the_newest_commits_have_at_least_as_many_events_as_needed(events: int, count: int) -> None:
    commits: Any = [SimpleNamespace(lines=[b"x"] * size) for size in (4, 1, 3, 2)]
    assert newest_commits(commits, events=events) == commits[-count:]
    assert list(newest_commits([], events=events)) == []
