"""The published schema of a policy is what is read: each default, and each limit exactly up to its border."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import ROOT
from turnlog.core.errors import InvalidInputError
from turnlog.windows.policy import policy_of

SCHEMA: dict[str, Any] = json.loads(
    (ROOT / "docs" / "reference" / "schemas" / "policy.json").read_text(encoding="utf-8")
)
STEPS: list[dict[str, Any]] = SCHEMA["properties"]["steps"]["items"]["oneOf"]
COMPANIONS: dict[str, dict[str, Any]] = {"pin": {"roles": ["user"]}}
"""What a step needs besides the field that is tried."""


def _shapes(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [shape for shape in schema.get("anyOf", [schema]) if shape.get("type") != "null"]


def _filled(schema: dict[str, Any]) -> Any:
    """Return a value of an item's schema."""
    if "$ref" in schema:
        return {"messages_over": 1}
    return schema["enum"][0] if "enum" in schema else schema.get("minimum", "a")


def _borders(schema: dict[str, Any]) -> Iterator[tuple[Any, bool]]:
    """Yield values at the borders of a field, each with whether it is inside."""
    step = 1 if schema.get("type") == "integer" else 2**-30
    for name, outwards in (("minimum", -step), ("maximum", step)):
        if name in schema:
            yield schema[name], True
            yield schema[name] + outwards, False
    for name, inwards in (("exclusiveMinimum", step), ("exclusiveMaximum", -step)):
        if name in schema:
            yield schema[name], False
            yield schema[name] + inwards, True
    sized = {"minLength": "a", "maxLength": "a", "minItems": None, "maxItems": None}
    for name in (name for name in sized if name in schema):
        item = [_filled(schema["items"])] if sized[name] is None else sized[name]
        yield item * schema[name], True
        yield item * (schema[name] + (1 if name.startswith("max") else -1)), False


def _fields() -> Iterator[Any]:
    for step in STEPS:
        name = step["properties"]["step"]["const"]
        for field, schema in step["properties"].items():
            for value, is_taken in (pair for shape in _shapes(schema) for pair in _borders(shape)):
                shown = f"{name}.{field}-{'takes' if is_taken else 'refuses'}-{str(value)[:12]}-{len(str(value))}"
                yield pytest.param(name, field, value, is_taken, id=shown)


def _read(name: str, fields: dict[str, Any]) -> Any:
    return policy_of({"steps": [{"step": name, **fields}]}).steps[0]


@pytest.mark.parametrize(("name", "field", "value", "is_taken"), list(_fields()))
def test_a_step_takes_its_fields_up_to_the_published_limits(name: str, field: str, value: Any, is_taken: bool) -> None:
    # A high mark must be above the low one.
    partner = {"high": {"low": 0.0}, "low": {"high": 1.0}}.get(field, {})
    fields = {**COMPANIONS.get(name, {}), **partner, field: value}
    if is_taken:
        assert json.loads(_read(name, fields).model_dump_json())[field] == value
        return
    with pytest.raises(InvalidInputError) as raised:
        _read(name, fields)
    assert [problem.pointer.partition(field)[1] for problem in raised.value.problems] == [field]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step["title"])
def test_a_step_without_fields_has_the_published_defaults(step: dict[str, Any]) -> None:
    name = step["properties"]["step"]["const"]
    companions = COMPANIONS.get(name, {})
    read = json.loads(_read(name, companions).model_dump_json())
    defaults = {field: schema["default"] for field, schema in step["properties"].items()}
    assert read == {**defaults, **companions}


def test_a_policy_takes_as_many_steps_and_clauses_as_published() -> None:
    most = SCHEMA["properties"]["steps"]["maxItems"]
    assert len(policy_of({"steps": [{"step": "turns"}] * most}).steps) == most
    with pytest.raises(InvalidInputError):
        policy_of({"steps": [{"step": "turns"}] * (most + 1)})
    clauses = SCHEMA["$defs"]["Trigger"]["properties"]["any"]["maxItems"]
    trigger = {"any": [{"loops_over": 1}] * clauses}
    read = policy_of({"steps": [{"step": "summary"}], "compress": trigger}).compress
    assert read is not None and len(read.any) == clauses
    with pytest.raises(InvalidInputError):
        policy_of({"steps": [{"step": "summary"}], "compress": {"any": [{"loops_over": 1}] * (clauses + 1)}})
