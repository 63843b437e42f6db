"""What the providers share that want user and assistant in turn, and the system text apart.

Anthropic puts neighbours of one role together itself (https://docs.anthropic.com/en/api/messages), Bedrock Converse
refuses them (https://docs.aws.amazon.com/bedrock/latest/userguide/conversation-inference-call.html). Both want a
conversation that begins with the user, and models of both refuse one that ends with the assistant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from turnlog.core.json_values import JsonObject, JsonValue
from turnlog.core.messages import Message, Text
from turnlog.providers.base import BEFORE_ALL, End, Turn
from turnlog.providers.blocks import SYSTEM_KIND, fenced, text_with_placeholders

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
    """Messages, laid out turn by turn, and how far each turn reaches in them (`turnlog.providers.base.Rendered`).

    The blocks of the newest message are kept as results and others until it is whole: a join takes time by what is added.
    """

    def __init__(self, is_result: IsKind, *, in_system: int) -> None:
        """``in_system``: so many turns stand in the system text."""
        self._is_result = is_result
        self._messages: list[JsonObject] = []
        self._ends = [BEFORE_ALL] * in_system
        self._results: list[JsonValue] = []
        self._others: list[JsonValue] = []
        self._is_joined = False
        self._is_sorted = True
        self._first_end = self._moved_ends = len(self._ends)
        self._moved_length = 0

    @property
    def role(self) -> JsonValue:
        """Return the role of the newest message, None before the first."""
        return self._messages[-1]["role"] if self._messages else None

    @property
    def has_only_results(self) -> bool:
        """Whether the newest message has results and nothing else."""
        return bool(self._results) and not self._others

    def put(self, body: JsonObject) -> None:
        """Add a message."""
        self._finish()
        self._messages.append(body)
        blocks = _blocks(body)
        self._results, self._others = self._parted(blocks)
        self._is_joined, self._is_sorted = False, not self._others or blocks == [*self._results, *self._others]
        self._first_end = self._moved_ends = len(self._ends)

    def join(self, body: JsonObject) -> None:
        """Add the blocks of a body to the newest message, results before all others. Both contents are lists."""
        results, others = self._parted(_blocks(body))
        is_moved = not self._is_sorted or bool(results and self._others)
        self._results += results
        self._others += others
        self._is_joined = self._is_sorted = True
        if is_moved:
            self._moved_ends, self._moved_length = len(self._ends), len(self._results) + len(self._others)

    def end_turn(self) -> None:
        if not self._messages:
            self._ends.append(BEFORE_ALL)
            return
        length = len(self._results) + len(self._others) if self._is_joined else _length(self._messages[-1])
        self._ends.append(End(len(self._messages) - 1, length))

    def _parted(self, blocks: Sequence[JsonValue]) -> tuple[list[JsonValue], list[JsonValue]]:
        results, others = list[JsonValue](), list[JsonValue]()
        for block in blocks:
            (results if self._is_result(block) else others).append(block)
        return results, others

    def _finish(self) -> None:
        """Make the newest message whole. Turns that ended before blocks were put in front of theirs reach as far as these."""
        if self._is_joined:
            self._messages[-1] = {**self._messages[-1], "content": [*self._results, *self._others]}
        end = End(len(self._messages) - 1, self._moved_length)
        for index in range(self._first_end, self._moved_ends):
            self._ends[index] = end

    def framed(self, line: Callable[[str], JsonObject]) -> tuple[list[JsonObject], tuple[End, ...]]:
        """The messages between neutral user lines where they do not begin or end with the user, and the ends of the turns."""
        self._finish()
        messages, ends = self._messages, self._ends
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


def has_results(message: JsonObject, is_result: IsKind) -> bool:
    """Whether results are in the message."""
    return any(map(is_result, _blocks(message)))


def _length(message: JsonObject) -> int:
    content = message.get("content")
    return len(content) if isinstance(content, list) else 1


def _blocks(message: JsonObject) -> list[JsonValue]:
    content = message.get("content")
    return content if isinstance(content, list) else []
