"""The JSON Schema of a session's state (draft 2020-12), by the `jsonschema` library.

Schemas come from callers, so what a check costs is limited: its steps are counted, patterns take linear time, nothing is
fetched. Agents' execution states have a validator of their own and are not shown to the schema.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from jsonschema.exceptions import UnknownType
from referencing.exceptions import Unresolvable

from turnlog.domain.errors import InvalidInputError, Problem, TooLargeError
from turnlog.domain.jsonvalue import JsonObject, JsonValue, encode_json
from turnlog.domain.pattern_syntax import PatternError
from turnlog.domain.patterns import Pattern
from turnlog.domain.work import Work
from turnlog.services.schema_validators import NOT_TAKEN, schema_errors, state_errors

MAX_SCHEMA_BYTES = 64 * 1024
MAX_STEPS = 500_000
"""Of the checks of one request: 3 for a keyword, 2 for a value or branch that it goes into, 5 for an error, 1 for a value
that is compared."""
DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NAMED_SCHEMAS = frozenset({"properties", "$defs", "dependentSchemas"})
_PLAIN_VALUES = frozenset({"const", "enum", "default", "examples"})
_MAX_PROBLEMS = 20
_MAX_PART_CHARS = 128


def check_work() -> Work:
    """Return the budget of a request that checks a schema, a state or both."""
    return Work("the check of the state and its schema", limit=MAX_STEPS)


def check_schema(schema: JsonObject, work: Work) -> None:
    """Refuse what is no JSON Schema that we take."""
    if len(encode_json(schema)) > MAX_SCHEMA_BYTES:
        raise TooLargeError(f"state_schema is over the limit of {MAX_SCHEMA_BYTES} bytes")
    if schema.get("$schema", DIALECT) != DIALECT:
        raise _refused("/state_schema/$schema", f"the only dialect is {DIALECT}")
    _check_keywords(schema, "/state_schema")
    error = next(schema_errors(schema, work), None)
    if error is not None:
        place = "/state_schema" + _pointer(error.absolute_path)
        raise _refused(place, f"no JSON Schema: {error.validator} of the meta-schema")


def check_state(state: JsonObject, schema: JsonObject, work: Work) -> None:
    """Refuse a state that does not fit, with the pointer of each problem, 20 at most, and no contents."""
    shown = {name: value for name, value in state.items() if name != "agents"}
    try:
        found = list(islice(state_errors(shown, schema, work), _MAX_PROBLEMS))
    except RecursionError as error:
        raise _refused("", "the schema has a reference that leads to itself without end") from error
    except Unresolvable as error:
        raise _refused("", "the schema has a reference that leads nowhere in it") from error
    except (UnknownType, PatternError, TypeError, ValueError, ArithmeticError, AttributeError, LookupError) as error:
        # Only schemas are checked when a schema is given: a reference may lead to any of its values, as to a default.
        raise _refused("", "the schema has a reference that leads to what is no schema") from error
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


def _check_keywords(schema: JsonValue, pointer: str, *, are_names: bool = False) -> None:
    """Refuse keywords that are not taken, wherever they may act. ``are_names``: the value holds schemas by the caller's names."""
    if isinstance(schema, list):
        for position, part in enumerate(schema):
            _check_keywords(part, f"{pointer}/{position}")
    if not isinstance(schema, dict):
        return
    for name, value in schema.items():
        place = pointer + _pointer([name])
        if not are_names:
            _check_keyword(name, value, place)
        if are_names or name not in _PLAIN_VALUES:
            _check_keywords(value, place, are_names=not are_names and name in _NAMED_SCHEMAS)


def _check_keyword(name: str, value: JsonValue, place: str) -> None:
    if name in NOT_TAKEN:
        raise _refused(place, f"{name} is not taken")
    if name == "$ref" and isinstance(value, str) and not value.startswith("#"):
        raise _refused(place, "a reference leads outside of the schema")
    if name == "pattern" and isinstance(value, str):
        try:
            Pattern(value)
        except PatternError as error:
            raise _refused(place, str(error)) from error


def _pointer(path: Any) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1")[:_MAX_PART_CHARS] for part in path)


def _refused(pointer: str, message: str) -> InvalidInputError:
    return InvalidInputError(message, code="invalid_schema", problems=[Problem("invalid_schema", pointer, message)])
