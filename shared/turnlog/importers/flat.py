"""Flat message lists, a shape that many agents use.

``{systemMessage, messages: [{kind, content?, toolCalls?, callId?, timestamp (ms)}], partialMessage, lastSentToLLMAt (ms)}``; or
the list of messages alone. Messages are stored in the format `openai_chat`, whose arguments are text, too; other fields are in
metadata. An interrupted ``partialMessage`` comes last and stays out of windows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from turnlog.core.times import rfc3339
from turnlog.importers.models import (
    MAX_SYSTEM,
    NOT_AN_OBJECT,
    SourceFile,
    SourceMessage,
    SourceRemark,
    SourceSession,
    content_of,
    id_warnings,
    objects_of,
    session_id_of,
    take,
    take_meta,
)
from turnlog.providers.blocks import json_text, objects_in

SHAPE = "flat"
_READ_FIELDS = ("messages", "systemMessage", "partialMessage")
_OWN_FIELDS = (*_READ_FIELDS[1:], "lastSentToLLMAt")
_OF_OTHERS = frozenset({"role", "type", "message", "messages", "history"})
_MAX_MS = 253_402_300_800_000
"""The end of the year 9999."""


def recognises(file: SourceFile) -> bool:
    if _is_list(file.document):
        return True
    values = [value for _, value in file.values]
    return bool(values) and all(map(_is_session, values))


def read(file: SourceFile) -> Iterator[SourceSession]:
    if _is_list(file.document):
        yield _session(file.path.stem, {"messages": file.document})
        return
    for place, value in file.values:
        yield _session(file.source_id(value, place, "id", "sessionId", "session_id"), value)


def _is_list(value: Any) -> bool:
    """Return whether a list has messages with a kind, and no object of another shape. Entries without a kind are reported."""
    objects = objects_in(value)
    return any("kind" in entry for entry in objects) and not any(
        _OF_OTHERS & entry.keys() for entry in objects if "kind" not in entry
    )


def _is_session(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        return False
    return any(name in value for name in _OWN_FIELDS) or _is_list(value["messages"])


def _session(source_id: str, value: dict[str, Any]) -> SourceSession:
    rest = {name: item for name, item in value.items() if name not in _READ_FIELDS}
    warnings, settings = list(id_warnings(source_id)), dict[str, Any]()
    system = value.get("systemMessage")
    if system is not None:
        fields = system if isinstance(system, dict) else {"content": system}
        text = fields.get("content")
        if isinstance(text, str) and len(text) <= MAX_SYSTEM:
            settings["system"], unread = text, _without(fields, "content")
        else:
            warnings.append(SourceRemark("systemMessage", "not_a_text"))
            unread = system
        if unread:
            rest["systemMessage"] = unread
    objects, skipped = objects_of(value["messages"])
    messages = [_message(message, place, warnings) for place, message in objects.items()]
    partial = value.get("partialMessage")
    if partial is not None:
        fields = partial if isinstance(partial, dict) else {"content": partial}
        interrupted = _message({"kind": "assistant", **fields}, "partialMessage", warnings)
        meta = {**interrupted.meta, "status": "interrupted"}
        messages.append(SourceMessage(interrupted.place, interrupted.body, meta))
    return SourceSession(
        id=session_id_of(source_id),
        shape=SHAPE,
        source_id=source_id,
        format="openai_chat",
        messages=tuple(messages),
        settings=settings,
        extra=rest | ({"skipped": skipped} if skipped else {}),
        skipped=tuple(SourceRemark(place, NOT_AN_OBJECT) for place in skipped),
        last_sent_at=_time(value.get("lastSentToLLMAt")),
        warnings=tuple(warnings),
    )


def _message(value: dict[str, Any], place: str, warnings: list[SourceRemark]) -> SourceMessage:
    rest = dict(value)
    kind = rest.pop("kind", None)
    if not isinstance(kind, str) or not kind:
        warnings.append(SourceRemark(place, "no_kind"))
        rest, kind = dict(value), "unknown"
    body: dict[str, Any] = {"role": kind}
    if kind == "tool":
        body["tool_call_id"] = json_text(take(rest, "callId", "toolCallId", "tool_call_id"))
    content = content_of(take(rest, "content", "text"))
    body["content"] = "" if content is None and kind != "assistant" else content
    calls = take(rest, "toolCalls", "tool_calls")
    if isinstance(calls, list) and calls and all(isinstance(call, dict) for call in calls):
        unread = [_flat_call(call) for call in calls]
        body["tool_calls"] = [_take_call(call) for call in unread]
        if any(unread):
            rest["toolCalls"] = unread
    elif calls:
        warnings.append(SourceRemark(place, "calls_not_read"))
        rest["toolCalls"] = calls
    return SourceMessage(place, body, take_meta(rest, place, warnings, _time))


def _flat_call(call: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a call, with its name and arguments also when it has them in ``function``, as in OpenAI Chat."""
    function = call.get("function")
    if isinstance(function, dict) and not function.keys() & call.keys():
        return {**_without(call, "function"), **function}
    return dict(call)


def _take_call(rest: dict[str, Any]) -> dict[str, Any]:
    """Return the call that ``rest`` begins with; remove from it the fields that the call takes."""
    arguments = take(rest, "input", "arguments", "args")
    function = {"name": json_text(rest.pop("name", None)), "arguments": json_text(arguments)}
    return {"id": json_text(rest.pop("id", None)), "type": "function", "function": function}


def _without(value: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: item for name, item in value.items() if name not in names}


def _time(value: Any) -> str | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return rfc3339(int(value)) if is_number and 0 <= value < _MAX_MS else None
