"""Which steps there are, by name, and how a policy's body is read into them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from turnlog.domain.jsonvalue import encode_json
from turnlog.windows.demotions import Crossing, Loops
from turnlog.windows.limits import Messages, Recent, Tokens, Turns
from turnlog.windows.pins import Pin
from turnlog.windows.steps import Step
from turnlog.windows.stub_step import StubToolResults
from turnlog.windows.summary_step import Summary

BUILT_IN: tuple[type[Step], ...] = (Turns, Messages, Tokens, Recent, Loops, Crossing, StubToolResults, Summary, Pin)
"""The steps that Turnlog brings, in the order in which they are named."""
_BUILT_IN = {str(model.model_fields["step"].default): model for model in BUILT_IN}


def known_steps() -> dict[str, type[Step]]:
    """Every step by its name."""
    return dict(_BUILT_IN)


def _read(value: object) -> Step:
    """A step, or the step that an object describes; what is wrong with it is told as pydantic does."""
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
    """How pydantic reads a step of any name and describes all of them."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(_read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        described = [handler(model.__pydantic_core_schema__) for model in known_steps().values()]
        return {"oneOf": [{**one, "required": ["step"]} for one in described]}


AnyStep: TypeAlias = Annotated[Step, _AnyStep()]
"""A step of a policy: a model of one of `known_steps`."""
