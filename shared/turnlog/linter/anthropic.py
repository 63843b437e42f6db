"""The rules of Anthropic Messages for the ``messages`` of a request, each with its answer and its source.

Messages of one role in a row are one turn (the reference: "Consecutive user or assistant turns in your request will
be combined into a single turn"), and so calls and results are paired by turns.

Not rules, on purpose:

* Block types that are not known: the API gets new ones. Types of other APIs are refused, and so are unknown keys.
* A ``server_tool_use`` without its result: a paused turn goes back as it came, and the result may come turns later.
* That thinking blocks come back unmodified: a list of messages does not tell what they were.
* ``null`` in an optional field: read as absent; the model dumps of SDKs have it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from turnlog.linter.anthropic_table import MAX_BREAKPOINTS, MAX_NAME, RULES
from turnlog.linter.reading import Findings, TurnPairing, is_filled, is_one_of, kind_of, quoted
from turnlog.linter.rules import Violation

MAX_MESSAGES = 100_000

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{MAX_NAME}}}")
_ASSISTANT_ONLY = frozenset({"tool_use", "thinking", "redacted_thinking", "server_tool_use"})
_THINKING = frozenset({"thinking", "redacted_thinking"})
_IN_SYSTEM = frozenset({"text", "tool_addition", "tool_removal"})
_FOREIGN = frozenset(
    {
        *("image_url", "input_text", "input_image", "input_file", "input_audio", "output_text", "refusal", "file"),
        *("function", "function_call", "function_call_output", "tool_call", "toolUse", "toolResult", "reasoning"),
    }
)
_NOT_IN_RESULT = _ASSISTANT_ONLY | _FOREIGN | {"tool_result"}
_KEYS: Mapping[str, frozenset[str]] = {
    "text": frozenset({"type", "text", "cache_control", "citations"}),
    "image": frozenset({"type", "source", "cache_control", "transformations"}),
    "document": frozenset({"type", "source", "cache_control", "citations", "context", "title"}),
    "search_result": frozenset({"type", "content", "source", "title", "cache_control", "citations"}),
    "thinking": frozenset({"type", "thinking", "signature"}),
    "redacted_thinking": frozenset({"type", "data"}),
    "tool_use": frozenset({"type", "id", "name", "input", "cache_control", "caller", "toolset_name"}),
    "tool_result": frozenset({"type", "tool_use_id", "content", "is_error", "cache_control", "toolset_name"}),
}
_STRINGS: Mapping[str, tuple[str, ...]] = {
    "text": ("text",),
    "thinking": ("thinking",),
    "redacted_thinking": ("data",),
    "search_result": ("source", "title"),
    "tool_reference": ("tool_name",),
    "container_upload": ("file_id",),
}
"""Block type -> the strings it must have."""

_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_SOURCES: Mapping[str, Mapping[str, tuple[str, frozenset[str]]]] = {
    "image": {"base64": ("data", _IMAGES), "url": ("url", frozenset()), "file": ("file_id", frozenset())},
    "document": {
        "base64": ("data", frozenset({"application/pdf"})),
        "text": ("data", frozenset({"text/plain"})),
        "url": ("url", frozenset()),
        "file": ("file_id", frozenset()),
        "content": ("content", frozenset()),
    },
}
"""Block type -> type of its source -> what the source must have, and its media types."""


def check(messages: object) -> list[Violation]:
    """Every violation, in the order in which a reader from the top can know of it. Never raises; linear."""
    found = Findings(RULES)
    if not isinstance(messages, list):
        found.add("messages_not_list", "/messages", f"messages is {kind_of(messages)}, not a list")
    elif not messages:
        found.add("messages_empty", "/messages", "messages is empty")
    else:
        if len(messages) > MAX_MESSAGES:
            found.add("too_many_messages", "/messages", f"there are {len(messages)} messages")
        reader = _Reader(found)
        for index, message in enumerate(messages):
            reader.take(f"/messages/{index}", message, final=index + 1 == len(messages))
        reader.end()
    return found.violations


class _Reader:
    """Goes through the messages once; knows the turn it is in, and the calls that wait."""

    def __init__(self, found: Findings) -> None:
        self._found = found
        self._pairing = TurnPairing(found)
        self._server_ids: set[str] = set()
        self._breakpoints = 0
        self._role: object = None
        self._any_turn = False
        self._systems: list[str] = []
        self._systems_follow = False
        self._message = ""
        self._start_turn()

    def _start_turn(self) -> None:
        # Pointer and type of the first block of the turn, and of the last one.
        self._first: tuple[str, object] = ("", None)
        self._last: tuple[str, object] = ("", None)
        self._told_thinking = False
        self._results_in = ""
        self._told_split = False

    # --- messages and turns

    def take(self, at: str, message: object, *, final: bool) -> None:
        self._message = at
        if not isinstance(message, dict):
            self._found.add("message_not_object", at, f"the message is {kind_of(message)}, not an object")
            self._break_off()
            return
        role, content = message.get("role"), message.get("content")
        if role == "system":
            self._take_system(at, message, content)
            return
        if not is_one_of(role, {"user", "assistant"}):
            self._found.add("unknown_role", f"{at}/role", f"the role is {quoted(role)}")
            self._break_off()
            return
        self._end_systems(role)
        if not self._any_turn and role == "assistant":
            self._found.add("first_not_user", f"{at}/role", "the first message is the assistant's")
        self._any_turn = True
        if role != self._role:
            self._end_turn()
            self._role = role
        self._found.unknown_keys(at, message, {"role", "content"})
        self._content(f"{at}/content", content, may_lack=final and role == "assistant")
        if final and role == "assistant":
            self._check_end(f"{at}/content", content)

    def end(self) -> None:
        self._end_systems("assistant")
        last, kind = self._last
        going_on = kind is not None and kind not in {"text", *_THINKING}
        if self._role == "assistant" and not (self._pairing.open or going_on):
            self._found.add("ends_on_assistant", last or self._message, "the last turn is the assistant's")
        self._end_turn()
        self._pairing.close()

    def _end_turn(self) -> None:
        if self._role == "user":
            self._pairing.close()
        elif self._last[1] == "thinking":
            self._found.add("thinking_last", self._last[0], "the last block of the assistant's turn is thinking")
        self._start_turn()

    def _break_off(self) -> None:
        self._end_systems("")
        self._end_turn()
        self._pairing.close()
        self._any_turn, self._role = True, None

    def _take_system(self, at: str, message: dict[str, object], content: object) -> None:
        if content == [] and message.get("output_config") is not None:
            return  # a directive, taken at any position
        if not self._systems:
            self._systems_follow = self._role == "user" or str(self._last[1]).endswith("_tool_result")
        self._systems.append(f"{at}/role")
        at = f"{at}/content"
        if content in ("", []):
            self._found.add("content_empty", at, "the system message is empty")
        elif isinstance(content, list):
            for index, block in enumerate(content):
                kind = block.get("type") if isinstance(block, dict) else None
                if is_one_of(kind, _IN_SYSTEM):
                    self._check_block(f"{at}/{index}", block)
                else:
                    self._found.add("system_block", f"{at}/{index}", f"a system message has {quoted(kind)}")
        elif isinstance(content, str):
            self._check_text(at, content)
        else:
            self._found.add("content_type", at, f"content is {kind_of(content)}")

    def _end_systems(self, role: str) -> None:
        rule = "system_role" if self._systems_follow and role == "assistant" else "system_misplaced"
        for at in self._systems:
            self._found.add(rule, at, "a system message stands in the list")
        self._systems = []

    def _check_end(self, at: str, content: object) -> None:
        if isinstance(content, list) and content:
            block = content[-1]
            at = f"{at}/{len(content) - 1}/text"
            content = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None
        if isinstance(content, str) and content.strip() and content != content.rstrip():
            self._found.add("trailing_whitespace", at, "the end of the assistant's last text is white space")

    # --- content

    def _content(self, at: str, content: object, *, may_lack: bool) -> None:
        if content in ("", []):
            if not may_lack:
                self._found.add("content_empty", at, f"content is {kind_of(content)} with nothing in it")
        elif isinstance(content, str):
            self._check_text(at, content)
            self._place(at, "text")
        elif isinstance(content, list):
            for index, block in enumerate(content):
                self._take_block(f"{at}/{index}", block)
        else:
            self._found.add("content_type", at, f"content is {kind_of(content)}")

    def _place(self, at: str, kind: object) -> None:
        if not self._first[0]:
            self._first = (at, kind)
        self._last = (at, kind)
        if is_one_of(kind, _THINKING) and self._first[1] in {"text", "tool_use"} and not self._told_thinking:
            self._told_thinking = True
            self._found.add("thinking_not_first", self._first[0], f"{self._first[1]} comes before the thinking")

    def _take_block(self, at: str, block: object) -> None:
        kind = block.get("type") if isinstance(block, dict) else None
        if self._check_block(at, block) and isinstance(block, dict) and isinstance(kind, str):
            if kind == "tool_result" and self._role == "user":
                self._take_result(at, block)
            elif kind == "tool_use" and self._role == "assistant":
                self._take_call(at, block)
            elif kind == "tool_result" or (kind in _ASSISTANT_ONLY and self._role == "user"):
                self._found.add("block_wrong_role", f"{at}/type", f"{kind} in a message of the {self._role}")
            elif kind in {"server_tool_use", "mcp_tool_use"}:
                self._take_server_call(at, block)
            elif kind.endswith("_tool_result"):
                self._take_server_result(at, block)
            elif kind == "document" and self._role == "assistant":
                self._found.add("document_in_assistant", f"{at}/type", "a document in a message of the assistant")
            elif kind == "text" and block.get("citations") and self._role == "user":
                self._found.add("citations_in_user", f"{at}/citations", "citations in a message of the user")
        self._place(at, kind if isinstance(kind, str) else "?")

    def _take_call(self, at: str, block: dict[str, object]) -> None:
        call_id, name, given = block.get("id"), block.get("name"), block.get("input")
        valid = _is(call_id, _ID)
        if not valid:
            self._found.add("call_id", f"{at}/id", f"the id of the call is {quoted(call_id)}")
        if not _is(name, _NAME):
            self._found.add("call_name", f"{at}/name", f"the name of the tool is {quoted(name)}")
        if not isinstance(given, dict):
            self._found.add("input_not_object", f"{at}/input", f"the input is {kind_of(given)}, not an object")
        self._pairing.call(at, "id", call_id if valid and isinstance(call_id, str) else None)

    def _take_result(self, at: str, block: dict[str, object]) -> None:
        call_id = block.get("tool_use_id")
        valid = _is(call_id, _ID)
        if not valid:
            self._found.add("result_id", f"{at}/tool_use_id", f"tool_use_id is {quoted(call_id)}")
        self._check_result(at, block)
        after = is_one_of(self._last[1], {"tool_result"}) or not self._last[0]
        answers = self._pairing.result(f"{at}/tool_use_id", call_id if valid and isinstance(call_id, str) else None)
        if answers and not after:
            self._found.add("result_after_content", at, "other content of the turn comes before the result")
        elif answers and self._results_in not in {"", self._message} and not self._told_split:
            self._told_split = True
            self._found.add("results_split", at, "other results of the turn are in a message before")
        self._results_in = self._results_in or self._message

    def _take_server_call(self, at: str, block: dict[str, object]) -> None:
        call_id = block.get("id")
        if is_filled(call_id):
            self._pairing.once(f"{at}/id", call_id)
            self._server_ids.add(call_id)
        else:
            self._found.add("call_id", f"{at}/id", f"the id of the call is {quoted(call_id)}")

    def _take_server_result(self, at: str, block: dict[str, object]) -> None:
        call_id, at = block.get("tool_use_id"), f"{at}/tool_use_id"
        if not is_one_of(call_id, self._server_ids):
            self._found.add("server_result_unknown", at, f"no call of a server tool has the id {quoted(call_id)}")

    # --- one block by itself

    def _check_block(self, at: str, block: object) -> bool:
        """Whether it is an object with a type that may be this API's; what its type needs is noted."""
        if not isinstance(block, dict):
            self._found.add("block_not_object", at, f"the block is {kind_of(block)}, not an object")
            return False
        kind = block.get("type")
        if not is_filled(kind) or kind in _FOREIGN:
            self._found.add("block_type", f"{at}/type", f"the type of the block is {quoted(kind)}")
            return False
        if kind in _KEYS:
            self._found.unknown_keys(at, block, _KEYS[kind])
        for key in _STRINGS.get(kind, ()):
            if not isinstance(block.get(key), str) or (key == "data" and not block[key]):
                self._found.add("block_field", f"{at}/{key}", f"{key} is {kind_of(block.get(key))}, not a string")
        if kind == "text" and isinstance(block.get("text"), str):
            self._check_text(f"{at}/text", block["text"])
        elif kind == "thinking" and not is_filled(block.get("signature")):
            self._found.add("thinking_signature", f"{at}/signature", "the thinking has no signature")
        elif kind in _SOURCES:
            self._check_source(f"{at}/source", block.get("source"), _SOURCES[kind])
        elif kind == "search_result":
            self._check_nested(f"{at}/content", block.get("content"), {"text"})
        self._check_breakpoint(f"{at}/cache_control", block.get("cache_control"))
        return True

    def _check_text(self, at: str, text: str) -> None:
        if not text.strip():
            self._found.add("text_blank", at, "the text is empty or white space only")

    def _check_breakpoint(self, at: str, value: object) -> None:
        if value is None:
            return
        ttl = value.get("ttl") if isinstance(value, dict) else None
        if not (isinstance(value, dict) and value.get("type") == "ephemeral" and ttl in (None, "5m", "1h")):
            self._found.add("cache_control", at, f"cache_control is {kind_of(value)} of no known kind")
        self._breakpoints += 1
        if self._breakpoints == MAX_BREAKPOINTS + 1:
            self._found.add("too_many_breakpoints", at, f"{MAX_BREAKPOINTS} blocks before have cache_control")

    def _check_source(self, at: str, source: object, types: Mapping[str, tuple[str, frozenset[str]]]) -> None:
        kind = source.get("type") if isinstance(source, dict) else None
        if not isinstance(source, dict):
            self._found.add("source_type", at, f"the source is {kind_of(source)}, not an object")
        elif not is_one_of(kind, types):
            self._found.add("source_type", f"{at}/type", f"the type of the source is {quoted(kind)}")
        else:
            key, media_types = types[kind]
            self._found.unknown_keys(at, source, {"type", key, "media_type"} if media_types else {"type", key})
            if kind == "content" and isinstance(source.get(key), list):
                self._check_nested(f"{at}/{key}", source[key], {"text", "image"})
            elif not is_filled(source.get(key)):
                self._found.add("source_field", f"{at}/{key}", f"{key} is {kind_of(source.get(key))}, or empty")
            if media_types and not is_one_of(source.get("media_type"), media_types):
                value = quoted(source.get("media_type"))
                self._found.add("media_type", f"{at}/media_type", f"the media type is {value}")

    def _check_nested(self, at: str, blocks: object, types: set[str]) -> None:
        if not isinstance(blocks, list):
            self._found.add("block_field", at, f"content is {kind_of(blocks)}, not a list")
            return
        for index, block in enumerate(blocks):
            kind = block.get("type") if isinstance(block, dict) else None
            if is_one_of(kind, types):
                self._check_block(f"{at}/{index}", block)
            else:
                self._found.add("block_type", f"{at}/{index}", f"a block of type {quoted(kind)} stands here")

    def _check_result(self, at: str, block: dict[str, object]) -> None:
        content, error = block.get("content"), block.get("is_error")
        if error is not None and not isinstance(error, bool):
            self._found.add("is_error_type", f"{at}/is_error", f"is_error is {kind_of(error)}")
        if error is True and content in (None, "", []):
            self._found.add("error_empty", f"{at}/content", "the result is an error and does not say which")
        if isinstance(content, list):
            for index, nested in enumerate(content):
                kind = nested.get("type") if isinstance(nested, dict) else None
                if is_one_of(kind, _NOT_IN_RESULT):
                    text = f"a result has a block of type {quoted(kind)}"
                    self._found.add("result_block_type", f"{at}/content/{index}/type", text)
                else:
                    self._check_block(f"{at}/content/{index}", nested)
        elif content is not None and not isinstance(content, str):
            self._found.add("result_content", f"{at}/content", f"the content of the result is {kind_of(content)}")


def _is(value: object, pattern: re.Pattern[str]) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None
