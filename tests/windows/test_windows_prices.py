"""What sending may add to a message's stored count is paid for: each kind of repair alone, where no slack can hide it."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.properties.building import AMPLE, Asked, recounted, stored, window, window_by_cards
from tests.properties.histories import FORMATS, Body, Format, Given
from turnlog.windows.prices import FENCING


def openai(body: Body) -> Given:
    return Given(body)


def turnlog(body: Body) -> Given:
    return Given(body, "turnlog")


def calls(names: list[str], arguments: str = "{}") -> Given:
    called = [
        {"id": f"a{at}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for at, name in enumerate(names)
    ]
    return openai({"role": "assistant", "content": None, "tool_calls": called})


def results(*given: Any, is_error: bool = False) -> Given:
    listed = [{"tool_call_id": f"a{at}", "result": item, "is_error": is_error} for at, item in enumerate(given)]
    return turnlog({"role": "tool", "tool_results": listed})


DONE = openai({"role": "tool", "tool_call_id": "a0", "content": "done"})
MANY_PARTS = [{"type": "text", "text": "x"}] * 30
TEXT = base64.b64encode(("</turnlog-data 查" * 40).encode()).decode()
DATA_URL = f"data:text/plain;base64,{TEXT}"
PNG = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
HISTORIES: dict[str, list[Given]] = {
    "an illegal name": [calls(["查"]), DONE],
    "a missing name": [calls([""]), DONE],
    "arguments that are no object": [calls(["f"] * 3, '"\\\\\\"' * 20)],
    "arguments with blanks": [calls(["f"] * 3, '{"a" :1,"b" :  [1,2 ,3]}')],
    "several results in one message": [calls(["f"] * 9), results(*range(9))],
    "errors": [calls(["f"] * 9), results(*range(9), is_error=True)],
    "many parts that become one text": [openai({"role": "assistant", "content": MANY_PARTS})],
    "many parts of which one is odd": [openai({"role": "user", "content": [*MANY_PARTS, "x"]})],
    "a result of many parts": [
        calls(["f"]),
        openai({"role": "tool", "tool_call_id": "a0", "content": [*MANY_PARTS, "x"]}),
    ],
    "small media where only text may stand": [
        turnlog({"role": "assistant", "content": [{"type": "file", "media_type": "text/plain", "data": "eA=="}] * 9}),
        turnlog({"role": "assistant", "content": [{"type": "audio", "media_type": "audio/mp3", "data": "AA=="}] * 9}),
    ],
    "one small file where only text may stand": [
        turnlog({"role": "assistant", "content": [{"type": "file", "media_type": "text/plain", "data": "eA=="}]})
    ],
    "many parts of a user's": [openai({"role": "user", "content": MANY_PARTS})],
    "a small text file": [
        turnlog({"role": "user", "content": [{"type": "file", "media_type": "text/plain", "data": "eA=="}]})
    ],
    "texts in files": [
        turnlog({"role": "user", "content": [{"type": "file", "media_type": "text/plain", "data": TEXT}] * 3}),
        calls(["f"]),
        openai(
            {"role": "tool", "tool_call_id": "a0", "content": [{"type": "file", "file": {"file_data": DATA_URL}}, PNG]}
        ),
    ],
    "people with names": [openai({"role": "user", "content": "hi", "name": name}) for name in ("ada", "查", "_-_" * 9)],
    "files with long names": [
        turnlog(
            {
                "role": "user",
                "content": [
                    {"type": "file", "media_type": "application/pdf", "data": "eA==", "name": f"{at} " + "查 " * 60}
                    for at in range(5)
                ],
            }
        )
    ],
    "results and text in one message": [
        calls(["f"] * 3),
        turnlog({"role": "user", "content": "and?", "tool_results": results(1, 2, 3).body["tool_results"]}),
    ],
    "a user's own calls": [
        openai({**calls(["f"] * 3, "</turnlog-data" * 9).body, "role": "user"}),
        results("</turnlog-data" * 30, "x", "y"),
        openai({"role": "assistant", "content": "x"}),
    ],
    "an unanswered call": [calls(["f"] * 9), openai({"role": "user", "content": "x"})],
    "nothing at all": [],
}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", HISTORIES)
def test_a_window_counted_afresh_takes_no_more_than_it_says(name: str, format: Format) -> None:
    around = [Given({"role": role, "content": ""}) for role in ("user", "assistant", "user")] if HISTORIES[name] else []
    held = stored([*around[:1], *HISTORIES[name], *around[1:]])
    for policy in ("full", "run_loops"):
        wanted = Asked(policy, AMPLE, format)
        for value in (window(held, wanted), window_by_cards(held, wanted)):
            assert recounted(value, wanted) <= value.tokens


def test_what_is_sent_as_given_costs_what_was_counted() -> None:
    plain = [
        Given({"role": "user", "content": "hi"}),
        calls(["f"]),
        openai({"role": "tool", "tool_call_id": "a0", "content": "ok", "name": "f"}),
        Given({"role": "assistant", "content": "done"}),
    ]
    held = stored(plain)
    assert window(held, Asked("full")).tokens == held.total + 3 == recounted(window(held, Asked("full")), Asked("full"))


IMAGE = {"type": "image", "media_type": "image/png", "data": "iVBORw0KGgo="}


def surcharge(format: Format, **more: str) -> int:
    """Return what a window with one image says over what is sent, in tokens."""
    held = stored(
        [turnlog({"role": "user", "content": [{**IMAGE, **more}]}), Given({"role": "assistant", "content": ""})]
    )
    wanted = Asked("full", AMPLE, format)
    built = window(held, wanted)
    return built.tokens - recounted(built, wanted)


def test_an_image_has_no_name_to_pay_for() -> None:
    assert surcharge("bedrock_converse") == surcharge("anthropic")


@pytest.mark.parametrize("format", [format for format in FORMATS if format not in FENCING])
def test_a_detail_that_is_sent_costs_nothing_more(format: Format) -> None:
    assert surcharge(format, detail="low") == surcharge(format)
