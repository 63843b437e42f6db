"""The MCP server: its tools over both engines, one session alone, and the protocol over stdio and HTTP in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Harness
from tests.support.mcp_calls import OF_ONE_SESSION, TOOLS, asked, talked
from turnlog.client.model import Turnlog

COMMAND = [sys.executable, "-c", "from turnlog.cli import main; main()", "mcp"]


def test_all_tools_of_an_owner(harness: Harness) -> None:
    from turnlog.integrations.mcp import make_server

    log = harness.log()
    talked(log)
    talked(harness.log(user="bob"), "secret")
    desk = {"session_id": "desk"}
    answers = asyncio.run(
        asked(
            make_server(log),
            ("recall_tool_call", {**desk, "ref": "3.0", "pattern": "bakery"}),
            ("search_history", {**desk, "q": "parcel", "limit": 1}),
            ("append_message", {**desk, "content": "Thanks", "idempotency_key": "k"}),
            ("append_message", {**desk, "content": "Thanks", "idempotency_key": "k"}),
            ("build_context", {**desk, "format": "anthropic", "budget": 5_000}),
            ("list_sessions", {"limit": 5}),
            ("recall_tool_call", {**desk}),
            ("search_history", {"session_id": "secret", "q": "parcel"}),
            ("append_message", {"session_id": "nobody", "content": "x"}),
            ("append_message", {**desk, "content": ""}),
            ("build_context", {**desk, "policy": "no such"}),
            ("search_history", {"q": "parcel"}),
        )
    )
    texts = [text for text, _ in answers]
    assert [is_error for _, is_error in answers] == [False] * 6 + [True] * 6
    assert "look_up" in texts[0] and "at the bakery" in texts[0] and "line one" not in texts[0]
    assert "⟦parcel⟧" in texts[1]
    assert texts[2] == texts[3] and json.loads(texts[2])["position"] == 6
    window = json.loads(texts[4])
    assert window["messages"][-1]["role"] == "user" and window["tokens"] < 5_000
    assert [session["session_id"] for session in json.loads(texts[5])["sessions"]] == ["desk"]
    assert "give the ref" in texts[6] and "no session 'secret'" in texts[7] and "not_found" in texts[8]
    assert "invalid" in texts[10]
    assert log.sessions.get("desk").info().head == 6


@pytest.mark.parametrize("session_id", [None, "desk"])
def test_every_tool_refuses_an_argument_that_it_does_not_have(harness: Harness, session_id: str | None) -> None:
    from turnlog.integrations.mcp import make_server

    log = harness.log()
    talked(log)
    tools = TOOLS if session_id is None else OF_ONE_SESSION
    calls = [(name, {"sesion": "x"}) for name in sorted(tools)]
    for text, is_error in asyncio.run(asked(make_server(log, session_id), *calls, tools=tools)):
        assert is_error
        assert "sesion\n  Extra inputs are not permitted" in text
    assert [session.session_id for session in log.sessions.list()] == ["desk"]


def test_a_text_that_is_json_stays_a_text(harness: Harness) -> None:
    from turnlog.integrations.mcp import make_server

    log = harness.log()
    talked(log)
    once = {"session_id": "desk", "content": "[1]", "idempotency_key": "[1]"}
    answers = asyncio.run(
        asked(
            make_server(log),
            (
                "create_session",
                {"session_id": "new", "system": '{"persona": "clerk"}', "title": "null", "policy": "null"},
            ),
            ("append_message", once),
            ("append_message", once),
            ("recall_tool_call", {"session_id": "desk", "ref": "3.0", "pattern": "[b]akery", "max_tokens": "null"}),
            ("recall_tool_call", {"session_id": "desk", "ref": "null", "call_id": "c1"}),
            ("list_sessions", {"cursor": "null"}),
            ("build_context", {"session_id": "desk", "query": '["parcel"]', "policy": "recall"}),
        )
    )
    assert [text for text, is_error in answers if is_error] == []
    session = log.sessions.get("new")
    assert (session.info().title, session.context().messages[0]["content"]) == ("null", '{"persona": "clerk"}')
    assert answers[1] == answers[2] and list(log.sessions.get("desk").messages())[-1].body["content"] == "[1]"
    assert "at the bakery" in answers[3][0] and "line one" not in answers[3][0]


def test_a_window_recalls_what_its_caller_asks_for(harness: Harness) -> None:
    from turnlog.integrations.mcp import make_server

    session, order = harness.log().sessions.create("desk", policy="recall"), "The order of the bicycle is AX-77012."
    session.append({"role": "user", "content": order}, {"role": "assistant", "content": "Noted."})
    for number in range(60):
        said = {"role": "user", "content": f"{number}: the weather is fine and the coffee was good again"}
        session.append(said, {"role": "assistant", "content": f"Yes, {number}."})
    session.append({"role": "user", "content": "Go on, please."})
    window = {"session_id": "desk", "budget": 1_200}
    calls = [("build_context", window), ("build_context", {**window, "query": "the order of the bicycle"})]
    (plain, _), (recalling, _) = asyncio.run(asked(make_server(harness.log()), *calls))
    assert order not in plain and order in recalling


def test_an_image_is_content_of_its_own(harness: Harness) -> None:
    from mcp import Client

    from turnlog.integrations.mcp import make_server

    log = harness.log()
    block = {"type": "image", "media_type": "image/jpeg", "data": "aGVsbG8="}
    log.sessions.create("desk").append({"role": "user", "content": [block], "author": "me"})

    async def recalled() -> Any:
        async with Client(make_server(log, "desk")) as client:
            return (await client.call_tool("recall_tool_call", {"ref": "2"})).content

    text, image = asyncio.run(recalled())
    assert text.text == "message 2:\n[image]"
    assert (image.type, image.data, image.mime_type) == ("image", "aGVsbG8=", "image/jpeg")


def test_of_one_session_alone(harness: Harness) -> None:
    from turnlog.integrations.mcp import make_server

    log = harness.log()
    talked(log)
    talked(log, "other")
    answers = asyncio.run(
        asked(
            make_server(log, "desk"),
            ("append_message", {"content": "umbrella", "session_id": "other"}),
            ("append_message", {"content": "umbrella"}),
            ("search_history", {"q": "umbrella"}),
            ("list_sessions", {}),
            tools=OF_ONE_SESSION,
        )
    )
    assert [is_error for _, is_error in answers] == [True, False, False, False]
    assert log.sessions.get("other").info().head == 5 and "⟦umbrella⟧" in answers[2][0]
    assert [session["session_id"] for session in json.loads(answers[3][0])["sessions"]] == ["desk"]


def folder(tmp_path: Path) -> Path:
    with Turnlog.open(f"sqlite:///{tmp_path}/turnlog.db") as log:
        talked(log)
    return tmp_path


def test_over_stdio_nothing_but_the_protocol_is_said(tmp_path: Path) -> None:
    from mcp import StdioServerParameters
    from mcp.client.stdio import stdio_client

    data = ["--data", str(folder(tmp_path))]
    parameters = StdioServerParameters(
        command=COMMAND[0], args=[*COMMAND[1:], *data, "--session", "desk"], env=dict(os.environ)
    )
    call = ("recall_tool_call", {"ref": "3.0"})
    answers = asyncio.run(asked(stdio_client(parameters), call, tools=OF_ONE_SESSION))
    assert "at the bakery" in answers[0][0]


WEB_PAGES = (
    {"Host": "evil.example"},
    {"Host": "127.0.0.1.evil.example:8788"},
    {"Host": "evil.example", "Origin": "http://evil.example"},
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://localhost.evil.example:80"},
    {"Content-Type": "text/plain"},
    {"Content-Type": ""},
)
"""Headers of web pages in a browser of this machine: rebound names, other origins, requests that ask for no preflight."""


def status_of(port: int, **headers: str) -> int:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    known = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        connection.request("POST", "/mcp", body, {**known, **headers})
        return connection.getresponse().status


@pytest.mark.network
@pytest.mark.parametrize("token", [pytest.param(None, marks=pytest.mark.full), "s3cret"])
def test_over_http(tmp_path: Path, token: str | None) -> None:
    with socket.socket() as resource:
        resource.bind(("127.0.0.1", 0))
        port = resource.getsockname()[1]
    command = [*COMMAND, "--data", str(folder(tmp_path)), "--http", "--port", str(port)]
    command += ["--bearer", token] if token is not None else []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(600):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            url = f"http://127.0.0.1:{port}/mcp"
            if token is not None:
                refused = [{}, {"Authorization": token}, {"Authorization": "Bearer s3cre"}]
                assert [status_of(port, **headers) for headers in refused] == [401] * 3
                for scheme in ("Bearer", "bearer"):
                    bearer = {"Authorization": f"{scheme} {token}"}
                    assert status_of(port, **bearer) not in (401, 421)
                    assert status_of(port, **bearer, Host="turnlog.example") == status_of(port, **bearer)
                return
            answers = asyncio.run(asked(url, ("search_history", {"session_id": "desk", "q": "parcel"})))
            assert "⟦parcel⟧" in answers[0][0]
            assert [status_of(port, **headers) for headers in WEB_PAGES] == [421, 421, 421, 403, 403, 403, 400, 400]
        finally:
            server.terminate()
        assert server.communicate(timeout=20)[0] == b""


@pytest.mark.parametrize("place", [pytest.param("there", marks=pytest.mark.full), "nowhere"])
def test_a_session_that_is_not_there_is_told_on_one_line(tmp_path: Path, place: str) -> None:
    data = str(folder(tmp_path)) if place == "there" else place
    command = [*COMMAND, "--data", data, "--session", "nobody"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path)
    assert ran.returncode == 1 and ran.stdout == "" and ran.stderr.count("\n") == 1


def test_an_empty_store_can_begin(harness: Harness) -> None:
    from turnlog.integrations.mcp import make_server

    log = harness.log()
    answers = asyncio.run(
        asked(
            make_server(log),
            ("list_sessions", {}),
            ("create_session", {"session_id": "desk", "title": "Desk", "system": "Be brief.", "policy": "classic"}),
            ("append_message", {"session_id": "desk", "content": "hi"}),
            ("create_session", {"session_id": "desk"}),
            ("create_session", {"policy": "no such"}),
        )
    )
    assert [is_error for _, is_error in answers] == [False] * 3 + [True] * 2
    info = log.sessions.get("desk").info()
    assert (info.title, info.policy, info.messages) == ("Desk", "classic", 1)
    assert json.loads(answers[1][0]) == {"session_id": "desk"} and "session_exists" in answers[3][0]


@pytest.mark.parametrize(
    ("options", "says"),
    [(["--host", "192.0.2.1"], "give a token with --bearer"), (["--bearer", "x "], "bearer is empty, begins or ends")],
)
def test_off_loopback_a_token_is_needed_that_a_client_can_send(tmp_path: Path, options: list[str], says: str) -> None:
    command = [*COMMAND, "--data", "nowhere", "--http", *options]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path)
    assert ran.returncode == 2 and says in ran.stderr and list(tmp_path.iterdir()) == []


def test_a_server_begins_in_an_empty_folder(tmp_path: Path) -> None:
    from mcp import StdioServerParameters
    from mcp.client.stdio import stdio_client

    data = ["--data", str(tmp_path / "new" / "folder")]
    parameters = StdioServerParameters(command=COMMAND[0], args=[*COMMAND[1:], *data], env=dict(os.environ))
    calls: list[tuple[str, dict[str, Any]]] = [
        ("list_sessions", {}),
        ("create_session", {"session_id": "desk"}),
        ("append_message", {"session_id": "desk", "content": "x"}),
    ]
    answers = asyncio.run(asked(stdio_client(parameters), *calls))
    assert json.loads(answers[0][0])["sessions"] == [] and not any(is_error for _, is_error in answers)


def read_all(server: Any, *uris: str) -> list[Any]:
    """Return the contents of resources as JSON, or the text of an error."""
    from mcp import Client
    from mcp.shared.exceptions import MCPError

    async def read() -> list[Any]:
        answers = list[Any]()
        async with Client(server) as client:
            for uri in uris:
                try:
                    contents: Any = (await client.read_resource(uri)).contents
                    answers.append(json.loads(contents[0].text))
                except MCPError as error:
                    answers.append(str(error))
        return answers

    return asyncio.run(read())


def test_sessions_messages_and_windows_are_resources(harness: Harness) -> None:
    from turnlog.integrations.mcp import make_server, session_uri

    log = harness.log()
    talked(log, "team/desk:1")
    talked(harness.log(user="bob"), "secret")
    uri = session_uri("team/desk:1")
    places = ("turnlog://sessions", uri, f"{uri}/messages", f"{uri}/window")
    for server in (make_server(log), make_server(log, "team/desk:1")):
        listed, info, messages, window = read_all(server, *places)
        assert [(session["session_id"], session["uri"]) for session in listed["sessions"]] == [("team/desk:1", uri)]
        assert (info["session_id"], info["messages"]) == ("team/desk:1", 4)
        assert [message["position"] for message in messages["messages"]] == [2, 3, 4, 5]
        assert window["messages"] == log.sessions.of("team/desk:1").context().messages
    assert "no session 'secret'" in read_all(make_server(log), session_uri("secret"))[0]
    assert "no session" not in read_all(make_server(log, "team/desk:1"), session_uri("other"))[0], "it knows no other"


def test_the_newest_messages_are_there_behind_any_number_of_other_events(harness: Harness) -> None:
    from turnlog.integrations.mcp import make_server, session_uri

    session = harness.log().sessions.create("desk")
    session.extend([{"role": "user", "content": str(number)} for number in range(101)])
    for number in range(4):
        session.update(title=str(number))
    (messages,) = read_all(make_server(harness.log()), f"{session_uri('desk')}/messages")
    assert [message["body"]["content"] for message in messages["messages"]] == [str(number) for number in range(1, 101)]


def test_half_a_character_of_a_message_is_sent_as_a_replacement_character(harness: Harness) -> None:
    """The SDK sends UTF-8. An answer that has no UTF-8 is never sent, and its client waits without end."""
    from mcp import Client

    from turnlog.integrations.mcp import make_server

    log = harness.log()
    talked(log)
    call = {"id": "c2", "type": "function", "function": {"name": "look_up", "arguments": '{"q": "half \ud83d"}'}}
    result = {"role": "tool", "tool_call_id": "c2", "content": "half \ud83d of a parcel"}
    log.sessions.get("desk").append(
        {"role": "user", "content": "half \ud83d"}, {"role": "assistant", "tool_calls": [call]}, result
    )

    async def read() -> list[str]:
        async with Client(make_server(log)) as client:
            answers = [
                await client.call_tool("recall_tool_call", {"session_id": "desk", "ref": "7.0"}),
                await client.call_tool("search_history", {"session_id": "desk", "q": "half"}),
                await client.call_tool("build_context", {"session_id": "desk"}),
                await client.read_resource("turnlog://sessions/desk/messages"),
                await client.read_resource("turnlog://sessions/desk/window"),
                await client.get_prompt("continue_session", {"session_id": "desk"}),
            ]
            return [answer.model_dump_json() for answer in answers]

    for sent in asyncio.run(read()):
        assert "\ufffd" in sent


def test_prompts_continue_a_session_and_answer_from_it(harness: Harness) -> None:
    from mcp import Client

    from turnlog.integrations.mcp import make_server

    log = harness.log()
    talked(log)

    async def prompted(server: Any, arguments: dict[str, str]) -> list[Any]:
        async with Client(server) as client:
            prompts = (await client.list_prompts()).prompts
            assert [prompt.name for prompt in prompts] == ["continue_session", "answer_from_history"]
            went_on = await client.get_prompt("continue_session", arguments)
            question = await client.get_prompt("answer_from_history", {**arguments, "question": "Where is it?"})
        messages: list[Any] = [*went_on.messages, *question.messages]
        return [(message.role, message.content.text) for message in messages]

    cases: list[tuple[Any, dict[str, str]]] = [
        (make_server(log), {"session_id": "desk"}),
        (make_server(log, "desk"), {}),
    ]
    for server, arguments in cases:
        spoken = asyncio.run(prompted(server, arguments))
        assert spoken[0] == ("user", "Where is the parcel?") and spoken[-2] == ("assistant", "At the bakery.")
        assert any("at the bakery" in text for _, text in spoken[1:-2]), "the call and its result"
        assert spoken[-1][1].endswith("Question: Where is it?")


def test_a_prompt_of_a_missing_session_says_what_is_missing(harness: Harness) -> None:
    from mcp import Client, MCPError

    from turnlog.integrations.mcp import make_server

    async def refused() -> str:
        async with Client(make_server(harness.log())) as client:
            with pytest.raises(MCPError) as caught:
                await client.get_prompt("continue_session", {"session_id": "secret"})
        return str(caught.value)

    assert asyncio.run(refused()) == "not_found: no session 'secret'"


def test_memories_are_searched_listed_and_forgotten(harness: Harness) -> None:
    from turnlog.integrations.mcp import make_server

    log = harness.log()
    session = log.sessions.create("trip")
    said = {"role": "user", "content": "I live in Lisbon. I prefer green tea."}
    session.append(said, {"role": "assistant", "content": "Noted."})
    session.end()
    while log.run_jobs():
        pass
    (lisbon,) = log.memory_page(q="Lisbon").memories
    answers = asyncio.run(
        asked(
            make_server(log),
            ("list_memories", {}),
            ("search_memories", {"q": "which tea"}),
            ("search_memories", {"q": "submarine"}),
            ("forget_memory", {"memory_id": lisbon.memory_id}),
            ("search_memories", {"q": "Lisbon"}),
        )
    )
    values = [[memory["text"] for memory in json.loads(text).get("memories", [])] for text, _ in answers]
    tea = ["I prefer green tea"]
    assert [sorted(values[0]), *values[1:]] == [["I live in Lisbon", *tea], tea, [], [], []]


def test_answers_have_the_form_that_their_schemas_say(harness: Harness) -> None:
    from jsonschema import validate
    from mcp import Client

    from turnlog.integrations.mcp import make_server

    log = harness.log()
    talked(log)
    desk = {"session_id": "desk"}
    calls: dict[str, dict[str, Any]] = {
        "append_message": {**desk, "content": "x"},
        "build_context": {**desk, "format": "anthropic"},
        "list_sessions": {},
        "create_session": {},
        "search_memories": {"q": "x"},
        "list_memories": {},
        "forget_memory": {"memory_id": "x"},
    }

    async def called() -> None:
        async with Client(make_server(log)) as client:
            schemas = {tool.name: tool.output_schema for tool in (await client.list_tools()).tools}
            assert {name for name, schema in schemas.items() if schema is not None} == set(calls)
            for name, arguments in calls.items():
                answer: Any = await client.call_tool(name, arguments)
                validate(answer.structured_content, schemas[name])
                assert json.loads(answer.content[0].text) == answer.structured_content

    asyncio.run(called())
