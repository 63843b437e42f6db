"""Windows show messages that consist only of what Turnlog has no block for, such as a file by its address."""

from __future__ import annotations

from typing import Any

import pytest

from turnlog import Turnlog
from turnlog.integrations.originals import Limits, Originals

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
