"""Stored lines of redacted events. Each begins with the digest of the original line; no other line begins so.

The chain hash covers digests of lines, so the chain of a redacted log can still be verified.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from turnlog.core.json_values import JsonObject, encode_json
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.messages import REDACTED
from turnlog.log.packing import REDACTED_LINE, line_digest

_SUMMARY = b'{"k":"y"'
_OF_A_MESSAGE = ("t", "st", "pi", "er", "o", "h", "w", "u", "wn", "rc")
_OF_A_HIDDEN_MESSAGE = ("t", "o")
_CONTENTS_OF_A_SUMMARY = ("x", "fx", "ow", "@")


@lazy_dataclass(frozen=True, slots=True)
class Redacted:
    """A redaction of a message: its position, the digest of its original line, and the line that replaces it."""

    position: int
    digest: bytes
    line: bytes
    is_done: bool = False
    """Whether the message is overwritten already."""

    def applied(self, lines: Sequence[bytes], first: int) -> list[bytes]:
        """Return the lines of a commit that begins at ``first``, with the message and all summaries of it redacted."""
        return [self._of(line, first + index) for index, line in enumerate(lines)]

    def _of(self, line: bytes, position: int) -> bytes:
        if position == self.position:
            return self.line if line_digest(line) == self.digest else line
        if position < self.position or not line.startswith(_SUMMARY):
            return line
        parsed: dict[str, Any] = json.loads(line)
        return _redacted(line, bare_summary(parsed), parsed) if covers(parsed, self.position) else line


def redacted_message(line: bytes, format: str, body: JsonObject) -> bytes:
    """Return the redacted line of a message, with another body.

    Of the caller's fields only those stay that affect how the message is shown.
    """
    if line.startswith(REDACTED_LINE):
        return line
    parsed: dict[str, Any] = json.loads(line)
    kept = {name: parsed[name] for name in _OF_A_MESSAGE if name in parsed}
    return _redacted(line, {"k": "m", "f": format, **kept, "b": body}, parsed)


def hidden(line: bytes) -> bytes:
    """Return the redacted line of an event that is never visible; only its share of the totals stays."""
    if line.startswith(REDACTED_LINE):
        return line
    parsed: dict[str, Any] = json.loads(line)
    if parsed["k"] != "m":
        return _redacted(line, {"k": parsed["k"]}, {})
    kept = {name: parsed[name] for name in _OF_A_HIDDEN_MESSAGE if name in parsed}
    return _redacted(line, {"k": "m", "f": "turnlog", **kept, "b": {}}, {})


def bare_summary(line: dict[str, Any]) -> JsonObject:
    """Return the parsed line of a summary without its texts."""
    return {name: line[name] for name in line if name not in _CONTENTS_OF_A_SUMMARY} | {"x": REDACTED, "fx": []}


def covers(line: dict[str, Any], position: int) -> bool:
    """Return whether a parsed line is a summary that covers a position."""
    return line["k"] == "y" and bool(line["r"][0] <= position <= line["r"][1])


def place_left(line: bytes) -> str:
    """Return the place of a redacted event's former payload; empty when it had none."""
    return str(json.loads(line).get("rp", "")) if line.startswith(REDACTED_LINE) else ""


def _redacted(line: bytes, kept: JsonObject, before: dict[str, Any]) -> bytes:
    """Return a redacted line. ``rp`` keeps the payload's place, so that an interrupted deletion can be repeated."""
    left: JsonObject = {"rx": line_digest(line).hex(), **kept}
    return encode_json(left | ({"rp": before["@"][0]} if "@" in before else {}))
