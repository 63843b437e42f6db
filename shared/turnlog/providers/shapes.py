"""The shapes that providers take, and the nearest legal form of a message that a provider would refuse.

A provider refuses a whole request for one unknown key, blank text or half a block. A `Shape` returns the legal form of a value: the
value itself, or a copy without what the provider does not take. It raises `UnfitError` for a value without a legal form.

Sources: Anthropic (https://platform.claude.com/docs/en/api/messages/create) answers ``Extra inputs are not permitted`` for every
unknown key. An AWS SDK checks a Converse request against the service's model
(https://github.com/boto/botocore/blob/develop/botocore/validate.py) and itself answers with ``SDK_UNKNOWN_MEMBER`` for a block that
it does not know (https://github.com/strands-agents/harness-sdk/issues/736). OpenAI Responses answers ``Unknown parameter``
(https://github.com/microsoft/agent-framework/issues/2203). OpenAI Chat refuses unknown keys on some models
(https://github.com/openai/openai-node/issues/1161) and ignores them on others
(https://github.com/microsoft/agent-framework/pull/2344). Some servers of that API demand keys of their own, which are kept:
``reasoning_content`` (https://api-docs.deepseek.com/guides/thinking_mode), ``reasoning_details``
(https://openrouter.ai/docs/use-cases/reasoning-tokens), ``extra_content``
(https://ai.google.dev/gemini-api/docs/thought-signatures).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import TypeAlias

from turnlog.core.json_values import JsonObject, JsonValue
from turnlog.providers.blocks import DATA_URL, ERROR_PREFIX, json_text, object_of, objects_in, string_of
from turnlog.providers.token_rules import image_type

NO_OUTPUT = "[no output]"
"""The content of a failed result that says nothing: Anthropic and Bedrock refuse an error without content."""


class UnfitError(ValueError):
    """Signals a value that has no legal form."""


Shape: TypeAlias = Callable[[JsonValue], JsonValue]


# ---------------------------------------------------------------- building shapes


def anything(value: JsonValue) -> JsonValue:
    """Return any value."""
    return value


def matching(is_legal: Callable[[JsonValue], bool]) -> Shape:
    """Return the shape of the values for which ``is_legal`` is true."""

    def shape(value: JsonValue) -> JsonValue:
        if not is_legal(value):
            raise UnfitError
        return value

    return shape


def one_of(words: str) -> Shape:
    """Return the shape of an enumeration, whose values white space separates."""
    values = frozenset(words.split())
    return matching(lambda value: isinstance(value, str) and value in values)


def optional(shape: Shape) -> Shape:
    """Return a shape that takes null too: SDKs write it for a member that is absent."""
    return lambda value: None if value is None else shape(value)


def fields(
    required: Mapping[str, Shape], others: Mapping[str, Shape] | None = None, *, rest: Shape | None = None
) -> Shape:
    """Return the shape of an object; every one of ``required`` must fit.

    Unfit members are left out, and unknown ones unless they fit ``rest``.
    """
    shapes = {**(others or {}), **required}

    def shape(value: JsonValue) -> JsonValue:
        if not isinstance(value, dict):
            raise UnfitError
        kept, is_same = JsonObject(), True
        for key, member in value.items():
            shape_of_member = shapes.get(key, rest)
            if shape_of_member is None:
                is_same = False
                continue
            try:  # not `suppress`, which takes more time than most shapes
                legal = kept[key] = shape_of_member(member)
            except UnfitError:
                is_same = False
                continue
            is_same = is_same and legal is member
        if not kept.keys() >= required.keys():
            raise UnfitError
        return value if is_same else kept

    return shape


def union(members: Mapping[str, Shape]) -> Shape:
    """Return the shape of an object with exactly one member: the first of ``members`` that it has and that fits."""

    def shape(value: JsonValue) -> JsonValue:
        if not isinstance(value, dict):
            raise UnfitError
        for key, shape_of_member in members.items():
            if key in value:
                with suppress(UnfitError):
                    only: JsonObject = {key: shape_of_member(value[key])}
                    return value if only == value else only
        raise UnfitError

    return shape


def items(shape_of_item: Shape, *, least: int = 0) -> Shape:
    """Return the shape of a list. Unfit items are left out; at least ``least`` must remain."""

    def shape(value: JsonValue) -> JsonValue:
        if not isinstance(value, list):
            raise UnfitError
        kept = list[JsonValue]()
        for item in value:
            with suppress(UnfitError):
                kept.append(shape_of_item(item))
        if len(kept) < least:
            raise UnfitError
        is_same = len(kept) == len(value) and all(legal is item for legal, item in zip(kept, value, strict=True))
        return value if is_same else kept

    return shape


def either(*shapes: Shape) -> Shape:
    """Return the shape of the values that fit one of the shapes; the first that fits decides."""

    def shape(value: JsonValue) -> JsonValue:
        for possible in shapes:
            try:
                return possible(value)
            except UnfitError:
                continue
        raise UnfitError

    return shape


def tagged(kinds: Mapping[str, Shape], *, others: Shape | None = None, refused: Collection[str] = ()) -> Shape:
    """Return the shape of an object that its ``type`` decides.

    ``others`` is the shape of types that are neither known nor ``refused``: providers add some between two releases of their SDKs.
    """

    def shape(value: JsonValue) -> JsonValue:
        kind = value.get("type") if isinstance(value, dict) else None
        shape_of_kind = kinds.get(kind, others) if isinstance(kind, str) and kind and kind not in refused else None
        if shape_of_kind is None:
            raise UnfitError
        return shape_of_kind(value)

    return shape


def typed(required: Mapping[str, Shape], others: Mapping[str, Shape] | None = None) -> Shape:
    """Return the shape of an object whose ``type`` is known; see `tagged`."""
    return fields({"type": text, **required}, others)


def with_any(keys: Collection[str], shape_of_all: Shape) -> Shape:
    """Return a shape whose values have at least one of some members, and not an empty one."""

    def shape(value: JsonValue) -> JsonValue:
        kept = shape_of_all(value)
        if not isinstance(kept, dict) or not any(kept.get(key) for key in keys):
            raise UnfitError
        return kept

    return shape


text = matching(lambda value: isinstance(value, str))
filled = matching(lambda value: isinstance(value, str) and value != "")
visible = matching(lambda value: isinstance(value, str) and value.strip() != "")
flag = matching(lambda value: isinstance(value, bool))
mapping = matching(lambda value: isinstance(value, dict))
listing = matching(lambda value: isinstance(value, list))


def _pattern(pattern: str) -> Shape:
    compiled = re.compile(pattern, re.DOTALL)
    return matching(lambda value: isinstance(value, str) and compiled.fullmatch(value) is not None)


_ADDRESS = _pattern("https?://.+")


def _named(shape: Shape, name: Callable[[JsonObject], str], line: Callable[[str], JsonObject]) -> Shape:
    """Return a shape that replaces an unfit block by a line with its name; an unfit block without a name stays unfit."""

    def shape_or_line(value: JsonValue) -> JsonValue:
        with suppress(UnfitError):
            return shape(value)
        label = name(value) if isinstance(value, dict) else ""
        if not label:
            raise UnfitError
        return line(label)

    return shape_or_line


# ---------------------------------------------------------------- Anthropic

_SHOWN = frozenset({"image", "document", "search_result", "container_upload"})
"""Blocks that leave a line behind where the provider does not take them."""
_CACHE_CONTROL = fields({"type": one_of("ephemeral")}, {"ttl": optional(one_of("5m 1h"))})
_MARK: Mapping[str, Shape] = {"cache_control": optional(_CACHE_CONTROL)}
_CITATIONS_OF_FILE = optional(mapping)


def _block(required: Mapping[str, Shape], others: Mapping[str, Shape] | None = None) -> Shape:
    return typed(required, {**_MARK, **(others or {})})


_LINKED = (
    fields({"type": one_of("url"), "url": _ADDRESS}),
    fields({"type": one_of("file"), "file_id": _pattern("(?!file-).+")}),
)
_IMAGE_SOURCE = fields({"type": one_of("base64"), "media_type": text, "data": text})
_TEXT = _block({"text": visible})
_TEXTS = items(tagged({"text": _TEXT}))


def _image_source(value: JsonValue) -> JsonValue:
    """Return the source of an image with the type that its bytes have; the provider compares them."""
    source = object_of(_IMAGE_SOURCE(value))
    kind = image_type(str(source["data"]))
    if kind is None:
        raise UnfitError
    return source if source["media_type"] == kind else {**source, "media_type": kind}


_IMAGE = _block({"source": either(_image_source, *_LINKED)}, {"transformations": anything})
_NESTED = items(tagged({"text": _TEXT, "image": _IMAGE}), least=1)
_DOCUMENT = _block(
    {
        "source": either(
            fields({"type": one_of("base64"), "media_type": one_of("application/pdf"), "data": filled}),
            fields({"type": one_of("text"), "media_type": one_of("text/plain"), "data": filled}),
            fields({"type": one_of("content"), "content": either(filled, _NESTED)}),
            *_LINKED,
        )
    },
    {"citations": _CITATIONS_OF_FILE, "context": optional(text), "title": optional(text)},
)
_SEARCH_RESULT = _block(
    {"source": text, "title": text, "content": items(tagged({"text": _TEXT}), least=1)},
    {"citations": _CITATIONS_OF_FILE},
)
_COMPACTION = _block(
    {"content": optional(visible)},
    {**dict.fromkeys(("encrypted_content", "signature"), optional(text)), "tool_changes": anything},
)
_FROM_USER: Mapping[str, Shape] = {
    "text": _TEXT,
    "image": _IMAGE,
    "document": _DOCUMENT,
    "search_result": _SEARCH_RESULT,
    "container_upload": _block({"file_id": text}),
}
_SERVER_TOOLS = "web_search web_fetch code_execution bash_code_execution text_editor_code_execution tool_search advisor"
_SERVER_RESULTS = [f"{tool}_tool_result" for tool in _SERVER_TOOLS.split()]
_FROM_ASSISTANT: Mapping[str, Shape] = {
    "text": _block({"text": visible}, {"citations": optional(listing)}),
    "thinking": typed({"thinking": text, "signature": filled}),
    "redacted_thinking": typed({"data": filled}),
    "tool_use": _block({"id": text, "name": text, "input": mapping}, {"caller": anything, "toolset_name": anything}),
    "server_tool_use": _block({"id": filled, "name": filled, "input": mapping}, {"caller": anything}),
    "mcp_tool_use": _block({"id": filled, "name": filled, "input": mapping, "server_name": filled}),
    "mcp_tool_result": _block({"tool_use_id": filled}, {"content": either(text, _TEXTS), "is_error": flag}),
    **dict.fromkeys(_SERVER_RESULTS, _block({"tool_use_id": filled, "content": anything}, {"caller": anything})),
    "compaction": _COMPACTION,
    "container_upload": _FROM_USER["container_upload"],
    "fallback": typed({"from": mapping, "to": mapping}, {"trigger": anything}),
    "mcp_tool_listing": typed({"mcp_server_name": filled, "tools": listing}),
}
_OF_OTHER_APIS = frozenset(
    {
        *("image_url", "input_text", "input_image", "input_file", "input_audio", "output_text", "refusal", "file"),
        *("function", "function_call", "function_call_output", "tool_call", "toolUse", "toolResult", "reasoning"),
    }
)
_NOT_IN_RESULTS = _OF_OTHER_APIS | {"tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use"}


def _anthropic_content(kinds: Mapping[str, Shape], refused: frozenset[str]) -> Shape:
    block = tagged(kinds, others=fields({}, _MARK, rest=anything), refused=refused)

    def name(value: JsonObject) -> str:
        return str(value.get("type")) if value.get("type") in _SHOWN else ""

    return items(_named(block, name, lambda label: {"type": "text", "text": f"[{label}]"}))


_FROM_CALLER: Mapping[str, Shape] = {
    "tool_reference": _block({"tool_name": text}),
    "browser_state": _block({"tabs": listing}, {"state_changes": anything}),
}
_IN_RESULT = either(
    matching(lambda value: value == ""),
    visible,
    _anthropic_content({**_FROM_USER, **_FROM_CALLER}, _NOT_IN_RESULTS),
)
_RESULT = _block(
    {"tool_use_id": text},
    {"content": optional(_IN_RESULT), "is_error": optional(flag), "toolset_name": anything},
)


def _anthropic_result(value: JsonValue) -> JsonValue:
    result = _RESULT(value)
    if not isinstance(result, dict) or result.get("is_error") is not True:
        return result
    content = result.get("content")
    if not content:
        return {**result, "content": NO_OUTPUT}
    if isinstance(content, list) and any(block.get("type") != "text" for block in objects_in(content)):
        # Refused, see https://github.com/vellum-ai/vellum-assistant/pull/18387
        plain = {name: value for name, value in result.items() if name != "is_error"}
        return {**plain, "content": [{"type": "text", "text": ERROR_PREFIX}, *content]}
    return result


_ANTHROPIC_CONTENT = {
    "user": _anthropic_content(
        {**_FROM_USER, "compaction": _COMPACTION, "tool_result": _anthropic_result},
        _OF_OTHER_APIS | {"tool_use", "thinking", "redacted_thinking", "server_tool_use"},
    ),
    "assistant": _anthropic_content(_FROM_ASSISTANT, _OF_OTHER_APIS | {"tool_result", "image", "document"}),
}

# ---------------------------------------------------------------- Bedrock Converse


_LOCATION = fields(
    {"uri": _pattern(r"s3://[a-z0-9][.\-a-z0-9]{1,61}[a-z0-9](/.*)?")}, {"bucketOwner": _pattern("[0-9]{12}")}
)
_MEDIA_SOURCE = union({"bytes": filled, "s3Location": _LOCATION})
_PLAIN = union({"text": text})
_CITED = fields({"enabled": flag})
_CONVERSE_IMAGE_PARTS = fields({"format": one_of("png jpeg gif webp"), "source": _MEDIA_SOURCE}, {"error": mapping})
_CONVERSE_VIDEO = fields({"format": one_of("mkv mov mp4 webm flv mpeg mpg wmv three_gp"), "source": _MEDIA_SOURCE})
_SOUNDS = one_of("mp3 opus wav aac flac mp4 ogg mkv mka x-aac m4a mpeg mpga pcm webm")
_CONVERSE_AUDIO = fields({"format": _SOUNDS, "source": _MEDIA_SOURCE}, {"error": mapping})
_CONVERSE_DOCUMENT = fields(
    {"source": union({"bytes": filled, "s3Location": _LOCATION, "text": text, "content": items(_PLAIN, least=1)})},
    {
        "name": text,
        "format": one_of("pdf csv doc docx xls xlsx html txt md"),
        "context": text,
        "citations": _CITED,
    },
)
_CONVERSE_SEARCH = fields(
    {"source": text, "title": text, "content": items(fields({"text": text}))}, {"citations": _CITED}
)


def _converse_image(value: JsonValue) -> JsonValue:
    """Return an image with the format that its bytes have."""
    data = object_of(object_of(value).get("source")).get("bytes")
    if isinstance(value, dict) and isinstance(data, str):
        kind = (image_type(data) or "").removeprefix("image/")
        value = value if value.get("format") == kind else {**value, "format": kind}
    return _CONVERSE_IMAGE_PARTS(value)


_GUARD = union(
    {
        "text": fields({"text": text}, {"qualifiers": items(one_of("grounding_source query guard_content"))}),
        "image": fields({"format": one_of("png jpeg"), "source": union({"bytes": filled})}),
    }
)
_CACHE_POINT = fields({"type": one_of("default")}, {"ttl": one_of("5m 1h")})
_TOOL_CHANGE = fields({"tool": mapping})
_RESULT_PART = union(
    {
        "json": mapping,
        "text": visible,
        "image": _converse_image,
        "document": _CONVERSE_DOCUMENT,
        "video": _CONVERSE_VIDEO,
        "searchResult": _CONVERSE_SEARCH,
    }
)


def _part_of_result(value: JsonValue) -> JsonValue:
    """Return a part of a result; JSON that is not an object becomes text."""
    if isinstance(value, dict) and "json" in value and not isinstance(value["json"], dict):
        return _RESULT_PART({"text": json_text(value["json"])})
    return _RESULT_PART(value)


_MEDIA_NAMES = ("image", "document", "video", "audio", "searchResult", "guardContent")


def _converse_content(block: Shape, *, least: int = 0) -> Shape:
    def name(value: JsonObject) -> str:
        return next((name for name in _MEDIA_NAMES if name in value), "")

    return items(_named(block, name, lambda label: {"text": f"[{label}]"}), least=least)


_CONVERSE_ID = _pattern("[a-zA-Z0-9_.:-]{1,64}")
_CONVERSE_RESULT = fields(
    {"toolUseId": _CONVERSE_ID},
    {"content": _converse_content(_part_of_result, least=1), "status": one_of("success error"), "type": text},
)


def _converse_result(value: JsonValue) -> JsonValue:
    if isinstance(value, dict) and isinstance(value.get("content"), str):
        value = {**value, "content": [{"text": value["content"]}]}
    result = _CONVERSE_RESULT(value)
    return {"content": [{"text": NO_OUTPUT}], **result} if isinstance(result, dict) else result


_CONVERSE_USE = fields({"toolUseId": _CONVERSE_ID, "name": text, "input": mapping})
_SERVER_NAME, _SERVER_TYPE = _pattern("[a-zA-Z0-9_-]{1,64}"), one_of("server_tool_use")
_CONVERSE_SERVER_USE = fields({"toolUseId": _CONVERSE_ID, "name": _SERVER_NAME, "input": mapping, "type": _SERVER_TYPE})


def _converse_use(value: JsonValue) -> JsonValue:
    """Return a call; one with a type is of a tool that the provider runs."""
    is_server = isinstance(value, dict) and isinstance(value.get("type"), str)
    return _CONVERSE_SERVER_USE(value) if is_server else _CONVERSE_USE(value)


_CONVERSE_CONTENT = {
    "user": _converse_content(
        union(
            {
                "toolResult": _converse_result,
                "text": visible,
                "image": _converse_image,
                "document": _CONVERSE_DOCUMENT,
                "video": _CONVERSE_VIDEO,
                "audio": _CONVERSE_AUDIO,
                "guardContent": _GUARD,
                "searchResult": _CONVERSE_SEARCH,
                "toolAddition": _TOOL_CHANGE,
                "toolRemoval": _TOOL_CHANGE,
                "cachePoint": _CACHE_POINT,
            }
        )
    ),
    "assistant": _converse_content(
        union(
            {
                "toolUse": _converse_use,
                "toolResult": fields(
                    {"toolUseId": _CONVERSE_ID, "type": text, "content": _converse_content(_part_of_result)},
                    {"status": one_of("success error")},
                ),
                "text": visible,
                "reasoningContent": union(
                    {"reasoningText": fields({"text": text}, {"signature": text}), "redactedContent": filled}
                ),
                "citationsContent": fields({}, {"content": items(_PLAIN), "citations": items(mapping)}),
                "video": _CONVERSE_VIDEO,
                "audio": _CONVERSE_AUDIO,
                "cachePoint": _CACHE_POINT,
            }
        )
    ),
}

# ---------------------------------------------------------------- OpenAI


def _any_of(keys: str) -> Mapping[str, Shape]:
    return dict.fromkeys(keys.split(), anything)


_CACHED, _PART = _any_of("cache_control prompt_cache_breakpoint"), _any_of("prompt_cache_breakpoint")
_KINDS_OF_PARTS = {"image_url": "image", "input_image": "image", "file": "file", "input_file": "file"}


def _parts(shape: Shape, text_type: str, *, least: int = 0) -> Shape:
    """Return the shape of a list of parts; an image or a file that the provider refuses becomes a line of text."""

    def name(part: JsonObject) -> str:
        kind = _KINDS_OF_PARTS.get(str(part.get("type")), "")
        named = string_of(object_of(part.get("file", part)).get("filename"))
        return f"{kind}: {named}" if kind and named else kind

    return items(_named(shape, name, lambda label: {"type": text_type, "text": f"[{label}]"}), least=least)


def _image_url(value: JsonValue) -> JsonValue:
    """Return the address of an image: one of the web, or its data with the type of its bytes."""
    match = DATA_URL.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return _ADDRESS(value)
    if (kind := image_type(match[2])) is None:
        raise UnfitError
    return value if match[1] == kind else f"data:{kind};base64,{match[2]}"


def _file(types: str, shape_of_file: Shape) -> Shape:
    """Return the shape of a file whose data has one of ``types``. The provider wants data as a data URL, and a name with it.

    https://github.com/langchain-ai/langchainjs/pull/9570
    """
    accepted = re.compile(types)

    def shape(value: JsonValue) -> JsonValue:
        file = shape_of_file(value)
        data = file.get("file_data") if isinstance(file, dict) else None
        if not isinstance(file, dict) or not isinstance(data, str):
            return file
        match = DATA_URL.fullmatch(f"data:application/pdf;base64,{data}" if data.startswith(_PDF) else data)
        if match is not None and not accepted.fullmatch(match[1]):
            raise UnfitError
        if match is None:
            _ADDRESS(data)  # https://openrouter.ai/docs/features/multimodal/pdfs
        name = f"file.{FILE_TYPES.get(match[1] if match else '', 'txt')}"
        legal: JsonObject = {"filename": "", **file, "file_data": match[0] if match else data}
        legal["filename"] = legal["filename"] or name
        return file if legal == file else legal

    return shape


_PDF = "JVBER"  # the base64 of "%PDF"
FILE_TYPES = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "text/html": "html",
    "text/plain": "txt",
    "text/markdown": "md",
}
"""Media type of a file -> the ending of its name, and its format for Converse."""
_FILE = ("file_id", "file_data", "file_url")
_FILE_ID = _pattern("(?!file_01).*")  # ids of Anthropic begin so, and those of OpenAI with "file-"
_CHAT_FILE = with_any(_FILE, fields({}, {"file_id": _FILE_ID, "file_data": text, "filename": text}))
_CHAT_PARTS = tagged(
    {
        "text": typed({"text": text}, _CACHED),
        "refusal": typed({"refusal": text}),
        "image_url": typed({"image_url": fields({"url": _image_url}, {"detail": text})}, _CACHED),
        "input_audio": typed({"input_audio": fields({"data": text, "format": text})}, _PART),
        "file": typed({"file": _file("application/pdf", _CHAT_FILE)}, _CACHED),
    }
)
_CHAT_CONTENT = {"content": optional(either(text, _parts(_CHAT_PARTS, "text")))}
_CHAT_CALL = fields(
    {"id": text, "type": text},
    {
        "function": fields({"name": text, "arguments": text}),
        "custom": fields({"name": text, "input": text}),
        "extra_content": anything,
    },
)
_SPOKEN = fields({"role": text}, {**_CHAT_CONTENT, "name": optional(text)})
_CHAT = {
    "assistant": fields(
        {"role": text},
        {
            **_CHAT_CONTENT,
            "tool_calls": optional(items(_CHAT_CALL)),
            "audio": optional(fields({"id": text})),
            **_any_of("name refusal function_call annotations"),
            **_any_of("reasoning_content reasoning reasoning_details thinking_blocks prefix extra_content"),
        },
    ),
    "tool": fields({"role": text}, {**_CHAT_CONTENT, **_any_of("tool_call_id name")}),
}

_DETAIL = optional(one_of("auto low high original"))
_INPUT_FILE = {
    **_PART,
    **dict.fromkeys(("file_data", "filename"), optional(text)),
    "file_id": optional(_FILE_ID),
    "file_url": optional(_ADDRESS),
    "detail": _DETAIL,
}
_INPUTS = tagged(
    {
        "input_text": typed({"text": text}, _PART),
        "input_image": with_any(
            ("image_url", "file_id"),
            typed({}, {**_PART, "image_url": optional(_image_url), "file_id": optional(_FILE_ID), "detail": _DETAIL}),
        ),
        # https://developers.openai.com/api/docs/guides/file-inputs: texts and documents of office programs, too.
        "input_file": _file(
            "text/.+|application/(?!octet-stream|zip|gzip|x-).+", with_any(_FILE, typed({}, _INPUT_FILE))
        ),
    }
)
_OUTPUTS = tagged(
    {
        "output_text": typed({"text": text}, {"annotations": optional(listing), "logprobs": anything}),
        "refusal": typed({"refusal": text}),
    }
)


def _id(prefix: str) -> Shape:
    return _pattern(rf"{prefix}[a-zA-Z0-9_-]*" if prefix else "[a-zA-Z0-9_-]+")


def _item(prefix: str, required: Mapping[str, Shape], others: str) -> Shape:
    return typed(required, {**dict.fromkeys(others.split(), _PRESENT), "id": _id(prefix), "status": _STATUS})


def _reasoning(value: JsonValue) -> JsonValue:
    if isinstance(value, dict) and not isinstance(value.get("summary"), list):
        value = {**value, "summary": []}
    return _REASONING(value)


_STATUS = one_of("in_progress completed incomplete")
_PRESENT = matching(lambda value: value is not None)  # SDKs write null for an absent member, which is refused


def _message(parts: Shape) -> Shape:
    return fields(
        {
            "role": one_of("user assistant system developer"),
            "content": either(text, _parts(parts, "input_text", least=1)),
        },
        {"type": text, "id": _id("msg"), "status": _STATUS, "phase": one_of("commentary final_answer")},
    )


_ANSWER, _SAID = _message(_OUTPUTS), _message(_INPUTS)


def _of_role(value: JsonValue) -> JsonValue:
    is_answer = isinstance(value, dict) and value.get("role") == "assistant"
    return (_ANSWER if is_answer else _SAID)(value)


_OUTPUT = either(text, _parts(_INPUTS, "input_text", least=1))
_REASONING = typed(
    {"summary": items(fields({"type": one_of("summary_text"), "text": text}))},
    {
        "id": _id("rs"),
        "content": items(fields({"type": one_of("reasoning_text"), "text": text})),
        "encrypted_content": text,
    },
)
HOSTED = {
    "web_search_call": "status action",
    "file_search_call": "status queries results",
    "code_interpreter_call": "status code container_id outputs",
    "image_generation_call": (
        "status result action background error output_format quality revised_prompt size svg_usage"
    ),
    "mcp_call": "status server_label name arguments output error approval_request_id",
    "mcp_list_tools": "server_label tools error",
    "mcp_approval_request": "server_label name arguments",
    "mcp_approval_response": "approval_request_id approve reason",
    "compaction": "encrypted_content",
    "tool_search_call": "status call_id arguments execution",
    "tool_search_output": "status call_id tools execution",
    "shell_call": "status call_id action caller environment",
    "shell_call_output": "status call_id output caller max_output_length",
    "local_shell_call": "status call_id action",
    "local_shell_call_output": "status call_id output",
    "apply_patch_call": "status call_id operation caller",
    "apply_patch_call_output": "status call_id output caller",
    "computer_call": "status call_id action actions pending_safety_checks",
    "computer_call_output": "status call_id output acknowledged_safety_checks",
    "additional_tools": "role tools",
    "configuration_update": "reasoning text",
}
"""Type of an item that only OpenAI Responses has -> its keys besides ``type`` and ``id`` (the type ``ResponseInputItemParam``)."""
_ITEMS = tagged(
    {
        "message": _of_role,
        "reasoning": _reasoning,
        "function_call": _item("fc", {"call_id": filled, "name": text, "arguments": text}, "caller namespace async"),
        "function_call_output": _item("fc", {"call_id": filled, "output": _OUTPUT}, "caller name namespace"),
        "custom_tool_call": _item("ctc", {"call_id": filled, "name": text, "input": text}, "caller namespace async"),
        "custom_tool_call_output": _item("ctc", {"call_id": filled, "output": _OUTPUT}, "caller name namespace"),
        "item_reference": typed({"id": _pattern("[a-zA-Z0-9_-]+")}),
        **{kind: typed({}, {**_any_of(keys), "id": _id("")}) for kind, keys in HOSTED.items()},
    },
    others=fields({}, {"id": _id("")}, rest=anything),
    refused=frozenset(
        {
            *("text", "image", "image_url", "document", "file", "refusal", "thinking", "redacted_thinking"),
            *("input_text", "input_image", "input_file", "output_text", "summary_text"),
            *("tool_use", "tool_result", "tool_call", "toolUse", "toolResult", "function", "custom", "tool"),
            "compaction_trigger",  # it asks for a compaction of this one request, as its last item
        }
    ),
)


def _item_of_input(value: JsonValue) -> JsonValue:
    """Return an item. Without a type it is a message; with another type than a message's it has no role."""
    if isinstance(value, dict) and value.get("type", "message") != "message" and {"role", "content"} <= value.keys():
        raise UnfitError
    return _ITEMS(value) if isinstance(value, dict) and "type" in value else _of_role(value)


# ---------------------------------------------------------------- whole messages


def _with_content(content: Mapping[str, Shape]) -> Mapping[str, Shape]:
    return {role: fields({"role": text, "content": either(visible, blocks)}) for role, blocks in content.items()}


_MESSAGES: Mapping[str, Mapping[str, Shape]] = {
    "anthropic": _with_content(_ANTHROPIC_CONTENT),
    "bedrock_converse": _with_content(_CONVERSE_CONTENT),
    "openai_chat": {**dict.fromkeys(("system", "developer", "user"), _SPOKEN), **_CHAT},
}


def fitted(body: JsonObject, format: str) -> JsonObject | None:
    """Return the legal form of a provider's message: ``body`` itself when it is legal, None when it has no legal form."""
    shape = _item_of_input if format == "openai_responses" else _MESSAGES[format].get(str(body.get("role")))
    try:
        legal = shape(body) if shape is not None else None
    except UnfitError:
        return None
    return legal if isinstance(legal, dict) else None


# ---------------------------------------------------------------- what no rule knows

_TURNLOG_MEDIA = with_any(("data", "url", "file_id"), mapping)
_ANTHROPIC_KINDS = {**_FROM_USER, **_FROM_ASSISTANT, **_FROM_CALLER, "tool_result": mapping}
CONVERSE_KINDS: Mapping[str, Shape] = {
    **_any_of("text json toolUse toolResult reasoningContent citationsContent guardContent searchResult cachePoint"),
    **_any_of("toolAddition toolRemoval"),
    "image": _converse_image,
    "document": _CONVERSE_DOCUMENT,
    "video": _CONVERSE_VIDEO,
    "audio": _CONVERSE_AUDIO,
}
"""Key of a content block of Converse, which has no ``type`` -> the shape under it, as far as it must be known."""
KNOWN_BLOCKS: Mapping[str, Shape] = {
    "openai_chat": either(text, _CHAT_PARTS),
    "openai_responses": either(_INPUTS, _OUTPUTS, tagged({"text": mapping, "reasoning_text": mapping})),
    "anthropic": tagged({kind: shape if kind in _SHOWN else mapping for kind, shape in _ANTHROPIC_KINDS.items()}),
    "bedrock_converse": union(CONVERSE_KINDS),
    "turnlog": tagged({**_any_of("text thinking"), **dict.fromkeys(("image", "file", "audio"), _TURNLOG_MEDIA)}),
}
