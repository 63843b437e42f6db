"""Readers and writers of blocks, fields and tool schemas that several formats share. They accept values of any shape.

A tool schema that already has the target shape is passed on with a legal name and all else, unknown keys included. A schema of
another shape is converted: name, description and parameters, and ``strict`` where both shapes have it. A tool that a provider runs
itself (web search, code execution) has no counterpart elsewhere, so only its own format sends it.

Shapes: OpenAI Chat ``{"type": "function", "function": {name, description, parameters}}``
(https://platform.openai.com/docs/api-reference/chat/create), Responses the same without the inner object
(https://platform.openai.com/docs/api-reference/responses/create), Anthropic ``{name, description, input_schema}``
(https://docs.anthropic.com/en/api/messages), Converse ``{"toolSpec": {name, description, inputSchema: {json}}}``
(https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Tool.html).
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from turnlog.core.errors import InvalidInputError, MalformedError, Problem
from turnlog.core.json_values import JsonObject, JsonValue, is_unicode, parse_strict_json, sendable_json_text
from turnlog.core.messages import Block, Media, Message, Opaque, Role, Text, Thinking, ToolCall, ToolResult

ERROR_PREFIX = "[error]"
DATA_URL = re.compile(r"data:([^;,]*)(?:;[^,]*)?;base64,(.*)", re.DOTALL)
ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


def role_of(body: JsonObject) -> Role:
    """Return the role of a body as Turnlog names it; ``unknown`` for a role that no provider has."""
    return ROLES.get(given_role(body), "unknown")


def given_role(body: JsonObject) -> str:
    """Return the role as the body spells it. Raises `InvalidInputError` when it is missing or no legal string."""
    role = body.get("role")
    if not isinstance(role, str) or not role or not is_unicode(role):
        raise invalid_message("/role", "a message needs a role, a non-empty string")
    return role


def role_with(body: JsonObject, content: tuple[Block, ...], *, calls: bool, results: bool) -> Role:
    """Return the role of a message whose blocks have been parsed.

    Results without other content have the role ``tool``, whatever role the body has. A ``tool`` message with calls is the
    assistant's.
    """
    role = role_of(body)
    if role == "tool":
        return "assistant" if calls else "tool"
    is_results_alone = results and not calls and all(block == Text("") for block in content)
    return "tool" if is_results_alone and role != "unknown" else role


RAW = "_raw"
"""The only key of the object in place of arguments that are not an object; it holds their text."""


def arguments_value(call: ToolCall) -> JsonValue:
    """Return the arguments as an object, or their text under `RAW` when they are not one.

    Strict, because an object cannot keep NaN or a repeated key.
    """
    try:
        value = parse_strict_json(call.arguments)
    except MalformedError:
        value = None
    return value if isinstance(value, dict) else {RAW: call.arguments}


def tool_input(call: ToolCall) -> JsonValue:
    """Return the arguments for a format that demands an object; empty arguments are an empty object."""
    return arguments_value(call) if call.arguments.strip() else {}


def string_of(value: object) -> str:
    """Return the value of a string field, or an empty string when it is missing, null or of another type."""
    return value if isinstance(value, str) else ""


def object_of(value: JsonValue) -> JsonObject:
    """Return the object, or an empty one for a value of another type."""
    return value if isinstance(value, dict) else {}


def json_text(value: JsonValue) -> str:
    """Return arguments as JSON text: a string unchanged, null as an empty string, any other value as compact JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else sendable_json_text(value)


def media_from_url(url: str, *, detail: str | None = None) -> Media:
    """Return an image with its URL, or with the data of a data URL."""
    if match := DATA_URL.fullmatch(url):
        return Media("image", media_type=match[1] or None, data=match[2], detail=detail)
    return Media("image", url=url, detail=detail)


def media_from_file(file: JsonObject, *, url: str | None = None) -> Media:
    """Return the file in a content part of OpenAI, with its data, its id or its ``url``."""
    text = string_of(file.get("file_data"))
    match = DATA_URL.fullmatch(text)
    media_type, data = (match[1] or None, match[2]) if match else (None, text or None)
    file_id, name = string_of(file.get("file_id")) or None, string_of(file.get("filename")) or None
    return Media("file", media_type, data=data, url=url, file_id=file_id, name=name)


def marked_error(text: str) -> bool:
    """Return whether the text begins with the mark of a failed result."""
    return text.startswith(ERROR_PREFIX)


def result_text(result: ToolResult) -> str:
    """Return the result as one text, for formats without an error field: a failed result begins with ``[error]``."""
    text = "\n".join(placeholder_text(block) for block in result.content)
    return f"{ERROR_PREFIX} {text}" if result.is_error and not marked_error(text) else text


def parts_of(blocks: Iterable[Block], media_part: Callable[[Media], JsonObject], text_type: str) -> list[JsonValue]:
    """Return content parts for OpenAI: ``media_part`` makes those of media; the others are texts of the type ``text_type``."""
    parts = list[JsonValue]()
    for block in blocks:
        if isinstance(block, Media):
            parts.append(media_part(block))
        elif text := placeholder_text(block):
            parts.append({"type": text_type, "text": text})
    return parts


def result_parts(result: ToolResult, media_part: Callable[[Media], JsonObject], text_type: str) -> JsonValue:
    """Return the content of a result for OpenAI: one text, or parts as in `parts_of` when it has media that are sent."""
    media = [block for block in result.content if isinstance(block, Media)]
    if all(media_part(block)["type"] == text_type for block in media):
        return result_text(result)
    others = tuple(block for block in result.content if not isinstance(block, Media))
    return parts_of((Text(result_text(replace(result, content=others))), *media), media_part, text_type)


def file_fields(media: Media) -> JsonObject:
    """Return the members of a file for OpenAI: its id, its data or its URL, and its name."""
    named: JsonObject = {"filename": media.name} if media.name else {}
    if media.file_id:
        return {"file_id": media.file_id, **named}
    if media.data:
        return {"file_data": data_url(media, "application/pdf"), **named}
    return {"file_url": media.url, **named}


def plain_text(media: Media) -> str:
    """Return the text of a file of plain text, empty for other media."""
    if media.kind != "file" or media.media_type != "text/plain" or not media.data:
        return ""
    try:
        return base64.b64decode(media.data, validate=True).decode("utf-8")
    except ValueError:
        return ""


def data_url(media: Media, default_type: str) -> str:
    """Return the data of media as a data URL."""
    return f"data:{media.media_type or default_type};base64,{media.data}"


def placeholder_text(block: object) -> str:
    """Return a block as text, for a place that takes only text.

    Media are a label. A block that only one provider has is the text in it, fenced; empty when there is none, and for thinking.
    """
    if isinstance(block, Text):
        return block.text
    if isinstance(block, Media):
        return f"[{block.kind}{': ' + block.name if block.name else ''}]"
    readable = "\n".join(_readable_texts(block.value)) if isinstance(block, Opaque) else ""
    return fenced(kind_of(block), readable) if readable.strip() else ""


def kind_of(block: object) -> str:
    """Return the name of a block that only one provider has, as that provider gives it; ``thinking`` for reasoning."""
    if not isinstance(block, Opaque) or not isinstance(block.value, dict):
        return "thinking" if isinstance(block, Thinking) else "unknown"
    kind = string_of(block.value.get("type")) or next(iter(block.value), "")
    return kind if is_safe_name(kind) else "unknown"


_READABLE = ("title", "text", "context", "content")
"""Members with text for people in the blocks of all providers: of compactions, search results, documents and guarded texts."""


def _readable_texts(value: JsonValue) -> Iterator[str]:
    """Yield the texts of a block, in order, at any depth."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in inner:
        if isinstance(member, str) and key in _READABLE and member.strip():
            yield member
        yield from _readable_texts(member)


AUTHOR_NAME = re.compile(r"[^\s<|\\/>]{1,64}")


def content_with_name(message: Message, *, has_names: bool = False) -> tuple[Block, ...]:
    """Return the content of a message; a user's name comes first, as text, where the format has no place for it."""
    has_place = has_names and AUTHOR_NAME.fullmatch(message.name)
    is_named = message.role == "user" and message.name and message.content and not has_place
    return (Text(f"{message.name}:"), *message.content) if is_named else message.content


def text_with_placeholders(blocks: Iterable[Block]) -> str:
    """Return blocks as one text, with a label for each media block."""
    return "\n".join(text for text in map(placeholder_text, blocks) if text)


def invalid_message(pointer: str, message: str) -> InvalidInputError:
    """Return the error for a body that is not a message."""
    return InvalidInputError(message, code="invalid_message", problems=[Problem("invalid_message", pointer, message)])


def objects_in(value: JsonValue) -> list[JsonObject]:
    """Return the objects of a list; none for a value of another type."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def content_blocks(content: JsonValue, pointer: str) -> list[JsonObject]:
    """Return the blocks of a message's content; of a string, one text block. Raises `InvalidInputError` for another value."""
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise invalid_message(pointer, "content is neither a string, a list of blocks nor null")
    return objects_in(content)


_SAFE_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def is_safe_name(name: str) -> bool:
    """Return whether every provider accepts a tool's name or a call's id: at most 64 letters, digits, ``_`` and ``-``."""
    return _SAFE_NAME.fullmatch(name) is not None


def legal_tool_name(name: str) -> str:
    """Return a name that every provider accepts: ``name`` itself, or its legal characters with a hash that keeps names distinct."""
    if is_safe_name(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    legal_chars = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_")[:48]
    return f"{legal_chars}_{digest}" if legal_chars else f"tool_{digest}"


_OPEN, _CLOSE = "<turnlog-data kind={kind!r}>", "</turnlog-data>"
_BETWEEN = r"[^\w -,.-~]*"
"""Characters between the letters of a tag that a reader may not see: dashes, and all but letters, digits and ASCII signs."""
_MARK = re.compile(rf"<(?=[^\w!-.:-~]*(?i:{_BETWEEN.join('turnlogdata')}))")
SYSTEM_KIND = "system message"


def fenced(kind: str, text: str) -> str:
    """Return the text between tags that mark it as data of a ``kind``, so that a model does not read it as instructions."""
    return f"{_OPEN.format(kind=kind)}\n{escaped(text)}\n{_CLOSE}"


def escaped(text: str) -> str:
    """Return the text with every fence tag in it made harmless. Escaping twice changes nothing more."""
    return _MARK.sub(r"<\\", text)


def without_thinking(body: JsonObject) -> JsonObject:
    """Return a message of Anthropic or Bedrock without its thinking blocks; the same object when it has none."""
    content = body.get("content")
    if not isinstance(content, list) or not any(map(is_thinking, content)):
        return body
    return {**body, "content": [block for block in content if not is_thinking(block)]}


def is_thinking(block: JsonValue) -> bool:
    """Return whether a block of Anthropic or Bedrock is thinking."""
    return isinstance(block, dict) and (
        block.get("type") in ("thinking", "redacted_thinking") or "reasoningContent" in block
    )


def is_mark(block: JsonValue) -> bool:
    """Return whether a block of Anthropic is no part of an answer: a summary, a change of the model, a list of tools."""
    return isinstance(block, dict) and block.get("type") in ("compaction", "fallback", "mcp_tool_listing")


def convert_tools(tools: Sequence[JsonObject], format: str) -> list[JsonObject]:
    """Return the tools in the shape of ``format``, without the tools that only another provider runs."""
    sent = list[JsonObject]()
    for schema in tools:
        shape = shape_of(schema)
        tool = schema if shape in (format, None) else _converted(schema, str(shape), format)
        if tool is not None:
            sent.append(tool if shape is None else _legal(tool, format))
    return sent


def shape_of(tool: JsonObject) -> str | None:
    """Return the format whose shape the tool has; None when it has the shape of no format."""
    if isinstance(tool.get("function"), dict) or isinstance(tool.get("custom"), dict):
        return "openai_chat"
    if any(isinstance(tool.get(key), dict) for key in ("toolSpec", "systemTool", "cachePoint")):
        return "bedrock_converse"
    if nested_tools(tool):
        return "openai_responses"
    if "input_schema" in tool or ("name" in tool and tool.get("type") not in (None, "function", "custom")):
        return "anthropic"
    if isinstance(tool.get("type"), str) and (tool["type"] != "function" or "name" in tool):
        return "openai_responses"
    return None


def tool_name(tool: JsonObject) -> str:
    """Return the name in a tool schema of any shape; empty for one without a name, such as a tool that a provider defines."""
    members = (*(tool.get(key) for key in ("function", "custom", "toolSpec", "systemTool")), tool)
    names = (string_of(member.get("name")) for member in members if isinstance(member, dict))
    return next(filter(None, names), "")


def names_declared(tool: JsonObject) -> list[JsonValue]:
    """Return the names of the functions that a tool schema of any shape declares, as they stand there; None for a missing one.

    A tool that a provider defines declares none when it has no name, such as ``{"type": "web_search"}``.
    """
    declared = tool.get("functionDeclarations", tool.get("function_declarations"))
    if not isinstance(declared, list):
        declared = [tool[key] for key in ("function", "custom", "toolSpec", "systemTool") if key in tool]
    is_function = tool.keys() & {"name", "input_schema", "parameters"} or tool.get("type") in ("function", "custom")
    if not declared and (is_function or not tool):
        declared = [tool]
    return [function.get("name") if isinstance(function, dict) else None for function in declared]


def nested_tools(tool: JsonObject) -> list[JsonObject]:
    """Return the tools of a namespace (https://developers.openai.com/api/docs/guides/tools-tool-search); none for other tools."""
    return objects_in(tool.get("tools"))


_FUNCTIONS: Mapping[str, tuple[str, str]] = {
    "openai_chat": ("function", "parameters"),
    "openai_responses": ("", "parameters"),
    "anthropic": ("", "input_schema"),
    "bedrock_converse": ("toolSpec", "inputSchema"),
}
"""Format -> the member of a tool that holds its function (empty: the tool does), and the function's member with the schema."""
_OPENAI = ("openai_chat", "openai_responses")
_CALLERS_TYPES: Mapping[str, tuple[str | None, ...]] = {
    "openai_responses": ("function",),
    "anthropic": (None, "custom"),
}
"""Format whose types tell the caller's tools from the provider's own -> types of the caller's."""


def _converted(tool: JsonObject, shape: str, format: str) -> JsonObject | None:
    """Return the tool of the format ``shape`` in another format; None for one without a name, or that the provider runs."""
    if shape in _OPENAI and tool.get("type") == "custom":
        return _with_custom_moved(tool, format) if format in _OPENAI else None
    member, _ = _FUNCTIONS[shape]
    function = tool.get(member) if member else tool
    is_callers = shape not in _CALLERS_TYPES or tool.get("type") in _CALLERS_TYPES[shape]
    if not is_callers or not isinstance(function, dict) or not isinstance(function.get("name"), str):
        return None
    parameters, strict = _schema_of(function, shape), function.get("strict")
    declaration: JsonObject = {"name": function["name"]}
    if description := string_of(function.get("description")):
        declaration["description"] = description
    member, schema_key = _FUNCTIONS[format]
    declaration[schema_key] = {"json": parameters} if format == "bedrock_converse" else parameters
    if format not in _OPENAI:
        return {member: declaration} if member else declaration
    if isinstance(strict, bool):
        declaration["strict"] = strict
    return {"type": "function", **({member: declaration} if member else declaration)}


def _with_custom_moved(tool: JsonObject, format: str) -> JsonObject:
    """Return a custom tool of OpenAI in the shape of ``format``, the other of its formats."""
    held, is_chat = tool.get("custom"), format == "openai_chat"
    inner: JsonObject = {**held} if isinstance(held, dict) else {key: tool[key] for key in tool if key != "type"}
    grammar = inner.get("format")
    if isinstance(grammar, dict) and grammar.get("type") == "grammar":
        held = grammar.get("grammar")
        rules = held if isinstance(held, dict) else {key: grammar[key] for key in grammar if key != "type"}
        inner["format"] = {"type": "grammar", "grammar": rules} if is_chat else {"type": "grammar", **rules}
    return {"type": "custom", "custom": inner} if is_chat else {"type": "custom", **inner}


def _legal(tool: JsonObject, format: str) -> JsonObject:
    """Return a tool of the caller's with a name and a schema that the provider takes, and one of the provider's unchanged."""
    member, schema_key = _FUNCTIONS[format]
    member = "custom" if "custom" in tool else member
    function = tool.get(member) if member else tool
    is_callers = tool.get("type") in (None, "function", "custom")
    if not is_callers or not isinstance(function, dict) or not isinstance(function.get("name"), str):
        return tool
    legal: JsonObject = {**function, "name": legal_tool_name(str(function["name"]))}
    if not legal.get("description", True):
        del legal["description"]  # Bedrock refuses an empty one.
    if format not in _OPENAI or (tool.get("type") != "custom" and schema_key in function):
        schema = _schema_of(function, format)
        plain = _plain(schema, has_properties=format in _OPENAI)
        legal[schema_key] = {"json": plain} if format == "bedrock_converse" else plain
        if dropped := {key: schema[key] for key in _REFUSED if key in schema}:
            joins = sendable_json_text(dropped)
            legal["description"] = (
                f"{string_of(function.get('description'))}\n\nThe input must fit {joins} too.".lstrip()
            )
    if legal == function:
        return tool
    return {**tool, member: legal} if member else legal


def _schema_of(function: JsonObject, format: str) -> JsonObject:
    schema = object_of(function.get(_FUNCTIONS[format][1]))
    return object_of(schema.get("json")) if format == "bedrock_converse" else schema


_REFUSED = ("allOf", "anyOf", "oneOf", "enum", "not")


def _plain(schema: JsonObject, *, has_properties: bool) -> JsonObject:
    """Return a schema that the provider takes: of an object, with the properties of all alternatives at the root.

    A schema that the provider takes is returned as it is. Claude needs a type, OpenAI properties too (``has_properties``), and
    neither takes a reference or alternatives at the root; a weaker schema is sent then.
    https://github.com/anthropics/claude-code/issues/40075, https://github.com/langchain-ai/langchainjs/issues/9804,
    https://github.com/spring-projects/spring-ai/issues/4776
    """
    has_properties = isinstance(schema.get("properties", None if has_properties else {}), dict)
    if schema.get("type") == "object" and has_properties and schema.keys().isdisjoint((*_REFUSED, "$ref")):
        return schema
    target = _target_of(schema, schema)
    root = schema if target is schema else {**schema, **target}
    members = dict[str, list[JsonValue]]()
    for source in (root, *(_target_of(variant, schema) for key in _REFUSED for variant in objects_in(root.get(key)))):
        for name, member in object_of(source.get("properties")).items():
            known = members.setdefault(name, [])
            known += [member] if member not in known else []
    properties: JsonObject = {
        name: known[0] if len(known) == 1 else {"anyOf": known} for name, known in members.items()
    }
    kept = {key: root[key] for key in root if key not in (*_REFUSED, "$ref")}
    return kept | {"type": "object", "properties": properties}


def _target_of(schema: JsonObject, root: JsonObject) -> JsonObject:
    """Return the schema that a reference into ``root`` names; the schema itself when it is none."""
    reference, target = string_of(schema.get("$ref")), root
    if not reference.startswith("#/"):
        return schema
    for step in reference.split("/")[1:]:
        target = object_of(target.get(step))
    return target
