"""No append makes a session unsendable: whatever an append takes, the window of its own format has no lint problem."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Any

import pytest

from tests.effort import is_full
from tests.properties.building import AMPLE, TOOLS, Asked, recounted, stored, texts, window
from tests.properties.histories import FORMATS as ALL_FORMATS
from tests.properties.histories import Given
from tests.properties.shapes import whole_characters
from tests.support.provider_blocks import FORMATS, Body, history
from turnlog.client.finding import result_message
from turnlog.core.calls import outline_of, pair
from turnlog.core.errors import BudgetTooSmallError, InvalidInputError
from turnlog.core.messages import Opaque, Text, Thinking, ToolResult
from turnlog.linter.rules import lint
from turnlog.providers.registry import CODECS
from turnlog.providers.turnlog_format import media_blocks, media_of

WINDOWS = 5_000 if is_full() else 75
"""Windows of each format."""


def taken(bodies: Iterable[Body], format: Any) -> list[Given]:
    """Return the messages that an append takes."""
    messages = list[Given]()
    for body in bodies:
        try:
            CODECS[format].parse(body)
        except InvalidInputError:
            continue
        messages.append(Given(body, format))
    return messages


def drawn(seed: int, format: Any) -> list[Given]:
    """Return the messages that an append takes of a history whose images and files a model has recalled, as a run stores it."""
    random, messages = Random(f"recall {format} {seed}"), list[Given]()
    for item in taken(history(seed, format), format):
        messages.append(item)
        message = CODECS[format].parse(item.body)
        content = [*message.content, *(block for result in message.tool_results for block in result.content)]
        media = media_of(media_blocks(content))
        if media and random.random() < 0.5:
            call_id, position = f"recall_{len(messages)}", len(messages)
            result = ToolResult(call_id, (Text(f"{position}: see below"), *media), "recall_tool_call")
            messages.append(Given(recall_call(call_id, str(position), format), format))
            messages += [Given(result_message(result, format)[0], format)] * (random.random() < 0.9)
    return messages


def recall_call(call_id: str, ref: str, format: str) -> Body:
    """Return a model's call of the tool that brings a message back."""
    named, asked = {"name": "recall_tool_call"}, {"ref": ref}
    if format == "openai_responses":
        return {"type": "function_call", "call_id": call_id, **named, "arguments": json.dumps(asked)}
    if format == "openai_chat":
        function = {**named, "arguments": json.dumps(asked)}
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": call_id, "type": "function", "function": function}],
        }
    use = {"toolUse": {"toolUseId": call_id, **named, "input": asked}}
    block = use if format == "bedrock_converse" else {"type": "tool_use", "id": call_id, **named, "input": asked}
    return {"role": "assistant", "content": [block]}


def problems(messages: list[Given], format: Any, seed: int) -> list[str]:
    asked = Asked(
        format=format,
        budget=(AMPLE, AMPLE, 900)[seed % 3],
        answer_open_calls=seed % 5 == 0,
        tools=TOOLS,
        others_calls="text" if seed % 2 else "calls",
    )
    try:
        sent = window(stored(messages), asked).messages
    except BudgetTooSmallError:
        return []
    return [f"{problem.rule} {problem.pointer}: {problem.message}" for problem in lint(sent, format=format)]


@pytest.fixture
def first(pytestconfig: pytest.Config) -> int:
    """The first seed: another one in each run, which a failure prints as ``--hypothesis-seed`` and which repeats it."""
    return 0 if is_full() else int(pytestconfig.getoption("hypothesis_seed"))


@pytest.mark.parametrize("format", FORMATS)
def test_W1_no_append_makes_a_session_unsendable_in_its_own_format(format: str, first: int) -> None:
    for seed in range(first, first + WINDOWS):
        messages = drawn(seed, format)
        if problems(messages, format, seed):
            pytest.fail(f"seed {seed}: {told(messages, format, seed)}")


@pytest.mark.parametrize("format", FORMATS)
def test_W5_no_block_of_a_provider_is_lost_without_a_word_in_the_manifest(format: str, first: int) -> None:
    formats: list[Any] = [other for other in ALL_FORMATS if other != format] * 2 + [format]
    for seed in range(first, first + WINDOWS):
        messages = drawn(seed, format)
        asked = Asked(format=formats[seed % len(formats)], tools=TOOLS, others_calls="text" if seed % 2 else "calls")
        built = window(stored(messages), asked)
        assert recounted(built, asked) <= built.tokens, f"seed {seed}"
        parts, sent = built.manifest.parts, f"{built.system}\n{texts(built)}"
        whole = {part.first for part in parts if part.kind == "message" and part.level == "whole"}
        words = {(part.first, part.reason) for part in parts if part.kind == "block"}
        outlines = [outline_of(CODECS[message.format].parse(message.body)) for message in messages]
        paired = set(pair(enumerate(outlines, start=1)).result_of.values())
        for position in whole:
            assert position is not None
            answering = [index for place, index in paired if place == position]
            for kind, text in provider_blocks(messages[position - 1], asked.format, answering):
                is_sent = asked.format == format and _is_sent(kind, built.messages)
                is_said = is_sent or (bool(text) and whole_characters(text) in sent) or (position, kind) in words
                assert is_said, f"seed {seed}: {kind} of message {position} is lost in {asked.format}"


def provider_blocks(given: Given, sent: str, answering: Sequence[int]) -> Iterator[tuple[str, str]]:
    """Yield type and first text of each block that only the message's own format has; the text is empty when there is none.

    ``answering``: the indices of results that belong to a call; the others are not sent.
    """
    message = CODECS[given.format].parse(given.body)
    for block in [*message.content, *(block for index in answering for block in message.tool_results[index].content)]:
        if isinstance(block, Thinking) and sent != "turnlog":
            yield "thinking", ""
        elif isinstance(block, Opaque) and isinstance(block.value, dict):
            kind = block.value.get("type") or next(iter(block.value), "")
            readable = [text for text in _strings(block.value) if text.strip()]
            if isinstance(kind, str) and re.fullmatch("[A-Za-z0-9_-]{1,64}", kind):
                yield kind, readable[0] if readable else ""


_THINKING = {"thinking", "redacted_thinking", "reasoning", "reasoning_content", "reasoning_details", "reasoningContent"}


def _is_sent(kind: str, value: Any) -> bool:
    """Return whether a block of the type is sent."""
    names = _THINKING if kind == "thinking" else {kind}
    if isinstance(value, dict) and (value.get("type") in [*names] or not names.isdisjoint(value)):
        return True
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(_is_sent(kind, member) for member in inner)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _strings(item)
    for key, member in value.items() if isinstance(value, dict) else ():
        if isinstance(member, str) and key in ("text", "title", "content", "context"):
            yield member
        yield from _strings(member)


def told(messages: list[Given], format: str, seed: int) -> str:
    """Return the fewest messages that still have a problem, and the problem."""
    for index in reversed(range(len(messages))):
        fewer = messages[:index] + messages[index + 1 :]
        if problems(fewer, format, seed):
            return told(fewer, format, seed)
    bodies = [message.body for message in messages]
    return "\n".join([*problems(messages, format, seed), json.dumps(bodies)])


def test_a_result_with_half_a_file_leaves_its_session_sendable() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    bodies: list[Body] = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "file", "file": {}}, image]},
    ]
    messages = taken(bodies, "openai_chat")
    assert problems(messages, "openai_chat", 0) == []
    assert "iVBORw0KGgo=" in json.dumps(window(stored(messages), Asked(format="openai_chat")).messages)
