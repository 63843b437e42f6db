"""What the providers share that want user and assistant in turn, and the system text apart.

Anthropic puts neighbours of one role together itself (https://docs.anthropic.com/en/api/messages), Bedrock Converse
refuses them (https://docs.aws.amazon.com/bedrock/latest/userguide/conversation-inference-call.html). Both want a
conversation that begins with the user, and models of both refuse one that ends with the assistant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from turnlog.codecs.base import Turn
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


def framed(messages: list[JsonObject], line: Callable[[str], JsonObject]) -> list[JsonObject]:
    """The messages between neutral user lines where they do not begin or end with the user."""
    first = [] if messages and messages[0]["role"] == "user" else [line(FIRST_USER)]
    last = [line(CONTINUE)] if messages and messages[-1]["role"] == "assistant" else []
    return [*first, *messages, *last]


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


def _blocks(message: JsonObject) -> list[JsonValue]:
    content = message.get("content")
    return content if isinstance(content, list) else []
