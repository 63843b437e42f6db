"""Tool schemas in each provider's shape.

A schema that already has the target shape is passed on unchanged, unknown keys included. A schema of another shape is
converted: name, description and parameters, and ``strict`` where both shapes have it. A tool that a provider runs itself
(web search, code execution) has no counterpart elsewhere, so only its own format sends it.

Shapes: OpenAI Chat ``{"type": "function", "function": {name, description, parameters}}``
(https://platform.openai.com/docs/api-reference/chat/create), Responses the same without the inner object
(https://platform.openai.com/docs/api-reference/responses/create), Anthropic ``{name, description, input_schema}``
(https://docs.anthropic.com/en/api/messages), Converse ``{"toolSpec": {name, description, inputSchema: {json}}}``
(https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Tool.html).
"""

from __future__ import annotations

from collections.abc import Sequence

from turnlog.core.json_values import JsonObject, JsonValue
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.providers.blocks import legal_tool_name

_ANTHROPIC_CUSTOM = (None, "custom")


@lazy_dataclass(frozen=True, slots=True)
class _Tool:
    """A tool schema, independent of any provider's shape."""

    name: str
    description: str
    parameters: JsonObject
    strict: bool | None = None


def converted(tools: Sequence[JsonObject], format: str) -> list[JsonObject]:
    """Return the tools in the shape of ``format``, without the tools that only another provider runs."""
    sent = list[JsonObject]()
    for schema in tools:
        shape = shape_of(schema)
        if shape == format or shape is None:
            sent.append(schema)
        elif (tool := _read(schema, shape)) is not None:
            sent.append(_write(tool, format))
    return sent


def shape_of(tool: JsonObject) -> str | None:
    """Return the format whose shape the tool has; None when it has the shape of no format."""
    if isinstance(tool.get("function"), dict) or isinstance(tool.get("custom"), dict):
        return "openai_chat"
    if any(isinstance(tool.get(key), dict) for key in ("toolSpec", "systemTool", "cachePoint")):
        return "bedrock_converse"
    if "input_schema" in tool or ("name" in tool and tool.get("type") not in (None, "function", "custom")):
        return "anthropic"
    if isinstance(tool.get("type"), str) and (tool["type"] != "function" or "name" in tool):
        return "openai_responses"
    return None


def _read(tool: JsonObject, shape: str) -> _Tool | None:
    if shape == "openai_chat":
        return _tool(tool.get("function"), "parameters")
    if shape == "openai_responses":
        return _tool(tool, "parameters") if tool.get("type") == "function" else None
    if shape == "anthropic":
        return _tool(tool, "input_schema") if tool.get("type") in _ANTHROPIC_CUSTOM else None
    spec = tool.get("toolSpec")
    if not isinstance(spec, dict):
        return None
    schema = spec.get("inputSchema")
    return _tool({**spec, "schema": schema.get("json") if isinstance(schema, dict) else None}, "schema")


def _tool(fields: JsonValue, schema: str) -> _Tool | None:
    if not isinstance(fields, dict) or not isinstance(fields.get("name"), str):
        return None
    parameters, description, strict = fields.get(schema), fields.get("description"), fields.get("strict")
    return _Tool(
        legal_tool_name(str(fields["name"])),
        description if isinstance(description, str) else "",
        parameters if isinstance(parameters, dict) else {"type": "object", "properties": {}},
        strict if isinstance(strict, bool) else None,
    )


def _write(tool: _Tool, format: str) -> JsonObject:
    named: JsonObject = {"name": tool.name}
    if tool.description:
        named["description"] = tool.description
    if format == "anthropic":
        return {**named, "input_schema": tool.parameters}
    if format == "bedrock_converse":
        return {"toolSpec": {**named, "inputSchema": {"json": tool.parameters}}}
    function: JsonObject = {**named, "parameters": tool.parameters}
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function} if format == "openai_chat" else {"type": "function", **function}
