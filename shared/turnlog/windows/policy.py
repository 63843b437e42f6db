"""Policies: how a window is built, as data.

A policy is a pipeline of steps over the session's loops; after them the budget is enforced whatever the steps have left.
Presets are policies with a name. In every preset the system messages, the current loop and pinned messages are always in.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from turnlog.domain.errors import InvalidInputError, Problem
from turnlog.domain.jsonvalue import JsonObject, encode_json
from turnlog.windows.demotions import Crossing, Loops
from turnlog.windows.limits import Messages, Recent, Tokens, Turns
from turnlog.windows.registry import AnyStep
from turnlog.windows.steps import Step
from turnlog.windows.summary_step import Summary
from turnlog.windows.triggers import Clause, Trigger

__all__ = [
    "PRESETS",
    "Clause",
    "Crossing",
    "Loops",
    "Messages",
    "Policy",
    "Recent",
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

    @property
    def takes_summary(self) -> bool:
        return _takes_summary(self.steps)


def _takes_summary(steps: Sequence[Step]) -> bool:
    return any(isinstance(step, Summary) for step in steps)


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


_HIGH_MARK = Clause(fraction_over=Crossing().high)
PRESETS: dict[str, Policy] = {
    "default": Policy(steps=(Summary(), Crossing()), compress=Trigger(any=(_HIGH_MARK,))),
    "run_loops": Policy(steps=(Summary(), Loops()), compress=Trigger(any=(Clause(loops_over=Loops().max), _HIGH_MARK))),
    "classic": classic(),
    "turns": Policy(steps=(Turns(),)),
    "tokens": Policy(steps=(Tokens(),)),
    "buffer": Policy(steps=(Messages(),)),
    "full": Policy(),
}
_CALL = re.compile(r"(turns|messages|tokens)\(([0-9]{1,9})\)")
_CALLED: dict[str, type[Turns | Messages | Tokens]] = {"turns": Turns, "messages": Messages, "tokens": Tokens}
_ADAPTER: TypeAdapter[Policy] = TypeAdapter(Policy)


def policy_of(value: str | JsonObject, *, pointer: str = "/policy") -> Policy:
    """A preset by name, ``turns(n)``, ``messages(n)`` or ``tokens(n)``, or a policy's body; `InvalidInputError` otherwise."""
    if isinstance(value, str):
        preset = PRESETS.get(value)
        if preset is not None:
            return preset
        call = _CALL.fullmatch(value)
        if call is not None:
            return _called(_CALLED[call[1]], int(call[2]), pointer)
        names = ", ".join([*PRESETS, "turns(n)", "messages(n)", "tokens(n)"])
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


def _called(step: type[Turns | Messages | Tokens], n: int, pointer: str) -> Policy:
    try:
        return Policy(steps=(step(n=n),))
    except ValidationError as error:
        raise _invalid(pointer, f"n of policy {step.model_fields['step'].default}({n}) is too large") from error


def _pointer(place: tuple[int | str, ...]) -> str:
    """A place in a policy's body as a JSON pointer."""
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in place)


def _invalid(pointer: str, message: str) -> InvalidInputError:
    return InvalidInputError(message, code="invalid_policy", problems=[Problem("invalid_policy", pointer, message)])
