"""What adapters send is counted: each kind of part that a framework has, and windows of many of them are within their budget.

A new kind of a framework fails here until it has a message. `make frameworks` runs this.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import pytest

from tests.conftest import ROOT
from tests.support.pictures import png
from turnlog import Turnlog
from turnlog.core.messages import Media
from turnlog.engines.token_counters import TiktokenCounter
from turnlog.integrations.originals import Limits, Originals, said, unpacked
from turnlog.providers.registry import CODECS
from turnlog.providers.token_rules import count_media, count_message

BUDGET, TURNS = 4_000, 12
LARGE = " ".join(f"word {number}" for number in range(300))
PICTURE = png(1_000, 1_000)
REPORT = base64.b64encode(b"%PDF" + bytes(80_000)).decode()
SOUND = base64.b64encode(b"RIFF" + bytes(480_000)).decode()
GOLDEN = ROOT / "tests" / "integrations" / "golden" / "adapters-uncounted.json"
"""Bodies that the adapters wrote when they left out what Turnlog has no block for."""
ADDRESS = "https://example.com/media"


class Large(NamedTuple):
    """A turn with something large, which ``mark`` stands for, and the tokens that it takes."""

    turn: Sequence[Any]
    mark: str
    tokens: int


def text(*turn: Any) -> Large:
    return Large(turn, LARGE, TiktokenCounter().count(LARGE))


def picture(*turn: Any) -> Large:
    return Large(turn, PICTURE, count_media(Media("image", data=PICTURE)))


def report(*turn: Any) -> Large:
    return Large(turn, REPORT, count_media(Media("file", "application/pdf", data=REPORT)))


def sound(*turn: Any) -> Large:
    return Large(turn, SOUND, count_media(Media("audio", "audio/wav", data=SOUND)))


def linked(kind: Any, *turn: Any) -> Large:
    return Large(turn, ADDRESS, count_media(Media(kind, url=ADDRESS)))


def of_pydantic_ai() -> tuple[Originals[Any], dict[str, Large], set[str]]:
    from pydantic import TypeAdapter
    from pydantic_ai import ModelMessage
    from pydantic_ai import messages as types

    from turnlog.integrations.pydantic_ai import MESSAGES

    def request(part: Any) -> types.ModelRequest:
        return types.ModelRequest([part])

    def user(content: Any) -> types.ModelRequest:
        return request(types.UserPromptPart([content, "Look."]))

    def response(*parts: Any) -> types.ModelResponse:
        return types.ModelResponse([*parts, types.TextPart("Done.")])

    def result(content: Any) -> Sequence[Any]:
        call, part = types.ToolCallPart("look", {"a": 1}, "c1"), types.ToolReturnPart("look", content, "c1")
        return types.ModelResponse([call]), request(part), response()

    image = types.BinaryContent(base64.b64decode(PICTURE), media_type="image/png")
    pdf = types.BinaryContent(base64.b64decode(REPORT), media_type="application/pdf")
    wav = types.BinaryContent(base64.b64decode(SOUND), media_type="audio/wav")
    retry = {"cause": "validation_error", "attempt": 1, "max_retries": 1}
    feedback = [{"type": "missing", "loc": ("a",), "msg": LARGE, "input": {}}]
    feedback_part = {"part_kind": "retry-feedback", "content": feedback, "retry": retry}
    native_call = types.NativeToolCallPart("web_search", {"q": 1}, "n1")
    of_requests = {
        "system-prompt": text(request(types.SystemPromptPart(LARGE))),
        "user-prompt": text(request(types.UserPromptPart(LARGE))),
        "text-content": text(user(types.TextContent(LARGE))),
        "structured-content": text(user(types.StructuredContent({"a": LARGE}))),
        "image-url": linked("image", user(types.ImageUrl(ADDRESS))),
        "audio-url": linked("audio", user(types.AudioUrl(ADDRESS))),
        "document-url": linked("file", user(types.DocumentUrl(ADDRESS))),
        "video-url": linked("file", user(types.VideoUrl(ADDRESS))),
        "binary: image": picture(user(image)),
        "binary: file": report(user(pdf)),
        "uploaded-file": linked("file", user(types.UploadedFile(ADDRESS, "openai", media_type="application/pdf"))),
        "speech: text": text(request(types.SpeechPart(speaker="user", transcript=LARGE))),
        "speech: sound": sound(request(types.SpeechPart(speaker="user", audio=wav))),
        "tool-return: text": text(*result(LARGE)),
        "tool-return: image": picture(*result(image)),
        "tool-return: image in a list": picture(*result(["a", image])),
        "tool-return: file": report(*result(pdf)),
        "tool-return: url": linked("image", *result(types.ImageUrl(ADDRESS))),
        "retry-feedback": text(
            TypeAdapter(ModelMessage).validate_python({"kind": "request", "parts": [feedback_part]})
        ),
        "tool-availability-delta": text(request(types.ToolAvailabilityDeltaPart(tools_added=[LARGE]))),
        "capability-load-delta": text(request(types.CapabilityLoadDeltaPart(loaded=[LARGE]))),
        "instruction-delta": text(request(types.InstructionDeltaPart(id=None, content=LARGE))),
        "compaction": text(request(types.CompactionPart(LARGE))),
    }
    of_responses = {
        "text": text(response(types.TextPart(LARGE))),
        "tool-call": text(
            types.ModelResponse([types.ToolCallPart("look", {"a": LARGE}, "c1")]),
            request(types.ToolReturnPart("look", "ok", "c1")),
        ),
        "builtin-tool-call": text(response(types.NativeToolCallPart("web_search", {"q": LARGE}, "n1"))),
        "builtin-tool-return: text": text(
            response(native_call, types.NativeToolReturnPart("web_search", [{"a": LARGE}], "n1"))
        ),
        "builtin-tool-return: image": picture(
            response(native_call, types.NativeToolReturnPart("web_search", [image], "n1"))
        ),
        "thinking": text(response(types.ThinkingPart(LARGE))),
        "file": picture(response(types.FilePart(image))),
        "speech: reply": text(response(types.SpeechPart(speaker="assistant", transcript=LARGE))),
    }
    kinds = {
        str(getattr(member, "part_kind", None) or getattr(member, "kind", "text"))
        for union in (types.ModelRequestPart, types.ModelResponsePart, types.UserContent)
        for member in members(union)
    }
    # A legacy retry is loaded as one of two other parts; two kinds are never sent, and a cache point says nothing.
    never = {"retry-prompt", "instruction-baseline", "model-settings-delta", "cache-point"}
    return MESSAGES, of_requests | of_responses, kinds - never


def members(union: Any) -> Iterator[Any]:
    if get_origin(union) is Annotated:
        yield from members(get_args(union)[0])
    elif inner := get_args(union):
        for member in inner:
            yield from members(member) if isinstance(member, type) or get_args(member) else ()
    else:
        yield union


def of_agent_framework() -> tuple[Originals[Any], dict[str, Large], set[str]]:
    from agent_framework import Content, Message

    from turnlog.integrations.agent_framework import MESSAGES

    def reply(*contents: Any) -> Message:
        return Message("assistant", [*contents, "Done."])

    def large(kind: Any, **fields: Any) -> Large:
        return text(reply(Content(kind, **fields)))

    def call(arguments: Any) -> Message:
        return Message("assistant", [Content.from_function_call("c1", "look", arguments=arguments)])

    def result(value: Any) -> Message:
        return Message("tool", [Content.from_function_result("c1", result=value)])

    words, image = Content.from_text(LARGE), Content.from_uri(f"data:image/png;base64,{PICTURE}")
    pdf = Content.from_uri(f"data:application/pdf;base64,{REPORT}")
    asked = Content.from_function_call("c1", "look", arguments={"a": LARGE})
    turns = {
        "text": text(reply(words)),
        "text_reasoning": large("text_reasoning", text=LARGE),
        "data: image": picture(Message("user", [image])),
        "data: file": report(Message("user", [pdf])),
        "uri": linked("image", Message("user", [Content.from_uri(ADDRESS, media_type="image/png")])),
        "error": large("error", message=LARGE),
        "function_call": text(call({"a": LARGE}), result("ok")),
        "function_result: text": text(call("{}"), result(LARGE), reply()),
        "function_result: image": picture(call("{}"), result([Content.from_text("ok"), image]), reply()),
        "function_result: file": report(call("{}"), result([pdf]), reply()),
        "function_result: error": text(call("{}"), result([Content.from_error(message=LARGE)]), reply()),
        "hosted_file": linked("file", Message("user", [Content.from_hosted_file(ADDRESS)])),
        "hosted_vector_store": large("hosted_vector_store", vector_store_id=LARGE),
        "code_interpreter_tool_call": large("code_interpreter_tool_call", call_id="x", inputs=[words]),
        "code_interpreter_tool_result": large("code_interpreter_tool_result", call_id="x", outputs=[words]),
        "image_generation_tool_call": large("image_generation_tool_call", image_id=LARGE),
        "image_generation_tool_result": picture(reply(Content("image_generation_tool_result", outputs=image))),
        "mcp_server_tool_call": large("mcp_server_tool_call", call_id="m", tool_name="t", arguments={"a": LARGE}),
        "mcp_server_tool_result": large("mcp_server_tool_result", call_id="m", output=[words]),
        "mcp_server_tool_result: image": picture(reply(Content.from_mcp_server_tool_result("m", output=[image]))),
        "mcp_server_tool_result: file": report(reply(Content.from_mcp_server_tool_result("m", output=[pdf]))),
        "search_tool_call": large("search_tool_call", call_id="s", arguments={"q": LARGE}),
        "search_tool_result": large("search_tool_result", call_id="s", result=[{"text": LARGE}]),
        "shell_tool_call": large("shell_tool_call", call_id="s", commands=[LARGE]),
        "shell_tool_result": large(
            "shell_tool_result", call_id="s", outputs=[Content.from_shell_command_output(stdout=LARGE)]
        ),
        "shell_command_output": large("shell_command_output", stdout=LARGE),
        "computer_tool_call": large("computer_tool_call", call_id="s", actions=[{"text": LARGE}]),
        "computer_tool_result": picture(reply(Content("computer_tool_result", call_id="s", screenshot=image))),
        "function_approval_request": large("function_approval_request", id="a", function_call=asked),
        "function_approval_response": large("function_approval_response", id="a", approved=True, function_call=asked),
        "oauth_consent_request": large("oauth_consent_request", consent_link=LARGE),
    }
    return MESSAGES, turns, set(get_args(get_type_hints(Content.__init__)["type"])) - {"usage"}


def of_llama_index() -> tuple[Originals[Any], dict[str, Large], set[str]]:
    from llama_index.core.base.llms import types

    from turnlog.integrations.llama_index import MESSAGES

    def user(block: Any) -> types.ChatMessage:
        return types.ChatMessage([block, types.TextBlock(text="Look.")], role="user")

    def reply(*blocks: Any) -> types.ChatMessage:
        return types.ChatMessage([*blocks, types.TextBlock(text="Done.")], role="assistant")

    def result(block: Any) -> Sequence[types.ChatMessage]:
        call = types.ToolCallBlock(tool_call_id="c1", tool_name="look", tool_kwargs={"a": 1})
        blocks = [types.TextBlock(text="ok"), block]
        answer = types.ChatMessage(blocks, role="tool", additional_kwargs={"tool_call_id": "c1"})
        return types.ChatMessage([call], role="assistant"), answer, reply()

    def cited(block: Any) -> types.CitableBlock:
        return types.CitableBlock(title="t", source="s", content=[block])

    words, image = types.TextBlock(text=LARGE), types.ImageBlock(image=PICTURE.encode(), image_mimetype="image/png")
    pdf = types.DocumentBlock(data=REPORT.encode(), document_mimetype="application/pdf")
    citation = types.CitationBlock(cited_content=words, source="s", title="t", additional_location_info={})
    film = base64.b64encode(bytes(80_000)).decode()
    video = types.VideoBlock(video=film.encode(), video_mimetype="video/mp4")
    turns = {
        "text": text(user(words)),
        "image": picture(user(image)),
        "image: url": linked("image", user(types.ImageBlock(url=ADDRESS))),
        "audio": sound(user(types.AudioBlock(audio=SOUND.encode(), format="wav"))),
        "video": Large([user(video)], film, count_media(Media("file", "video/mp4", data=film))),
        "document": report(user(pdf)),
        "document: url": linked("file", user(types.DocumentBlock(url=ADDRESS, document_mimetype="application/pdf"))),
        "citable: text": text(user(cited(words))),
        "citable: image": picture(user(cited(image))),
        "citable: document": report(user(cited(pdf))),
        "citation": text(reply(citation)),
        "thinking": text(reply(types.ThinkingBlock(content=LARGE))),
        "tool_call": text(
            types.ChatMessage(
                [types.ToolCallBlock(tool_call_id="c1", tool_name="look", tool_kwargs={"a": LARGE})], role="assistant"
            ),
            types.ChatMessage("ok", role="tool", additional_kwargs={"tool_call_id": "c1"}),
        ),
        "text: of a result": text(*result(words)),
        "image: of a result": picture(*result(image)),
        "document: of a result": report(*result(pdf)),
        "citable: of a result": text(*result(cited(words))),
    }
    kinds = {member.model_fields["block_type"].default for member in members(types.ContentBlock)}
    return MESSAGES, turns, kinds - {"cache"}


def of_google_adk() -> tuple[Originals[Any], dict[str, Large], set[str]]:
    from google.adk.events.event import Event
    from google.genai import types

    from turnlog.integrations.google_adk import EVENTS

    def user(part: types.Part) -> Event:
        return Event(author="user", content=types.Content(role="user", parts=[part, types.Part(text="Look.")]))

    def reply(*parts: types.Part) -> Event:
        return Event(author="ada", content=types.Content(role="model", parts=[*parts, types.Part(text="Done.")]))

    def result(response: Any, *parts: types.FunctionResponsePart) -> Sequence[Event]:
        call = types.Part(function_call=types.FunctionCall(id="c1", name="look", args={"a": 1}))
        answer = types.FunctionResponse(id="c1", name="look", response=response, parts=[*parts] or None)
        return (
            Event(author="ada", content=types.Content(role="model", parts=[call])),
            Event(author="ada", content=types.Content(role="user", parts=[types.Part(function_response=answer)])),
            reply(),
        )

    image, blob = base64.b64decode(PICTURE), types.FunctionResponseBlob
    call = types.FunctionCall(id="c1", name="look", args={"a": LARGE})
    answer = types.FunctionResponse(id="c1", name="look", response={"a": 1})
    tool = types.ToolType.GOOGLE_SEARCH_WEB
    turns = {
        "text": text(user(types.Part(text=LARGE))),
        "thought": text(reply(types.Part(text=LARGE, thought=True))),
        "inline_data: image": picture(user(types.Part.from_bytes(data=image, mime_type="image/png"))),
        "inline_data: reply": picture(reply(types.Part.from_bytes(data=image, mime_type="image/png"))),
        "file_data": linked("image", user(types.Part.from_uri(file_uri=ADDRESS, mime_type="image/png"))),
        "function_call": text(
            Event(author="ada", content=types.Content(role="model", parts=[types.Part(function_call=call)])),
            Event(author="ada", content=types.Content(role="user", parts=[types.Part(function_response=answer)])),
        ),
        "function_response: text": text(*result({"a": LARGE})),
        "function_response: image": picture(
            *result({}, types.FunctionResponsePart(inline_data=blob(mime_type="image/png", data=image)))
        ),
        "function_response: file": linked(
            "file",
            *result({}, types.FunctionResponsePart.from_uri(file_uri=ADDRESS, mime_type="application/pdf")),
        ),
        "executable_code": text(reply(types.Part.from_executable_code(code=LARGE, language=types.Language.PYTHON))),
        "code_execution_result": text(
            reply(types.Part.from_code_execution_result(outcome=types.Outcome.OUTCOME_OK, output=LARGE))
        ),
        "tool_call": text(reply(types.Part(tool_call=types.ToolCall(id="t", tool_type=tool, args={"q": LARGE})))),
        "tool_response": text(
            reply(types.Part(tool_response=types.ToolResponse(id="t", tool_type=tool, response={"a": LARGE})))
        ),
        "audio_transcription": text(reply(types.Part(audio_transcription=types.Transcription(text=LARGE)))),
    }
    # How media are read, and what is kept with a part, are a few words.
    details = {"media_resolution", "video_metadata", "media_processing", "speech_metadata", "part_metadata"}
    return EVENTS, turns, set(types.Part.model_fields) - details - {"thought_signature"}


FRAMEWORKS = {
    "pydantic_ai": ("pydantic_ai.conversation_store", of_pydantic_ai),
    "agent_framework": ("agent_framework", of_agent_framework),
    "llama_index": ("llama_index.core", of_llama_index),
    "google_adk": ("google.adk.sessions", of_google_adk),
}


pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(FRAMEWORKS[request.param][0], reason="has an environment of its own: make frameworks")
    return str(request.param)


def test_each_kind_of_part_is_counted_and_many_are_within_the_budget(framework: str) -> None:
    originals, turns, kinds = FRAMEWORKS[framework][1]()
    assert {kind.partition(":")[0] for kind in turns} == kinds
    uncounted, over = list[str](), list[str]()
    for kind, large in turns.items():
        bodies = [originals.body(message) for message in large.turn]
        counter = TiktokenCounter()
        tokens = sum(count_message(CODECS["turnlog"].parse(body), counter) for body in bodies)
        if tokens < large.tokens:
            uncounted.append(f"{kind}: {tokens} of {large.tokens}")
        with Turnlog.open("memory://") as log:
            session = log.sessions.create("one", recall="never")
            question = {"role": "user", "content": "Go on."}
            for _ in range(TURNS):
                originals.append(session, [question, *bodies])
            read = [message for _, message in originals.stored(session)]
            assert written(originals, read[1 : len(bodies) + 1]) == written(originals, large.turn), kind
            originals.append(session, [question])
            sent = originals.window(session, Limits(budget=BUDGET)).messages
        # The Agent Framework keeps the text of a result twice, and sends it once.
        times = marks(originals, large, sent) // marks(originals, large, large.turn)
        if times * large.tokens > BUDGET or (not times and large.tokens * 3 < BUDGET):
            over.append(f"{kind}: {times} times {large.tokens} tokens")
    assert uncounted == [] and over == []


def test_nothing_is_lost_where_call_ids_come_again(framework: str) -> None:
    """A window gives calls with one id ids of its own, so their messages are made anew from what the body has."""
    originals, turns, _ = FRAMEWORKS[framework][1]()
    lost = list[str]()
    for kind, large in turns.items():
        with Turnlog.open("memory://") as log:
            session = log.sessions.create("one", recall="never")
            question = {"role": "user", "content": "Go on."}
            bodies = [originals.body(message) for message in large.turn]
            originals.append(session, [question, *bodies, question, *bodies, question])
            sent = originals.window(session, Limits(budget=60_000)).messages
        if marks(originals, large, sent) != 2 * marks(originals, large, large.turn):
            lost.append(kind)
    assert lost == []


def test_what_an_earlier_version_stored_comes_back_and_stays(framework: str) -> None:
    originals, _, _ = FRAMEWORKS[framework][1]()
    bodies = json.loads(GOLDEN.read_text())[framework]
    messages = [originals.message(body) for body in bodies]
    assert written(originals, messages) == [unpacked(body["metadata"][framework], body) for body in bodies]
    assert any(said(body) != said(originals.body(message)) for body, message in zip(bodies, messages, strict=True))
    with Turnlog.open("memory://") as log:
        session = log.sessions.create("one", recall="never")
        positions = originals.append(session, bodies)
        assert originals.extend(session, messages) == positions


def marks(originals: Originals[Any], large: Large, messages: Sequence[Any]) -> int:
    """Return how often the mark stands in messages. Frameworks write base64 in either alphabet."""
    text = json.dumps(written(originals, messages))
    return text.replace("-", "+").replace("_", "/").count(large.mark.replace("-", "+").replace("_", "/"))


def written(originals: Originals[Any], messages: Sequence[Any]) -> list[Any]:
    """Return messages as their framework writes them."""
    bodies = [originals.body(message) for message in messages]
    return [unpacked(next(iter(body["metadata"].values())), body) for body in bodies]
