"""Where breakpoints stand in each provider's form, and where none can."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.window_messages import calling, result, said
from turnlog import Turnlog, build_window
from turnlog.core.window_parts import Breakpoint
from turnlog.linter.rules import lint
from turnlog.providers import BEFORE_ALL, End, Rendered
from turnlog.providers.cache_breakpoints import (
    KINDS,
    BlockPlace,
    apply_breakpoints,
    breakpoints,
    pointers,
    with_legal_marks,
)
from turnlog.sessions.context_models import WindowAnswer

LONG = "words and words " * 800
EPHEMERAL = {"cache_control": {"type": "ephemeral"}}
POINT = {"cachePoint": {"type": "default"}}
TOOL = {"name": "f", "description": LONG, "input_schema": {"type": "object"}}


def asked(*messages: dict[str, Any], format: str, **options: Any) -> tuple[WindowAnswer, WindowAnswer]:
    """The window with breakpoints named, and with them applied."""
    named = build_window(messages, format=format, **options)
    made = build_window(messages, format=format, breakpoints="apply", **options)
    assert named.manifest == made.manifest
    assert lint(made.messages, format=format) == []
    return named, made


def listed(window: WindowAnswer) -> list[tuple[str, dict[str, Any]]]:
    return [(item.pointer, item.form) for item in window.manifest.breakpoints]


# ---------------------------------------------------------------- in each form


def test_anthropic_has_them_on_blocks_and_a_system_text_of_blocks() -> None:
    named, made = asked(said("user", LONG), said("assistant"), said("user"), format="anthropic", system=LONG)
    assert listed(named) == [
        ("/system/0", EPHEMERAL),
        ("/messages/0/content/0", EPHEMERAL),
        ("/messages/2/content/0", EPHEMERAL),
    ]
    assert (named.system, named.messages[2]["content"]) == (LONG, "user says")
    assert made.system == [{"type": "text", "text": LONG, **EPHEMERAL}]
    assert made.messages[2] == {"role": "user", "content": [{"type": "text", "text": "user says", **EPHEMERAL}]}
    assert made.messages[1] == named.messages[1]


def test_converse_has_them_as_blocks_of_their_own() -> None:
    named, made = asked(said("user", LONG), said("assistant"), said("user"), format="bedrock_converse", system=LONG)
    assert listed(named) == [
        ("/system/1", POINT),
        ("/messages/0/content/1", POINT),
        ("/messages/2/content/1", POINT),
    ]
    assert made.system == [{"text": LONG}, POINT]
    assert made.messages[2]["content"] == [{"text": "user says"}, POINT]


def test_without_a_system_text_the_last_tool_has_it() -> None:
    named, made = asked(said("user"), format="anthropic", tools=[TOOL])
    assert listed(named) == [("/tools/0", EPHEMERAL), ("/messages/0/content/0", EPHEMERAL)]
    assert made.tools == [{**TOOL, **EPHEMERAL}]
    assert made.system is None


def test_no_tool_that_is_loaded_later_and_none_of_converse() -> None:
    """Anthropic refuses the one, Amazon Nova the other."""
    later = {**TOOL, "name": "g", "defer_loading": True}
    named, made = asked(said("user"), format="anthropic", tools=[TOOL, later])
    assert listed(named)[0] == ("/tools/0", EPHEMERAL)
    assert made.tools == [{**TOOL, **EPHEMERAL}, later]
    assert [pointer for pointer, _ in listed(asked(said("user"), format="bedrock_converse", tools=[TOOL])[0])] == [
        "/messages/0/content/1"
    ]


@pytest.mark.parametrize("format", ["openai_chat", "openai_responses", "turnlog"])
def test_where_the_provider_caches_by_itself_there_are_none(format: str) -> None:
    named = build_window([said("user", LONG)], format=format, system=LONG)
    made = build_window([said("user", LONG)], format=format, system=LONG, breakpoints="apply")
    assert (listed(named), made) == ([], named)


def test_a_small_window_has_none() -> None:
    named, made = asked(said("user"), format="anthropic", system="Be brief.")
    assert listed(named) == []
    assert made.system == [{"type": "text", "text": "Be brief."}], "what is applied has one shape"


# ---------------------------------------------------------------- where they are worth it


def test_behind_what_is_shortened_before_what_is_whole() -> None:
    messages = [message for _ in range(4) for message in (said("user", LONG), said("assistant", LONG))]
    named, _ = asked(*messages, said("user"), format="anthropic", policy="run_loops")
    assert listed(named)[-2:] == [("/messages/7/content/0", EPHEMERAL), ("/messages/8/content/0", EPHEMERAL)]


def test_inside_a_long_loop_behind_its_stubs_and_notes() -> None:
    steps = [message for at in range(12) for message in (calling(f"c{at}"), result(f"c{at}", LONG))]
    named, _ = asked(said("user"), *steps, format="anthropic", budget=12_000)
    inside = [part.first for part in named.manifest.parts if part.reason in ("stub", "fold")]
    assert inside
    pointers = [pointer for pointer, _ in listed(named)]
    assert len(pointers) == 2, "behind the base, and at the end"


def test_not_behind_a_neutral_result_that_may_be_replaced_yet() -> None:
    messages = [said("user", LONG), calling("a")]
    named, made = asked(*messages, format="anthropic", answer_open_calls=True)
    assert listed(named) == [("/messages/0/content/0", EPHEMERAL)]
    assert made.messages[1]["content"][0]["type"] == "tool_use"


def test_not_on_the_neutral_line_at_the_end() -> None:
    messages = [said("user", LONG), said("assistant", LONG)]
    named, made = asked(*messages, format="anthropic")
    assert listed(named)[-1] == ("/messages/1/content/0", EPHEMERAL)
    assert made.messages[2] == {"role": "user", "content": "[continue]"}


# ---------------------------------------------------------------- where none can stand


def rendered(*contents: Any, role: str = "user") -> Rendered:
    return Rendered([{"role": role, "content": content} for content in contents])


ON = {"type": "text", "text": "said"}


@pytest.mark.parametrize(
    "block",
    [
        {"type": "thinking", "thinking": "so", "signature": "s"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": ""},
        {"type": "text", "text": " \n"},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
    ],
)
def test_anthropic_takes_none_there(block: dict[str, Any]) -> None:
    assert breakpoints(rendered([ON, block]), [End(0, 2)], "anthropic") == [BlockPlace(2, 0, 0)]
    assert breakpoints(rendered([block]), [End(0, 1)], "anthropic") == []
    assert breakpoints(rendered("said", [block]), [End(1, 1)], "anthropic") == [BlockPlace(2, 0, 0)]


@pytest.mark.parametrize(
    "block",
    [
        {"reasoningContent": {"reasoningText": {"text": "so"}}},
        {"document": {"format": "md", "name": "a", "source": {"bytes": "eA=="}}},
    ],
)
def test_converse_takes_none_behind_it(block: dict[str, Any]) -> None:
    assert breakpoints(rendered([{"text": "said"}, block]), [End(0, 2)], "bedrock_converse") == [BlockPlace(2, 0, 0)]
    assert breakpoints(rendered([block]), [End(0, 1)], "bedrock_converse") == []


def test_a_pdf_may_have_one_behind_it() -> None:
    pdf = {"document": {"format": "pdf", "name": "a", "source": {"bytes": "eA=="}}}
    assert breakpoints(rendered([{"text": "said"}, pdf]), [End(0, 2)], "bedrock_converse") == [BlockPlace(2, 0, 1)]


def test_several_in_one_message_are_inserted_one_after_the_other() -> None:
    request = rendered([{"text": "a"}, {"text": "b"}, {"text": "c"}])
    places = breakpoints(request, [End(0, 3), End(0, 1)], "bedrock_converse")
    assert pointers(places, "bedrock_converse") == [
        Breakpoint("/messages/0/content/1", POINT),
        Breakpoint("/messages/0/content/4", POINT),
    ]
    made, _ = apply_breakpoints(request, places, "bedrock_converse")
    assert made.messages[0]["content"] == [{"text": "a"}, POINT, {"text": "b"}, {"text": "c"}, POINT]


def test_one_of_an_hour_has_none_of_ours_before_it() -> None:
    hour = {**ON, "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    request = rendered([ON], [hour], [ON])
    assert breakpoints(request, [End(0, 1), End(2, 1), BEFORE_ALL], "anthropic") == [BlockPlace(2, 2, 0)]


def test_the_messages_own_count_and_the_first_wanted_are_the_last_to_go() -> None:
    own = {**ON, **EPHEMERAL}
    request = rendered([ON, own], [{"type": "tool_result", "tool_use_id": "a", "content": [own]}], [ON], [ON])
    assert breakpoints(request, [End(3, 1), End(2, 1), End(0, 1)], "anthropic") == [
        BlockPlace(2, 2, 0),
        BlockPlace(2, 3, 0),
    ]
    assert breakpoints(request, [End(0, 2), End(3, 1)], "anthropic") == [BlockPlace(2, 3, 0)], "there is one already"


def test_of_more_than_four_of_their_own_the_oldest_go() -> None:
    own = {**ON, **EPHEMERAL}
    request = rendered(*[[own]] * 6)
    assert breakpoints(request, [End(5, 1)], "anthropic") == []
    two = rendered([own, {"type": "tool_result", "tool_use_id": "a", "content": [own, ON, own]}], [own, ON, own])
    assert breakpoints(two, [End(1, 3), End(1, 2)], "anthropic") == []
    made = with_legal_marks(two, "anthropic")
    assert made.messages[0]["content"] == [ON, {"type": "tool_result", "tool_use_id": "a", "content": [own, ON, own]}]
    assert made.messages[1:] == two.messages[1:]
    made = with_legal_marks(request, "anthropic")
    assert [message["content"] for message in made.messages] == [[ON], [ON], *[[own]] * 4]
    points = rendered(*[[{"text": "a"}, POINT]] * 5)
    assert with_legal_marks(points, "bedrock_converse").messages[0]["content"] == [{"text": "a"}]


@pytest.mark.parametrize("format", ["anthropic", "bedrock_converse"])
@pytest.mark.parametrize("applied", ["suggest", "apply"])
def test_a_history_that_marks_each_message_never_sends_more_than_four(format: Any, applied: Any) -> None:
    """An app that marks its newest message in each call, and stores it so, was refused from the fifth on."""
    is_converse = format == "bedrock_converse"
    content = [{"text": "hi"}, POINT] if is_converse else [{"type": "text", "text": "hi", **EPHEMERAL}]
    messages = [{"role": role, "content": content} for role in ["user", "assistant"] * 4 + ["user"]]
    with Turnlog.open("memory://") as log:
        session = log.sessions.create()
        session.append(*messages, format=format)
        window = session.context(format=format, breakpoints=applied)
    assert str(window.messages).count("cachePoint" if is_converse else "cache_control") == 4
    assert window.messages[-4:] == messages[-4:]


def test_one_of_an_hour_behind_one_of_five_minutes_lasts_five_minutes() -> None:
    """The provider refuses the other order, among all marks of the tools and of the messages."""
    hour, short = {**ON, "cache_control": {"type": "ephemeral", "ttl": "1h"}}, {**ON, **EPHEMERAL}
    result = {"type": "tool_result", "tool_use_id": "a", "content": [ON, hour]}
    request = rendered([hour, ON], [short], [result, hour])
    sent = with_legal_marks(request, "anthropic").messages
    assert sent[:2] == request.messages[:2]
    assert sent[2]["content"] == [{**result, "content": [ON, short]}, short]
    mixed = with_legal_marks(rendered([{**result, **EPHEMERAL}], [hour]), "anthropic").messages
    assert "1h" not in str(mixed), "which of a result and its content is first, no page says"
    tools: list[Any] = [{"name": "f", **EPHEMERAL}, {"name": "g", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
    marked = with_legal_marks(Rendered([said("user")], tools=tools), "anthropic")
    assert marked.tools == [tools[0], {"name": "g", **EPHEMERAL}]
    points = rendered([{"text": "a"}, POINT], [{"text": "b"}, {"cachePoint": {"type": "default", "ttl": "1h"}}])
    assert with_legal_marks(points, "bedrock_converse").messages[1]["content"] == [{"text": "b"}, POINT]
    assert with_legal_marks(request, "openai_chat") is request


def test_the_kinds_are_the_providers_that_want_them_told() -> None:
    assert set(KINDS) == {"anthropic", "bedrock_converse"}
