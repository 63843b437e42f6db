"""A linter for message lists: the rules that model providers enforce on a conversation history.

It checks Turnlog's renderers and logs from elsewhere. It uses only the standard library and shares no code with the
renderers (import-linter enforces this), so that one mistake cannot hide in both.
"""

from __future__ import annotations

import base64
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import TypeGuard

_SURROGATE = re.compile("[\ud800-\udfff]")
FORMATS: Mapping[str, str] = {
    "anthropic": "AnthropicReader",
    "bedrock_converse": "ConverseReader",
    "openai_chat": "ChatReader",
    "openai_responses": "ResponsesReader",
}
"""Format -> its `MessageReader`, in the module of the format's name. To add a format, write its module and list it here."""
_BASE64 = re.compile(r"[A-Za-z0-9+/_\-\r\n]+={0,2}\s{0,2}")
_STARTS = {"iVBORw0K": "image/png", "/9j/": "image/jpeg", "R0lGOD": "image/gif", "UklGR": "image/webp"}
_HEADER_CHARS = 262_144
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a list of messages breaks, and where.

    ``pointer`` is a JSON pointer (RFC 6901) into ``{"messages": [...]}``, e.g. ``/messages/3/tool_calls/0/id``.
    ``message`` says what is wrong there; ``fix`` says how to correct the history.
    ``provider_says`` is the provider's error for such a request; ``source`` is the URL of the document or public thread that
    shows it.
    """

    rule: str
    pointer: str
    message: str
    provider_says: str
    fix: str
    source: str


def lint(messages: object, *, format: str) -> list[Violation]:
    """Return every violation of the provider's rules in ``messages``, the message list of a request; empty when it is valid.

    Accepts any JSON value and never raises on one: a value of a wrong type is a violation. Linear in the size of ``messages``.
    Raises `ValueError` when ``format`` is not a format in `FORMATS`.
    """
    if format not in FORMATS:
        raise ValueError(f"no rules for format {format!r}; known: {', '.join(FORMATS)}")
    # Imported when called: the readers import this module, and a caller loads only the format that it needs.
    reader: MessageReader = getattr(import_module(f"turnlog.linter.{format}"), FORMATS[format])()
    return reader.read(messages)


@dataclass(frozen=True, slots=True)
class Rule:
    """The provider's ``answer`` to a broken rule, how to ``fix`` the history, and the ``source`` (URL) that shows the answer."""

    answer: str
    fix: str
    source: str


class Findings:
    """The violations found in one list of messages, in the order in which they were added."""

    def __init__(self, rules: Mapping[str, Rule]) -> None:
        self._rules = rules
        self.violations: list[Violation] = []

    def add(self, rule: str, pointer: str, message: str) -> None:
        """Add a violation of ``rule``; ``pointer`` is its place and ``message`` says what is wrong there."""
        details = self._rules[rule]
        self.violations.append(Violation(rule, pointer, message, details.answer, details.fix, details.source))

    def unknown_keys(self, pointer: str, value: Mapping[str, object], known: Collection[str]) -> None:
        """Add ``unknown_key`` for each key of ``value`` that is not in ``known``."""
        for key in value:
            if key not in known:
                self.add("unknown_key", f"{pointer}/{escaped(key)}", f"the key {describe_value(key)} is not known here")

    def lone_surrogates(self, pointer: str, value: object) -> None:
        """Add ``lone_surrogate`` for each text and each key of the object ``value`` with half of a surrogate pair, at any depth."""
        stack = [(pointer, value)]
        while stack:
            place, item = stack.pop()
            members = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
            for key, member in members:
                for part in (key, member):
                    if isinstance(part, (dict, list)):
                        stack.append((f"{place}/{escaped(key)}", part))
                    elif isinstance(part, str) and _SURROGATE.search(part):
                        text = f"{describe_value(part)} has half of a surrogate pair"
                        self.add("lone_surrogate", f"{place}/{escaped(key)}", text)


class MessageReader(ABC, Findings):
    """Reads the messages of a request once, and keeps what later ones decide. A subclass has the rules of its format.

    A value that is not a list breaks the rule ``<entries>_not_list``, an empty one ``<entries>_empty``; ``list_name`` is what
    violations call the list.
    """

    entries, list_name = "messages", "messages"

    def read(self, messages: object) -> list[Violation]:
        """Return every violation, in the order in which a reader from the top detects them.

        Never raises; linear in the size of ``messages``.
        """
        if not isinstance(messages, list):
            self.add(f"{self.entries}_not_list", "/messages", f"{self.list_name} is {kind_of(messages)}, not a list")
        elif not messages:
            self.add(f"{self.entries}_empty", "/messages", f"{self.list_name} is empty")
        else:
            for index, message in enumerate(messages):
                self.take(f"/messages/{index}", message)
        self.end()
        return self.violations

    @abstractmethod
    def take(self, pointer: str, message: object) -> None:
        """Check the next message, whose JSON pointer is ``pointer``."""

    @abstractmethod
    def end(self) -> None:
        """Check what is left open behind the last message."""


class TurnPairing:
    """Pairs the tool calls of an assistant turn with the results behind it, which must answer all of them.

    A call or result whose own id is invalid may pair with any other: the checker has reported that id already, and one fault
    is reported once. Adds ``call_id_repeated``, ``call_unanswered``, ``second_result``, and ``unknown`` for a result without
    its call. Messages of violations have ``earlier``, the calls that a result may answer, and ``answer``, what a call lacks.
    """

    def __init__(
        self,
        findings: Findings,
        *,
        unknown: str = "result_unknown",
        earlier: str = "of the turn before",
        answer: str = "result in the next user turn",
    ) -> None:
        self._findings = findings
        self._unknown, self._earlier, self._answer = unknown, earlier, answer
        self._ids: set[str] = set()
        self._waiting: dict[str, str] = {}
        self._answered: set[str] = set()
        self._faulty_calls = 0
        self._faulty_results = 0

    @property
    def open(self) -> bool:
        """Whether a call of the turn has no result yet."""
        return bool(self._waiting) or self._faulty_calls > 0

    def register_id(self, pointer: str, call_id: str) -> bool:
        """Return whether ``call_id`` is new; add ``call_id_repeated`` at ``pointer`` when an earlier call has it."""
        is_new = call_id not in self._ids
        if not is_new:
            self._findings.add("call_id_repeated", pointer, f"an earlier call has the id {describe_value(call_id)} too")
        self._ids.add(call_id)
        return is_new

    def add_call(self, pointer: str, key: str, call_id: str | None) -> None:
        """Add a call whose object is at ``pointer`` and whose id is under ``key``; ``call_id`` is None when that id is invalid."""
        if call_id is not None and (self.register_id(f"{pointer}/{key}", call_id) or call_id not in self._waiting):
            self._waiting[call_id] = pointer
        else:
            self._faulty_calls += 1

    def add_result(self, pointer: str, call_id: str | None) -> bool:
        """Add a result and return whether it answers a call of the turn.

        ``pointer`` is the place of the result's call id; ``call_id`` is None when that id is invalid.
        """
        is_answer = call_id in self._waiting
        if call_id is None:
            self._faulty_results += 1
        elif call_id in self._waiting:
            del self._waiting[call_id]
            self._answered.add(call_id)
        elif self._faulty_calls:
            self._faulty_calls -= 1
        elif call_id in self._answered:
            self._findings.add("second_result", pointer, f"the call {describe_value(call_id)} has a result already")
        else:
            self._findings.add(self._unknown, pointer, f"no call {self._earlier} has the id {describe_value(call_id)}")
        return is_answer

    def end_turn(self) -> None:
        """Add ``call_unanswered`` for each call without a result. Called when the results end, or when none follow."""
        for call_id, pointer in list(self._waiting.items())[self._faulty_results :]:
            self._findings.add("call_unanswered", pointer, f"the call {describe_value(call_id)} has no {self._answer}")
        self._waiting, self._answered = {}, set()
        self._faulty_calls = self._faulty_results = 0


def image_side(data: object) -> int:
    """Return the longest side in pixels of an image in base64 or bytes, from its header; 0 when it cannot be read."""
    if isinstance(data, str):
        with suppress(ValueError):
            data = base64.b64decode(data[:_HEADER_CHARS], validate=False)
    if not isinstance(data, bytes):
        return 0
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return max(int.from_bytes(data[16:20]), int.from_bytes(data[20:24]))
    if data[:4] == b"GIF8":
        return max(int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little"))
    return _webp_side(data) if data[8:12] == b"WEBP" else _jpeg_side(data)


def _webp_side(data: bytes) -> int:
    """Return the longest side of one of the three kinds of WebP."""
    if data[12:16] == b"VP8X":
        return 1 + max(int.from_bytes(data[24:27], "little"), int.from_bytes(data[27:30], "little"))
    if data[12:16] == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return 1 + max(bits & 0x3FFF, bits >> 14 & 0x3FFF)
    return max(int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF)


def _jpeg_side(data: bytes) -> int:
    """Return the longest side of a JPEG. Its segments have their length behind the marker, up to the one of the frame."""
    position = 2 if data.startswith(b"\xff\xd8\xff") else len(data)
    while position + 9 <= len(data) and data[position] == 0xFF:
        marker = data[position + 1]
        if marker in _JPEG_FRAMES:
            return max(int.from_bytes(data[position + index : position + index + 2]) for index in (5, 7))
        position += 2 + int.from_bytes(data[position + 2 : position + 4])
    return 0


def image_type(data: object) -> str:
    """Return the media type of a PNG, JPEG, GIF or WebP in base64, by its first characters; empty for all else."""
    starts = _STARTS.items() if is_match(data, _BASE64) else ()
    return next((kind for start, kind in starts if str(data).startswith(start)), "")


def is_filled(value: object) -> TypeGuard[str]:
    """Return whether the value is a non-empty string."""
    return isinstance(value, str) and value != ""


def is_match(value: object, pattern: re.Pattern[str]) -> TypeGuard[str]:
    """Return whether the value is a string that the pattern matches as a whole."""
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def is_web_address(value: object) -> bool:
    """Return whether the value is an address that a provider fetches."""
    return isinstance(value, str) and value.startswith(("https://", "http://"))


def is_one_of(value: object, words: Collection[str]) -> TypeGuard[str]:
    """Return whether the value is a string of ``words``."""
    return isinstance(value, str) and value in words


def escaped(key: object) -> str:
    """Return a key as a step of a JSON pointer (RFC 6901), cut to 64 characters. Nothing below an unknown key is checked."""
    return str(key)[:64].replace("~", "~0").replace("/", "~1")


def describe_value(value: object) -> str:
    """Return a value as violations name it: a string quoted and cut to 64 characters, any other value as its type."""
    if not isinstance(value, str):
        return kind_of(value)
    return repr(value) if len(value) <= 64 else f"{value[:64]!r}…"


def kind_of(value: object) -> str:
    """Return the JSON type of a value in words, e.g. ``a string``."""
    if value is None:
        return "missing or null"
    for types, name in ((bool, "a boolean"), (int | float, "a number"), (str, "a string"), (list, "a list")):
        if isinstance(value, types):
            return name
    return "an object" if isinstance(value, dict) else f"a {type(value).__name__}"
