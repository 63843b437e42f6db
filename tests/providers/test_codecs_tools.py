"""Tool schemas between providers' shapes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import Harness
from turnlog import build_window, lint
from turnlog.core.errors import InvalidInputError
from turnlog.core.json_values import JsonObject
from turnlog.core.messages import Opaque, Text, Thinking
from turnlog.providers.blocks import convert_tools, kind_of, legal_tool_name, shape_of, tool_name, without_thinking

SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}}
SHAPES: dict[str, dict[str, Any]] = {
    "openai_chat": {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}},
    "openai_responses": {"type": "function", "name": "f", "description": "d", "parameters": SCHEMA},
    "anthropic": {"name": "f", "description": "d", "input_schema": SCHEMA},
    "bedrock_converse": {"toolSpec": {"name": "f", "description": "d", "inputSchema": {"json": SCHEMA}}},
}
OWN: dict[str, dict[str, Any]] = {
    "openai_responses": {"type": "web_search"},
    "anthropic": {"type": "web_search_20250305", "name": "web_search"},
    "bedrock_converse": {"cachePoint": {"type": "default"}},
}


@pytest.mark.parametrize("given", SHAPES)
@pytest.mark.parametrize("wanted", SHAPES)
def test_a_schema_of_any_shape_is_sent_in_any(given: str, wanted: str) -> None:
    assert convert_tools([SHAPES[given]], wanted) == [SHAPES[wanted]]


@pytest.mark.parametrize("given", OWN)
@pytest.mark.parametrize("wanted", SHAPES)
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


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "function", "function": {"name": "a.b", "parameters": SCHEMA}},
        {"type": "custom", "custom": {"name": "a.b", "description": "d"}},
        {"type": "function", "name": "a.b", "parameters": SCHEMA},
        {"name": "a.b", "input_schema": SCHEMA, "cache_control": {"type": "ephemeral"}},
        {"toolSpec": {"name": "a.b", "inputSchema": {"json": SCHEMA}}},
    ],
)
@pytest.mark.parametrize("name", ["a.b", "x" * 70])
def test_a_tool_is_offered_with_the_name_that_its_calls_have(tool: dict[str, Any], name: str) -> None:
    tool = json.loads(json.dumps(tool).replace("a.b", name))
    (sent,) = convert_tools([tool], str(shape_of(tool)))
    assert sent == json.loads(json.dumps(tool).replace(name, legal_tool_name(name)))
    assert tool_name(tool) == name, "the caller's own schema is as it was"


def test_alternatives_at_the_root_of_a_schema_become_an_object() -> None:
    """Anthropic: input_schema does not support oneOf, allOf, or anyOf at the top level (anthropics/claude-code#40075).

    OpenAI: schema must have type 'object' and not have … at the top level (langchain-ai/langchainjs#9804).
    """
    find = {"type": "object", "properties": {"q": {"type": "string"}, "n": {"type": "integer"}}, "required": ["q"]}
    schema: dict[str, Any] = {
        "$defs": {"find": find},
        "oneOf": [{"$ref": "#/$defs/find"}, {"properties": {"q": {"type": "integer"}}}, {"$ref": "#/$defs/none"}],
        "allOf": [{"properties": {"a": {"type": "string"}}}, {"required": ["a"]}],
    }
    tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": schema}}
    (claude,), (converse,) = (convert_tools([tool], format) for format in ("anthropic", "bedrock_converse"))
    plain = claude["input_schema"]
    members = {"q": {"anyOf": [{"type": "string"}, {"type": "integer"}]}, "n": {"type": "integer"}}
    assert plain == {
        "$defs": schema["$defs"],
        "type": "object",
        "properties": {"a": {"type": "string"}, **members},
    }
    assert str(claude["description"]).startswith("d\n\nThe input must fit {") and "#/$defs/find" in str(claude)
    assert converse == {"toolSpec": {**_without(claude, "input_schema"), "inputSchema": {"json": plain}}}
    assert convert_tools([tool], "openai_chat")[0]["function"] == {
        **_without(claude, "input_schema"),
        "parameters": plain,
    }
    own = {"name": "f", "input_schema": {**SCHEMA, "anyOf": [{"required": ["q"]}, {"required": ["x"]}]}}
    assert convert_tools([own], "anthropic")[0]["input_schema"] == SCHEMA


@pytest.mark.parametrize("format", SHAPES)
@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": ["object", "null"], "properties": None},
        {"properties": {"q": {"type": "string"}}},
        {
            "$ref": "#/$defs/node",
            "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
        },
        {"type": "object", "properties": {}, "not": {"required": ["q"]}, "enum": [{}]},
    ],
)
def test_the_schema_of_a_tool_is_one_that_every_provider_takes(schema: dict[str, Any], format: str) -> None:
    """OpenAI: object schema missing properties (spring-ai#4776); Anthropic: input_schema.type: Field required."""
    tools = [
        {"type": "function", "function": {"name": "f", "description": "", "parameters": schema}},
        {"type": "function", "name": "f", "parameters": schema},
        {"name": "f", "input_schema": schema},
        {"toolSpec": {"name": "f", "description": "", "inputSchema": {"json": schema}}},
    ]
    for tool in convert_tools(tools, format):
        function = tool.get("function") or tool.get("toolSpec") or tool
        sent = function.get("parameters") or function.get("input_schema") or function["inputSchema"]["json"]
        assert sent["type"] == "object" and isinstance(sent.get("properties", None if "openai" in format else {}), dict)
        assert not sent.keys() & {"$ref", "allOf", "anyOf", "oneOf", "enum", "not"}
        assert function.get("description") != "", "botocore and Bedrock refuse it"
        assert "$ref" not in schema or sent["properties"] == {"next": {"$ref": "#/$defs/node"}}


def test_a_custom_tool_has_the_shape_of_each_of_openais_formats() -> None:
    grammar = {"syntax": "lark", "definition": "start: WORD"}
    flat = {"type": "custom", "name": "c", "description": "d", "format": {"type": "grammar", **grammar}}
    held = {"name": "c", "description": "d", "format": {"type": "grammar", "grammar": grammar}}
    nested = {"type": "custom", "custom": held}
    for tool in (flat, nested):
        assert convert_tools([tool], "openai_chat") == [nested]
        assert convert_tools([tool], "openai_responses") == [flat]
        assert convert_tools([tool], "anthropic") == []
    plain = {"type": "custom", "name": "c", "format": {"type": "text"}}
    assert convert_tools(convert_tools([plain], "openai_chat"), "openai_responses") == [plain]


@pytest.mark.parametrize("name", ["sql", "my sql"])
@pytest.mark.parametrize("given", ["openai_chat", "openai_responses"])
def test_a_call_of_a_custom_tool_and_its_output_keep_their_kind_in_each_of_openais_formats(
    given: str, name: str
) -> None:
    called = {"name": name, "input": "SELECT 1"}
    bodies: dict[str, list[JsonObject]] = {
        "openai_chat": [
            {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "custom", "custom": called}]},
            {"role": "tool", "tool_call_id": "c1", "content": "1"},
        ],
        "openai_responses": [
            {"type": "custom_tool_call", "call_id": "c1", **called},
            {"type": "custom_tool_call_output", "call_id": "c1", "output": "1"},
        ],
    }
    messages: list[JsonObject] = [{"role": "user", "content": "How many?"}, *bodies[given]]
    for format, expected in bodies.items():
        sent = build_window(messages, format=format).messages  # type: ignore[arg-type]
        assert json.dumps(sent[1:]).replace(legal_tool_name(name), name) == json.dumps(expected)
        assert lint(sent, format=format).problems == []  # type: ignore[arg-type]


def _without(tool: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in tool.items() if name != key}


TAKEN: dict[str, list[dict[str, Any]]] = {
    **{format: [tool, OWN[format]] for format, tool in SHAPES.items() if format != "openai_chat"},
    "openai_chat": [SHAPES["openai_chat"], {"type": "custom", "custom": {"name": "g"}}],
    "legacy": [{"name": "f", "parameters": SCHEMA}],
    "Gemini": [{"functionDeclarations": [{"name": "f"}, {"name": "g"}]}, {"google_search": {}}, {"codeExecution": {}}],
    "hosted": [
        {"type": "code_interpreter", "container": {"type": "auto"}},
        {"type": "mcp", "server_label": "a", "server_url": "https://a"},
        {"type": "mcp", "server_label": "b", "server_url": "https://b"},
        {"type": "file_search", "vector_store_ids": ["v"]},
        {"type": "image_generation"},
    ],
    "namespace": [
        {"type": "namespace", "name": "crm", "tools": [SHAPES["openai_responses"]]},
        SHAPES["openai_responses"],
    ],
    "server tools": [
        {"type": "bash_20250124", "name": "bash"},
        {"type": "mcp_toolset", "mcp_server_name": "a"},
        {"type": "mcp_toolset", "mcp_server_name": "b"},
    ],
    "system tool": [{"systemTool": {"name": "nova_grounding"}}, {"cachePoint": {"type": "default"}}],
}
REFUSED: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a function without a name": {"type": "function", "function": {"parameters": SCHEMA}},
    "a function that is none": {"type": "function", "function": "g"},
    "a flat function without a name": {"type": "function", "parameters": SCHEMA},
    "an empty name": {"type": "function", "function": {"name": ""}},
    "a name that is no text": {"name": 7, "input_schema": SCHEMA},
    "a schema without a name": {"input_schema": SCHEMA},
    "a spec without a name": {"toolSpec": {"inputSchema": {"json": SCHEMA}}},
    "a declaration without a name": {"functionDeclarations": [{"name": "g"}, {"description": "d"}]},
    "a custom tool without a name": {"type": "custom"},
    "the same name": {"name": "f", "input_schema": SCHEMA},
    "the same name twice": {"functionDeclarations": [{"name": "g"}, {"name": "g"}]},
}


@pytest.mark.parametrize("tools", TAKEN.values(), ids=TAKEN)
def test_tools_that_a_provider_takes_are_taken(tools: list[dict[str, Any]]) -> None:
    for format in SHAPES:
        build_window([{"role": "user", "content": "hi"}], format=format, tools=tools)


@pytest.mark.parametrize("name", REFUSED)
def test_a_tool_that_no_provider_takes_is_refused_with_its_place(harness: Harness, name: str) -> None:
    log, tools = harness.log(), [SHAPES["openai_chat"], REFUSED[name]]
    session = log.sessions.create("s")
    for call in (
        lambda: build_window([], tools=tools),
        lambda: log.build_window([], tools=tools),
        lambda: session.context(tools=tools),
        lambda: session.update(tools=tools),
        lambda: log.sessions.create("t", tools=tools),
    ):
        with pytest.raises(InvalidInputError, match="tool 1 has") as caught:
            call()
        assert caught.value.problems[0].pointer == "/tools/1"
    assert session.info().head == 1 and not log.sessions.exists("t")


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "function", "function": {"name": "f", "strict": "yes"}},
        {"type": "function", "name": "f", "parameters": None},
        {"toolSpec": {"name": "f"}},
        {"toolSpec": {"name": "f", "inputSchema": {"json": []}}},
    ],
)
def test_no_parameters_are_an_empty_object(tool: dict[str, Any]) -> None:
    assert convert_tools([tool], "anthropic") == [{"name": "f", "input_schema": {"type": "object", "properties": {}}}]


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "function", "function": {}},
        {"type": "function", "name": 7},
        {"toolSpec": {}},
        {"toolSpec": {"name": 7}},
    ],
)
def test_a_tool_without_a_name_is_sent_to_nobody_else(tool: dict[str, Any]) -> None:
    assert convert_tools([tool], "anthropic") == []


@pytest.mark.parametrize(
    ("tool", "shape", "name"),
    [
        ({"type": "custom", "custom": {"name": "f"}}, "openai_chat", "f"),
        ({"systemTool": {"name": "f"}}, "bedrock_converse", "f"),
        ({"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]}, "openai_responses", "n"),
        ({"type": "custom", "name": "f"}, "openai_responses", "f"),
        ({"type": "custom", "name": "f", "input_schema": SCHEMA}, "anthropic", "f"),
        ({"type": "function", "name": "f"}, "openai_responses", "f"),
        ({"type": "bash_20250124", "name": "bash"}, "anthropic", "bash"),
        ({"type": "function"}, None, ""),
        ({"name": "f"}, None, "f"),
        ({"tools": []}, None, ""),
    ],
)
def test_the_shape_and_the_name_of_a_tool(tool: dict[str, Any], shape: str | None, name: str) -> None:
    assert (shape_of(tool), tool_name(tool)) == (shape, name)


@pytest.mark.parametrize(
    "thinking", [{"type": "thinking", "thinking": "hm"}, {"type": "redacted_thinking"}, {"reasoningContent": {}}]
)
def test_a_message_without_its_thinking_has_all_else(thinking: dict[str, Any]) -> None:
    said: list[Any] = [{"type": "text", "text": "a"}, {"toolUse": {}}, "odd"]
    body: dict[str, Any] = {"role": "assistant", "content": [thinking, *said, thinking], "id": "m"}
    assert without_thinking(body) == {**body, "content": said}
    for other in ({"role": "user", "content": "hm"}, {"role": "user", "content": said}):
        assert without_thinking(other) is other


@pytest.mark.parametrize(
    ("block", "kind"),
    [
        (Opaque("x", {"type": "odd", "a": 1}), "odd"),
        (Opaque("x", {"guardContent": {}}), "guardContent"),
        (Opaque("x", {"type": "two words"}), "unknown"),
        (Opaque("x", {}), "unknown"),
        (Opaque("x", "odd"), "unknown"),
        (Thinking("hm"), "thinking"),
        (Text("hm"), "unknown"),
    ],
)
def test_a_block_has_the_name_that_its_provider_gives_it(block: object, kind: str) -> None:
    assert kind_of(block) == kind
