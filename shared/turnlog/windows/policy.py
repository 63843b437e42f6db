"""Policies: how a window is built, as data.

A policy is a pipeline of steps over the session's loops; after them the budget is enforced whatever the steps have left.
Presets are policies with a name. In every preset the system messages, the current loop and pinned messages are always in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from turnlog.domain.errors import InvalidInputError, Problem
from turnlog.domain.jsonvalue import JsonObject, encode_json
from turnlog.windows.demotions import WEEK_SECONDS, Crossing, Loops
from turnlog.windows.limits import Messages, Recent, Tokens, Turns
from turnlog.windows.pins import Pin
from turnlog.windows.registry import AnyStep
from turnlog.windows.steps import MAX_MESSAGE_CHARS, Step
from turnlog.windows.stub_step import StubToolResults
from turnlog.windows.summary_step import Summary
from turnlog.windows.triggers import Clause, Trigger

__all__ = [
    "PRESETS",
    "Clause",
    "Crossing",
    "Loops",
    "Messages",
    "Pin",
    "Policy",
    "Recent",
    "StubToolResults",
    "Summary",
    "Tokens",
    "Trigger",
    "Turns",
    "policy_of",
]


class Policy(BaseModel):
    """Steps, applied in their order. No step at all: everything that the budget takes.

    ``compress`` says when a session should be summarised: its trigger is asked about what has been said since the summary in
    force. null: only when a caller asks for it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    steps: tuple[AnyStep, ...] = Field(default=(), max_length=8)
    compress: Trigger | None = None

    @field_validator("compress")
    @classmethod
    def _summarised_for_a_step(cls, compress: Trigger | None, info: ValidationInfo) -> Trigger | None:
        # Steps that are not valid are not there, and told by themselves.
        if compress is not None and "steps" in info.data and not _takes_summary(info.data["steps"]):
            raise PydanticCustomError(
                "no_summary_step", "compress needs the step summary: no window would show what it makes"
            )
        return compress

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Policy:
        """The policy that options of other libraries ask for, by the names that they have there.

        ``window_size``, ``max_tokens``, ``summarize``, ``compress_threshold``, ``token_threshold``, ``preserve_system`` (true)
        give `classic`; ``max_run_loops``, ``max_message_length`` (characters), ``max_time_range`` (milliseconds) give
        `run_loops`; ``buffer_config`` with ``max_messages`` and ``max_tokens`` gives its limits and no summary. What is left out
        is as in the preset; camelCase is read too. `InvalidInputError` names an option that is unknown, of a wrong type, of
        another family than the rest, or that can't be kept.
        """
        from turnlog.windows.options import policy_of_options

        return policy_of_options(options)

    @property
    def takes_summary(self) -> bool:
        return _takes_summary(self.steps)

    @property
    def pins(self) -> tuple[Pin, ...]:
        """The steps that pin: a summary keeps what they find."""
        return tuple(step for step in self.steps if isinstance(step, Pin))


def _takes_summary(steps: Sequence[Step]) -> bool:
    return any(isinstance(step, Summary) for step in steps)


_HIGH_MARK = Clause(fraction_over=Crossing().high)


def classic(
    *, messages: int = 20, tokens: int = 4000, messages_over: int = 30, tokens_over: int = 3000, summary: bool = True
) -> Policy:
    """All of the past until it has more than ``messages_over`` messages or ``tokens_over`` tokens; from then on its newest
    ``messages`` messages with at most ``tokens`` tokens, behind a summary or without one."""
    over = (Clause(messages_over=messages_over), Clause(tokens_over=tokens_over))
    recent = Recent(messages=messages, tokens=tokens, once=over)
    if not summary:
        return Policy(steps=(recent,))
    return Policy(steps=(Summary(), recent), compress=Trigger(any=over, counts="past"))


def run_loops(
    *, max_loops: int = 10, max_message_chars: int = MAX_MESSAGE_CHARS, max_age_seconds: int = WEEK_SECONDS
) -> Policy:
    """Every past loop as a digest, at most ``max_loops`` of them; a summary of the older ones."""
    loops = Loops(max=max_loops, max_message_chars=max_message_chars, max_age_seconds=max_age_seconds)
    return Policy(steps=(Summary(), loops), compress=Trigger(any=(Clause(loops_over=max_loops), _HIGH_MARK)))


PRESETS: dict[str, Policy] = {
    "default": Policy(steps=(Summary(), Crossing()), compress=Trigger(any=(_HIGH_MARK,))),
    "run_loops": run_loops(),
    "classic": classic(),
    "turns": Policy(steps=(Turns(),)),
    "tokens": Policy(steps=(Tokens(),)),
    "buffer": Policy(steps=(Messages(),)),
    "full": Policy(),
}
_CALL = re.compile(r"([a-z_]+)\(([0-9]{1,9})\)")
_CALLED: dict[str, Callable[[int], Policy]] = {
    "run_loops": lambda n: run_loops(max_loops=n),
    "classic": lambda n: classic(messages=n),
    "turns": lambda n: Policy(steps=(Turns(n=n),)),
    "messages": lambda n: Policy(steps=(Messages(n=n),)),
    "tokens": lambda n: Policy(steps=(Tokens(n=n),)),
}
_ADAPTER: TypeAdapter[Policy] = TypeAdapter(Policy)


def policy_of(value: str | JsonObject, *, pointer: str = "/policy") -> Policy:
    """A preset by name, one with a number as ``turns(5)``, or a policy's body; `InvalidInputError` otherwise."""
    if isinstance(value, str):
        preset = PRESETS.get(value)
        if preset is not None:
            return preset
        call = _CALL.fullmatch(value)
        if call is not None and call[1] in _CALLED:
            return _called(call[1], int(call[2]), pointer)
        names = ", ".join([*PRESETS, *(f"{name}(n)" for name in _CALLED)])
        raise _invalid(pointer, f"policy {value[:40]!r} is not one of {names}")
    try:
        return _ADAPTER.validate_json(encode_json(value), strict=True)
    except ValidationError as error:
        problems = [
            Problem("invalid_policy", pointer + _pointer(found["loc"]), found["msg"])
            for found in error.errors(include_url=False, include_input=False, include_context=False)
        ]
        raise InvalidInputError(
            f"the policy is not valid: {problems[0].message}", code="invalid_policy", problems=problems
        ) from error


def _called(name: str, n: int, pointer: str) -> Policy:
    try:
        return _CALLED[name](n)
    except ValidationError as error:
        raise _invalid(pointer, f"n of policy {name}({n}) is too large") from error


def _pointer(place: tuple[int | str, ...]) -> str:
    """A place in a policy's body as a JSON pointer."""
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in place)


def _invalid(pointer: str, message: str) -> InvalidInputError:
    return InvalidInputError(message, code="invalid_policy", problems=[Problem("invalid_policy", pointer, message)])
