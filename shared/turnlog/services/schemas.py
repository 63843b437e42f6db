"""The JSON Schema of a session's state (draft 2020-12), by the `jsonschema` library.

Schemas come from callers, so what a check costs is limited: its steps are counted, patterns take linear time, nothing is
fetched. Agents' execution states have a validator of their own and are not shown to the schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from itertools import islice
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.exceptions import SchemaError
from jsonschema.validators import extend
from referencing import Registry
from referencing.exceptions import Unresolvable

from turnlog.domain.errors import InvalidInputError, Problem, TooLargeError
from turnlog.domain.jsonvalue import JsonObject, JsonValue, canonical_json, encode_json
from turnlog.domain.pattern_syntax import PatternError
from turnlog.domain.patterns import Pattern

MAX_SCHEMA_BYTES = 64 * 1024
MAX_STEPS = 100_000
"""Keywords that one check may look at: a schema of references to itself can take exponentially many."""
DIALECT = "https://json-schema.org/draft/2020-12/schema"
NOT_TAKEN = frozenset({"patternProperties", "unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$id"})
_MAX_PROBLEMS = 20
_MAX_PART_CHARS = 128
_steps: ContextVar[list[int]] = ContextVar("steps")


class _TooMuchWorkError(Exception):
    pass


def check_schema(schema: JsonObject) -> None:
    """Refuses what is no JSON Schema that we take."""
    if len(encode_json(schema)) > MAX_SCHEMA_BYTES:
        raise TooLargeError(f"state_schema is over the limit of {MAX_SCHEMA_BYTES} bytes")
    if schema.get("$schema", DIALECT) != DIALECT:
        raise _refused("/state_schema/$schema", f"the only dialect is {DIALECT}")
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        place = "/state_schema" + _pointer(error.absolute_path)
        raise _refused(place, f"no JSON Schema: {error.validator} of the meta-schema") from error
    _check_keywords(schema, "/state_schema")


def check_state(state: JsonObject, schema: JsonObject) -> None:
    """Refuses a state that does not fit, with the pointer of each problem, 20 at most, and no contents."""
    shown = {name: value for name, value in state.items() if name != "agents"}
    token = _steps.set([0])
    try:
        found = list(islice(_Validator(schema, registry=Registry()).iter_errors(shown), _MAX_PROBLEMS))
    except (_TooMuchWorkError, RecursionError) as error:
        raise _refused("", "the check of the state against its schema takes too many steps") from error
    except Unresolvable as error:
        raise _refused("", "the schema has a reference that leads nowhere in it") from error
    finally:
        _steps.reset(token)
    if found:
        problems = [
            Problem(
                "schema",
                _pointer(one.absolute_path),
                f"does not fit {_pointer(one.absolute_schema_path)} of the schema",
            )
            for one in found
        ]
        first = problems[0]
        message = f"the state does not fit the session's schema: {first.pointer or 'the state'} {first.message}"
        raise InvalidInputError(message, code="schema_mismatch", problems=problems)


def _check_keywords(schema: JsonValue, pointer: str) -> None:
    if isinstance(schema, list):
        for at, one in enumerate(schema):
            _check_keywords(one, f"{pointer}/{at}")
    if not isinstance(schema, dict):
        return
    for name, value in schema.items():
        place = pointer + _pointer([name])
        if name in NOT_TAKEN and not pointer.endswith(("/properties", "/$defs")):
            raise _refused(place, f"{name} is not taken")
        if name == "$ref" and isinstance(value, str) and not value.startswith("#"):
            raise _refused(place, "a reference leads outside of the schema")
        if name == "pattern" and isinstance(value, str):
            try:
                Pattern(value)
            except PatternError as error:
                raise _refused(place, str(error)) from error
        if name not in ("const", "enum", "default", "examples"):
            _check_keywords(value, place)


# ------------------------------------------------------------ keywords

Keyword = Callable[[Any, Any, Any, Any], Any]


def _counted(check: Keyword) -> Keyword:
    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        steps = _steps.get()
        steps[0] += 1
        if steps[0] > MAX_STEPS:
            raise _TooMuchWorkError
        return check(validator, value, instance, schema)

    return counted


def _pattern(validator: Any, value: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, str):
        return
    found = Pattern(value).lines([instance], max_steps=MAX_STEPS)
    if not found.read:
        raise _TooMuchWorkError
    if not found.lines:
        yield ValidationError("pattern")


def _unique(validator: Any, value: bool, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if value and isinstance(instance, list) and len({canonical_json(_plain(one)) for one in instance}) < len(instance):
        yield ValidationError("uniqueItems")


def _plain(value: JsonValue) -> JsonValue:
    """Equal numbers as one number."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


_Validator: Any = extend(
    Draft202012Validator,
    {
        name: _counted(check)
        for name, check in {**Draft202012Validator.VALIDATORS, "pattern": _pattern, "uniqueItems": _unique}.items()
    },
)


def _pointer(path: Any) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1")[:_MAX_PART_CHARS] for part in path)


def _refused(pointer: str, message: str) -> InvalidInputError:
    return InvalidInputError(message, code="invalid_schema", problems=[Problem("invalid_schema", pointer, message)])
