"""Turn a context call into a window request: at the window's position, and at the position of the model call before it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import cast

from turnlog.core.errors import BudgetTooSmallError
from turnlog.core.events import SettingsEvent
from turnlog.core.json_values import JsonObject
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.session_settings import DEFAULT_OUTPUT_RESERVE, SessionSettings
from turnlog.log.commit import Commit
from turnlog.log.commits import CommitLog
from turnlog.log.headers import Header
from turnlog.log.keys import SessionKeys
from turnlog.providers.token_rules import Calibration
from turnlog.sessions.context_models import BudgetAnswer, WindowOptions
from turnlog.windows.breaks import NEVER_BROKEN, EpochStart
from turnlog.windows.budgets import Budget, budget_for, context_of, too_small
from turnlog.windows.policy import policy_of, stored_policy
from turnlog.windows.request import WindowRequest, upper_bound_of_json, with_recall


def effective(budget: BudgetAnswer) -> Budget:
    """Convert a budget from the provider's tokens to ours, rounded down."""
    return Budget(max(1, budget.tokens * 100 // _percent(budget)), budget.source)


@contextmanager
def counted_by_the_provider(budget: BudgetAnswer) -> Iterator[None]:
    """Convert the counts of a `BudgetTooSmallError` raised in the block from our tokens to the provider's."""
    try:
        yield
    except BudgetTooSmallError as error:
        percent = _percent(budget)
        if percent == 100:
            raise
        needed, fixed = (math.ceil(int(error.details[name]) * percent / 100) for name in ("needed", "fixed"))
        raise too_small(needed - fixed, fixed, Budget(budget.tokens, budget.source)) from None


def _percent(budget: BudgetAnswer) -> int:
    return round(budget.factor * 100)


def request_of(
    body: WindowOptions,
    settings: SessionSettings,
    *,
    calibration: Calibration | None = None,
    models: Mapping[str, int] | None = None,
) -> tuple[WindowRequest, BudgetAnswer]:
    """Return the window request and its budget. Fields that the call leaves out come from the session's settings."""
    reserve = body.output_reserve if body.output_reserve is not None else settings.output_reserve
    policy = stored_policy(settings.policy) if body.policy is None else policy_of(cast("str | JsonObject", body.policy))
    tools: Sequence[JsonObject] = settings.tools
    tools_tokens = settings.tools_tokens
    if body.tools is not None:
        tools = cast("list[JsonObject]", body.tools)
        tools_tokens = upper_bound_of_json(tools) if tools else 0
    model = body.model if body.model is not None else settings.model
    token_budget = budget_for(
        budget=body.budget,
        model=model,
        output_reserve=reserve if reserve is not None else DEFAULT_OUTPUT_RESERVE,
        own=models,
    )
    factor = calibration.factor if calibration is not None else 1.0
    budget = BudgetAnswer(tokens=token_budget.tokens, source=token_budget.source, factor=factor)
    request = WindowRequest(
        policy=policy,
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
        # A caller that names no tools may offer some: nothing is known of them.
        others_calls=body.others_calls if tools else "calls",
        apply_breakpoints=body.breakpoints == "apply",
        query=body.query,
        context=context_of(model, models) if model is not None else None,
    )
    if settings.recall == "never":
        return request, budget
    is_late = settings.recall == "auto" and policy.keeps_all
    return with_recall(request, is_late=is_late), budget


@lazy_dataclass(frozen=True, slots=True)
class ContextRequest:
    """A window request, and the budget and settings that it was made from."""

    request: WindowRequest
    budget: BudgetAnswer
    settings: SessionSettings


def breaks_of_requests(
    log: CommitLog, keys: SessionKeys, header: Header, request: WindowRequest, commits: Sequence[Commit]
) -> tuple[EpochStart, ...]:
    """Return the last changes of a session's settings, summary and token factor, and the last redaction.

    ``commits`` are the commits that the window was read from, oldest first.
    """
    redacted = EpochStart(header.redacted, "redaction", "base") if header.redacted else NEVER_BROKEN
    summary = _of_summary(header, commits) if request.policy.takes_summary else NEVER_BROKEN
    return _of_settings(log, keys, header, commits), summary, _of_calibration(header, commits), redacted


def _of_summary(header: Header, commits: Sequence[Commit]) -> EpochStart:
    """Return since when the same summary has been current: since it landed, or since the one before was discarded."""
    current = header.summary
    others = [commit.header.last + 1 for commit in commits if commit.header.summary != current]
    positions = [*others, *([current.position] if current is not None else [])]
    return EpochStart(max(positions), "summary", "summary") if positions else NEVER_BROKEN


def _of_calibration(header: Header, commits: Sequence[Commit]) -> EpochStart:
    """Return since when the token factor has been the same, as far as commits have been read."""
    percent = header.calibration.percent
    differing = [commit.header.last for commit in commits if commit.header.calibration.percent != percent]
    return EpochStart(max(differing) + 1, "budget", "base") if differing else NEVER_BROKEN


def _of_settings(log: CommitLog, keys: SessionKeys, header: Header, commits: Sequence[Commit]) -> EpochStart:
    position = header.last_frame
    if position <= 1:
        return NEVER_BROKEN
    commit = next((commit for commit in commits if commit.header.first == position), None)
    events = log.events(keys, [commit], fetch=False) if commit is not None else ()
    changes = {name for event in events if isinstance(event, SettingsEvent) for name in event.changed}
    if changes & {"tools", "recall"}:
        return EpochStart(position, "tools", "tools")
    if "system" in changes:
        return EpochStart(position, "system", "system")
    return EpochStart(position, "policy" if "policy" in changes else "budget", "base")
