"""Check a session's state against its JSON Schema (draft 2020-12), by the `jsonschema` library.

Schemas come from callers, so the cost of a check is limited: steps are counted, patterns take linear time, and nothing is
fetched. Execution states of agents have their own validator and are hidden from the schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from functools import cache, partial
from graphlib import CycleError, TopologicalSorter
from itertools import islice
from typing import Any, cast

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.exceptions import UnknownType
from jsonschema.validators import create
from jsonschema_specifications import REGISTRY
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from turnlog.core.errors import InvalidInputError, Problem, TooLargeError
from turnlog.core.json_values import JsonObject, JsonValue, canonical_json, encode_json, json_pointer, measured
from turnlog.core.limits import Work
from turnlog.core.patterns import Pattern, PatternError

UNSUPPORTED_KEYWORDS = frozenset(
    {"patternProperties", "unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$id"}
)
Keyword = Callable[[Any, Any, Any, Any], Any]
_KEYWORD_STEPS, _CHILD_STEPS, _ERROR_STEPS = 3, 2, 5
_LOOKUP_STEPS = 6
_MEMBERS_PER_STEP = 16
_CHARS_PER_STEP = 64
_CHECKS_EACH_VALUE = frozenset({"items", "contains", "propertyNames", "additionalProperties"})
_CHECKS_NAMED_VALUES = frozenset({"properties", "dependentSchemas", "prefixItems"})
_CHECKS_ALL_BRANCHES = frozenset({"allOf", "anyOf", "oneOf"})


class _Checking:
    """The context of one check: steps left, compiled patterns, and the values of each ``enum`` and ``const``."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.patterns: dict[str, Pattern] = {}
        self.members: dict[int, frozenset[Any]] = {}


_checking: ContextVar[_Checking] = ContextVar("checking")


def state_errors(state: JsonValue, schema: JsonValue, work: Work) -> Iterator[ValidationError]:
    """Yield the errors of a state against a schema. `TooMuchWorkError` when ``work`` is used up."""
    unprinted = _unprinted(schema, _UnprintedSchema)
    resolver = Registry().resolver_with_root(DRAFT202012.create_resource(unprinted))
    yield from _errors(_StateValidator(unprinted, _resolver=resolver), state, work)


def _errors(validator: Any, value: JsonValue, work: Work) -> Iterator[ValidationError]:
    """Yield the errors of a value. `TooMuchWorkError` when ``work`` is used up."""
    token = _checking.set(_Checking(work))
    try:
        yield from validator.iter_errors(_unprinted(value))
    finally:
        _checking.reset(token)


@cache
def _schema_validator() -> Any:
    """Return the validator of the meta-schema. Its vocabularies too are converted so that messages have no contents."""
    resources = {
        uri: DRAFT202012.create_resource(_unprinted(REGISTRY.contents(uri), _UnprintedSchema))
        for uri in REGISTRY
        if uri.startswith("https://json-schema.org/draft/2020-12/")
    }
    root = resources[DIALECT]
    resolver = Registry().with_resources(resources.items()).crawl().resolver_with_root(root)
    return _MetaValidator(root.contents, _resolver=resolver)


# ------------------------------------------------------------ values without contents in messages


# jsonschema puts `repr` of values into its messages. These types keep the contents of states and schemas out of them.


class _UnprintedObject(dict[str, Any]):
    def __repr__(self) -> str:
        return "an object"


class _UnprintedSchema(_UnprintedObject):
    """A part of a schema. Hides ``$schema``, which would make the library choose a validator of its own."""

    def __contains__(self, name: object) -> bool:
        return name != "$schema" and super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name, default) if name != "$schema" else default


class _UnprintedList(list[Any]):
    def __repr__(self) -> str:
        return "a list"


class _UnprintedText(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return "a string"


def _unprinted(value: Any, kind: type[_UnprintedObject] = _UnprintedObject) -> Any:
    if isinstance(value, dict):
        return kind((_UnprintedText(name), _unprinted(child, kind)) for name, child in value.items())
    if isinstance(value, list):
        return _UnprintedList(_unprinted(child, kind) for child in value)
    return _UnprintedText(value) if isinstance(value, str) else value


# ------------------------------------------------------------ keywords


def _counted(name: str, check: Keyword) -> Keyword:
    """Wrap a keyword so that its steps are counted: the call, each value and branch that it enters, and each error."""

    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        work = _checking.get().work
        work.spend(_KEYWORD_STEPS + _steps_of(name, value, instance))
        for error in check(validator, value, instance, schema) or ():
            work.spend(_ERROR_STEPS)
            yield error

    return counted


def _steps_of(name: str, value: Any, instance: Any) -> int:
    """Return the steps of one call of a keyword. Each error costs extra."""
    if name in ("enum", "const"):
        return 0
    steps = len(value) // _MEMBERS_PER_STEP if isinstance(value, (str, list, dict)) else 0
    if name in ("$ref", "$dynamicRef"):
        steps += _LOOKUP_STEPS
    elif name in _CHECKS_ALL_BRANCHES:
        steps += _CHILD_STEPS * len(value)
    elif name == "dependentRequired":
        steps += sum(map(len, value.values())) // _MEMBERS_PER_STEP
    elif isinstance(instance, (dict, list)):
        if name in _CHECKS_EACH_VALUE:
            steps += _CHILD_STEPS * len(instance)
        elif name in _CHECKS_NAMED_VALUES:
            steps += _CHILD_STEPS * min(len(value), len(instance))
    return steps


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
    """Return the identities of a keyword's values, cached for ``place``, the part of the schema that holds them."""
    cached = _checking.get().members
    members = cached.get(id(place))
    if members is None:
        members = cached[id(place)] = frozenset(map(_identity, values))
    return members


def _identity(value: Any) -> Any:
    """Return a key that is equal for two values exactly when they are the same JSON: 1 equals 1.0 and differs from true."""
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
    """Return the value with integral floats as integers, so that 1 and 1.0 are encoded alike."""
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
_StateValidator = _validator_of({name: check for name, check in _KEYWORDS.items() if name not in UNSUPPORTED_KEYWORDS})

MAX_SCHEMA_BYTES = 64 * 1024
MAX_STEPS = 500_000
"""Steps that the checks of one request may take: 3 for a keyword, 2 for each value or branch that it enters, 5 for an error,
1 for a value that is compared."""
DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NAMED_SCHEMAS = frozenset({"properties", "$defs", "dependentSchemas"})
_PLAIN_VALUES = frozenset({"const", "enum", "default", "examples"})
_NO_SCHEMA = (
    Unresolvable,
    UnknownType,
    PatternError,
    TypeError,
    ValueError,
    ArithmeticError,
    AttributeError,
    LookupError,
)
_ENDLESS = "the schema has a reference to itself that never ends"
_MAX_PROBLEMS = 20
_pointer = partial(json_pointer, max_chars=128)


def check_work() -> Work:
    """Return the budget of a request that checks a schema, a state or both."""
    return Work("the check of the state and its schema", limit=MAX_STEPS)


def check_schema(schema: JsonObject, work: Work) -> None:
    """Refuse a schema that is too large, invalid, endless, of another dialect, or uses unsupported keywords."""
    if len(encode_json(schema)) > MAX_SCHEMA_BYTES:
        raise TooLargeError(f"state_schema is over the limit of {MAX_SCHEMA_BYTES} bytes")
    if schema.get("$schema", DIALECT) != DIALECT:
        raise _refused("/state_schema/$schema", f"the only dialect is {DIALECT}")
    for pointer, part in _schemas(schema, "/state_schema"):
        for name, value in part.items():
            _check_keyword(name, value, pointer + _pointer([name]))
    error = next(_errors(_schema_validator(), schema, work), None)
    if error is not None:
        place = "/state_schema" + _pointer(error.absolute_path)
        raise _refused(place, f"not a valid JSON Schema: it fails {error.validator} of the meta-schema")
    _check_progress(schema, work)


def check_state(state: JsonObject, schema: JsonObject, work: Work) -> None:
    """Refuse a state that does not fit its schema. The error names up to 20 places and shows no contents."""
    shown = {name: value for name, value in state.items() if name != "agents"}
    try:
        violations = list(islice(state_errors(shown, schema, work), _MAX_PROBLEMS))
    except RecursionError as error:
        raise _refused("", _ENDLESS) from error
    except Unresolvable as error:
        raise _refused("", "the schema has a reference to a place that does not exist in it") from error
    except _NO_SCHEMA as error:
        # `check_schema` checks schemas only. A reference may point to any other value of the schema, such as a default.
        raise _refused("", "the schema has a reference to a value that is not a schema") from error
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


def _schemas(schema: JsonValue, pointer: str, *, are_names: bool = False) -> Iterator[tuple[str, JsonObject]]:
    """Yield every place where a schema may stand: its pointer, and the schema.

    ``are_names``: the value maps names of the caller, such as those of properties, to schemas.
    """
    if isinstance(schema, list):
        for position, part in enumerate(schema):
            yield from _schemas(part, f"{pointer}/{position}")
    if not isinstance(schema, dict):
        return
    if not are_names:
        yield pointer, schema
    for name, value in schema.items():
        if are_names or name not in _PLAIN_VALUES:
            inner_names = not are_names and name in _NAMED_SCHEMAS
            yield from _schemas(value, pointer + _pointer([name]), are_names=inner_names)


def _check_progress(schema: JsonObject, work: Work) -> None:
    """Refuse a valid schema that checks a value by a part of itself, and the same value by that part again."""
    resolver = Registry().with_resource("", DRAFT202012.create_resource(schema)).crawl().resolver()
    graph = dict[int, list[int]]()
    for _, part in _schemas(schema, ""):
        inner: list[Any] = [part[name] for name in ("not", "if", "then", "else") if name in part]
        inner += [branch for name in _CHECKS_ALL_BRANCHES for branch in cast("list[Any]", part.get(name, []))]
        inner += cast("JsonObject", part.get("dependentSchemas", {})).values()
        if "$ref" in part:
            work.spend(_LOOKUP_STEPS)
            with suppress(*_NO_SCHEMA):
                inner.append(resolver.lookup(cast("str", part["$ref"])).contents)
        graph[id(part)] = list(map(id, inner))
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise _refused("/state_schema", _ENDLESS) from error


def _check_keyword(name: str, value: JsonValue, place: str) -> None:
    if name in UNSUPPORTED_KEYWORDS:
        raise _refused(place, f"{name} is not supported")
    if name == "$ref" and isinstance(value, str) and not value.startswith("#"):
        raise _refused(place, "a reference points outside the schema")
    if name == "pattern" and isinstance(value, str):
        try:
            Pattern(value)
        except PatternError as error:
            raise _refused(place, str(error)) from error


def _refused(pointer: str, message: str) -> InvalidInputError:
    return InvalidInputError(message, code="invalid_schema", problems=[Problem("invalid_schema", pointer, message)])
