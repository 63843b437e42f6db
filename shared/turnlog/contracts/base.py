"""Bases of the shapes that others see."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema


def _json_object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("not an object")  # noqa: TRY004 - pydantic makes a problem of a ValueError
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("not a string")  # noqa: TRY004 - pydantic makes a problem of a ValueError
    return value


JsonObjectField: TypeAlias = Annotated[dict[str, Any], PlainValidator(_json_object), WithJsonSchema({"type": "object"})]
"""Any JSON object that has passed `check_json`, kept as it is: lone surrogates too, which pydantic's own types refuse."""
GivenText: TypeAlias = Annotated[str, PlainValidator(_text), WithJsonSchema({"type": "string"})]
"""A caller's text in an answer, whatever is in it."""
FormatName: TypeAlias = Literal["openai_chat", "openai_responses", "anthropic", "bedrock_converse", "turnlog"]
FORMATS: tuple[str, ...] = get_args(FormatName)
Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=128)]
MAX_POSITION = 999_999_999_999
_MAX_TIME_CHARS = 64


def _moment(value: object) -> int | str:
    if type(value) is int and 1 <= value <= MAX_POSITION:
        return value
    if isinstance(value, str) and len(value) <= _MAX_TIME_CHARS:
        return value
    raise ValueError(f"not a position from 1 to {MAX_POSITION}, nor a time (RFC 3339)")


At: TypeAlias = Annotated[
    int | str,
    PlainValidator(_moment),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": MAX_POSITION},
                {"type": "string", "maxLength": _MAX_TIME_CHARS},
            ]
        }
    ),
]
"""A position, or a time (RFC 3339)."""


class Body(BaseModel):
    """A request. An unknown field is an error: a field of a later version must not be ignored in silence."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class Answer(BaseModel):
    """An answer. Fields may be added; in Python they are attributes, and ``answer["field"]`` reads the same."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    def __getitem__(self, name: str) -> Any:
        if name not in type(self).model_fields:
            raise KeyError(name)
        return getattr(self, name)
