"""Messages of OpenAI Chat and of Turnlog written again in the other providers' shapes, as their users would write them.

Written for tests alone: nothing of Turnlog's codecs is used here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

Body: TypeAlias = dict[str, Any]
Format: TypeAlias = Literal["openai_chat", "turnlog", "anthropic", "bedrock_converse", "openai_responses"]
FORMATS: tuple[Format, ...] = get_args(Format)


@dataclass(frozen=True)
class Given:
    """A message as a caller gives it."""

    body: Body
    format: Format = "openai_chat"
    interrupted: bool = False
    pin: bool = False


History: TypeAlias = tuple[Given, ...]


def sendable(given: Given) -> Body:
    """The body without the key that no provider knows, and without halves of characters; Turnlog's own format keeps every key."""
    body: Body = whole_characters(given.body)
    return {key: value for key, value in body.items() if key != "x_trace" or given.format == "turnlog"}


def whole_characters(value: Any) -> Any:
    """A JSON value with U+FFFD in place of halves of characters."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {whole_characters(key): whole_characters(item) for key, item in value.items()}
    return [whole_characters(item) for item in value] if isinstance(value, list) else value


def reshaped(given: Given, format: Format, *, pick: int = 0) -> Given:
    """The message in another shape, if that format has one for it; else as it is. Of several calls Responses has the first."""
    is_bare = given.format == "turnlog" and given.body["role"] == "tool" and not given.body.get("tool_results")
    if given.format == format or is_bare or not _has_shape(given.body):
        return given
    body = next(_written(given.body, format, pick), None)
    return given if body is None else replace(given, body=body, format=format)


def in_format(history: History, format: Format) -> Iterator[Given]:
    """A well-formed history as this provider's user would have it: results of one turn in one message, or items."""
    if format in ("openai_chat", "turnlog"):
        yield from (value for value in history if value.format == format)
        return
    results = list[Body]()
    for at, item in enumerate(history):
        bodies = [
            body | ({"id": f"{body['id']}_{at}"} if "id" in body else {}) for body in _written(item.body, format, 0)
        ]
        is_result = item.body["role"] == "tool"
        if is_result and format != "openai_responses":
            results += bodies
            continue
        if results:
            yield Given(_merged(results), format)
            results = []
        yield from (Given(body, format) for body in bodies)
    if results:
        yield Given(_merged(results), format)


def _merged(bodies: list[Body]) -> Body:
    return {"role": "user", "content": [block for body in bodies for block in body["content"]]}


def _has_shape(body: Body) -> bool:
    """Whether it is plain enough: text, calls and results of the usual kinds."""
    content, calls = body.get("content"), body.get("tool_calls") or []
    is_text = content is None or isinstance(content, str) or all(_is_text(part) for part in content)
    has_functions = all(isinstance(call.get("function"), dict) or "args" in call for call in calls)
    is_known = body["role"] in ("system", "user", "assistant", "tool")
    return is_text and has_functions and is_known and not body.get("function_call") and not body.get("refusal")


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)


def _texts(body: Body) -> list[str]:
    content = body.get("content")
    return [content] if isinstance(content, str) else [part["text"] for part in content or []]


def _calls(body: Body) -> list[tuple[Any, str, Any]]:
    result = list[tuple[Any, str, Any]]()
    for call in body.get("tool_calls") or []:
        function = call.get("function")
        arguments = function["arguments"] if isinstance(function, dict) else call["args"]
        result.append((call.get("id"), (function or call).get("name") or "", arguments))
    return result


def _results(body: Body) -> list[tuple[Any, Any, bool]]:
    if "tool_results" in body:
        return [
            (tool_result.get("tool_call_id"), tool_result["result"], tool_result["is_error"])
            for tool_result in body["tool_results"]
        ]
    return [(body.get("tool_call_id"), "\n".join(_texts(body)), False)] if body["role"] == "tool" else []


def _value(arguments: Any) -> Any:
    """Arguments as a model of a format with objects would have given them: text where they are no JSON."""
    try:
        return json.loads(arguments, parse_constant=str) if isinstance(arguments, str) else arguments
    except ValueError:
        return arguments


def _written(body: Body, format: Format, pick: int) -> Iterator[Body]:
    texts = [] if body["role"] == "tool" else _texts(body)
    if format == "openai_responses":
        yield from _items(body, texts, pick)
        return
    role = "user" if body["role"] == "tool" else body["role"]
    write = _anthropic if format == "anthropic" else _converse
    blocks = write(body, texts, pick)
    is_plain = format == "anthropic" and len(texts) == 1 and not _calls(body) and not _results(body) and pick % 2 == 0
    yield {"role": role, "content": texts[0] if is_plain else blocks, "x_trace": {"n": 1}}


def _anthropic(body: Body, texts: list[str], pick: int) -> list[Body]:
    said: list[Body] = [{"type": "text", "text": text} for text in texts]
    results: list[Body] = [
        {
            "type": "tool_result",
            "tool_use_id": call_id or "",
            "content": result if isinstance(result, str) else [{"type": "text", "text": json.dumps(result)}],
        }
        | ({"is_error": True} if failed else {})
        for call_id, result, failed in _results(body)
    ]
    calls: list[Body] = [
        {"type": "tool_use", "id": call_id or "", "name": name, "input": _value(arguments)}
        for call_id, name, arguments in _calls(body)
    ]
    if said and pick % 3 == 1:
        said[-1] |= {"cache_control": {"type": "ephemeral"}}
    return [*said, *results, *calls] if pick == 7 else [*results, *said, *calls]


def _converse(body: Body, texts: list[str], pick: int) -> list[Body]:
    said: list[Body] = [{"text": text} for text in texts]
    results: list[Body] = [
        {
            "toolResult": {
                "toolUseId": call_id or "",
                "content": [{"text": result} if isinstance(result, str) else {"json": result}],
            }
            | ({"status": "error"} if failed else {})
        }
        for call_id, result, failed in _results(body)
    ]
    calls: list[Body] = [
        {"toolUse": {"toolUseId": call_id or "", "name": name, "input": _value(arguments)}}
        for call_id, name, arguments in _calls(body)
    ]
    return [*said, *results, *calls] if pick == 7 else [*results, *said, *calls]


def _items(body: Body, texts: list[str], pick: int) -> Iterator[Body]:
    is_said = any(texts)
    calls, results = _calls(body), _results(body)
    if calls and pick % 4 != 3:
        is_said = False if pick else is_said
    if is_said or not (calls or results):
        yield _said_item(str(body["role"]), texts, pick)
    for at, (call_id, name, arguments) in enumerate(calls):
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        fields = {"call_id": call_id or "", "status": "completed"}
        if pick == 11:
            yield {"type": "custom_tool_call", "call_id": call_id or "", "name": name, "input": text}
        elif pick == 10:
            yield {"type": "shell_call", **fields, "action": {"commands": [text]}}
        elif pick == 9:
            yield {"type": "apply_patch_call", **fields, "operation": {"type": "delete_file", "path": text}}
        else:
            fields = {"type": "function_call", "id": f"fc_{pick}_{at}", "call_id": call_id or ""}
            yield {**fields, "name": name, "arguments": text}
    for call_id, result, _ in results:
        output = result if isinstance(result, str) else [{"type": "input_text", "text": json.dumps(result)}]
        if pick in (8, 10):
            chunk = {"stdout": str(output), "stderr": "", "outcome": {"type": "exit", "exit_code": pick % 8}}
            yield {"type": "shell_call_output", "call_id": call_id or "", "output": [chunk]}
            continue
        yield {"type": "function_call_output", "call_id": call_id or "", "output": output}


def hosted_item(pick: int, position: int, call: str, result: str) -> Body:
    """An item of a call that the provider ran, with its result."""
    bodies: list[Body] = [
        {
            "type": "mcp_call",
            "id": f"mcp_{position}",
            "server_label": "s",
            "name": "find",
            "arguments": json.dumps({"q": call}),
            "output": result,
        },
        {
            "type": "mcp_list_tools",
            "id": f"mcpl_{position}",
            "server_label": call,
            "tools": [{"name": result, "input_schema": {}}],
        },
        {
            "type": "web_search_call",
            "id": f"ws_{position}",
            "status": "completed",
            "action": {"type": "search", "query": call, "sources": [{"type": "url", "url": result}]},
        },
        {
            "type": "file_search_call",
            "id": f"fs_{position}",
            "status": "completed",
            "queries": [call],
            "results": [{"file_id": "f", "text": result}],
        },
        {
            "type": "code_interpreter_call",
            "id": f"ci_{position}",
            "status": "completed",
            "code": call,
            "container_id": "c",
            "outputs": [{"type": "logs", "logs": result}],
        },
        {
            "type": "mcp_call",
            "id": f"mcp_{position}",
            "server_label": "s",
            "name": "find",
            "arguments": call,
            "output": None,
            "error": result,
        },
    ]
    return bodies[pick % len(bodies)]


def hosted_blocks(pick: int, position: int, call: str, result: str, said: str) -> list[Body]:
    """Blocks of an assistant's message with a call that the provider ran, and its result."""
    content: Any = [
        [
            {
                "type": "web_search_result",
                "url": "https://example.com",
                "title": result,
                "encrypted_content": "Zm9v" * 90,
            }
        ],
        {
            "type": "web_fetch_result",
            "url": "https://example.com",
            "content": {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": result}},
        },
        {"type": "bash_code_execution_result", "stdout": result, "stderr": "", "return_code": pick % 2, "content": []},
        [{"type": "text", "text": result}],
        {"type": "text_editor_code_execution_view_result", "file_type": "text", "content": result},
        {"type": "web_search_tool_result_error", "error_code": "unavailable", "error_message": result},
    ][pick % 6]
    name = ("web_search", "web_fetch", "bash_code_execution", "find", "text_editor_code_execution", "web_search")[
        pick % 6
    ]
    is_mcp = name == "find"
    call_id = f"{'mcptoolu' if is_mcp else 'srvtoolu'}_{position}"
    use = {"type": "mcp_tool_use", "server_name": "s"} if is_mcp else {"type": "server_tool_use"}
    return [
        {"type": "text", "text": "let me look"},
        {**use, "id": call_id, "name": name, "input": {"q": call}},
        {"type": "mcp_tool_result" if is_mcp else f"{name}_tool_result", "tool_use_id": call_id, "content": content},
        {"type": "text", "text": said, "citations": [{"type": "char_location", "cited_text": "x"}]},
    ]


def _said_item(role: str, texts: list[str], pick: int) -> Body:
    if role == "assistant":
        parts = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
        return {"type": "message", "id": f"msg_{pick}", "role": role, "status": "completed", "content": parts}
    if pick % 2:
        return {"role": role, "content": [{"type": "input_text", "text": text} for text in texts]}
    return {"role": role, "content": "\n".join(texts)}
