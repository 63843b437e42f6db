"""Cut messages into batches that one append takes, and turn a policy into a field of a request."""

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
    """Return slices of ``messages`` that one append takes each, by number and by bytes in a Lambda event.

    ``metas`` are sent along and counted. A message that is too large alone gets a slice of its own; the append refuses it.
    """
    slices, start, size = list[slice](), 0, 0
    for index, message in enumerate(messages):
        own = _bytes(message) + (_bytes(metas[index]) if index < len(metas) else 0)
        if index > start and (index - start == MAX_MESSAGES or size + own > MAX_APPEND_BYTES):
            slices.append(slice(start, index))
            start, size = index, 0
        size += own
    return [*slices, slice(start, len(messages))] if messages else []


def _bytes(value: object) -> int:
    with suppress(TypeError, ValueError, RecursionError):  # the append refuses a value that is not JSON
        return event_bytes(encode_json(value))
    return 0


GivenPolicy: TypeAlias = "str | Mapping[str, Any] | Policy"
"""A preset's name, a call such as ``turns(n)``, a policy's body, or a `Policy`."""


def policy_field(policy: GivenPolicy | None) -> str | Mapping[str, Any] | None:
    """Return the policy as a request has it: a name or a body."""
    return policy.model_dump(mode="json") if isinstance(policy, BaseModel) else policy
