"""Tool schemas between providers' shapes."""

from __future__ import annotations

from typing import Any

import pytest

from turnlog.providers.blocks import convert_tools

SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}}
SHAPES: dict[str, dict[str, Any]] = {
    "openai_chat": {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}},
    "openai_responses": {"type": "function", "name": "f", "description": "d", "parameters": SCHEMA},
    "anthropic": {"name": "f", "description": "d", "input_schema": SCHEMA},
    "bedrock_converse": {"toolSpec": {"name": "f", "description": "d", "inputSchema": {"json": SCHEMA}}},
}
OWN: dict[str, dict[str, Any]] = {
    "openai_chat": {"type": "custom", "custom": {"name": "f"}},
    "openai_responses": {"type": "web_search"},
    "anthropic": {"type": "web_search_20250305", "name": "web_search"},
    "bedrock_converse": {"cachePoint": {"type": "default"}},
}


@pytest.mark.parametrize("given", SHAPES)
@pytest.mark.parametrize("wanted", SHAPES)
def test_a_schema_of_any_shape_is_sent_in_any(given: str, wanted: str) -> None:
    assert convert_tools([SHAPES[given]], wanted) == [SHAPES[wanted]]


@pytest.mark.parametrize("given", OWN)
@pytest.mark.parametrize("wanted", OWN)
def test_what_a_provider_runs_itself_is_sent_to_it_alone(given: str, wanted: str) -> None:
    assert convert_tools([OWN[given]], wanted) == ([OWN[given]] if given == wanted else [])


def test_a_schema_in_its_own_shape_is_passed_as_given_and_an_unknown_one_too() -> None:
    tool = {**SHAPES["anthropic"], "cache_control": {"type": "ephemeral"}}
    assert convert_tools([tool, {"what": 1}], "anthropic") == [tool, {"what": 1}]


def test_strict_is_kept_and_an_illegal_name_made_legal() -> None:
    tool = {"type": "function", "function": {"name": "a.b", "parameters": SCHEMA, "strict": True}}
    (sent,) = convert_tools([tool], "openai_responses")
    assert sent["strict"] is True
    assert str(sent["name"]).startswith("a_b_")


def test_no_parameters_are_an_empty_object() -> None:
    (sent,) = convert_tools([{"type": "function", "function": {"name": "f"}}], "anthropic")
    assert sent == {"name": "f", "input_schema": {"type": "object", "properties": {}}}
