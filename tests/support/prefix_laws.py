"""The law of the stable prefix of windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from tests.properties.building import (
    COUNTER,
    Asked,
    Stored,
    first,
    window,
)
from tests.properties.histories import Body, History
from turnlog.core.errors import BudgetTooSmallError
from turnlog.core.json_values import encode_json
from turnlog.core.window_parts import BreakReason
from turnlog.providers.alternation import CONTINUE
from turnlog.providers.registry import CODECS
from turnlog.providers.token_rules import count_message, count_tools
from turnlog.windows.build import Window
from turnlog.windows.request import system_cost

REASONS = frozenset(get_args(BreakReason))


Build = Callable[[Stored, Asked], Window]


@dataclass(frozen=True)
class Blocks:
    """A window's messages as a provider's cache sees them: one block after the other, each with what stands around it."""

    messages: Sequence[Body]

    def flat(self) -> list[tuple[int, bytes, bytes]]:
        """(message, what is in it besides its content, block)."""
        result = list[tuple[int, bytes, bytes]]()
        for at, message in enumerate(self.messages):
            content = message.get("content")
            around = encode_json({**message, "content": isinstance(content, list)})
            blocks = content if isinstance(content, list) else [content]
            result += [(at, around, encode_json(block)) for block in blocks]
        return result

    def beginning(self, blocks: int) -> Iterator[Body]:
        """The messages cut behind so many blocks."""
        for message in self.messages:
            content = message.get("content")
            size = len(content) if isinstance(content, list) else 1
            if blocks <= 0:
                return
            yield (
                message if size <= blocks or not isinstance(content, list) else {**message, "content": content[:blocks]}
            )
            blocks -= size


@dataclass(frozen=True)
class Real:
    """What two windows really have in common, in tokens, and whether that is all of the earlier one."""

    tokens: int
    is_whole: bool

    @classmethod
    def of(cls, old: Window, new: Window, wanted: Asked) -> Real:
        codec, tokens = CODECS[wanted.format], count_tools(new.tools, COUNTER)
        if old.tools != new.tools:
            return cls(0, is_whole=False)
        if old.system != new.system:
            return cls(tokens, is_whole=False)
        tokens += system_cost(COUNTER.count(new.system)) if isinstance(new.system, str) else 0
        before = Blocks(without_frame(old.messages, wanted)).flat()
        pairs = zip(before, Blocks(new.messages).flat(), strict=False)
        shared = next(
            (at for at, (pair, other) in enumerate(pairs) if pair != other),
            min(len(before), len(Blocks(new.messages).flat())),
        )
        tokens += sum(count_message(codec.parse(item), COUNTER) for item in Blocks(new.messages).beginning(shared))
        return cls(tokens, shared == len(before))


def without_frame(messages: Sequence[Body], wanted: Asked) -> Sequence[Body]:
    """Without the neutral line that some formats demand behind an assistant message."""
    is_framed = (
        wanted.format in ("anthropic", "bedrock_converse") and len(messages) > 1 and CONTINUE in str(messages[-1])
    )
    return messages[:-1] if is_framed and messages[-2]["role"] == "assistant" else messages


def before_the_answer(history: History) -> int | None:
    """How many messages there were when the newest assistant message was asked for; the items of one answer are one."""
    roles = [CODECS[item.format].parse(item.body).role for item in history]
    at = next((at for at in range(len(roles) - 1, -1, -1) if roles[at] == "assistant"), None)
    while at and history[at].format == history[at - 1].format == "openai_responses" and roles[at - 1] == "assistant":
        at -= 1
    return at


def built(build: Build, held: Stored, wanted: Asked) -> tuple[Window, Asked]:
    """The window, with more budget where none fits."""
    for _ in range(3):
        try:
            return build(held, wanted), wanted
        except BudgetTooSmallError as error:
            wanted = replace(wanted, budget=int(error.details["needed"]))
    raise AssertionError("what is needed is never enough")


def assert_prefix(held: Stored, wanted: Asked, build: Build = window, *, exact: bool = True) -> Window:
    """``exact``: all bodies are at hand, so nothing has to be assumed as broken."""
    now, wanted = built(build, held, wanted)
    result, count = now.prefix, before_the_answer(held.history)
    assert result.reason is None or result.reason in REASONS
    assert (result.reason is None) <= (result.broke_at is None)
    if count is None:
        assert (result.stable_tokens, result.broke_at, result.reason) == (0, None, "first")
        return now
    try:
        then = build(first(held, count), wanted)
    except BudgetTooSmallError:
        return now
    real = Real.of(then, now, wanted)
    assert result.stable_tokens <= real.tokens
    if result.reason is None:
        assert real.is_whole, f"{result} of {real}"
    return now
