"""`turnlog chat` through a pipe: lines in, answers out, and whatever is left open goes on in another process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.support.command_line import SESSION
from turnlog import Turnlog
from turnlog.app import make_application
from turnlog.cli.app import app
from turnlog.engines import SystemClock, location_url
from turnlog.server.local_server import LocalServer
from turnlog.settings import Settings

TOOLS = """
from pathlib import Path

def price(sku: str) -> str:
    with Path("asked.txt").open("a") as file:
        file.write(sku + "\\n")
    return f"{sku} costs 12.50"

def stock(sku: str) -> int:
    return 3
"""


def call(number: int, name: str, arguments: Any) -> dict[str, Any]:
    return {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def script(*replies: Any) -> str:
    """The model that says so. Replies are texts, or lists of calls."""
    values = [reply if isinstance(reply, str) else {"content": None, "tool_calls": reply} for reply in replies]
    Path("script.json").write_text(json.dumps(values), encoding="utf-8")
    return "script:script.json"


@pytest.fixture
def tools(tmp_path: Path) -> str:
    (tmp_path / "shop.py").write_text(TOOLS, encoding="utf-8")
    return "shop.py"


def chat(*arguments: object, said: str | bytes) -> Result:
    command = ["chat", *map(str, arguments)]
    return CliRunner().invoke(app, command, input=said, prog_name="turnlog", catch_exceptions=False)


def answers(*arguments: object, said: str) -> list[Any]:
    result = chat(*arguments, "--json", said=said)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def asked() -> list[str]:
    return Path("asked.txt").read_text(encoding="utf-8").split() if Path("asked.txt").exists() else []


def test_each_line_is_answered_and_the_next_process_goes_on() -> None:
    first = chat("s", said="hello\nand you?\n\n")
    assert (first.exit_code, first.stderr) == (0, "turnlog: session s\n")
    assert "You said: hello\n" in first.stdout and "You said: and you?\n" in first.stdout
    second = chat("s", said="again \\\nand again\nexit\nnever\n")
    assert (second.exit_code, second.stderr) == (0, "") and "You said: again \nand again\n" in second.stdout
    with Turnlog.open(location_url(Path(".turnlog"))) as log:
        bodies = [message.body["content"] for message in log.sessions.get("s").messages()]
    assert bodies[::2] == ["hello", "and you?", "again \nand again"] and len(bodies) == 6


def test_a_message_whose_next_line_never_comes_is_answered() -> None:
    assert chat("s", said="hello \\\nagain \\\n").stdout.startswith("You said: hello \nagain \n")


def test_the_newest_session_or_a_new_one() -> None:
    assert "no session yet" in chat("--last", said="").stderr
    (first,) = answers(said="one\n")
    (second,) = answers("--last", said="two\n")
    (third,) = answers(said="three\n")
    assert first["session_id"] == second["session_id"] != third["session_id"]
    assert chat("s", "--last", said="").exit_code == 2


@pytest.mark.network
def test_the_same_over_http() -> None:
    service = make_application(Settings(identity="jwt"))
    server = LocalServer(service, SystemClock(), port=0).start()
    try:
        result = answers("s", "--url", server.url, "--user", "ada", said="hello\n/search hello\n")
        assert (result[0]["status"], result[0]["text"]) == ("final", "You said: hello")
        assert len(result[1]["results"]) == 2
        assert result[0]["window"]["tokens"] > 0
    finally:
        server.stop()
        service.close()


def test_recall_is_executed_by_the_session(data: Path) -> None:
    with Turnlog.open(location_url(data)) as log:
        ref = next(call.ref for loop in log.sessions.get(SESSION).loops() for call in loop.tool_calls)
    model = script([call(1, "recall_tool_call", {"ref": ref})], "There it is.")
    said = chat(SESSION, "--model", model, "--data", data, said="What was it?\n").stdout
    assert "→ recall_tool_call({" in said and f"← {ref} " in said and "There it is.\n" in said


def test_a_call_of_a_tool_waits_and_is_decided_in_another_process(tools: str) -> None:
    outcome = ["s", "--tools", f"{tools}:price"]
    waits = chat(*outcome, "--model", script([call(1, "price", {"sku": "A-7"})]), said="Price?\n")
    assert waits.exit_code == 1 and '? price({"sku":"A-7"})' in waits.stdout and "waits_for_decision" in waits.stderr
    assert asked() == []
    refused = chat(*outcome, "--model", script("never"), said="Something else\n")
    assert refused.exit_code == 1 and "waits_for_decision" in refused.stderr, "no message goes past it"
    (result,) = answers(*outcome, "--model", script("It is 12.50."), said="/approve\n")
    assert (result["status"], result["text"], result["iterations"]) == ("final", "It is 12.50.", 2)
    assert asked() == ["A-7"]


@pytest.mark.parametrize("line", ["/go", "/approve", "And then?"])
def test_what_was_decided_elsewhere_is_gone_on_with_first(tools: str, line: str) -> None:
    outcome = ["s", "--tools", f"{tools}:price"]
    chat(*outcome, "--model", script([call(1, "price", {"sku": "A-7"})]), said="Price?\n")
    with Turnlog.open(location_url(Path(".turnlog"))) as log:
        log.sessions.get("s").decide_pending("approve")
    result = answers(*outcome, "--model", script("It is 12.50.", "Nothing."), said=f"{line}\n")
    assert [item["text"] for item in result] == ["It is 12.50.", "Nothing."][: 1 + (line == "And then?")]
    assert asked() == ["A-7"]


def test_an_action_that_no_run_has_set_can_be_decided_too() -> None:
    answers("s", said="hello\n")
    with Turnlog.open(location_url(Path(".turnlog"))) as log:
        log.sessions.get("s").patch_agent({"pending_action": {"name": "refund", "call_id": "c9"}})
    shown = chat("s", said="/go\n")
    assert shown.exit_code == 1 and "? refund" in shown.stdout
    assert [answer["status"] for answer in answers("s", said="/approve\nand now\n")][-1] == "final"


def test_a_rejected_call_is_not_executed_and_the_model_reads_why(tools: str) -> None:
    outcome = ["s", "--tools", f"{tools}:price"]
    model = script([call(1, "price", {"sku": "A-7"})], "As you like.")
    result = answers(*outcome, "--model", model, said="Price?\n/reject too dear\n/history\n")
    assert [item.get("status") for item in result] == ["pending", "final", None]
    assert asked() == [] and "too dear" in str(result[2]["messages"])
    none = chat(*outcome, said="/approve\n")
    assert none.exit_code == 1 and "Traceback" not in none.output


def test_calls_that_nobody_asks_for(tools: str) -> None:
    many = [call(1, "price", {"sku": "A"}), call(2, "stock", {"sku": "B"})]
    places = ["--tools", f"{tools}:price", "--tools", f"{tools}:stock"]
    (all_done,) = answers("a", *places, "--yes", "--model", script(many, "Done."), said="Go\n")
    assert all_done["status"] == "final" and asked() == ["A"]
    result = chat("b", *places, "--ask", "stock", "--json", "--model", script(many), said="Go\n")
    assert json.loads(result.stdout)["pending"]["name"] == "stock" and asked() == ["A", "A"]
    assert chat("c", *places, "--ask", "nothing", said="").exit_code == 2


def test_tools_and_system_of_a_session_are_changed_once(tools: str) -> None:
    result = ["s", "--tools", f"{tools}:stock", "--system", "You are brief."]
    heads = list[int]()
    for _ in range(3):
        answers(*result, said="Hi\n")
        with Turnlog.open(location_url(Path(".turnlog"))) as log:
            session = log.sessions.get("s")
            heads.append(session.info().head)
            window = session.context()
        names = [tool["function"]["name"] for tool in window.tools]
        assert names.count("stock") == 1 and window.messages[0]["content"].startswith("You are brief.")
    assert heads[2] - heads[1] == heads[1] - heads[0]


def test_what_is_undone_leaves_the_view_and_stays_in_the_log() -> None:
    result = answers("s", said="one\ntwo\n/undo\n/history\n/undo\n/history 5\nthree\n")
    assert [message["body"]["content"] for message in result[3]["messages"]] == ["one", "You said: one"]
    assert result[5]["messages"] == [] and result[6]["text"] == "You said: three"
    with Turnlog.open(location_url(Path(".turnlog"))) as log:
        session = log.sessions.get("s")
        assert len(list(session.messages())) == 6 and len(list(session.messages(in_view=True))) == 2
    nothing = chat("t", said="/undo\n")
    assert nothing.exit_code == 2 and "nothing_to_undo" in nothing.stderr


def test_the_history_is_as_long_as_was_asked_for(tmp_path: Path) -> None:
    with Turnlog.open(location_url(tmp_path)) as log:
        session = log.sessions.create("s")
        for _ in range(5):
            session.append(*({"role": "user", "content": "Hi"} for _ in range(25)))
    shown = answers("s", "--data", str(tmp_path), said="/history 5000\n/history 110\n/history\n")
    assert [len(item["messages"]) for item in shown] == [125, 110, 10]


def test_commands_for_people_and_for_scripts(data: Path) -> None:
    said = chat(SESSION, "--data", data, said="/help\n/history 3\n/window\n/search projector\n").stdout
    assert "/undo" in said and said.count("tokens (") == 1 and "position " in said and "\x1b" not in said
    result = answers(
        SESSION, "--data", data, said="/help\n/history 3\n/window\n/search projector\n/recall 1.9\n/reset\n"
    )
    assert [item["command"] for item in result] == ["/help", "/history", "/window", "/search", "/recall", "/reset"]
    assert len(result[1]["messages"]) == 3 and result[2]["window"]["tokens"] > 0 and result[4]["found"] is False
    assert result[5]["session_id"] != SESSION
    ended = chat(SESSION, "--data", data, said="hello\n")
    assert ended.exit_code == 1 and "session_ended" in ended.stderr


def test_a_run_that_may_not_go_on_says_so_and_goes_on() -> None:
    many = [[call(at, "search_history", {"query": "x"})] for at in (1, 2)]
    (limited,) = answers("s", "--max-iterations", "1", "--model", script(*many), said="Go\n")
    assert limited["status"] == "max_iterations"
    (done,) = answers("s", "--model", script("Done."), said="/go\n")
    assert (done["status"], done["iterations"]) == ("final", 2)
    assert [answer["status"] for answer in answers("s", said="/go\n")] == ["idle"]
    endless = [[call(number, "search_history", {"query": "x"})] for number in range(21)]
    (limited,) = answers("t", "--model", script(*endless), said="Go\n")
    assert (limited["status"], limited["iterations"]) == ("max_iterations", 20)


@pytest.mark.parametrize(
    ("arguments", "said", "code", "says"),
    [
        (["--model", "gpt"], "", 2, "unknown_model"),
        (["--model", "script:none.json"], "", 1, "none.json"),
        (["--tools", "nothing"], "", 2, "bad_tool"),
        (["s/../t"], "hi\n", 2, "invalid"),
        (["s"], "/nothing\n", 2, "unknown_command"),
        (["s"], "hi\n\x80".encode("latin-1"), 2, "a line of stdin is not UTF-8 at byte 0"),
        (["s", "--budget", "10"], "hi\n", 2, "budget_too_small"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(arguments: list[str], said: str | bytes, code: int, says: str) -> None:
    result = chat(*arguments, said=said)
    assert result.exit_code == code, result.output
    assert says in result.stderr and "Traceback" not in result.output


def test_the_lines_behind_an_unknown_command_are_said_and_it_is_named_at_last() -> None:
    result = chat("s", said="one\n/usr is full\ntwo\n")
    assert (result.exit_code, "no command /usr" in result.stderr) == (2, True)
    assert "You said: one" in result.stdout and "You said: two" in result.stdout


def test_what_a_model_says_does_not_steer_the_terminal() -> None:
    said = chat("s", "--model", script("\x1b[2Jred \u202e"), said="hi\n").stdout
    assert "\x1b" not in said and "\u202e" not in said and "red" in said


def test_a_model_that_fails_leaves_the_question_for_the_next_time() -> None:
    failed = chat("s", "--model", script(), said="hello\n")
    assert failed.exit_code == 2 and "script_over" in failed.stderr
    (done,) = answers("s", said="/go\n")
    assert done["text"] == "You said: hello"
