"""A session and calls over MCP."""

from __future__ import annotations

from typing import Any

from turnlog.client.model import Turnlog

CALL = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"q": "x"}'}}


OF_ONE_SESSION = {"recall_tool_call", "search_history", "append_message", "build_context", "list_sessions"}
TOOLS = OF_ONE_SESSION | {"create_session", "search_memories", "list_memories", "forget_memory"}


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

    result = list[tuple[str, bool]]()
    async with Client(server) as client:
        listed = await client.list_tools()
        assert {tool.name for tool in listed.tools} == tools
        for name, arguments in calls:
            answer = await client.call_tool(name, arguments)
            result.append((answer.content[0].text, bool(answer.is_error)))
    return result
