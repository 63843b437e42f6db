"""What a call's input costs where the provider caches prompts: in tokens of uncached input.

The rules are those of explicit prompt caches, everything written at every call. The prefix that two consecutive calls of a
session have in common is read; it ends with a whole message. Nothing expires between two calls.
"""

from __future__ import annotations

from collections.abc import Sequence

READ, WRITE = 0.1, 1.25
MIN_TOKENS = 1_024


def shared_messages(previous: Sequence[int], now: Sequence[int]) -> int:
    """Count the messages that two windows share from their beginning; equal numbers are equal bytes."""
    for at, (item, other) in enumerate(zip(previous, now, strict=False)):
        if item != other:
            return at
    return min(len(previous), len(now))


def cost(sizes: Sequence[int], shared: int | None, *, before: int = 0, behind: int = 0) -> float:
    """Return the price of a call of messages of these ``sizes``, the first ``shared`` of them sent by the call before.

    None: there was no call before. ``before``: tokens of what is sent before the messages and never changes (tools);
    ``behind``: tokens after them. A prompt smaller than `MIN_TOKENS` is neither read nor written.
    """
    total = before + sum(sizes) + behind
    prefix = before + sum(sizes[:shared]) if shared is not None else 0
    read = prefix if prefix >= MIN_TOKENS else 0
    return read * READ + (total - read) * (WRITE if total >= MIN_TOKENS else 1.0)
