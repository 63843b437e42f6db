"""Sessions that expire."""

from __future__ import annotations

import pytest

from tests.conftest import Harness
from turnlog.privacy import retention
from turnlog.privacy.retention import RetentionCounts


@pytest.fixture(autouse=True)
def runs_before(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the schedule had been run a few days ago: moto takes seconds for a year of days."""
    if "looks_back" not in request.node.name:
        monkeypatch.setattr(retention, "FIRST_DAYS", 5)


def retained(harness: Harness) -> RetentionCounts:
    done: RetentionCounts = harness.app.retain_sessions()
    return done
