"""The JSON Schema of a session's state (draft 2020-12), by the `jsonschema` library.

Schemas come from callers, so what a check costs is limited: its steps are counted, patterns take linear time, nothing is
fetched. Agents' execution states have a validator of their own and are not shown to the schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import cache
from itertools import islice
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.exceptions import UnknownType
from jsonschema.validators import create
from jsonschema_specifications import REGISTRY
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from turnlog.core.errors import InvalidInputError, Problem, TooLargeError
from turnlog.core.json_values import JsonObject, JsonValue, canonical_json, encode_json, measured
from turnlog.core.limits import Work
from turnlog.core.pattern_syntax import PatternError
from turnlog.core.patterns import Pattern

NOT_TAKEN = frozenset({"patternProperties", "unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$id"})
Keyword = Callable[[Any, Any, Any, Any], Any]
_KEYWORD_STEPS, _CHILD_STEPS, _ERROR_STEPS = 3, 2, 5
_LOOKUP_STEPS = 6
_LOOKS_PER_STEP = 16
_CHARS_PER_STEP = 64
_TRIES_EACH = frozenset({"items", "contains", "propertyNames", "additionalProperties"})
_TRIES_NAMED = frozenset({"properties", "dependentSchemas", "prefixItems"})
_TRIES_ALL = frozenset({"allOf", "anyOf", "oneOf"})


class _Checking:
    """One check: its work, its compiled patterns, and the values of ``enum`` and ``const`` by the identity of their place."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.patterns: dict[str, Pattern] = {}
        self.members: dict[int, frozenset[Any]] = {}


_checking: ContextVar[_Checking] = ContextVar("checking")


def state_errors(state: JsonValue, schema: JsonValue, work: Work) -> Iterator[ValidationError]:
    """Yield what of a state does not fit a schema. `TooMuchWorkError` when ``work`` is used up."""
    quiet = _quiet_schema(schema)
    resolver = Registry().resolver_with_root(DRAFT202012.create_resource(quiet))
    yield from _errors(_StateValidator(quiet, _resolver=resolver), state, work)


def schema_errors(schema: JsonValue, work: Work) -> Iterator[ValidationError]:
    """Yield what of a schema does not fit the meta-schema. `TooMuchWorkError` when ``work`` is used up."""
    yield from _errors(_schema_validator(), schema, work)


def _errors(validator: Any, value: JsonValue, work: Work) -> Iterator[ValidationError]:
    token = _checking.set(_Checking(work))
    try:
        yield from validator.iter_errors(_quiet(value))
    finally:
        _checking.reset(token)


@cache
def _schema_validator() -> Any:
    """Return the validator of the meta-schema, whose vocabularies are quiet too."""
    resources = {
        uri: DRAFT202012.create_resource(_quiet_schema(REGISTRY.contents(uri)))
        for uri in REGISTRY
        if uri.startswith("https://json-schema.org/draft/2020-12/")
    }
    root = resources["https://json-schema.org/draft/2020-12/schema"]
    resolver = Registry().with_resources(resources.items()).crawl().resolver_with_root(root)
    return _MetaValidator(root.contents, _resolver=resolver)


# ------------------------------------------------------------ quiet values


class _Object(dict[str, Any]):
    def __repr__(self) -> str:
        return "an object"


class _Schema(_Object):
    """A part of a schema. It does not tell ``$schema``."""

    def __contains__(self, name: object) -> bool:
        return name != "$schema" and super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name, default) if name != "$schema" else default


class _List(list[Any]):
    def __repr__(self) -> str:
        return "a list"


class _Text(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return "a string"


def _quiet(value: Any, kind: type[_Object] = _Object) -> Any:
    if isinstance(value, dict):
        return kind((_Text(name), _quiet(child, kind)) for name, child in value.items())
    if isinstance(value, list):
        return _List(_quiet(child, kind) for child in value)
    return _Text(value) if isinstance(value, str) else value


def _quiet_schema(schema: JsonValue) -> Any:
    return _quiet(schema, _Schema)


# ------------------------------------------------------------ keywords


def _counted(name: str, check: Keyword) -> Keyword:
    """Return the keyword with its steps counted: of the call, of the values and branches it goes into, and of each error."""

    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        work = _checking.get().work
        work.spend(_KEYWORD_STEPS + _steps_of(name, value, instance))
        for error in check(validator, value, instance, schema) or ():
            work.spend(_ERROR_STEPS)
            yield error

    return counted


def _steps_of(name: str, value: Any, instance: Any) -> int:
    if name in ("enum", "const"):
        return 0
    steps = len(value) // _LOOKS_PER_STEP if isinstance(value, (str, list, dict)) else 0
    if name in ("$ref", "$dynamicRef"):
        return steps + _LOOKUP_STEPS
    if name in _TRIES_ALL:
        return steps + _CHILD_STEPS * len(value)
    if name == "dependentRequired":
        return steps + sum(map(len, value.values())) // _LOOKS_PER_STEP
    if not isinstance(instance, (dict, list)):
        return steps
    if name in _TRIES_EACH:
        return steps + _CHILD_STEPS * len(instance)
    return steps + _CHILD_STEPS * min(len(value), len(instance)) if name in _TRIES_NAMED else steps


def _pattern(_validator: Any, value: str, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, str):
        return
    checking = _checking.get()
    pattern = checking.patterns.get(value)
    if pattern is None:
        checking.work.spend(len(value) * _LOOKUP_STEPS)
        pattern = checking.patterns[value] = Pattern(value)
    match = pattern.lines([instance], max_steps=checking.work.left)
    checking.work.spend(match.steps if match.read else checking.work.left + 1)
    if not match.lines:
        yield ValidationError("pattern")


def _unique(_validator: Any, value: bool, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if not value or not isinstance(instance, list):
        return
    _checking.get().work.spend(len(instance) // 4)
    if len({_identity(item) for item in instance}) < len(instance):
        yield ValidationError("uniqueItems")


def _enum(_validator: Any, value: Any, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if _identity(instance) not in _members(value, value):
        yield ValidationError("enum")


def _const(_validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if _identity(instance) not in _members(schema, [value]):
        yield ValidationError("const")


def _members(place: Any, values: Any) -> frozenset[Any]:
    """Return the identities of a keyword's values; ``place`` is the part of the schema that they are remembered for."""
    known = _checking.get().members
    members = known.get(id(place))
    if members is None:
        members = known[id(place)] = frozenset(map(_identity, values))
    return members


def _identity(value: Any) -> Any:
    """Return what two values have in common exactly when they are the same JSON: 1 is 1.0 and not true."""
    if isinstance(value, bool):
        return (value,)
    if not isinstance(value, (dict, list)):
        return value
    work = _checking.get().work
    work.spend(measured(value)[0])
    content = canonical_json(_plain(value))
    work.spend(len(content) // _CHARS_PER_STEP)
    return content


def _plain(value: Any) -> Any:
    """Return the value with equal numbers as one number."""
    if isinstance(value, dict):
        return {name: _plain(child) for name, child in value.items()}
    if isinstance(value, list):
        return [_plain(child) for child in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


_KEYWORDS = {
    name: _counted(name, check)
    for name, check in {
        **Draft202012Validator.VALIDATORS,
        "const": _const,
        "enum": _enum,
        "pattern": _pattern,
        "uniqueItems": _unique,
    }.items()
}


def _validator_of(keywords: dict[str, Keyword]) -> Any:
    return create(
        meta_schema=Draft202012Validator.META_SCHEMA,
        validators=keywords,
        type_checker=Draft202012Validator.TYPE_CHECKER,
        id_of=Draft202012Validator.ID_OF,
    )


_MetaValidator = _validator_of(_KEYWORDS)
_StateValidator = _validator_of({name: check for name, check in _KEYWORDS.items() if name not in NOT_TAKEN})

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
        violations = list(islice(state_errors(shown, schema, work), _MAX_PROBLEMS))
    except RecursionError as error:
        raise _refused("", "the schema has a reference that leads to itself without end") from error
    except Unresolvable as error:
        raise _refused("", "the schema has a reference that leads nowhere in it") from error
    except (UnknownType, PatternError, TypeError, ValueError, ArithmeticError, AttributeError, LookupError) as error:
        # Only schemas are checked when a schema is given: a reference may lead to any of its values, as to a default.
        raise _refused("", "the schema has a reference that leads to what is no schema") from error
    if violations:
        problems = [
            Problem(
                "schema",
                _pointer(violation.absolute_path),
                f"does not fit {_pointer(violation.absolute_schema_path)} of the schema",
            )
            for violation in violations
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
