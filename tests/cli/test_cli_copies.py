"""`turnlog snapshot` and `turnlog export`, and `turnlog import` of what it wrote: for people and for scripts."""

from __future__ import annotations

import json
import time
import zipfile
from pathlib import Path

import pytest

from tests.support.command_line import SESSION, as_json, ok, refused
from turnlog import Turnlog
from turnlog.engines import location_url
from turnlog.server.local_server import LocalServer


def test_snapshots_are_taken_listed_shown_restored_and_deleted(data: Path) -> None:
    where = ("--data", data)
    assert "no snapshots" in ok("snapshot", "list", SESSION, *where)
    made = as_json("snapshot", "create", SESSION, "before", "--full", *where)
    assert (made["kind"], made["name"]) == ("full", "before")
    assert f"ref, position {made['position']}, " in ok("snapshot", "create", SESSION, *where)
    assert [snapshot["kind"] for snapshot in as_json("snapshot", "list", SESSION, *where)["snapshots"]] == [
        "ref",
        "full",
    ]
    assert made["snapshot_id"] in ok("snapshot", "list", SESSION, "--name", "before", *where)
    said = ok("snapshot", "show", SESSION, "before", *where)
    assert made["sha256"] in said
    assert f"1–{made['position']}" in said
    assert "projector" in said
    assert as_json("snapshot", "show", SESSION, "before", *where)["content"]["message_count"] > 10
    restored = ok("snapshot", "restore", SESSION, "before", "--session-id", "again", *where)
    assert restored.startswith("again is as it was: ")
    assert "again" in ok("sessions", *where)
    rewound = as_json("snapshot", "restore", SESSION, "before", "--as", "rewind", *where)
    assert rewound["session_id"] == SESSION
    assert "is deleted" in ok("snapshot", "delete", SESSION, "before", *where)
    refused("snapshot", "show", SESSION, "before", *where, code=1, says="no snapshot 'before'")
    refused("snapshot", "restore", SESSION, "before", "--as", "x", *where, code=2, says="rewind")


def test_the_file_of_a_session_whose_id_has_a_slash_lies_here(data: Path) -> None:
    with Turnlog.open(data) as log:
        log.sessions.create("team/a")
        log.sessions.create("team-a")
    for name, file in (("team/a", "team%2Fa.zip"), ("team-a", "team-a.zip")):
        ok("export", name, "--data", data)
        assert zipfile.is_zipfile(file)


def test_an_export_comes_back_by_import(data: Path, tmp_path: Path) -> None:
    for options in ((), ("whole", "--full")):
        ok("snapshot", "create", SESSION, *options, "--data", data)
    said = ok("export", SESSION, "--data", data)
    assert said.startswith(f"{SESSION}.zip: 1 session, ")
    with zipfile.ZipFile(tmp_path / f"{SESSION}.zip") as resource:
        assert json.loads(resource.read("manifest.json"))["format"] == "turnlog-export"
    result = as_json("export", "--me", "-o", tmp_path / "all.zip", "--data", data)
    assert (result["sessions"], result["file"]) == (1, str(tmp_path / "all.zip"))
    before = as_json("show", SESSION, "--data", data)
    dry = as_json("import", "all.zip", "--dry-run", "--data", tmp_path / "new")
    assert [session["status"] for session in dry["sessions"]] == ["new"]
    first, second = (as_json("import", "all.zip", "--data", tmp_path / "new") for _ in range(2))
    assert [(session["shape"], session["status"]) for session in first["sessions"]] == [("turnlog", "new")]
    assert dry["totals"]["changed"] == first["totals"]["changed"] == {"full_snapshot_is_ref": 1}
    assert first["totals"]["warnings"] == second["totals"]["changed"] == {}
    assert [session["status"] for session in second["sessions"]] == ["same"]
    assert as_json("show", SESSION, "--data", tmp_path / "new") == before
    refused("export", "--data", data, code=2, says="name a session, or give --me")
    refused("export", "nobody", "--data", data, code=1, says="not_found")
    assert not (tmp_path / "nobody.zip").exists()


def test_a_hostile_file_is_one_clear_line(data: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as made:
        made.writestr("manifest.json", '{"format": "turnlog-export", "version": 9, "made_by": "turnlog 9"}')
    refused("import", "evil.zip", "--data", data, code=2, says=r"version 9 \(made by turnlog 9\)")
    with zipfile.ZipFile(tmp_path / "path.zip", "w") as made:
        made.writestr("manifest.json", "{}")
        made.writestr("../../x", "x")
    refused("import", "path.zip", "--data", data, code=2, says="is no member of an export")


@pytest.mark.network
def test_all_of_it_over_a_service(
    served: LocalServer, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Downloads, imports in batches, jobs that the service does: as in process."""
    monkeypatch.setattr("turnlog.client.exports.MAX_BATCH_COMMITS", 1)
    ok("export", SESSION, "-o", "in.zip", "--data", data)
    where = ("--url", served.url, "--token", "s3cret", "--user", "ada")
    imported = as_json("import", "in.zip", *where)
    assert [session["status"] for session in imported["sessions"]] == ["new"]
    assert as_json("show", SESSION, *where) == as_json("show", SESSION, "--data", data)
    for arguments in (("export", SESSION, "-o", "one.zip"), ("export", "--me", "-o", "all.zip")):
        result = as_json(*arguments, *where)
        assert result["size_bytes"] == (tmp_path / arguments[-1]).stat().st_size
    with zipfile.ZipFile("one.zip") as one, zipfile.ZipFile("in.zip") as before:
        assert one.read(f"sessions/{SESSION}/log.jsonl") == before.read(f"sessions/{SESSION}/log.jsonl")
    made = as_json("snapshot", "create", SESSION, "whole", "--full", *where)
    with Turnlog.open(served.url, token="s3cret", user="ada") as log:
        job = log.sessions.get(SESSION).create_snapshot(kind="full", mode="async")
        while log.job(job.job_id).status == "queued":
            time.sleep(0.01)
        assert log.job(job.job_id).status == "done"
    assert as_json("snapshot", "show", SESSION, "whole", *where)["sha256"] == made["sha256"]
    other = ("--url", served.url, "--token", "s3cret", "--user", "eve")
    refused("snapshot", "show", SESSION, "whole", *other, code=1, says="not_found")
    refused("export", SESSION, *other, code=1, says="not_found")


def test_memory_that_is_off_says_so(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNLOG_MEMORY", "none")
    assert ok("memory", "--data", data) == "long-term memory is off\n"
    assert as_json("memory", "--data", data) == {"engine": None, "memories": [], "more": False}


def test_memory_is_listed_and_forgotten(data: Path) -> None:
    where = ("--data", data)
    assert "no memories" in ok("memory", *where)
    with Turnlog.open(location_url(data)) as log:
        for name, said in (("a", "I live in Lisbon."), ("b", "I live in Porto. I have two cats.")):
            session = log.sessions.create(name)
            session.append({"role": "user", "content": said})
            session.end()
            log.run_jobs()
            time.sleep(0.002)
    assert {memory["text"] for memory in as_json("memory", *where)["memories"]} == {
        "I have two cats",
        "I live in Porto",
    }
    said = ok("memory", "--all", *where)
    assert "I live in Lisbon" in said and "a:2" in said
    result = as_json("memory", "--all", "--limit", "2", *where)
    assert (result["engine"], len(result["memories"]), result["more"]) == ("embedded", 2, True)
    result = as_json("memory", "--find", "Porto cats", "--limit", "1", *where)
    assert (len(result["memories"]), result["more"]) == (1, True)
    result = as_json("memory", "--find", "Porto cats", "--limit", "100", *where)
    assert (len(result["memories"]), result["more"]) == (2, False)
    refused("memory", "--find", "Porto", "--limit", "101", *where, code=2, says="at most 100")
    (cats,) = [memory for memory in result["memories"] if "cats" in memory["text"]]
    assert f"{cats['memory_id']} is forgotten" in ok("memory", "forget", cats["memory_id"], *where)
    assert as_json("memory", "forget", cats["memory_id"], *where) == {"memory_id": cats["memory_id"]}
    assert [memory["text"] for memory in as_json("memory", *where)["memories"]] == ["I live in Porto"]
