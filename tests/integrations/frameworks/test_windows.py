"""Windows show messages that consist only of what Turnlog has no block for, such as a file by its address."""

from __future__ import annotations

import math
from typing import Any

import pytest

from turnlog import Turnlog
from turnlog.integrations.originals import Limits, Originals, text_block, tool_call, unpacked

ADDRESS = "https://example.com/report.pdf"


def window_of(originals: Originals[Any], *messages: Any) -> list[Any]:
    with Turnlog.open("memory://") as log:
        session = log.sessions.create("one", recall="never")
        originals.append(session, [originals.body(message) for message in messages])
        return originals.window(session, Limits(budget=4_000)).messages


def test_a_file_of_google_adk_is_sent_and_an_event_without_content_is_not() -> None:
    pytest.importorskip("google.adk.sessions")
    from google.adk.events.event import Event
    from google.genai import types

    from turnlog.integrations.google_adk import EVENTS

    part = types.Part.from_uri(file_uri=ADDRESS, mime_type="application/pdf")
    file = Event(author="user", content=types.Content(role="user", parts=[part]))
    assert window_of(EVENTS, file, Event(author="user"), Event(author="user", content=types.Content())) == [file]


def test_a_file_of_llama_index_is_sent() -> None:
    pytest.importorskip("llama_index.core")
    from llama_index.core.base.llms.types import ChatMessage, DocumentBlock

    from turnlog.integrations.llama_index import MESSAGES

    file = ChatMessage([DocumentBlock(url=ADDRESS, document_mimetype="application/pdf", title="report")])
    assert window_of(MESSAGES, file, ChatMessage([])) == [file]


def test_a_file_of_the_agent_framework_is_sent() -> None:
    pytest.importorskip("agent_framework")
    from agent_framework import Content, Message

    from turnlog.integrations.agent_framework import MESSAGES

    file = Message("user", [Content.from_uri(ADDRESS, media_type="application/pdf")])
    (message,) = window_of(MESSAGES, file, Message("user", []))
    assert message.to_dict() == file.to_dict()


def test_a_picture_that_a_model_of_pydantic_ai_has_made_is_sent() -> None:
    pytest.importorskip("pydantic_ai")
    from pydantic_ai import BinaryImage, ModelRequest, ModelResponse
    from pydantic_ai.messages import FilePart

    from turnlog.integrations.pydantic_ai import MESSAGES

    picture = ModelResponse([FilePart(BinaryImage(b"picture", media_type="image/png", _identifier="p"))])
    assert window_of(MESSAGES, ModelRequest.user_text_prompt("Draw."), picture, ModelRequest([]))[1:] == [picture]


WIDE = '{"x": 100000000000000000000000, "y": [-1e999, 18446744073709551616]}'
"""Arguments of a call that a framework reads and executes, with numbers that Turnlog refuses."""


def test_numbers_that_turnlog_refuses_come_back_equal() -> None:
    plain = Originals[dict[str, Any]](
        "plain",
        dump=lambda message: message,
        load=dict,
        to_parts=lambda message: ("assistant", [text_block("Look."), tool_call("c1", "price", message["args"])]),
        from_parts=lambda role, parts: {"parts": parts},
        content_of=lambda message: message,
    )
    data = {"$number": "7", "$$number": {"$at": [10**30, -math.inf]}, "in": [2**64 - 1, -(2**63), True, 1e300]}
    messages = [{"args": args, "more": data} for args in (data, WIDE, "NaN")]
    with Turnlog.open("memory://") as log:
        session = log.sessions.create("one")
        plain.append(session, [plain.body(message) for message in messages])
        assert [message for _, message in plain.stored(session)] == messages
    stored = {"$$number": "7", "number": 7, "text": {"$at": ["content"]}}
    assert unpacked(stored, {"content": "long"}) == {"$number": "7", "number": 7, "text": "long"}, "stored before"


def test_wide_numbers_of_calls_of_pydantic_ai_come_back() -> None:
    pytest.importorskip("pydantic_ai")
    from pydantic_ai import ModelRequest, ModelResponse
    from pydantic_ai.messages import ToolCallPart, ToolReturnPart

    from turnlog.integrations.pydantic_ai import MESSAGES

    call, result = ToolCallPart("price", WIDE, "c1"), ToolReturnPart("price", {"big": 10**30}, "c1")
    messages = [ModelRequest.user_text_prompt("Go."), ModelResponse([call]), ModelRequest([result])]
    assert window_of(MESSAGES, *messages) == messages


def test_wide_numbers_of_calls_of_the_agent_framework_come_back() -> None:
    pytest.importorskip("agent_framework")
    from agent_framework import Content, Message

    from turnlog.integrations.agent_framework import MESSAGES

    call = Message("assistant", [Content.from_function_call("c1", "price", arguments=WIDE)])
    result = Message("tool", [Content.from_function_result("c1", result={"big": 10**30})])
    messages = window_of(MESSAGES, Message("user", ["Go."]), call, result)
    assert [message.to_dict() for message in messages[1:]] == [call.to_dict(), result.to_dict()]


def test_wide_numbers_of_llama_index_come_back() -> None:
    pytest.importorskip("llama_index.core")
    from llama_index.core.base.llms.types import ChatMessage

    from turnlog.integrations.llama_index import MESSAGES

    message = ChatMessage("Hello", additional_kwargs={"seed": 10**30})
    assert window_of(MESSAGES, message) == [message]
