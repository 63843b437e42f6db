"""Calls of tools that a provider runs or defines: each shape in its own format and in the others.

Shapes as in https://platform.openai.com/docs/api-reference/responses/create and https://docs.anthropic.com/en/api/messages.
"""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest

from turnlog import Turnlog, build_window, lint
from turnlog.core.json_values import JsonValue
from turnlog.core.messages import Block, Text
from turnlog.providers.hosted_calls import result_blocks, with_result_text
from turnlog.providers.registry import CODECS

Body = dict[str, Any]
VALUE = "ORD-7781-XK"
ASKED = "ann.b@example.org"
LONG = "\n".join(f"line {number} of what the tool said" for number in range(1500)) + f"\n{VALUE}"
FORMATS = ("openai_responses", "anthropic", "openai_chat", "bedrock_converse", "turnlog")
SAID: Body = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Done."}],
}


def items(said: str, number: int = 1) -> dict[str, list[Body]]:
    """Each kind of call of OpenAI Responses with its result; ``said`` is the result's text."""
    call = {"call_id": f"call_{number}"}
    chunk = {"stdout": said, "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
    action = {"type": "search", "query": ASKED, "sources": [{"type": "url", "url": said}]}
    tools = [{"name": said, "input_schema": {"type": "object"}}]
    pairs: dict[str, tuple[Body, Body]] = {
        "function": ({"name": "find", "arguments": json.dumps({"q": ASKED})}, {"output": said}),
        "custom_tool": ({"name": "find", "input": ASKED}, {"output": said}),
        "shell": ({"action": {"commands": [f"find {ASKED}"]}}, {"output": [chunk]}),
        "local_shell": ({"action": {"type": "exec", "command": ["find", ASKED], "env": {}}}, {"output": said}),
        "apply_patch": (
            {"operation": {"type": "create_file", "path": ASKED, "diff": "+x"}},
            {"status": "completed", "output": said},
        ),
        "computer": (
            {"action": {"type": "type", "text": ASKED}, "pending_safety_checks": []},
            {"output": {"type": "computer_screenshot", "image_url": f"https://example.com/{VALUE}.png"}},
        ),
        "dance": ({"steps": [ASKED]}, {"output": said}),
    }
    both = {
        kind: [{"type": f"{kind}_call", **call, **fields}, {"type": f"{kind}_call_output", **call, **output}]
        for kind, (fields, output) in pairs.items()
    }
    search = {"execution": "client", "arguments": {"q": ASKED}}
    approval = {"server_label": "shop", "name": "find", "arguments": json.dumps({"q": ASKED})}
    done = {"status": "completed"}
    return both | {
        "tool_search": [
            {"type": "tool_search_call", **call, **search},
            {"type": "tool_search_output", **call, "tools": [{"type": "function", "name": said}]},
        ],
        "program": [
            {"type": "program", "id": f"prog_{number}", **call, "code": f"find('{ASKED}')", "fingerprint": "f"},
            {"type": "program_output", "id": f"po_{number}", **call, "result": said, **done},
        ],
        "approval": [
            {"type": "mcp_approval_request", "id": f"mcpr_{number}", **approval},
            {"type": "mcp_approval_response", "approval_request_id": f"mcpr_{number}", "approve": True, "reason": said},
        ],
        "mcp_call": [{"type": "mcp_call", "id": f"mcp_{number}", **approval, "output": said}],
        "mcp_list_tools": [{"type": "mcp_list_tools", "id": f"mcpl_{number}", "server_label": ASKED, "tools": tools}],
        "web_search": [{"type": "web_search_call", "id": f"ws_{number}", **done, "action": action}],
        "file_search": [
            {"type": "file_search_call", "id": f"fs_{number}", **done, "queries": [ASKED], "results": [{"text": said}]}
        ],
        "code_interpreter": [
            {
                "type": "code_interpreter_call",
                "id": f"ci_{number}",
                **done,
                "container_id": "c",
                "code": f"find('{ASKED}')",
                "outputs": [{"type": "logs", "logs": said}],
            }
        ],
        "sing": [{"type": "sing_call", "id": f"sg_{number}", "song": ASKED, "result": said}],
    }


def blocks(said: str, number: int = 1) -> dict[str, list[Body]]:
    """Each kind of call that Anthropic runs, with its result."""
    source = {"type": "text", "media_type": "text/plain", "data": said}
    values = {
        "type": "web_search_result",
        "url": "https://example.com",
        "title": said,
        "encrypted_content": "Zm9v" * 99,
    }
    output = {"stdout": said, "stderr": "", "return_code": 0, "content": []}
    results: dict[str, Any] = {
        "web_search": [values],
        "web_fetch": {
            "type": "web_fetch_result",
            "url": "https://example.com",
            "content": {"type": "document", "source": source},
        },
        "code_execution": {"type": "code_execution_result", **output},
        "bash_code_execution": {"type": "bash_code_execution_result", **output},
        "text_editor_code_execution": {
            "type": "text_editor_code_execution_view_result",
            "file_type": "text",
            "content": said,
        },
        "tool_search": {
            "type": "tool_search_tool_search_result",
            "tool_references": [{"type": "tool_reference", "tool_name": said}],
        },
        "advisor": {"type": "advisor_result", "text": said},
        "mcp": [{"type": "text", "text": said}],
        "web_search_error": {"type": "web_search_tool_result_error", "error_code": said},
    }
    names = {"tool_search": "tool_search_tool_regex", "web_search_error": "web_search", "mcp": "find"}
    kinds = {"tool_search": "tool_search_tool_result", "web_search_error": "web_search_tool_result"}
    made = dict[str, list[Body]]()
    for kind, content in results.items():
        call_id = f"{'mcptoolu' if kind == 'mcp' else 'srvtoolu'}_{number}"
        use = {"type": "mcp_tool_use", "server_name": "shop"} if kind == "mcp" else {"type": "server_tool_use"}
        made[f"{kind} block"] = [
            {**use, "id": call_id, "name": names.get(kind, kind), "input": {"q": ASKED}},
            {"type": kinds.get(kind, f"{kind}_tool_result"), "tool_use_id": call_id, "content": content},
        ]
    return made


def history(kind: str, said: str = VALUE) -> tuple[str, list[Body]]:
    """A loop with one call and a reply, and the next question; with the format."""
    asked, again = {"role": "user", "content": "find my order"}, {"role": "user", "content": "cancel it"}
    if kind in items(said):
        return "openai_responses", [asked, *items(said)[kind], SAID, again]
    said_blocks = [{"type": "text", "text": "I look."}, *blocks(said)[kind], {"type": "text", "text": "Done."}]
    return "anthropic", [asked, {"role": "assistant", "content": said_blocks}, again]


KINDS = [*items(""), *blocks("")]
HOLDS_NO_TEXT = ("computer",)
HOLDS_NO_OTHER_TEXT = {
    "mcp_list_tools",
    "web_search",
    "sing",
    "web_search block",
    "tool_search block",
    "web_search_error block",
}
"""Kinds of calls that the provider runs whose results have no place for a text of ours."""


@pytest.mark.parametrize("kind", KINDS)
def test_its_own_format_gets_it_back_as_it_came(kind: str) -> None:
    format, messages = history(kind)
    window = build_window(messages, format=format, input_format=format)
    assert window.messages == messages
    assert lint(window.messages, format=format).problems == []


@pytest.mark.parametrize("sent", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_format_is_told_call_and_result(kind: str, sent: str) -> None:
    format, messages = history(kind)
    window = build_window(messages, format=sent, input_format=format)
    text = json.dumps(window.messages)
    assert ASKED in text
    assert VALUE in text or (kind in HOLDS_NO_TEXT and "[image]" in text)
    assert text.index(ASKED) < text.rindex("Done.")
    if sent != "turnlog":
        assert lint(window.messages, format=sent).problems == []


@pytest.mark.parametrize("sent", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_digest_notes_the_call_and_its_values(kind: str, sent: str) -> None:
    format, messages = history(kind)
    window = build_window(messages, format=sent, input_format=format, policy="run_loops")
    text = json.dumps(window.messages)
    assert "2.0 " in text
    assert ASKED in text
    assert "Done." in text
    assert VALUE in text or kind in HOLDS_NO_TEXT


@pytest.mark.parametrize(
    ("kind", "sent"),
    [
        pytest.param(kind, sent, marks=[pytest.mark.full] * (number % 3 != 0))
        for number, (kind, sent) in enumerate(product([kind for kind in KINDS if kind not in HOLDS_NO_TEXT], FORMATS))
    ],
)
def test_a_large_result_is_cut_and_keeps_its_end(kind: str, sent: str) -> None:
    format, messages = history(kind, LONG)
    window = build_window(
        messages[:-2] if kind in items("") else messages[:2], format=sent, input_format=format, budget=4000
    )
    assert 1000 < window.tokens <= 4000
    text = json.dumps(window.messages)
    assert VALUE in text
    assert "ref 2.0 has the whole result" in text
    if sent != "turnlog":
        assert lint(window.messages, format=sent).problems == []


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind in blocks("") or len(items("")[kind]) == 1])
def test_a_result_of_the_provider_may_hold_another_text_and_nothing_else_changes(kind: str) -> None:
    format, messages = history(kind)
    body, codec = messages[1], CODECS[format]
    cut = with_result_text(body, {0: "cut"})
    assert (cut is None) == (kind in HOLDS_NO_OTHER_TEXT)
    if cut is not None:
        before, after = codec.parse(body), codec.parse(cut)
        assert ["cut" in result.text and VALUE not in result.text for result in after.tool_results] == [True]
        assert (after.tool_calls, after.content) == (before.tool_calls, before.content)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([{"type": "input_text", "text": "a"}, {"text": "b", "type": "text"}], (Text("a"), Text("b"))),
        ([{"type": "input_text", "text": "a"}, {"x": 1}], (Text('[{"type":"input_text","text":"a"},{"x":1}]'),)),
        ({"x": 1, "encrypted_x": "secret"}, (Text('{"x":1}'),)),
        ("a", (Text("a"),)),
        ([], ()),
        (None, ()),
        (0, (Text("0"),)),
    ],
)
def test_a_result_is_its_texts_or_all_of_it_as_json(value: JsonValue, said: tuple[Block, ...]) -> None:
    assert tuple(result_blocks(value)) == said


@pytest.mark.parametrize("kind", KINDS)
def test_the_log_gives_it_a_ref_a_search_hit_and_a_recall(kind: str) -> None:
    format, messages = history(kind)
    with Turnlog.open("memory://") as log:
        session = log.sessions.create("s")
        appended = session.append(*messages, format=format)
        (ref,) = appended.refs
        assert [warning for warning in appended.warnings if warning.code != "bad_arguments"] == []
        assert [loop.status for loop in session.loops()] == ["open", "closed"]
        assert ASKED in str(session.recall(ref.ref))
        if kind not in HOLDS_NO_TEXT:
            assert session.search(VALUE).results


@pytest.mark.parametrize("kind", [kind for kind, pair in items("").items() if len(pair) == 2])
def test_a_call_without_its_output_waits_and_is_settled_behind_the_next_message(kind: str) -> None:
    asked, *pair = history(kind)[1][:3]
    waiting = build_window([asked, pair[0]], format="openai_responses", input_format="openai_responses")
    assert [call.ref for call in waiting.open_calls] == ["2.0"]
    assert waiting.messages == [asked]
    settled = build_window([asked, pair[0], asked], format="openai_responses", input_format="openai_responses")
    assert "do not assume it ran" in json.dumps(settled.messages)
    assert lint(settled.messages, format="openai_responses").problems == []
    orphan = build_window([asked, pair[1], asked], format="openai_responses", input_format="openai_responses")
    assert orphan.messages == [asked, asked]


def test_shell_steps_keep_as_much_as_steps_of_functions() -> None:
    tokens = dict[str, int]()
    for kind in ("function", "shell", "mcp_call"):
        steps = list[Body]()
        for number in range(50):
            reasoning = {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": "gA"}
            said = f"line of output {number}\n" * 200
            steps += [reasoning, *items(said, number)[kind]]
        window = build_window(
            [{"role": "user", "content": "fix it"}, *steps],
            format="openai_responses",
            input_format="openai_responses",
            budget=32_000,
        )
        assert lint(window.messages, format="openai_responses").problems == []
        tokens[kind] = window.tokens
    assert min(tokens.values()) > 0.9 * max(tokens.values()), tokens


@pytest.mark.parametrize("sent", FORMATS)
@pytest.mark.parametrize("kind", blocks(""))
def test_a_call_that_the_provider_has_not_answered_yet_is_no_open_call(kind: str, sent: str) -> None:
    use = blocks("")[kind][0]
    messages = [{"role": "user", "content": "find"}, {"role": "assistant", "content": [use]}]
    window = build_window(messages, format=sent, input_format="anthropic")
    assert list(window.open_calls) == []
    if sent == "anthropic":
        assert window.messages == messages
    else:
        assert "do not assume it ran" in json.dumps(window.messages)


@pytest.mark.parametrize("kind", blocks(""))
def test_a_result_of_the_provider_without_its_call_is_not_sent_so_no_tools_are_needed(kind: str) -> None:
    said = [{"type": "text", "text": "Done."}, blocks(VALUE)[kind][1]]
    messages = [{"role": "user", "content": "find"}, {"role": "assistant", "content": said}]
    window = build_window(messages, format="anthropic", input_format="anthropic")
    assert VALUE not in json.dumps(window.messages) and not window.requires_tool_config


NAMES = {
    **dict.fromkeys(("function", "custom_tool", "mcp_call", "mcp block"), "find"),
    "approval": "mcp_approval_request",
    "tool_search block": "tool_search_tool_regex",
    "web_search_error block": "web_search",
}
"""Kind of call -> the name of its tool, where that is not the kind."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_has_the_name_of_its_tool_and_what_was_asked(kind: str) -> None:
    format, messages = history(kind)
    (call,) = CODECS[format].parse(messages[1]).tool_calls
    assert call.name == NAMES.get(kind, kind.removesuffix(" block"))
    assert ASKED in call.arguments and VALUE not in call.arguments
    assert call.hosted == (kind in blocks("") or len(items("")[kind]) == 1)


def test_both_directions_agree_on_the_ids() -> None:
    for kind in KINDS:
        format, messages = history(kind)
        parsed = [CODECS[format].parse(message) for message in messages]
        calls = [call.id for message in parsed for call in message.tool_calls]
        results = [result.tool_call_id for message in parsed for result in message.tool_results]
        assert calls == results
        assert len(calls) == 1


@pytest.mark.parametrize("kind", ["shell", "local_shell", "apply_patch", "computer"])
def test_a_call_with_the_item_id_of_another_item_keeps_its_output(kind: str) -> None:
    call, output = items(VALUE)[kind]
    (search,) = items(VALUE, 2)["web_search"]
    bodies = [{"role": "user", "content": "Go."}, {**search, "id": "ws_1"}, {**call, "id": "ws_1"}, output]
    window = build_window(bodies, input_format="openai_responses", format="openai_responses")
    assert lint(window.messages, format="openai_responses").problems == []
    assert len(window.messages) == len(bodies)
    assert window.messages[2].get("id") is None
    assert ASKED in json.dumps(window.messages[2])
