"""A conversation made ready: counted once, divided into loops, every message known by a number."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.windows.values import stands
from turnlog.cli.transcripts import Transcript
from turnlog.core.calls import outline_of
from turnlog.core.events import HEAD_TOKEN_CHARS, Envelope, MessageEvent
from turnlog.core.loops import Arrival, Flow, accept
from turnlog.engines.token_counters import TiktokenCounter
from turnlog.log.reading import Located
from turnlog.providers.registry import CODECS
from turnlog.providers.token_rules import count_head, count_message, count_tools

FORMAT = "openai_chat"
Body = dict[str, Any]
COUNTER = TiktokenCounter()


class Messages:
    """Messages by number: equal bytes, equal number. Tokens, texts and what stands in them are found once for each."""

    def __init__(self) -> None:
        self.bodies = list[Body]()
        self.sizes = list[int]()
        self.texts = list[str]()
        self._numbers = dict[str, int]()
        self._by_id = dict[int, int]()
        self._standing = dict[tuple[str, int], bool]()

    def number(self, body: Body, *, is_kept: bool = False) -> int:
        """Return the message's number. ``is_kept``: the object lives as long as this, so it is known again by itself."""
        known = self._by_id.get(id(body))
        if known is not None and self.bodies[known] is body:
            return known
        number = self._numbers.setdefault(json.dumps(body, sort_keys=True), len(self.bodies))
        if number == len(self.bodies):
            self.bodies.append(body)
            self.sizes.append(count_message(CODECS[FORMAT].parse(body), COUNTER))
            self.texts.append(text_of(body))
            self._by_id[id(body)] = number
        elif is_kept:
            self.bodies[number] = body
            self._by_id[id(body)] = number
        return number

    def holds(self, number: int, value: str) -> bool:
        """Return whether the value is in the message."""
        key = (value, number)
        result = self._standing.get(key)
        if result is None:
            result = self._standing[key] = stands(value, self.texts[number])
        return result

    def hold(self, numbers: Sequence[int], value: str) -> bool:
        return any(self.holds(number, value) for number in reversed(numbers))


class History:
    """A conversation. ``numbers`` are its messages in order, ``system`` that of its system text, ``loops`` their loops."""

    def __init__(self, transcript: Transcript) -> None:
        self.id, self.source = transcript.id, transcript.source
        self.messages = Messages()
        self.bodies: list[Body] = transcript.messages
        self.system_text = transcript.system
        self.tools = transcript.tools
        self.tools_tokens = count_tools(transcript.tools, COUNTER)
        self.sources = sources_of(transcript.messages)
        self.sizes = [source.event.tokens for source in self.sources]
        self.numbers = [self.messages.number(body, is_kept=True) for body in self.bodies]
        self.loops = loops_of(self.bodies)
        self.system: int | None = None
        if transcript.system is not None:
            self.system = self.messages.number({"role": "system", "content": transcript.system})

    def calls(self) -> Iterator[int]:
        """Return where a model was called: how many messages there were before each assistant message but a first one."""
        return (at for at, body in enumerate(self.bodies) if at and body.get("role") == "assistant")

    def full(self, upto: int) -> list[int]:
        """Everything, as it is."""
        return [*self.head(), *self.numbers[:upto]]

    def tokens(self, numbers: Sequence[int]) -> int:
        return sum(self.messages.sizes[number] for number in numbers)

    def says(self, at: int, value: str) -> bool:
        """Return whether the value is in what the message says, its calls not counted."""
        if not self.bodies[at].get("tool_calls"):
            return self.messages.holds(self.numbers[at], value)
        return stands(value, "\n".join(said(self.bodies[at])))

    def head(self) -> list[int]:
        return [] if self.system is None else [self.system]

    def task(self, upto: int) -> list[str]:
        """Return the texts that the user has given in the current loop before it was first answered."""
        if not upto:
            return []
        result = list[str]()
        for at in range(self.loops.index(self.loops[upto - 1]), upto):
            body = self.bodies[at]
            if body.get("role") == "user":
                result += [text for text in said(body) if text.strip()]
            elif body.get("role") == "assistant" and result:
                break
        return result


def sources_of(bodies: Sequence[Body]) -> list[Located]:
    """Return what the log would hand to a window: every message counted, in its loop, appended a second after the one before."""
    flow, sources = Flow(), list[Located]()
    for at, body in enumerate(bodies):
        message = CODECS[FORMAT].parse(body)
        tokens, text = count_message(message, COUNTER), message.text
        flow = accept(flow, Arrival(at + 1, at, message, outline_of(message), tokens)).flow
        head = count_head(text, HEAD_TOKEN_CHARS, COUNTER) if len(text) > HEAD_TOKEN_CHARS else None
        event = MessageEvent(
            position=at + 1, format=FORMAT, tokens=tokens, envelope=Envelope(), body=body, head_tokens=head
        )
        sources.append(Located(event, flow.loop.number, (at + 1) * 1000))
    return sources


def loops_of(bodies: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the loop of each message by the rule of docs/explanation/concepts.md, 0 before the first; the judge shares no code."""
    loops, number, is_asked, is_answered = list[int](), 0, False, False
    for body in bodies:
        role = body.get("role")
        if role != "system" and not number:
            number = 1
        if role == "user":
            if is_answered:
                number, is_answered = number + 1, False
            is_asked = True
        is_answered = is_answered or (role == "assistant" and is_asked)
        loops.append(number)
    return loops


def said(body: Mapping[str, Any]) -> list[str]:
    """Return the texts of a message's content."""
    content = body.get("content")
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        return []
    texts = [part if isinstance(part, str) else part.get("text", part.get("refusal")) for part in content]
    return [text for text in texts if isinstance(text, str)]


def calls_in(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the functions that a message calls: ``{name, arguments}``."""
    functions = [call.get("function") for call in body.get("tool_calls") or () if isinstance(call, dict)]
    return [function for function in functions if isinstance(function, dict)]


def text_of(body: Mapping[str, Any]) -> str:
    """Return what a model reads of a message: content and arguments. Reasoning is not sent back by most providers."""
    arguments = [function.get("arguments") for function in calls_in(body)]
    made = [
        argument if isinstance(argument, str) else json.dumps(argument, ensure_ascii=False) for argument in arguments
    ]
    return "\n".join([*said(body), *made])
