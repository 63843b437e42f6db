"""Exports and their imports: an equal session under any id and owner, whole or not at all; a hostile file is refused by name."""

from __future__ import annotations

import contextlib
import io
import json
import os
import threading
import warnings
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import Field

from tests.conftest import DATA, SAMPLES, Harness, sqlite_harness
from tests.support.chat_messages import user
from tests.support.erasing import TOMBSTONE, of_session, worked
from tests.support.exports import exported, members, zipped
from tests.support.restores import fold, info, items_of, step_of, unseen, varied
from tests.support.segments import KEYS, filled, noise, said
from turnlog import import_files
from turnlog.app import make_application
from turnlog.cli.transcripts import read_transcripts
from turnlog.client import documents, exports
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Turnlog
from turnlog.core import json_values
from turnlog.core import positions as borders
from turnlog.core.errors import ConflictError, InvalidInputError, NotFoundError, SessionExistsError, UnavailableError
from turnlog.core.identity import Owner
from turnlog.core.json_values import encode_json
from turnlog.core.models import Body
from turnlog.engines import SystemClock
from turnlog.jobs.models import Job
from turnlog.log.keys import SessionKeys, export_blob
from turnlog.server.local_server import LocalServer
from turnlog.settings import Settings
from turnlog.snapshots import export_routes
from turnlog.snapshots import exports as export_service
from turnlog.snapshots.export_routes import ExportSession

pytestmark = pytest.mark.usefixtures("by_bucket")


def test_an_export_runs_its_own_job_and_no_other_that_waits(harness: Harness) -> None:
    log = harness.log()
    other = log.sessions.create("other")
    other.append({"role": "user", "content": "hello"})
    waiting = other.compress(mode="async")
    assert members(exported(log))
    assert {job.kind: job.status for job in log.jobs()} == {"compress": "queued", "export": "done"}
    assert log.run_jobs() == 2, "the message of the export finds its job done"
    assert log.job(waiting.job_id).status == "done"
    assert [job.attempts for job in log.jobs()] == [1, 1]


def test_an_export_reads_a_payload_twice_wherever_it_is_stored(harness: Harness) -> None:
    """Once for the messages and once for the log. The first export of a process asks for more."""
    calls = list[int]()
    for number, size in enumerate((60, 60, 6_000, 60_000)):
        session = harness.log().sessions.create(f"s{number}")
        session.append({"role": "user", "content": noise(size)})
        started = harness.faults.calls
        exported(session)
        calls.append(harness.faults.calls - started)
    _, inline, in_items, in_blobs = calls
    assert in_items == in_blobs == inline + 2


# ------------------------------------------------------------ equal


@pytest.mark.parametrize("batch", [7])
def test_an_import_of_an_export_is_an_equal_session(harness: Any, monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    monkeypatch.setattr(borders, "SEGMENT_POSITIONS", 64)
    monkeypatch.setattr(exports, "MAX_BATCH_COMMITS", batch)
    session = varied(harness)
    head = session.info().head
    data = exported(session)
    other = harness.log(user="eve")
    (made,) = other.sessions.import_(io.BytesIO(data), session_id="copy")
    assert (made.session_id, made.status, made.position) == ("copy", "imported", head)
    copy, keys = other.sessions.get("copy"), SessionKeys(Owner.of("acme", "eve"), "copy")
    assert items_of(harness, keys, head) == items_of(harness, KEYS, head)
    assert fold(copy, head) == fold(session, head)
    assert {**info(copy), "user": "ada"} == info(session)
    again = members(exported(copy))
    assert again["sessions/copy/log.jsonl"] == members(data)["sessions/s/log.jsonl"]
    (repeated,) = other.sessions.import_(io.BytesIO(data), session_id="copy")
    assert repeated.status == "existing"
    assert copy.append(said(0)).head == head + 1
    assert other.sessions.import_(io.BytesIO(data), session_id="copy")[0].status == "existing"


@pytest.mark.every_engine
def test_sessions_whose_ids_nest_are_each_their_own(harness: Any) -> None:
    """Ids of frameworks: each session keeps its messages, snapshots and files when another one is exported and erased."""
    log, long_text = harness.log(), "." * 300_000
    ids = ["a", "a/b", "a/b/base", "user:ada@example.com/thread-1.2+3", "x" * 256]
    for session_id in ids:
        session = log.sessions.create(session_id)
        session.append({"role": "user", "content": session_id + long_text})
        session.create_snapshot("before", kind="full")
    assert sorted(info.session_id for info in log.sessions.list()) == sorted(ids)
    files = {session_id: exported(log.sessions.get(session_id)) for session_id in ids}
    assert worked(harness, log.sessions.get("a").erase()).status == "done"
    for session_id in ids[1:]:
        session = log.sessions.get(session_id)
        assert session.page().messages[0].body["content"] == session_id + long_text
        session.restore_snapshot("before", session_id=f"new/{session_id[:200]}")
        assert log.sessions.get(f"new/{session_id[:200]}").context(budget=1_000_000).messages
        session.fork(f"fork/{session_id[:200]}", at=2)
    for session_id, data in files.items():
        (imported,) = harness.log(user="bob").sessions.import_(io.BytesIO(data))
        assert imported.session_id == session_id


def test_what_people_read_of_it(harness: Any) -> None:
    session = filled(harness.log(user="someone"), 12, state={"a": 1}, title="A title", system="Be brief.")
    session.create_snapshot("point")
    outcome = members(exported(session))
    assert not [name for name, content in outcome.items() if b"someone" in content or b"acme" in content]
    manifest = json.loads(outcome["manifest.json"])
    assert (manifest["format"], manifest["version"]) == ("turnlog-export", 2)
    (result,) = manifest["sessions"]
    for name, member in result["members"].items():
        content = outcome[f"sessions/s/{name}"]
        assert member == {
            "sha256": sha256(content).hexdigest(),
            "size_bytes": len(content),
            "lines": content.count(b"\n"),
        }
    lines = [json.loads(line) for line in outcome["sessions/s/messages.jsonl"].splitlines()]
    assert lines == [message.model_dump() for message in session.messages()]
    assert json.loads(outcome["sessions/s/state.json"]) == {"state": {"a": 1}, "version": 1}
    assert len(outcome["sessions/s/history.jsonl"].splitlines()) == len(list(session.history()))
    assert json.loads(outcome["sessions/s/session.json"])["settings"]["system"] == "Be brief."
    assert json.loads(outcome["sessions/s/snapshots.jsonl"])["name"] == "point"
    assert exported(session) == exported(session), "the same session is the same file"


def test_documents_come_back_with_their_session(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bytes, revisions and times, also in a session that has ended and so takes none itself."""
    monkeypatch.setattr(documents, "MAX_WRITTEN", 3)
    session = harness.log().sessions.create("s")
    session.documents.put_many({f"checkpoint/{at}": bytes([at]) * at for at in range(8)})
    session.documents.put("é🙂", noise(600_000).encode())
    session.documents.put("gone", b"x")
    session.documents.delete(["gone"])
    session.end()
    kept, data = list(session.documents.list()), exported(session)
    assert len(kept) == 9
    harness.clock.advance(60_000)
    other = harness.log(user="eve")
    assert other.sessions.import_(io.BytesIO(data), session_id="copy")[0].status == "imported"
    copy = other.sessions.get("copy")
    assert list(copy.documents.list()) == kept
    assert copy.info().status == "ended"
    lines = members(exported(copy))["sessions/copy/documents.jsonl"]
    assert lines == members(data)["sessions/s/documents.jsonl"]


def test_snapshots_come_back_with_their_session(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names, pins, notes, times and places; a full one as a ref, and never in silence one whose commit is not in the log."""
    monkeypatch.setattr(exports, "MAX_WRITTEN", 2)
    session = harness.log().sessions.create("s", snapshots={"every_loops": 1})
    for number in range(4):
        harness.clock.advance(1_000)
        session.append({"role": "user", "content": f"question {number}"}, {"role": "assistant", "content": "yes"})
        session.create_snapshot("twice", metadata={"ticket": number}, pinned=number == 0, agent_id="planner")
    session.create_snapshot("whole", kind="full", pinned=True)
    session.rewind(5)
    data, originals = exported(session), list(session.snapshots())
    other = harness.log(user="eve")
    (answer,) = other.sessions.import_(io.BytesIO(data), session_id="copy")
    assert (answer.status, answer.snapshots_left_out) == ("imported", 0)
    copy, refs = other.sessions.get("copy"), originals[1:]
    whole, *copied = copy.snapshots()
    assert copied == refs
    assert (whole.name, whole.pinned, whole.kind, whole.position) == ("whole", True, "ref", originals[0].position)
    assert copy.snapshot("twice").position == originals[1].position, "a name stands for the newest"
    assert copy.restore_snapshot("whole", session_id="back").messages == 8
    assert other.sessions.import_(io.BytesIO(data), session_id="copy")[0].status == "existing"
    harness.clock.advance(1_000)
    copy.append({"role": "user", "content": "more"}, {"role": "assistant", "content": "yes"})
    automatic = [item for item in copy.snapshots() if item.metadata == {"automatic": True}]
    assert len(automatic) == len([item for item in session.snapshots() if item.metadata == {"automatic": True}]) + 1
    result = members(data)
    lines = result["sessions/s/snapshots.jsonl"]
    result["sessions/s/snapshots.jsonl"] = lines.replace(refs[0].sha256.encode(), b"0" * 32)
    (answer,) = other.sessions.import_(io.BytesIO(zipped(result)), session_id="other")
    gone = sum(refs[0].sha256.encode() in line for line in lines.splitlines())
    assert answer.snapshots_left_out == gone == 2
    assert len(list(other.sessions.get("other").snapshots())) == len(originals) - gone


@pytest.mark.every_engine
@pytest.mark.parametrize(("version", "lacks"), [(1, {"hash", "pinned"}), (2, {"hash"})])
def test_snapshots_of_earlier_exports_come_back(harness: Harness, version: int, lacks: set[str]) -> None:
    """Also full ones, whose lines did not have the chain hash; in another history, none that is older than the commit there."""
    session = filled(harness.log(), 4)
    session.create_snapshot("point")
    session.create_snapshot("whole", kind="full")
    harness.clock.advance(1_000)
    further = session.append({"role": "user", "content": "more"}).last
    result, name = members(exported(session)), "sessions/s/snapshots.jsonl"
    lines = [json.loads(line) for line in result[name].splitlines()]
    older = [{key: value for key, value in line.items() if key not in lacks} for line in lines]
    elsewhere = [{**line, "position": further} for line in older]
    manifest = json.loads(result["manifest.json"]) | {"version": version}
    for number, (stored, kinds) in enumerate([(older, ["ref", "ref"]), (elsewhere, [])]):
        result[name] = b"".join(encode_json(line) + b"\n" for line in stored)
        data = zipped({**result, "manifest.json": json.dumps(manifest).encode()})
        (answer,) = harness.log(user="eve").sessions.import_(io.BytesIO(data), session_id=f"copy-{number}")
        copied = list(harness.log(user="eve").sessions.get(f"copy-{number}").snapshots())
        assert (answer.snapshots_left_out, [item.kind for item in copied]) == (2 - len(kinds), kinds)
        for item, line in zip(copied, lines, strict=False):
            assert (item.name, item.position, item.sha256) == (line["name"], line["position"], line["hash"])


@pytest.mark.parametrize("change", [{"created_at": "2026-13-01T00:00:00Z"}, {"agent_id": "a b"}, {"snapshot_id": "x"}])
def test_a_line_that_is_no_snapshot_is_refused_and_nothing_is_seen(harness: Harness, change: dict[str, Any]) -> None:
    session = filled(harness.log(), 4)
    session.create_snapshot("point")
    result = members(exported(session))
    line = json.loads(result["sessions/s/snapshots.jsonl"])
    result["sessions/s/snapshots.jsonl"] = encode_json({**line, **change}) + b"\n"
    other = harness.log(user="eve")
    with pytest.raises(InvalidInputError, match="|".join([*change, "RFC 3339", "agent id"])):
        other.sessions.import_(io.BytesIO(zipped(result)))
    assert list(other.sessions.list()) == []


@pytest.mark.network
def test_the_largest_commits_that_there_can_be_come_back_over_http(tmp_path: Path) -> None:
    """An append of 4 MB is one line of the export, and fits into a request of the import, whatever has to be escaped in it; so do
    several that are shorter."""
    app = make_application(
        Settings(engine=f"sqlite:///{tmp_path}/turnlog.db", identity="jwt", token_counter="estimate")
    )
    server = LocalServer(app, SystemClock(), port=0).start()
    try:
        with Turnlog.open(server.url) as log:
            session = log.sessions.create("s")
            text = 'é"\\\n' * 131_000
            session.append(*({"role": "user", "content": f"{at}{text}"} for at in range(4)))
            for at in range(8):
                session.append({"role": "user", "content": f"{at}" + '"' * 300_000})
            data = exported(session)
            assert log.sessions.import_(io.BytesIO(data), session_id="copy")[0].status == "imported"
            result, wanted = list(log.sessions.get("copy").messages()), list(session.messages())
            assert sum(len(encode_json(item.body)) for item in wanted) > exports.MAX_BATCH_BYTES * 2
            assert result == wanted
    finally:
        server.stop()
        app.close()


@pytest.mark.parametrize("size", [10, 6_000, 60_000])
def test_a_redacted_session_comes_back(harness: Harness, size: int) -> None:
    """What was said is nowhere in the file, and the hashes still prove the rest."""
    session = harness.log().sessions.create("s")
    session.append(said(0), {"role": "user", "content": "CANARY " + noise(size)}, said(2))
    assert worked(harness, session.redact(3)).status == "done"
    data = exported(session)
    assert not [name for name, content in members(data).items() if b"CANARY" in content]
    other = harness.log(user="eve")
    assert other.sessions.import_(io.BytesIO(data))[0].status == "imported"
    items = list(other.sessions.get("s").messages())
    assert items == list(session.messages())
    assert [item.redacted for item in items] == [False, True, False]
    assert exported(other.sessions.get("s")) == data


def test_documents_of_a_stranger_s_file_are_left_out(harness: Harness, tmp_path: Path) -> None:
    session = harness.log().sessions.create("s")
    session.append(said(0))
    session.documents.put_many({"checkpoint": b"makes what it likes", "b": b"2"})
    data = exported(session)
    other = harness.log(user="eve")
    assert other.sessions.import_(io.BytesIO(data), documents=False)[0].status == "imported"
    assert list(other.sessions.get("s").documents.list()) == []
    assert list(other.sessions.get("s").messages()) == list(session.messages())
    (tmp_path / "s.zip").write_bytes(data)
    for source, is_mine, count in ((tmp_path, False, 0), (tmp_path / "s.zip", False, 0), (tmp_path, True, 2)):
        third = harness.log(user=f"{source.name}-{count}")
        assert import_files(third, [source], documents=is_mine).written == 1
        assert len(list(third.sessions.get("s").documents.list())) == count


def test_an_import_again_leaves_later_documents_alone(harness: Harness) -> None:
    session = harness.log().sessions.create("s")
    session.documents.put_many({"a": b"old", "b": b"old"})
    data = exported(session)
    session.documents.put("a", b"new")
    session.documents.delete(["b"])
    assert harness.log().sessions.import_(io.BytesIO(data))[0].status == "existing"
    assert {item.key: item.data for item in session.documents.list()} == {"a": b"new"}


def test_a_session_is_not_seen_before_the_last_of_its_documents(harness: Harness) -> None:
    session = harness.log().sessions.create("s")
    session.documents.put("a", b"1")
    result = members(exported(session))
    (line,) = result["sessions/s/documents.jsonl"].splitlines()
    manifest = json.loads(result["manifest.json"])["sessions"][0]
    whole = {"head": manifest["head"], "hash": manifest["hash"]}
    commits = result["sessions/s/log.jsonl"].decode().splitlines()

    def send(session_id: str, **body: Any) -> Any:
        log = harness.log(user="eve")
        return log.backend.call("import_session", path={"session_id": session_id}, body={**whole, **body})

    with pytest.raises(NotFoundError):
        send("x", documents=[json.loads(line)])
    assert send("x", commits=commits, more=True).status == "partial"
    assert unseen(harness.log(user="eve"), "x", [])
    assert send("x", documents=[json.loads(line)], more=True).status == "partial"
    assert unseen(harness.log(user="eve"), "x", [])
    for body in ({"commits": commits, "more": True}, {"documents": [json.loads(line)], "more": True}):
        assert send("x", **body).status == "partial", "the same once more"
    assert send("x").status == "imported"
    copy = harness.log(user="eve").sessions.get("x")
    assert list(copy.documents.list()) == list(session.documents.list())
    assert send("x", documents=[json.loads(line)]).status == "existing"
    assert send("y", commits=commits, documents=[json.loads(line)]).status == "imported", "all in one request"
    assert list(harness.log(user="eve").sessions.get("y").documents.list()) == list(session.documents.list())


def test_documents_before_their_commits_are_refused(harness: Harness) -> None:
    session = filled(harness.log(), 4, batch=2)
    session.documents.put("a", b"1")
    result = members(exported(session))
    document = json.loads(result["sessions/s/documents.jsonl"])
    manifest = json.loads(result["manifest.json"])["sessions"][0]
    body = {"head": manifest["head"], "hash": manifest["hash"]}
    commits = result["sessions/s/log.jsonl"].decode().splitlines()
    call, path = harness.log(user="eve").backend.call, {"session_id": "x"}
    with pytest.raises(InvalidInputError, match="before the last commit"):
        call("import_session", path=path, body={**body, "commits": commits[:1], "documents": [document]})
    with pytest.raises(ConflictError) as raised:
        call("import_session", path=path, body={**body, "documents": [document]})
    assert raised.value.error_code == "import_gap"
    assert call("import_session", path=path, body={**body, "commits": commits}).status == "imported"
    assert list(harness.log(user="eve").sessions.get("x").documents.list()) == []


def test_an_export_of_version_1_has_no_documents(harness: Harness) -> None:
    session = filled(harness.log(), 4)
    result = members(exported(session))
    del result["sessions/s/documents.jsonl"]

    def older(manifest: dict[str, Any]) -> None:
        manifest["version"] = 1
        del manifest["sessions"][0]["members"]["documents.jsonl"]

    other = harness.log(user="eve")
    assert other.sessions.import_(io.BytesIO(_manifest(older)(result)))[0].status == "imported"
    assert list(other.sessions.get("s").messages()) == list(session.messages())


def test_values_that_are_easily_changed_come_back(harness: Any) -> None:
    session = harness.log().sessions.create("s")
    deep: Any = "x"
    for _ in range(27):
        deep = [deep]
    bodies = [
        {"role": "user", "content": "a lone \ud83d surrogate, \u2028, \x00 and ä"},
        {"role": "user", "content": "", "numbers": [1.0, 1e300, -0.0, 2**63, 1e-7, 100000.0], "deep": deep},
    ]
    for body in bodies:
        session.append(body)
    harness.log(user="eve").sessions.import_(io.BytesIO(exported(session)))
    values = [message.body for message in harness.log(user="eve").sessions.of("s").messages()]
    assert list(map(repr, values)) == list(map(repr, bodies))


PAIR, LONE = "\ud83d" + "\ude00", "\ud83d"
"""A character in two halves, as two pieces of a stream have it when each is decoded by itself; and a half."""


@pytest.mark.parametrize("length", [1, 200_000])
def test_a_surrogate_pair_is_its_character_wherever_text_is_taken(harness: Any, length: int) -> None:
    """In a message, its keys and metadata, the state and the session's settings, in a line and in a payload."""
    text = PAIR * length
    log = harness.log()
    session = log.sessions.create("s", state={PAIR: [text]}, metadata={"m": PAIR}, title=PAIR)
    session.append(
        {"role": "user", "content": text, PAIR: 1},
        {"role": "user", "content": LONE},
        meta=[{"metadata": {PAIR: PAIR}}, {}],
    )
    other = harness.log(user="eve")
    other.sessions.import_(io.BytesIO(exported(session)))
    for read in (session, other.sessions.get("s")):
        first, second = read.messages()
        assert (first.body, first.metadata) == ({"role": "user", "content": "😀" * length, "😀": 1}, {"😀": "😀"})
        assert second.body["content"] == LONE
        assert read.state().state == {"😀": ["😀" * length]}
        assert (read.info().title, read.info().metadata) == ("😀", {"m": "😀"})


@pytest.mark.parametrize("length", [1, 200_000])
def test_surrogate_pairs_that_earlier_versions_stored_come_back(
    harness: Any, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    session = harness.log().sessions.create("s")
    with monkeypatch.context() as earlier:
        earlier.setattr(json_values, "joined_pairs", str)
        session.append({"role": "user", "content": PAIR * length}, {"role": "user", "content": "é 😀"})
    other = harness.log(user="eve")
    other.sessions.import_(io.BytesIO(exported(session)))
    for read in (session, other.sessions.get("s")):
        assert [message.body["content"] for message in read.messages()] == ["😀" * length, "é 😀"]
    assert exported(other.sessions.get("s")) == exported(session), "the same bytes"


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_an_export_into_a_folder_names_the_folder(harness: Harness, tmp_path: Path) -> None:
    session, folder = harness.log().sessions.create("s"), tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(IsADirectoryError) as refusal:
        session.export(folder)
    assert refusal.value.filename == str(folder) and not list(tmp_path.glob(".*"))


def test_a_pipe_is_written_to_and_a_link_stays(harness: Harness, tmp_path: Path) -> None:
    """A file in their place would take them away, as it would `/dev/null`."""
    session = harness.log().sessions.create("s")
    session.append({"role": "user", "content": "hi"})
    out = tmp_path / "out"
    pipe, link, behind = out / "pipe", out / "link.zip", out / "folder" / "behind.zip"
    behind.parent.mkdir(parents=True)
    os.mkfifo(pipe)
    through = list[bytes]()
    reader = threading.Thread(target=lambda: through.append(pipe.read_bytes()), daemon=True)
    reader.start()
    session.export(pipe)
    reader.join(10)
    assert pipe.is_fifo() and [zipfile.is_zipfile(io.BytesIO(item)) for item in through] == [True]
    behind.write_bytes(b"before")
    link.symlink_to(behind)
    session.export(link)
    assert link.is_symlink() and zipfile.is_zipfile(behind) and zipfile.is_zipfile(link)
    assert sorted(path.name for path in out.rglob("*.zip*")) == ["behind.zip", "link.zip"]


def test_all_of_a_person_is_one_file_and_comes_back(harness: Any, tmp_path: Path) -> None:
    log = harness.log()
    for name in ("one", "two", "three"):
        filled(log, 3, name)
    filled(harness.log(user="eve"), 2, "hers")
    (tmp_path / "all.zip").write_bytes(b"before")
    made = log.export(tmp_path / "all.zip")
    assert (made.sessions, made.positions) == (3, 12)
    assert sha256((tmp_path / "all.zip").read_bytes()).hexdigest() == made.sha256
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".zip"] == ["all.zip"]
    other = harness.log(user="new")
    with pytest.raises(InvalidInputError) as raised:
        other.sessions.import_(tmp_path / "all.zip", session_id="x")
    assert raised.value.error_code == "which_session"
    assert other.sessions.import_(tmp_path / "all.zip", session="two", session_id="x")[0].session_id == "x"
    assert {item.status for item in other.sessions.import_(tmp_path / "all.zip")} == {"imported"}
    assert {item.session_id for item in other.sessions.list()} == {"one", "two", "three", "x"}


def test_a_long_session_is_exported_by_a_job_whose_address_is_made_when_asked(
    harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_service, "MAX_POSITIONS", 10)
    session = filled(harness.log(), 20)
    job = session.backend.call("export_session", path={"session_id": "s"})
    assert isinstance(job, Job)
    harness.log().run_jobs()
    first, record = harness.log().job(job.job_id), next(harness.log().jobs())
    assert "url" not in (record.result or {})
    assert first.result is not None
    assert first.result["positions"] == 21
    harness.clock.advance(3600)
    second = harness.log().job(job.job_id)
    assert second.result is not None
    into = io.BytesIO()
    session.backend.download(second.result["url"], into)
    assert len(into.getvalue()) == second.result["size_bytes"]
    assert len(exported(session)) == len(into.getvalue())


# ------------------------------------------------------------ never over another, whole or not at all


def test_it_never_writes_over_another_session(harness: Any) -> None:
    log = harness.log()
    data = exported(filled(log, 5))
    filled(log, 2, "taken")
    with pytest.raises(SessionExistsError):
        log.sessions.import_(io.BytesIO(data), session_id="taken")
    session = log.sessions.of("s")
    session.append(said(7))
    assert log.sessions.import_(io.BytesIO(data))[0].status == "existing"
    assert session.info().messages == 6
    other = harness.log(user="eve")
    filled(other, 4, "s")
    with pytest.raises(SessionExistsError):
        other.sessions.import_(io.BytesIO(data))


def test_the_error_of_an_export_that_has_grown_says_that_it_is_never_added(harness: Any, tmp_path: Path) -> None:
    session = filled(harness.log(), 5)
    other = harness.log(user="eve")
    other.sessions.import_(io.BytesIO(exported(session)))
    session.append(said(7))
    path = tmp_path / "grown.zip"
    path.write_bytes(exported(session))
    for is_dry in (True, False):
        (row,) = import_files(other, [path], dry_run=is_dry).sessions
        assert row.status == "refused"
        assert "never added to a session: import it with another session_id" in str(row.error)
    assert other.sessions.import_(path, session_id="again")[0].status == "imported"


@pytest.mark.parametrize("when", ["before", "after"])
def test_d1_a_fault_at_every_call_of_an_import(harness: Any, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    monkeypatch.setattr(exports, "MAX_BATCH_COMMITS", 2)
    monkeypatch.setattr(documents, "MAX_WRITTEN", 2)
    log = harness.log()
    session = log.sessions.create("s", system=noise(5_000), state={"a": 1})
    for size in (100, 9_000, 80_000):
        session.append(said(0), {"role": "user", "content": noise(size)})
    session.documents.put_many({"a": b"1", "b": b"2", "c": noise(600_000).encode()})
    points = [session.create_snapshot("point"), session.create_snapshot("point")]
    data, messages, kept = exported(session), list(session.messages()), list(session.documents.list())
    calls, at = 0, 0
    while at <= calls:
        target, started = f"other{at}", harness.faults.calls
        if at:
            harness.faults.fail(at, when)
            with contextlib.suppress(UnavailableError):
                log.sessions.import_(io.BytesIO(data), session_id=target)
            assert not harness.faults.is_pending, "the fault was never met: there are fewer calls than before"
            assert target in [item.session_id for item in log.sessions.list()] or unseen(log, target, messages)
        log.sessions.import_(io.BytesIO(data), session_id=target)
        if not at:
            calls = harness.faults.calls - started
        value = log.sessions.get(target)
        assert list(value.messages()) == messages
        assert value.state().state == {"a": 1}
        assert list(value.documents.list()) == kept
        assert list(value.snapshots()) == points[::-1]
        at += step_of(harness)
    assert at > 15
    assert len(list(log.sessions.list())) == len(range(0, at, step_of(harness))) + 1


def test_two_files_for_one_id_do_not_mix(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "MAX_BATCH_COMMITS", 1)
    log = harness.log()
    files = [exported(filled(log, 3, name, batch=1)) for name in ("a", "b")]
    harness.faults.fail(12, "before")
    with pytest.raises(UnavailableError):
        log.sessions.import_(io.BytesIO(files[0]), session_id="other")
    with pytest.raises(ConflictError) as raised:
        log.sessions.import_(io.BytesIO(files[1]), session_id="other")
    assert raised.value.error_code == "id_claimed"
    with pytest.raises(ConflictError):
        log.sessions.create("other")
    log.sessions.import_(io.BytesIO(files[0]), session_id="other")
    assert len(list(log.sessions.get("other").messages())) == 3


def test_t1_an_export_is_its_owners(harness: Any) -> None:
    log = harness.log()
    session = filled(log, 3)
    made = session.backend.call("export_session", path={"session_id": "s"})
    stranger = harness.log(user="eve")
    with pytest.raises(NotFoundError):
        exported(stranger.sessions.of("s"))
    if made.url.startswith("/"):
        with pytest.raises(NotFoundError):
            stranger.backend.download(made.url, io.BytesIO())
    assert list(stranger.sessions.list()) == []
    assert stranger.export(io.BytesIO()).sessions == 0


def test_a_fork_that_has_a_part_of_a_commit_comes_back(harness: Harness) -> None:
    """Its parent is erased, so the fork has its own copy, in which the rest of the commit is hidden."""
    session = harness.log().sessions.create("s")
    session.append(*({"role": "user", "content": f"message {number}"} for number in range(2, 6)))
    fork = session.fork("child", at=3)
    session.append({"role": "user", "content": "behind the fork"})
    worked(harness, session.erase())
    data = exported(fork)
    other = harness.log(user="eve")
    other.sessions.import_(io.BytesIO(data), session_id="copy")
    copy = other.sessions.get("copy")
    assert [message.body for message in copy.messages()] == [message.body for message in fork.messages()]
    assert copy.context().messages == fork.context().messages
    assert exported(copy) != b""


# ------------------------------------------------------------ hostile files


def _manifest(change: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, bytes]], bytes]:
    def changed(found: dict[str, bytes]) -> bytes:
        manifest = json.loads(found["manifest.json"])
        change(manifest)
        return zipped({**found, "manifest.json": json.dumps(manifest).encode()}, retell=False)

    return changed


def _log(change: Callable[[list[dict[str, Any]]], Any]) -> Callable[[dict[str, bytes]], bytes]:
    """Another log, with a manifest that tells of it as it is."""

    def changed(found: dict[str, bytes]) -> bytes:
        lines = [json.loads(line) for line in found["sessions/s/log.jsonl"].splitlines()]
        change(lines)
        content = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        return zipped({**found, "sessions/s/log.jsonl": content})

    return changed


def _document(**change: Any) -> Callable[[dict[str, bytes]], bytes]:
    """Another document, with a manifest that tells of it as it is."""

    def changed(found: dict[str, bytes]) -> bytes:
        return zipped({**found, _DOCUMENTS: json.dumps({**json.loads(found[_DOCUMENTS]), **change}).encode() + b"\n"})

    return changed


def _raw(change: Callable[[bytes], bytes]) -> Callable[[dict[str, bytes]], bytes]:
    """Another log of any bytes, with a manifest that tells of it as it is."""
    return lambda item: zipped({**item, _LOG: change(item[_LOG])})


def _archived(change: Callable[[zipfile.ZipFile, dict[str, bytes]], object]) -> Callable[[dict[str, bytes]], bytes]:
    """An archive that says other things of its members than they are."""

    def changed(found: dict[str, bytes]) -> bytes:
        into = io.BytesIO(zipped(found, retell=False))
        with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(into, "a") as archive:
            archive.comment = b"changed"  # so that the archive's directory is written anew
            change(archive, found)
        return into.getvalue()

    return changed


def _of_a_byte(found: dict[str, bytes]) -> bytes:
    """A log that unpacks to more than the manifest and the archive say."""
    shown = json.loads(found["manifest.json"])
    shown["sessions"][0]["members"]["log.jsonl"]["size_bytes"] = 1
    manifest = {"manifest.json": json.dumps(shown).encode()}
    return _archived(lambda archive, _: setattr(archive.getinfo(_LOG), "file_size", 1))({**found, **manifest})


def _large(lines: list[dict[str, Any]]) -> dict[str, Any]:
    return next(line for line in lines if "payloads" in line)


def _elsewhere(lines: list[dict[str, Any]]) -> None:
    line = _large(lines)
    (place,) = line["payloads"]
    other = "blob:../../eve/s/payload/x"
    line["payloads"][other] = line["payloads"].pop(place)
    next(event for event in line["events"] if "@" in event)["@"][0] = other


_LOG, _DOCUMENTS = "sessions/s/log.jsonl", "sessions/s/documents.jsonl"
HOSTILE: dict[str, tuple[Callable[[dict[str, bytes]], bytes], str]] = {
    "no zip": (lambda item: b"PK but no zip", "bad_export"),
    "cut short": (lambda item: zipped(item)[:-30], "bad_export"),
    "no manifest": (
        lambda entry: zipped({name: item for name, item in entry.items() if name != "manifest.json"}, retell=False),
        "bad_export",
    ),
    "a path": (lambda item: zipped({**item, "../../etc/passwd": b"x"}), "bad_export"),
    "an absolute path": (lambda item: zipped({**item, "/sessions/s/log.jsonl": b"x"}), "bad_export"),
    "another member": (lambda item: zipped({**item, "sessions/t/log.jsonl": b"x\n"}), "bad_export"),
    "a bomb": (
        lambda item: zipped({**item, "sessions/s/log.jsonl": b"\0" * 40 * 1024**2 + b"\n"}),
        "bad_export",
    ),
    "a newer version": (_manifest(lambda item: item.update(version=3, made_by="turnlog 9.0")), "newer_export"),
    "another format": (_manifest(lambda item: item.update(format="other")), "bad_export"),
    "a manifest of nothing": (_manifest(lambda item: item.clear()), "bad_export"),
    "another hash": (
        _manifest(lambda item: item["sessions"][0]["members"]["log.jsonl"].update(sha256="0" * 64)),
        "bad_export",
    ),
    "another size": (
        _manifest(lambda item: item["sessions"][0]["members"]["log.jsonl"].update(size_bytes=1)),
        "bad_export",
    ),
    "a member twice": (_archived(lambda archive, item: archive.writestr(_LOG, item[_LOG])), "bad_export"),
    "an encrypted member": (
        _archived(lambda archive, _: setattr(archive.getinfo(_LOG), "flag_bits", 1)),
        "bad_export",
    ),
    "another compression": (lambda item: zipped(item, compression=zipfile.ZIP_BZIP2), "bad_export"),
    "a member that is longer than it says": (_of_a_byte, "bad_export"),
    "a session twice": (_manifest(lambda item: item["sessions"].append(item["sessions"][0])), "bad_export"),
    "a session without a log": (_manifest(lambda item: item["sessions"][0]["members"].pop("log.jsonl")), "bad_export"),
    "a head that is a text": (_manifest(lambda item: item["sessions"][0].update(head="9")), "bad_export"),
    "a number of messages that is a text": (
        _manifest(lambda item: item["sessions"][0].update(messages="9")),
        "bad_export",
    ),
    "an end that is no hash": (_manifest(lambda item: item["sessions"][0].update(hash="x")), "bad_export"),
    "a member of no hash": (
        _manifest(lambda item: item["sessions"][0]["members"]["log.jsonl"].update(sha256="x")),
        "bad_export",
    ),
    "a last line without an end": (_raw(lambda log: log[:-1]), "bad_export"),
    "a line that is not UTF-8": (_raw(lambda log: b"\xff" + log), "bad_export"),
    "a line over a request that is not JSON": (
        _raw(lambda log: b"[" * exports.MAX_BATCH_BYTES + b"x\n" + log),
        "bad_export",
    ),
    "a line over a request that is no object": (
        _raw(lambda log: b"[" + b"1," * exports.MAX_BATCH_BYTES + b"1]\n" + log),
        "bad_export",
    ),
    "another head": (_manifest(lambda item: item["sessions"][0].update(head=3)), "bad_export"),
    "another end": (_manifest(lambda item: item["sessions"][0].update(hash="0" * 32)), "bad_export"),
    "an id that is none": (_manifest(lambda item: item["sessions"][0].update(session_id="../x")), "bad_export"),
    "another text": (_log(lambda lines: lines[1]["events"][0]["b"].update(content="forged")), "bad_export"),
    "another time": (_log(lambda lines: lines[1]["header"].update(t=1)), "bad_export"),
    "a hole": (_log(lambda lines: lines.pop(1)), "bad_export"),
    "another payload": (_log(lambda lines: _large(lines)["payloads"].clear()), "bad_export"),
    "a payload elsewhere": (_log(_elsewhere), "bad_export"),
    "an attribute of the table": (_log(lambda lines: lines[1]["header"].update(ttl=1)), "bad_export"),
    "another partition": (_log(lambda lines: lines[1]["header"].update(pk="T#acme#U#eve#S#s")), "bad_export"),
    "a newer commit": (_log(lambda lines: lines[1]["header"].update(v=99)), "newer_export"),
    "shared up to a position behind it": (_log(lambda lines: lines[1]["header"].update(fu=99)), "bad_export"),
    "shared up to a position before it": (_log(lambda lines: lines[1]["header"].update(fu=1)), "bad_export"),
    "shared up to its end": (_log(lambda lines: lines[1]["header"].update(fu=3)), "bad_export"),
    "shared up to no position": (_log(lambda lines: lines[1]["header"].update(fu="2")), "bad_export"),
    "no object": (_log(lambda lines: lines.__setitem__(1, "x")), "bad_export"),  # type: ignore[call-overload]
    "no events": (_log(lambda lines: lines[1].update(events=[])), "bad_export"),
    "a document that is no JSON": (lambda item: zipped({**item, _DOCUMENTS: b"{\n"}), "bad_export"),
    "a document that is no object": (lambda item: zipped({**item, _DOCUMENTS: b"[]\n"}), "bad_export"),
    "a document without bytes": (_document(data=None), "bad_export"),
    "a document that is no base64": (_document(data="%"), "invalid_input"),
    "a document of no name": (_document(key=""), "invalid_input"),
    "a document whose name is no text": (_document(key="a\nb"), "invalid_input"),
    "a revision that is a path": (_document(revision="../../../../x"), "invalid_input"),
    "a time that is none": (_document(updated_at="9999-99-99T00:00:00Z"), "invalid_input"),
    "a time that can't be told": (_document(updated_at="9999-12-31T23:59:59-23:59"), "invalid_input"),
    "a time before all times": (_document(updated_at="0001-01-01T00:00:00Z"), "invalid_input"),
    "a document with more": (_document(pk="T#acme#U#eve#S#s"), "invalid_input"),
    "a document twice": (
        lambda item: zipped({**item, _DOCUMENTS: item[_DOCUMENTS] * 2}),
        "invalid_input",
    ),
    "other types": (_log(lambda lines: lines[1].update(header=[], bytes=7, events="x")), "bad_export"),
}


def test_a_hostile_file_is_refused_and_nothing_of_it_is_seen(harness: Any) -> None:
    if harness.name == "moto":
        pytest.skip("what is refused does not depend on the engine")
    session = filled(harness.log(), 4, batch=2)
    session.append({"role": "user", "content": noise(9_000)})
    session.documents.put("plan", b"1")
    result = members(exported(session))
    other = harness.log(user="eve")
    for name, (make, code) in HOSTILE.items():
        with pytest.raises(InvalidInputError) as raised:
            other.sessions.import_(io.BytesIO(make(result)), session_id="x")
        assert raised.value.error_code == code, name
        assert unseen(other, "x", []), name


@pytest.mark.every_engine
def test_an_older_service_and_a_newer_file_say_what_to_upgrade(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Older(Body):
        """The request of a service that knows neither snapshots nor memories."""

        head: int
        hash: str
        commits: list[str] = Field(default_factory=list)
        more: bool = False
        documents: ClassVar[tuple[()]] = ()
        snapshots: ClassVar[tuple[()]] = ()
        memories: ClassVar[tuple[()]] = ()

    session, other = filled(harness.log(), 4), harness.log(user="eve")
    session.create_snapshot("named")
    data = exported(session)
    newer = zipped({**members(data), **_manifest_of(data, version=99, made_by="turnlog 9.0")})
    with pytest.raises(InvalidInputError, match=r"version 99 \(made by turnlog 9\.0\).*up to 2: upgrade") as raised:
        other.sessions.import_(io.BytesIO(newer))
    assert raised.value.error_code == "newer_export"
    monkeypatch.setattr(export_routes, "ImportCommits", Older)
    with pytest.raises(InvalidInputError, match=r"service is older.*upgrade.*unknown field 'snapshots'") as raised:
        other.sessions.import_(io.BytesIO(data))
    assert raised.value.error_code == "newer_export"
    assert unseen(other, "s", [])


def _manifest_of(data: bytes, **changes: object) -> dict[str, bytes]:
    return {"manifest.json": json.dumps({**json.loads(members(data)["manifest.json"]), **changes}).encode()}


@pytest.mark.parametrize(
    ("limit", "code"),
    [("MAX_BYTES", "too_large"), ("MAX_MANIFEST_BYTES", "too_large"), ("MAX_LINE_BYTES", "bad_export")],
)
def test_a_file_that_unpacks_to_too_much_is_refused_before_it_is_unpacked(
    harness: Any, monkeypatch: pytest.MonkeyPatch, limit: str, code: str
) -> None:
    session = filled(harness.log(), 4)
    session.append({"role": "user", "content": noise(90_000)})
    data = exported(session)
    monkeypatch.setattr(exports, limit, 500)
    with pytest.raises(InvalidInputError) as raised:
        harness.log(user="eve").sessions.import_(io.BytesIO(data))
    assert raised.value.error_code == code


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_an_export_that_breaks_leaves_the_file_as_it_was(harness: Harness, tmp_path: Path) -> None:
    session, path, result = filled(harness.log(), 4), tmp_path / "s.zip", list[tuple[int, int]]()
    path.write_bytes(b"before")
    with pytest.raises(ZeroDivisionError):
        session.export(path, on_bytes=lambda done, total: done // 0)
    assert path.read_bytes() == b"before" and [path.name for path in tmp_path.iterdir() if "s.zip" in path.name] == [
        "s.zip"
    ]
    made = session.export(path, on_bytes=lambda *counts: result.append(counts))
    assert path.stat().st_size == made.size_bytes
    assert result == sorted(result) and result[-1] == (made.size_bytes, made.size_bytes)


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_a_download_that_is_not_the_export_leaves_the_file_as_it_was(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = harness.log()
    session, path = filled(log, 4), tmp_path / "s.zip"
    path.write_bytes(b"before")
    monkeypatch.setattr(log.backend, "download", lambda url, into: into.write(b"PK, and no more"))
    with pytest.raises(UnavailableError, match="differs from the export") as caught:
        session.export(path)
    assert caught.value.error_code == "download_failed" and path.read_bytes() == b"before"


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_an_import_tells_how_far_it_is_after_each_request(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "MAX_BATCH_COMMITS", 3)
    data, positions = exported(filled(harness.log(), 8, batch=1)), list[int]()
    (made,) = harness.log(user="eve").sessions.import_(io.BytesIO(data), on_positions=positions.append)
    assert positions == [3, 6, 9] and made.position == 9
    longer = _manifest(lambda item: item["sessions"][0].update(head=12))(members(data))
    with pytest.raises(UnavailableError, match="ends before its head") as caught:
        harness.log(user="bob").sessions.import_(io.BytesIO(longer), on_positions=positions.append)
    assert caught.value.error_code == "bad_export" and positions == [3, 6, 9] * 2


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_an_id_of_an_import_that_was_interrupted_is_named_as_half_imported(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "MAX_BATCH_COMMITS", 3)
    log = harness.log()
    data, other = exported(filled(log, 8, batch=1)), harness.log(user="eve")

    def interrupt(position: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        other.sessions.import_(io.BytesIO(data), on_positions=interrupt)
    with pytest.raises(SessionExistsError, match="or by an import to be repeated or erased"):
        other.sessions.create("s")
    assert other.sessions.import_(io.BytesIO(data))[0].status == "imported"


@pytest.mark.parametrize("commits", [1, 3])
def test_an_import_that_was_interrupted_is_erased_like_a_session(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    monkeypatch.setattr(exports, "MAX_BATCH_COMMITS", commits)
    data, log = exported(filled(harness.log(user="eve"), 8, batch=1)), harness.log()
    session = log.sessions.of("s")

    def interrupt(position: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(NotFoundError):
        session.erase()
    with pytest.raises(KeyboardInterrupt):
        log.sessions.import_(io.BytesIO(data), on_positions=interrupt)
    with pytest.raises(NotFoundError):
        session.info()
    done = worked(harness, session.erase(idempotency_key="k"))
    assert done.result is not None and (done.result["status"], done.result["commits"]) == ("erased", commits)
    left = [item for item in of_session(harness) if "eve" not in str(item["pk"])]
    assert left and {name for item in left for name in item} <= TOMBSTONE
    assert session.erase(idempotency_key="k") == done
    with pytest.raises(ConflictError) as caught:
        log.sessions.import_(io.BytesIO(data))
    assert caught.value.error_code == "session_erased"
    with pytest.raises(NotFoundError):
        session.erase()


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_an_export_that_takes_longer_than_its_caller_waits_is_still_queued_and_one_of_damage_fails(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where deployed workers run the jobs."""
    monkeypatch.setattr(export_service, "MAX_POSITIONS", 3)
    session, into = filled(harness.log(), 8), io.BytesIO()
    with monkeypatch.context() as patch:
        patch.setattr(InProcessBackend, "run_job", lambda self, job_id: None)
        with pytest.raises(UnavailableError) as caught:
            session.export(into, timeout_seconds=0)
    assert (caught.value.error_code, into.getvalue()) == ("job_queued", b"")
    session.export(into)
    assert zipfile.is_zipfile(into)
    items, key = harness.app.engine.items, KEYS.commit(1)
    items.put({**items.get_many([key])[key], "t": "no time"})
    session.append({"role": "user", "content": "one more, so that the export is another one"})
    with pytest.raises(UnavailableError) as caught:
        session.export(into)
    assert caught.value.error_code == "export_failed"


# ------------------------------------------------------------ conversations


def _comes_back(harness: Any, messages: list[Any], at: int) -> None:
    log, other = harness.log(user=f"a{at}"), harness.log(user=f"b{at}")
    session = log.sessions.create("s")
    for start in range(0, len(messages), 25):
        session.append(*messages[start : start + 25], lenient=True)
    session.create_snapshot("whole", kind="full")
    other.sessions.import_(io.BytesIO(exported(session)))
    copy = other.sessions.get("s")
    assert list(copy.messages()) == list(session.messages())
    assert copy.context(budget=50_000).messages == session.context(budget=50_000).messages
    assert list(copy.history()) == list(session.history())


def test_sample_conversations_come_back_equal(tmp_path: Path) -> None:
    with sqlite_harness(tmp_path) as harness:
        for at, read_transcript in enumerate(read_transcripts([SAMPLES])):
            _comes_back(harness, list(read_transcript.messages), at)


@pytest.mark.parametrize("source", ["agentdojo", "session-share"])
def test_real_conversations_come_back_equal(tmp_path: Path, real_data: Any, source: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the loader leaves its files to the garbage collector
        values = [iter_session["messages"] for iter_session in real_data.iter_sessions(str(DATA / "dev" / source))]
    with sqlite_harness(tmp_path) as harness:
        for at, messages in enumerate(values[:3]):
            _comes_back(harness, messages[:200], at)


def test_everything_of_a_person_has_what_is_known_of_them(harness: Any) -> None:
    log = harness.log()
    session = log.sessions.create("s")
    session.append({"role": "user", "content": "I live in Lisbon."})
    session.end()
    log.run_jobs()
    harness.app.export_session.run(Owner.of("acme", "ada"), "", {})
    outcome = members(harness.app.engine.blobs.get("~exports/acme/ada/everything.zip"))
    (result,) = [json.loads(line) for line in outcome["memory.jsonl"].splitlines()]
    assert (result["text"], result["session_id"], result["position"]) == ("I live in Lisbon", "s", 2)
    assert json.loads(outcome["manifest.json"])["memory"]["lines"] == 1
    assert "memory.jsonl" not in members(exported(session))


def test_everything_is_exported_as_it_is_now(harness: Harness) -> None:
    log = harness.log()
    session = log.sessions.create("s")
    assert log.export(io.BytesIO()).positions == 1
    session.append(user("hello"))
    log.sessions.create("s2")
    assert log.export(io.BytesIO()).sessions == 2


@pytest.mark.parametrize("what", ["redacted", "erased", "all erased"])
@pytest.mark.parametrize("deleted", [False, True], ids=["before its job", "after its job"])
def test_no_export_gives_back_what_was_removed_since(harness: Harness, what: str, deleted: bool) -> None:
    log, app = harness.log(), harness.app
    owner, session, other = Owner.of("acme", "ada"), log.sessions.create("s"), log.sessions.create("other")
    for each in (session, other):
        each.append(user("hello"))
    began = app.export_session.everything(owner), app.export_session(owner, "s", ExportSession(mode="async"))
    log.run_jobs()
    assert app.export_session.everything(owner).job_id == began[0].job_id, "within an hour it is the same"
    assert all("url" in app.get_job(owner, job.job_id).result for job in began)
    harness.clock.advance(1)
    removal = {"redacted": lambda: session.redact(2), "erased": session.erase, "all erased": log.erase_me}[what]()
    if deleted:
        worked(harness, removal)
    for job in began:
        with contextlib.suppress(NotFoundError):  # the jobs of a person are erased, too
            assert "url" not in app.get_job(owner, job.job_id).result
    if what == "all erased" and not deleted:
        with pytest.raises(ConflictError, match="is being erased"):
            log.export(io.BytesIO())
        return
    harness.clock.advance(1)
    again = app.export_session.everything(owner)
    assert again.job_id != began[0].job_id
    app.run_job.run_now(owner, again.job_id)
    assert "url" in app.get_job(owner, again.job_id).result
    content = members(app.engine.blobs.get("~exports/acme/ada/everything.zip"))
    assert not [name for name, data in content.items() if name.startswith("sessions/s/") and b"hello" in data]


def test_an_export_whose_file_is_gone_before_its_download_says_so(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = harness.log()
    session = log.sessions.create("s")
    session.append(user("hi"))
    download = InProcessBackend.download

    def after_an_erasure(backend: InProcessBackend, url: str, into: Any) -> None:
        harness.app.engine.blobs.erase(export_blob(backend.owner, "s"))
        download(backend, url, into)

    monkeypatch.setattr(InProcessBackend, "download", after_an_erasure)
    with pytest.raises(ConflictError, match="export again"):
        session.export(tmp_path / "s.zip")
    assert not list(tmp_path.glob("*.zip*"))


def test_an_export_whose_data_is_redacted_meanwhile_says_so(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    log = harness.log()
    session = log.sessions.create("s")
    session.append(user("hello"))
    run = export_service.ExportSessions.run
    monkeypatch.setattr(
        export_service.ExportSessions, "run", lambda *arguments: (run(*arguments), session.redact(2))[0]
    )
    with pytest.raises(ConflictError, match="export again"):
        log.export(io.BytesIO())


@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "meta", [{"pos": 5, "b": b"left"}, {"pos": 1_000_000_000_000, "ttl": 1}], ids=["cache", "tombstone"]
)
def test_a_session_is_not_seen_before_it_is_whole_whatever_an_erased_one_has_left(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, meta: dict[str, Any]
) -> None:
    """As D#META of a session of the same id, written late."""
    filled(harness.log(), 30)
    data = exported(harness.log().sessions.get("s"))
    keys, table = SessionKeys(Owner.of("acme", "ada"), "t"), harness.app.items
    table.put({"pk": keys.meta.pk, "sk": keys.meta.sk, **meta})
    put, seen = table.put, list[bool]()

    def noted(item: Any, **options: Any) -> Any:
        outcome = put(item, **options)
        if str(item["sk"]).startswith("C#") and item["pk"] == keys.partition:
            with contextlib.suppress(NotFoundError):
                harness.app.log.commits.tail(keys)
                seen.append("k" in table.get_many([keys.commit(1)])[keys.commit(1)])
        return outcome

    monkeypatch.setattr(table, "put", noted)
    harness.log().sessions.import_(io.BytesIO(data), session_id="t")
    assert harness.log().sessions.get("t").info().messages == 30
    assert all(seen), "only when its first commit is whole"


@pytest.mark.every_engine
@pytest.mark.parametrize("is_swept", [False, True], ids=["expired", "its log is erased"])
def test_everything_of_a_person_has_what_full_snapshots_of_expired_sessions_hold(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, is_swept: bool
) -> None:
    monkeypatch.setattr(borders, "SEGMENT_POSITIONS", 64)
    log, eve = harness.log(), harness.log(user="eve")
    session = log.sessions.create("s", ttl_days=1)
    for at in range(30):
        session.append({"role": "user", "content": f"{at} {noise(3_000)}"}, {"role": "assistant", "content": "ok"})
    session.create_snapshot("early", kind="full")
    session.append({"role": "user", "content": noise(400_000)})
    messages = list(session.messages())
    head = session.info().head
    session.create_snapshot("late", kind="full")
    session.append({"role": "user", "content": "in no snapshot"})
    log.sessions.create("refs", ttl_days=1).create_snapshot("ref")
    erased = log.sessions.create("erased", ttl_days=1)
    erased.create_snapshot("gone", kind="full")
    erased.erase()
    harness.clock.advance(2 * 86_400)
    if is_swept:
        log.run_jobs()
        harness.clock.advance(3_600)
        log.run_jobs()
    data = exported(log)
    assert [entry["session_id"] for entry in json.loads(members(data)["manifest.json"])["sessions"]] == ["s"]
    (answer,) = eve.sessions.import_(io.BytesIO(data))
    assert (answer.status, answer.position, answer.snapshots_left_out) == ("imported", head, 0)
    copy = eve.sessions.get("s")
    assert [message.body for message in copy.messages()] == [message.body for message in messages]
    assert sorted((snapshot.name, snapshot.kind) for snapshot in copy.snapshots()) == [
        ("early", "ref"),
        ("late", "ref"),
    ]
    assert copy.restore_snapshot("early", session_id="early").messages == 60
    log.erase_me()
    log.run_jobs()
    assert len(list(copy.messages())) == 61
