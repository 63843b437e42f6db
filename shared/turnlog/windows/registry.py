"""The table of policy steps by name, and the reader of steps in a policy's body."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, get_args, get_origin

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from turnlog.core.errors import InvalidInputError
from turnlog.core.json_values import encode_json
from turnlog.windows.digest_steps import Loops, Summary
from turnlog.windows.keep_newest import Messages, Pin, Recent, Tokens, Turns
from turnlog.windows.steps import DigestWhenFull, Step
from turnlog.windows.stubs import StubToolResults

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
)
"""Turnlog's own steps, in the order in which messages and the schema list them."""
OwnStep = TypeVar("OwnStep", bound=Step)
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_OWN = dict[str, type[Step]]()
_BUILT_IN = {str(model.model_fields["step"].default): model for model in BUILT_IN}


def known_steps() -> dict[str, type[Step]]:
    """Return every step by its name: Turnlog's own steps, then registered ones."""
    return _BUILT_IN | _OWN


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
    if _OWN.get(name, model) is not model:
        raise _refused(f"step {name!r} is registered already, by {_OWN[name].__module__}.{_OWN[name].__qualname__}")
    _OWN[name] = model
    return model


def _name_of(model: object) -> str:
    """Return the name of a step: the one value of its field ``step``, which is also the default."""
    if not (isinstance(model, type) and issubclass(model, Step)) or inspect.isabstract(model):
        raise _refused(f"{model!r} is no class that derives from Step and has apply")
    field = model.model_fields["step"]
    names = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    if len(names) != 1 or names[0] != field.default or not _NAME.fullmatch(str(names[0])):
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
