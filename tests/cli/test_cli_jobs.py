"""`turnlog compress` and `turnlog jobs`: for people and for scripts, on a data folder and on a service, and what they refuse."""

from __future__ import annotations

import json
import re
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.conftest import ROOT, SAMPLES, moto_harness
from tests.support.command_line import SESSION, as_json, ok, refused, run
from tests.support.dead_letters import bury_on_aws
from tests.support.scripted import Outcome, ScriptedSummariser
from tests.support.talks import filled
from turnlog import Turnlog
from turnlog.cli.jobs import job_line
from turnlog.client.in_process import JobWorker
from turnlog.client.states import await_job
from turnlog.core.errors import SummariserConfigError, UnavailableError
from turnlog.engines import location_url
from turnlog.jobs.models import Job
from turnlog.server.local_server import LocalServer
from turnlog.testing.contracts.job_queue import dead_letters

ID, TIME = re.compile(r"\b\d{13}-[a-z0-9]{22}\b"), re.compile(r"20\d\d-\d\d-\d\d[T ][\d:.]+Z?")


def stopped(*arguments: object) -> str:
    """What is printed by a command that ends with 1, with nothing on stderr."""
    result = run(*arguments)
    assert (result.exit_code, result.stderr) == (1, ""), result.output
    return result.stdout


# ---------------------------------------------------------------- compress


def test_compress_waits_and_says_what_the_summary_covers(data: Path) -> None:
    said = ok("compress", SESSION, "--data", data)
    with Turnlog.open(location_url(data), worker=False) as log:
        summary = log.sessions.get(SESSION).summary()
    assert summary is not None
    assert re.search(rf"^job {ID.pattern} \(compress\) is done: published, after 1 try$", said, re.M)
    rows = dict(re.findall(r"^(\w+) +(.+?) *$", said, re.M))
    assert rows["positions"] == f"{summary.first}–{summary.last}"
    assert rows["loops"] == f"{summary.first_loop}–{summary.last_loop}"
    assert rows["tokens"].startswith(f"{summary.source_tokens:,} -> {summary.tokens:,} (")
    assert rows["facts"] == str(len(summary.facts)) and len(summary.facts) > 10
    again = ok("compress", SESSION, "--data", data)
    assert "is done: unchanged, nothing_to_cover" in again and f"{summary.first}–{summary.last}" in again


def test_compress_takes_its_limits_and_a_later_one_continues(data: Path) -> None:
    first = as_json("compress", SESSION, "--data", data, "--keep-loops", "6", "--max-tokens", "300")
    assert first["job"]["result"]["status"] == "published"
    assert first["summary"]["tokens"] <= 300
    second = as_json("compress", SESSION, "--data", data, "--keep-loops", "0")
    assert second["summary"]["base"] == first["summary"]["position"]
    assert second["summary"]["last_loop"] > first["summary"]["last_loop"]
    said = ok("compress", SESSION, "--show", "--data", data)
    assert f"continues the one at {first['summary']['position']}" in said


def test_show_prints_the_summary_in_force_and_makes_none(data: Path) -> None:
    refused("compress", SESSION, "--show", "--data", data, code=1, says=r"has no summary yet \(no_summary\)")
    made = as_json("compress", SESSION, "--data", data)["summary"]
    assert as_json("compress", SESSION, "--show", "--data", data) == made
    said = ok("compress", SESSION, "--show", "--data", data)
    assert made["text"].splitlines()[0] in said and made["facts"][0]["value"] in said
    assert len(as_json("jobs", "--data", data)["jobs"]) == 1


def test_async_prints_the_job_and_a_service_or_the_next_wait_does_it(data: Path) -> None:
    queued = as_json("compress", SESSION, "--async", "--data", data)
    assert (queued["job"]["status"], queued["summary"]) == ("queued", None)
    said = ok("compress", SESSION, "--async", "--data", data)
    assert re.search(rf"is queued\nlook at it with: turnlog jobs show {ID.pattern}\n", said)
    assert len(as_json("jobs", "--status", "queued", "--data", data)["jobs"]) == 2
    as_json("compress", SESSION, "--data", data)
    assert as_json("jobs", "--status", "queued", "--data", data)["jobs"] == []


@pytest.mark.network
def test_compress_over_a_service_waits_for_its_worker(served: LocalServer, capsys: pytest.CaptureFixture[str]) -> None:
    sample = json.loads((SAMPLES / "support-agent.json").read_text("utf-8"))
    with Turnlog.open(served.url, token="s3cret", user="ada") as log:
        session = log.sessions.create(SESSION, tools=sample["tools"])
        for at in range(0, len(sample["messages"]), 25):
            session.append(*sample["messages"][at : at + 25])
    where = ("--url", served.url, "--token", "s3cret", "--user", "ada")
    result = as_json("compress", SESSION, *where)
    assert (result["job"]["status"], result["summary"]["position"]) == ("done", result["job"]["result"]["position"])
    assert [job["job_id"] for job in as_json(*where, "jobs")["jobs"]] == [result["job"]["job_id"]]
    assert as_json("jobs", *where, "--status", "failed")["jobs"] == []
    assert as_json("jobs", *where, "show", result["job"]["job_id"]) == result["job"]
    assert as_json("jobs", "show", result["job"]["job_id"], *where) == result["job"]
    refused("jobs", "redrive", *where, code=2, says=r"does not redrive jobs.*needs_engine")
    refused("jobs", "show", result["job"]["job_id"], "--url", served.url, "--token", "s3cret", code=1, says="not_found")


def summariser(monkeypatch: pytest.MonkeyPatch, *outcomes: Outcome) -> None:
    """What every engine that is opened from now on asks."""
    from turnlog.app import Application

    scripted = ScriptedSummariser(outcomes)
    monkeypatch.setattr(Application, "summariser", property(lambda _self: scripted))


def test_a_job_that_fails_or_is_postponed_is_exit_1(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summariser(monkeypatch, SummariserConfigError("no such model"), UnavailableError("down"), "Orders, all of it.")
    said = stopped("compress", SESSION, "--data", data)
    assert "is failed: no such model (summariser_misconfigured), after 1 try" in said
    assert "positions" not in said
    assert "is done: postponed, unavailable" in (said := stopped("compress", SESSION, "--data", data))
    assert "the summariser is not available" in said
    failed = as_json("jobs", "--status", "failed", "--data", data)["jobs"]
    assert [job["error"]["code"] for job in failed] == ["summariser_misconfigured"]
    assert f"1 job queued again: {failed[0]['job_id']}" in ok("jobs", "redrive", "--failed", "--data", data)
    assert as_json("jobs", "show", failed[0]["job_id"], "--data", data)["status"] == "queued"
    with Turnlog.open(location_url(data), worker=False) as log:
        assert log.run_jobs() == 1
    assert ok("jobs", "--status", "failed", "--data", data) == "no jobs\n"


def test_a_job_that_failed_is_red_and_one_that_is_done_is_not(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    summariser(monkeypatch, SummariserConfigError("no such model"), "Orders, all of it.")
    assert run("compress", SESSION, "--data", data).stdout.startswith("\x1b[1;31mjob ")
    assert run("compress", SESSION, "--data", data).stdout.startswith("job ")


def test_waiting_ends_with_its_time(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody does the job: the queue's message is in other hands."""
    monkeypatch.setattr(JobWorker, "wake", lambda _self: None)
    said = stopped("compress", SESSION, "--data", data, "--timeout", "1")
    assert "is queued" in said and "turnlog jobs show" in said


def test_progress_is_shown_while_it_waits(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Turnlog.open(location_url(data), worker=False) as log:
        job = log.sessions.get(SESSION).compress(mode="async")

        def do() -> None:
            time.sleep(0.3)
            with Turnlog.open(location_url(data), worker=False) as worker:
                worker.run_jobs()

        worker = threading.Thread(target=do)
        worker.start()
        assert isinstance(job, Job)
        result = list[tuple[str, float]]()
        done = await_job(
            log.backend, job, seconds=30, meanwhile=lambda state, passed: result.append((state.status, passed))
        )
        worker.join()
    assert done.status == "done"
    assert {status for status, _ in result} == {"queued"}
    assert [passed for _, passed in result] == sorted(passed for _, passed in result)


def test_progress_is_on_the_terminal_only(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    from turnlog.cli import screen

    written = io.StringIO()
    terminal = Console(file=written, force_terminal=True, width=100, highlight=False)
    console = screen.console
    monkeypatch.setattr(screen, "console", lambda *, stderr=False: terminal if stderr else console())
    assert "is done" in ok("compress", SESSION, "--data", data)
    assert "is queued" in written.getvalue()
    written.truncate(0)
    as_json("compress", SESSION, "--data", data)
    assert "queued" not in written.getvalue()


# ---------------------------------------------------------------- jobs


def test_jobs_newest_first_with_a_limit(data: Path) -> None:
    assert ok("jobs", "--data", data) == "no jobs\n"
    made = [as_json("compress", SESSION, "--async", "--data", data)["job"]["job_id"] for _ in range(3)]
    listed = as_json("jobs", "--data", data, "--limit", "2")
    assert {job["job_id"] for job in listed["jobs"]} < set(made) and listed["more"] is True
    said = ok("jobs", "--data", data, "--limit", "2")
    assert said.count("queued") == 2 and "more than 2: --limit" in said
    assert ok("--user", "bob", "jobs", "--data", data) == "no jobs\n"


def test_show_one_job_whose_try_met_an_error(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = as_json("compress", SESSION, "--async", "--data", data)["job"]["job_id"]

    def down(*_: Any) -> Any:
        raise UnavailableError("the table\x1b[31m is down")

    from turnlog.summaries.rounds import Rounds

    with monkeypatch.context() as patch, Turnlog.open(location_url(data), worker=False) as log:
        patch.setattr(Rounds, "compress_once", down)
        assert log.run_jobs() == 0
    said = ok("jobs", "show", job_id, "--data", data)
    assert f"job {job_id} (compress) is queued: the table\\u001b[31m is down (unavailable), after 1 try" in said
    assert "the table\\u001b[31m is down (unavailable)" in ok("jobs", "--data", data)


def test_redrive_brings_a_dead_letter_back(data: Path) -> None:
    job_id = as_json("compress", SESSION, "--async", "--data", data)["job"]["job_id"]
    with sqlite3.connect(data / "turnlog.db") as database:
        database.execute("UPDATE jobs SET dead = 1, receives = 5")
        database.execute(
            "INSERT INTO jobs (id, grp, body, visible_ms, dead, sent) VALUES ('p', 'x', 'poison', 0, 1, 0)"
        )
    database.close()
    with Turnlog.open(location_url(data), worker=False) as log:
        assert log.run_jobs() == 0
    assert (
        ok("jobs", "redrive", "--data", data)
        == "1 dead letter back in the queue\n1 dead letter left: not jobs of Turnlog\n"
    )
    assert as_json("jobs", "redrive", "--data", data) == {"dead_letters": 0, "jobs": [], "left": 1}
    assert ok("compress", SESSION, "--data", data).count("is done") == 1
    assert as_json("jobs", "show", job_id, "--data", data)["status"] == "done"
    refused("jobs", "redrive", job_id, "--data", data, code=2, says="is done: there is nothing to do again")


def test_redrive_on_aws_takes_the_engine_s_url(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dead letters are those that the queue's redrive policy names."""
    pytest.importorskip("moto")
    url = "dynamodb://turnlog?bucket=turnlog-blobs&queue=jobs&region=eu-central-1"
    where = ("--url", url, "--tenant", "acme", "--user", "ada")
    with moto_harness(monkeypatch) as harness:
        filled(harness.log(), 5)
        job_id = as_json("compress", "s", "--async", *where)["job"]["job_id"]
        queue = harness.app.engine.queue
        for delivery in queue.receive():
            bury_on_aws(harness, delivery.body)
            queue.acknowledge(delivery.receipt)
        assert ok("jobs", "redrive", *where) == "1 dead letter back in the queue\n"
        assert dead_letters(queue) == []
        assert [job_id in delivery.body for delivery in queue.receive()] == [True]
        refused("jobs", *where, "--url", "dynamodb://turnlog", code=2, says="dynamodb://TABLE")


def test_wrong_input(data: Path) -> None:
    refused("compress", "nope", "--data", data, code=1, says=r"no session 'nope' \(not_found\)")
    refused("compress", "a b", "--data", data, code=2, says="session id 'a b'")
    refused("compress", SESSION, code=1, says="no data in '.turnlog'.*turnlog serve")
    for value in (["--keep-loops", "-1"], ["--keep-loops", "x"], ["--max-tokens", "63"], ["--max-tokens", "8001"]):
        refused("compress", SESSION, "--data", data, *value, code=2, says=value[0])
    refused("compress", SESSION, "--data", data, "--timeout", "0", code=2, says="--timeout")
    for value in (["--async"], ["--keep-loops", "1"], ["--max-tokens", "100"]):
        refused("compress", SESSION, "--show", *value, "--data", data, code=2, says="--show makes no summary")
    refused("compress", code=2, says="SESSION")
    refused(
        "jobs", "--status", "open", "--data", data, code=2, says="--status 'open' is not one of queued, failed, done"
    )
    refused("jobs", "--limit", "0", "--data", data, code=2, says="--limit")
    refused("jobs", "bake", "--data", data, code=2, says="bake")
    for command in ("show", "redrive"):
        refused("jobs", command, "nope", "--data", data, code=1, says="not_found")
        refused("jobs", command, "1700000000000-none", "--data", data, code=1, says=r"no job .*not_found")
    refused("jobs", "show", "--data", data, code=2, says="ID")
    refused("jobs", "redrive", "x", "--failed", "--data", data, code=2, says="leave the id out")
    refused("jobs", code=1, says="no_data")
    assert as_json("jobs", "--data", data)["jobs"] == [], "nothing of it made a job"


# ---------------------------------------------------------------- the page


def test_the_page_shows_what_is_printed(tmp_path: Path) -> None:
    """The examples of docs/reference/cli.md, one after the other; ``...`` stands for lines that are left out."""
    sample = json.loads((SAMPLES / "support-agent.json").read_text("utf-8"))
    with Turnlog.open(location_url(tmp_path / ".turnlog"), worker=False) as log:
        session = log.sessions.create(SESSION, tools=sample["tools"])
        for at in range(0, len(sample["messages"]), 25):
            session.append(*sample["messages"][at : at + 25])
    text = (ROOT / "docs" / "reference" / "cli.md").read_text("utf-8")
    own = text[text.index("\n## turnlog compress\n") : text.index("\n## turnlog import\n")]
    shown = "".join(re.findall(r"^```text\n(.*?)^```", own, re.S | re.M))
    runs = re.split(r"^\$ turnlog (.+)\n", shown, flags=re.M)[1:]
    assert len(runs) >= 2 * 5
    ids = dict[str, str]()
    for command, said in zip(runs[::2], runs[1::2], strict=True):
        result = run(*(ids.get(word, word) for word in command.split())).output
        ids |= dict(zip(ID.findall(said), ID.findall(result), strict=False))
        wanted = re.escape(_plain(said)).replace(re.escape("...\n"), "(.*\n)+")
        assert re.fullmatch(wanted, _plain(result)), f"{command}\n{result}"


def _plain(text: str) -> str:
    text = re.sub(r"\b[0-9a-f]{64}\b", "HASH", re.sub(r"[\d,]+ (bytes|positions)", r"N \1", text))
    lines = TIME.sub("T", ID.sub("ID", text)).splitlines()
    return "".join(line.rstrip() + "\n" for line in lines)


def test_a_job_that_seals_says_how_far() -> None:
    with Turnlog.open("memory://", worker=False) as log:
        session = log.sessions.create("s")
        for at in range(0, 275, 25):
            session.append(*({"role": "user", "content": str(at + n)} for n in range(25)))
        assert log.run_jobs() == 1
        (job,) = log.jobs()
    assert job_line(job) == f"job {job.job_id} (seal) is done: segments up to position 276, after 1 try"


def test_commands_that_wait_do_their_job_themselves_under_any_url(data: Path) -> None:
    """No service runs beside them: `compress`, `redact` and `erase` on an engine's URL end with their job done."""
    url = location_url(data)
    assert "is done: published, after 1 try" in ok("compress", SESSION, "--url", url)
    redacted = ok("redact", SESSION, 2, "--yes", "--url", url)
    assert ": 1 commit, " in redacted and "looks again 15 minutes later" in redacted
    assert "looks again 15 minutes later" in ok("erase", SESSION, "--yes", "--url", url)
