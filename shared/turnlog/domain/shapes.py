"""Whether a value of our own classes is what its annotations say: for what comes from strangers and is read without a schema.

Pydantic would do it, but for lone surrogates, which are legal in what people say and no `str` to it.
"""

from __future__ import annotations

import dataclasses
import types
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from turnlog.domain.errors import MalformedError


def check_shape(value: object, expected: Any, *, name: str = "") -> None:
    """`MalformedError` names the first field whose value is of another type. A bool is no number; what is in a JSON object or list
    is not looked at."""
    if not _fits(value, expected, name):
        raise MalformedError(f"{name or 'it'} is no {getattr(expected, '__name__', expected)}")


def _fits(value: object, expected: Any, name: str) -> bool:
    origin, inner = get_origin(expected), get_args(expected)
    if origin in (Union, types.UnionType):
        return any(_fits_alone(value, one, name) for one in inner)
    if origin is Literal:
        return value in inner and type(value) in {type(one) for one in inner}
    if origin is tuple:
        return isinstance(value, tuple) and _is_tuple_of(value, inner, name)
    if origin in (dict, list):
        return isinstance(value, origin)
    if dataclasses.is_dataclass(expected):
        return isinstance(value, expected) and _checked(value, name)  # type: ignore[arg-type]
    return type(value) is expected


def _fits_alone(value: object, expected: Any, name: str) -> bool:
    """One of several classes is checked on where the value is of it, so that the error names the field."""
    if dataclasses.is_dataclass(expected) and not isinstance(value, expected):  # type: ignore[arg-type]
        return False
    return _fits(value, expected, name)


def _is_tuple_of(value: tuple[object, ...], inner: tuple[Any, ...], name: str) -> bool:
    if len(inner) == 2 and inner[1] is Ellipsis:
        return all(_fits(one, inner[0], name) for one in value)
    return len(value) == len(inner) and all(_fits(one, kind, name) for one, kind in zip(value, inner, strict=True))


def _checked(value: object, name: str) -> bool:
    cls: Any = type(value)
    for field, expected in _fields(cls).items():
        check_shape(getattr(value, field), expected, name=f"{name}.{field}" if name else field)
    return True


@cache
def _fields(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls, localns={"JsonValue": object})
