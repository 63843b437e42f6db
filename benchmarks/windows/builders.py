"""Windows of one conversation by name: Turnlog's policies through the pure core, and the baselines beside them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

from benchmarks.windows.baselines import DEFAULTS, Baseline, baseline_of
from benchmarks.windows.histories import COUNTER, FORMAT, History
from turnlog.core.errors import BudgetTooSmallError, InvalidInputError
from turnlog.search.fts5 import Fts5SearchEngine
from turnlog.search.session import ListSearch
from turnlog.windows.assembly import Memory
from turnlog.windows.budgets import Budget
from turnlog.windows.build import build
from turnlog.windows.plan import MessageList
from turnlog.windows.policy import PRESETS, Policy, policy_of
from turnlog.windows.request import WindowRequest, system_cost

AMPLE = 10_000_000
"""The budget where none is asked for: more than any conversation takes."""


@dataclass(frozen=True, slots=True)
class Made:
    """A window: its messages by number, and the process time that its making took. ``reason``: why it does not begin as the
    one before, where the builder says so."""

    numbers: list[int]
    seconds: float
    reason: str | None = None
    charged: int | None = None
    """The tokens that the builder says, where it says them."""


Builder = Callable[[int], Made | None]
"""The window for the first so many messages of a history, or None when none fits."""


def default_names() -> tuple[str, ...]:
    """Return every preset that there is, then the baselines."""
    return (*PRESETS, *DEFAULTS)


def policy_named(name: str) -> Policy | None:
    """Return a preset, ``turns(n)`` and such, or a policy's body in a file ``NAME.json``. None: a baseline."""
    if baseline_of(name) is not None:
        return None
    if name.endswith(".json"):
        try:
            return policy_of(json.loads(Path(name).read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise InvalidInputError(f"the policy {name!r} can't be read: {error}", code="invalid_policy") from error
    return policy_of(name)


def builder_of(history: History, name: str, budget: int | None) -> Builder:
    """Return what makes the windows of a name. Raises `InvalidInputError` when there is nothing of that name."""
    baseline, policy = baseline_of(name), policy_named(name)
    if policy is None:
        assert baseline is not None
        return _plain(history, baseline, budget)
    return _turnlog(history, policy, budget)


def _plain(history: History, baseline: Baseline, budget: int | None) -> Builder:
    def make(upto: int) -> Made | None:
        start = time.process_time()
        numbers = baseline(history, upto, budget)
        return None if numbers is None else Made(numbers, time.process_time() - start)

    return make


def _turnlog(history: History, policy: Policy, budget: int | None) -> Builder:
    request = WindowRequest(
        policy=policy,
        budget=Budget(AMPLE if budget is None else budget, "given"),
        format=FORMAT,
        system=history.system_text,
        system_tokens=system_cost(COUNTER.count(history.system_text)) if history.system_text is not None else 0,
        tools=history.tools,
        tools_tokens=history.tools_tokens,
    )
    totals = [0, *accumulate(history.sizes)]
    request = replace(request, recaller=ListSearch(Fts5SearchEngine(), history.sources))
    memory = Memory()

    def make(upto: int) -> Made | None:
        start = time.process_time()
        try:
            window = build(MessageList(history.sources[:upto], totals[upto]), request, memory)
        except BudgetTooSmallError:
            return None
        seconds = time.process_time() - start
        return Made(
            [history.messages.number(body) for body in window.messages], seconds, window.prefix.reason, window.tokens
        )

    return make
