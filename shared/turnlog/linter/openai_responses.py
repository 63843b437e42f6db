"""The checker of OpenAI Responses: rules for the ``input`` of a request, a list of items.

The list must be the whole history. With ``previous_response_id`` or a conversation, the provider may hold calls and
reasoning that the list lacks.

Deliberately not checked:

* Unknown item types, because the API gets new ones. Types of other APIs are refused.
* Calls whose reasoning is missing (``Item 'fc_…' of type 'function_call' was provided without its required
  'reasoning' item``): only the provider knows which call came with reasoning.
* The content of ``arguments``, as in Chat Completions.
* ``null`` in an optional field counts as absent, because SDKs dump their models with it.

`RULES` has the provider's answer to each broken rule, the fix, and the source. ``answer`` quotes the provider, with ``…`` for the
values. A bare "400 invalid_request_error" means that the reference demands the shape and that we know no public thread with
the provider's words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from turnlog.linter.openai_chat import MAX_IMAGES, check_file, check_image_url
from turnlog.linter.openai_chat import RULES as CHAT_RULES
from turnlog.linter.rules import MessageReader, Rule, describe_value, is_filled, is_one_of, kind_of

MAX_ID = 64
MAX_NAME = 128

_REFERENCE = "https://platform.openai.com/docs/api-reference/responses/create"
_GITHUB = "https://github.com/"
_BAD = "400 invalid_request_error"

RULES: Mapping[str, Rule] = {
    # The list and its items.
    "items_not_list": Rule(_BAD, "Send a list of items (a bare string is one user message).", _REFERENCE),
    "items_empty": Rule(_BAD, "Send at least one item.", _REFERENCE),
    "item_not_object": Rule(_BAD, "Make each item an object with a type.", _REFERENCE),
    "item_type": Rule(
        _BAD, "Use an item type of this API: message, function_call, function_call_output, reasoning, …", _REFERENCE
    ),
    "unknown_key": Rule(
        f"{_BAD}: Unknown parameter: 'input[…].…'.", "Leave the key out.", f"{_GITHUB}openai/openai-python/issues/2720"
    ),
    "lone_surrogate": CHAT_RULES["lone_surrogate"],
    "item_id": Rule(
        f"{_BAD}: Invalid 'input[…].id': '…'. Expected an ID that contains letters, numbers, underscores, or dashes, "
        "but this value contained additional characters.",
        "Send the id the provider gave, or leave it out.",
        f"{_GITHUB}langchain-ai/langchainjs/issues/11044",
    ),
    "item_id_prefix": Rule(
        f"{_BAD}: Invalid 'input[…].id': '…'. Expected an ID that begins with '…'.",
        "Leave id out; call_id is what pairs a call with its output (msg: message, fc: call, rs: reasoning).",
        f"{_GITHUB}nodetool-ai/nodetool/pull/4252",
    ),
    "item_id_repeated": Rule(
        f"{_BAD}: Duplicate item found with id …. Remove duplicate items from your input and try again.",
        "Send each item once.",
        f"{_GITHUB}earendil-works/pi/issues/5151",
    ),
    "status_value": Rule(_BAD, "Use in_progress, completed or incomplete, or leave it out.", _REFERENCE),
    "compaction_trigger": Rule(
        f'{_BAD} (the SDK: "Must be the final input item")',
        "Send compaction_trigger as the last item, in the request that is to compact and in no other.",
        f"{_GITHUB}openai/openai-python/blob/main/src/openai/types/responses/response_input_item_param.py",
    ),
    "reference_id": Rule(_BAD, "Give the reference the id of the item.", _REFERENCE),
    # Messages.
    "unknown_role": Rule(
        _BAD,
        "Use user, assistant, system or developer; an output of a tool is an item of type function_call_output.",
        _REFERENCE,
    ),
    "content_type": Rule(_BAD, "Make content a string or a list of parts.", _REFERENCE),
    "part_not_object": Rule(_BAD, "Make each part an object with a type.", _REFERENCE),
    "part_type": Rule(
        f"{_BAD}: Invalid value: '…'. Supported values are: 'output_text' and 'refusal'.",
        "assistant: output_text, refusal; others, and outputs of tools: input_text, input_image, input_file.",
        f"{_GITHUB}jeremychone/rust-genai/pull/119",
    ),
    "part_field": Rule(_BAD, "Give the part what its type needs.", _REFERENCE),
    "too_many_images": CHAT_RULES["too_many_images"],
    "image_url": CHAT_RULES["image_url"],
    "file_data": CHAT_RULES["file_data"],
    "phase_value": Rule(_BAD, "Use commentary or final_answer, or leave it out.", _REFERENCE),
    # Calls.
    "call_id": Rule(
        f"{_BAD} (empty_string): Invalid 'input[…].call_id': empty string. Expected a string with minimum length 1, "
        "but got an empty string instead.",
        "Give the call a call_id, and its output the same.",
        f"{_GITHUB}earendil-works/pi/issues/2917",
    ),
    "call_id_too_long": Rule(
        f"{_BAD} (string_above_max_length): Invalid 'input[…].call_id': string too long. Expected a string with "
        f"maximum length {MAX_ID}, but got a string with length … instead.",
        f"Use a call_id of at most {MAX_ID} characters in the call and in its output.",
        f"{_GITHUB}openai/codex/issues/14355",
    ),
    "call_id_repeated": Rule(
        "400 of several servers of this API: Duplicate 'call_id': … (the output would answer either call)",
        "Rename one of the calls, and the output that answers it.",
        f"{_GITHUB}earendil-works/pi/issues/9057",
    ),
    "call_name": Rule(_BAD, f"Use 1 to {MAX_NAME} letters, digits, _ and -.", _REFERENCE),
    "arguments_not_string": Rule(_BAD, "Send the arguments as a JSON string (json.dumps).", _REFERENCE),
    "input_not_string": Rule(_BAD, "Send the input of a custom tool as a string.", _REFERENCE),
    "call_unanswered": Rule(
        f"{_BAD}: No tool output found for function call ….",
        "Put an output item with this call_id behind the call.",
        f"{_GITHUB}symgraph/GhidrAssist/issues/78",
    ),
    # Outputs.
    "orphan_output": Rule(
        f"{_BAD}: No tool call found for function call output with call_id ….",
        "Put it behind its call, or drop it.",
        f"{_GITHUB}continuedev/continue/issues/10092",
    ),
    "output_kind": Rule(
        _BAD,
        "Answer a function_call with a function_call_output, a custom_tool_call with a custom_tool_call_output.",
        _REFERENCE,
    ),
    "second_output": Rule(
        "400 of several servers of this API: Duplicate function_call_output for call_id …",
        "Keep one output for each call.",
        f"{_GITHUB}NousResearch/hermes-agent/pull/111443",
    ),
    "output_type": Rule(_BAD, "Make output a string or a list of parts.", _REFERENCE),
    # Reasoning.
    "reasoning_summary": Rule(_BAD, "Send summary, a list of {type: summary_text, text}; it may be empty.", _REFERENCE),
    "reasoning_content": Rule(
        _BAD, "Make content a list of {type: reasoning_text, text}, or leave it out.", _REFERENCE
    ),
    "reasoning_encrypted": Rule(_BAD, "Make encrypted_content a string, or leave it out.", _REFERENCE),
    "reasoning_alone": Rule(
        f"{_BAD}: Item 'rs_…' of type 'reasoning' was provided without its required following item.",
        "Send the item that followed it (a message of the assistant or a call), or drop the reasoning.",
        f"{_GITHUB}openai/openai-node/issues/1567",
    ),
}


_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{MAX_NAME}}}")
_ROLES = frozenset({"user", "assistant", "system", "developer"})
_STATUS = frozenset({"in_progress", "completed", "incomplete"})
_INPUTS = frozenset({"input_text", "input_image", "input_file"})
_OUTPUTS = frozenset({"output_text", "refusal"})
_PHASES = frozenset({"commentary", "final_answer"})
_DETAILS = frozenset({"auto", "low", "high", "original"})
_OTHER_API_TYPES = frozenset(
    {
        *("text", "image", "image_url", "document", "file", "refusal", "thinking", "redacted_thinking"),
        *("input_text", "input_image", "input_file", "output_text", "summary_text"),
        *("tool_use", "tool_result", "tool_call", "toolUse", "toolResult", "function", "custom", "tool"),
    }
)
_CALLS: Mapping[str, str] = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
}
"""Type of a call that the caller must answer -> type of its output. The two share ``call_id``."""

_CALL_TYPE_OF = {output: call for call, output in _CALLS.items()}
_ID_PREFIXES: Mapping[str, str] = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fc",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctc",
}
_CALL_KEYS = frozenset({"type", "id", "call_id", "caller", "name", "namespace", "status"})
_HOSTED_KEYS = frozenset({"type", "id", "status", "call_id", "caller"})
_PART_KEYS: Mapping[str, frozenset[str]] = {
    "input_text": frozenset({"type", "text", "prompt_cache_breakpoint"}),
    "input_image": frozenset({"type", "image_url", "file_id", "detail", "prompt_cache_breakpoint"}),
    "input_file": frozenset(
        {"type", "file_id", "file_data", "file_url", "filename", "detail", "prompt_cache_breakpoint"}
    ),
    "output_text": frozenset({"type", "text", "annotations", "logprobs"}),
    "refusal": frozenset({"type", "refusal"}),
}
_KEYS: Mapping[str, frozenset[str]] = {
    "message": frozenset({"type", "id", "role", "content", "status", "phase"}),
    "function_call": _CALL_KEYS | {"arguments", "async"},
    "function_call_output": _CALL_KEYS | {"output"},
    "custom_tool_call": _CALL_KEYS | {"input", "async"},
    "custom_tool_call_output": _CALL_KEYS | {"output"},
    "reasoning": frozenset({"type", "id", "summary", "content", "encrypted_content"}),
    "item_reference": frozenset({"type", "id"}),
    "web_search_call": frozenset({"type", "id", "status", "action"}),
    "file_search_call": frozenset({"type", "id", "status", "queries", "results"}),
    "code_interpreter_call": frozenset({"type", "id", "status", "code", "container_id", "outputs"}),
    "mcp_list_tools": frozenset({"type", "id", "server_label", "tools", "error"}),
    "mcp_approval_request": frozenset({"type", "id", "server_label", "name", "arguments"}),
    "mcp_approval_response": frozenset({"type", "id", "approval_request_id", "approve", "reason"}),
    "mcp_call": frozenset(
        {"type", "id", "status", "server_label", "name", "arguments", "output", "error", "approval_request_id"}
    ),
    "compaction": frozenset({"type", "id", "encrypted_content"}),
    "shell_call": _HOSTED_KEYS | {"action", "environment"},
    "shell_call_output": _HOSTED_KEYS | {"output", "max_output_length"},
    "apply_patch_call": _HOSTED_KEYS | {"operation"},
    "apply_patch_call_output": _HOSTED_KEYS | {"output"},
    "computer_call": _HOSTED_KEYS - {"caller"} | {"action", "actions", "pending_safety_checks"},
    "computer_call_output": _HOSTED_KEYS - {"caller"} | {"output", "acknowledged_safety_checks"},
}
_TYPES_WITH_STATUS = frozenset(_ID_PREFIXES) - {"reasoning"}
"""Types whose ``status`` is checked; those of tools that the provider runs have values of their own."""


class ResponsesReader(MessageReader):
    """Reads the items once. Keeps the calls without an output, and the reasoning whose following item has not come yet.

    A call or output whose own ``call_id`` is invalid may pair with any other: that id has been reported already, and one fault
    is reported once. An ``item_reference`` may be a call, an output, or the item that follows reasoning.
    """

    entries, list_name = "items", "the input"

    def __init__(self) -> None:
        super().__init__(RULES)
        self._item_ids: set[str] = set()
        self._kinds: dict[str, str] = {}
        self._waiting: dict[str, str] = {}
        self._answered: set[str] = set()
        self._faulty_calls = 0
        self._faulty_outputs = 0
        self._references = 0
        self._reasoning = ""
        self._images = 0
        self._trigger = ""

    def take(self, pointer: str, item: object) -> None:
        self.lone_surrogates(pointer, item)
        if not isinstance(item, dict):
            self.add("item_not_object", pointer, f"the item is {kind_of(item)}, not an object")
            self._end_reasoning(has_follower=False)
            return
        kind = _kind(item)
        is_chat_message = kind != "message" and {"role", "content"} <= item.keys()
        if not is_filled(kind) or kind in _OTHER_API_TYPES or is_chat_message:
            self.add("item_type", f"{pointer}/type", f"the type of the item is {describe_value(kind)}")
            self._end_reasoning(has_follower=False)
            return
        if kind != "reasoning":
            is_input_message = kind == "message" and item.get("role") != "assistant"
            self._end_reasoning(has_follower=not is_input_message and kind not in _CALL_TYPE_OF)
        if self._trigger:
            self.add("compaction_trigger", self._trigger, "an item stands behind the request to compact")
        self._trigger = pointer if kind == "compaction_trigger" else ""
        if kind in _KEYS:
            self.unknown_keys(pointer, item, _KEYS[kind])
        self._take_id(pointer, item.get("id"), kind)
        status = item.get("status")
        if kind in _TYPES_WITH_STATUS and status is not None and not is_one_of(status, _STATUS):
            self.add("status_value", f"{pointer}/status", f"the status is {describe_value(status)}")
        self._take_body(pointer, item, kind)

    def _take_body(self, pointer: str, item: dict[str, object], kind: str) -> None:
        if kind == "message":
            self._check_message(pointer, item)
        elif kind == "reasoning":
            self._check_reasoning(pointer, item)
            self._reasoning = self._reasoning or pointer
        elif kind in _CALLS:
            self._take_call(pointer, item, kind)
        elif kind in _CALL_TYPE_OF:
            self._take_output(pointer, item, kind)

    def end(self) -> None:
        if self._images > MAX_IMAGES:
            self.add("too_many_images", "/messages", f"the request has {self._images} images")
        self._end_reasoning(has_follower=False)
        excused = self._faulty_outputs + self._references
        for call_id, pointer in list(self._waiting.items())[excused:]:
            self.add("call_unanswered", pointer, f"the call {describe_value(call_id)} has no output behind it")

    def _end_reasoning(self, *, has_follower: bool) -> None:
        if self._reasoning and not has_follower:
            self.add("reasoning_alone", self._reasoning, "no item of the model follows the reasoning")
        self._reasoning = ""

    def _take_id(self, pointer: str, item_id: object, kind: str) -> None:
        if kind == "item_reference":
            self._references += 1
            if not is_filled(item_id):
                self.add("reference_id", f"{pointer}/id", f"the id of the item is {describe_value(item_id)}")
                return
        if item_id is None:
            return
        pointer = f"{pointer}/id"
        if not (isinstance(item_id, str) and _ID.fullmatch(item_id)):
            self.add("item_id", pointer, f"the id of the item is {describe_value(item_id)}")
        elif item_id in self._item_ids and kind != "local_shell_call_output":  # its id is that of its call
            self.add("item_id_repeated", pointer, f"an earlier item has the id {describe_value(item_id)} too")
        elif not item_id.startswith(_ID_PREFIXES.get(kind, "")):
            self.add(
                "item_id_prefix", pointer, f"the id {describe_value(item_id)} does not begin with {_ID_PREFIXES[kind]}"
            )
        else:
            self._item_ids.add(item_id)

    def _take_call(self, pointer: str, item: dict[str, object], kind: str) -> None:
        call_id = item.get("call_id")
        if kind in {"function_call", "custom_tool_call"}:
            name, key = item.get("name"), "arguments" if kind == "function_call" else "input"
            if not (isinstance(name, str) and _NAME.fullmatch(name)):
                self.add("call_name", f"{pointer}/name", f"the name of the called tool is {describe_value(name)}")
            if not isinstance(item.get(key), str):
                self.add(f"{key}_not_string", f"{pointer}/{key}", f"{key} is {kind_of(item.get(key))}, not a string")
        if not self._check_call_id(pointer, call_id):
            self._faulty_calls += 1
            return
        call_id = str(call_id)
        if call_id in self._kinds:
            self.add("call_id_repeated", f"{pointer}/call_id", f"an earlier call has {describe_value(call_id)} too")
            if call_id in self._waiting:
                self._faulty_calls += 1
                return
        self._kinds[call_id] = kind
        if item.get("async") is not True:  # the output of an async call may come in a later request
            self._waiting[call_id] = pointer

    def _take_output(self, pointer: str, item: dict[str, object], kind: str) -> None:
        call_id = item.get("call_id")
        if kind in {"function_call_output", "custom_tool_call_output"}:
            self._check_output(f"{pointer}/output", item.get("output"))
        if kind == "function_call_output" and call_id is None and is_filled(item.get("name")):
            return  # an output with a name needs no call
        if not self._check_call_id(pointer, call_id):
            self._faulty_outputs += 1
            return
        self._answer_call(pointer, str(call_id), kind)

    def _answer_call(self, pointer: str, call_id: str, kind: str) -> None:
        id_pointer = f"{pointer}/call_id"
        if call_id in self._kinds and self._kinds[call_id] != _CALL_TYPE_OF[kind]:
            description = f"the call {describe_value(call_id)} is a {self._kinds[call_id]}, the output a {kind}"
            self.add("output_kind", f"{pointer}/type", description)
            self._waiting.pop(call_id, None)
        elif call_id in self._waiting:
            del self._waiting[call_id]
        elif self._faulty_calls:
            self._faulty_calls -= 1
        elif call_id in self._answered:
            self.add("second_output", id_pointer, f"the call {describe_value(call_id)} has an output already")
        elif call_id not in self._kinds and not self._references:
            self.add("orphan_output", id_pointer, f"no call before has the call_id {describe_value(call_id)}")
        self._answered.add(call_id)

    def _check_call_id(self, pointer: str, call_id: object) -> bool:
        if not is_filled(call_id):
            self.add("call_id", f"{pointer}/call_id", f"call_id is {describe_value(call_id)}")
        elif len(call_id) > MAX_ID:
            self.add(
                "call_id_too_long", f"{pointer}/call_id", f"{describe_value(call_id)} has {len(call_id)} characters"
            )
        return is_filled(call_id)

    def _check_output(self, pointer: str, output: object) -> None:
        if isinstance(output, list):
            self._check_parts(pointer, output, _INPUTS)
        elif not isinstance(output, str):
            self.add("output_type", pointer, f"output is {kind_of(output)}")

    def _check_message(self, pointer: str, item: dict[str, object]) -> None:
        role, content, phase = item.get("role"), item.get("content"), item.get("phase")
        if not is_one_of(role, _ROLES):
            self.add("unknown_role", f"{pointer}/role", f"the role is {describe_value(role)}")
        elif isinstance(content, list):
            self._check_parts(f"{pointer}/content", content, _OUTPUTS if role == "assistant" else _INPUTS)
        elif not isinstance(content, str):
            self.add("content_type", f"{pointer}/content", f"content is {kind_of(content)}")
        if phase is not None and not is_one_of(phase, _PHASES):
            self.add("phase_value", f"{pointer}/phase", f"the phase is {describe_value(phase)}")

    def _check_parts(self, pointer: str, parts: list[object], types: frozenset[str]) -> None:
        for index, part in enumerate(parts):
            if not isinstance(part, dict):
                self.add("part_not_object", f"{pointer}/{index}", f"the part is {kind_of(part)}, not an object")
            elif not is_one_of(part.get("type"), types):
                text = f"a part of type {describe_value(part.get('type'))} is not allowed here"
                self.add("part_type", f"{pointer}/{index}/type", text)
            else:
                self._check_part(f"{pointer}/{index}", part, str(part["type"]))

    def _check_part(self, pointer: str, part: dict[str, object], kind: str) -> None:
        self.unknown_keys(pointer, part, _PART_KEYS[kind])
        self._images += kind == "input_image"
        if kind in {"input_image", "input_file"}:
            keys = ("image_url", "file_id") if kind == "input_image" else ("file_id", "file_data", "file_url")
            if not any(is_filled(part.get(key)) for key in keys):
                self.add("part_field", pointer, f"the part has none of {', '.join(keys)}")
            check_image_url(self, f"{pointer}/image_url", part.get("image_url") or None)
            check_file(self, pointer, part, "data:")
            detail = part.get("detail")
            if detail is not None and not is_one_of(detail, _DETAILS):
                self.add("part_field", f"{pointer}/detail", f"detail is {describe_value(detail)}")
        else:
            key = "refusal" if kind == "refusal" else "text"
            if not isinstance(part.get(key), str):
                self.add("part_field", f"{pointer}/{key}", f"{key} is {kind_of(part.get(key))}, not a string")
            notes = part.get("annotations")
            if notes is not None and not isinstance(notes, list):
                self.add("part_field", f"{pointer}/annotations", f"annotations is {kind_of(notes)}, not a list")

    def _check_reasoning(self, pointer: str, item: dict[str, object]) -> None:
        sealed = item.get("encrypted_content")
        self._check_texts(f"{pointer}/summary", item.get("summary"), "summary_text", "reasoning_summary")
        if item.get("content") is not None:
            self._check_texts(f"{pointer}/content", item["content"], "reasoning_text", "reasoning_content")
        if sealed is not None and not isinstance(sealed, str):
            self.add("reasoning_encrypted", f"{pointer}/encrypted_content", f"it is {kind_of(sealed)}, not a string")

    def _check_texts(self, pointer: str, texts: object, kind: str, rule: str) -> None:
        if not isinstance(texts, list):
            self.add(rule, pointer, f"the value is {kind_of(texts)}, not a list")
            return
        for index, part in enumerate(texts):
            if isinstance(part, dict) and part.get("type") == kind and isinstance(part.get("text"), str):
                self.unknown_keys(f"{pointer}/{index}", part, {"type", "text"})
            else:
                self.add(rule, f"{pointer}/{index}", f"the part is not of type {kind} with a text")


def _kind(item: dict[str, object]) -> object:
    """Return the type of an item; None when it has none.

    A message may lack ``type``, and so may a reference, an object that has only an id.
    """
    if item.get("type") is not None:
        return item["type"]
    if "role" in item:
        return "message"
    return "item_reference" if set(item) <= {"id", "type"} and "id" in item else None
