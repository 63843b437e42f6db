"""Policies: how a window is built, as data.

A policy is a pipeline of steps over the session's loops; after them the budget is enforced whatever the steps have left.
Presets are policies with a name. In every preset the system messages, the current loop and pinned messages are always in.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from turnlog.domain.errors import InvalidInputError, Problem
from turnlog.domain.jsonvalue import JsonObject, encode_json

MAX_MESSAGE_CHARS = 500
LEDGER_PER_LOOP = 100
WEEK_SECONDS = 7 * 24 * 3600


class _Step(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Turns(_Step):
    """The newest ``n`` past loops stay whole; older ones are out."""

    step: Literal["turns"] = "turns"
    n: int = Field(default=10, ge=0, le=1_000_000)


class Messages(_Step):
    """The newest ``n`` messages of past loops stay; older ones are out. A call stays with its results, or neither does."""

    step: Literal["messages"] = "messages"
    n: int = Field(default=20, ge=0, le=1_000_000)


class Tokens(_Step):
    """The newest messages of past loops that together have at most ``n`` tokens stay; older ones are out."""

    step: Literal["tokens"] = "tokens"
    n: int = Field(default=4000, ge=0, le=100_000_000)


class Loops(_Step):
    """Past loops become digests, the newest ``whole`` excepted; at most ``max`` of them, none older than ``max_age_seconds``.

    A digest is the user's messages and the final reply, each cut to its first ``max_message_chars`` characters, and a note
    with a line per tool call and at most ``ledger`` values that stood in calls and results. Age is measured
    at the time of the commit that opened the current loop. null: no such limit.
    """

    step: Literal["loops"] = "loops"
    max: int | None = Field(default=10, ge=0, le=1_000_000)
    max_age_seconds: int | None = Field(default=WEEK_SECONDS, ge=0)
    max_message_chars: int = Field(default=MAX_MESSAGE_CHARS, ge=1, le=1_000_000)
    whole: int = Field(default=0, ge=0, le=1_000_000)
    ledger: int = Field(default=LEDGER_PER_LOOP, ge=0, le=100)


class Crossing(_Step):
    """All whole until the messages reach the ``high`` mark of the budget; then the oldest loops become digests, down to ``low``.

    Borders stand on a grid over the running totals, so the window's beginning stays the same between two crossings and a
    provider's prompt cache holds. Digests have room up to what ``high`` leaves; the oldest beyond it are out.
    """

    step: Literal["crossing"] = "crossing"
    high: float = Field(default=0.8, gt=0, le=1)
    low: float = Field(default=0.5, ge=0, lt=1)
    max_message_chars: int = Field(default=MAX_MESSAGE_CHARS, ge=1, le=1_000_000)
    ledger: int = Field(default=LEDGER_PER_LOOP, ge=0, le=100)

    @model_validator(mode="after")
    def _ordered(self) -> Crossing:
        if self.low >= self.high:
            raise ValueError("low must be smaller than high")
        return self


class Summary(_Step):
    """The summary in force stands for the loops that it covers. Without this step they are read and sent as any other."""

    step: Literal["summary"] = "summary"


Step: TypeAlias = Annotated[Turns | Messages | Tokens | Loops | Crossing | Summary, Field(discriminator="step")]


class Policy(_Step):
    """Steps, applied in their order. No step at all: everything that the budget takes."""

    steps: tuple[Step, ...] = Field(default=(), max_length=8)

    @property
    def takes_summary(self) -> bool:
        return any(isinstance(step, Summary) for step in self.steps)


PRESETS: dict[str, Policy] = {
    "default": Policy(steps=(Summary(), Crossing())),
    "run_loops": Policy(steps=(Summary(), Loops())),
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
    """A place in a policy's body as a JSON pointer. Behind a step's index pydantic names the step: that is no key."""
    keys = [*place[:2], *place[3:]] if place[:1] == ("steps",) else place
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys)


def _invalid(pointer: str, message: str) -> InvalidInputError:
    return InvalidInputError(message, code="invalid_policy", problems=[Problem("invalid_policy", pointer, message)])
