"""A person's memories move with an export: the same facts under another owner or engine, once; what stays behind is named."""

from __future__ import annotations

import io
import json
import logging
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Harness, sqlite_harness
from tests.log.everything import held
from tests.support.exports import exported, members, zipped
from tests.support.offloads import ANSWER, embedded_memory, known
from tests.support.own_ids import back, erased
from turnlog import import_files
from turnlog.app import Application
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Turnlog
from turnlog.core.errors import ConflictError, InvalidInputError
from turnlog.core.identity import Owner
from turnlog.core.memory import MemoryFact
from turnlog.engines import SystemClock
from turnlog.log.keys import OwnerKeys
from turnlog.ports import Query, pages
from turnlog.server.local_server import LocalServer
from turnlog.testing.contracts.memory import part_of

pytestmark = pytest.mark.usefixtures("by_bucket")
SQLITE = pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
DAY = 86_400


def lived(harness: Harness) -> Turnlog:
    """Return the log of a person of whom three sessions know something; one of these has expired."""
    log = harness.log()
    for session_id, text, ttl_days in (
        ("old", "I live in Lisbon. I prefer tea.", 1),
        ("new", "I live in Porto.", None),
        ("again", "I prefer tea. My email is ada@example.org.", None),
    ):
        session = log.sessions.create(session_id, ttl_days=ttl_days)
        session.append({"role": "user", "content": text}, {"role": "assistant", "content": "Noted."})
        session.end()
        harness.clock.advance(60)
        log.run_jobs()
    harness.clock.advance(2 * DAY)
    log.run_jobs()
    assert sorted(info.session_id for info in log.sessions.list()) == ["again", "new"]
    return log


def told(log: Turnlog) -> list[dict[str, Any]]:
    """Return all that is known, with texts in place of ids, which differ between owners."""
    memories = list(log.memory())
    texts: dict[str | None, str | None] = {memory.memory_id: memory.text for memory in memories}
    rows = [memory.model_dump(exclude={"memory_id"}) for memory in memories]
    rows = [{**row, "replaced_by": texts.get(row["replaced_by"])} for row in rows]
    return sorted(rows, key=lambda row: str(row["text"]))


def parts(harness: Harness, user: str) -> int:
    keys = OwnerKeys(Owner.of("acme", user))
    return sum(len(items) for items in pages(harness.app.items, Query(keys.partition, *keys.memory_bounds())))


@pytest.mark.every_engine
def test_memories_move_with_their_sessions_once_and_outlive_the_erased_owner(harness: Harness) -> None:
    log = lived(harness)
    before = told(log)
    assert {row["text"]: (row["confirmations"], row["replaced_by"], row["session_id"]) for row in before} == {
        "I live in Lisbon": (1, "I live in Porto", "old"),
        "I live in Porto": (1, None, "new"),
        "I prefer tea": (2, None, "again"),
        "My email is ada@example.org": (1, None, "again"),
    }
    data, eve = exported(log), harness.log(user="eve")
    answers = {answer.session_id: answer for answer in eve.sessions.import_(io.BytesIO(data))}
    assert {name: (answer.status, answer.memories) for name, answer in answers.items()} == {
        "again": ("imported", 2),
        "new": ("imported", 1),
        "old": ("imported", 2),
    }
    assert told(eve) == before
    count = parts(harness, "eve")
    log.erase_me()
    log.run_jobs()
    assert (told(log), told(eve)) == ([], before)
    eve.sessions.import_(io.BytesIO(data))
    assert (told(eve), parts(harness, "eve")) == (before, count), "a repeated import adds nothing"
    (tea,) = [memory for memory in eve.memory() if memory.text == "I prefer tea"]
    eve.forget(tea.memory_id)
    eve.sessions.import_(io.BytesIO(data))
    assert told(eve) == [row for row in before if row["text"] != "I prefer tea"], "nor what was forgotten"
    said = eve.sessions.create("later")
    said.append({"role": "user", "content": "I live in Braga."})
    said.end()
    log.run_jobs()
    assert [row["replaced_by"] for row in told(eve) if "Porto" in row["text"]] == ["I live in Braga"], "subjects move"


def test_a_fact_goes_with_its_message_and_its_session_after_the_move(harness: Harness) -> None:
    data, eve = exported(lived(harness)), harness.log(user="eve")
    eve.sessions.import_(io.BytesIO(data))
    eve.sessions.get("again").redact(2)
    eve.sessions.get("new").erase()
    harness.clock.advance(1_000)
    eve.run_jobs()
    assert [row["text"] for row in told(eve)] == ["I live in Lisbon", "I prefer tea"]
    assert [row["confirmations"] for row in told(eve)] == [1, 1]
    eve.sessions.import_(io.BytesIO(data), session="again", session_id="copy")
    assert [row["session_id"] for row in told(eve) if "email" in row["text"]] == ["copy"]


def test_what_was_forgotten_is_not_made_again_of_a_session_that_was_restored_or_imported(harness: Harness) -> None:
    log = harness.log()
    session = log.sessions.create("s", ttl_days=1)
    session.append({"role": "user", "content": "I live in Lisbon. I prefer tea."}, ANSWER)
    session.create_snapshot("whole", kind="full")
    session.end()
    log.run_jobs()
    data = exported(log)
    (tea,) = [memory for memory in log.memory() if memory.text == "I prefer tea"]
    log.forget(tea.memory_id)
    harness.clock.advance(2 * DAY)
    erased(harness)
    back(harness, session)
    log.sessions.import_(io.BytesIO(data), session="s", session_id="copy")
    assert known(log) == ["I live in Lisbon"], "though the file has its facts"
    for session_id in ("s", "copy"):
        log.sessions.get(session_id).end()
    log.run_jobs()
    assert known(log) == ["I live in Lisbon"]
    assert not [place for place in held("tea", harness) if place.startswith("M#")]
    said = log.sessions.create("later")
    said.append({"role": "user", "content": "I prefer tea."}, ANSWER)
    said.end()
    log.run_jobs()
    assert sorted(known(log)) == ["I live in Lisbon", "I prefer tea"], "said again"


@SQLITE
def test_more_facts_than_one_request_takes_and_a_session_that_exists_gets_none(harness: Harness) -> None:
    log = harness.log()
    log.sessions.create("s").append({"role": "user", "content": "Hello."})
    memory = embedded_memory(harness.app.items)
    for first in range(0, 230, 80):
        facts = [MemoryFact("other", f"I have {at} cats", "", at + 1, at) for at in range(first, min(first + 80, 230))]
        memory.add(part_of(Owner.of("acme", "ada"), "s", [], first=first + 1), facts)
    data, eve, bob = exported(log), harness.log(user="eve"), harness.log(user="bob")
    before = told(log)
    assert len(before) == 230
    bob.sessions.import_(io.BytesIO(members_without_memory(data)))
    (answer,) = bob.sessions.import_(io.BytesIO(data))
    assert (answer.status, answer.memories, told(bob)) == ("existing", 0, [])
    (answer,) = eve.sessions.import_(io.BytesIO(data))
    assert (answer.memories, told(eve)) == (230, before)


def test_a_request_that_brings_nothing_imports_no_session(harness: Harness) -> None:
    body: dict[str, Any] = {"head": 0, "hash": "0" * 32, "commits": []}
    for more in (False, True):
        with pytest.raises(ConflictError, match="not here yet"):
            harness.log().backend.call("import_session", path={"session_id": "b"}, body={**body, "more": more})
    assert list(harness.log().sessions.list()) == []


def members_without_memory(data: bytes) -> bytes:
    content = members(data)
    manifest = json.loads(content["manifest.json"])
    del manifest["memory"], content["memory.jsonl"]
    return zipped({**content, "manifest.json": json.dumps(manifest).encode()})


def with_memory(data: bytes, lines: list[dict[str, Any]]) -> bytes:
    """Return the export with other memories."""
    content = members_of_memory(lines)
    manifest = json.loads(members(data)["manifest.json"])
    manifest["memory"] |= content[1]
    return zipped({**members(data), "memory.jsonl": content[0], "manifest.json": json.dumps(manifest).encode()})


def members_of_memory(lines: list[dict[str, Any]]) -> tuple[bytes, dict[str, Any]]:
    content = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    return content, {"sha256": sha256(content).hexdigest(), "size_bytes": len(content), "lines": len(lines)}


@SQLITE
def test_an_export_of_before_and_of_another_engine_comes_back_as_far_as_it_tells(
    harness: Harness, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, eve = lived(harness), harness.log(user="eve")
    data = exported(log)
    lines = [json.loads(line) for line in members(data)["memory.jsonl"].splitlines()]
    for line in lines:
        del line["facts"]
    foreign = {**lines[0], "memory_id": "x", "text": "It likes " + "tea " * 2_000, "session_id": None, "position": None}
    file = tmp_path / "old.zip"
    file.write_bytes(with_memory(data, [*lines, foreign]))
    report = import_files(eve, file)
    rows = {row.session_id: (row.status, row.memories, len(row.warnings)) for row in report.sessions}
    assert rows == {"again": ("new", 2, 0), "new": ("new", 1, 0), "old": ("skipped", 1, 0), "": ("skipped", 0, 1)}
    assert report.as_json()["totals"]["memories"] == 4
    assert report.as_json()["totals"]["warnings"] == {"memory_left_out": 1}
    assert told(eve) == [{**row, "confirmations": 1} for row in told(log)]
    with caplog.at_level(logging.WARNING, "turnlog"):
        harness.log(user="bob").sessions.import_(file)
    assert "1 memories of session (unknown) are not imported" in caplog.text
    broken = with_memory(data, [{**lines[0], "facts": ["no fact"]}])
    with pytest.raises(InvalidInputError, match=r"memory\.jsonl"):
        harness.log(user="kim").sessions.import_(io.BytesIO(broken))
    assert list(harness.log(user="kim").sessions.list()) == []


@SQLITE
@pytest.mark.parametrize("memory", ["none", "webhook"])
def test_an_engine_that_takes_no_memories_is_said_by_name_and_count(
    harness: Harness, tmp_path: Path, memory: str
) -> None:
    file = tmp_path / "me.zip"
    file.write_bytes(exported(lived(harness)))
    settings = harness.app.settings.model_copy(update={"memory": memory, "memory_webhook_url": "https://example.com"})
    app = Application(harness.app.engine, settings, clock=harness.clock, ids=harness.app.ids)
    eve = Turnlog(InProcessBackend(app, Owner.of("acme", "eve")))
    dry = import_files(eve, file, dry_run=True)
    assert dry.as_json()["totals"]["memories"] == 5, "what the file has"
    report = import_files(eve, file)
    assert report.as_json()["totals"]["warnings"] == {"memory_left_out": 5}
    assert report.as_json()["totals"]["memories"] == 0
    assert told(harness.log(user="eve")) == []


@pytest.mark.network
def test_a_file_moves_to_a_service(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with sqlite_harness(tmp_path / "a") as source, sqlite_harness(tmp_path / "b") as target:
        log = lived(source)
        file = tmp_path / "me.zip"
        file.write_bytes(exported(log))
        server = LocalServer(target.app, SystemClock(), port=0).start()
        try:
            with Turnlog.open(server.url, user="eve") as eve:
                report = import_files(eve, file)
                assert report.as_json()["totals"]["memories"] == 5
                assert told(eve) == told(log)
                assert import_files(eve, file).written == 0
                assert told(eve) == told(log)
        finally:
            server.stop()
