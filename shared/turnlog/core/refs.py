"""Refs: the log's own names of tool calls.

A call id is not a key: in real transcripts ids are empty, repeat inside a session and recur in others. A ref is the
call's place, ``<position>.<index>``, so it is short, unique in its session and never changes.
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
    position: int
    index: int

    def __str__(self) -> str:
        return f"{self.position}.{self.index}"

    @property
    def made_id(self) -> str:
        """The call id that is sent where the given one can't be."""
        return f"call_{self.position}_{self.index}"


def is_ref(text: str) -> bool:
    return _REF.fullmatch(text) is not None


def parse_ref(text: str, *, pointer: str = "/ref") -> Ref:
    match = _REF.fullmatch(text)
    if match is None:
        message = "a ref is <position>.<index>, as in 12.0"  # not shown: what stands for it may be a content
        raise InvalidInputError(message, problems=[Problem("invalid_ref", pointer, message)])
    return Ref(int(match[1]), int(match[2]))


def call_key(call: ToolCall) -> str:
    """What a result must name to belong to the call; empty when the call has no id."""
    return id_key(call.id)


def result_key(result: ToolResult) -> str:
    return "" if result.by_name else id_key(result.tool_call_id)


def id_key(call_id: str) -> str:
    """A call id as keys have it: a long one by its hash."""
    if len(call_id) <= _LONG_ID:
        return call_id
    return "sha256:" + hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
