"""Session documents: ``{id, user_id, state, version, created_at, updated_at, history: [{role, text, tool_calls?, tool_result?,
timestamp, metadata}]}``.

Messages are stored in the format `turnlog`, whose arguments are objects, too. A document of a newer version than `VERSION` is
refused, since its fields may mean something else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from turnlog.importers.models import (
    NOT_AN_OBJECT,
    NewerSourceError,
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
    time_of,
)
from turnlog.providers.blocks import json_text

SHAPE = "document"
VERSION = 1
_READ_FIELDS = ("id", "state", "history", "metadata")


def recognises(file: SourceFile) -> bool:
    values = [value for _, value in file.values]
    return bool(values) and all(
        isinstance(value, dict) and isinstance(value.get("history"), list) and ("id" in value or "version" in value)
        for value in values
    )


def read(file: SourceFile) -> Iterator[SourceSession]:
    """Yield the sessions of a file. One of a newer version is refused alone."""
    for place, value in file.values:
        source_id, version = file.source_id(value, place, "id"), value.get("version", VERSION)
        if isinstance(version, int) and not isinstance(version, bool) and 0 <= version <= VERSION:
            yield _session(source_id, value)
        else:
            text = str(version)[:40]
            message = f"session document {source_id[:80]!r} has version {text!r}; the newest we read is {VERSION}"
            refusal = NewerSourceError(message, details={"version": text})
            yield SourceSession(session_id_of(source_id), SHAPE, source_id, "turnlog", (), refusal=refusal)


def _session(source_id: str, value: dict[str, Any]) -> SourceSession:
    rest = {name: item for name, item in value.items() if name not in _READ_FIELDS}
    warnings = list(id_warnings(source_id))
    objects, skipped = objects_of(value["history"])
    messages = [_message(message, place, warnings) for place, message in objects.items()]
    state, metadata = value.get("state"), value.get("metadata")
    for name, field in (("state", state), ("metadata", metadata)):
        if field is not None and not isinstance(field, dict):
            warnings.append(SourceRemark(name, NOT_AN_OBJECT))
            rest[name] = field
    return SourceSession(
        id=session_id_of(source_id),
        shape=SHAPE,
        source_id=source_id,
        format="turnlog",
        messages=tuple(messages),
        state=state if isinstance(state, dict) and state else None,
        metadata=metadata if isinstance(metadata, dict) else None,
        extra=rest | ({"skipped": skipped} if skipped else {}),
        skipped=tuple(SourceRemark(place, NOT_AN_OBJECT) for place in skipped),
        warnings=tuple(warnings),
    )


def _message(value: dict[str, Any], place: str, warnings: list[SourceRemark]) -> SourceMessage:
    rest = dict(value)
    role = rest.pop("role", None)
    if not isinstance(role, str) or not role:
        warnings.append(SourceRemark(place, "no_role"))
        rest, role = dict(value), "unknown"
    body: dict[str, Any] = {"role": role, "content": content_of(take(rest, "text", "content"))}
    _take_calls(rest, body, place, warnings)
    _take_results(rest, body, place, warnings)
    metadata = rest.pop("metadata", None)
    if metadata is not None and not isinstance(metadata, dict):
        rest["metadata"], metadata = metadata, None
    return SourceMessage(place, body, take_meta(rest, place, warnings, time_of, metadata))


def _take_calls(rest: dict[str, Any], body: dict[str, Any], place: str, warnings: list[SourceRemark]) -> None:
    calls = rest.pop("tool_calls", None)
    if isinstance(calls, list) and all(isinstance(call, dict) for call in calls):
        if calls:
            body["tool_calls"] = [_call(call) for call in calls]
    elif calls is not None:
        warnings.append(SourceRemark(place, "calls_not_read"))
        rest["tool_calls"] = calls


def _take_results(rest: dict[str, Any], body: dict[str, Any], place: str, warnings: list[SourceRemark]) -> None:
    result = rest.pop("tool_result", None)
    results = [result] if isinstance(result, dict) else result
    if isinstance(results, list) and results and all(isinstance(item, dict) for item in results):
        unread = list(map(dict, results))
        body["tool_results"] = [_take_result(item) for item in unread]
        if any(unread):
            rest["tool_result"] = unread if isinstance(result, list) else unread[0]
    elif result is not None:
        warnings.append(SourceRemark(place, "result_not_read"))
        rest["tool_result"] = result


def _call(call: dict[str, Any]) -> dict[str, Any]:
    """Return a call with its arguments under the name ``args``."""
    rest = dict(call)
    arguments = take(rest, "args", "arguments", "input")
    return call if arguments is None else {**rest, "args": arguments}


def _take_result(rest: dict[str, Any]) -> dict[str, Any]:
    """Return the result that ``rest`` holds; remove from it the fields that the result takes."""
    call_id = json_text(take(rest, "tool_call_id", "call_id", "id"))
    fields = {"tool_call_id": call_id, "result": take(rest, "content", "result", "output")}
    return fields | ({"is_error": rest.pop("is_error")} if "is_error" in rest else {})
