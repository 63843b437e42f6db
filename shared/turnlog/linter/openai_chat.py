"""The rules of OpenAI Chat Completions for the ``messages`` of a request, each with its answer and its source.

Not rules, on purpose:

* Unknown keys of a message: bodies are kept verbatim, and many servers of this API take more than OpenAI does.
* ``null`` in an optional field (``tool_calls``, ``function_call``, ``name``, ``refusal``, ``audio``): read as absent;
  the model dumps of SDKs have it.
* The content of ``arguments``: OpenAI demands a string only, and says itself that the model does not always write valid
  JSON (https://platform.openai.com/docs/api-reference/chat/create). Servers that render a chat template do refuse it:
  https://github.com/ggml-org/llama.cpp/pull/25583, https://github.com/sgl-project/sglang/pull/28035.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TypeGuard

from turnlog.linter.openai_chat_table import MAX_ID, MAX_NAME, ROLES, RULES
from turnlog.linter.reading import Findings, entries, is_filled, kind_of, quoted
from turnlog.linter.rules import Violation

_FUNCTION_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{MAX_NAME}}}")
_AUTHOR_NAME = re.compile(r"[^\s<|\\/>]+")
_TEXT_ONLY = frozenset({"text"})
_PART_TYPES = {
    "user": frozenset({"text", "image_url", "input_audio", "file"}),
    "assistant": frozenset({"text", "refusal"}),
}
_PART_FIELDS = {"image_url": ("url",), "input_audio": ("data", "format")}
"""Part type -> the strings that the object under the key of the same name must have."""


def check(messages: object) -> list[Violation]:
    """Every violation, in the order in which a reader from the top can know of it. Never raises; linear."""
    found = Findings(RULES)
    pairing = _Pairing(found)
    for at, message in entries(found, messages):
        if isinstance(message, dict):
            _check_message(found, at, message)
            pairing.take(at, message)
        else:
            found.add("message_not_object", at, f"the message is {kind_of(message)}, not an object")
            pairing.interrupt()
    pairing.interrupt()
    return found.violations


# --- one message by itself


def _check_message(found: Findings, at: str, message: dict[str, object]) -> None:
    role = message.get("role")
    if not (isinstance(role, str) and role in ROLES):
        found.add("unknown_role", f"{at}/role", f"the role is {quoted(role)}")
        return
    _check_name(found, f"{at}/name", message.get("name"), role)
    _check_content(found, at, message, role)
    if role == "assistant":
        _check_assistant(found, at, message)
        return
    for key in ("tool_calls", "function_call"):
        if message.get(key) is not None:
            found.add(f"{key}_wrong_role", f"{at}/{key}", f"a message with role {role!r} has {key}")


def _check_name(found: Findings, at: str, name: object, role: str) -> None:
    if role == "function":
        if not _is_function_name(name):
            found.add("function_name", at, f"the function's name is {quoted(name)}")
    elif name is not None and not (isinstance(name, str) and len(name) <= MAX_NAME and _AUTHOR_NAME.fullmatch(name)):
        found.add("name_invalid", at, f"the name is {quoted(name)}")


def _check_content(found: Findings, at: str, message: dict[str, object], role: str) -> None:
    content, at = message.get("content"), f"{at}/content"
    if content is None:
        may_lack = any(message.get(key) is not None for key in ("tool_calls", "function_call", "refusal", "audio"))
        # The reference lets a function message's content be null, but not be left out.
        if not (role == "assistant" and may_lack) and not (role == "function" and "content" in message):
            found.add("content_missing", at, f"a message with role {role!r} has no content")
    elif isinstance(content, list) and role != "function":
        if not content:
            found.add("content_empty_list", at, "content is an empty list")
        for index, part in enumerate(content):
            _check_part(found, f"{at}/{index}", part, role)
    elif not isinstance(content, str):
        found.add("content_type", at, f"content of role {role!r} is {kind_of(content)}")


def _check_part(found: Findings, at: str, part: object, role: str) -> None:
    if not isinstance(part, dict):
        found.add("part_not_object", at, f"the part is {kind_of(part)}, not an object")
        return
    kind = part.get("type")
    if not (isinstance(kind, str) and kind in _PART_TYPES.get(role, _TEXT_ONLY)):
        found.add("part_type", f"{at}/type", f"a message with role {role!r} has a part of type {quoted(kind)}")
        return
    body, at = part.get(kind), f"{at}/{kind}"
    if kind in {"text", "refusal"}:
        if not isinstance(body, str):
            found.add("part_field", at, f"{kind} is {kind_of(body)}, not a string")
    elif not isinstance(body, dict):
        found.add("part_field", at, f"{kind} is {kind_of(body)}, not an object")
    elif kind == "file":
        if not (isinstance(body.get("file_id"), str) or isinstance(body.get("file_data"), str)):
            found.add("part_field", at, "the file has neither file_id nor file_data")
    else:
        for key in _PART_FIELDS[kind]:
            if not isinstance(body.get(key), str):
                found.add("part_field", f"{at}/{key}", f"{key} is {kind_of(body.get(key))}, not a string")


def _check_assistant(found: Findings, at: str, message: dict[str, object]) -> None:
    refusal, audio = message.get("refusal"), message.get("audio")
    if refusal is not None and not isinstance(refusal, str):
        found.add("refusal_type", f"{at}/refusal", f"refusal is {kind_of(refusal)}, not a string")
    if audio is not None and not (isinstance(audio, dict) and isinstance(audio.get("id"), str)):
        found.add("audio_type", f"{at}/audio", "audio is not an object with a string id")
    if message.get("function_call") is not None:
        _check_called(found, f"{at}/function_call", message["function_call"])
    calls, at = message.get("tool_calls"), f"{at}/tool_calls"
    if calls is None:
        return
    if not isinstance(calls, list):
        found.add("tool_calls_not_list", at, f"tool_calls is {kind_of(calls)}, not a list")
    elif not calls:
        found.add("tool_calls_empty", at, "tool_calls is an empty list")
    else:
        for index, call in enumerate(calls):
            _check_call(found, f"{at}/{index}", call)


def _check_call(found: Findings, at: str, call: object) -> None:
    if not isinstance(call, dict):
        found.add("call_not_object", at, f"the call is {kind_of(call)}, not an object")
        return
    call_id, kind = call.get("id"), call.get("type")
    if not is_filled(call_id):
        found.add("call_id", f"{at}/id", f"the id of the call is {quoted(call_id)}")
    elif len(call_id) > MAX_ID:
        found.add("call_id_too_long", f"{at}/id", f"the id {quoted(call_id)} has {len(call_id)} characters")
    if kind == "function":
        _check_called(found, f"{at}/function", call.get("function"))
    elif kind == "custom":
        _check_called(found, f"{at}/custom", call.get("custom"), key="input")
    else:
        found.add("call_type", f"{at}/type", f"the type of the call is {quoted(kind)}")


def _check_called(found: Findings, at: str, body: object, *, key: str = "arguments") -> None:
    if not isinstance(body, dict):
        found.add("call_body", at, f"what is called is {kind_of(body)}, not an object")
        return
    name, text = body.get("name"), body.get(key)
    if not _is_function_name(name):
        found.add("call_name", f"{at}/name", f"the name of what is called is {quoted(name)}")
    if not isinstance(text, str):
        found.add(f"{key}_not_string", f"{at}/{key}", f"{key} is {kind_of(text)}, not a string")


# --- calls with their results


@dataclass(slots=True)
class _Calls:
    """The calls of one assistant message while its tool messages come in: id -> pointer of the call.

    A call or a result whose own id is at fault (told already) may pair with any, so that one fault is told once.
    """

    waiting: dict[str, str] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)
    faulty_calls: int = 0
    faulty_results: int = 0


class _Pairing:
    """Goes through the messages once and pairs each call with its result."""

    def __init__(self, found: Findings) -> None:
        self._found = found
        self._ids: set[str] = set()
        self._calls: _Calls | None = None
        self._function: tuple[str, object] | None = None

    def take(self, at: str, message: dict[str, object]) -> None:
        role = message.get("role")
        if role == "tool":
            self._end_function()
            self._take_result(at, message.get("tool_call_id"))
        elif role == "function":
            self._end_calls()
            self._take_function_result(at, message.get("name"))
        else:
            self.interrupt()
            if role == "assistant":
                self._take_calls(at, message)

    def interrupt(self) -> None:
        """Something that is no result comes next: what has no result by now will have none."""
        self._end_calls()
        self._end_function()

    def _take_calls(self, at: str, message: dict[str, object]) -> None:
        calls, function = message.get("tool_calls"), message.get("function_call")
        if isinstance(calls, list) and calls:
            self._calls = _Calls()
            for index, call in enumerate(calls):
                self._take_call(self._calls, f"{at}/tool_calls/{index}", call)
        elif function is not None:  # beside tool_calls, which the API prefers, it asks for nothing
            self._function = (f"{at}/function_call", function.get("name") if isinstance(function, dict) else None)

    def _take_call(self, calls: _Calls, at: str, call: object) -> None:
        call_id = call.get("id") if isinstance(call, dict) else None
        if not is_filled(call_id):
            calls.faulty_calls += 1
            return
        if call_id in self._ids:
            self._found.add("call_id_repeated", f"{at}/id", f"an earlier call has the id {quoted(call_id)} too")
        self._ids.add(call_id)
        if call_id in calls.waiting:
            calls.faulty_calls += 1
        else:
            calls.waiting[call_id] = at

    def _take_result(self, at: str, call_id: object) -> None:
        found, calls = self._found, self._calls
        if not is_filled(call_id):
            found.add("result_id", f"{at}/tool_call_id", f"tool_call_id is {quoted(call_id)}")
        if calls is None:
            found.add("orphan_result", f"{at}/role", "no assistant message with tool_calls comes right before")
        elif not is_filled(call_id):
            calls.faulty_results += 1
        elif call_id in calls.waiting:
            del calls.waiting[call_id]
            calls.answered.add(call_id)
        elif calls.faulty_calls:
            calls.faulty_calls -= 1
        elif call_id in calls.answered:
            found.add("second_result", f"{at}/tool_call_id", f"the call {quoted(call_id)} has a result already")
        else:
            found.add("result_id_unknown", f"{at}/tool_call_id", f"no call before has the id {quoted(call_id)}")

    def _end_calls(self) -> None:
        if self._calls is not None:
            for call_id, at in list(self._calls.waiting.items())[self._calls.faulty_results :]:
                self._found.add("call_unanswered", at, f"the call {quoted(call_id)} has no tool message behind it")
            self._calls = None

    def _take_function_result(self, at: str, name: object) -> None:
        function, self._function = self._function, None
        if function is None:
            text = "no assistant message with function_call comes right before"
            self._found.add("orphan_function_result", f"{at}/role", text)
        elif _is_function_name(name) and _is_function_name(function[1]) and name != function[1]:
            text = f"the function called is {quoted(function[1])}, the result names {quoted(name)}"
            self._found.add("function_result_name", f"{at}/name", text)

    def _end_function(self) -> None:
        if self._function is not None:
            at, name = self._function
            self._found.add("function_call_unanswered", at, f"no function message follows the call of {quoted(name)}")
            self._function = None


# --- values in words


def _is_function_name(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and _FUNCTION_NAME.fullmatch(value) is not None
