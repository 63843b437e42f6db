"""The stable prefix of a window: the part that the previous model call sent too, which a provider's prompt cache may still hold.

The previous window is that of the same request before the newest assistant message. It is planned again from the messages
already read, nothing is fetched, and both windows are compared as they are rendered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Literal, TypeAlias

from turnlog.core.errors import BudgetTooSmallError, StepError
from turnlog.core.json_values import JsonObject, JsonValue
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.prefix_breaks import BreakReason
from turnlog.providers.base import BEFORE_ALL, Codec, End, Rendered
from turnlog.providers.token_rules import MESSAGE_OVERHEAD
from turnlog.windows.costs import says_nothing
from turnlog.windows.least import least_of_share, least_of_system, least_of_tools
from turnlog.windows.plan import Settled, WindowRequest
from turnlog.windows.prices import FENCING
from turnlog.windows.render import Share, shares
from turnlog.windows.view import Loop, Unit, WindowDraft

_OF_PLAN: Mapping[str, BreakReason] = {
    "past_loop": "past_loop",
    "high_mark": "crossing",
    "digests_full": "crossing",
    "max_age": "age",
    "budget": "budget",
    "summary": "summary",
    "stub": "stub",
    "stub_tool_results": "stub",
    "fold": "fold",
}
"""Reason of a part -> reason of a break. Other reasons come from limits and from users' own steps: `evicted`."""


@lazy_dataclass(frozen=True, slots=True)
class Cause:
    """A difference between the plans of two windows, and the position at which it begins.

    ``is_planned``: caused by policy or budget, otherwise by the messages themselves.
    """

    reason: BreakReason
    position: int
    is_planned: bool = False


def cause_of(then: WindowDraft, now: WindowDraft, position: int, *, at: int | None = None) -> Cause | None:
    """Return why the later of two views is not the earlier one with more messages behind it; None when no plan differs.

    ``position``: the earlier log ended before it. ``at``: a difference in the loop with this position has precedence over the
    first difference.
    """
    if (then.summary, then.wording) != (now.summary, now.wording):
        known = then.summary or now.summary
        return Cause("budget", known.first if known is not None else 0, is_planned=True)
    causes = [
        (before, cause) for before, after in _pairs(then, now, position) if (cause := _in_loop(before, after, position))
    ]
    inside = [cause for loop, cause in causes if at is not None and loop.first <= at <= loop.last]
    return next(iter([*inside, *(cause for _, cause in causes)]), None)


def _pairs(then: WindowDraft, now: WindowDraft, position: int) -> Iterator[tuple[Loop, Loop]]:
    """Yield each loop as it was and as it is; a loop that one view lacks is empty there."""
    old = {loop.number: loop for loop in then.loops}
    new = {loop.number: loop for loop in now.loops if loop.first < position}
    for number in sorted(old | new):
        before, after = old.get(number), new.get(number)
        yield before or _silent(new[number]), after or _silent(old[number])


def _silent(loop: Loop) -> Loop:
    return replace(loop, units=(), level="whole", reason="", notes=())


def _in_loop(before: Loop, after: Loop, position: int) -> Cause | None:
    if (before.level, before.max_message_chars) != (after.level, after.max_message_chars):
        return Cause(_of_plan(after if after.level != "whole" else before), before.first, is_planned=True)
    old = {unit.position: unit for unit in before.units}
    new = {unit.position: unit for unit in after.units if unit.position < position}
    for place in sorted(old | new):
        cause = _of_units(old.get(place), new.get(place))
        if cause is not None:
            return cause
    if before.notes == after.notes:
        return None
    return Cause("fold" if after.level == "whole" else _of_plan(after), before.first, is_planned=True)


def _of_units(before: Unit | None, after: Unit | None) -> Cause | None:
    if before is None or after is None:
        return _sent_now(after) if after is not None else None
    if _answers(before) != _answers(after):
        return Cause("late_result", after.position) if before.answers else _sent_now(after)
    if before.level != after.level:
        return Cause(_of_plan(after if after.level != "whole" else before), before.position, is_planned=True)
    return Cause("stub", before.position, is_planned=True) if before.stubs != after.stubs else None


def _sent_now(unit: Unit) -> Cause:
    """Return the cause for a unit that is new because its calls waited for results."""
    is_settled = any(answer.entry is None for answer in unit.answers)
    return Cause("settled" if is_settled else "open_call", unit.position)


def _answers(unit: Unit) -> list[tuple[int, int]]:
    return [(answer.entry.position if answer.entry is not None else 0, answer.index) for answer in unit.answers]


def _of_plan(part: Loop | Unit) -> BreakReason:
    return _OF_PLAN.get(part.reason, "evicted")


BrokeAt: TypeAlias = int | Literal["tools", "system", "summary", "line"] | None
_SYSTEM_IS_A_MESSAGE = ("openai_chat", "openai_responses")


@lazy_dataclass(frozen=True, slots=True)
class Prefix:
    """The beginning of a window that is unchanged since the previous one.

    ``stable_tokens``: lower bound of its tokens, in the order tools, system text, messages.
    ``broke_at``: the first part of the previous window that is missing in this one, a position or the name of a part; None when
    nothing is missing. ``reason``: why; `first` when there was no previous window.
    """

    stable_tokens: int
    broke_at: BrokeAt = None
    reason: BreakReason | None = None


@lazy_dataclass(frozen=True, slots=True)
class Made:
    """A window before it is returned: its plan, its turns, and the rendered request."""

    settled: Settled
    shares: Sequence[Share]
    rendered: Rendered

    @classmethod
    def of(cls, settled: Settled, codec: Codec) -> Made:
        request, window_shares = settled.plan.request, shares(settled.view, codec)
        rendered = codec.render([share.turn for share in window_shares], system=request.system, tools=request.tools)
        return cls(settled, window_shares, rendered)

    @property
    def request(self) -> WindowRequest:
        return self.settled.plan.request


@lazy_dataclass(frozen=True, slots=True)
class Common:
    """The messages that two windows have in common: up to ``end``, which are the first ``turns`` turns of the later window.

    ``is_whole``: this is all of the earlier window, except for a neutral message at its end that the format needed.
    """

    end: End = BEFORE_ALL
    turns: int = 0
    is_whole: bool = False


def prefix_of(
    made: Made, then: WindowRequest | BreakReason, position: int | None, codec: Codec
) -> tuple[Prefix, Common]:
    """Return the stable prefix, and the messages that both windows have in common.

    ``then``: the previous request, for the log before ``position``, in the same format; or the reason why nothing behind system
    text and tools can be expected to be unchanged.
    """
    if position is None or isinstance(then, str):
        return _without_plan(made, then if isinstance(then, str) else "first", position), Common()
    if list(then.tools) != list(made.request.tools):
        return _without_plan(made, "tools", position), Common()
    try:
        before = made.settled.before(position, then)
    except BudgetTooSmallError:
        return Prefix(0, None, "budget"), Common()
    except StepError:
        # A user's step may fail on the earlier view; that is no reason to refuse this window.
        return _without_plan(made, "policy" if then.system == made.request.system else "system", position), Common()
    if not before.is_known:
        return _without_bodies(made, before, position), Common()
    old = _made_before(made, before, position, codec)
    common = _common(old, made)
    stable = _stable_tokens(made, old, common, codec)
    if common.is_whole:
        return Prefix(stable), common
    broke_at = _broke_at(old, made, common)
    return Prefix(stable, broke_at, _reason(old, made, broke_at, position)), common


def _without_plan(made: Made, reason: BreakReason, position: int | None) -> Prefix:
    """Return the prefix when the previous window cannot be planned: only tools and system text can be compared."""
    if reason == "first":
        return Prefix(0, None, reason)
    if reason == "tools":
        return Prefix(0, "tools", reason)
    if reason == "system":
        return Prefix(_tools_tokens(made), "system", reason)
    summary = made.request.summary
    # The earlier summary, which this one continues, separated leading system messages from all others.
    is_parted = summary is not None and position is not None and 0 < summary.base < position
    return Prefix(_fixed_tokens(made, is_parted=is_parted), "summary" if reason == "summary" else "line", reason)


def _without_bodies(made: Made, before: Settled, position: int) -> Prefix:
    """Return the prefix when the previous window sent messages whose bodies are not known now, so this window lacks them."""
    is_same = before.plan.request.system == made.request.system
    tokens = _fixed_tokens(made, is_parted=False) if is_same else _tools_tokens(made)
    cause = cause_of(before.view, made.settled.view, position)
    return Prefix(
        tokens, cause.position if cause is not None else "line", cause.reason if cause is not None else "budget"
    )


def _fixed_tokens(made: Made, *, is_parted: bool) -> int:
    """Return a lower bound of the unchanged tokens before the messages.

    Where system messages at the beginning join the system text, that text is certainly unchanged only if something separated them
    from the others then (``is_parted``). A summary with the role system joins the system text too.
    """
    joins = made.request.format in FENCING
    is_certain = not joins or (is_parted and made.settled.view.wording.role != "system")
    return _tools_tokens(made) + (_system_tokens(made) if is_certain else 0)


def _made_before(made: Made, before: Settled, position: int, codec: Codec) -> Made:
    """Return the previous window. Where it is a part of the new one, it reuses the rendered turns."""
    if not before.is_within:
        return Made.of(before, codec)
    earlier = list(takewhile(lambda share: not isinstance(share.place, int) or share.place < position, made.shares))
    known, system = made.rendered.bodies[: len(earlier)], before.plan.request.system
    return Made(before, earlier, codec.render([share.turn for share in earlier], system=system, tools=(), bodies=known))


# ---------------------------------------------------------------- what is the same


def _common(old: Made, new: Made) -> Common:
    if old.rendered.system != new.rendered.system:
        return Common()
    end, is_whole = _common_end(old.rendered, new.rendered)
    turns = sum(1 for _ in takewhile(lambda reach: reach <= end, new.rendered.ends))
    return Common(end, turns, is_whole)


def _common_end(old: Rendered, new: Rendered) -> tuple[End, bool]:
    """Return how far the messages are the same, and whether that is all of the old ones."""
    last = old.ends[-1] if old.ends and old.ends[-1] != BEFORE_ALL else _whole(old.messages, len(old.messages) - 1)
    for index in range(last.message + 1):
        if index >= len(new.messages):
            return _whole(new.messages, index - 1), False
        old_message, new_message = old.messages[index], new.messages[index]
        if old_message != new_message:
            blocks = _common_blocks(old_message, new_message)
            is_whole = index == last.message and blocks >= last.blocks
            return End(index, min(blocks, last.blocks)) if blocks else _whole(new.messages, index - 1), is_whole
    return last, True


def _whole(messages: Sequence[JsonObject], index: int) -> End:
    return End(index, len(_blocks(messages[index]) or ("one",))) if index >= 0 else BEFORE_ALL


def _common_blocks(old: JsonObject, new: JsonObject) -> int:
    """Return how many leading blocks two messages share; 0 when they differ in anything besides content."""
    if {**old, "content": None} != {**new, "content": None}:
        return 0
    pairs = zip(_blocks(old), _blocks(new), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _blocks(message: JsonObject) -> list[JsonValue]:
    content = message.get("content")
    return content if isinstance(content, list) else []


# ---------------------------------------------------------------- how much that is


def _stable_tokens(made: Made, old: Made, common: Common, codec: Codec) -> int:
    tools = _tools_tokens(made)
    if old.rendered.system != made.rendered.system:
        return tools
    begun, system = common.end.message + 1, _system_tokens(made)
    if made.request.system is not None and made.request.format in _SYSTEM_IS_A_MESSAGE:
        begun, system = (begun - 1, system) if begun else (0, 0)
    pairs = zip(made.shares[: common.turns], made.rendered.bodies, strict=False)
    return tools + system + begun * MESSAGE_OVERHEAD + sum(least_of_share(*pair, codec) for pair in pairs)


def _tools_tokens(made: Made) -> int:
    known = made.request.tools_least
    return known if known is not None else least_of_tools(made.rendered.tools)


def _system_tokens(made: Made) -> int:
    request, system = made.request, made.rendered.system
    if system is None and request.format in _SYSTEM_IS_A_MESSAGE:
        system = request.system
    if system is None:
        return 0
    known = request.system_least if system == request.system else None
    return known if known is not None else least_of_system(system)


# ---------------------------------------------------------------- where and why it is not


def _broke_at(old: Made, new: Made, common: Common) -> BrokeAt:
    has_other_system = old.request.system != new.request.system and common.end == BEFORE_ALL
    if old.rendered.system != new.rendered.system or has_other_system:
        return "system"
    pairs = zip(old.shares, old.rendered.ends, strict=True)
    return next((share.place for share, end in pairs if end > common.end), "line")


def _reason(old: Made, new: Made, broke_at: BrokeAt, position: int) -> BreakReason:
    then, now = old.request, new.request
    if broke_at == "system" and then.system != now.system:
        return "system"
    is_silent = not old.rendered.ends or old.rendered.ends[-1] == BEFORE_ALL
    if broke_at != "system" and (is_silent or says_nothing(old.settled.view)):
        return "first"
    at = broke_at if isinstance(broke_at, int) else None
    cause = cause_of(old.settled.view, new.settled.view, position, at=at)
    if cause is None:
        return "system" if broke_at == "system" else "joined"
    if cause.is_planned and then.policy != now.policy:
        return "policy"
    return "budget" if cause.is_planned and then.budget.tokens != now.budget.tokens else cause.reason
