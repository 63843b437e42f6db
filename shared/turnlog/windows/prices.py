"""What a message takes beyond its stored count when it can't be sent as it was given: an upper bound.

The stored count is of the message as given. Renderers may have to add to it: a legal tool name, a separator where blocks
become one text, the mark of an error, a message for each result, arguments wrapped in an object.
"""

from __future__ import annotations

from collections.abc import Iterable

from turnlog.codecs.blocks import marked_error
from turnlog.codecs.openai_chat import legal_tool_name
from turnlog.codecs.turnlog_format import arguments_value
from turnlog.domain.facts import Facts
from turnlog.domain.jsonvalue import encode_json
from turnlog.domain.messages import Block, Media, Message, ToolCall
from turnlog.windows.bounds import upper_bound_tokens

MESSAGE_OVERHEAD = 4
_NAME_HASH = 8  # the hash at the end of a made name, a token a character at the most
_CUT_NAME = 128  # a card holds no more of a name; what is made of the whole one may be longer
_MADE_NAME = 64  # so it is charged for the 57 characters that a made name has at the most
_SEPARATOR = 4  # a newline, and what a cut between two tokens can hide (3 at most were seen)
_PLACEHOLDER = 6
_ERROR_MARK = 6
_SAFE_NAME_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def extra_tokens(facts: Facts, message: Message | None, *, given: str, sent: str) -> int:
    """The most that a message of format ``given`` takes beyond its stored count when it is sent in format ``sent``.

    Without the message only what its facts tell is charged: whoever sends it whole must read it first.
    """
    extra = sum(_made_name(call.name) for call in facts.calls if sent == "openai_chat" and not _is_safe_name(call.name))
    if message is None:
        return extra
    for blocks in (message.content, *(result.content for result in message.tool_results)):
        extra += _SEPARATOR * max(0, len(blocks) - 1) + _PLACEHOLDER * _small_media(blocks)
    extra += sum(_ERROR_MARK for one in message.tool_results if one.is_error and not marked_error(one.text))
    if given != sent:
        made = len(message.tool_results) + bool(message.content or message.tool_calls)
        extra += MESSAGE_OVERHEAD * max(0, made - 1)
        if sent == "turnlog":
            extra += sum(map(_as_object, message.tool_calls))
    return extra


def _small_media(blocks: Iterable[Block]) -> int:
    """Media that may count for less than the text that names them where they can't be sent."""
    return sum(isinstance(block, Media) and block.kind != "image" for block in blocks)


def _as_object(call: ToolCall) -> int:
    sent = encode_json(arguments_value(call)).decode("utf-8")
    return upper_bound_tokens(sent) if sent != call.arguments else 0


def _made_name(name: str) -> int:
    if len(name) >= _CUT_NAME:
        return _MADE_NAME
    return upper_bound_tokens(legal_tool_name(name)[:-_NAME_HASH]) + _NAME_HASH


def _is_safe_name(name: str) -> bool:
    return 0 < len(name) <= 64 and _SAFE_NAME_CHARS.issuperset(name)
