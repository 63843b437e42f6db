"""`turnlog import`: for people and for scripts, into a data folder and over HTTP, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.importers.reading import CODING, DOCUMENT, FLAT, sample, written
from tests.support.command_line import as_json, ok, refused, run
from turnlog import Turnlog
from turnlog.cli import copies
from turnlog.server.local_server import LocalServer


def without_times(report: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in report.items() if name not in ("seconds", "dry_run")}


def test_a_dry_run_makes_no_data_folder_and_tells_what_the_import_does(tmp_path: Path) -> None:
    dry = as_json("import", FLAT, DOCUMENT, CODING, "--dry-run", "--data", "there")
    assert not (tmp_path / "there").exists() and dry["dry_run"] is True
    real = as_json("import", FLAT, DOCUMENT, CODING, "--data", "there")
    assert without_times(real) == without_times(dry)
    assert real["totals"]["status"] == {"new": 4} and real["totals"]["written"] == 19
    again = as_json("import", FLAT, DOCUMENT, CODING, "--data", "there")
    assert again["totals"]["status"] == {"same": 4} and again["totals"]["written"] == 0
    assert [session["session_id"] for session in as_json("sessions", "--data", "there")["sessions"]].count(
        "travel-7"
    ) == 1


def test_the_table_has_a_row_a_session_with_its_counts_and_times(tmp_path: Path) -> None:
    said = ok("import", FLAT, CODING, "--data", "there")
    rows = {
        line.split()[2]: line.split() for line in said.splitlines() if line.startswith(("flat.json", "coding-agent"))
    }
    assert rows["travel-7"][:10] == ["flat.json", "flat", "travel-7", "new", "7", "0", "7", "0", "0", "0"]
    assert rows["travel-7"][10:] == ["2025-11-21", "00:00", "2025-11-21", "00:00"]
    assert len(rows) == 3
    assert re.search(r"^skipped: malformed 2, no_message: file-history-snapshot 1, ", said, re.M)
    assert re.search(r"^15 messages of 3 sessions written, \d+\.\d s$", said, re.M)
    assert "0 messages of 0 sessions would be written (dry run)" in ok("import", FLAT, "--data", "there", "--dry-run")


def test_what_was_skipped_most_often_is_told_first(tmp_path: Path) -> None:
    many = tmp_path / "many.jsonl"
    snapshot = next(line for line in Path(CODING).read_text().splitlines() if "file-history-snapshot" in line)
    many.write_text("\n".join([Path(CODING).read_text().rstrip(), snapshot, snapshot]))
    assert re.search(
        r"^skipped: no_message: file-history-snapshot 3, malformed 2", ok("import", many, "--data", "there"), re.M
    )


def test_a_folder_is_imported_and_what_has_no_shape_is_told(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    written(tmp_path / "in", "a.json", sample(FLAT))
    (tmp_path / "in" / "notes.txt").write_text("nothing", "utf-8")
    report = as_json("import", tmp_path / "in", "--data", "there")
    assert [(Path(session["file"]).name, session["status"]) for session in report["sessions"]] == [
        ("a.json", "new"),
        ("notes.txt", "skipped"),
    ]


def test_nothing_in_a_hidden_folder_is_imported(tmp_path: Path) -> None:
    for folder in ("in", "in/.turnlog", "in/.turnlog/blobs"):
        (tmp_path / folder).mkdir()
        written(tmp_path / folder, "a.json", sample(FLAT))
    assert [Path(row["file"]) for row in as_json("import", "in", "--data", "there")["sessions"]] == [Path("in/a.json")]
    assert as_json("import", "in/.turnlog/blobs", "--data", "there")["totals"]["status"] == {"same": 1}


def test_a_refused_session_is_said_and_the_exit_code_is_1(tmp_path: Path) -> None:
    path = written(tmp_path, "a.json", sample(FLAT))
    ok("import", path, "--data", "there")
    changed = sample(FLAT)
    changed["messages"][2]["content"] = "other"
    written(tmp_path, "a.json", changed)
    result = run("import", path, "--data", "there")
    assert result.exit_code == 1
    assert "message 3 of 'travel-7' is not message 4 of session 'travel-7' (source_changed)" in result.stdout
    scripted = run("import", path, "--data", "there", "--json")
    assert scripted.exit_code == 1
    assert json.loads(scripted.stdout)["sessions"][0]["error"]["code"] == "source_changed"


def test_a_damaged_file_of_a_folder_is_said_and_the_exit_code_is_1(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.db").write_bytes(b"SQLite format 3\x00" + b"\xff" * 100)
    written(tmp_path / "in", "b.json", sample(FLAT))
    result = run("import", tmp_path / "in", "--data", "there")
    assert result.exit_code == 1 and "7 messages of 1 session written" in result.stdout
    assert re.search(r"can't read '.*a\.db' as a database: .* \(no_file\)", result.stdout)
    assert as_json("sessions", "--data", "there")["sessions"][0]["session_id"] == "travel-7"


def test_wrong_input(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}", "utf-8")
    refused("import", "nowhere.json", code=2, says=r"no file 'nowhere\.json' \(no_file\)")
    refused("import", "x.json", code=2, says=r"'x\.json' is none of: .+ \(unknown_source\)")
    refused("import", FLAT, "--from", "nothing", code=2, says=r"no shape 'nothing'; there are .+ \(unknown_source\)")
    refused("import", FLAT, "--from", "document", code=2, says=r"is none of: session documents \(unknown_source\)")
    refused("import", code=2, says="Missing argument")
    assert not (tmp_path / "there").exists()


@pytest.mark.network
def test_imports_go_to_a_service(served: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    where = ("--url", served.url, "--token", "s3cret", "--user", "ada")
    dry = as_json("import", FLAT, DOCUMENT, CODING, "--dry-run", *where)
    assert without_times(as_json("import", FLAT, DOCUMENT, CODING, *where)) == without_times(dry)
    assert as_json("import", FLAT, DOCUMENT, CODING, *where)["totals"]["written"] == 0
    with Turnlog.open(served.url, token="s3cret", user="ada") as log:
        assert log.sessions.get("travel-7").info().messages == 7


def test_a_terminal_shows_how_far_it_is_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Console(force_terminal=True, width=100, record=True)
    monkeypatch.setattr(copies, "console", lambda *, stderr=False: shown)
    value, result = copies.find([FLAT, CODING]), list[tuple[int, int]]()  # type: ignore[attr-defined]
    size = FLAT.stat().st_size + CODING.stat().st_size
    with copies.progress_bar("importing", quiet=False) as on_bytes, Turnlog.open("memory://") as log:
        assert on_bytes is not None

        def both(done: int, total: int) -> None:
            result.append((done, total))
            on_bytes(done, total)

        copies.run(log, value, on_bytes=both)  # type: ignore[attr-defined]
        assert result[-1] == (size, size) and result == sorted(result)
        assert FLAT.stat().st_size in [done for done, _ in result]
        result.clear()
        exported = log.export(tmp_path / "all.zip", on_bytes=both)
        assert result[-1] == (exported.size_bytes, exported.size_bytes)
    text = shown.export_text()
    assert "importing" in text and re.search(r"([\d.]+)/\1 kB", text)
