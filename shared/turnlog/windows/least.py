"""Lower bounds of the tokens that are sent, without a tokeniser.

A message that is sent unchanged has its stored count. Text that the window makes has a proven lower bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from turnlog.core.json_values import JsonObject, encode_json
from turnlog.core.lazy_dataclass import once
from turnlog.core.messages import Block, Media, Message, Text, Thinking
from turnlog.core.token_bounds import lower_bound_tokens
from turnlog.providers import Codec
from turnlog.providers.token_rules import MESSAGE_OVERHEAD
from turnlog.windows.render import Share


def least_of_share(share: Share, bodies: Sequence[JsonObject], codec: Codec) -> int:
    """Return at most the tokens of a turn's content, as it is sent in ``bodies``.

    `MESSAGE_OVERHEAD` is not included, because a message may hold several turns.
    """
    return _least_as_made(share, codec) if bodies == codec.bodies(share.turn) else _least_of(share, bodies, codec)


@once
def _least_as_made(share: Share, codec: Codec) -> int:
    return _least_of(share, codec.bodies(share.turn), codec)


def _least_of(share: Share, bodies: Sequence[JsonObject], codec: Codec) -> int:
    if not bodies:
        return 0
    entry, message = share.entry, share.turn.message
    is_given = entry is not None and message is entry.message and share.part == "all"
    stored = max(0, entry.event.tokens - MESSAGE_OVERHEAD) if entry is not None and is_given else 0
    is_verbatim = share.turn.format == codec.format and list(bodies) == [share.turn.body]
    # A codec may rename files when it joins all messages.
    if is_given and is_verbatim and not _has(message, files=True):
        return stored
    parsed = [codec.parse(body) for body in bodies]
    if is_given and _count_the_same(message, parsed):
        return stored
    return sum(lower_bound_tokens(text) for sent in parsed for text in _texts(sent))


def least_of_system(text: str) -> int:
    """Return at most the tokens of a system text."""
    return lower_bound_tokens(text) + MESSAGE_OVERHEAD


def least_of_tools(tools: Sequence[JsonObject]) -> int:
    """Return at most the tokens of the tools' compact JSON."""
    return lower_bound_tokens(encode_json(list(tools)).decode("utf-8")) if tools else 0


def _has(message: Message, *, files: bool = False) -> bool:
    """Return whether the message has media. ``files``: count only files, which a codec may rename when it joins all messages."""
    contents = (message.content, *(result.content for result in message.tool_results))
    media = (block for content in contents for block in content if isinstance(block, Media))
    return any(not files or block.kind == "file" for block in media)


def _count_the_same(message: Message, parsed: Sequence[Message]) -> bool:
    """Return whether the parsed bodies have everything that the message's count depends on."""
    return not _has(message) and not any(map(_has, parsed)) and _counted([message]) == _counted(parsed)


def _counted(messages: Sequence[Message]) -> tuple[object, ...]:
    return (
        [message.name for message in messages if message.name],
        [block for message in messages for block in message.content if block != Text("")],
        [(call.name, call.arguments) for message in messages for call in message.tool_calls],
        [(result.name, result.content) for message in messages for result in message.tool_results],
    )


def _texts(message: Message) -> Iterator[str]:
    """Yield the texts of the message that are counted."""
    yield message.name
    yield from _texts_of(message.content)
    for call in message.tool_calls:
        yield call.name
        yield call.arguments
    for result in message.tool_results:
        yield result.name
        yield from _texts_of(result.content)


def _texts_of(content: Sequence[Block]) -> Iterator[str]:
    return (block.text for block in content if isinstance(block, Text | Thinking))
