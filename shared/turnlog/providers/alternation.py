"""Layout of conversations for providers that want user and assistant in turn, and the system text in its own field.

Anthropic merges consecutive messages of one role itself (https://docs.anthropic.com/en/api/messages). Bedrock Converse
refuses them (https://docs.aws.amazon.com/bedrock/latest/userguide/conversation-inference-call.html). Both want a
conversation that begins with the user, and some models of both refuse one that ends with the assistant.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from turnlog.core.json_values import JsonObject, JsonValue
from turnlog.core.messages import Block, Media, Message, Opaque, Text, ToolCall
from turnlog.providers import BEFORE_ALL, Bodies, Codec, End, Rendered, Turn
from turnlog.providers.blocks import (
    SYSTEM_KIND,
    content_with_name,
    fenced,
    is_mark,
    is_thinking,
    placeholder_text,
    text_with_placeholders,
)

FIRST_USER = "[the conversation begins]"
CONTINUE = "[continue]"

_IsKind = Callable[[JsonValue], bool]


def split_system(turns: Sequence[Turn], system: str | None) -> tuple[str | None, list[Turn]]:
    """Return the system text for the provider's field, and the turns of the conversation.

    The system text is ``system`` with the system messages at the beginning; None when there is none. System messages
    further down become user messages with fenced text.
    """
    leading = 0
    while leading < len(turns) and turns[leading].message.role == "system":
        leading += 1
    texts = [system or "", *(text_with_placeholders(turn.message.content) for turn in turns[:leading])]
    non_blank = [text for text in texts if text.strip()]
    conversation = [_fenced_system(turn) if turn.message.role == "system" else turn for turn in turns[leading:]]
    return "\n\n".join(non_blank) if non_blank else None, conversation


def _fenced_system(turn: Turn) -> Turn:
    text = text_with_placeholders(turn.message.content)
    return Turn(Message("user", (Text(fenced(SYSTEM_KIND, text)),) if text.strip() else ()))


class Layout:
    """Builds the provider's messages turn by turn, and records where each turn ends in them (see `Rendered.ends`).

    While the newest message can still grow, its results and its other blocks are kept in two lists, so that extending it costs
    only the new blocks.
    """

    def __init__(self, is_result: _IsKind, *, in_system: int) -> None:
        """``in_system``: the number of turns at the beginning that are part of the system text."""
        self._is_result = is_result
        self._messages: list[JsonObject] = []
        self._ends = [BEFORE_ALL] * in_system
        self._results: list[JsonValue] = []
        self._others: list[JsonValue] = []
        self._is_extended, self._is_sorted = False, True
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
        blocks = blocks_of(body)
        self._results, self._others = self._split_blocks(blocks)
        self._is_extended, self._is_sorted = False, not self._others or blocks == [*self._results, *self._others]
        self._first_turn = self._moved_turns = len(self._ends)

    def extend_message(self, body: JsonObject) -> None:
        """Add the blocks of ``body`` to the newest message, results before all other blocks. Both contents must be lists."""
        results, others = self._split_blocks(blocks_of(body))
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
        length = len(self._results) + len(self._others) if self._is_extended else length_of(self._messages[-1])
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

    def finish(
        self,
        user_line: Callable[[str], JsonObject],
        is_going_on: Callable[[JsonObject], bool],
        may_begin: Callable[[JsonObject], bool] = lambda message: False,
    ) -> tuple[list[JsonObject], tuple[End, ...]]:
        """Return the messages and the end of each turn.

        Adds neutral user messages, made by ``user_line``, where the conversation does not begin or end with the user. None is
        added behind an answer that ``is_going_on``: the provider continues it; and none before one that ``may_begin``.
        """
        self._complete_message()
        messages, ends = self._messages, self._ends
        is_answered = bool(messages) and messages[-1]["role"] == "assistant" and not is_going_on(messages[-1])
        closing = [user_line(CONTINUE)] if is_answered else []
        if messages and (messages[0]["role"] == "user" or may_begin(messages[0])):
            return [*messages, *closing], tuple(ends)
        return [user_line(FIRST_USER), *messages, *closing], tuple(
            end if end == BEFORE_ALL else End(end.message + 1, end.blocks) for end in ends
        )


def ends_after_additions(
    ends: Sequence[End], before: Sequence[JsonObject], after: Sequence[JsonObject]
) -> tuple[End, ...]:
    """Return the ends of the turns after blocks were appended to some messages: ``before`` became ``after``."""
    lengths = [(length_of(old), length_of(new)) for old, new in zip(before, after, strict=True)]
    return tuple(
        End(end.message, lengths[end.message][1])
        if end != BEFORE_ALL and end.blocks == lengths[end.message][0]
        else end
        for end in ends
    )


@dataclass(slots=True)
class IdsToSend:
    """The calls with their ids, and the ids of the results, in the order of their blocks. ``is_altered``: a call was changed."""

    calls: Iterator[tuple[ToolCall, str]]
    results: Iterator[str]
    is_altered: bool = False


def length_of(message: JsonObject) -> int:
    """Return the number of blocks of a message; a text counts as one."""
    content = message.get("content")
    return len(content) if isinstance(content, list) else 1


def blocks_of(message: JsonObject) -> list[JsonValue]:
    """Return the blocks of a message; none of a text."""
    content = message.get("content")
    return content if isinstance(content, list) else []


class AlternatingCodec(Codec):
    """Codec of a format whose messages of user and assistant hold calls and results as blocks.

    A subclass reads and writes the format's blocks. Server calls are calls of tools that the provider itself runs.
    """

    @staticmethod
    @abstractmethod
    def is_result(block: JsonValue) -> bool:
        """Return whether the block is the result of a caller's tool."""

    @staticmethod
    @abstractmethod
    def server_ids(block: JsonValue) -> tuple[str, str]:
        """Return the id of the server call in a block, and of the server call that the block is the result of; else empty."""

    @abstractmethod
    def legal(self, body: JsonObject) -> JsonObject | None:
        """Return the legal form of a message; None when nothing of it can be sent."""

    @abstractmethod
    def repaired_block(self, block: JsonObject, ids: IdsToSend) -> JsonObject:
        """Return a block of an appended body with the ids to send, and with a legal call."""

    @abstractmethod
    def text_block(self, text: str) -> JsonObject:
        """Return the block of a text."""

    @abstractmethod
    def media_block(self, media: Media) -> JsonObject:
        """Return the block of the media, or its name as text when the provider does not accept such media."""

    @abstractmethod
    def call_block(self, call: ToolCall, call_id: str) -> JsonObject:
        """Return the block of a call."""

    @abstractmethod
    def result_block(self, call_id: str, content: list[JsonValue], *, is_error: bool) -> JsonObject:
        """Return the block of a result."""

    @abstractmethod
    def continues(self, layout: Layout, body: JsonObject) -> bool:
        """Return whether a message is sent as a part of the newest one."""

    def message(self, role: str, blocks: list[JsonValue]) -> JsonObject:
        """Return the message with these blocks."""
        return {"role": role, "content": blocks}

    def is_going_on(self, message: JsonObject) -> bool:
        """Return whether the provider continues the answer when the conversation ends with it."""
        return False

    def may_begin(self, message: JsonObject) -> bool:
        """Return whether a conversation may begin with the message of an assistant."""
        return False

    def arranged(self, turns: Bodies) -> Bodies:
        """Return the messages of each turn without blocks that the provider refuses where they stand."""
        return self.with_thinking_first(self.with_paired_server_calls(turns))

    def render(self, turns: Sequence[Turn], *, system: str | None, tools: Sequence[JsonObject]) -> Rendered:
        system_text, conversation = split_system(turns, system)
        in_system = len(turns) - len(conversation)
        layout = Layout(self.is_result, in_system=in_system)
        sent_turns = self.arranged([self.bodies(turn) for turn in conversation])
        for turn_bodies in sent_turns:
            for body in turn_bodies:
                if self.continues(layout, body):
                    layout.extend_message(body)
                else:
                    layout.add_message(body)
            layout.end_turn()
        messages, ends = layout.finish(
            lambda text: self.message("user", [self.text_block(text)]), self.is_going_on, self.may_begin
        )
        bodies = [*([()] * in_system), *sent_turns]
        return Rendered(messages, system=system_text, tools=self.tools(tools), ends=ends, bodies=bodies)

    def repaired(self, turn: Turn, body: JsonObject) -> list[JsonObject] | None:
        message, content = turn.message, body.get("content")
        role = "user" if message.role == "tool" else message.role
        if body.get("role") != role or role not in ("user", "assistant"):
            return None
        is_native = role == "assistant" and all(result.hosted for result in message.tool_results)
        if (message.tool_calls and role != "assistant") or (message.tool_results and role != "user" and not is_native):
            return None
        if isinstance(content, list):
            # Results of an assistant are hosted here: a message with others has been refused.
            has_hosted = bool(message.tool_results) or any(call.hosted for call in message.tool_calls)
            if role == "assistant" and any(isinstance(block, Media) for block in message.content) and not has_hosted:
                return None
            repaired = self._repaired_blocks(turn, content)
            body = body if repaired == content else {**body, "content": repaired}
        legal = self.legal(body)
        return [] if legal is None else [legal]

    def rendered(self, turn: Turn) -> list[JsonObject]:
        """Return one message, or two when an assistant message has results."""
        message = turn.message
        results: list[JsonValue] = [
            self.result_block(call_id, self._blocks(result.content), is_error=result.is_error)
            for result, call_id in zip(message.tool_results, turn.result_ids, strict=True)
        ]
        calls: list[JsonValue] = [
            self.call_block(call, call_id) for call, call_id in zip(message.tool_calls, turn.call_ids, strict=True)
        ]
        if message.role == "assistant" or calls:
            assistant = self.message("assistant", [*self._blocks(message.content, has_media=False), *calls])
            answers = self.message("user", results)
            bodies = [assistant, answers] if turn.has_own_results else [answers, assistant]
        else:
            bodies = [self.message("user", [*results, *self._blocks(content_with_name(message))])]
        return [legal for body in bodies if body["content"] and (legal := self.legal(body)) is not None]

    def _blocks(self, blocks: Sequence[Block], *, has_media: bool = True) -> list[JsonValue]:
        """Return the content blocks that this format has: no thinking, no blank text; other formats' blocks as text.

        Without ``has_media``, as in an assistant message, media are only named.
        """
        own_blocks = list[JsonValue]()
        for block in blocks:
            if isinstance(block, Media) and has_media:
                own_blocks.append(self.media_block(block))
            elif isinstance(block, Opaque) and block.format == self.format:
                own_blocks.append(block.value)
            elif (text := placeholder_text(block)).strip():
                own_blocks.append(self.text_block(text))
        return own_blocks

    def _repaired_blocks(self, turn: Turn, content: Sequence[JsonValue]) -> list[JsonValue]:
        """Repair each block, and put tool results before the user's other blocks; drop thinking when a call was altered."""
        message = turn.message
        ids = IdsToSend(iter(zip(message.tool_calls, turn.call_ids, strict=True)), iter(turn.result_ids))
        repaired = [self.repaired_block(block, ids) if isinstance(block, dict) else block for block in content]
        if ids.is_altered:
            repaired = [block for block in repaired if not is_thinking(block)]
        if message.tool_results and message.role != "assistant":
            repaired.sort(key=lambda block: not self.is_result(block))
        return repaired

    def with_thinking_first(self, turns: Bodies) -> list[list[JsonObject]]:
        """Return the messages of each turn without the thinking of assistant turns that do not begin with thinking.

        The provider reads consecutive messages of one role as one turn, and wants a turn's thinking first.
        """
        valid, previous, starts_with_thinking = list[list[JsonObject]](), "", False
        for bodies in turns:
            valid.append([])
            for body in bodies:
                role, content = str(body["role"]), blocks_of(body)
                if role == "assistant" and previous != "assistant":
                    starts_with_thinking = is_thinking(next((block for block in content if not is_mark(block)), None))
                is_misplaced = role == "assistant" and not starts_with_thinking and any(map(is_thinking, content))
                if is_misplaced:
                    content = [block for block in content if not is_thinking(block)]
                if content or not is_misplaced:
                    previous = role
                    valid[-1].append({**body, "content": content} if is_misplaced else body)
        return valid

    def with_paired_server_calls(self, turns: Bodies) -> Bodies:
        """Return the messages of each turn without server calls that were cut off, and without results whose call is not there.

        The provider refuses a call without its result once the user has said something else than results
        (https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons). Until then the call may be going on.
        """
        sendable = self._complete_or_going_on([body for bodies in turns for body in bodies])
        if sendable is None:
            return turns
        called, sent, answered = set[str](), set[str](), set[str]()

        def is_sent(block: JsonValue) -> bool:
            call_id, result_id = self.server_ids(block)
            if result_id:
                is_answer = result_id in sent and result_id not in answered
                answered.update({result_id} if is_answer else ())
                return is_answer
            is_new = call_id not in called and call_id in sendable
            called.add(call_id)
            sent.update({call_id} if is_new else ())
            return is_new or not call_id

        paired = list[list[JsonObject]]()
        for turn in turns:
            paired.append([])
            for body in turn:
                content = [block for block in blocks_of(body) if is_sent(block)]
                kept = body if content == blocks_of(body) else self.legal({**body, "content": content})
                paired[-1] += [kept] if kept is not None else []
        return paired

    def _complete_or_going_on(self, bodies: Sequence[JsonObject]) -> frozenset[str] | None:
        """Return the ids of server calls that have their result, or may still get one; None when there are no server blocks.

        A result is in the turn of its call, or in the next one when only results of other calls are between them. A call may still
        get one in the newest message, or when only results follow its turn.
        """
        called, complete, open_turns = set[str](), set[str](), dict[str, int]()
        turn, role, newest, has_server_blocks = 0, "", set[str](), False
        for body in bodies:
            newest = set[str]()
            content = blocks_of(body)
            if body["role"] != role:
                turn, role = turn + 1, str(body["role"])
                open_turns = {call_id: number for call_id, number in open_turns.items() if number >= turn - 2}
            if role == "user" and not (content and all(map(self.is_result, content))):
                open_turns = {}
            for block in content:
                call_id, result_id = self.server_ids(block)
                has_server_blocks = has_server_blocks or bool(call_id or result_id)
                if result_id in open_turns:
                    complete.add(result_id)
                    del open_turns[result_id]
                if call_id and call_id not in called:
                    open_turns[call_id] = turn
                    newest.add(call_id)
                called.add(call_id)
        going_on = {call_id for call_id in open_turns if call_id in newest or role == "user"}
        return frozenset(complete | going_on) if has_server_blocks else None
