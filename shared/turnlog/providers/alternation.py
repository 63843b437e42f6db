"""Layout of conversations for providers that want user and assistant in turn, and the system text in its own field.

Anthropic merges consecutive messages of one role itself (https://docs.anthropic.com/en/api/messages). Bedrock Converse
refuses them (https://docs.aws.amazon.com/bedrock/latest/userguide/conversation-inference-call.html). Both want a
conversation that begins with the user, and some models of both refuse one that ends with the assistant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from turnlog.core.json_values import JsonObject, JsonValue
from turnlog.core.messages import Message, Text
from turnlog.providers import BEFORE_ALL, End, Turn
from turnlog.providers.blocks import SYSTEM_KIND, fenced, text_with_placeholders

FIRST_USER = "[the conversation begins]"
CONTINUE = "[continue]"

IsKind = Callable[[JsonValue], bool]


def split_system(turns: Sequence[Turn], system: str | None) -> tuple[str | None, list[Turn]]:
    """Return the system text for the provider's field, and the turns of the conversation.

    The system text is ``system`` with the system messages at the beginning; None when there is none. System messages
    further down become user messages with fenced text.
    """
    leading = 0
    while leading < len(turns) and turns[leading].message.role == "system":
        leading += 1
    texts = [system or "", *(text_with_placeholders(turn.message) for turn in turns[:leading])]
    non_blank = [text for text in texts if text.strip()]
    conversation = [_fenced_system(turn) if turn.message.role == "system" else turn for turn in turns[leading:]]
    return "\n\n".join(non_blank) if non_blank else None, conversation


def _fenced_system(turn: Turn) -> Turn:
    text = text_with_placeholders(turn.message)
    return Turn(Message("user", (Text(fenced(SYSTEM_KIND, text)),) if text.strip() else ()))


class Layout:
    """Builds the provider's messages turn by turn, and records where each turn ends in them (see `Rendered.ends`).

    While the newest message can still grow, its results and its other blocks are kept in two lists, so that extending it costs
    only the new blocks.
    """

    def __init__(self, is_result: IsKind, *, in_system: int) -> None:
        """``in_system``: the number of turns at the beginning that are part of the system text."""
        self._is_result = is_result
        self._messages: list[JsonObject] = []
        self._ends = [BEFORE_ALL] * in_system
        self._results: list[JsonValue] = []
        self._others: list[JsonValue] = []
        self._is_extended = False
        self._is_sorted = True
        # Turns from `_first_turn` to before `_moved_turns` ended in the newest message before its blocks were reordered.
        self._first_turn = self._moved_turns = len(self._ends)
        self._moved_length = 0

    @property
    def role(self) -> JsonValue:
        """The role of the newest message, None before the first."""
        return self._messages[-1]["role"] if self._messages else None

    @property
    def has_only_results(self) -> bool:
        """Whether the newest message has results and no other blocks."""
        return bool(self._results) and not self._others

    def add_message(self, body: JsonObject) -> None:
        """Begin a new message of the request with this body."""
        self._complete_message()
        self._messages.append(body)
        blocks = _blocks(body)
        self._results, self._others = self._split_blocks(blocks)
        self._is_extended, self._is_sorted = False, not self._others or blocks == [*self._results, *self._others]
        self._first_turn = self._moved_turns = len(self._ends)

    def extend_message(self, body: JsonObject) -> None:
        """Add the blocks of ``body`` to the newest message, results before all other blocks. Both contents must be lists."""
        results, others = self._split_blocks(_blocks(body))
        is_moved = not self._is_sorted or bool(results and self._others)
        self._results += results
        self._others += others
        self._is_extended = self._is_sorted = True
        if is_moved:
            self._moved_turns, self._moved_length = len(self._ends), len(self._results) + len(self._others)

    def end_turn(self) -> None:
        """Record that a turn ends behind the newest message's last block."""
        if not self._messages:
            self._ends.append(BEFORE_ALL)
            return
        length = len(self._results) + len(self._others) if self._is_extended else _length(self._messages[-1])
        self._ends.append(End(len(self._messages) - 1, length))

    def _split_blocks(self, blocks: Sequence[JsonValue]) -> tuple[list[JsonValue], list[JsonValue]]:
        results, others = list[JsonValue](), list[JsonValue]()
        for block in blocks:
            (results if self._is_result(block) else others).append(block)
        return results, others

    def _complete_message(self) -> None:
        """Write the collected blocks into the newest message.

        When results were inserted before blocks of earlier turns, those turns end where the moved blocks end.
        """
        if self._is_extended:
            self._messages[-1] = {**self._messages[-1], "content": [*self._results, *self._others]}
        end = End(len(self._messages) - 1, self._moved_length)
        for index in range(self._first_turn, self._moved_turns):
            self._ends[index] = end

    def finish(self, user_line: Callable[[str], JsonObject]) -> tuple[list[JsonObject], tuple[End, ...]]:
        """Return the messages and the end of each turn.

        Adds neutral user messages, made by ``user_line``, where the conversation does not begin or end with the user.
        """
        self._complete_message()
        messages, ends = self._messages, self._ends
        closing = [user_line(CONTINUE)] if messages and messages[-1]["role"] == "assistant" else []
        if messages and messages[0]["role"] == "user":
            return [*messages, *closing], tuple(ends)
        return [user_line(FIRST_USER), *messages, *closing], tuple(
            end if end == BEFORE_ALL else End(end.message + 1, end.blocks) for end in ends
        )


def ends_after_additions(
    ends: Sequence[End], before: Sequence[JsonObject], after: Sequence[JsonObject]
) -> tuple[End, ...]:
    """Return the ends of the turns after blocks were appended to some messages: ``before`` became ``after``."""
    lengths = {index: (_length(old), _length(new)) for index, (old, new) in enumerate(zip(before, after, strict=True))}
    return tuple(
        End(end.message, lengths[end.message][1])
        if end != BEFORE_ALL and end.blocks == lengths[end.message][0]
        else end
        for end in ends
    )


def with_results_first(content: list[JsonValue], is_result: IsKind) -> list[JsonValue]:
    """Return the content with tool results before all other blocks."""
    return sorted(content, key=lambda block: not is_result(block))


def with_thinking_first(bodies: Iterable[JsonObject], is_thinking: IsKind) -> Iterator[JsonObject]:
    """Yield the bodies without the thinking of assistant turns that do not begin with thinking.

    The provider reads consecutive messages of one role as one turn, and wants a turn's thinking first.
    """
    previous, starts_with_thinking = "", False
    for body in bodies:
        role, content = str(body["role"]), _blocks(body)
        if role == "assistant" and previous != "assistant":
            starts_with_thinking = bool(content) and is_thinking(content[0])
        is_misplaced = role == "assistant" and not starts_with_thinking and any(map(is_thinking, content))
        previous = role
        yield {**body, "content": [block for block in content if not is_thinking(block)]} if is_misplaced else body


def has_results(message: JsonObject, is_result: IsKind) -> bool:
    """Return whether the message has tool results."""
    return any(map(is_result, _blocks(message)))


def _length(message: JsonObject) -> int:
    content = message.get("content")
    return len(content) if isinstance(content, list) else 1


def _blocks(message: JsonObject) -> list[JsonValue]:
    content = message.get("content")
    return content if isinstance(content, list) else []
