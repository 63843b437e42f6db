"""Real conversations for the properties: a fixed sample always, all of them with ``-m full``."""

from __future__ import annotations

import warnings
from types import ModuleType

import pytest

from tests.properties.histories import REAL_DATA, History, given_openai, real_sample


@pytest.fixture(scope="session")
def all_real_histories(real_data: ModuleType) -> list[tuple[str, History]]:
    """Every real conversation beside the project, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the loader leaves closing to the collector
        sessions = list(real_data.iter_sessions(str(REAL_DATA / "dev")))
    return [(f"{session['source']}/{session['id']}", given_openai(session["messages"])) for session in sessions]


@pytest.fixture(scope="session")
def real_histories(all_real_histories: list[tuple[str, History]]) -> list[tuple[str, History]]:
    """The fixed sample of them, of all sources."""
    return real_sample(all_real_histories)
