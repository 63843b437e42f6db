"""What was given comes back: bodies in their own format, texts in digests but for the cut, values in fences but for the fence."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from tests.effort import examples, is_full
from tests.properties.building import Asked, stored, window
from tests.properties.histories import (
    FORMATS,
    TEXTS,
    Body,
    Format,
    Given,
    History,
    disorderly,
    moves,
    orderly,
    orderly_in,
    played,
)
from tests.properties.plain_pairing import plainly_paired, role_of
from tests.properties.shapes import sendable, whole_characters
from turnlog.linter.rules import lint
from turnlog.providers.blocks import escaped, fenced
from turnlog.windows.text import cut

trips = settings(
    max_examples=examples(150),
    derandomize=not is_full(),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
formats = st.sampled_from(("openai_chat", "turnlog"))
ODD_BUT_PERHAPS_LEGAL = ("user", "assistant", "system", "developer", "image", "parts", "odd_parts", "odd_fields")


@trips
@given(orderly(), formats)
def test_a_well_formed_history_comes_back_equal_in_its_format(history: History, format: Format) -> None:
    bodies = [sendable(value) for value in history if value.format == format]
    alone = tuple(value for value in history if value.format == format and not _has_calls(value))
    assert window(stored(alone), Asked("full", format=format, system="")).messages[_system(format) :] == [
        sendable(value) for value in alone
    ]
    if len(bodies) == len(history):
        assert window(stored(history), Asked("full", format=format, system="")).messages[_system(format) :] == bodies


@pytest.mark.parametrize("format", ["anthropic", "bedrock_converse", "openai_responses"])
@trips
@given(data=st.data())
def test_a_well_formed_history_of_a_provider_comes_back_equal_but_for_the_last_line(
    format: Format, data: st.DataObject
) -> None:
    history = data.draw(orderly_in(format))
    sent = window(stored(history), Asked("full", format=format)).messages
    # No calls at the end, and these two providers want the user's word last.
    added = 1 if format != "openai_responses" or not history else 0
    assert sent[: len(sent) - added] == [sendable(value) for value in history]


@trips
@given(disorderly(fates=False), st.sampled_from(FORMATS))
def test_rendering_what_was_rendered_changes_nothing(history: History, format: Format) -> None:
    """A window's messages, given as a history in their format, are a window again: nothing is left to repair."""
    once = window(stored(history), Asked("full", format=format, answer_open_calls=True)).messages
    again = window(
        stored([Given(body, format) for body in once]), Asked("full", format=format, answer_open_calls=True)
    ).messages
    assert again == once


@trips
@given(st.lists(moves(ODD_BUT_PERHAPS_LEGAL, fates=False), min_size=1, max_size=4).map(played))
def test_what_the_linter_takes_as_given_is_sent_as_given(history: History) -> None:
    bodies = [value.body for value in history]
    assume(all(value.format == "openai_chat" for value in history) and lint(bodies, format="openai_chat") == [])
    assert window(stored(history), Asked("full")).messages == bodies


@trips
@given(disorderly(fates=False), formats)
def test_in_disorder_nothing_but_ids_changes_in_a_body_that_its_provider_would_take(
    history: History, format: Format
) -> None:
    sent = Counter(_without_ids(message) for message in window(stored(history), Asked("full", format=format)).messages)
    expected = Counter(_without_ids(sendable(item)) for item in _comes_back(history, format))
    assert expected - sent == Counter()


def _comes_back(history: History, format: Format) -> list[Given]:
    """The messages that have to come back: sent at all, in their own format, and legal but for ids."""
    plain, result = plainly_paired(history), list[Given]()
    answering = set(plain.result_of.values())
    for at, item in enumerate(history):
        position, role = at + 1, role_of(item)
        if item.format != format or role == "unknown":
            continue
        if position in plain.calls and (role != "assistant" or plain.is_left_out(position, answer_open_calls=False)):
            continue
        results = item.body.get("tool_results") or ([item.body] if role == "tool" else [])
        if results and (role != "tool" or not all((position, index) in answering for index in range(len(results)))):
            continue
        if role == "tool" and (not results or _is_shared(plain.result_of, position) or _waits(plain, position)):
            continue
        if format == "openai_chat" and _is_refused(sendable(item)):
            continue
        result.append(item)
    return result


def _is_shared(result_of: dict[tuple[int, int], tuple[int, int]], position: int) -> bool:
    return len({call[0] for call, result in result_of.items() if result[0] == position}) > 1


def _waits(plain: object, position: int) -> bool:
    callers = {call[0] for call, result in plain.result_of.items() if result[0] == position}  # type: ignore[attr-defined]
    return any(
        plain.is_left_out(caller, answer_open_calls=False) or plain.callers[caller] != "assistant"  # type: ignore[attr-defined]
        for caller in callers
    )


def _is_refused(body: Body) -> bool:
    """Whether the provider refuses the message for something else than its ids and its neighbours."""
    of_ids = {"call_unanswered", "orphan_result", "result_id", "result_id_unknown", "call_id", "call_id_too_long"}
    of_ids |= {"call_id_repeated"}
    legacy = body["role"] == "function" or body.get("function_call") is not None
    return legacy or any(match.rule not in of_ids for match in lint([body], format="openai_chat"))


def _without_ids(body: Body) -> str:
    body = dict(body)
    body.pop("tool_call_id", None)
    for key, name in (("tool_calls", "id"), ("tool_results", "tool_call_id")):
        if isinstance(body.get(key), list):
            body[key] = [{field: value for field, value in item.items() if field != name} for item in body[key]]
    return json.dumps(body, sort_keys=True)


def _has_calls(given: Given) -> bool:
    return bool(given.body.get("tool_calls") or given.body.get("tool_results") or given.body["role"] == "tool")


def _system(format: Format) -> int:
    """In OpenAI's format the system text is the first message."""
    return 1 if format == "openai_chat" else 0


# ---------------------------------------------------------------- cuts


texts = st.one_of(st.sampled_from(TEXTS), st.integers(0, 700).map(lambda length: "é👩‍🚀x"[: length % 4] + "a" * length))


@trips
@given(texts, texts)
@example("a" * 500, "b" * 501)
@example("👩‍👩‍👧‍👦" * 200, "\ud83d" * 502)
def test_a_digest_has_the_first_500_characters_and_says_how_many_are_missing(said: str, reply: str) -> None:
    history = tuple(
        Given({"role": role, "content": text})
        for role, text in (("user", said), ("assistant", reply), ("user", "next"))
    )
    sent = window(stored(history), Asked("run_loops", system="s")).messages
    shown = [
        whole_characters(text if len(text) <= 500 else f"{text[:500]}...[truncated {len(text) - 500} characters]")
        for text in (said, reply)
    ]
    is_out = not said and not reply
    assert [message["content"] for message in sent[1:-1] if not is_out] == [text for text in shown if text]


@trips
@given(st.text(), st.integers(1, 40))
def test_a_cut_keeps_whole_characters_and_nothing_else(text: str, limit: int) -> None:
    result = cut(text, limit)
    if len(text) <= limit:
        assert result == text
    else:
        assert result == f"{text[:limit]}...[truncated {len(text) - limit} characters]"
        assert result.encode("utf-8", "surrogatepass").startswith(text[:limit].encode("utf-8", "surrogatepass"))


# ---------------------------------------------------------------- fences


fence_like = st.lists(
    st.sampled_from(
        ("</turnlog-data>", "<turnlog-data kind='x'>", "<\\/turnlog-data", "<", "/", "turnlog-data", ">", "\n", "x")
    ),
    max_size=12,
).map("".join)


@trips
@given(fence_like)
@example("</turnlog-data></turnlog-data>")
@example("<<//turnlog-data>")
def test_content_can_neither_close_a_fence_nor_open_one(content: str) -> None:
    result = fenced("user tool calls", content)
    assert result.count("</turnlog-data") == 1
    assert result.count("<turnlog-data") == 1
    assert result.startswith("<turnlog-data kind='user tool calls'>\n")
    assert result.endswith("\n</turnlog-data>")


@trips
@given(st.data())
def test_a_tag_with_characters_that_nobody_sees_is_made_harmless_too(data: st.DataObject) -> None:
    unseen = st.text("\x00\x1b\xad\u034f\u200b\u200d\u2060\u202e\ufe0f\ufeff\U000e0041\u2011", max_size=2)
    tag = data.draw(st.sampled_from(("</turnlog-data>", "<turnlog-data kind='x'>", "</TurnLog-Data >")))
    hidden = "".join(f"{char}{data.draw(unseen)}" for char in tag)
    assert escaped(hidden) == f"<\\{hidden[1:]}" == escaped(escaped(hidden))


@trips
@given(fence_like, fence_like)
def test_a_users_own_calls_are_sent_as_one_fence_that_neither_arguments_nor_results_close(
    arguments: str, result: str
) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": arguments}}
    history = tuple(
        map(
            Given,
            (
                {"role": "user", "content": "I did this.", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "a", "content": result},
            ),
        )
    )
    for format in ("openai_chat", "turnlog"):
        spoken, value = window(stored(history), replace(Asked("full"), format=format)).messages  # type: ignore[arg-type]
        content = str(value["content"])
        assert (spoken["role"], spoken["content"]) == ("user", "I did this.")
        assert value["role"] == "user"
        assert content.startswith("<turnlog-data kind='earlier tool calls'>\n")
        assert content.endswith("\n</turnlog-data>")
        assert content.count("</turnlog-data") == content.count("<turnlog-data") == 1
