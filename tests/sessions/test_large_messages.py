"""A message of many MiB in process: stored, in windows, recalled, redacted, exported and erased like any other."""

from __future__ import annotations

import base64
import random
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Harness
from tests.support.erasing import message_of, worked
from tests.support.jobs import deliver
from tests.support.pictures import png
from turnlog.app import make_application
from turnlog.client.model import Turnlog
from turnlog.core.errors import TooLargeError
from turnlog.core.json_values import encode_json
from turnlog.engines import SystemClock
from turnlog.server.local_server import LocalServer
from turnlog.settings import Settings

DATA = base64.b64encode(base64.b64decode(png(640, 480)) + random.Random(1).randbytes(4 * 1024 * 1024)).decode()
CALL = {"id": "c", "type": "tool_use", "name": "screenshot", "input": {}}
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}
TURN: list[dict[str, Any]] = [
    {"role": "user", "content": "What is on the screen?"},
    {"role": "assistant", "content": [CALL]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [PICTURE]}]},
    {"role": "assistant", "content": [{"type": "text", "text": "A map."}]},
]
"""A tool returns a screenshot: 5.3 MiB of JSON, which no single request over HTTP may have."""


@pytest.mark.usefixtures("by_bucket")
def test_a_tool_that_returns_5_mib_does_not_end_the_run(harness: Harness, tmp_path: Path) -> None:
    session = harness.log().sessions.create("s", system="Be brief.")
    appended = session.append(*TURN, format="anthropic")
    assert len(encode_json(TURN)) > 5 * 1024 * 1024
    assert [message.body for message in session.messages()] == TURN
    assert appended.tokens < 10_000, "a picture counts as a picture, not as its text"
    window = session.context(format="anthropic", budget=20_000)
    assert harness.log().lint(window.messages, format="anthropic").problems == []
    assert window.messages[: len(TURN)] == TURN
    assert session.recall("3.0").media[0]["data"] == DATA
    exported = tmp_path / "s.zip"
    session.export(exported)
    copy = harness.log(user="bob").sessions
    assert copy.import_(exported)[0].status == "imported"
    assert [message.body for message in copy.get("s").messages()] == TURN
    fork = session.fork("fork")
    assert worked(harness, session.redact(4)).status == "done"
    for redacted in (session, fork):
        assert DATA[:1000] not in str([message.body for message in redacted.messages()])
    job = copy.get("s").erase()
    for _ in range(2):
        assert deliver(harness, message_of(job, "bob")) == set()
        harness.clock.advance(900)
    assert harness.log(user="bob").job(job.job_id).status == "done"
    blobs = harness.app.engine.blobs
    assert not any(DATA[:1000].encode() in (blobs.get(name) or b"") for name in blobs.names(""))


@pytest.mark.network
def test_over_http_the_limit_is_named() -> None:
    app = make_application(Settings(engine="memory://", identity="jwt"))
    server = LocalServer(app, SystemClock(), port=0).start()
    try:
        with Turnlog.open(server.url) as log:
            session = log.sessions.create("s")
            session.append({"role": "user", "content": "x" * (6 * 1024 * 1024)})
            with pytest.raises(TooLargeError, match="over the limit of 33,554,432"):
                session.append({"role": "user", "content": "x" * (33 * 1024 * 1024)})
            assert session.info().messages == 1
    finally:
        server.stop()
        app.close()
