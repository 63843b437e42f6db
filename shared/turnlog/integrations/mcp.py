"""An MCP server over the sessions of one owner, or over one session: https://modelcontextprotocol.io.

    from turnlog.integrations.mcp import make_server

    make_server(log).run("stdio")

It needs the official SDK: ``pip install 'turnlog[mcp]'``. In a shell, `turnlog mcp` starts this server.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ImageContent, ToolAnnotations
from pydantic import Field

from turnlog import __version__
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import TurnlogError
from turnlog.core.messages import Media
from turnlog.core.recall_calls import RECALL_TOOL, SEARCH_TOOL

_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False)
_INSTRUCTIONS = (
    "Sessions of an agent: every message is kept. create_session begins one. build_context returns the window for a model call; "
    "search_history finds messages by words; recall_tool_call returns a tool call with its result by its ref, such as 12.0."
)

SessionId = Annotated[str, Field(description="The id of a session, as list_sessions tells it")]
Ref = Annotated[str | None, Field(description="The ref of a call, such as 12.0")]
CallId = Annotated[str | None, Field(description="The id of a call, where its ref is not known")]
Pattern = Annotated[str | None, Field(description="Only lines that match this regular expression")]
Line = Annotated[int | None, Field(ge=1)]
Pointer = Annotated[str | None, Field(description="Only what this JSON pointer names")]
Tokens = Annotated[int | None, Field(ge=64, le=100_000, description="At most so many tokens")]
Limit = Annotated[int | None, Field(ge=1, le=50)]
Policy = Annotated[str | None, Field(description="A preset, such as default or run_loops")]
Format = Literal["openai_chat", "openai_responses", "anthropic", "bedrock_converse", "turnlog"]


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
) -> str:
    """Append a message to a session. The log keeps it permanently."""
    appended = session.append({"role": role, "content": content}, format="openai_chat", idempotency_key=idempotency_key)
    return json.dumps({"position": appended.first, "head": appended.head})


def build_context(
    session: Session,
    budget: Annotated[int | None, Field(ge=1, description="In tokens")] = None,
    policy: Policy = None,
    format: Format = "openai_chat",
    query: Annotated[
        str | None, Field(min_length=1, description="What to recall, in place of the user's message")
    ] = None,
) -> str:
    """Build the window of a session for the next model call: valid messages within a budget, with the tools."""
    window = session.context(format=format, budget=budget, policy=policy, query=query)
    shown = window.model_dump(mode="json", include={"messages", "system", "tools", "tokens", "head"})
    return json.dumps(shown, ensure_ascii=False)


def make_server(log: Turnlog, session_id: str | None = None) -> MCPServer[Any]:
    """Return a server of the tools above, ``list_sessions`` and ``create_session``.

    The tools see every session of the owner of ``log``. With ``session_id`` they see only that session, take no session id
    and create none.
    """
    server: MCPServer[Any] = MCPServer(
        name="turnlog", title="Turnlog", instructions=_INSTRUCTIONS, version=__version__, log_level="WARNING"
    )

    for tool, hints in (
        (recall_tool_call, _READS),
        (search_history, _READS),
        (append_message, _WRITES),
        (build_context, _READS),
    ):
        server.add_tool(_bound(tool, log, session_id), annotations=hints, structured_output=False)

    def list_sessions(limit: Annotated[int, Field(ge=1, le=100)] = 20, cursor: str | None = None) -> str:
        """List sessions, newest activity first. The next page begins at next_cursor."""
        with _ToolErrors():
            if session_id is not None:
                infos, following = [log.sessions.get(session_id).info()], None
            else:
                page = log.sessions.page(limit=limit, cursor=cursor)
                infos, following = page.sessions, page.next_cursor
        names = {"session_id", "title", "status", "updated_at", "messages"}
        sessions = [info.model_dump(mode="json", include=names) for info in infos]
        return json.dumps({"sessions": sessions, "next_cursor": following}, ensure_ascii=False)

    def create_session(
        id: Annotated[str | None, Field(description="By default generated")] = None,
        title: str | None = None,
        system: Annotated[str | None, Field(description="The system text of its windows")] = None,
        policy: Policy = None,
    ) -> str:
        """Create a session and return its id. An id that is taken is an error."""
        with _ToolErrors():
            session = log.sessions.create(id, title=title, system=system, policy=policy)
        return json.dumps({"session_id": session.id}, ensure_ascii=False)

    server.add_tool(list_sessions, annotations=_READS, structured_output=False)
    if session_id is None:
        server.add_tool(create_session, annotations=_WRITES, structured_output=False)
    return server


class _ToolErrors:
    """Context manager that turns a Turnlog error into a tool error, which the model reads."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, TurnlogError):
            raise ToolError(f"{error.error_code}: {error.detail}") from error


def _executed(session: Session, name: str, arguments: Mapping[str, Any]) -> list[Any]:
    answer = session.execute_tool(name, {key: value for key, value in arguments.items() if value is not None})
    if answer.is_error:
        raise ToolError(answer.text)
    images = [block for block in answer.media if block.kind == "image" and block.data]
    return [answer.text, *(_image(block) for block in images)]


def _image(image: Media) -> ImageContent:
    return ImageContent(type="image", data=image.data or "", mime_type=image.media_type or "image/png")


def _bound(tool: Callable[..., Any], log: Turnlog, session_id: str | None) -> Callable[..., Any]:
    """Return the tool with its session bound: to ``session_id``, or to a ``session_id`` argument of each call."""

    def run(**arguments: Any) -> Any:
        with _ToolErrors():
            return tool(log.sessions.of(session_id or arguments.pop("session_id")), **arguments)

    own = list(inspect.signature(tool, eval_str=True).parameters.values())[1:]
    session_parameter = inspect.Parameter("session_id", inspect.Parameter.KEYWORD_ONLY, annotation=SessionId)
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    run.__name__, run.__doc__ = tool.__name__, tool.__doc__
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        parameters if session_id is not None else [session_parameter, *parameters], return_annotation=Any
    )
    run.__annotations__ = {
        parameter.name: parameter.annotation
        for parameter in (parameters if session_id is not None else [session_parameter, *parameters])
    }
    run.__annotations__["return"] = Any
    return run
