"""Refs: the log's own names of tool calls.

A call id can't serve as a key: in real transcripts ids are empty, repeat within a session and recur in others. A ref is the
call's place, ``<position>.<index>``. It is short, unique in its session and never changes.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from turnlog.core.errors import InvalidInputError, Problem
from turnlog.core.messages import ToolCall, ToolResult

_REF = re.compile(r"([1-9][0-9]{0,11})\.(0|[1-9][0-9]{0,5})")
_LONG_ID = 64


@dataclass(frozen=True, slots=True, order=True)
class Ref:
    """A tool call's place: the position of its message and the call's index in it."""

    position: int
    index: int

    def __str__(self) -> str:
        return f"{self.position}.{self.index}"

    @property
    def made_id(self) -> str:
        """The call id that is sent when the original one can't be."""
        return f"call_{self.position}_{self.index}"


def is_ref(text: str) -> bool:
    return _REF.fullmatch(text) is not None


def parse_ref(text: str, *, pointer: str = "/ref") -> Ref:
    """Return the ref in a text, or raise `InvalidInputError`."""
    match = _REF.fullmatch(text)
    if match is None:
        message = "a ref is <position>.<index>, as in 12.0"  # the text itself is not quoted: it may be content
        raise InvalidInputError(message, problems=[Problem("invalid_ref", pointer, message)])
    return Ref(int(match[1]), int(match[2]))


def call_key(call: ToolCall) -> str:
    """Return the key that a result must have to belong to the call; empty when the call has no id."""
    return id_key(call.id)


def result_key(result: ToolResult) -> str:
    """Return the key of the call that a result names; empty when it names none."""
    return "" if result.by_name else id_key(result.tool_call_id)


def id_key(call_id: str) -> str:
    """Return a call id as keys hold it: unchanged, or hashed when it is long."""
    if len(call_id) <= _LONG_ID:
        return call_id
    return "sha256:" + hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
