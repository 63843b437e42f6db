"""How many messages are cut into appends, each of which is one commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import BaseModel

from turnlog.core.json_values import encode_json
from turnlog.core.limits import event_bytes
from turnlog.sessions.message_models import MAX_APPEND_BYTES, MAX_MESSAGES

if TYPE_CHECKING:
    from turnlog.windows.policy import Policy


def parts_of(messages: Sequence[object], metas: Sequence[object] = ()) -> list[slice]:
    """As many messages as one append takes each, by their number and their bytes on the way to a function, with what is beside
    them. One that is too large alone stands alone: the append says so."""
    found, start, size = list[slice](), 0, 0
    for at, message in enumerate(messages):
        own = _bytes(message) + (_bytes(metas[at]) if at < len(metas) else 0)
        if at > start and (at - start == MAX_MESSAGES or size + own > MAX_APPEND_BYTES):
            found.append(slice(start, at))
            start, size = at, 0
        size += own
    return [*found, slice(start, len(messages))] if messages else []


def _bytes(value: object) -> int:
    with suppress(TypeError, ValueError, RecursionError):  # what is no JSON is refused by the append
        return event_bytes(encode_json(value))
    return 0


GivenPolicy: TypeAlias = "str | Mapping[str, Any] | Policy"
"""A preset's name, ``turns(n)`` and such, a policy's body, or a `Policy`."""


def policy_field(policy: GivenPolicy | None) -> str | Mapping[str, Any] | None:
    """The policy as a request has it: a name or a body."""
    return policy.model_dump(mode="json") if isinstance(policy, BaseModel) else policy
