"""Groups of messages that form one answer. In OpenAI Responses each item of an answer is a message of its own.

Reasoning belongs to the items that follow it (OpenAI refuses one without the other:
https://platform.openai.com/docs/guides/reasoning). Consecutive calls are parallel calls of one turn, except calls that the
provider ran one after the other. A group is in or out of a window as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from turnlog.core.loops import REASONING

if TYPE_CHECKING:
    from turnlog.windows.view import Entry

_FORMAT = "openai_responses"


def item_groups(entries: Sequence[Entry]) -> list[tuple[Entry, ...]]:
    """Return the entries in order, grouped by answer."""
    if not any(entry.event.format == _FORMAT for entry in entries):
        return [(entry,) for entry in entries]
    groups: list[list[Entry]] = []
    for entry in entries:
        if groups and _belongs(groups[-1], entry):
            groups[-1].append(entry)
        else:
            groups.append([entry])
    return [tuple(group) for group in groups]


def is_item(entry: Entry) -> bool:
    """Return whether the entry is an item of an assistant's answer."""
    return entry.event.format == _FORMAT and entry.facts.role == "assistant"


def is_lone_reasoning(group: Sequence[Entry]) -> bool:
    """Return whether the group ends with reasoning, so that the item it belongs to is missing."""
    return is_item(group[-1]) and group[-1].facts.given_role == REASONING


def leader_of(group: Sequence[Entry]) -> Entry:
    """Return the item that stands for the group: the first with a call, else the last."""
    return next((entry for entry in group if entry.facts.calls), group[-1])


def _belongs(group: Sequence[Entry], entry: Entry) -> bool:
    previous = group[-1]
    if not (is_item(previous) and is_item(entry) and previous.loop == entry.loop):
        return False
    is_silent = previous.facts.given_role != "assistant" and not previous.facts.calls
    if is_silent or not (previous.facts.calls and entry.facts.calls):
        return is_silent
    is_reasoned = any(member.facts.given_role == REASONING for member in group)
    return is_reasoned or not (_is_hosted(previous) and _is_hosted(entry))


def _is_hosted(entry: Entry) -> bool:
    return all(call.hosted for call in entry.facts.calls)
