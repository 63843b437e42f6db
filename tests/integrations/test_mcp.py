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
from turnlog.client.model import Turnlog

CALL = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"q": "x"}'}}
TOOLS = {"recall_tool_call", "search_history", "append_message", "build_context", "list_sessions", "create_session"}
COMMAND = [sys.executable, "-c", "from turnlog.cli import main; main()", "mcp"]


def talked(log: Turnlog, name: str = "desk") -> None:
    session = log.sessions.create(name, title="Desk")
    session.append(
        {"role": "user", "content": "Where is the parcel?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "line one\nat the bakery"},
        {"role": "assistant", "content": "At the bakery."},
    )


async def asked(server: Any, *calls: tuple[str, dict[str, Any]], tools: set[str] = TOOLS) -> list[tuple[str, bool]]:
    """What each call answers, and whether it is an error."""
    from mcp import Client

    found = list[tuple[str, bool]]()
    async with Client(server) as client:
        listed = await client.list_tools()
        assert {tool.name for tool in listed.tools} == tools
        for name, arguments in calls:
            answer = await client.call_tool(name, arguments)
            found.append((answer.content[0].text, bool(answer.is_error)))
    return found


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
    assert [one["session_id"] for one in json.loads(texts[5])["sessions"]] == ["desk"]
    assert "give the ref" in texts[6] and "no session 'secret'" in texts[7] and "not_found" in texts[8]
    assert "invalid" in texts[10]
    assert log.sessions.get("desk").info().head == 6


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
            ("search_history", {"q": "umbrella"}),
            ("list_sessions", {}),
            tools=TOOLS - {"create_session"},
        )
    )
    assert [is_error for _, is_error in answers] == [False] * 3
    assert log.sessions.get("other").info().head == 5 and "⟦umbrella⟧" in answers[1][0]
    assert [one["session_id"] for one in json.loads(answers[2][0])["sessions"]] == ["desk"]


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
    answers = asyncio.run(asked(stdio_client(parameters), call, tools=TOOLS - {"create_session"}))
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
def test_over_http(tmp_path: Path) -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = [*COMMAND, "--data", str(folder(tmp_path)), "--http", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(600):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            url = f"http://127.0.0.1:{port}/mcp"
            answers = asyncio.run(asked(url, ("search_history", {"session_id": "desk", "q": "parcel"})))
            assert "⟦parcel⟧" in answers[0][0]
            assert [status_of(port, **headers) for headers in WEB_PAGES] == [421, 421, 421, 403, 403, 403, 400, 400]
        finally:
            server.terminate()
        assert server.communicate(timeout=20)[0] == b""


@pytest.mark.parametrize("place", ["there", "nowhere"])
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
            ("create_session", {"id": "desk", "title": "Desk", "system": "Be brief.", "policy": "classic"}),
            ("append_message", {"session_id": "desk", "content": "hi"}),
            ("create_session", {"id": "desk"}),
            ("create_session", {"policy": "no such"}),
        )
    )
    assert [is_error for _, is_error in answers] == [False] * 3 + [True] * 2
    info = log.sessions.get("desk").info()
    assert (info.title, info.policy, info.messages) == ("Desk", "classic", 1)
    assert json.loads(answers[1][0]) == {"session_id": "desk"} and "session_exists" in answers[3][0]
