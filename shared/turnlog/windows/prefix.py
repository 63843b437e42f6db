"""How much of a window is what the model call before it was sent: that much a provider's prompt cache can still have.

The window before is that of the same request at the position before the newest assistant message. It is planned again of
what has been read, and both are compared as they are rendered. Nothing is fetched for it.
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
"""BreakReason of a part -> reason of a break. All others are of limits, and of steps of a user's own: `evicted`."""


@lazy_dataclass(frozen=True, slots=True)
class Cause:
    """What is not planned as before, and the position at which it begins. ``is_planned``: by policy and budget, else by what
    the messages are."""

    reason: BreakReason
    position: int
    is_planned: bool = False


def cause_of(then: WindowDraft, now: WindowDraft, position: int, *, at: int | None = None) -> Cause | None:
    """Why the later of two views is not the earlier one with more behind it: by the loop in which ``at`` lies, else by the
    first that is another one.

    ``position``: the earlier log ended before it. None where nothing is planned otherwise.
    """
    if (then.summary, then.told) != (now.summary, now.told):
        known = then.summary or now.summary
        return Cause("budget", known.first if known is not None else 0, is_planned=True)
    causes = [(one, cause) for one, other in _pairs(then, now, position) if (cause := _in_loop(one, other, position))]
    inside = [cause for loop, cause in causes if at is not None and loop.first <= at <= loop.last]
    return next(iter([*inside, *(cause for _, cause in causes)]), None)


def _pairs(then: WindowDraft, now: WindowDraft, position: int) -> Iterator[tuple[Loop, Loop]]:
    """The loops of both, as they were and as they are; one that is not there says nothing."""
    old = {loop.number: loop for loop in then.loops}
    new = {loop.number: loop for loop in now.loops if loop.first < position}
    for number in sorted(old | new):
        one, other = old.get(number), new.get(number)
        yield one or _silent(new[number]), other or _silent(old[number])


def _silent(loop: Loop) -> Loop:
    return replace(loop, units=(), level="whole", reason="", notes=())


def _in_loop(one: Loop, other: Loop, position: int) -> Cause | None:
    if (one.level, one.max_message_chars) != (other.level, other.max_message_chars):
        return Cause(_of_plan(other if other.level != "whole" else one), one.first, is_planned=True)
    old = {unit.position: unit for unit in one.units}
    new = {unit.position: unit for unit in other.units if unit.position < position}
    for place in sorted(old | new):
        found = _of_units(old.get(place), new.get(place))
        if found is not None:
            return found
    if one.notes == other.notes:
        return None
    return Cause("fold" if other.level == "whole" else _of_plan(other), one.first, is_planned=True)


def _of_units(one: Unit | None, other: Unit | None) -> Cause | None:
    if one is None or other is None:
        return _sent_now(other) if other is not None else None
    if _answers(one) != _answers(other):
        return Cause("late_result", other.position) if one.answers else _sent_now(other)
    if one.level != other.level:
        return Cause(_of_plan(other if other.level != "whole" else one), one.position, is_planned=True)
    return Cause("stub", one.position, is_planned=True) if one.stubs != other.stubs else None


def _sent_now(unit: Unit) -> Cause:
    """Its calls waited."""
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
    """``stable_tokens``: at least so many tokens at the beginning, in the order tools, system text, messages, are as they were.

    ``broke_at``: what came first of the window before that is not there any more, a position or a part; None when all of it
    is still there. ``reason``: why; `first` when there was no window before.
    """

    stable_tokens: int
    broke_at: BrokeAt = None
    reason: BreakReason | None = None


@lazy_dataclass(frozen=True, slots=True)
class Made:
    """A window on its way to its caller: what was planned, its turns, and how they are rendered."""

    settled: Settled
    shares: Sequence[Share]
    rendered: Rendered

    @classmethod
    def of(cls, settled: Settled, codec: Codec) -> Made:
        request, found = settled.plan.request, shares(settled.view, codec)
        rendered = codec.render([share.turn for share in found], system=request.system, tools=request.tools)
        return cls(settled, found, rendered)

    @property
    def request(self) -> WindowRequest:
        return self.settled.plan.request


@lazy_dataclass(frozen=True, slots=True)
class Common:
    """What two windows have in common: the messages up to ``end``, the first ``turns`` turns of the later one.

    ``is_whole``: that is all of the earlier one, but for a neutral line at its end that the format demanded.
    """

    end: End = BEFORE_ALL
    turns: int = 0
    is_whole: bool = False


def prefix_of(
    made: Made, then: WindowRequest | BreakReason, position: int | None, codec: Codec
) -> tuple[Prefix, Common]:
    """The prefix, and what the windows have in common.

    ``then``: what was asked for before ``position``, in the same format; or why nothing behind the fixed parts is to be
    expected to be as it was.
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
        # A step of a user's own that fails for what was there then is no reason to refuse this window.
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
    """Of what comes first in every window no more is known than that it is the same, or not."""
    if reason == "first":
        return Prefix(0, None, reason)
    if reason == "tools":
        return Prefix(0, "tools", reason)
    if reason == "system":
        return Prefix(_tools_tokens(made), "system", reason)
    summary = made.request.summary
    # Between system messages at the beginning and all others stood the summary that this one continues.
    is_parted = summary is not None and position is not None and 0 < summary.base < position
    return Prefix(_fixed_tokens(made, is_parted=is_parted), "summary" if reason == "summary" else "line", reason)


def _without_bodies(made: Made, before: Settled, position: int) -> Prefix:
    """Something was sent that is not at hand, so it is sent no more; what else was sent is not known for certain."""
    is_same = before.plan.request.system == made.request.system
    tokens = _fixed_tokens(made, is_parted=False) if is_same else _tools_tokens(made)
    cause = cause_of(before.view, made.settled.view, position)
    return Prefix(
        tokens, cause.position if cause is not None else "line", cause.reason if cause is not None else "budget"
    )


def _fixed_tokens(made: Made, *, is_parted: bool) -> int:
    """Of what comes before the messages. Where system messages at the beginning join the system text, that is known to be the
    same only if something ``parted`` them from the others then; a summary that is a system message joins it, too."""
    joins = made.request.format in FENCING
    is_certain = not joins or (is_parted and made.settled.view.told.role != "system")
    return _tools_tokens(made) + (_system_tokens(made) if is_certain else 0)


def _made_before(made: Made, before: Settled, position: int, codec: Codec) -> Made:
    """The window before. Where it stands in the new one, so do its turns."""
    if not before.is_within:
        return Made.of(before, codec)
    found = list(takewhile(lambda share: not isinstance(share.place, int) or share.place < position, made.shares))
    known, system = made.rendered.bodies[: len(found)], before.plan.request.system
    return Made(before, found, codec.render([share.turn for share in found], system=system, tools=(), bodies=known))


# ---------------------------------------------------------------- what is the same


def _common(old: Made, new: Made) -> Common:
    if old.rendered.system != new.rendered.system:
        return Common()
    end, is_whole = _common_end(old.rendered, new.rendered)
    turns = sum(1 for _ in takewhile(lambda reach: reach <= end, new.rendered.ends))
    return Common(end, turns, is_whole)


def _common_end(old: Rendered, new: Rendered) -> tuple[End, bool]:
    """How far the messages are the same, and whether that is all of the old ones."""
    last = old.ends[-1] if old.ends and old.ends[-1] != BEFORE_ALL else _whole(old.messages, len(old.messages) - 1)
    for at in range(last.message + 1):
        if at >= len(new.messages):
            return _whole(new.messages, at - 1), False
        one, other = old.messages[at], new.messages[at]
        if one != other:
            blocks = _common_blocks(one, other)
            is_whole = at == last.message and blocks >= last.blocks
            return End(at, min(blocks, last.blocks)) if blocks else _whole(new.messages, at - 1), is_whole
    return last, True


def _whole(messages: Sequence[JsonObject], at: int) -> End:
    return End(at, len(_blocks(messages[at]) or ("one",))) if at >= 0 else BEFORE_ALL


def _common_blocks(one: JsonObject, other: JsonObject) -> int:
    """How many blocks two messages have in common that differ in nothing else."""
    if {**one, "content": None} != {**other, "content": None}:
        return 0
    pairs = zip(_blocks(one), _blocks(other), strict=False)
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
    request, told = made.request, made.rendered.system
    if told is None and request.format in _SYSTEM_IS_A_MESSAGE:
        told = request.system
    if told is None:
        return 0
    known = request.system_least if told == request.system else None
    return known if known is not None else least_of_system(told)


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
