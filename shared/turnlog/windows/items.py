"""Messages that come in pieces: in OpenAI Responses each item of an answer is a message of its own.

Reasoning and what the provider ran itself belong to the item that follows (OpenAI refuses one without the other:
https://platform.openai.com/docs/guides/reasoning); calls in a row are parallel calls of one turn. What belongs together is
one group: in or out of a window as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from turnlog.core.loops import REASONING

if TYPE_CHECKING:
    from turnlog.windows.view import Entry

_FORMAT = "openai_responses"


def item_groups(entries: Sequence[Entry]) -> list[tuple[Entry, ...]]:
    """The entries in order, those together that belong together."""
    groups: list[list[Entry]] = []
    for entry in entries:
        if groups and _belongs(groups[-1][-1], entry):
            groups[-1].append(entry)
        else:
            groups.append([entry])
    return [tuple(group) for group in groups]


def is_item(entry: Entry) -> bool:
    return entry.event.format == _FORMAT and entry.facts.role == "assistant"


def is_lone_reasoning(group: Sequence[Entry]) -> bool:
    """Whether nothing follows the reasoning that it belongs to."""
    return is_item(group[-1]) and group[-1].facts.given_role == REASONING


def leader_of(group: Sequence[Entry]) -> Entry:
    """The item that stands for the group: the first that calls, else the last."""
    return next((entry for entry in group if entry.facts.calls), group[-1])


def _belongs(one: Entry, other: Entry) -> bool:
    if not (is_item(one) and is_item(other) and one.loop == other.loop):
        return False
    is_silent = one.facts.given_role != "assistant" and not one.facts.calls
    return is_silent or bool(one.facts.calls and other.facts.calls)
