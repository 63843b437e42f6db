"""A provider's prompt cache with breakpoints, simulated: what is written, what is found, and what a call costs.

The rules are those of Anthropic (https://platform.claude.com/docs/en/build-with-claude/prompt-caching): a prefix is written
where a breakpoint stands, and looked up at each breakpoint and at up to 20 blocks before it; what is found is read, what
follows up to the last breakpoint is written, the rest is plain input. Nothing expires between two calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from typing import Any

from benchmarks.windows.caching import MIN_TOKENS, READ, WRITE
from turnlog.core.json_values import encode_json
from turnlog.providers.cache_breakpoints import LOOKBACK_BLOCKS
from turnlog.sessions.context_models import WindowAnswer

Block = tuple[bytes, bool]
"""What is sent, without marks, and whether the cache may end behind it."""


def blocks_of(window: WindowAnswer) -> list[Block]:
    """Return the request as a provider's cache sees it: tools, system text, blocks of messages."""
    result = list[Block]()
    for part, values in (("tools", window.tools), ("system", _listed(window.system))):
        result += _marked((part, value) for value in values)
    for message in window.messages:
        result += _marked((str(message["role"]), item) for item in _listed(message["content"]))
    return result


def _listed(content: Any) -> list[Any]:
    """Return content as a list of blocks; a string is one block of text."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return list(content or ())


def _marked(values: Iterable[tuple[str, Any]]) -> Iterator[Block]:
    waiting: Block | None = None
    for part, item in values:
        if "cachePoint" in item:
            waiting = (waiting[0], True) if waiting is not None else None
            continue
        if waiting is not None:
            yield waiting
        bare = {key: value for key, value in item.items() if key != "cache_control"}
        waiting = (part.encode() + encode_json(bare), "cache_control" in item)
    if waiting is not None:
        yield waiting


@cache
def _size(block: bytes) -> int:
    from benchmarks.windows.histories import COUNTER

    return COUNTER.count(block.decode("utf-8", "replace"))


@dataclass
class Spent:
    """Of all calls: the price in tokens of uncached input, with these breakpoints, and with the longest prefix that two
    consecutive calls share."""

    calls: int = 0
    plain: float = 0.0
    cost: float = 0.0
    ideal: float = 0.0
    read: int = 0

    def add(self, other: Spent) -> None:
        for name in ("calls", "plain", "cost", "ideal", "read"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass
class Provider:
    """One session's calls."""

    spent: Spent = field(default_factory=Spent)
    _written: set[bytes] = field(default_factory=set)
    _previous: Sequence[bytes] = ()

    def call(self, blocks: Sequence[Block]) -> None:
        prefixes, sizes = [b""], [0]
        for block, _ in blocks:
            prefixes.append(sha256(prefixes[-1] + block).digest())
            sizes.append(sizes[-1] + _size(block))
        ends = [at for at, (_, is_marked) in enumerate(blocks, 1) if is_marked and sizes[at] >= MIN_TOKENS]
        result = max((hit for end in ends for hit in [self._found(prefixes, end)]), default=0)
        last = ends[-1] if ends else 0
        spent = self.spent
        spent.calls += 1
        spent.plain += sizes[-1]
        spent.read += sizes[result]
        spent.cost += sizes[result] * READ + (sizes[last] - sizes[result]) * WRITE + sizes[-1] - sizes[last]
        spent.ideal += self._ideal([block for block, _ in blocks], sizes)
        self._written |= {prefixes[end] for end in ends}

    def _found(self, prefixes: Sequence[bytes], end: int) -> int:
        near = range(end, max(0, end - LOOKBACK_BLOCKS) - 1, -1)
        return next((at for at in near if at and prefixes[at] in self._written), 0)

    def _ideal(self, blocks: Sequence[bytes], sizes: Sequence[int]) -> float:
        pairs = enumerate(zip(blocks, self._previous, strict=False))
        shared = next((at for at, (item, other) in pairs if item != other), min(len(blocks), len(self._previous)))
        self._previous = blocks
        read = sizes[shared] if sizes[shared] >= MIN_TOKENS else 0
        return read * READ + (sizes[-1] - read) * (WRITE if sizes[-1] >= MIN_TOKENS else 1.0)


def with_last_only(blocks: Sequence[Block]) -> list[Block]:
    """Return the request with one breakpoint behind everything, as is mostly done by hand."""
    return [(block, at + 1 == len(blocks)) for at, (block, _) in enumerate(blocks)]
