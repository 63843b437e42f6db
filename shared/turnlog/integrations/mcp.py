"""An MCP server over the sessions of one owner, or over one session: https://modelcontextprotocol.io.

    from turnlog.integrations.mcp import make_server

    make_server(log).run("stdio")

It needs the official SDK: ``pip install 'turnlog[mcp]'``. In a shell, `turnlog mcp` starts this server.
"""

from __future__ import annotations

import hmac
import inspect
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias, get_args
from urllib.parse import quote

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ToolError
from mcp.server.mcpserver.prompts.base import AssistantMessage, Message, UserMessage
from mcp.server.mcpserver.resources import FunctionResource
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, CallToolResult, ImageContent, TextContent, ToolAnnotations
from pydantic import BaseModel, Field

from turnlog import __version__
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import TurnlogError
from turnlog.core.json_values import sendable_json, sendable_text, without_none
from turnlog.core.models import FormatName
from turnlog.core.recall_calls import RECALL_TOOL, SEARCH_TOOL

_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False)
_FORGETS = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)
_INSTRUCTIONS = (
    "Sessions of an agent: every message is kept. create_session begins one. build_context returns the window for a model call; "
    "search_history finds messages by words; recall_tool_call returns a tool call with its result by its ref, such as 12.0. "
    "search_memories finds what is known about the user from earlier sessions."
)
_WORDS = frozenset({"title", "system", "query", "pattern"})
_MESSAGES = 100
"""Messages in a resource: the newest."""

SessionId = Annotated[str, Field(description="The id of a session, as list_sessions tells it")]
Ref = Annotated[str | None, Field(description="The ref of a call, such as 12.0")]
CallId = Annotated[str | None, Field(description="The id of a call, where its ref is not known")]
Pattern = Annotated[str | None, Field(description="Only lines that match this regular expression")]
Line = Annotated[int | None, Field(ge=1)]
Pointer = Annotated[str | None, Field(description="Only what this JSON pointer names")]
Tokens = Annotated[int | None, Field(ge=64, le=100_000, description="At most so many tokens")]
Limit = Annotated[int | None, Field(ge=1, le=50)]
Policy = Annotated[str | None, Field(description="A preset, such as default or run_loops")]
Cursor = Annotated[str | None, Field(description="next_cursor of the page before")]
_JSON = "application/json"
AsgiApp: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]


class SessionFound(BaseModel):
    """A session in a list. ``uri`` is its resource."""

    session_id: str
    title: str | None
    status: str
    updated_at: str
    messages: int
    uri: str


class SessionsFound(BaseModel):
    sessions: list[SessionFound]
    next_cursor: str | None


class SessionCreated(BaseModel):
    session_id: str


class MessageAppended(BaseModel):
    """``position`` of the message, and the position of the session's newest event."""

    position: int
    head: int


class WindowBuilt(BaseModel):
    """A window: what to send to the model, and its size."""

    messages: list[dict[str, Any]]
    system: Any = Field(default=None, description="The system text where the format keeps it apart from the messages")
    tools: list[dict[str, Any]]
    tokens: int
    head: int


class MemoryFound(BaseModel):
    memory_id: str
    text: str
    kind: str
    created_at: str
    session_id: str | None


class MemoriesFound(BaseModel):
    memories: list[MemoryFound]
    next_cursor: str | None


class MemoryForgotten(BaseModel):
    memory_id: str


def recall_tool_call(
    session: Session,
    ref: Ref = None,
    call_id: CallId = None,
    pattern: Pattern = None,
    from_line: Line = None,
    to_line: Line = None,
    pointer: Pointer = None,
    max_tokens: Tokens = None,
) -> list[Any]:
    """Return an earlier tool call with its result, in full or in part, or the message at a position."""
    part = {"pattern": pattern, "from_line": from_line, "to_line": to_line, "pointer": pointer}
    arguments = {"ref": ref, "call_id": call_id, "max_tokens": max_tokens, **part}
    return _executed(session, RECALL_TOOL, arguments)


def search_history(session: Session, q: Annotated[str, Field(description="Words")], limit: Limit = None) -> list[Any]:
    """Find earlier messages of a session by words."""
    return _executed(session, SEARCH_TOOL, {"q": q, "limit": limit})


def append_message(
    session: Session,
    content: Annotated[str, Field(min_length=1)],
    role: Literal["user", "assistant", "system"] = "user",
    idempotency_key: Annotated[
        str | None, Field(description="A repeated call with the same key has one effect")
    ] = None,
) -> Annotated[CallToolResult, MessageAppended]:
    """Append a message to a session. The log keeps it permanently."""
    appended = session.append({"role": role, "content": content}, format="openai_chat", idempotency_key=idempotency_key)
    return _structured({"position": appended.first, "head": appended.head})


def build_context(
    session: Session,
    budget: Annotated[int | None, Field(ge=1, description="In tokens")] = None,
    policy: Policy = None,
    format: FormatName = "openai_chat",
    query: Annotated[
        str | None, Field(min_length=1, description="What to recall, in place of the user's message")
    ] = None,
) -> Annotated[CallToolResult, WindowBuilt]:
    """Build the window of a session for the next model call: valid messages within a budget, with the tools."""
    return _structured(_window(session, format=format, budget=budget, policy=policy, query=query))


def make_server(log: Turnlog, session_id: str | None = None) -> MCPServer[Any]:
    """Return a server with tools that append, build windows, recall, search, and manage sessions and memories.

    It also has resources (sessions, their newest messages, their windows) and prompts. All see every session of the owner of
    ``log``. With ``session_id`` they see only that session, take no session id, create none and have no memories.
    """
    tools = [
        # What is recalled is text and images: as structured content too, it would be sent twice.
        _tool(_bound(function, log, session_id), hints, structured=structured)
        for function, hints, structured in (
            (recall_tool_call, _READS, False),
            (search_history, _READS, False),
            (append_message, _WRITES, None),
            (build_context, _READS, None),
        )
    ]
    tools += _session_tools(log, session_id)
    tools += _memory_tools(log) if session_id is None else []
    server: MCPServer[Any] = MCPServer(
        name="turnlog",
        title="Turnlog",
        instructions=_INSTRUCTIONS,
        version=__version__,
        log_level="WARNING",
        tools=tools,
    )
    _add_resources(server, log, session_id)
    _add_prompts(server, log, session_id)
    return server


def _tool(function: Callable[..., Any], hints: ToolAnnotations, *, structured: bool | None = None) -> Tool:
    """Return a tool whose errors the model reads, and that refuses arguments it does not have. Tools of the SDK ignore them."""
    tool = Tool.from_function(_errors_as(ToolError)(function), annotations=hints, structured_output=structured)
    arguments = tool.fn_metadata.arg_model
    arguments.model_config["extra"] = "forbid"
    arguments.model_rebuild(force=True)
    metadata = _ToolMetadata(**dict(tool.fn_metadata))
    return tool.model_copy(update={"fn_metadata": metadata, "parameters": arguments.model_json_schema()})


class _ToolMetadata(FuncMetadata):
    """Metadata of a tool whose texts stay as they were sent. The SDK would parse those that are JSON, such as ``[12]``.

    Clients send ``null`` for an argument that is absent; only in a text for people it is a word.
    """

    def pre_parse_json(self, data: dict[str, Any]) -> dict[str, Any]:
        fields = self.arg_model.model_fields
        texts = {name for name in data.keys() & fields.keys() if str in get_args(fields[name].annotation)}
        kept = {name: data[name] for name in texts if data[name] != "null" or name in _WORDS}
        return super().pre_parse_json(data) | kept


def _session_tools(log: Turnlog, only: str | None) -> list[Tool]:
    def list_sessions(
        limit: Annotated[int, Field(ge=1, le=100)] = 20, cursor: Cursor = None
    ) -> Annotated[CallToolResult, SessionsFound]:
        """List sessions, newest activity first. The next page begins at next_cursor."""
        return _structured(_sessions(log, only, limit, cursor))

    def create_session(
        session_id: Annotated[str | None, Field(description="By default generated")] = None,
        title: str | None = None,
        system: Annotated[str | None, Field(description="The system text of its windows")] = None,
        policy: Policy = None,
    ) -> Annotated[CallToolResult, SessionCreated]:
        """Create a session and return its id. An id that is taken is an error."""
        session = log.sessions.create(session_id, title=title, system=system, policy=policy)
        return _structured({"session_id": session.id})

    tools = [_tool(list_sessions, _READS)]
    return tools if only is not None else [*tools, _tool(create_session, _WRITES)]


def _memory_tools(log: Turnlog) -> list[Tool]:
    def search_memories(
        q: Annotated[str, Field(min_length=1, description="Words")], limit: Annotated[int, Field(ge=1, le=100)] = 10
    ) -> Annotated[CallToolResult, MemoriesFound]:
        """Find what is known about the user from ended sessions, best match first."""
        return _structured(_memories(log, limit=limit, q=q))

    def list_memories(
        limit: Annotated[int, Field(ge=1, le=100)] = 20, cursor: Cursor = None
    ) -> Annotated[CallToolResult, MemoriesFound]:
        """List what is known about the user from ended sessions, newest first."""
        return _structured(_memories(log, limit=limit, cursor=cursor))

    def forget_memory(memory_id: str) -> Annotated[CallToolResult, MemoryForgotten]:
        """Delete a memory for good. It is not made again of the same messages."""
        return _structured({"memory_id": log.forget(memory_id).memory_id})

    return [_tool(search_memories, _READS), _tool(list_memories, _READS), _tool(forget_memory, _FORGETS)]


def _add_resources(server: MCPServer[Any], log: Turnlog, only: str | None) -> None:
    """Add the list of sessions, and of each session, or the only one, its settings, its newest messages and its window."""

    def session(session_id: str) -> str:
        """Settings and totals of a session."""
        return log.sessions.of(session_id).info().model_dump_json()

    def messages(session_id: str) -> str:
        """The newest 100 messages of a session, with their positions."""
        page = log.sessions.of(session_id).page(order="desc", limit=_MESSAGES)
        return _json({"messages": [message.model_dump(mode="json") for message in reversed(page.messages)]})

    def window(session_id: str) -> str:
        """The window of a session for the next model call, in OpenAI's chat format."""
        return _json(_window(log.sessions.of(session_id), format="openai_chat"))

    def sessions() -> str:
        """Sessions, newest activity first."""
        return _json(_sessions(log, only, 100, None))

    reported = _errors_as(ResourceError)
    server.resource("turnlog://sessions", mime_type=_JSON)(reported(sessions))
    for suffix, read in {"": reported(session), "/messages": reported(messages), "/window": reported(window)}.items():
        if only is None:
            server.resource(f"turnlog://sessions/{{session_id}}{suffix}", mime_type=_JSON)(read)
        else:
            server.add_resource(_resource_of(read, only, suffix))


def _resource_of(read: Callable[[str], str], session_id: str, suffix: str) -> FunctionResource:
    return FunctionResource.from_function(
        lambda: read(session_id),
        uri=session_uri(session_id) + suffix,
        name=read.__name__,
        description=read.__doc__,
        mime_type=_JSON,
    )


def session_uri(session_id: str) -> str:
    """Return the URI of a session's resource; ``/messages`` and ``/window`` behind it are its messages and its window."""
    return f"turnlog://sessions/{quote(session_id, safe='')}"


def _add_prompts(server: MCPServer[Any], log: Turnlog, session_id: str | None) -> None:
    def continue_session(session: Session) -> list[Message]:
        """Go on with a session: its window as the beginning of the conversation."""
        window = session.context(format="turnlog")
        system = [UserMessage(f"Instructions of this conversation:\n{window.system}")] if window.system else []
        return system + [_spoken(message) for message in window.messages]

    def answer_from_history(
        session: Session, question: Annotated[str, Field(description="What is to be answered")]
    ) -> str:
        """Answer a question from a session's history, with the messages that it was taken from."""
        return (
            f"Answer from the history of session {session.id!r}. Find the messages with search_history, and read tool calls "
            f"with recall_tool_call. Name the positions of the messages that you used; say so when the history has no answer."
            f"\n\nQuestion: {question}"
        )

    for prompt in (continue_session, answer_from_history):
        server.prompt()(_errors_as(partial(MCPError, INVALID_PARAMS))(_bound(prompt, log, session_id)))


def _spoken(message: Mapping[str, Any]) -> Message:
    content = message.get("content")
    text = content if isinstance(content, str) else _json(content if content is not None else message)
    return AssistantMessage(text) if message.get("role") == "assistant" else UserMessage(text)


def _sessions(log: Turnlog, session_id: str | None, limit: int, cursor: str | None) -> dict[str, Any]:
    if session_id is not None:
        infos, following = [log.sessions.of(session_id).info()], None
    else:
        page = log.sessions.page(limit=limit, cursor=cursor)
        infos, following = page.sessions, page.next_cursor
    names = {"session_id", "title", "status", "updated_at", "messages"}
    sessions = [info.model_dump(mode="json", include=names) | {"uri": session_uri(info.session_id)} for info in infos]
    return {"sessions": sessions, "next_cursor": following}


def _memories(log: Turnlog, **options: Any) -> dict[str, Any]:
    page = log.memory_page(**options)
    names = set(MemoryFound.model_fields)
    memories = [memory.model_dump(mode="json", include=names) for memory in page.memories if memory.replaced_by is None]
    return {"memories": memories, "next_cursor": page.next_cursor}


def _window(session: Session, **options: Any) -> dict[str, Any]:
    window = session.context(**options)
    return window.model_dump(mode="json", include=set(WindowBuilt.model_fields))


def _json(value: Any) -> str:
    return sendable_text(json.dumps(value, ensure_ascii=False))


def _structured(value: dict[str, Any]) -> CallToolResult:
    """Return a result as structured content, and as text for hosts that read no structure."""
    return CallToolResult(
        content=[TextContent(type="text", text=_json(value))], structured_content=sendable_json(value)
    )


def serve_http(server: MCPServer[Any], *, host: str, port: int, token: str | None) -> None:
    """Serve streamable HTTP at ``/mcp`` until the process is interrupted. With a token, each request needs it as bearer."""
    import uvicorn

    # Off loopback any name may lead here, and the token stops web pages; on loopback the SDK checks Host and Origin.
    security = TransportSecuritySettings(enable_dns_rebinding_protection=False) if token is not None else None
    app: Any = server.streamable_http_app(host=host, transport_security=security)
    uvicorn.run(require_token(app, token) if token is not None else app, host=host, port=port, log_level="warning")


def require_token(app: AsgiApp, token: str) -> AsgiApp:
    """Return the ASGI application with a check before it: requests without the bearer token are answered with 401."""

    async def checked(scope: Any, receive: Any, send: Any) -> None:
        scheme, _, credentials = dict(scope.get("headers") or ()).get(b"authorization", b"").partition(b" ")
        is_authorized = scheme.lower() == b"bearer" and hmac.compare_digest(credentials, token.encode())
        if scope["type"] != "http" or is_authorized:
            await app(scope, receive, send)
            return
        headers = [(b"www-authenticate", b"Bearer"), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    return checked


@contextmanager
def _errors_as(kind: Callable[[str], Exception]) -> Iterator[None]:
    """Raise a Turnlog error of the block as an error of a tool, which the model reads, or as one of a resource or a prompt."""
    try:
        yield
    except TurnlogError as error:
        raise kind(f"{error.error_code}: {error.detail}") from error


def _executed(session: Session, name: str, arguments: Mapping[str, Any]) -> list[Any]:
    answer = session.execute_tool(name, without_none(arguments))
    text = sendable_text(answer.text)
    if answer.is_error:
        raise ToolError(text)
    images = [
        ImageContent(type="image", data=block.data, mime_type=block.media_type or "image/png")
        for block in answer.media
        if block.kind == "image" and block.data
    ]
    return [text, *images]


def _bound(tool: Callable[..., Any], log: Turnlog, session_id: str | None) -> Callable[..., Any]:
    """Return the tool with its session bound: to ``session_id``, or to a ``session_id`` argument of each call."""

    def run(**arguments: Any) -> Any:
        return tool(log.sessions.of(session_id or arguments.pop("session_id")), **arguments)

    signature = inspect.signature(tool, eval_str=True)
    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in list(signature.parameters.values())[1:]
    ]
    if session_id is None:
        own.insert(0, inspect.Parameter("session_id", inspect.Parameter.KEYWORD_ONLY, annotation=SessionId))
    run.__name__, run.__doc__ = tool.__name__, tool.__doc__
    run.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in own}
    run.__annotations__["return"] = signature.return_annotation
    return run
