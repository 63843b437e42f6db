"""The replay benchmark: its report, its tables, its exit codes, and conversations by a loader."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.replay.__main__ import app
from benchmarks.replay.loading import sample_of
from tests.conftest import SAMPLES
from tests.support.command_line import CommandLine
from turnlog.cli.app import app as turnlog_app
from turnlog.cli.transcripts import read_transcripts
from turnlog.engines import SystemClock

_REPLAY = CommandLine(app)
run, ok, as_json, refused = _REPLAY.run, _REPLAY.ok, _REPLAY.as_json, _REPLAY.refused


@pytest.fixture(autouse=True)
def _wide_screen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)


@pytest.mark.full
@pytest.mark.network
def test_replay() -> None:
    report = as_json(SAMPLES, "--budget", 6000)
    assert report["ok"] and report["findings"] == []
    assert set(report["sources"]) == {"coding-agent", "messy", "support-agent", "travel-agent-zh"}
    assert report["total"]["sessions"] == 13 and report["total"]["invalid"] == report["total"]["lost"] == 0
    assert report["warnings"]["orphan_result"] == 2 and report["repeated_ids"] == 1


@pytest.mark.network
def test_replay_prints_tables() -> None:
    said = ok(SAMPLES, "--limit", 2, "--policy", "run_loops")
    assert re.search(r"coding-agent +1 +125 +41 ", said) and "total" in said and "every message came back" in said
    assert "open_calls" in said
    assert as_json(SAMPLES, "--sample", 3)["total"]["sessions"] == 3


@pytest.mark.full
@pytest.mark.network
def test_replay_with_summaries() -> None:
    asked = (SAMPLES / "support-agent.json", "--compress", "loops > 4")
    report = as_json(*asked)
    (session,) = report["compression"]["sessions"]
    assert report["ok"] and session["made"] == session["jobs"]["published"] >= 1 and session["wrong"] == 0
    assert session["saved"] == session["source_tokens"] - session["tokens"] > 0
    said = ok(*asked)
    assert "Summaries made meanwhile" in said and "every summary is of closed loops, no job is left" in said
    refused(SAMPLES, "--compress", "now", code=2, says="trigger 'now' is not like")
    refused(SAMPLES, "--compress", "loops > 4", "--policy", "full", code=2, says="summary")


@pytest.mark.network
def test_replay_keeps_its_folder_when_asked() -> None:
    result = run(SAMPLES / "messy.jsonl", "--keep", "--json")
    assert result.exit_code == 0 and json.loads(result.stdout)["ok"]
    folder = result.stderr.rsplit(" ", 1)[1].strip().rstrip("`")
    try:
        assert (
            len(
                json.loads(CliRunner().invoke(turnlog_app, ["sessions", "--data", folder, "--json"]).stdout)["sessions"]
            )
            == 10
        )
    finally:
        shutil.rmtree(folder)


@pytest.mark.network
def test_replay_takes_a_loader(tmp_path: Path) -> None:
    loader = tmp_path / "load.py"
    loader.write_text(
        "def iter_sessions(path):\n"
        "    for line in open(path, encoding='utf-8'):\n"
        "        yield {'id': line.strip(), 'source': 'lines', 'messages': [{'role': 'user', 'content': line}]}\n"
    )
    (tmp_path / "log.txt").write_text("one\ntwo\n")
    report = as_json(tmp_path / "log.txt", "--loader", loader)
    assert report["sources"]["lines"]["messages"] == 2


@pytest.mark.network
def test_replay_fails_when_a_message_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"role": "user", "content": {"not": "content"}}]')
    result = run(tmp_path / "a.json")
    assert (result.exit_code, result.stderr) == (1, "")
    assert "something is lost or not valid" in result.stdout and "content is neither" in result.stdout


@pytest.mark.network
def test_wrong_input_of_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SystemClock, "sleep", lambda clock, seconds: None)
    loader = tmp_path / "load.py"
    refused(SAMPLES, "--url", "http://127.0.0.1:1", code=1, says="unreachable")
    refused("nope.json", code=2, says="no file 'nope.json'")
    refused(tmp_path, code=2, says="no .json")
    refused(SAMPLES, "--policy", "nope", code=2, says="policy 'nope'")
    refused(SAMPLES, "--format", "nope", code=2, says="format")
    refused(SAMPLES, "--loader", loader, code=2, says="no loader")
    for content, says in (
        ("import no_such_module", "ModuleNotFoundError"),
        ("x = 1", "iter_sessions"),
        ("def iter_sessions(path):\n    raise KeyError('id')", "KeyError"),
        ("def iter_sessions(path):\n    return [{'id': 1}]", "neither"),
        ("def iter_sessions(path: return", "SyntaxError"),
    ):
        loader.write_text(content)
        refused(SAMPLES, "--loader", loader, code=2, says=says)


def test_a_sample_is_fixed_and_has_every_source(tmp_path: Path) -> None:
    file = tmp_path / "many.json"
    file.write_text(
        json.dumps([{"id": f"{n}", "source": "big" if n < 90 else f"small{n}", "messages": []} for n in range(94)])
    )
    everything = read_transcripts([file])
    sample = sample_of(everything, 10)
    assert sample == sample_of(everything, 10) and len(sample) == 10
    assert {item.source for item in sample} == {"big", "small90", "small91", "small92", "small93"}
    assert [int(item.id) for item in sample] == sorted(int(item.id) for item in sample)
    assert sample_of(everything, 500) == everything
