"""The checker of Anthropic Messages: rules for the ``messages`` of a request. Answers and sources: `anthropic_table`.

Consecutive messages of one role form one turn (the reference: "Consecutive user or assistant turns in your request will
be combined into a single turn"), so calls and results are paired by turn.

Deliberately not checked:

* Unknown block types, because the API gets new ones. Block types of other APIs are refused, and so are unknown keys.
* Whether thinking blocks come back unmodified: a list of messages does not show the originals.
* ``null`` in an optional field counts as absent, because SDKs dump their models with it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from turnlog.linter.anthropic_table import (
    MANY_IMAGES,
    MAX_BREAKPOINTS,
    MAX_IMAGE_CHARS,
    MAX_IMAGES,
    MAX_MANY_SIDE,
    MAX_NAME,
    MAX_REQUEST_CHARS,
    MAX_SIDE,
    RULES,
)
from turnlog.linter.rules import (
    MessageReader,
    TurnPairing,
    Violation,
    describe_value,
    image_side,
    image_type,
    is_filled,
    is_match,
    is_one_of,
    kind_of,
)

MAX_MESSAGES = 100_000

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{MAX_NAME}}}")
_ASSISTANT_TYPES = frozenset({"tool_use", "thinking", "redacted_thinking", "server_tool_use"})
_THINKING = frozenset({"thinking", "redacted_thinking"})
_MARKS = frozenset({"compaction", "fallback", "mcp_tool_listing"})
"""Blocks that may stand before the thinking of a turn: they are no part of what the model said."""
_SYSTEM_TYPES = frozenset({"text", "tool_addition", "tool_removal"})
_OTHER_API_TYPES = frozenset(
    {
        *("image_url", "input_text", "input_image", "input_file", "input_audio", "output_text", "refusal", "file"),
        *("function", "function_call", "function_call_output", "tool_call", "toolUse", "toolResult", "reasoning"),
    }
)
_TYPES_REFUSED_IN_RESULTS = _ASSISTANT_TYPES | _OTHER_API_TYPES | {"tool_result"}
_KEYS: Mapping[str, frozenset[str]] = {
    "text": frozenset({"type", "text", "cache_control", "citations"}),
    "image": frozenset({"type", "source", "cache_control", "transformations"}),
    "document": frozenset({"type", "source", "cache_control", "citations", "context", "title"}),
    "search_result": frozenset({"type", "content", "source", "title", "cache_control", "citations"}),
    "thinking": frozenset({"type", "thinking", "signature"}),
    "redacted_thinking": frozenset({"type", "data"}),
    "tool_use": frozenset({"type", "id", "name", "input", "cache_control", "caller", "toolset_name"}),
    "tool_result": frozenset({"type", "tool_use_id", "content", "is_error", "cache_control", "toolset_name"}),
    "tool_reference": frozenset({"type", "tool_name", "cache_control"}),
    "container_upload": frozenset({"type", "file_id", "cache_control"}),
    "fallback": frozenset({"type", "from", "to", "trigger"}),
    "mcp_tool_listing": frozenset({"type", "mcp_server_name", "tools"}),
    "compaction": frozenset({"type", "content", "encrypted_content", "signature", "tool_changes", "cache_control"}),
    "server_tool_use": frozenset({"type", "id", "name", "input", "cache_control", "caller"}),
    "mcp_tool_use": frozenset({"type", "id", "name", "input", "server_name", "cache_control"}),
    "mcp_tool_result": frozenset({"type", "tool_use_id", "content", "is_error", "cache_control"}),
    "web_search_tool_result": frozenset({"type", "tool_use_id", "content", "cache_control", "caller"}),
    "web_fetch_tool_result": frozenset({"type", "tool_use_id", "content", "cache_control", "caller"}),
}
_REQUIRED_STRINGS: Mapping[str, tuple[str, ...]] = {
    "text": ("text",),
    "thinking": ("thinking",),
    "redacted_thinking": ("data",),
    "search_result": ("source", "title"),
    "tool_reference": ("tool_name",),
    "container_upload": ("file_id",),
}
"""Block type -> the keys that must hold a string."""

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
"""Block type -> type of its source -> the key that the source must have, and its media types (empty: not checked)."""
_FILLED = re.compile(".+", re.DOTALL)
_VALUES = {"url": re.compile("https?://.+", re.DOTALL), "file_id": re.compile("(?!file-).+", re.DOTALL)}
"""Key of a source -> what its value is; `_FILLED` for the others. An id that begins with ``file-`` is one of OpenAI's."""


class AnthropicReader(MessageReader):
    """Reads the messages once. Keeps the current turn and the calls that have no result yet."""

    def __init__(self) -> None:
        super().__init__(RULES)
        self._pairing = TurnPairing(self)
        self._server_ids: set[str] = set()
        # Calls of server tools without a result: id -> pointer; the earlier ones are of turns that are over.
        self._server_waiting: dict[str, str] = {}
        self._server_earlier: dict[str, str] = {}
        self._breakpoints = 0
        self._is_short_before = False
        # Images: the side of each by its pointer; and the characters of all data.
        self._images: dict[str, int] = {}
        self._chars = 0
        self._role: object = None
        self._has_turns = False
        self._system_pointers: list[str] = []
        self._systems_follow_user = False
        self._message_pointer = self._final = ""
        self._start_turn()

    def _start_turn(self) -> None:
        # Pointer and type of the first and of the last block of the turn.
        self._first_block: tuple[str, object] = ("", None)
        self._last_block: tuple[str, object] = ("", None)
        self._thinking_reported = False
        self._first_results_message = ""
        self._split_reported = False

    def read(self, messages: object) -> list[Violation]:
        count = len(messages) if isinstance(messages, list) else 0
        if count > MAX_MESSAGES:
            self.add("too_many_messages", "/messages", f"there are {count} messages")
        self._final = f"/messages/{count - 1}"
        return super().read(messages)

    def take(self, pointer: str, message: object) -> None:
        self.lone_surrogates(pointer, message)
        self._message_pointer = pointer
        if not isinstance(message, dict):
            self.add("message_not_object", pointer, f"the message is {kind_of(message)}, not an object")
            self._end_malformed()
            return
        role, content = message.get("role"), message.get("content")
        if role == "system":
            self._take_system(pointer, message, content)
            return
        if not is_one_of(role, {"user", "assistant"}):
            self.add("unknown_role", f"{pointer}/role", f"the role is {describe_value(role)}")
            self._end_malformed()
            return
        self._end_systems(role)
        if not self._has_turns and role == "assistant" and not _begins_with_compaction(content):
            self.add("first_not_user", f"{pointer}/role", "the first message is the assistant's")
        self._has_turns = True
        if role != self._role:
            self._end_turn()
            self._role = role
        self.unknown_keys(pointer, message, {"role", "content"})
        is_prefill = pointer == self._final and role == "assistant"
        self._take_content(f"{pointer}/content", content, may_lack=is_prefill)
        if is_prefill:
            self._check_end(f"{pointer}/content", content)

    def end(self) -> None:
        self._check_images()
        self._end_systems("assistant")
        last, kind = self._last_block
        is_unfinished = kind is not None and kind not in {"text", *_THINKING}
        if self._role == "assistant" and not (self._pairing.open or self._server_waiting or is_unfinished):
            self.add("ends_on_assistant", last or self._message_pointer, "the last turn is the assistant's")
        self._end_turn()
        self._pairing.end_turn()

    def _end_turn(self) -> None:
        if self._role == "user":
            self._pairing.end_turn()
        elif self._role == "assistant":
            if self._last_block[1] == "thinking":
                self.add("thinking_last", self._last_block[0], "the last block of the assistant's turn is thinking")
            self._report_server_calls(self._server_earlier)
            self._server_earlier, self._server_waiting = self._server_waiting, {}
        self._start_turn()

    def _report_server_calls(self, waiting: Mapping[str, str]) -> None:
        for call_id, pointer in waiting.items():
            self.add("server_call_unanswered", pointer, f"the call {describe_value(call_id)} has no result behind it")

    def _end_malformed(self) -> None:
        """End the turn at a message that cannot be read: no call before it can get a result."""
        self._end_systems("")
        self._end_turn()
        self._pairing.end_turn()
        self._has_turns, self._role = True, None

    def _take_system(self, pointer: str, message: dict[str, object], content: object) -> None:
        if content == [] and message.get("output_config") is not None:
            return  # a directive, taken at any position
        if not self._system_pointers:
            self._systems_follow_user = self._role == "user" or str(self._last_block[1]).endswith("_tool_result")
        self._system_pointers.append(f"{pointer}/role")
        pointer = f"{pointer}/content"
        if content in ("", []):
            self.add("content_empty", pointer, "the system message is empty")
        elif isinstance(content, list):
            for index, block in enumerate(content):
                kind = block.get("type") if isinstance(block, dict) else None
                if is_one_of(kind, _SYSTEM_TYPES):
                    self._check_block(f"{pointer}/{index}", block)
                else:
                    self.add("system_block", f"{pointer}/{index}", f"a system message has {describe_value(kind)}")
        elif isinstance(content, str):
            self._check_text(pointer, content)
        else:
            self.add("content_type", pointer, f"content is {kind_of(content)}")

    def _end_systems(self, role: str) -> None:
        rule = "system_role" if self._systems_follow_user and role == "assistant" else "system_misplaced"
        for pointer in self._system_pointers:
            self.add(rule, pointer, "the list has a system message")
        self._system_pointers = []

    def _check_end(self, pointer: str, content: object) -> None:
        if isinstance(content, list) and content:
            block = content[-1]
            pointer = f"{pointer}/{len(content) - 1}/text"
            content = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None
        if isinstance(content, str) and content.strip() and content != content.rstrip():
            self.add("trailing_whitespace", pointer, "the end of the assistant's last text is white space")

    def _take_content(self, pointer: str, content: object, *, may_lack: bool) -> None:
        if content in ("", []):
            if not may_lack:
                self.add("content_empty", pointer, f"content is {kind_of(content)} with nothing in it")
        elif isinstance(content, str):
            self._check_text(pointer, content)
            self._note_block(pointer, "text")
        elif isinstance(content, list):
            for index, block in enumerate(content):
                self._take_block(f"{pointer}/{index}", block)
        else:
            self.add("content_type", pointer, f"content is {kind_of(content)}")

    def _note_block(self, pointer: str, kind: object) -> None:
        """Record a block of the turn; report thinking that comes after text or calls, once for each turn."""
        if self._role == "user" and kind != "tool_result":
            # Anything but results ends the assistant's turn, and with it the calls that the provider runs.
            self._report_server_calls(self._server_earlier)
            self._server_earlier = {}
        if not self._first_block[0] and kind not in _MARKS:
            self._first_block = (pointer, kind)
        self._last_block = (pointer, kind)
        if is_one_of(kind, _THINKING) and self._first_block[1] in {"text", "tool_use"} and not self._thinking_reported:
            self._thinking_reported = True
            self.add("thinking_not_first", self._first_block[0], f"{self._first_block[1]} comes before the thinking")

    def _take_block(self, pointer: str, block: object) -> None:
        kind = block.get("type") if isinstance(block, dict) else None
        self._check_block(pointer, block)
        if isinstance(block, dict) and isinstance(kind, str):
            if kind == "tool_result" and self._role == "user":
                self._take_result(pointer, block)
            elif kind == "tool_use" and self._role == "assistant":
                self._take_call(pointer, block)
            elif kind == "tool_result" or (kind in _ASSISTANT_TYPES and self._role == "user"):
                self.add("block_wrong_role", f"{pointer}/type", f"{kind} in a message of the {self._role}")
            elif kind in {"server_tool_use", "mcp_tool_use"}:
                self._take_server_call(pointer, block)
            elif kind.endswith("_tool_result"):
                self._take_server_result(pointer, block)
            elif kind == "compaction":
                self._check_compaction(pointer, block)
            else:
                self._check_role(pointer, kind, block)
        self._note_block(pointer, kind if isinstance(kind, str) else "?")

    def _check_compaction(self, pointer: str, block: dict[str, object]) -> None:
        if block.get("signature") and pointer != "/messages/0/content/0":
            self.add("compaction_misplaced", pointer, "other blocks come before the signed summary")
        content = block.get("content")
        if isinstance(content, str) and not content.strip():
            self.add("compaction_blank", f"{pointer}/content", "the summary is empty or white space only")

    def _check_role(self, pointer: str, kind: str, block: dict[str, object]) -> None:
        """Report content that only a message of the other role may have."""
        if kind == "document" and self._role == "assistant":
            self.add("document_in_assistant", f"{pointer}/type", "a document in a message of the assistant")
        elif kind == "text" and block.get("citations") and self._role == "user":
            self.add("citations_in_user", f"{pointer}/citations", "citations in a message of the user")

    def _take_call(self, pointer: str, block: dict[str, object]) -> None:
        call_id, name, arguments = block.get("id"), block.get("name"), block.get("input")
        valid_id = call_id if is_match(call_id, _ID) else None
        if valid_id is None:
            self.add("call_id", f"{pointer}/id", f"the id of the call is {describe_value(call_id)}")
        if not is_match(name, _NAME):
            self.add("call_name", f"{pointer}/name", f"the name of the tool is {describe_value(name)}")
        if not isinstance(arguments, dict):
            self.add("input_not_object", f"{pointer}/input", f"the input is {kind_of(arguments)}, not an object")
        self._pairing.add_call(pointer, "id", valid_id)

    def _take_result(self, pointer: str, block: dict[str, object]) -> None:
        call_id = block.get("tool_use_id")
        valid_id = call_id if is_match(call_id, _ID) else None
        if valid_id is None:
            self.add("result_id", f"{pointer}/tool_use_id", f"tool_use_id is {describe_value(call_id)}")
        self._check_result(pointer, block)
        is_in_place = self._last_block[1] == "tool_result" or not self._last_block[0]
        is_answer = self._pairing.add_result(f"{pointer}/tool_use_id", valid_id)
        if is_answer and not is_in_place:
            self.add("result_after_content", pointer, "other content of the turn comes before the result")
        elif is_answer and self._first_results_message not in {"", self._message_pointer} and not self._split_reported:
            self._split_reported = True
            self.add("results_split", pointer, "other results of the turn are in a message before")
        self._first_results_message = self._first_results_message or self._message_pointer

    def _take_server_call(self, pointer: str, block: dict[str, object]) -> None:
        call_id = block.get("id")
        if is_filled(call_id):
            self._pairing.register_id(f"{pointer}/id", call_id)
            self._server_ids.add(call_id)
            self._server_waiting[call_id] = pointer
        else:
            self.add("call_id", f"{pointer}/id", f"the id of the call is {describe_value(call_id)}")

    def _take_server_result(self, pointer: str, block: dict[str, object]) -> None:
        call_id, pointer = block.get("tool_use_id"), f"{pointer}/tool_use_id"
        for waiting in (self._server_waiting, self._server_earlier):
            waiting.pop(str(call_id), None)
        if not is_one_of(call_id, self._server_ids):
            self.add("server_result_unknown", pointer, f"no call of a server tool has the id {describe_value(call_id)}")

    def _check_block(self, pointer: str, block: object) -> None:
        """Check the fields that a block's type demands."""
        if not isinstance(block, dict):
            self.add("block_not_object", pointer, f"the block is {kind_of(block)}, not an object")
            return
        kind = block.get("type")
        if not is_filled(kind) or kind in _OTHER_API_TYPES:
            self.add("block_type", f"{pointer}/type", f"the type of the block is {describe_value(kind)}")
            return
        if kind in _KEYS:
            self.unknown_keys(pointer, block, _KEYS[kind])
        for key in _REQUIRED_STRINGS.get(kind, ()):
            if not isinstance(block.get(key), str) or (key == "data" and not block[key]):
                self.add("block_field", f"{pointer}/{key}", f"{key} is {kind_of(block.get(key))}, not a string")
        self._check_block_content(pointer, block, kind)
        self._check_breakpoint(f"{pointer}/cache_control", block.get("cache_control"))

    def _check_block_content(self, pointer: str, block: dict[str, object], kind: str) -> None:
        text = block.get("text")
        if kind == "text" and isinstance(text, str):
            self._check_text(f"{pointer}/text", text)
        elif kind == "thinking" and not is_filled(block.get("signature")):
            self.add("thinking_signature", f"{pointer}/signature", "the thinking has no signature")
        elif kind in _SOURCES:
            source = block.get("source")
            self._check_source(f"{pointer}/source", source, _SOURCES[kind])
            self._take_data(pointer, kind, source if isinstance(source, dict) else {})
        elif kind == "search_result":
            self._check_nested(f"{pointer}/content", block.get("content"), {"text"})

    def _check_text(self, pointer: str, text: str) -> None:
        if not text.strip():
            self.add("text_blank", pointer, "the text is empty or white space only")

    def _check_breakpoint(self, pointer: str, value: object) -> None:
        if value is None:
            return
        ttl = value.get("ttl") if isinstance(value, dict) else None
        if not (isinstance(value, dict) and value.get("type") == "ephemeral" and ttl in (None, "5m", "1h")):
            self.add("cache_control", pointer, f"cache_control is {kind_of(value)} without a known type and ttl")
        if ttl == "1h" and self._is_short_before:
            self.add("breakpoint_order", f"{pointer}/ttl", "a block before is cached for five minutes")
        self._is_short_before = self._is_short_before or ttl != "1h"
        self._breakpoints += 1
        if self._breakpoints == MAX_BREAKPOINTS + 1:
            self.add("too_many_breakpoints", pointer, f"{MAX_BREAKPOINTS} blocks before have cache_control")

    def _check_source(self, pointer: str, source: object, types: Mapping[str, tuple[str, frozenset[str]]]) -> None:
        kind = source.get("type") if isinstance(source, dict) else None
        if not isinstance(source, dict):
            self.add("source_type", pointer, f"the source is {kind_of(source)}, not an object")
        elif not is_one_of(kind, types):
            self.add("source_type", f"{pointer}/type", f"the type of the source is {describe_value(kind)}")
        else:
            key, media_types = types[kind]
            self.unknown_keys(pointer, source, {"type", key, "media_type"} if media_types else {"type", key})
            if kind == "content" and isinstance(source.get(key), list):
                self._check_nested(f"{pointer}/{key}", source[key], {"text", "image"})
            elif not is_match(source.get(key), _VALUES.get(key, _FILLED)):
                self.add("source_field", f"{pointer}/{key}", f"{key} is {describe_value(source.get(key))}")
            if media_types and not is_one_of(source.get("media_type"), media_types):
                value = describe_value(source.get("media_type"))
                self.add("media_type", f"{pointer}/media_type", f"the media type is {value}")

    def _take_data(self, pointer: str, kind: str, source: dict[str, object]) -> None:
        """Note an image, and the size of what is sent in base64."""
        data, media_type = source.get("data"), source.get("media_type")
        chars = len(data) if isinstance(data, str) else 0
        self._chars += chars
        if kind != "image":
            return
        side = image_side(data)
        self._images[pointer] = side
        if chars and is_one_of(media_type, _IMAGES) and image_type(data) != media_type:
            self.add("image_data", f"{pointer}/source/data", f"the data are no {media_type} in base64")
        if chars > MAX_IMAGE_CHARS:
            self.add("image_bytes", pointer, f"the image has {chars} characters of base64")
        if side > MAX_SIDE:
            self.add("image_pixels", pointer, f"a side of the image has {side} pixels")

    def _check_images(self) -> None:
        for pointer, side in self._images.items():
            if len(self._images) > MANY_IMAGES and MAX_MANY_SIDE < side <= MAX_SIDE:
                self.add(
                    "many_images_pixels", pointer, f"a side of one of {len(self._images)} images has {side} pixels"
                )
        if len(self._images) > MAX_IMAGES:
            self.add("too_many_images", "/messages", f"the request has {len(self._images)} images")
        if self._chars > MAX_REQUEST_CHARS:
            self.add("request_bytes", "/messages", f"the request has {self._chars} characters of base64")

    def _check_nested(self, pointer: str, blocks: object, block_types: set[str]) -> None:
        if not isinstance(blocks, list):
            self.add("block_field", pointer, f"content is {kind_of(blocks)}, not a list")
            return
        for index, block in enumerate(blocks):
            kind = block.get("type") if isinstance(block, dict) else None
            if is_one_of(kind, block_types):
                self._check_block(f"{pointer}/{index}", block)
            else:
                self.add(
                    "block_type", f"{pointer}/{index}", f"a block of type {describe_value(kind)} is not allowed here"
                )

    def _check_result(self, pointer: str, block: dict[str, object]) -> None:
        content, error = block.get("content"), block.get("is_error")
        if error is not None and not isinstance(error, bool):
            self.add("is_error_type", f"{pointer}/is_error", f"is_error is {kind_of(error)}")
        if error is True and (content in (None, []) or (isinstance(content, str) and not content.strip())):
            self.add("error_empty", f"{pointer}/content", "the result is an error without content")
        if isinstance(content, list):
            for index, nested in enumerate(content):
                kind = nested.get("type") if isinstance(nested, dict) else None
                if is_one_of(kind, _TYPES_REFUSED_IN_RESULTS):
                    text = f"a result has a block of type {describe_value(kind)}"
                    self.add("result_block_type", f"{pointer}/content/{index}/type", text)
                else:
                    self._check_block(f"{pointer}/content/{index}", nested)
                    if error is True and kind != "text":
                        self.add(
                            "error_not_text",
                            f"{pointer}/content/{index}",
                            f"a failed result has {describe_value(kind)}",
                        )
        elif isinstance(content, str) and content and error is not True:
            self._check_text(f"{pointer}/content", content)
        elif content is not None and not isinstance(content, str):
            self.add("result_content", f"{pointer}/content", f"the content of the result is {kind_of(content)}")


def _begins_with_compaction(content: object) -> bool:
    """Return whether a content begins with a summary of the provider's, which may be first in a request.

    https://platform.claude.com/docs/en/build-with-claude/compaction-on-demand
    """
    block = content[0] if isinstance(content, list) and content else None
    return isinstance(block, dict) and block.get("type") == "compaction" and isinstance(block.get("content"), str)
