"""Upper bounds of the tokens that the parts of a view take, from stored counts and without a tokeniser.

A message's stored count is that of the message as it was appended. A renderer may have to add a legal tool name, a separator where
blocks become one text, the mark of an error, a message for each result, or an object around arguments.
"""

from __future__ import annotations

from dataclasses import replace

from turnlog.core.calls import CARD_NAME
from turnlog.core.json_values import encode_json
from turnlog.core.lazy_dataclass import once
from turnlog.core.messages import Media, Message, ToolCall, ToolResult
from turnlog.core.token_bounds import upper_bound_tokens
from turnlog.providers.alternation import CONTINUE, FIRST_USER
from turnlog.providers.bedrock_converse import DOCUMENT_TEXT, document_name
from turnlog.providers.blocks import (
    SYSTEM_KIND,
    arguments_value,
    content_with_name,
    escaped,
    fenced,
    is_safe_name,
    legal_tool_name,
    marked_error,
    plain_text,
    text_with_placeholders,
    tool_input,
)
from turnlog.providers.openai_chat import MAX_ID, RESULT_OF
from turnlog.providers.shapes import NO_OUTPUT
from turnlog.providers.token_rules import MESSAGE_OVERHEAD, count_image_of_claude, count_media
from turnlog.windows.digests import Tally, shown_pieces
from turnlog.windows.text import NOTHING_SAID, left_out_line, most_tokens_of_blocks
from turnlog.windows.view import OF_ITEMS, OLDER_TOO, Loop, Unit, WindowDraft

_NAME_HASH = 8  # the hash at the end of a made name, a token a character at the most
_MADE_NAME = 64  # for a name that a card may have cut: what is made of it has 57 characters at the most
_SEPARATOR = 4  # a newline, and what a cut between two tokens can hide (3 at most were seen)
_PLACEHOLDER = 6
_ERROR_MARK = 6
FENCING = ("anthropic", "bedrock_converse")
"""Formats without system messages in the conversation; there they are sent as fenced user text."""
_WITH_OBJECTS = ("turnlog", "ai_sdk", *FENCING)
_EMPTY_FENCE = upper_bound_tokens(fenced(SYSTEM_KIND, ""))
_NO_OUTPUT = upper_bound_tokens(NO_OUTPUT)
_RESULT_OF = upper_bound_tokens(RESULT_OF) + MAX_ID
_DOCUMENT = upper_bound_tokens(DOCUMENT_TEXT) + upper_bound_tokens(" (9999)")
_LONGEST_LINE = left_out_line(loops=999_999_999_999, messages=999_999_999_999)
LINE_TOKENS = upper_bound_tokens(_LONGEST_LINE) + MESSAGE_OVERHEAD
NOTHING_SAID_TOKENS = upper_bound_tokens(NOTHING_SAID) + MESSAGE_OVERHEAD


def redacted_tokens(message: Message) -> int:
    """Return the most tokens of a redacted message. Its stored count is that of the text before, which may have been shorter."""
    texts = [message.name, message.text]
    texts += [text for call in message.tool_calls for text in (call.name, call.arguments)]
    texts += [text for result in message.tool_results for text in (result.name, result.text)]
    return MESSAGE_OVERHEAD + sum(map(upper_bound_tokens, texts))


def extra_tokens(message: Message, *, stored_format: str, sent: str) -> int:
    """Return the most that a message of ``stored_format`` takes beyond its stored count when it is sent in format ``sent``."""
    names = [call.name for call in message.tool_calls] if sent != "turnlog" else []
    extra = sum(_made_name(name) for name in names if not is_safe_name(name))
    results = message.tool_results
    for blocks in (message.content, *(result.content for result in results)):
        extra += _SEPARATOR * max(0, len(blocks) - 1)
        extra += sum(_of_media(block, sent) for block in blocks if isinstance(block, Media))
    extra += sum(_ERROR_MARK for result in results if result.is_error and not marked_error(result.text))
    if stored_format != sent or sent in FENCING:
        extra += MESSAGE_OVERHEAD * max(0, _bodies(message, sent) - 1)
    if sent in _WITH_OBJECTS and (stored_format != sent or sent in FENCING):
        extra += sum(_as_object(call, sent) for call in message.tool_calls)
    is_named = content_with_name(message, has_names=sent == "openai_chat") is not message.content
    if is_named and sent != "turnlog":
        extra += _SEPARATOR
    if sent in FENCING:
        extra += _NO_OUTPUT * len(results)
    extra += most_tokens_of_blocks(message, (sent,) if sent in FENCING else ())
    if sent in FENCING and message.role == "system":
        extra += _in_fence(message)
    if sent == "openai_chat":
        extra += sum(_behind_results(result) for result in results)
    return extra


def frame_tokens(sent: str) -> int:
    """Return the most tokens of the neutral messages that a format may need: at the beginning, and behind an answer."""
    lines = (FIRST_USER, CONTINUE) if sent in FENCING else (FIRST_USER,) if sent in (*OF_ITEMS, "ai_sdk") else ()
    return sum(upper_bound_tokens(line) + MESSAGE_OVERHEAD for line in lines)


def _bodies(message: Message, sent: str) -> int:
    """Return the most messages that one message becomes."""
    if sent in OF_ITEMS:
        return bool(message.content) + len(message.tool_calls) + len(message.tool_results)
    return len(message.tool_results) + bool(message.content or message.tool_calls) + bool(message.closing)


def _in_fence(message: Message) -> int:
    """Return the most that a system message takes beyond its count as fenced user text.

    At the beginning of a conversation it joins the system text instead.
    """
    text = text_with_placeholders(message.content)
    escaped_tokens = upper_bound_tokens(escaped(text)) if escaped(text) != text else 0
    return escaped_tokens + _EMPTY_FENCE + _SEPARATOR


def _of_media(media: Media, sent: str) -> int:
    """Return the most that media take beyond their count: for a label in their place, or for a form that lacks a field."""
    extra = 0 if media.kind == "image" else _PLACEHOLDER
    if sent in FENCING and media.kind == "image":
        most = max(count_image_of_claude(media), count_media(replace(media, detail=None)))
        extra += max(0, most - count_media(media))
    if sent == "openai_chat" and (text := plain_text(media)):
        extra += upper_bound_tokens(fenced("file", text))
    if sent == "bedrock_converse" and media.kind == "file":
        extra += upper_bound_tokens(document_name(media.name or "")) + _DOCUMENT
    return extra


def _behind_results(result: ToolResult) -> int:
    """Return the most that a result's media take where they are sent in a message of the user: label, names, and that message."""
    media = sum(isinstance(block, Media) for block in result.content)
    return media * _PLACEHOLDER + _RESULT_OF + MESSAGE_OVERHEAD if media else 0


def _as_object(call: ToolCall, sent: str) -> int:
    value = arguments_value(call) if sent == "turnlog" else tool_input(call)
    text = encode_json(value).decode("utf-8")
    return upper_bound_tokens(text) if text != call.arguments else 0


def _made_name(name: str) -> int:
    if len(name) >= CARD_NAME:
        return _MADE_NAME
    return upper_bound_tokens(legal_tool_name(name)[:-_NAME_HASH]) + _NAME_HASH


@once
def bare_tokens(loop: Loop) -> int:
    """Return the most that a loop takes at its level, without its notes: notes share their values."""
    if loop.level == "whole":
        return sum(unit.tokens for unit in loop.units if unit.level == "whole")
    return sum(piece.tokens for piece in shown_pieces(loop))


def is_evicted(loop: Loop, unit: Unit) -> bool:
    """Return whether a unit that could be sent is neither shown nor digested, nor covered by a summary."""
    return unit.level == "out" or (loop.level == "out" and not unit.pinned and not loop.is_covered)


def has_evicted(view: WindowDraft) -> bool:
    """Return whether something that could be sent is neither shown nor digested."""
    return bool(view.unread) or any(map(_evicts, view.loops))


@once
def _evicts(loop: Loop) -> bool:
    return any(is_evicted(loop, unit) for unit in loop.units)


def takes_line(view: WindowDraft) -> bool:
    """Return whether the omission notice is sent, also for older messages that are never sent."""
    oldest = oldest_sent(view) if view.set_aside else 0
    return has_evicted(view) or any(entry.loop < oldest for entry, _ in view.set_aside)


def oldest_sent(view: WindowDraft) -> int:
    """Return the number of the first loop that is not out with all older ones."""
    current = view.loops[-1].number if view.loops else 0
    return next((loop.number for loop in view.past if not _is_out_with_older(loop)), current)


def _is_out_with_older(loop: Loop) -> bool:
    """Return whether a loop, but for pinned messages, is out for a reason for which all older loops are out, too."""
    left_out = [unit for unit in loop.units if not unit.pinned]
    if left_out and all(unit.level == "out" and unit.reason in OLDER_TOO for unit in left_out):
        return True
    return loop.level == "out" and (not loop.number or loop.is_covered or loop.reason in OLDER_TOO)


def says_nothing(view: WindowDraft) -> bool:
    """Return whether the view has no message at all, which no provider accepts."""
    is_empty = (
        not view.preamble and view.summary is None and not any(shown_pieces(loop) or loop.notes for loop in view.loops)
    )
    return is_empty and not view.has_system and not has_evicted(view)


def message_tokens(view: WindowDraft) -> int:
    """Return the most that the view's messages take, with the summary and the line about omitted messages."""
    if says_nothing(view):
        return NOTHING_SAID_TOKENS
    loops = sum(map(bare_tokens, view.loops)) + Tally().add(*(note for loop in view.loops for note in loop.notes))
    return view.preamble_tokens + view.summary_tokens + loops + (LINE_TOKENS if takes_line(view) else 0)
