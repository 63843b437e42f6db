"""The table of policy steps by name, the reader of steps in a policy's body, and the check of what a step did."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, get_args, get_origin

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from turnlog.core.errors import InvalidInputError, StepError
from turnlog.core.json_values import encode_json
from turnlog.windows.digests import tells_something, with_note
from turnlog.windows.recalled import RecallMessages
from turnlog.windows.steps import (
    DigestWhenFull,
    Loops,
    Messages,
    Pin,
    Recent,
    Step,
    StubToolResults,
    Summary,
    Tokens,
    Turns,
)
from turnlog.windows.view import Loop, Room, Unit, WindowDraft, pinned

BUILT_IN: tuple[type[Step], ...] = (
    Turns,
    Messages,
    Tokens,
    Recent,
    Loops,
    DigestWhenFull,
    StubToolResults,
    Summary,
    Pin,
    RecallMessages,
)
"""Turnlog's own steps, in the order in which messages and the schema list them."""
OwnStep = TypeVar("OwnStep", bound=Step)
_WORD = re.compile(r"[a-z][a-z0-9_]{0,63}")
"""The form of a step's name, and of a reason in a manifest."""
REGISTERED = dict[str, type[Step]]()
_BUILT_IN = {str(model.model_fields["step"].default): model for model in BUILT_IN}


def known_steps() -> dict[str, type[Step]]:
    """Return every step by its name: Turnlog's own steps, then registered ones."""
    return _BUILT_IN | REGISTERED


def is_built_in(step: Step) -> bool:
    """Return whether the step is one of Turnlog's own."""
    return _BUILT_IN.get(step.step) is type(step)


def register_step(model: type[OwnStep]) -> type[OwnStep]:
    """Register a step of your own in this process, under the name in its field ``step``; usable as a decorator.

    Policies may then use it like any other step, and the schema describes it. Every view that it returns is checked
    (`StepError`). Raises `InvalidInputError` when ``model`` is not a step, or when its name is taken: Turnlog's own steps cannot be
    replaced.
    """
    name = _name_of(model)
    if name in _BUILT_IN:
        raise _refused(f"step {name!r} is one of Turnlog's own: choose another name")
    registered = REGISTERED.setdefault(name, model)
    if registered is not model:
        raise _refused(f"step {name!r} is registered already, by {registered.__module__}.{registered.__qualname__}")
    return model


def _name_of(model: object) -> str:
    """Return the name of a step: the one value of its field ``step``, which is also the default."""
    if not (isinstance(model, type) and issubclass(model, Step)) or inspect.isabstract(model):
        raise _refused(f"{model!r} is no class that derives from Step and has apply")
    field = model.model_fields["step"]
    names = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    if len(names) != 1 or names[0] != field.default or not _WORD.fullmatch(str(names[0])):
        shape = 'step: Literal["its_name"] = "its_name"'
        raise _refused(f"{model.__qualname__} needs {shape}: a word of small letters, digits and underscores")
    return str(names[0])


def _refused(message: str) -> InvalidInputError:
    return InvalidInputError(message, code="invalid_step")


def _read(value: object) -> Step:
    """Return a step, or the step that an object describes. Raises pydantic's errors for anything else."""
    known = known_steps()
    if isinstance(value, Step):
        if known.get(value.step) is not type(value):
            raise PydanticCustomError("unknown_step", "{step} is not a step that is known here", {"step": value.step})
        return value
    name = value.get("step") if isinstance(value, Mapping) else None
    model = known.get(name) if isinstance(name, str) else None
    if model is None:
        names = ", ".join(known)
        if isinstance(name, str):
            message = "step {name} is not one of {names}"
            raise PydanticCustomError("unknown_step", message, {"name": repr(name[:40]), "names": names})
        raise PydanticCustomError("unknown_step", "a step is an object with step, one of {names}", {"names": names})
    return model.model_validate_json(encode_json(value))


class _AnyStep:
    """The pydantic type of a step of any name: it reads one, and describes all of them."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(_read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        described = [handler(model.__pydantic_core_schema__) for model in known_steps().values()]
        return {"oneOf": [{**step_schema, "required": ["step"]} for step_schema in described]}


AnyStep: TypeAlias = Annotated[Step, _AnyStep()]
"""A step of a policy: a model of one of `known_steps`."""


_OURS = frozenset({"summary", "not_included"})
"""Reasons that steps may not use: a summary covers the loop, or the caller did not want the current loop."""
_RANKS = {"whole": 0, "digest": 1, "out": 2}
_LOWERED = ("units", "level", "reason", "notes", "max_message_chars")
"""What a step may change of a loop."""


def applied(step: Step, view: WindowDraft, room: Room) -> WindowDraft:
    """Return the view after a step. Raises `StepError` when a user's step fails or returns a view that it may not."""
    if is_built_in(step):
        return step.apply(view, room)
    try:
        after = step.apply(view, room)
    except Exception as error:
        raise StepError(f"step {step.step!r} failed: {type(error).__name__}", details={"step": step.step}) from error
    problem = _problem(view, after)
    if problem:
        raise StepError(f"step {step.step!r} {problem}", details={"step": step.step})
    return after


def _problem(before: WindowDraft, after: object) -> str:
    """Return what a step did that it may not, or an empty string."""
    if not isinstance(after, WindowDraft):
        return f"returned a {type(after).__name__}, not a view"
    if replace(after, loops=before.loops) != before:
        return "changed more of the view than its loops"
    if len(after.loops) != len(before.loops):
        return "added or removed a loop: one is taken out by its level"
    problems = [_of_loop(*pair) for pair in zip(before.past, after.past, strict=True)]
    problems += [_of_current(*pair) for pair in zip(before.loops[-1:], after.loops[-1:], strict=True)]
    return next(filter(None, problems), "")


def _of_current(before: Loop, after: Loop) -> str:
    if after is before:
        return ""
    is_pinned = len(after.units) == len(before.units) and all(
        new == old or new == pinned(old) for old, new in zip(before.units, after.units, strict=True)
    )
    same = is_pinned and replace(after, units=before.units) == before
    return "" if same else f"changed the current loop, {before.number}, otherwise than by pins"


def _of_loop(before: Loop, after: Loop) -> str:
    if after is before:
        return ""
    if replace(before, **{name: getattr(after, name) for name in _LOWERED}) != after:
        return f"changed more of loop {before.number} than its level and units"
    if after.level not in _RANKS or _RANKS[after.level] < _RANKS[before.level]:
        return f"raised loop {before.number} from {before.level} to {after.level}"
    if before.level == "out" and after.reason != before.reason:
        return f"gave loop {before.number}, which was out, another reason"
    if after.level != "whole" and not _is_reason(after.reason, before.reason if after.level == before.level else ""):
        return (
            f"made loop {before.number} {after.level} with the reason {after.reason[:64]!r}, which is none of its own"
        )
    return _of_units(before, after.units) or _of_notes(before, after)


def _of_notes(before: Loop, after: Loop) -> str:
    if after.level == "digest":
        # A digest must be made by `digest`, with any ledger: then it has only content of its loop.
        values = sum(len(note.values) for note in after.notes)
        if after.max_message_chars < 1 or with_note(after, max_values=values).notes != after.notes:
            return f"made a digest of loop {before.number} otherwise than by digest()"
        if not tells_something(after):
            return f"made a digest of loop {before.number} that says nothing: such a loop is out"
    elif after.level == "out" and after.notes:
        return f"left notes of loop {before.number}, which is out"
    elif after.level == "whole" and replace(after, units=before.units) != before:
        return f"gave loop {before.number}, which is whole, a reason or notes"
    return ""


def _of_units(before: Loop, after: Iterable[Unit]) -> str:
    units = tuple(after)
    if len(units) != len(before.units):
        return f"added or removed a message of loop {before.number}: one is taken out by its level"
    for old, new in zip(before.units, units, strict=True):
        is_out = new.level == "out" and not old.pinned and new == replace(old, level="out", reason=new.reason)
        if not (new is old or new == old or new == pinned(old) or (is_out and _is_reason(new.reason, old.reason))):
            return (
                f"changed message {old.position} otherwise than by taking it out, with a reason of its own, or by a pin"
            )
    return ""


def _is_reason(reason: str, before: str) -> bool:
    """Return whether the reason may stand in a manifest: a word of the step, or the reason that was there before."""
    is_own = _WORD.fullmatch(reason) is not None and reason not in _OURS
    return is_own or (bool(before) and reason == before)
