"""The codec of OpenAI Chat Completions.

Source of the shapes: https://platform.openai.com/docs/api-reference/chat/create. Legacy ``function_call`` and ``function``
messages are parsed, and rendered as tool calls. A tool message takes texts alone, so the media of results are sent in a user
message behind the last of the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from turnlog.core.json_values import JsonObject, JsonValue
from turnlog.core.messages import Block, Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult, text_of
from turnlog.providers import BEFORE_ALL, Codec, End, Rendered, Turn
from turnlog.providers.blocks import (
    AUTHOR_NAME,
    content_with_name,
    data_url,
    fenced,
    file_fields,
    given_role,
    invalid_message,
    is_safe_name,
    json_text,
    legal_tool_name,
    marked_error,
    media_from_file,
    media_from_url,
    objects_in,
    parts_of,
    placeholder_text,
    plain_text,
    result_parts,
    role_of,
    string_of,
    text_with_placeholders,
)
from turnlog.providers.shapes import fitted
from turnlog.providers.token_rules import MAX_CALLS

FORMAT = "openai_chat"
MAX_ID = 40
RESULT_OF = "[result of {}]"
"""The text before the media of a result, with the id of its call."""
_USER_PARTS = frozenset({"text", "image_url", "input_audio", "file"})
_PARTS_OF: dict[str, frozenset[str]] = {
    "user": _USER_PARTS,
    "tool": _USER_PARTS,
    "assistant": frozenset({"text", "refusal"}),
}
_TEXT_ONLY = frozenset({"text"})
_SOUNDS = {
    **dict.fromkeys(("audio/wav", "audio/wave", "audio/x-wav", "audio/vnd.wave"), "wav"),
    **dict.fromkeys(("audio/mp3", "audio/mpeg"), "mp3"),
}
"""Media type of a sound -> the format that the provider takes it in."""


class OpenAIChatCodec(Codec):
    """Codec of the `openai_chat` format; see `turnlog.providers.Codec`."""

    format = FORMAT

    def recognises(self, body: JsonObject) -> bool:
        has_function = any("function" in call for call in objects_in(body.get("tool_calls")))
        has_own_field = has_function or "tool_call_id" in body or "function_call" in body
        return has_own_field or body.get("role") in ("developer", "function")

    def parse(self, body: JsonObject, *, is_error: bool | None = None) -> Message:
        role, role_name = role_of(body), given_role(body)
        content = _content(body.get("content"))
        name = string_of(body.get("name"))
        if role == "tool":
            text = text_of(content)
            result = ToolResult(
                tool_call_id=string_of(body.get("tool_call_id")),
                content=content,
                name=name,
                is_error=marked_error(text) if is_error is None else is_error,
                by_name=role_name == "function",
            )
            return Message(role, tool_results=(result,), name=name, given_role=role_name)
        reasoning = string_of(body.get("reasoning_content"))
        if reasoning and role == "assistant":
            content = (Thinking(reasoning), *content)
        if isinstance(body.get("refusal"), str) and not content:
            content = (Text(string_of(body["refusal"])),)
        audio = body.get("audio")
        if role == "assistant" and isinstance(audio, dict):
            content = (*content, *_spoken(audio))
        return Message(role, content=content, tool_calls=_calls(body), name=name, given_role=role_name)

    def legal_id(self, call_id: str) -> bool:
        return 0 < len(call_id) <= MAX_ID

    def render(self, turns: Sequence[Turn], *, system: str | None, tools: Sequence[JsonObject]) -> Rendered:
        layout = _Layout([] if system is None else [{"role": "system", "content": system}])
        bodies = [self.bodies(turn) for turn in turns]
        for turn_bodies in bodies:
            layout.add_turn(turn_bodies)
        layout.end_results()
        messages = layout.messages or [{"role": "assistant", "content": ""}]  # the provider needs a message
        return Rendered(messages, tools=list(tools), ends=tuple(layout.ends), bodies=bodies)

    def repaired(self, turn: Turn, body: JsonObject) -> list[JsonObject] | None:
        """Return the body as it was appended, or a copy with repairs where the provider would refuse it."""
        message = turn.message
        if body.get("role") == "function" or body.get("function_call") is not None or not _legal_content(body, message):
            return None
        if content_with_name(message, has_names=True) is not message.content:
            return None
        repaired = dict(body)
        if message.tool_calls:
            calls = body["tool_calls"]
            assert isinstance(calls, list)  # noqa: S101 - checked by `_calls`
            repaired["tool_calls"] = [
                _repaired_call(call, parsed, call_id)
                for call, parsed, call_id in zip(calls, message.tool_calls, turn.call_ids, strict=True)
            ]
        elif repaired.get("tool_calls") is not None:
            del repaired["tool_calls"]
        if message.tool_results and repaired.get("tool_call_id") != turn.result_ids[0]:
            repaired["tool_call_id"] = turn.result_ids[0]
        if repaired.get("name") is not None and not AUTHOR_NAME.fullmatch(message.name):
            del repaired["name"]
        legal = fitted(repaired, FORMAT)
        return [] if legal is None else _in_messages(legal)

    def rendered(self, turn: Turn) -> list[JsonObject]:
        bodies = [legal for body in _rendered_message(turn) if (legal := fitted(body, FORMAT)) is not None]
        return [message for body in bodies for message in _in_messages(body)]


def _in_messages(body: JsonObject) -> list[JsonObject]:
    """Return a message, as several when it has more calls than the provider takes in one."""
    calls = body.get("tool_calls")
    if not isinstance(calls, list) or len(calls) <= MAX_CALLS:
        return [body]
    further: JsonObject = {"role": "assistant", "content": None}
    parts = [calls[start : start + MAX_CALLS] for start in range(0, len(calls), MAX_CALLS)]
    return [{**(further if index else body), "tool_calls": part} for index, part in enumerate(parts)]


class _Layout:
    """Builds the messages of a request turn by turn, with the media of results behind the last of them.

    Several messages with calls in one turn wait for the last result: each stands before its own results.
    """

    def __init__(self, messages: list[JsonObject]) -> None:
        self.messages, self.ends = messages, list[End]()
        self._media = list[JsonValue]()
        self._calling, self._results = list[JsonObject](), list[JsonObject]()
        self._open_turns = 0

    def add_turn(self, bodies: Sequence[JsonObject]) -> None:
        calling = [body for body in bodies if body.get("tool_calls")]
        for body in bodies:
            if body["role"] == "tool":
                texts, media = _texts_and_media(body)
                (self._results if self._calling else self.messages).append(texts)
                self._media += media
            elif len(calling) < 2:
                self.end_results()
                self.messages.append(body)
        if len(calling) > 1:
            self.end_results()
            self._calling = calling
        self._open_turns += 1
        if not self._media and not self._calling:
            self.end_results()

    def end_results(self) -> None:
        """Send what waits, the media of results last. The turns since the first of these results end behind them."""
        for body in self._calling:
            ids = {call["id"] for call in objects_in(body["tool_calls"])}
            self.messages += [body, *(result for result in self._results if result["tool_call_id"] in ids)]
        self._calling, self._results = [], []
        if self._media:
            self.messages.append({"role": "user", "content": self._media})
            self._media = []
        end = End(len(self.messages) - 1, 1) if self.messages else BEFORE_ALL
        self.ends += [end] * self._open_turns
        self._open_turns = 0


def _texts_and_media(body: JsonObject) -> tuple[JsonObject, list[JsonValue]]:
    """Return a tool message with texts alone, and its media behind a text that names the call; none where it has no media."""
    parts = objects_in(body.get("content"))
    media: list[JsonValue] = [part for part in parts if part["type"] != "text"]
    if not media:
        return body, []
    blocks = map(_part, parts)
    texts: list[JsonValue] = [
        {"type": "text", "text": f"[{block.kind}]"} if isinstance(block, Media) else part
        for part, block in zip(parts, blocks, strict=True)
    ]
    label: JsonObject = {"type": "text", "text": RESULT_OF.format(body["tool_call_id"])}
    return {**body, "content": texts}, [label, *media]


def _content(value: JsonValue) -> tuple[Block, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        return (Text(value),)
    if not isinstance(value, list):
        raise invalid_message("/content", "content is neither a string, a list of parts nor null")
    return tuple(_part(part) for part in value)


def _part(part: JsonValue) -> Block:
    if isinstance(part, str):
        return Text(part)
    if not isinstance(part, dict):
        raise invalid_message("/content", "a content part is neither an object nor a string")
    kind = part.get("type")
    if kind == "text" and isinstance(part.get("text"), str):
        return Text(string_of(part["text"]))
    if kind == "refusal" and isinstance(part.get("refusal"), str):
        return Text(string_of(part["refusal"]))
    image = part.get("image_url")
    if kind == "image_url" and isinstance(image, dict) and isinstance(image.get("url"), str):
        return media_from_url(string_of(image["url"]), detail=string_of(image.get("detail")) or None)
    audio = part.get("input_audio")
    if kind == "input_audio" and _has_strings(audio, "data", "format"):
        return Media("audio", media_type=f"audio/{string_of(audio.get('format'))}", data=string_of(audio.get("data")))
    file = part.get("file")
    if kind == "file" and (_has_strings(file, "file_data") or _has_strings(file, "file_id")):
        return media_from_file(file)
    return Opaque(FORMAT, part)


def _spoken(audio: JsonObject) -> tuple[Block, ...]:
    """Return what an assistant said: the words, where the audio has them, and the sound."""
    sound = Media("audio", data=string_of(audio.get("data")) or None, file_id=string_of(audio.get("id")) or None)
    blocks = Text(string_of(audio.get("transcript"))), sound
    return tuple(block for block in blocks if block not in (Text(""), Media("audio")))


def _has_strings(value: JsonValue, *names: str) -> TypeGuard[JsonObject]:
    return isinstance(value, dict) and all(isinstance(value.get(name), str) for name in names)


def _calls(body: JsonObject) -> tuple[ToolCall, ...]:
    calls = body.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        raise invalid_message("/tool_calls", "tool_calls is neither a list nor null")
    parsed = [_call(call, index) for index, call in enumerate(calls or [])]
    legacy = body.get("function_call")
    if isinstance(legacy, dict):
        parsed.append(ToolCall("", string_of(legacy.get("name")), json_text(legacy.get("arguments"))))
    return tuple(parsed)


def _call(call: JsonValue, index: int) -> ToolCall:
    if not isinstance(call, dict):
        raise invalid_message(f"/tool_calls/{index}", "a tool call is not an object")
    inner = call.get("function", call.get("custom"))
    function = inner if isinstance(inner, dict) else call
    arguments = function.get("arguments", function.get("input", function.get("args")))
    is_text = "function" not in call and "custom" in call
    return ToolCall(string_of(call.get("id")), string_of(function.get("name")), json_text(arguments), is_text=is_text)


# ---------------------------------------------------------------- rendering


def _legal_content(body: JsonObject, message: Message) -> bool:
    content, refusal, audio = body.get("content"), body.get("refusal"), body.get("audio")
    is_refusal, is_audio = isinstance(refusal, str), _has_strings(audio, "id")
    if message.role == "assistant" and (
        (refusal is not None and not is_refusal) or (audio is not None and not is_audio)
    ):
        return False
    if isinstance(content, str):
        return True
    if content is None:
        return message.role == "assistant" and (bool(message.tool_calls) or is_refusal or is_audio)
    allowed = _PARTS_OF.get(string_of(body.get("role")), _TEXT_ONLY)
    return (
        isinstance(content, list)
        and bool(content)
        and all(isinstance(part, dict) and string_of(part.get("type")) in allowed for part in content)
        and not any(
            isinstance(block, Opaque) or (isinstance(block, Media) and plain_text(block)) for block in message.blocks
        )
    )


def _repaired_call(call: JsonValue, parsed: ToolCall, call_id: str) -> JsonObject:
    assert isinstance(call, dict)  # noqa: S101 - parsed before
    has_function = call.get("type") == "function" and _has_strings(call.get("function"), "name", "arguments")
    if has_function and is_safe_name(parsed.name):
        return call if call.get("id") == call_id else {**call, "id": call_id}
    return {**call, **_rendered_call(parsed, call_id)}


def _rendered_call(call: ToolCall, call_id: str) -> JsonObject:
    kind, field = ("custom", "input") if call.is_text else ("function", "arguments")
    return {"id": call_id, "type": kind, kind: {"name": legal_tool_name(call.name), field: call.arguments}}


def _rendered_message(turn: Turn) -> list[JsonObject]:
    message, content = turn.message, content_with_name(turn.message, has_names=True)
    results: list[JsonObject] = [
        {"role": "tool", "tool_call_id": call_id, "content": result_parts(result, _media_part, "text")}
        for result, call_id in zip(message.tool_results, turn.result_ids, strict=True)
    ]
    if message.role == "tool" or (results and not message.content and not message.tool_calls):
        return results
    body: JsonObject = {"role": message.given_role if message.given_role == "developer" else message.role}
    if message.tool_calls:
        body["content"] = text_with_placeholders(content) or None
        body["tool_calls"] = [
            _rendered_call(call, call_id) for call, call_id in zip(message.tool_calls, turn.call_ids, strict=True)
        ]
    elif message.role == "user" and any(isinstance(block, Media) for block in content):
        body["content"] = parts_of(content, _media_part, "text")
    else:
        body["content"] = text_with_placeholders(content)
        if message.role == "assistant" and content and not body["content"]:
            return results
    if AUTHOR_NAME.fullmatch(message.name):
        body["name"] = message.name
    return [*results, body]


def _media_part(media: Media) -> JsonObject:
    """Return the part of the media, the text of a file, or its name as text.

    The provider has no part for some media, e.g. audio with only a URL or in Ogg, or an image with only a file id.
    """
    if media.kind == "audio" and media.data and (sound := _SOUNDS.get(media.media_type or "audio/wav")):
        return {"type": "input_audio", "input_audio": {"data": media.data, "format": sound}}
    if text := plain_text(media):
        return {"type": "text", "text": fenced("file", text)}
    if media.kind == "file" and (media.file_id or media.data):
        return {"type": "file", "file": file_fields(media)}
    if media.kind != "image" or not (media.url or media.data):
        return {"type": "text", "text": placeholder_text(media)}
    image: JsonObject = {"url": media.url or data_url(media, "image/png")}
    return {"type": "image_url", "image_url": image | ({"detail": media.detail} if media.detail else {})}
