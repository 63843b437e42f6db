"""Each command, for people and for scripts; and a wrong input at each entrance: one clear line, never a traceback."""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner, Result

from tests.conftest import SAMPLES
from tests.support.command_line import SESSION, as_json, ok, refused, run
from turnlog import Turnlog, __version__, cli
from turnlog.cli.app import app
from turnlog.cli.screen import plain
from turnlog.cli.transcripts import read_transcripts
from turnlog.client.in_process import InProcessBackend
from turnlog.core.errors import InvalidInputError, NotFoundError
from turnlog.engines import SystemClock, location_url
from turnlog.engines.token_estimate import EstimateCounter
from turnlog.http.openapi import json_schemas
from turnlog.server import local_server
from turnlog.server.local_server import LocalServer

# ---------------------------------------------------------------- the program


def test_without_a_command_it_says_what_there_is() -> None:
    said = ok()
    for name in ("serve", "context", "loops", "sessions", "show", "lint", "schema", "doctor"):
        assert re.search(rf"\b{name}\b", said)
    assert ok("--version") == f"turnlog {__version__}\n"
    for name in ("serve", "context"):
        assert "--json" in ok(name, "--help")
    for name in ("create", "import", "lint"):  # typer itself marks what is optional, and what may be repeated
        assert not re.search(r"\[\[|\.\.\.\}?\.\.\.", ok(name, "--help"))


def test_every_option_and_argument_of_every_command_says_what_it_is_for() -> None:
    def commands_of(command: Any, name: str) -> Iterator[tuple[str, Any]]:
        yield name, command
        context = typer.Context(command)
        for word in command.list_commands(context) if hasattr(command, "list_commands") else ():
            yield from commands_of(command.get_command(context, word), f"{name} {word}")

    every = [
        (f"{name} {parameter.name}", parameter.help)
        for name, command in commands_of(get_command(app), "turnlog")
        for parameter in command.params
    ]
    assert len(every) > 150
    assert [name for name, help_text in every if not help_text] == []


def test_main_exits_with_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0 and capsys.readouterr().out == f"turnlog {__version__}\n"
    with pytest.raises(SystemExit) as ended:
        cli.main(["bogus"])
    assert ended.value.code == 2


def test_without_its_extra_it_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "rich" else find(name))
    with pytest.raises(SystemExit) as ended:
        cli.main([])
    assert ended.value.code == 1
    assert capsys.readouterr().err == "turnlog: the command line needs rich: pip install 'turnlog[cli]'\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["bogus"],
        ["show"],
        ["snapshot"],
        ["context", "a", "--budget", "0"],
        ["context", "a", "--budget", "x"],
        ["show", "a", "--nope"],
        ["recall", "a", "1.0", "--from-line", "0"],
        ["recall", "a", "1.0", "--to-line", "0"],
    ],
)
def test_wrong_usage_is_2(arguments: list[str]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("turnlog: ") and result.stderr.count("\n") == 1


# ---------------------------------------------------------------- reading sessions


def test_sessions(data: Path) -> None:
    listed = as_json("sessions", "--data", data)
    assert [session["session_id"] for session in listed["sessions"]] == [SESSION]
    assert listed["sessions"][0]["messages"] == 86 and listed["more"] is False
    said = ok("sessions", "--data", data)
    assert SESSION in said and "86" in said and "A projector" in said
    assert as_json("sessions", "--data", data, "--user", "bob") == {"sessions": [], "more": False}
    assert ok("--user", "bob", "sessions", "--data", data) == "no sessions\n"


def test_sessions_names_a_policy_or_says_that_it_is_custom(data: Path) -> None:
    with Turnlog.open(location_url(data)) as log:
        log.sessions.create("named", policy="run_loops")
        log.sessions.create("own", policy={"steps": [{"step": "turns", "n": 3}]})
    said = {line.split()[0]: line for line in ok("sessions", "--data", data).splitlines()}
    assert "run_loops" in said["named"] and "custom" in said["own"]


def test_sessions_says_when_there_are_more(data: Path) -> None:
    with Turnlog.open(location_url(data)) as log:
        log.sessions.create("another")
    assert as_json("sessions", "--data", data, "--limit", 1)["more"] is True
    assert "--limit" in ok("sessions", "--data", data, "--limit", 1)


def test_sessions_reads_each_listed_session_and_no_other(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Turnlog.open(location_url(data)) as log:
        for name in ("a", "b", "c"):
            log.sessions.create(name)
    call, reads = InProcessBackend.call, list[str]()

    def erased_meanwhile(backend: InProcessBackend, operation: str, **fields: Any) -> Any:
        if operation == "get_session":
            reads.append(fields["path"]["session_id"])
            if reads[-1] == "b":
                raise NotFoundError("no session 'b'")
        return call(backend, operation, **fields)

    monkeypatch.setattr(InProcessBackend, "call", erased_meanwhile)
    answer = as_json("sessions", "--data", data, "--limit", 2)
    assert ([session["session_id"] for session in answer["sessions"]], answer["more"]) == (["c", "a"], True)
    assert reads == ["c", "b", "a"]


MISSING = (
    ("append", "nope", "hi"),
    ("end", "nope"),
    ("reset", "nope"),
    ("loops", "nope"),
    ("show", "nope"),
    ("state", "nope"),
    ("history", "nope"),
    ("rewind", "nope", "--to", "1"),
    ("fork", "nope"),
    ("diff", "nope", "--from", "1"),
    ("context", "nope"),
    ("compress", "nope", "--show"),
    ("snapshot", "create", "nope"),
    ("export", "nope"),
    ("recall", "nope", "2.0"),
    ("search", "nope", "words"),
)


@pytest.mark.parametrize("arguments", MISSING, ids=lambda arguments: arguments[0])
def test_a_session_that_does_not_exist_is_named(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(*arguments, "--data", data, code=1, says=r"no session 'nope' \(not_found\)")
    assert not list(tmp_path.glob("*.zip"))


def test_what_stands_before_the_command_and_in_the_environment_counts_too(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = as_json("sessions", "--data", data)
    assert as_json("--data", data, "sessions") == wanted
    monkeypatch.setenv("TURNLOG_DATA", str(data))
    assert as_json("sessions") == wanted
    assert as_json("--user", "bob", "sessions", "--user", "me") == wanted, "what stands after the command wins"
    monkeypatch.setenv("TURNLOG_USER", "bob")
    monkeypatch.setenv("TURNLOG_DATA", "elsewhere")
    assert as_json("--data", data, "--user", "me", "sessions") == wanted, "what is written wins over the environment"
    assert as_json("sessions", "--data", data, "--user", "me") == wanted
    assert as_json("--data", data, "sessions")["sessions"] == []
    monkeypatch.setenv("TURNLOG_TENANT", "acme")
    of_me = ("--data", data, "--user", "me")
    assert as_json(*of_me, "sessions")["sessions"] == []
    assert as_json(*of_me, "--tenant", "local", "sessions") == wanted
    assert as_json(*of_me, "--tenant", "other", "sessions", "--tenant", "local") == wanted
    assert as_json(*of_me, "--tenant", "local", "sessions", "--tenant", "acme")["sessions"] == []


def test_show(data: Path) -> None:
    shown = as_json("show", SESSION, "--data", data)
    assert [message["position"] for message in shown["messages"]] == list(range(2, 88)) and shown["next"] is None
    page = as_json("show", SESSION, "--data", data, "--after", 10, "--limit", 3)
    assert [message["position"] for message in page["messages"]] == [11, 12, 13] and page["next"] == 13
    said = ok("show", SESSION, "--data", data, "--limit", 4)
    assert "more characters]" in said and "→ get_customer(" in said and "more: --after 5" in said
    assert "more characters]" not in ok("show", SESSION, "--data", data, "--full")


def test_show_does_not_obey_what_is_stored(data: Path) -> None:
    with Turnlog.open(location_url(data)) as log:
        log.sessions.create("evil", title="\x1b]0;title\x07").append(
            {"role": "user", "content": "\x1b[2Jgone\u202e \ud83d"},
            {"role": "assistant", "content": "[red]not markup[/red] :smile:", "name": "\x1b[31m"},
            {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "\x9b5m", "arguments": "\x1b"}}]},
        )
    for arguments in (("show", "evil"), ("context", "evil", "--messages"), ("loops", "evil"), ("sessions",)):
        said = ok(*arguments, "--data", data)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", said)
    assert "[red]not markup[/red] :smile:" in ok("show", "evil", "--data", data)
    assert as_json("show", "evil", "--data", data)["messages"][0]["body"]["content"] == "\x1b[2Jgone\u202e \ud83d"


def test_plain_keeps_lines_and_scripts() -> None:
    assert plain("a\r\nb\tc 你好 🙂") == "a\nb\tc 你好 🙂"
    assert plain("a\rb\x1b[0m") == r"a\u000db\u001b[0m"
    assert plain("\u202e0001-EVIL\u202c 5\u200b000\U000e0041") == r"\u202e0001-EVIL\u202c 5\u200b000\u{e0041}"
    seen = "می\u200cخواهم क्\u200dष 👩\u200d👩\u200d👧 🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"
    assert plain(seen) == seen and plain("5\u200d000 EV\u200cIL") == r"5\u200d000 EV\u200cIL"
    assert plain(" a \n b ", lines=False) == "a b"


def test_loops(data: Path) -> None:
    result = as_json("loops", SESSION, "--data", data)["loops"]
    assert [item["loop"] for item in result] == list(range(12, 0, -1))
    said = ok("loops", SESSION, "--data", data)
    assert said.count("closed") == 12 and "74–83" in said


def test_context(data: Path) -> None:
    window = as_json("context", SESSION, "--data", data, "--budget", 4000)
    assert 0 < window["tokens"] <= 4000 and window["manifest"]["budget"] == {"tokens": 4000, "source": "given"}
    said = ok("context", SESSION, "--data", data, "--budget", 4000)
    for level in ("whole", "digest", "out"):
        assert level in said
    assert re.search(r"loop 12 +84–87 +whole +█", said) and "of 4,000 tokens" in said
    border = re.search(r"border +before (\d+) +─", said)
    assert border and f"since {window['manifest']['epoch']['since']}, border before {border[1]}\n" in said
    assert "no border" in ok("context", SESSION, "--data", data, "--policy", "full")
    assert re.search(r"to loop \d+ +3–\d+ +out", said)
    assert "digest" not in ok("context", SESSION, "--data", data, "--policy", "full").partition("█")[0]
    assert "Hello! The projector" in ok("context", SESSION, "--data", data, "--messages")


def test_context_shows_how_much_the_call_before_was_sent_and_why_no_more(data: Path) -> None:
    window = as_json("context", SESSION, "--data", data)
    said = ok("context", SESSION, "--data", data)
    assert window["prefix"]["reason"] is None
    assert f"▔ {window['prefix']['stable_tokens']:,} tokens unchanged since the last call\n" in said
    said = ok("context", SESSION, "--data", data, "--policy", "run_loops", "--at", "74")
    assert re.search(r"[0-9,]+ tokens unchanged since the last call; broken at base: past_loop\n", said)
    assert "no call before" in ok("context", SESSION, "--data", data, "--at", "1")


def test_context_counts_the_messages_of_a_loop_that_no_window_has(tmp_path: Path) -> None:
    with Turnlog.open(location_url(tmp_path / "data")) as log:
        session = log.sessions.create(SESSION, system="Be brief.")
        lost = {"role": "tool", "tool_call_id": "lost", "content": "12.50"}
        session.append({"role": "user", "content": "Where is it?"}, lost, {"role": "assistant", "content": "Near."})
    said = ok("context", SESSION, "--data", tmp_path / "data")
    assert re.findall(r"^(.*?) .* 1 message out *$", said, re.M) == ["loop"], said
    assert re.search(r"^1 message +out +0 +orphan_result *$", said, re.M), said


def test_context_takes_every_way_to_name_a_policy(data: Path) -> None:
    by_name = as_json("context", SESSION, "--data", data, "--policy", "turns(2)")
    by_body = as_json("context", SESSION, "--data", data, "--policy", '{"steps": [{"step": "turns", "n": 2}]}')
    assert by_name == by_body and by_name["tokens"] < as_json("context", SESSION, "--data", data)["tokens"]
    assert as_json("context", SESSION, "--data", data, "--model", "gpt-4o")["manifest"]["budget"]["source"] == "model"
    assert as_json("context", SESSION, "--data", data, "--format", "turnlog")["messages"]


def test_context_at_a_moment_of_the_past_and_what_differs_from_another(data: Path) -> None:
    past = as_json("context", SESSION, "--data", data, "--at", "5")
    assert (past["head"], past["manifest"]["build"]["position"]) == (5, 5)
    assert as_json("context", SESSION, "--data", data, "--at", past["manifest"]["build"]["clock"])["head"] >= 5
    result = ok("context", SESSION, "--data", data, "--against", "5")
    assert "came" in result and "head 5 -> " in result and re.search(r"^message .*came", result, re.M)
    both = as_json("context", SESSION, "--data", data, "--at", "6", "--against", "5")
    assert (both["window"]["head"], both["against"]) == (6, past)
    assert "no difference" in ok("context", SESSION, "--data", data, "--at", "5", "--against", "5")
    refused("context", SESSION, "--data", data, "--at", "9999", code=2, says="above the head")
    refused("context", SESSION, "--data", data, "--against", "then", code=2, says="neither a position nor a time")


def test_end_and_reset_and_the_list_by_status(data: Path) -> None:
    assert ok("end", SESSION, "--data", data) == f"{SESSION} has ended\n"
    assert as_json("end", SESSION, "--data", data)["status"] == "ended"
    fresh = as_json("reset", SESSION, "--data", data)
    assert (fresh["reset_of"], fresh["messages"], fresh["status"]) == (SESSION, 0, "active")
    assert ok("reset", SESSION, "--data", data) == f"{SESSION} has ended; {fresh['session_id']} is in its place\n"
    for status, wanted in (("ended", SESSION), ("active", fresh["session_id"])):
        listed = as_json("sessions", "--data", data, "--status", status)["sessions"]
        assert [item["session_id"] for item in listed] == [wanted]
    refused("sessions", "--data", data, "--status", "nope", code=2, says="status")


def test_search_over_many_sessions_has_the_words_of_all_of_them(tmp_path: Path) -> None:
    """In a folder that no service works on."""
    with Turnlog.open(location_url(tmp_path / "data")) as log:
        for at in range(20):
            text = "the umbrella is blue" if at == 0 else "nothing to tell"
            log.sessions.create(f"s{at}").append({"role": "user", "content": text})
    outcome = as_json("search", "--all", "umbrella", "--data", tmp_path / "data")
    assert [result["session_id"] for result in outcome["results"]] == ["s0"]


def test_search_has_ten_results_unless_more_are_asked_for(tmp_path: Path) -> None:
    with Turnlog.open(location_url(tmp_path / "data")) as log:
        log.sessions.create("s").append(*({"role": "user", "content": f"umbrella {number}"} for number in range(12)))
    for options, count in ((), 10), (("--limit", 12), 12):
        assert len(as_json("search", "s", "umbrella", "--data", tmp_path / "data", *options)["results"]) == count


@pytest.mark.parametrize("answer", ["n\n", "maybe\n", ""])
def test_without_a_yes_nothing_is_erased_or_redacted_and_stdout_is_empty(data: Path, answer: str) -> None:
    for command, participle in (["erase", SESSION], "erased"), (["redact", SESSION, "2"], "redacted"):
        asked = CliRunner().invoke(app, [*command, "--json", "--data", str(data)], input=answer, prog_name="turnlog")
        assert (asked.exit_code, asked.stdout) == (2, "")
        assert f"turnlog: nothing was {participle}; answer y, or give --yes (not_confirmed)\n" in asked.stderr
    assert as_json("sessions", "--data", data)["sessions"][0]["messages"] == 86


def test_erase_asks_erases_and_tells(data: Path) -> None:
    asked = CliRunner().invoke(app, ["erase", SESSION, "--json", "--data", str(data)], input="y\n", prog_name="turnlog")
    assert json.loads(asked.stdout)["kind"] == "erase"


def test_erase_with_yes_erases_and_tells(data: Path) -> None:
    assert SESSION in ok("sessions", "--data", data)
    said = ok("erase", SESSION, "--data", data, "--yes")
    assert re.search(
        rf"session {SESSION}: [0-9,]+ commits, .* requests, 0 memories; job .* looks again 15 minutes later", said
    )
    refused("show", SESSION, "--data", data, code=1, says="not_found")
    assert ok("sessions", "--data", data) == "no sessions\n"
    receipt = as_json("erase", "--me", "--yes", "--data", data)
    assert (receipt["kind"], receipt["session_id"], receipt["result"]["status"]) == ("erase_user", "", "erasing")
    refused("erase", "--data", data, code=2, says="name a session")
    refused("erase", SESSION, "--me", "--data", data, code=2, says="name a session")
    refused("erase", "nope", "--yes", "--data", data, code=1, says="not_found")


def test_an_erasure_whose_first_pass_met_an_error_says_so_and_goes_on(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnlog.cli.sessions._FIRST_PASS_SECONDS", 600)  # longer than a test may take
    down = "BEGIN SELECT RAISE(ABORT, 'the table\x1b[31m is down'); END"
    with closing(sqlite3.connect(data / "turnlog.db")) as connection:
        connection.execute(f"CREATE TRIGGER down BEFORE UPDATE ON items WHEN OLD.sk LIKE 'C#%' {down}")
    said = ok("erase", SESSION, "--data", data, "--yes")
    place = rf"session {SESSION}: no longer readable; SQLite: the table\\u001b\[31m is down \(storage_damaged\)"
    assert re.fullmatch(rf"{place}; job \S+ continues\n", said), said
    refused("show", SESSION, "--data", data, code=1, says="not_found")


def test_sessions_shows_what_expires(data: Path) -> None:
    assert "expires" not in ok("sessions", "--data", data)
    with Turnlog.open(location_url(data)) as log:
        log.sessions.create("short", ttl_days=3)
    result = ok("sessions", "--data", data)
    assert "expires" in result and "never" in result


def test_wrong_input_of_the_reading_commands(data: Path) -> None:
    for command in ("show", "context", "loops", "end", "reset"):
        refused(command, "nope", "--data", data, code=1, says=r"no session 'nope' \(not_found\)")
        refused(command, "a b", "--data", data, code=2, says="session id 'a b'")
        refused(command, SESSION, "--data", data, "--user", "bob", code=1, says="not_found")
        refused(command, SESSION, code=1, says="no data in '.turnlog'.*turnlog serve")
        refused(command, SESSION, "--url", "http://a:b", code=2, says="invalid_url")
    refused("sessions", "--data", data / "nope", code=1, says="no_data")
    refused("context", SESSION, "--data", data, "--policy", "nope", code=2, says="policy 'nope'.*/policy")
    refused("context", SESSION, "--data", data, "--policy", "{", code=2, says="--policy: ")
    refused("context", SESSION, "--data", data, "--policy", '{"steps": 1}', code=2, says="invalid_policy at /policy/")
    refused("context", SESSION, "--data", data, "--budget", "9", code=2, says="needs [0-9]+ tokens.*budget_too_small")
    refused("context", SESSION, "--data", data, "--format", "nope", code=2, says="format")


def test_options_that_do_not_fit_each_other_are_refused_also_where_there_is_no_data() -> None:
    refused("search", SESSION, code=2, says="turnlog search SESSION QUERY")
    refused("search", SESSION, "words", "--all", code=2, says="turnlog search SESSION QUERY")
    refused("search", "words", "--all", "--loop", 1, code=2, says="--loop is of one session")
    refused("erase", code=2, says="name a session")
    refused("erase", SESSION, "--me", code=2, says="name a session")
    refused("jobs", "--status", "nope", code=2, says="--status 'nope' is not one of")
    refused("jobs", "redrive", "x", "--failed", code=2, says="--failed is for all failed jobs")


def test_a_damaged_data_folder_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "turnlog.db").write_bytes(b"no database at all" * 100)
    refused("sessions", "--data", tmp_path, code=1, says="is not a SQLite database")


# ---------------------------------------------------------------- a service


def test_serve_looks_for_circles_seldom_while_it_serves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before, serving = gc.get_threshold(), list[int]()
    gc.set_threshold(701)

    class Server:
        url = "http://127.0.0.1:1"

        def __init__(self, *_: object, **__: object) -> None: ...

        def run(self) -> None:
            serving.append(gc.get_threshold()[0])

    monkeypatch.setattr(local_server, "LocalServer", Server)
    try:
        ok("serve", "--data", tmp_path / "served")
        assert serving == [100_000]
        assert gc.get_threshold()[0] == 701
    finally:
        gc.set_threshold(*before)


def test_recall_and_search_show_what_is_in_the_log(tmp_path: Path) -> None:
    where = ("--data", str(tmp_path))
    call = {"id": "c1", "type": "function", "function": {"name": "cat", "arguments": "{}"}}
    with Turnlog.open(f"sqlite:///{tmp_path}/turnlog.db") as log:
        log.sessions.create("a").append(
            {"role": "user", "content": "show the boats"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "one\ntwo\nthree"},
        )
    assert as_json("recall", "a", "3.0", "--from-line", "2", "--to-line", "2", *where)["content"] == "two"
    assert as_json("recall", "a", "c1", "--pattern", "^t", *where)["content"] == "2: two\n3: three"
    assert as_json("search", "a", "a boat", "--limit", "1", *where)["results"][0]["position"] == 2
    for options, positions in (
        (("--role", "tool"), {4}),
        (("--tool", "cat", "--after", "3"), {4}),
        (("--loop", "1", "--before", "3"), {2}),
        (("--before", "2020-01-01T00:00:00Z"), set()),
    ):
        result = as_json("search", "a", "boats one", *options, *where)["results"]
        assert {item["position"] for item in result} == positions, options
    everywhere = as_json("search", "--all", "boats", *where)
    assert (everywhere["results"][0]["session_id"], everywhere["results"][0]["position"]) == ("a", 2)
    assert as_json("search", "--all", "one", "--role", "tool", *where)["results"][0]["ref"] == "3.0"
    assert "a, position 2, loop 1, user: show the ⟦boats⟧" in ok("search", "--all", "boats", *where)
    refused("search", "boats", *where, code=2, says="--all")
    refused("search", "--all", "a", "boats", *where, code=2, says="--all")
    refused("search", "--all", "boats", "--loop", "1", *where, code=2, says="--loop")


@pytest.mark.network
def test_commands_speak_to_a_service(served: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with Turnlog.open(served.url, token="s3cret", user="ada") as log:
        log.sessions.create("a", recall="never").append({"role": "user", "content": "hi"})
    where = ("--url", served.url, "--token", "s3cret", "--user", "ada")
    assert as_json("sessions", *where)["sessions"][0]["messages"] == 1
    assert as_json("show", "a", *where)["messages"][0]["body"] == {"role": "user", "content": "hi"}
    assert as_json(*where, "context", "a")["messages"] == [{"role": "user", "content": "hi"}]
    assert len(as_json("loops", "a", *where)["loops"]) == 1
    refused("sessions", "--url", served.url, code=1, says="bearer token.*--token")
    monkeypatch.setenv("TURNLOG_URL", served.url)
    monkeypatch.setenv("TURNLOG_TOKEN", "s3cret")
    assert as_json("sessions") == {"sessions": [], "more": False}
    monkeypatch.setenv("TURNLOG_TOKEN", "wrong")
    refused("sessions", code=1, says="unauthorized")
    ada = as_json("sessions", *where)
    assert as_json("--token", "s3cret", "--user", "ada", "sessions") == ada, (
        "before the command it wins over the environment"
    )
    assert as_json("--token", "wrong", "sessions", "--token", "s3cret", "--user", "ada") == ada, "after it, over both"
    refused("--token", "s3cret", "sessions", "--token", "wrong", code=1, says="unauthorized")


@pytest.mark.network
def test_a_service_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SystemClock, "sleep", lambda clock, seconds: None)
    refused("sessions", "--url", "http://127.0.0.1:1", code=1, says="connection refused.*turnlog serve")


@pytest.mark.network
def test_serve_refuses_what_it_can_not_do(served: LocalServer, tmp_path: Path) -> None:
    refused("serve", "--port", served.url.rpartition(":")[2], "--engine", "memory", code=1, says="port_in_use.*--port")
    refused("serve", "--host", "0.0.0.0", "--engine", "memory", code=2, says="needs a token.*--token")  # noqa: S104
    refused("serve", "--host", "no such host", "--token", "x", "--engine", "memory", code=2, says="invalid_host")
    refused("serve", "--allow-host", "http://a", "--engine", "memory", code=2, says="without scheme and port")
    refused(
        "serve", "--host", "no-such-host.invalid", "--token", "x", "--engine", "memory", code=1, says="cannot_listen"
    )
    refused("serve", "--token", "x ", "--engine", "memory", code=2, says="token is empty, begins or ends with a space")
    refused("serve", "--engine", "nope", code=2, says="engine 'nope' is not one of embedded, memory, moto")
    (tmp_path / "file").write_text("")
    refused(
        "serve",
        "--port",
        "0",
        "--data",
        tmp_path / "file" / "folder",
        code=1,
        says="can.t make the folder .*no_folder",
    )
    assert run("serve", "--port", "70000").exit_code == 2


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ('{"messages": 1}', "neither"),
        ("[1, 2]", "neither"),
        ('{"messages": [1]}', "message 1 is not an object"),
        ('[{"role": "user", "content": "a"}, 1]', "message 2 is not an object"),
        ('{"messages": [], "tools": 1}', "tools"),
        ('{"a": 1, "a": 2}', "twice"),
        ('{"messages": []}\n{"messages": [}\n', "line 2"),
        ('{"messages": [{"role": "user", "content": NaN}]}', "NaN"),
        (b"\xff\xfe", "UTF-8"),
    ],
)
def test_files_that_are_no_conversations(tmp_path: Path, content: str | bytes, says: str) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    refused("lint", file, code=2, says=f"bad.jsonl.*{says}")


# ---------------------------------------------------------------- without a service


def test_lint(tmp_path: Path) -> None:
    valid = as_json("lint", SAMPLES / "support-agent.json")
    assert valid["valid"] and valid["histories"][0]["problems"] == []
    assert ok("lint", SAMPLES / "support-agent.json") == "1 history, all valid by the rules of openai_chat\n"
    messy = run("lint", SAMPLES / "messy.jsonl", "--json")
    assert (messy.exit_code, messy.stderr) == (1, "")
    content = json.loads(messy.stdout)
    assert not content["valid"] and len(content["histories"]) == 10
    problem = next(history for history in content["histories"] if history["id"] == "unanswered-call")["problems"][0]
    assert problem["rule"] == "call_unanswered" and problem["pointer"] == "/messages/2/tool_calls/0"
    assert all(problem[name] for name in ("message", "provider_says", "fix", "source"))
    assert {history["format"] for history in content["histories"]} == {"openai_chat"}
    said = run("lint", SAMPLES / "messy.jsonl")
    assert said.exit_code == 1
    for part in ("unanswered-call /messages/2/tool_calls/0: call_unanswered", "answer: 400", "fix: ", "problems in"):
        assert part in said.stdout


def test_a_terminal_without_unicode_is_no_error(data: Path) -> None:
    runner = CliRunner(charset="ascii")
    for arguments in (("doctor",), ("show", SESSION, "--data", data), ("lint", SAMPLES / "messy.jsonl")):
        result = runner.invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
        assert result.exit_code in (0, 1) and "?" in result.stdout
    result = runner.invoke(app, ["loops", SESSION, "--data", str(data), "--json"], catch_exceptions=False)
    assert len(json.loads(result.stdout)["loops"]) == 12


def test_lint_reads_one_history_however_it_is_written(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "tool", "tool_call_id": "x", "content": "b"}]
    forms = {
        "list.json": json.dumps(messages),
        "object.json": json.dumps({"messages": messages}),
        "lines.jsonl": "\n".join(json.dumps(message) for message in messages),
        "pretty.json": "\ufeff" + json.dumps({"id": "list", "messages": messages}, indent=2),
        "of_one.json": json.dumps([{"messages": messages}]),
    }
    for name, content in forms.items():
        (tmp_path / name).write_text(content, "utf-8")
        result = json.loads(run("lint", tmp_path / name, "--json").stdout)
        assert [history["messages"] for history in result["histories"]] == [2], name
        assert [problem["rule"] for problem in result["histories"][0]["problems"]] == ["orphan_result"], name


ITEMS = [
    {"role": "user", "content": "hi"},
    {"type": "reasoning", "id": "rs_1", "summary": []},
    {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
]
BLOCKS = [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "x"}]}]
UNTYPED = [{"role": "user", "content": [{"toolResult": {"toolUseId": "a", "content": [{"text": "x"}]}}]}]
SPEC = {"toolSpec": {"name": "f", "inputSchema": {"json": {}}}}
REQUESTS: dict[str, tuple[object, str, str]] = {
    "responses": ({"model": "m", "input": ITEMS, "instructions": "Be brief."}, "openai_responses", "call_unanswered"),
    "items": (ITEMS, "openai_responses", "call_unanswered"),
    "one item": (ITEMS[2:], "openai_responses", "call_unanswered"),
    "anthropic": (
        {"model": "m", "max_tokens": 9, "system": [{"type": "text", "text": "Be brief."}], "messages": BLOCKS},
        "anthropic",
        "result_unknown",
    ),
    "converse": (
        {"modelId": "m", "system": [{"text": "x"}], "messages": UNTYPED, "toolConfig": {"tools": [SPEC]}},
        "bedrock_converse",
        "result_unknown",
    ),
}
"""What a request's body looks like -> it, its format and the rule that it breaks."""


@pytest.mark.parametrize("name", REQUESTS)
def test_lint_takes_a_whole_request_and_recognises_its_format(tmp_path: Path, name: str) -> None:
    request, format, rule = REQUESTS[name]
    (tmp_path / "request.json").write_text(json.dumps(request), "utf-8")
    for more in ((), ("--format", format)):
        result = run("lint", tmp_path / "request.json", "--json", *more)
        (history,) = json.loads(result.stdout)["histories"]
        assert (result.exit_code, history["format"]) == (1, format)
        assert [problem["rule"] for problem in history["problems"]] == [rule]


def test_lint_recognises_each_history_by_itself(tmp_path: Path) -> None:
    file = tmp_path / "many.jsonl"
    file.write_text("".join(json.dumps({"messages": value}) + "\n" for value in (ITEMS, BLOCKS, UNTYPED, ITEMS[:1])))
    result = run("lint", file, "--json")
    histories = json.loads(result.stdout)["histories"]
    assert [(history["id"], history["format"], history["valid"]) for history in histories] == [
        ("many:1", "openai_responses", False),
        ("many:2", "anthropic", False),
        ("many:3", "bedrock_converse", False),
        ("many:4", "openai_chat", True),
    ]
    said = run("lint", file).stdout
    assert said.endswith(
        "3 problems in 3 of 4 histories by the rules of anthropic, bedrock_converse, openai_chat, openai_responses\n"
    )


def test_lint_reads_standard_input() -> None:
    def lint(content: str | bytes) -> Result:
        return CliRunner().invoke(app, ["lint", "-", "--json"], input=content, catch_exceptions=False)

    findings = lint(json.dumps({"messages": BLOCKS}))
    assert findings.exit_code == 1 and json.loads(findings.stdout)["histories"][0]["id"] == "stdin"
    assert lint('{"role": "user", "content": "a"}\n{"role": "user", "content": "b"}\n').exit_code == 0
    for wrong in ("", "{", '{"messages": [1]}', b"\xff"):
        refusal = lint(wrong)
        assert (refusal.exit_code, refusal.stdout) == (2, "") and refusal.stderr.count("\n") == 1


def test_lint_says_no_contents(tmp_path: Path) -> None:
    canary = "canary-7f3a9c"
    file = tmp_path / "a.json"
    wrong = [{"role": "user", "content": canary}, {"role": "tool", "tool_call_id": "x", "content": canary}]
    for content in (
        wrong,
        [*wrong, canary],
        {"messages": wrong, "tools": canary},
        [{"author": "x", "content": canary}],
    ):
        file.write_text(json.dumps(content))
        result = run("lint", file)
        assert result.exit_code in (1, 2) and canary not in result.output


def test_wrong_input_of_lint_and_schema(tmp_path: Path) -> None:
    (tmp_path / "own.json").write_text('[{"role": "user", "author": "ada", "content": "hi"}]')
    refused("lint", tmp_path / "own.json", code=2, says="'own'.*'turnlog'.*no rules.*unknown_format")
    (tmp_path / "system.json").write_text('{"messages": [], "system": [7]}')
    refused("lint", tmp_path / "system.json", code=2, says="system is not a text")
    refused("lint", "nope.json", code=2, says="no file 'nope.json'")
    refused("lint", SAMPLES, "--format", "nope", code=2, says="no rules for format 'nope'.*openai_chat")
    refused("schema", "nope", code=2, says="message, policy, state, window")


def test_state_and_history_show_what_was_done(data: Path) -> None:
    assert "no state" in ok("state", SESSION, "--data", data)
    with Turnlog.open(location_url(data)) as log:
        session = log.sessions.get(SESSION)
        head = session.info().head
        session.put_state({"lang": "zh", "odd\x1b[31m": [None, "\x1b"]}, action="handover")
        session.patch_agent({"iteration": 1}, agent_id="planner")
    shown = ok("state", SESSION, "--data", data)
    assert re.search(r'^lang +"zh" *$', shown, re.M) and f"version {head + 2}" in shown and "planner" in shown
    assert "planner" not in ok("state", SESSION, "--at", head + 1, "--data", data)
    result = as_json("state", SESSION, "--at", head + 1, "--data", data)
    assert (result["state"]["lang"], result["version"]) == ("zh", head + 1)
    shown = ok("history", SESSION, "--limit", 2, "--data", data)
    assert [line.split()[0] for line in shown.splitlines()] == ["id", str(head + 2), str(head + 1), "more"]
    assert "handover" in shown and "planner" in shown
    result = as_json("history", SESSION, "--agent", "planner", "--data", data)
    assert [entry["action"] for entry in result["entries"]] == ["state_change"] and not result["more"]
    assert as_json("history", SESSION, "--action", "handover", "--data", data)["entries"][0]["first"] == head + 1
    refused("state", SESSION, "--at", "soon", "--data", data, code=2, says="invalid_input at /query/at")
    refused("history", "nobody", "--data", data, code=1, says="not_found")


@pytest.mark.parametrize("name", ["message", "policy", "state", "window"])
def test_schema(name: str) -> None:
    assert as_json("schema", name) == json.loads(ok("schema", name)) == json_schemas()[name]


def test_doctor(data: Path) -> None:
    result = as_json("doctor", "--data", data)
    assert result["ok"]
    checks = {check["name"]: check["detail"] for check in result["checks"]}
    assert {"python", "turnlog", "sqlite", "vocabulary", "token counter", "engine", "pydantic"} <= set(checks)
    assert checks["turnlog"] == __version__ and checks["sqlite"] == sqlite3.sqlite_version
    assert "1 session of" in checks["data folder"]
    assert "✓" in ok("doctor") and "✗" not in ok("doctor")


def test_doctor_says_what_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnlog.cli.checks.make_counter", lambda name: (_ for _ in ()).throw(OSError("no file")))
    result = run("doctor", "--json")
    assert (result.exit_code, result.stderr) == (1, "")
    content = json.loads(result.stdout)
    assert [check["name"] for check in content["checks"] if not check["ok"]] == ["token counter"]
    assert run("doctor").exit_code == 1


def test_doctor_tells_what_is_too_old_damaged_or_counts_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnlog.cli.checks.MIN_SQLITE", (99, 0))
    monkeypatch.setattr("turnlog_vocabulary.SHA256", "0" * 64)
    monkeypatch.setattr("turnlog.cli.checks.make_counter", lambda _name: EstimateCounter())
    checks = json.loads(run("doctor", "--json").stdout)["checks"]
    assert {check["name"]: check["detail"] for check in checks if not check["ok"]} == {
        "sqlite": f"RuntimeError: {sqlite3.sqlite_version} is older than 99.0",
        "vocabulary": "RuntimeError: the vocabulary o200k_base is damaged; install Turnlog again",
        "token counter": "RuntimeError: estimate counts 5 tokens in a text of 6",
    }


@pytest.mark.parametrize(
    ("count", "says"), [(0, "no data yet"), (2, "2 sessions of local / me"), (101, "100+ sessions of local / me")]
)
def test_doctor_counts_sessions_up_to_100(tmp_path: Path, count: int, says: str) -> None:
    if count:
        with Turnlog.open(tmp_path, worker=False) as log:
            for number in range(count):
                log.sessions.create(f"s{number}")
    checks = as_json("doctor", "--data", tmp_path)["checks"]
    assert checks[-1] == {"name": "data folder", "ok": True, "detail": f"{tmp_path}: {says}"}


# ---------------------------------------------------------------- reading files


def test_sources_of_a_folder(tmp_path: Path) -> None:
    conversation = '[{"role": "user", "content": "a"}]'
    for name in ("x/1.json", "x/deep/2.json", "y/3.jsonl", "4.json", "note.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(conversation)
    assert [(read_transcript.source, read_transcript.id) for read_transcript in read_transcripts([tmp_path])] == [
        ("4", "4"),
        ("x", "1"),
        ("x", "2"),
        ("y", "3"),
    ]


# ---------------------------------------------------------------- places, create, append, start


@pytest.mark.parametrize(
    ("given", "file"),
    [
        ("agent.db", "agent.db"),
        ("new", "new/turnlog.db"),
        ("a/b.sqlite", "a/b.sqlite"),
        (".turnlog", ".turnlog/turnlog.db"),
    ],
)
def test_a_path_is_sqlite_for_the_library_and_the_command_line(tmp_path: Path, given: str, file: str) -> None:
    with Turnlog.open(given) as log:
        log.sessions.create("s")
    assert (tmp_path / file).is_file()
    with Turnlog.open(tmp_path / given) as log:
        assert log.sessions.exists("s")
    for option in ("--url", "--data"):
        for place in (given, tmp_path / given, location_url(given)):
            assert as_json("sessions", option, place)["sessions"][0]["session_id"] == "s"


@pytest.mark.parametrize("place", ["~/agent.db", "sqlite:///~/agent.db", "SQLITE:///~/agent.db"])
def test_a_tilde_is_the_home_of_the_user_in_paths_and_urls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with Turnlog.open(place) as log:
        log.sessions.create("s")
    assert (tmp_path / "home" / "agent.db").is_file() and not (tmp_path / "~").exists()
    assert as_json("sessions", "--url", place)["sessions"][0]["session_id"] == "s"


def test_a_name_may_begin_with_a_tilde(tmp_path: Path) -> None:
    Turnlog.open("~old.db").close()
    assert (tmp_path / "~old.db").is_file()


@pytest.mark.parametrize("given", ["", ":memory:", "sqlite:agent.db", "postgres:x", "http:/host", "a\0b"])
def test_a_text_that_is_neither_a_path_nor_a_url_is_refused(tmp_path: Path, given: str) -> None:
    with pytest.raises(InvalidInputError, match="neither a path nor a URL"):
        Turnlog.open(given)
    assert not list(tmp_path.iterdir())


def test_create_and_append(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ok("create", "s", "--system", "Be brief.", "--policy", "classic") == "s\n"
    assert re.fullmatch(r"position 2, \d+ tokens\n", ok("append", "s", "Where is my order?"))
    answer = '[{"role": "assistant", "content": "It is on its way."}, {"role": "user", "content": "Thanks"}]'
    ok("append", "s", answer)
    result = CliRunner().invoke(
        app, ["append", "s", "-"], input='{"role": "assistant", "content": "Bye"}', prog_name="turnlog"
    )
    assert result.exit_code == 0
    many = json.dumps([{"role": "user", "content": str(number)} for number in range(30)])
    assert len(as_json("append", "s", many)["commits"]) == 2
    stored = as_json("show", "s")["messages"]
    assert [message["body"]["content"] for message in stored[:4]] == [
        "Where is my order?",
        "It is on its way.",
        "Thanks",
        "Bye",
    ]
    assert as_json("sessions")["sessions"][0]["policy"] == "classic"
    refused("append", "nobody", "hi", code=1, says="no session 'nobody'")
    refused("append", "s", code=2, says=r"Missing argument 'MESSAGE' \(turnlog append --help\)")
    refused("append", "s", "[1]", code=2, says="JSON of a message or of a list of messages")
    refused("append", "s", "{", code=2, says="body is not JSON")


@pytest.mark.parametrize("text", ["[urgent] where is it?", "{name} asked", "[", "{}?", "{{ name }}", "[1, 2"])
def test_a_text_that_begins_with_a_bracket_is_a_message(text: str) -> None:
    ok("create", "s")
    ok("append", "s", text)
    assert CliRunner().invoke(app, ["append", "s", "-"], input=text + "\n", prog_name="turnlog").exit_code == 0
    assert [message["body"]["content"] for message in as_json("show", "s")["messages"]] == [text] * 2


@pytest.mark.parametrize(
    ("data", "says"), [(b"", "empty"), (b" \n", "empty"), (b"caf\xe9", "stdin is not UTF-8 at byte 3")]
)
def test_input_without_a_text_is_refused_and_nothing_appended(data: bytes, says: str) -> None:
    ok("create", "s")
    result = CliRunner().invoke(app, ["append", "s", "-"], input=data, prog_name="turnlog")
    assert result.exit_code == 2 and says in result.stderr
    refused("append", "s", "", code=2, says="the message is empty")
    ok("append", "s", '{"role": "user", "content": ""}')
    assert len(as_json("show", "s")["messages"]) == 1


def test_input_with_a_byte_order_mark_is_read_without_it() -> None:
    ok("create", "s")
    data = b'\xef\xbb\xbf{"role": "user", "content": "hi"}'
    assert CliRunner().invoke(app, ["append", "s", "-"], input=data, prog_name="turnlog").exit_code == 0
    assert as_json("show", "s")["messages"][0]["body"]["content"] == "hi"


@pytest.mark.parametrize("text", ['{"role": "user", content', '[{"role": "user"', "[ {", '{ "a": 1, "a": 2}'])
def test_what_begins_like_a_message_and_is_not_json_is_refused_with_a_way_around(text: str) -> None:
    ok("create", "s")
    refused("append", "s", text, code=2, says=r"; send such a text as JSON: \{\"role\": \"user\", \"content\": TEXT\}")


def test_an_unknown_role_is_refused_with_the_option_that_stores_it() -> None:
    ok("create", "s")
    refused("append", "s", "hi", "--role", "usr", code=2, says="`turnlog append --lenient`")
    ok("append", "s", "hi", "--role", "usr", "--lenient")


def started(*arguments: str) -> set[str]:
    """The modules that a command imports."""
    script = "import sys\nfrom turnlog.cli import main\ntry: main()\nexcept SystemExit: pass\nprint(*sys.modules)"
    command = [sys.executable, "-c", script, *arguments]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def started_alone() -> set[str]:
    command = [sys.executable, "-c", "import sys; print(*sys.modules)"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_a_command_imports_its_own_modules_only() -> None:
    version = started("--version")
    # Until `main` catches it, Ctrl-C prints a traceback: nothing is imported before that Python has not imported itself.
    late = ("typer", "rich", "pydantic", "turnlog.client", "typing", "dataclasses")
    assert not {name for name in version - started_alone() if name.startswith(late)}
    listing = started("sessions", "--help")
    assert "turnlog.cli.sessions" in listing
    assert not {"turnlog.cli.chat", "turnlog.cli.serve", "waitress"} & listing


@pytest.mark.parametrize("place", ["turnlog.cli._run", "turnlog.cli.app.Commands.main"])
def test_ctrl_c_at_any_moment_is_130_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    def interrupted(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(place, interrupted)
    with pytest.raises(SystemExit) as ended:
        cli.main(["sessions"])
    assert ended.value.code == 130 and capsys.readouterr().err == "turnlog: stopped\n"


def test_ctrl_c_that_c_code_swallows_ends_the_command_too() -> None:
    lines = ["import ctypes, sys, turnlog.cli as cli", "def run(_): ctypes.CFUNCTYPE(None)(stop)()"]
    lines += ["def stop(): raise KeyboardInterrupt", "cli._run = run", "cli.main()"]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "turnlog: stopped\n")


@pytest.mark.parametrize(("closed", "shown"), [(">&-", False), ("2>&-", True), ("<&-", True), ("<&- >&- 2>&-", False)])
def test_a_command_runs_with_closed_streams(tmp_path: Path, closed: str, shown: bool) -> None:
    ok("create", "s", "--data", tmp_path / "data")
    ok("append", "s", "Where is my order?", "--data", tmp_path / "data")
    command = [sys.executable, "-m", "turnlog.cli", "show", "s", "--data", str(tmp_path / "data")]
    done = subprocess.run(["sh", "-c", f'"$@" {closed}', "sh", *command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr, "Where is my order?" in done.stdout) == (0, "", shown)


@pytest.mark.parametrize("shell", ["bash", *(pytest.param(name, marks=pytest.mark.full) for name in ("zsh", "fish"))])
def test_each_shell_completes_the_commands(shell: str) -> None:
    environment = {
        **os.environ,
        "_TURNLOG_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": "turnlog comp",
        "COMP_CWORD": "1",
    }
    environment |= {"_TYPER_COMPLETE_ARGS": "turnlog comp", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    command = [sys.executable, "-c", "from turnlog.cli import main; main()"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert "compress" in done.stdout, done


def test_a_table_in_a_file_is_as_on_a_terminal_of_150_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = ("--data", tmp_path / "data")
    ok("create", "s1", "--title", "Move the delivery of order A17 to the office", *where)
    tables = list[str]()
    for columns in ("150", "80", "", "0"):
        monkeypatch.setenv("COLUMNS", columns)
        tables.append(ok("sessions", *where))
    assert tables[3] == tables[2] == tables[0] != tables[1]


@pytest.mark.parametrize("long_ids", [False, True])
def test_tables_fit_80_columns_with_one_line_a_row_and_whole_ids(
    long_ids: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    where = ("--data", tmp_path / "data")
    name = as_json(
        "create", *(() if long_ids else ("s1",)), "--title", "Move the delivery of order A17 to the office", *where
    )["session_id"]
    for text in ("Where is my order A17, and can it go to my office?", "It is on its way. " * 9):
        ok("append", name, text, "--role", "user" if "?" in text else "assistant", *where)
    job = as_json("compress", name, *where)["job"]["job_id"]
    snapshot = as_json("snapshot", "create", name, *where)["snapshot_id"]

    for command, key, shown in (
        (("jobs",), job, "queued|pending|done"),
        (("sessions",), name, "Move the de.* active .* 20\\d\\d-\\d\\d-\\d\\d \\d\\d:\\d\\d"),
        (("snapshot", "list", name), snapshot, "ref.* 20\\d\\d-"),
        (("loops", name), "1", "Where is my .*It is on its"),
        (("history", name), "", "message_added"),
        (("import", SAMPLES / "support-agent.json"), "support-agent", "new"),
    ):
        header, *rows = ok(*command, *where).splitlines()
        assert rows[0].startswith(key) or key in rows[0].split(), (header, rows)
        assert re.search(shown, rows[0]), (header, rows)
        assert max(map(len, (header, rows[0]))) <= 80
