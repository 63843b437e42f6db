"""The client of tests that need no more than one engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from turnlog import Turnlog


@pytest.fixture
def log() -> Iterator[Turnlog]:
    """What depends on no engine; what does asks for the harness."""
    with Turnlog.open("memory://") as made:
        yield made
