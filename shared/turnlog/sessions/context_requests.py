"""Turn a context call into a window request: at the window's position, and at the position of the model call before it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

from turnlog.core.errors import BudgetTooSmallError
from turnlog.core.json_values import JsonObject
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.prefix_breaks import BreakReason
from turnlog.core.session_settings import DEFAULT_OUTPUT_RESERVE, SessionSettings
from turnlog.log.commit import Commit
from turnlog.log.headers import Header
from turnlog.log.keys import SessionKeys
from turnlog.providers.token_rules import Calibration
from turnlog.sessions.context_models import BudgetAnswer, WindowOptions
from turnlog.sessions.session_log import SessionLog
from turnlog.windows.budgets import Budget, budget_for
from turnlog.windows.build import WindowRequest, upper_bound_of_json
from turnlog.windows.policy import policy_of
from turnlog.windows.recall import with_recall
from turnlog.windows.steps import Room


def effective(budget: BudgetAnswer) -> Budget:
    """Convert a budget from the provider's tokens to ours, rounded down."""
    return Budget(max(1, budget.tokens * 100 // _percent(budget)), budget.source)


def room_of(header: Header, settings: SessionSettings, models: Mapping[str, int] | None) -> Room:
    """Return the budget of a session's windows by default, and the part of it that system text, tools and summary take.

    Both are in our tokens.
    """
    reserve = settings.output_reserve if settings.output_reserve is not None else DEFAULT_OUTPUT_RESERVE
    budget = budget_for(budget=None, model=settings.model, output_reserve=reserve, own=models)
    summary = header.summary.own_tokens if header.summary is not None else 0
    fixed = settings.system_tokens + settings.tools_tokens + summary
    return Room(int(budget.tokens / header.calibration.factor), fixed)


@contextmanager
def counted_by_the_provider(budget: BudgetAnswer) -> Iterator[None]:
    """Convert the counts of a `BudgetTooSmallError` raised in the block from our tokens to the provider's."""
    try:
        yield
    except BudgetTooSmallError as error:
        percent = _percent(budget)
        if percent == 100:
            raise
        needed = math.ceil(int(error.details["needed"]) * percent / 100)
        raise BudgetTooSmallError(
            f"the least window needs {needed} tokens; the budget is {budget.tokens}",
            details={"needed": needed, "budget": budget.tokens},
        ) from error


def _percent(budget: BudgetAnswer) -> int:
    return round(budget.factor * 100)


Models = Mapping[str, int] | None


def request_of(
    body: WindowOptions,
    settings: SessionSettings,
    *,
    calibration: Calibration | None = None,
    models: Mapping[str, int] | None = None,
) -> tuple[WindowRequest, BudgetAnswer]:
    """Return the window request and its budget. Fields that the call leaves out come from the session's settings."""
    reserve = body.output_reserve if body.output_reserve is not None else settings.output_reserve
    policy = cast("str | JsonObject", body.policy if body.policy is not None else settings.policy)
    tools: Sequence[JsonObject] = settings.tools
    tools_tokens = settings.tools_tokens
    if body.tools is not None:
        tools = cast("list[JsonObject]", body.tools)
        tools_tokens = upper_bound_of_json(tools) if tools else 0
    token_budget = budget_for(
        budget=body.budget,
        model=body.model if body.model is not None else settings.model,
        output_reserve=reserve if reserve is not None else DEFAULT_OUTPUT_RESERVE,
        own=models,
    )
    factor = calibration.factor if calibration is not None else 1.0
    budget = BudgetAnswer(tokens=token_budget.tokens, source=token_budget.source, factor=factor)
    request = WindowRequest(
        policy=policy_of(policy),
        budget=effective(budget),
        format=body.format,
        system=settings.system,
        system_tokens=settings.system_tokens,
        system_least=settings.system_tokens,
        tools=tools,
        tools_tokens=tools_tokens,
        tools_least=settings.tools_tokens if body.tools is None else None,
        include_current_loop=body.include_current_loop,
        answer_open_calls=body.answer_open_calls,
        apply_breakpoints=body.breakpoints == "apply",
    )
    return with_recall(request) if settings.recall == "always" else request, budget


@lazy_dataclass(frozen=True, slots=True)
class ContextRequest:
    """A window request, and the budget, settings, model and tools that it was made from. ``tools`` are those of the call."""

    request: WindowRequest
    budget: BudgetAnswer
    settings: SessionSettings
    model: str | None
    tools: Sequence[JsonObject] | None


@lazy_dataclass(frozen=True, slots=True)
class EarlierRequest:
    """The request that the same call would have made at an earlier position: a `turnlog.windows.build.Then`.

    Summary, token factor and settings are those of the earlier position. ``commits`` are the commits that the window was read
    from. One request to the engine when the settings have changed since, else none.
    """

    log: SessionLog
    keys: SessionKeys
    header: Header
    commits: Sequence[Commit]
    context: ContextRequest
    unread: int
    models: Models = None

    def __call__(self, position: int | None) -> WindowRequest | BreakReason:
        """Return the request before ``position``, or the reason why the prefix is broken without comparing.

        A value counts as taken from the settings when it equals what they say. So a stored ``build`` gives the same result as
        the call that made it.
        """
        summary = self.header.summary if self.context.request.summary is not None else None
        if self.unread:
            return "not_read"
        if summary is not None and (position is None or position < summary.position):
            return "summary"
        if position is None:
            return "first"
        headers = (commit.header for commit in self.commits)
        before = next((header for header in headers if header.first < position <= header.last + 1), None)
        if before is None:
            return "not_read"
        if self.context.request.policy.takes_summary and before.summary != self.header.summary:
            return "summary"
        if self.header.last_settings < position:
            return self._with_budget(self.context.request, self.context.budget, before)
        return self._with_settings(before)

    def _with_settings(self, before: Header) -> WindowRequest | BreakReason:
        current, request, budget = self.context.settings, self.context.request, self.context.budget
        earlier, _ = self.log.as_of(self.keys, replace(before, summary=None))
        if request.policy == policy_of(current.policy):
            request = replace(request, policy=policy_of(earlier.policy))
        if (
            request.policy.takes_summary != self.context.request.policy.takes_summary
            and self.header.summary is not None
        ):
            # The earlier policy needs other messages than those that were read.
            if self.context.tools is None and earlier.tools != current.tools:
                return "tools"
            return "policy" if earlier.system == current.system else "system"
        if self.context.tools is None:
            tokens = earlier.tools_tokens
            request = replace(request, tools=earlier.tools, tools_tokens=tokens, tools_least=tokens)
        if budget.source != "given" and _budget(current, self.models).tokens == budget.tokens:
            budget = budget.model_copy(update={"tokens": _budget(earlier, self.models).tokens})
        system, tokens = earlier.system, earlier.system_tokens
        request = replace(request, system=system, system_tokens=tokens, system_least=tokens)
        return self._with_budget(with_recall(request) if earlier.recall == "always" else request, budget, before)

    def _with_budget(self, request: WindowRequest, budget: BudgetAnswer, before: Header) -> WindowRequest:
        earlier_budget = budget.model_copy(update={"factor": before.calibration.factor})
        return request if earlier_budget == self.context.budget else replace(request, budget=effective(earlier_budget))


def _budget(settings: SessionSettings, models: Models) -> Budget:
    """Return the budget of a window whose call gives none, in the provider's tokens."""
    reserve = settings.output_reserve if settings.output_reserve is not None else DEFAULT_OUTPUT_RESERVE
    return budget_for(budget=None, model=settings.model, output_reserve=reserve, own=models)
