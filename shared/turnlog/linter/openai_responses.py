"""The rules of OpenAI Responses for the ``input`` of a request, a list of items, each with its answer and its source.

The list is taken for the whole history: with
``previous_response_id`` or a conversation, calls and reasoning may stand in what the provider keeps.

Not rules, on purpose:

* Types of items that are not known: the API gets new ones. Types of other APIs are refused.
* The other way round of reasoning (``Item 'fc_…' of type 'function_call' was provided without its required
  'reasoning' item``): which call came with reasoning is known to the provider only.
* The content of ``arguments``, as in Chat Completions.
* ``null`` in an optional field: read as absent; the model dumps of SDKs have it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from turnlog.linter.openai_responses_table import MAX_ID, MAX_NAME, RULES
from turnlog.linter.reading import Findings, entries, is_filled, is_one_of, kind_of, quoted
from turnlog.linter.rules import Violation

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{MAX_NAME}}}")
_ROLES = frozenset({"user", "assistant", "system", "developer"})
_STATUS = frozenset({"in_progress", "completed", "incomplete"})
_INPUTS = frozenset({"input_text", "input_image", "input_file"})
_OUTPUTS = frozenset({"output_text", "refusal"})
_PHASES = frozenset({"commentary", "final_answer"})
_DETAILS = frozenset({"auto", "low", "high", "original"})
_FOREIGN = frozenset(
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
"""Type of a call that the caller answers -> type of its output; the two share ``call_id``."""

_OUTPUT_OF = {output: call for call, output in _CALLS.items()}
_PREFIXES: Mapping[str, str] = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fc",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctc",
}
_CALL_KEYS = frozenset({"type", "id", "call_id", "caller", "name", "namespace", "status"})
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
    "reasoning": frozenset({"type", "id", "summary", "content", "encrypted_content", "status"}),
    "item_reference": frozenset({"type", "id"}),
}


def check(messages: object) -> list[Violation]:
    """Every violation, in the order in which a reader from the top can know of it. Never raises; linear."""
    found = Findings(RULES)
    reader = _Reader(found)
    for at, item in entries(found, messages, kind="items", name="the input"):
        reader.take(at, item)
    reader.end()
    return found.violations


class _Reader:
    """Goes through the items once: the calls that wait, and the reasoning that waits for the item it led to.

    A call or an output whose own ``call_id`` is at fault (told already) may pair with any, so that one fault is told
    once. An ``item_reference`` may stand for a call, an output or what follows reasoning.
    """

    def __init__(self, found: Findings) -> None:
        self._found = found
        self._item_ids: set[str] = set()
        self._kinds: dict[str, str] = {}
        self._waiting: dict[str, str] = {}
        self._answered: set[str] = set()
        self._faulty_calls = 0
        self._faulty_outputs = 0
        self._references = 0
        self._reasoning = ""

    def take(self, at: str, item: object) -> None:
        if not isinstance(item, dict):
            self._found.add("item_not_object", at, f"the item is {kind_of(item)}, not an object")
            self._end_reasoning(led=False)
            return
        kind = _kind(item)
        talk = kind != "message" and {"role", "content"} <= item.keys()
        if not is_filled(kind) or kind in _FOREIGN or talk:
            self._found.add("item_type", f"{at}/type", f"the type of the item is {quoted(kind)}")
            self._end_reasoning(led=False)
            return
        if kind != "reasoning":
            user = kind == "message" and item.get("role") != "assistant"
            self._end_reasoning(led=not user and kind not in _OUTPUT_OF)
        if kind in _KEYS:
            self._found.unknown_keys(at, item, _KEYS[kind])
        self._take_id(at, item.get("id"), kind)
        status = item.get("status")
        if kind in _KEYS and status is not None and not is_one_of(status, _STATUS):
            self._found.add("status_value", f"{at}/status", f"the status is {quoted(status)}")
        if kind == "message":
            self._check_message(at, item)
        elif kind == "reasoning":
            self._check_reasoning(at, item)
            self._reasoning = self._reasoning or at
        elif kind in _CALLS:
            self._take_call(at, item, kind)
        elif kind in _OUTPUT_OF:
            self._take_output(at, item, kind)

    def end(self) -> None:
        self._end_reasoning(led=False)
        excused = self._faulty_outputs + self._references
        for call_id, at in list(self._waiting.items())[excused:]:
            self._found.add("call_unanswered", at, f"the call {quoted(call_id)} has no output behind it")

    def _end_reasoning(self, *, led: bool) -> None:
        if self._reasoning and not led:
            self._found.add("reasoning_alone", self._reasoning, "no item of the model follows the reasoning")
        self._reasoning = ""

    def _take_id(self, at: str, item_id: object, kind: str) -> None:
        if kind == "item_reference":
            self._references += 1
            if not is_filled(item_id):
                self._found.add("reference_id", f"{at}/id", f"the id of the item is {quoted(item_id)}")
                return
        if item_id is None:
            return
        at = f"{at}/id"
        if not (isinstance(item_id, str) and _ID.fullmatch(item_id)):
            self._found.add("item_id", at, f"the id of the item is {quoted(item_id)}")
        elif item_id in self._item_ids:
            self._found.add("item_id_repeated", at, f"an earlier item has the id {quoted(item_id)} too")
        elif not item_id.startswith(_PREFIXES.get(kind, "")):
            self._found.add("item_id_prefix", at, f"the id {quoted(item_id)} does not begin with {_PREFIXES[kind]}")
        else:
            self._item_ids.add(item_id)

    # --- calls with their outputs

    def _take_call(self, at: str, item: dict[str, object], kind: str) -> None:
        call_id = item.get("call_id")
        if kind in {"function_call", "custom_tool_call"}:
            name, key = item.get("name"), "arguments" if kind == "function_call" else "input"
            if not (isinstance(name, str) and _NAME.fullmatch(name)):
                self._found.add("call_name", f"{at}/name", f"the name of what is called is {quoted(name)}")
            if not isinstance(item.get(key), str):
                self._found.add(f"{key}_not_string", f"{at}/{key}", f"{key} is {kind_of(item.get(key))}, not a string")
        if not self._check_call_id(at, call_id):
            self._faulty_calls += 1
            return
        call_id = str(call_id)
        if call_id in self._kinds:
            self._found.add("call_id_repeated", f"{at}/call_id", f"an earlier call has {quoted(call_id)} too")
            if call_id in self._waiting:
                self._faulty_calls += 1
                return
        self._kinds[call_id] = kind
        if item.get("async") is not True:  # the output of such a call may come in a later request
            self._waiting[call_id] = at

    def _take_output(self, at: str, item: dict[str, object], kind: str) -> None:
        call_id, at_id = item.get("call_id"), f"{at}/call_id"
        if kind in {"function_call_output", "custom_tool_call_output"}:
            self._check_output(f"{at}/output", item.get("output"))
        if kind == "function_call_output" and call_id is None and is_filled(item.get("name")):
            return  # an output of its own, that no call asked for
        if not self._check_call_id(at, call_id):
            self._faulty_outputs += 1
            return
        call_id = str(call_id)
        if call_id in self._kinds and self._kinds[call_id] != _OUTPUT_OF[kind]:
            text = f"the call {quoted(call_id)} is a {self._kinds[call_id]}, the output a {kind}"
            self._found.add("output_kind", f"{at}/type", text)
            self._waiting.pop(call_id, None)
        elif call_id in self._waiting:
            del self._waiting[call_id]
        elif self._faulty_calls:
            self._faulty_calls -= 1
        elif call_id in self._answered:
            self._found.add("second_output", at_id, f"the call {quoted(call_id)} has an output already")
        elif call_id not in self._kinds and not self._references:
            self._found.add("orphan_output", at_id, f"no call before has the call_id {quoted(call_id)}")
        self._answered.add(call_id)

    def _check_call_id(self, at: str, call_id: object) -> bool:
        if not is_filled(call_id):
            self._found.add("call_id", f"{at}/call_id", f"call_id is {quoted(call_id)}")
        elif len(call_id) > MAX_ID:
            self._found.add("call_id_too_long", f"{at}/call_id", f"{quoted(call_id)} has {len(call_id)} characters")
        return is_filled(call_id)

    def _check_output(self, at: str, output: object) -> None:
        if isinstance(output, list):
            self._check_parts(at, output, _INPUTS)
        elif not isinstance(output, str):
            self._found.add("output_type", at, f"output is {kind_of(output)}")

    # --- one item by itself

    def _check_message(self, at: str, item: dict[str, object]) -> None:
        role, content, phase = item.get("role"), item.get("content"), item.get("phase")
        if not is_one_of(role, _ROLES):
            self._found.add("unknown_role", f"{at}/role", f"the role is {quoted(role)}")
        elif isinstance(content, list):
            self._check_parts(f"{at}/content", content, _OUTPUTS if role == "assistant" else _INPUTS)
        elif not isinstance(content, str):
            self._found.add("content_type", f"{at}/content", f"content is {kind_of(content)}")
        if phase is not None and not is_one_of(phase, _PHASES):
            self._found.add("phase_value", f"{at}/phase", f"the phase is {quoted(phase)}")

    def _check_parts(self, at: str, parts: list[object], types: frozenset[str]) -> None:
        for index, part in enumerate(parts):
            if not isinstance(part, dict):
                self._found.add("part_not_object", f"{at}/{index}", f"the part is {kind_of(part)}, not an object")
            elif not is_one_of(part.get("type"), types):
                text = f"a part of type {quoted(part.get('type'))} stands here"
                self._found.add("part_type", f"{at}/{index}/type", text)
            else:
                self._check_part(f"{at}/{index}", part, str(part["type"]))

    def _check_part(self, at: str, part: dict[str, object], kind: str) -> None:
        self._found.unknown_keys(at, part, _PART_KEYS[kind])
        if kind in {"input_image", "input_file"}:
            keys = ("image_url", "file_id") if kind == "input_image" else ("file_id", "file_data", "file_url")
            if not any(is_filled(part.get(key)) for key in keys):
                self._found.add("part_field", at, f"the part has none of {', '.join(keys)}")
            detail = part.get("detail")
            if detail is not None and not is_one_of(detail, _DETAILS):
                self._found.add("part_field", f"{at}/detail", f"detail is {quoted(detail)}")
        else:
            key = "refusal" if kind == "refusal" else "text"
            if not isinstance(part.get(key), str):
                self._found.add("part_field", f"{at}/{key}", f"{key} is {kind_of(part.get(key))}, not a string")
            notes = part.get("annotations")
            if notes is not None and not isinstance(notes, list):
                self._found.add("part_field", f"{at}/annotations", f"annotations is {kind_of(notes)}, not a list")

    def _check_reasoning(self, at: str, item: dict[str, object]) -> None:
        sealed = item.get("encrypted_content")
        self._check_texts(f"{at}/summary", item.get("summary"), "summary_text", "reasoning_summary")
        if item.get("content") is not None:
            self._check_texts(f"{at}/content", item["content"], "reasoning_text", "reasoning_content")
        if sealed is not None and not isinstance(sealed, str):
            self._found.add("reasoning_encrypted", f"{at}/encrypted_content", f"it is {kind_of(sealed)}, not a string")

    def _check_texts(self, at: str, texts: object, kind: str, rule: str) -> None:
        if not isinstance(texts, list):
            self._found.add(rule, at, f"the value is {kind_of(texts)}, not a list")
            return
        for index, part in enumerate(texts):
            if isinstance(part, dict) and part.get("type") == kind and isinstance(part.get("text"), str):
                self._found.unknown_keys(f"{at}/{index}", part, {"type", "text"})
            else:
                self._found.add(rule, f"{at}/{index}", f"the part is not of type {kind} with a text")


def _kind(item: dict[str, object]) -> object:
    """The type of an item: a message may go without one, and so may a reference, of which only the id is left."""
    if item.get("type") is not None:
        return item["type"]
    if "role" in item:
        return "message"
    return "item_reference" if set(item) <= {"id", "type"} and "id" in item else None
