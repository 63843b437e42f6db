"""What the providers share that want user and assistant in turn, and the system text apart.

Anthropic puts neighbours of one role together itself (https://docs.anthropic.com/en/api/messages), Bedrock Converse
refuses them (https://docs.aws.amazon.com/bedrock/latest/userguide/conversation-inference-call.html). Both want a
conversation that begins with the user, and models of both refuse one that ends with the assistant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from turnlog.codecs.base import BEFORE_ALL, End, Turn
from turnlog.codecs.blocks import text_with_placeholders
from turnlog.codecs.fences import SYSTEM_KIND, fenced
from turnlog.domain.jsonvalue import JsonObject, JsonValue
from turnlog.domain.messages import Message, Text

FIRST_USER = "[the conversation begins]"
CONTINUE = "[continue]"

IsKind = Callable[[JsonValue], bool]


def apart(turns: Sequence[Turn], system: str | None) -> tuple[str | None, list[Turn]]:
    """The system text with the system messages at the beginning, and the other turns; later ones are fenced user text."""
    leading = 0
    while leading < len(turns) and turns[leading].message.role == "system":
        leading += 1
    texts = [system or "", *(text_with_placeholders(turn.message) for turn in turns[:leading])]
    said = [text for text in texts if text.strip()]
    rest = [_fenced_system(turn) if turn.message.role == "system" else turn for turn in turns[leading:]]
    return "\n\n".join(said) if said else None, rest


def _fenced_system(turn: Turn) -> Turn:
    text = text_with_placeholders(turn.message)
    return Turn(Message("user", (Text(fenced(SYSTEM_KIND, text)),) if text.strip() else ()))


class Layout:
    """Messages, laid out turn by turn, and how far each turn reaches in them (`turnlog.codecs.base.Rendered`)."""

    def __init__(self, *, in_system: int) -> None:
        """``in_system``: so many turns stand in the system text."""
        self.messages: list[JsonObject] = []
        self._ends = [BEFORE_ALL] * in_system

    def put(self, body: JsonObject) -> None:
        """One more message."""
        self.messages.append(body)

    def join(self, body: JsonObject, is_result: IsKind) -> None:
        """More of the newest message."""
        at, before = len(self.messages) - 1, _blocks(self.messages[-1])
        self.messages[-1] = joined(self.messages[-1], body, is_result)
        content = _blocks(self.messages[-1])
        if content[: len(before)] != before:
            self._ends = [End(at, len(content)) if end.message == at else end for end in self._ends]

    def end_turn(self) -> None:
        self._ends.append(End(len(self.messages) - 1, _length(self.messages[-1])) if self.messages else BEFORE_ALL)

    def framed(self, line: Callable[[str], JsonObject]) -> tuple[list[JsonObject], tuple[End, ...]]:
        """The messages between neutral user lines where they do not begin or end with the user, and the ends of the turns."""
        messages, ends = self.messages, self._ends
        last = [line(CONTINUE)] if messages and messages[-1]["role"] == "assistant" else []
        if messages and messages[0]["role"] == "user":
            return [*messages, *last], tuple(ends)
        return [line(FIRST_USER), *messages, *last], tuple(
            end if end == BEFORE_ALL else End(end.message + 1, end.blocks) for end in ends
        )


def grown(ends: Sequence[End], before: Sequence[JsonObject], after: Sequence[JsonObject]) -> tuple[End, ...]:
    """The ends when blocks were added behind those of some messages."""
    lengths = {at: (_length(one), _length(other)) for at, (one, other) in enumerate(zip(before, after, strict=True))}
    return tuple(
        End(end.message, lengths[end.message][1])
        if end != BEFORE_ALL and end.blocks == lengths[end.message][0]
        else end
        for end in ends
    )


def with_results_first(content: list[JsonValue], is_result: IsKind) -> list[JsonValue]:
    """Results stand before anything else that the user says."""
    return sorted(content, key=lambda block: not is_result(block))


def with_thinking_first(bodies: Iterable[JsonObject], is_thinking: IsKind) -> Iterator[JsonObject]:
    """The bodies; thinking is left out of an assistant's turn, neighbours and all, that does not begin with it.

    The provider reads neighbours as one message and wants its thinking first.
    """
    previous, begins = "", False
    for body in bodies:
        role, content = str(body["role"]), _blocks(body)
        if role == "assistant" and previous != "assistant":
            begins = bool(content) and is_thinking(content[0])
        is_late = role == "assistant" and not begins and any(map(is_thinking, content))
        previous = role
        yield {**body, "content": [block for block in content if not is_thinking(block)]} if is_late else body


def joined(one: JsonObject, other: JsonObject, is_result: IsKind) -> JsonObject:
    """Two messages of one role as one. Both contents are lists."""
    content = [*_blocks(one), *_blocks(other)]
    return {**one, "content": with_results_first(content, is_result)}


def has_results(message: JsonObject, is_result: IsKind, *, alone: bool = False) -> bool:
    """Whether results are in the message; ``alone``: and nothing else."""
    found = [is_result(block) for block in _blocks(message)]
    return bool(found) and (all(found) if alone else any(found))


def _length(message: JsonObject) -> int:
    content = message.get("content")
    return len(content) if isinstance(content, list) else 1


def _blocks(message: JsonObject) -> list[JsonValue]:
    content = message.get("content")
    return content if isinstance(content, list) else []
