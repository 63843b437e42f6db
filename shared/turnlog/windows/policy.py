"""Policies: the rules for building a window, as data.

A policy is a pipeline of steps over the session's loops. After the steps the budget is enforced, whatever they leave. Presets
are policies with a name. In every preset the system messages before the first loop, the current loop and pinned messages are in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_serializer,
)
from pydantic_core import PydanticCustomError

from turnlog.core.errors import InvalidInputError, MalformedError, Problem, problem_text
from turnlog.core.json_values import JsonObject, JsonValue, checked_json, encode_json, json_pointer, sendable_json
from turnlog.windows.digests import MAX_MESSAGE_CHARS
from turnlog.windows.recalled import RecallMessages
from turnlog.windows.registry import AnyStep
from turnlog.windows.steps import (
    WEEK_SECONDS,
    DigestWhenFull,
    Loops,
    Messages,
    Pin,
    Recent,
    Step,
    Summary,
    Tokens,
    Turns,
)
from turnlog.windows.triggers import Clause, Trigger


class Policy(BaseModel):
    """Steps, applied in order. Without steps a window has everything that fits the budget.

    ``compress`` is the trigger that says when to summarise a session. It is checked against the messages since the current
    summary. null: the session is summarised only when a caller asks for it.

    With ``preserve_system`` false, system messages of the log are left out as other messages are: those before the first loop are
    a past loop, and those of the current loop are left out where nothing else fits.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    steps: tuple[AnyStep, ...] = Field(default=(), max_length=8)
    compress: Trigger | None = None
    preserve_system: bool = True

    @field_validator("compress")
    @classmethod
    def _summarised_for_a_step(cls, compress: Trigger | None, info: ValidationInfo) -> Trigger | None:
        # Invalid steps are missing from `info.data`; pydantic reports them itself.
        if compress is not None and "steps" in info.data and not _takes_summary(info.data["steps"]):
            raise PydanticCustomError(
                "no_summary_step", "compress needs the step summary: no window would show what it makes"
            )
        return compress

    # No return type: with one its JSON Schema would be an object of anything. The default is left out: builds stay as they were.
    @model_serializer(mode="wrap")
    def _short(self, whole: SerializerFunctionWrapHandler):  # type: ignore[no-untyped-def]
        return {name: value for name, value in whole(self).items() if name != "preserve_system" or not value}

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Policy:
        """Return the policy for options with the names of other libraries.

        ``window_size``, ``max_tokens``, ``summarize``, ``compress_threshold``, ``token_threshold``, ``preserve_system``
        give `classic`; ``max_run_loops``, ``max_message_length`` (characters), ``max_time_range`` (milliseconds) give
        `run_loops`; ``buffer_config`` with ``max_messages`` and ``max_tokens`` gives its limits without a summary. Options that are
        left out are as in the preset; camelCase is accepted too. Raises `InvalidInputError` for an option that is unknown, has a
        wrong type, belongs to another family than the rest, or cannot be honoured.
        """
        if not isinstance(options, Mapping):
            raise _invalid("", f"options are a mapping of names to values, not a {type(options).__name__}")
        try:
            options = checked_json(options)
        except MalformedError as error:
            raise InvalidInputError(f"the options are not JSON: {error.detail}", code="invalid_policy") from error
        names = _in_snake_case(options, "")
        unknown = next((spelled for spelled, name in names.items() if name not in FAMILY_OF), None)
        if unknown is not None:
            raise _invalid(f"/{unknown}", f"option {unknown!r} is not known; known are {', '.join(FAMILY_OF)}")
        families = {FAMILY_OF[name]: spelled for spelled, name in reversed(names.items())}
        if not families:
            raise _invalid("", f"there is no option to choose a policy by; known are {', '.join(FAMILY_OF)}")
        if len(families) > 1:
            (first_family, first), (second_family, second) = list(families.items())[:2][::-1]
            families_text = f"one is of {first_family}, the other of {second_family}"
            raise _invalid(f"/{second}", f"options {first!r} and {second!r} don't mix: {families_text}")
        return _read(next(iter(families)), options, names)

    @property
    def takes_summary(self) -> bool:
        """Whether a step of the policy sends the current summary."""
        return _takes_summary(self.steps)

    @property
    def keeps_all(self) -> bool:
        """Whether a window leaves something out only when not everything fits."""
        return all(isinstance(step, Summary | DigestWhenFull | Pin | RecallMessages) for step in self.steps)

    @property
    def recall(self) -> RecallMessages | None:
        """The last step that recalls messages; None when there is none."""
        return next((step for step in reversed(self.steps) if isinstance(step, RecallMessages)), None)

    @property
    def when_full(self) -> DigestWhenFull:
        """The step by which windows are fitted to the budget: the last of its kind, or one with the defaults."""
        steps = (step for step in reversed(self.steps) if isinstance(step, DigestWhenFull))
        return next(steps, DigestWhenFull())

    @property
    def pins(self) -> tuple[Pin, ...]:
        """The steps that pin messages; a summary keeps the messages they select."""
        return tuple(step for step in self.steps if isinstance(step, Pin))


def _takes_summary(steps: Sequence[Step]) -> bool:
    return any(isinstance(step, Summary) for step in steps)


_HIGH_MARK = Clause(fraction_over=0.8)


def classic(
    *,
    messages: int = 20,
    tokens: int = 4000,
    messages_over: int = 30,
    tokens_over: int = 3000,
    summary: bool = True,
    preserve_system: bool = True,
) -> Policy:
    """Return the policy with a limit on messages and tokens of the past.

    All of the past is sent until it has more than ``messages_over`` messages or ``tokens_over`` tokens. From then on its newest
    ``messages`` messages with at most ``tokens`` tokens are sent, behind a summary unless ``summary`` is False.
    """
    over = (Clause(messages_over=messages_over), Clause(tokens_over=tokens_over))
    recent = Recent(messages=messages, tokens=tokens, once=over)
    steps, compress = ((Summary(), recent), Trigger(any=over, counts="past")) if summary else ((recent,), None)
    return Policy(steps=steps, compress=compress, preserve_system=preserve_system)


def run_loops(
    *, max_loops: int = 10, max_message_chars: int = MAX_MESSAGE_CHARS, max_age_seconds: int = WEEK_SECONDS
) -> Policy:
    """Return the policy that sends past loops as digests, at most ``max_loops`` of them, and a summary of the older ones."""
    loops = Loops(max=max_loops, max_message_chars=max_message_chars, max_age_seconds=max_age_seconds)
    return Policy(steps=(Summary(), loops), compress=Trigger(any=(Clause(loops_over=max_loops), _HIGH_MARK)))


PRESETS: dict[str, Policy] = {
    "default": Policy(steps=(Summary(), DigestWhenFull()), compress=Trigger(any=(_HIGH_MARK,))),
    "run_loops": run_loops(),
    "classic": classic(),
    "turns": Policy(steps=(Turns(),)),
    "tokens": Policy(steps=(Tokens(),)),
    "buffer": Policy(steps=(Messages(),)),
    "full": Policy(),
    "recall": Policy(steps=(Summary(), DigestWhenFull(), RecallMessages()), compress=Trigger(any=(_HIGH_MARK,))),
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
_POINTER = "/policy"


def policy_of(value: str | JsonObject) -> Policy:
    """Return a policy from the name of a preset, a preset with a number as ``turns(5)``, or a policy's body.

    Raises `InvalidInputError` for any other value of the field ``policy``.
    """
    if isinstance(value, str):
        preset = PRESETS.get(value)
        if preset is not None:
            return preset
        call = _CALL.fullmatch(value)
        if call is not None and call[1] in _CALLED:
            return _called(call[1], int(call[2]))
        names = ", ".join([*PRESETS, *(f"{name}(n)" for name in _CALLED)])
        raise _invalid(_POINTER, f"policy {value[:40]!r} is not one of {names}")
    try:
        return _ADAPTER.validate_json(encode_json(value), strict=True)
    except ValidationError as error:
        problems = [
            Problem("invalid_policy", place, problem_text(problem, place))
            for problem in error.errors(include_url=False, include_input=False)
            for place in [_POINTER + json_pointer(problem["loc"])]
        ]
        raise InvalidInputError(
            f"the policy is not valid: {problems[0].message}", code="invalid_policy", problems=problems
        ) from error


_RENAMED = {"crossing": "digest_when_full"}
"""Names of steps in stored settings -> their names today."""


def stored_policy(value: str | JsonObject) -> Policy:
    """Return the policy in a session's settings, which may have names of steps of earlier versions."""
    steps = value.get("steps") if isinstance(value, dict) else None
    if isinstance(value, dict) and isinstance(steps, list):
        value = {**value, "steps": [_with_todays_name(step) for step in steps]}
    return policy_of(value)


def _with_todays_name(step: JsonValue) -> JsonValue:
    name = _RENAMED.get(str(step.get("step"))) if isinstance(step, dict) else None
    return {**step, "step": name} if isinstance(step, dict) and name is not None else step


def _called(name: str, n: int) -> Policy:
    try:
        return _CALLED[name](n)
    except ValidationError as error:
        raise _invalid(_POINTER, f"n of policy {name}({n}) is too large") from error


def _invalid(pointer: str, message: str) -> InvalidInputError:
    return InvalidInputError(message, code="invalid_policy", problems=[Problem("invalid_policy", pointer, message)])


_MAX = 100_000_000
_DEFAULT: Any = None
"""Stands for the default of the function that makes the policy: only options that are set are passed to it."""
_Milliseconds = Annotated[int, Field(ge=1, le=10**15), AfterValidator(lambda milliseconds: -(-milliseconds // 1000))]
"""Milliseconds that are read as seconds, rounded up."""


class _Options(BaseModel):
    """Options of a family. A field has the name of the function's parameter, and the option's name as its alias."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @classmethod
    def names(cls) -> list[str]:
        return [field.alias or name for name, field in cls.model_fields.items()]


class _Classic(_Options):
    messages: int = Field(default=_DEFAULT, alias="window_size", ge=0, le=1_000_000)
    tokens: int = Field(default=_DEFAULT, alias="max_tokens", ge=0, le=_MAX)
    summary: bool = Field(default=_DEFAULT, alias="summarize")
    messages_over: int = Field(default=_DEFAULT, alias="compress_threshold", ge=0, le=1_000_000)
    tokens_over: int = Field(default=_DEFAULT, alias="token_threshold", ge=0, le=_MAX)
    preserve_system: bool = _DEFAULT


class _RunLoops(_Options):
    max_loops: int = Field(default=_DEFAULT, alias="max_run_loops", ge=1, le=1_000_000)
    max_message_chars: int = Field(default=_DEFAULT, alias="max_message_length", ge=1, le=1_000_000)
    max_age_seconds: _Milliseconds = Field(default=_DEFAULT, alias="max_time_range")


class _BufferConfig(_Options):
    messages: int = Field(default=_DEFAULT, alias="max_messages", ge=0, le=1_000_000)
    tokens: int = Field(default=_DEFAULT, alias="max_tokens", ge=0, le=_MAX)


class _Buffer(_Options):
    buffer_config: _BufferConfig


FAMILIES: dict[str, tuple[type[_Options], Callable[..., Policy]]] = {
    "classic": (_Classic, classic),
    "run_loops": (_RunLoops, run_loops),
    "buffer_config": (_Buffer, lambda *, buffer_config: Policy(steps=(Recent(**buffer_config),))),
}
FAMILY_OF = {name: family for family, (model, _) in FAMILIES.items() for name in model.names()}


def _read(family: str, options: Mapping[str, Any], names: dict[str, str]) -> Policy:
    model, policy = FAMILIES[family]
    values = {name: options[spelled] for spelled, name in names.items()}
    config = values.get("buffer_config")
    inner = _in_snake_case(config, "/buffer_config") if isinstance(config, Mapping) else {}
    if isinstance(config, Mapping):
        values["buffer_config"] = {name: config[spelled] for spelled, name in inner.items()}
    try:
        return policy(**model.model_validate_json(encode_json(sendable_json(values))).model_dump(exclude_unset=True))
    except ValidationError as error:
        spelled = {name: spelled for spelled, name in (names | inner).items()}
        problem = error.errors(include_url=False, include_input=False)[0]
        place = [str(spelled.get(str(part), part)) for part in problem["loc"]]
        message = f"option {place[-1]!r}: {problem_text(problem, place[-1])}"
        if problem["type"] == "extra_forbidden":
            known = ", ".join(_BufferConfig.names())
            message = f"option {place[-1]!r} of {place[0]!r} is not known; known are {known}"
        raise _invalid("/" + "/".join(place), message) from error


def _in_snake_case(options: Mapping[str, Any], pointer: str) -> dict[str, str]:
    """Return each option's name as it is spelled -> its name in snake_case."""
    names = dict[str, str]()
    for spelled in options:
        name = re.sub(r"(?<=[a-z])[A-Z]", lambda letter: "_" + letter[0].lower(), spelled)
        if name in names.values():
            raise _invalid(f"{pointer}/{spelled}", f"option {name!r} is given twice, in two spellings")
        names[spelled] = name
    return names
