"""Each command is tried in an empty folder, without the environment's settings; data folder and service are fixtures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import SAMPLES
from tests.support.command_line import SESSION
from turnlog import Turnlog
from turnlog.app import make_application
from turnlog.engines import SystemClock, location_url
from turnlog.server.local_server import LocalServer
from turnlog.settings import Settings


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("URL", "DATA", "TENANT", "USER", "TOKEN", "ENGINE"):
        monkeypatch.delenv(f"TURNLOG_{name}", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with one session of the sample."""
    folder = tmp_path / "data"
    sample = json.loads((SAMPLES / "support-agent.json").read_text("utf-8"))
    with Turnlog.open(location_url(folder)) as log:
        session = log.sessions.create(SESSION, title="A projector\x1b[31m", tools=sample["tools"])
        for at in range(0, len(sample["messages"]), 25):
            session.append(*sample["messages"][at : at + 25])
    return folder


@pytest.fixture
def served() -> Iterator[LocalServer]:
    application = make_application(Settings(engine="memory://", identity="jwt"))
    server = LocalServer(application, SystemClock(), port=0, token="s3cret").start()
    yield server
    server.stop()
    application.close()
