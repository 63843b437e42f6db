"""Bases of the shapes that others see."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from turnlog.domain.jsonvalue import check_json


def _json_object(value: dict[str, Any]) -> dict[str, Any]:
    check_json(value)
    return value


JsonObjectField: TypeAlias = Annotated[dict[str, Any], AfterValidator(_json_object)]
Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=128)]


class Body(BaseModel):
    """A request. An unknown field is an error: a field of a later version must not be ignored in silence."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Answer(BaseModel):
    """An answer. Fields may be added; in Python they are attributes, and ``answer["field"]`` reads the same."""

    model_config = ConfigDict(frozen=True)

    def __getitem__(self, name: str) -> Any:
        if name not in type(self).model_fields:
            raise KeyError(name)
        return getattr(self, name)
