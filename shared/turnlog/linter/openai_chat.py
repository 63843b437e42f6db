"""The checker of OpenAI Chat Completions: rules for the ``messages`` of a request.

Deliberately not checked:

* Keys that servers of this API demand or add beyond OpenAI's, such as ``reasoning_content``: see `_EXTENSIONS`.
* ``null`` in an optional field (``tool_calls``, ``function_call``, ``name``, ``refusal``, ``audio``) counts as absent,
  because SDKs dump their models with it.
* The content of ``arguments``: OpenAI demands only a string, and says that the model does not always write valid
  JSON (https://platform.openai.com/docs/api-reference/chat/create). Servers that render a chat template do refuse it:
  https://github.com/ggml-org/llama.cpp/pull/25583, https://github.com/sgl-project/sglang/pull/28035.

`RULES` has the provider's answer to each broken rule, the fix, and the source. ``answer`` quotes the provider, with ``…`` for the
values. A bare "400 invalid_request_error" means that the reference demands the shape and that we know no public thread with
the provider's words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from turnlog.linter.rules import (
    Findings,
    MessageReader,
    Rule,
    TurnPairing,
    describe_value,
    image_type,
    is_filled,
    is_match,
    is_web_address,
    kind_of,
)

MAX_CALLS = 128
MAX_ID = 40
MAX_IMAGES = 1_500
MAX_NAME = 64
ROLES = frozenset({"developer", "system", "user", "assistant", "tool", "function"})

_REFERENCE = "https://platform.openai.com/docs/api-reference/chat/create"
_GITHUB = "https://github.com/"
_BAD = "400 invalid_request_error"

RULES: Mapping[str, Rule] = {
    # The list and its messages.
    "messages_not_list": Rule(_BAD, "Send a list of message objects.", _REFERENCE),
    "messages_empty": Rule(
        f"{_BAD}: Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array "
        "instead.",
        "Send at least one message.",
        f"{_GITHUB}CopilotKit/CopilotKit/issues/529",
    ),
    "message_not_object": Rule(_BAD, "Make each message an object with a role.", _REFERENCE),
    "unknown_key": Rule(
        f"{_BAD}: Additional properties are not allowed ('…' was unexpected) - 'messages.…' (some models ignore the key: "
        "https://github.com/microsoft/agent-framework/pull/2344)",
        "Leave the key out.",
        f"{_GITHUB}openai/openai-node/issues/1161",
    ),
    "lone_surrogate": Rule(
        "UnicodeEncodeError of the SDK: 'utf-8' codec can't encode character …: surrogates not allowed",
        "Put the whole character, or U+FFFD, in its place.",
        f"{_GITHUB}NousResearch/hermes-agent/pull/3624",
    ),
    "unknown_role": Rule(_BAD, f"Use one of: {', '.join(sorted(ROLES))}.", _REFERENCE),
    "name_invalid": Rule(
        f"{_BAD}: Invalid 'messages[…].name': string does not match pattern. Expected a string that matches the "
        "pattern '^[^\\s<|\\\\/>]+$'.",
        f"Leave name out, or use 1 to {MAX_NAME} characters without white space, <, |, \\, / and >.",
        "https://community.openai.com/t/weird-regex-on-message-name-field/1356753",
    ),
    # Content.
    "content_missing": Rule(
        f"{_BAD}: Invalid value for 'content': expected a string, got null.",
        "Send content (an empty string will do); only an assistant message with calls, refusal or audio needs none.",
        f"{_GITHUB}langchain-ai/langchainjs/issues/4153",
    ),
    "content_type": Rule(_BAD, "Make content a string or, except for role function, a list of parts.", _REFERENCE),
    "content_empty_list": Rule(_BAD, "Send at least one part, or an empty string.", _REFERENCE),
    "part_not_object": Rule(_BAD, "Make each part an object with a type.", _REFERENCE),
    "part_type": Rule(
        f"{_BAD}: Invalid 'messages[…]'. Image URLs are only allowed for messages with role 'user', but this message "
        "with role '…' contains an image URL. | Invalid value: '…'. Supported values are: …",
        "user: text, image_url, input_audio, file; assistant: text, refusal; others: text. Media go to a user message.",
        f"{_GITHUB}openai/openai-node/issues/1030",
    ),
    "part_field": Rule(_BAD, "Give the part what its type needs.", _REFERENCE),
    "image_url": Rule(
        f"{_BAD}: Invalid image URL … | You uploaded an unsupported image. Please make sure your image has of one the "
        "following formats: ['png', 'jpeg', 'gif', 'webp'].",
        "Send an address of the web, or the image as a data URL in base64.",
        "https://developers.openai.com/api/docs/guides/images-vision",
    ),
    "file_data": Rule(
        f"{_BAD}: Invalid file data: …. Expected a base64-encoded data URL with an application/pdf MIME type | Missing "
        "required parameter: '….file.file_id'. (where the filename lacks)",
        "Send a PDF as a data URL in base64, with a filename; of other files the text. Responses takes more types.",
        f"{_GITHUB}trpc-group/trpc-agent-go/issues/1816",
    ),
    "too_many_images": Rule(
        f"{_BAD} (the guide: up to {MAX_IMAGES} individual image inputs and 512 MB per request)",
        "Send fewer images, the newest.",
        "https://developers.openai.com/api/docs/guides/images-vision",
    ),
    "refusal_type": Rule(_BAD, "Make refusal a string, or leave it out.", _REFERENCE),
    "audio_type": Rule(_BAD, "Make audio an object with a string id, or leave it out.", _REFERENCE),
    # Calls.
    "tool_calls_wrong_role": Rule(_BAD, "Only an assistant message may have tool_calls.", _REFERENCE),
    "tool_calls_not_list": Rule(_BAD, "Make tool_calls a list of calls, or leave it out.", _REFERENCE),
    "too_many_calls": Rule(
        f"{_BAD} (array_above_max_length): Invalid 'messages[…].tool_calls': array too long. Expected an array with maximum "
        f"length {MAX_CALLS}, but got an array with length … instead.",
        "Send the calls in several messages, each with its results.",
        f"{_GITHUB}openai/openai-dotnet/issues/317",
    ),
    "tool_calls_empty": Rule(
        f"{_BAD}: Invalid 'messages[…].tool_calls': empty array. Expected an array with minimum length 1, but got an "
        "empty array instead.",
        "Leave tool_calls out when there are none.",
        f"{_GITHUB}home-assistant/core/pull/118577",
    ),
    "call_not_object": Rule(_BAD, "Make each call an object {id, type, function}.", _REFERENCE),
    "call_type": Rule(_BAD, "Set type to function (or custom).", _REFERENCE),
    "call_body": Rule(_BAD, "Send the function (name, arguments) or custom (name, input) that is called.", _REFERENCE),
    "call_name": Rule(
        f"{_BAD}: Invalid 'messages[…].tool_calls[…].function.name': string does not match pattern. Expected a string "
        "that matches the pattern '^[a-zA-Z0-9_-]+$'.",
        f"Use 1 to {MAX_NAME} characters of a-z, A-Z, 0-9, _ and -.",
        f"{_GITHUB}mcp-use/mcp-use/issues/90",
    ),
    "arguments_not_string": Rule(_BAD, "Send the arguments as a JSON string (json.dumps).", _REFERENCE),
    "input_not_string": Rule(_BAD, "Send the input of a custom tool as a string.", _REFERENCE),
    "call_id": Rule(_BAD, "Give the call an id, and its tool message the same tool_call_id.", _REFERENCE),
    "call_id_too_long": Rule(
        f"{_BAD} (string_above_max_length): Invalid 'messages[…].tool_calls[…].id': string too long. Expected a string "
        f"with maximum length {MAX_ID}, but got a string with length … instead.",
        f"Use an id of at most {MAX_ID} characters in the call and in its tool message.",
        f"{_GITHUB}agno-agi/agno/issues/5382",
    ),
    # OpenAI accepts an id that is used again in a later turn (tau-bench's runs of gpt-4o continue after one). Other
    # servers refuse it, and within one message the results collide.
    "call_id_repeated": Rule(
        "400 of several servers of this API: duplicate tool_call_id (OpenAI: seen accepted across turns)",
        "Rename one of the calls, and the tool message that answers it.",
        f"{_GITHUB}openclaw/openclaw/pull/40996",
    ),
    # Results.
    "call_unanswered": Rule(
        f"{_BAD}: An assistant message with 'tool_calls' must be followed by tool messages responding to each "
        "'tool_call_id'. The following tool_call_ids did not have response messages: …",
        "Put a tool message with this tool_call_id behind the assistant message, before anything else.",
        f"{_GITHUB}sdcb/chats/pull/132",
    ),
    "orphan_result": Rule(
        f"{_BAD}: Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
        "'tool_calls'.",
        "Move it behind the assistant message that called, with only tool messages between, or drop it.",
        f"{_GITHUB}miurla/morphic/issues/136",
    ),
    "result_id": Rule(_BAD, "Set tool_call_id to the id of the call that is answered.", _REFERENCE),
    "result_id_unknown": Rule(
        f"{_BAD}: Invalid parameter: 'tool_call_id' of '…' not found in 'tool_calls' of previous message.",
        "Set tool_call_id to an id of the assistant message before, or drop the message.",
        f"{_GITHUB}dapr/dapr-agents/issues/145",
    ),
    "second_result": Rule(
        f"{_BAD}: Invalid parameter: Duplicate value for 'tool_call_id' of '…', in messages[…] and messages[…].",
        "Keep one tool message for each call.",
        f"{_GITHUB}agno-agi/agno/issues/5116",
    ),
    # Legacy functions: a call has no id; its result is the next message, which names the function.
    "function_call_wrong_role": Rule(_BAD, "Only an assistant message may have function_call.", _REFERENCE),
    "function_call_unanswered": Rule(
        "none seen (the reference shows the pair; the model reads a call without its result)",
        "Put the function message with this name right behind the assistant message.",
        _REFERENCE,
    ),
    "orphan_function_result": Rule(
        "none seen (the reference shows the pair; the model reads a result without its call)",
        "Move it right behind the assistant message with the function_call, or drop it.",
        _REFERENCE,
    ),
    "function_result_name": Rule(
        "none seen (the reference shows the pair; the model reads the result of another function)",
        "Name the function of the function_call before.",
        _REFERENCE,
    ),
    "function_name": Rule(
        f"{_BAD}: Missing parameter 'name': messages with role 'function' must have a 'name'.",
        f"Set name to the function's name: 1 to {MAX_NAME} characters of a-z, A-Z, 0-9, _ and -.",
        f"{_GITHUB}langchain-ai/langchainjs/issues/6570",
    ),
}


_FUNCTION_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{MAX_NAME}}}")
_AUTHOR_NAME = re.compile(r"[^\s<|\\/>]+")
_TEXT_ONLY = frozenset({"text"})
_PART_TYPES = {
    "user": frozenset({"text", "image_url", "input_audio", "file"}),
    "assistant": frozenset({"text", "refusal"}),
}
_EXTENSIONS = frozenset(
    {"reasoning_content", "reasoning", "reasoning_details", "thinking_blocks", "prefix", "extra_content"}
)
"""Keys of an assistant's message that some servers of this API demand back or take: DeepSeek and Moonshot
(https://api-docs.deepseek.com/guides/thinking_mode), OpenRouter, LiteLLM, Mistral, Gemini."""
_KEYS = {
    "assistant": frozenset(
        {"role", "content", "name", "refusal", "audio", "tool_calls", "function_call", "annotations"}
    )
    | _EXTENSIONS,
    "tool": frozenset({"role", "content", "name", "tool_call_id", "tool_calls", "function_call"}),
}
"""Role -> its keys. OpenAI's own examples give a tool message a name."""
_COMMON_KEYS = frozenset({"role", "content", "name", "tool_calls", "function_call"})
"""Keys of the other roles; calls have rules of their own."""
_PART_KEYS = frozenset(
    {"type", "text", "refusal", "image_url", "input_audio", "file", "prompt_cache_breakpoint", "cache_control"}
)
_CALL_KEYS = frozenset({"id", "type", "function", "custom", "extra_content"})
_PART_FIELDS = {"image_url": ("url",), "input_audio": ("data", "format")}
"""Part type -> the keys that must hold a string in the object under the key of that name."""


def _images_in(message: dict[str, object]) -> int:
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    return sum(isinstance(part, dict) and part.get("type") == "image_url" for part in parts)


def _check_message(findings: Findings, pointer: str, message: dict[str, object]) -> None:
    role = message.get("role")
    if not (isinstance(role, str) and role in ROLES):
        findings.add("unknown_role", f"{pointer}/role", f"the role is {describe_value(role)}")
        return
    findings.unknown_keys(pointer, message, _KEYS.get(role, _COMMON_KEYS))
    _check_name(findings, f"{pointer}/name", message.get("name"), role)
    _check_content(findings, pointer, message, role)
    if role == "assistant":
        _check_assistant(findings, pointer, message)
        return
    for key in ("tool_calls", "function_call"):
        if message.get(key) is not None:
            findings.add(f"{key}_wrong_role", f"{pointer}/{key}", f"a message with role {role!r} has {key}")


def _check_name(findings: Findings, pointer: str, name: object, role: str) -> None:
    if role == "function":
        if not is_match(name, _FUNCTION_NAME):
            findings.add("function_name", pointer, f"the function's name is {describe_value(name)}")
    elif name is not None and not (isinstance(name, str) and len(name) <= MAX_NAME and _AUTHOR_NAME.fullmatch(name)):
        findings.add("name_invalid", pointer, f"the name is {describe_value(name)}")


def _check_content(findings: Findings, pointer: str, message: dict[str, object], role: str) -> None:
    content, pointer = message.get("content"), f"{pointer}/content"
    if content is None:
        may_lack = any(message.get(key) is not None for key in ("tool_calls", "function_call", "refusal", "audio"))
        # The reference lets a function message's content be null, but not be left out.
        if not (role == "assistant" and may_lack) and not (role == "function" and "content" in message):
            findings.add("content_missing", pointer, f"a message with role {role!r} has no content")
    elif isinstance(content, list) and role != "function":
        if not content:
            findings.add("content_empty_list", pointer, "content is an empty list")
        for index, part in enumerate(content):
            _check_part(findings, f"{pointer}/{index}", part, role)
    elif not isinstance(content, str):
        findings.add("content_type", pointer, f"content of role {role!r} is {kind_of(content)}")


def _check_part(findings: Findings, pointer: str, part: object, role: str) -> None:
    if not isinstance(part, dict):
        findings.add("part_not_object", pointer, f"the part is {kind_of(part)}, not an object")
        return
    kind = part.get("type")
    if not (isinstance(kind, str) and kind in _PART_TYPES.get(role, _TEXT_ONLY)):
        findings.add(
            "part_type", f"{pointer}/type", f"a message with role {role!r} has a part of type {describe_value(kind)}"
        )
        return
    findings.unknown_keys(pointer, part, _PART_KEYS)
    _check_part_body(findings, f"{pointer}/{kind}", kind, part.get(kind))


def _check_part_body(findings: Findings, pointer: str, kind: str, body: object) -> None:
    if kind in {"text", "refusal"}:
        if not isinstance(body, str):
            findings.add("part_field", pointer, f"{kind} is {kind_of(body)}, not a string")
    elif not isinstance(body, dict):
        findings.add("part_field", pointer, f"{kind} is {kind_of(body)}, not an object")
    elif kind == "file":
        if not (isinstance(body.get("file_id"), str) or isinstance(body.get("file_data"), str)):
            findings.add("part_field", pointer, "the file has neither file_id nor file_data")
        check_file(findings, pointer, body, "data:application/pdf;base64,")
    else:
        for key in _PART_FIELDS[kind]:
            if not isinstance(body.get(key), str):
                findings.add("part_field", f"{pointer}/{key}", f"{key} is {kind_of(body.get(key))}, not a string")
        if kind == "image_url":
            check_image_url(findings, f"{pointer}/url", body.get("url"))


def check_image_url(findings: Findings, pointer: str, url: object) -> None:
    """Add ``image_url`` for an address that is neither of the web nor the data of an image."""
    if isinstance(url, str) and not is_web_address(url):
        head, _, data = url.partition(";base64,")
        if not head.startswith("data:") or not image_type(data):
            findings.add("image_url", pointer, f"the address is {describe_value(url)}")


def check_file(findings: Findings, pointer: str, file: dict[str, object], start: str) -> None:
    """Add ``file_data`` for data that is no data URL with this ``start`` or has no name, and for an address elsewhere than the web.

    Data may be an address: servers of this API take one (https://openrouter.ai/docs/features/multimodal/pdfs).
    """
    data, url, file_id = file.get("file_data"), file.get("file_url"), file.get("file_id")
    if isinstance(file_id, str) and file_id.startswith("file_01"):
        findings.add("part_field", f"{pointer}/file_id", "the file was uploaded to Anthropic")
    if is_filled(url) and not is_web_address(url):
        findings.add("file_data", f"{pointer}/file_url", f"the address is {describe_value(url)}")
    if isinstance(data, str) and not is_web_address(data):
        if not data.startswith(start):
            findings.add("file_data", f"{pointer}/file_data", f"the data are {describe_value(data)}")
        if not is_filled(file.get("filename")):
            findings.add("file_data", f"{pointer}/filename", "the data have no filename")


def _check_assistant(findings: Findings, pointer: str, message: dict[str, object]) -> None:
    refusal, audio = message.get("refusal"), message.get("audio")
    if refusal is not None and not isinstance(refusal, str):
        findings.add("refusal_type", f"{pointer}/refusal", f"refusal is {kind_of(refusal)}, not a string")
    if audio is not None and not (isinstance(audio, dict) and isinstance(audio.get("id"), str)):
        findings.add("audio_type", f"{pointer}/audio", "audio is not an object with a string id")
    if message.get("function_call") is not None:
        _check_call_body(findings, f"{pointer}/function_call", message["function_call"])
    calls, pointer = message.get("tool_calls"), f"{pointer}/tool_calls"
    if calls is None:
        return
    if not isinstance(calls, list):
        findings.add("tool_calls_not_list", pointer, f"tool_calls is {kind_of(calls)}, not a list")
    elif not calls:
        findings.add("tool_calls_empty", pointer, "tool_calls is an empty list")
    else:
        if len(calls) > MAX_CALLS:
            findings.add("too_many_calls", pointer, f"the message has {len(calls)} calls")
        for index, call in enumerate(calls):
            _check_call(findings, f"{pointer}/{index}", call)


def _check_call(findings: Findings, pointer: str, call: object) -> None:
    if not isinstance(call, dict):
        findings.add("call_not_object", pointer, f"the call is {kind_of(call)}, not an object")
        return
    findings.unknown_keys(pointer, call, _CALL_KEYS)
    call_id, kind = call.get("id"), call.get("type")
    if not is_filled(call_id):
        findings.add("call_id", f"{pointer}/id", f"the id of the call is {describe_value(call_id)}")
    elif len(call_id) > MAX_ID:
        findings.add(
            "call_id_too_long", f"{pointer}/id", f"the id {describe_value(call_id)} has {len(call_id)} characters"
        )
    if kind == "function":
        _check_call_body(findings, f"{pointer}/function", call.get("function"))
    elif kind == "custom":
        _check_call_body(findings, f"{pointer}/custom", call.get("custom"), key="input")
    else:
        findings.add("call_type", f"{pointer}/type", f"the type of the call is {describe_value(kind)}")


def _check_call_body(findings: Findings, pointer: str, body: object, *, key: str = "arguments") -> None:
    if not isinstance(body, dict):
        findings.add("call_body", pointer, f"the called tool is {kind_of(body)}, not an object")
        return
    findings.unknown_keys(pointer, body, {"name", key})
    name, text = body.get("name"), body.get(key)
    if not is_match(name, _FUNCTION_NAME):
        findings.add("call_name", f"{pointer}/name", f"the name of the called tool is {describe_value(name)}")
    if not isinstance(text, str):
        findings.add(f"{key}_not_string", f"{pointer}/{key}", f"{key} is {kind_of(text)}, not a string")


class ChatReader(MessageReader):
    """Reads the messages once and pairs each call with its result."""

    def __init__(self) -> None:
        super().__init__(RULES)
        self._calls = TurnPairing(self, unknown="result_id_unknown", earlier="before", answer="tool message behind it")
        self._has_calls = False
        self._function: tuple[str, object] | None = None
        self._images = 0

    def take(self, pointer: str, message: object) -> None:
        self.lone_surrogates(pointer, message)
        if isinstance(message, dict):
            _check_message(self, pointer, message)
            self._images += _images_in(message)
            self._pair(pointer, message)
        else:
            self.add("message_not_object", pointer, f"the message is {kind_of(message)}, not an object")
            self._interrupt()

    def end(self) -> None:
        self._interrupt()
        if self._images > MAX_IMAGES:
            self.add("too_many_images", "/messages", f"the request has {self._images} images")

    def _pair(self, pointer: str, message: dict[str, object]) -> None:
        role = message.get("role")
        if role == "tool":
            self._end_function()
            self._take_result(pointer, message.get("tool_call_id"))
        elif role == "function":
            self._end_calls()
            self._take_function_result(pointer, message.get("name"))
        else:
            self._interrupt()
            if role == "assistant":
                self._take_calls(pointer, message)

    def _interrupt(self) -> None:
        """Report each call without a result. Called before a message that is not a result, and at the end."""
        self._end_calls()
        self._end_function()

    def _take_calls(self, pointer: str, message: dict[str, object]) -> None:
        calls, function = message.get("tool_calls"), message.get("function_call")
        if isinstance(calls, list) and calls:
            self._has_calls = True
            for index, call in enumerate(calls):
                call_id = call.get("id") if isinstance(call, dict) else None
                self._calls.add_call(f"{pointer}/tool_calls/{index}", "id", call_id if is_filled(call_id) else None)
        elif function is not None:  # the API ignores function_call beside tool_calls
            self._function = (f"{pointer}/function_call", function.get("name") if isinstance(function, dict) else None)

    def _take_result(self, pointer: str, call_id: object) -> None:
        valid_id = call_id if is_filled(call_id) else None
        if valid_id is None:
            self.add("result_id", f"{pointer}/tool_call_id", f"tool_call_id is {describe_value(call_id)}")
        if self._has_calls:
            self._calls.add_result(f"{pointer}/tool_call_id", valid_id)
        else:
            self.add("orphan_result", f"{pointer}/role", "no assistant message with tool_calls comes right before")

    def _end_calls(self) -> None:
        self._calls.end_turn()
        self._has_calls = False

    def _take_function_result(self, pointer: str, name: object) -> None:
        function, self._function = self._function, None
        if function is None:
            text = "no assistant message with function_call comes right before"
            self.add("orphan_function_result", f"{pointer}/role", text)
        elif is_match(name, _FUNCTION_NAME) and is_match(function[1], _FUNCTION_NAME) and name != function[1]:
            text = f"the function called is {describe_value(function[1])}, the result names {describe_value(name)}"
            self.add("function_result_name", f"{pointer}/name", text)

    def _end_function(self) -> None:
        if self._function is not None:
            pointer, name = self._function
            self.add(
                "function_call_unanswered", pointer, f"no function message follows the call of {describe_value(name)}"
            )
            self._function = None
