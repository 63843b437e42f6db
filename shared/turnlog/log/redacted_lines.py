"""What is left of an event that was redacted: a line that begins with the digest of the line before.

The chain hash is over digests, so the log proves itself as before. No other line begins so.
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
    """A message that is redacted: its position, the digest of its line as it was, and the line that stands there from now on."""

    position: int
    digest: bytes
    line: bytes
    is_done: bool = False
    """The message is overwritten already."""

    def applied(self, lines: Sequence[bytes], first: int) -> list[bytes]:
        """The lines of a commit that begins at ``first``: without the message's contents, and without those of summaries that
        cover it."""
        return [self._of(line, first + at) for at, line in enumerate(lines)]

    def _of(self, line: bytes, position: int) -> bytes:
        if position == self.position:
            return self.line if line_digest(line) == self.digest else line
        if position < self.position or not line.startswith(_SUMMARY):
            return line
        parsed: dict[str, Any] = json.loads(line)
        return _redacted(line, bare_summary(parsed), parsed) if covers(parsed, self.position) else line


def redacted_message(line: bytes, format: str, body: JsonObject) -> bytes:
    """The line of a message with another body: nothing is left of what the caller said of it but how it is shown."""
    if line.startswith(REDACTED_LINE):
        return line
    parsed: dict[str, Any] = json.loads(line)
    kept = {name: parsed[name] for name in _OF_A_MESSAGE if name in parsed}
    return _redacted(line, {"k": "m", "f": format, **kept, "b": body}, parsed)


def hidden(line: bytes) -> bytes:
    """The line of an event that nobody can see: only what it adds to the totals is left."""
    if line.startswith(REDACTED_LINE):
        return line
    parsed: dict[str, Any] = json.loads(line)
    if parsed["k"] != "m":
        return _redacted(line, {"k": parsed["k"]}, {})
    kept = {name: parsed[name] for name in _OF_A_HIDDEN_MESSAGE if name in parsed}
    return _redacted(line, {"k": "m", "f": "turnlog", **kept, "b": {}}, {})


def bare_summary(line: dict[str, Any]) -> JsonObject:
    """The parsed line of a summary without what it tells."""
    return {name: line[name] for name in line if name not in _CONTENTS_OF_A_SUMMARY} | {"x": REDACTED, "fx": []}


def covers(line: dict[str, Any], position: int) -> bool:
    """Whether the parsed line is of a summary that stands for a position."""
    return line["k"] == "y" and bool(line["r"][0] <= position <= line["r"][1])


def place_left(line: bytes) -> str:
    """Where the payload was of an event that is redacted; empty where it had none."""
    return str(json.loads(line).get("rp", "")) if line.startswith(REDACTED_LINE) else ""


def _redacted(line: bytes, kept: JsonObject, before: dict[str, Any]) -> bytes:
    """``rp``: whoever deletes the payload finds it, however often that was interrupted."""
    left: JsonObject = {"rx": line_digest(line).hex(), **kept}
    return encode_json(left | ({"rp": before["@"][0]} if "@" in before else {}))
