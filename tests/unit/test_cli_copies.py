# ruff: noqa: F811 - fixtures of another module
"""`turnlog snapshot` and `turnlog export`, and `turnlog import` of what it wrote: for people and for scripts."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from tests.unit.test_cli import SESSION, _clean, as_json, data, ok, refused, run, served  # noqa: F401 - fixtures


def test_snapshots_are_taken_listed_shown_restored_and_deleted(data: Path) -> None:
    where = ("--data", data)
    assert "no snapshots" in ok("snapshot", "list", SESSION, *where)
    made = as_json("snapshot", "create", SESSION, "before", "--full", *where)
    assert (made["kind"], made["name"]) == ("full", "before")
    assert f"ref, position {made['position']}, " in ok("snapshot", "create", SESSION, *where)
    assert [one["kind"] for one in as_json("snapshot", "list", SESSION, *where)["snapshots"]] == ["ref", "full"]
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


def test_an_export_comes_back_by_import(data: Path, tmp_path: Path) -> None:
    said = ok("export", SESSION, "--data", data)
    assert said.startswith(f"{SESSION}.zip: 1 sessions, ")
    with zipfile.ZipFile(tmp_path / f"{SESSION}.zip") as found:
        assert json.loads(found.read("manifest.json"))["format"] == "turnlog-export"
    told = as_json("export", "--me", "-o", tmp_path / "all.zip", "--data", data)
    assert (told["sessions"], told["file"]) == (1, str(tmp_path / "all.zip"))
    before = as_json("show", SESSION, "--data", data)
    dry = as_json("import", "all.zip", "--dry-run", "--data", tmp_path / "new")
    assert [one["status"] for one in dry["sessions"]] == ["new"]
    first, second = (as_json("import", "all.zip", "--data", tmp_path / "new") for _ in range(2))
    assert [(one["shape"], one["status"]) for one in first["sessions"]] == [("turnlog", "new")]
    assert [one["status"] for one in second["sessions"]] == ["same"]
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
