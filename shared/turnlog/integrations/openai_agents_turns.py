"""Items of the OpenAI Agents SDK by turn, as the answers of the SDK's `AdvancedSQLiteSession` have them.

A turn is a message of the user with all items up to the next one; turn 0 is what comes before the first.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from turnlog.integrations.openai_agents import Item, item_of
from turnlog.sessions.message_models import StoredMessage

_PREVIEW_CHARS = 100
_BUILT_IN = ("apply_patch", "code_interpreter", "computer", "file_search", "shell", "web_search")
_NAMED_BY_TYPE = {
    **{f"{tool}_call": f"{tool}_call" for tool in _BUILT_IN},
    **dict.fromkeys(("tool_search_call", "tool_search_output"), "tool_search"),
}
_OF_SERVERS = {"mcp_call", "mcp_approval_request"}
_CALLS = {*_NAMED_BY_TYPE, *_OF_SERVERS, "custom_tool_call", "function_call", "tool_call"} - {"tool_search_output"}


class TurnItem(NamedTuple):
    """An item and the number of its turn."""

    turn: int
    stored: StoredMessage
    item: Item

    @property
    def type(self) -> str:
        role = self.item.get("role")
        return role if role in ("user", "assistant") else str(self.item.get("type") or "other")

    @property
    def tool_name(self) -> str | None:
        kind, name = str(self.item.get("type")), self.item.get("name")
        if kind in _NAMED_BY_TYPE:
            return _NAMED_BY_TYPE[kind]
        space = self.item.get("server_label") if kind in _OF_SERVERS else self.item.get("namespace")
        return ".".join(str(part) for part in (space if space != name else None, name) if part) or None

    @property
    def texts(self) -> list[str]:
        content = self.item.get("content", "")
        parts = content if isinstance(content, list) else [{"text": content}]
        texts = [part.get("text", "") for part in parts if isinstance(part, dict)]
        return [text for text in texts if isinstance(text, str)]


def turn_items(messages: Iterable[StoredMessage]) -> list[TurnItem]:
    """Return the items of messages, oldest first, with their turns."""
    items, turn = list[TurnItem](), 0
    for stored in messages:
        item = item_of(stored)
        turn += item.get("role") == "user"
        items.append(TurnItem(turn, stored, item))
    return items


def user_turns(items: Iterable[TurnItem], term: str | None = None) -> list[dict[str, Any]]:
    """Return the user's messages, cut to a preview, or whole those that contain a term, in capitals or not."""
    pattern = re.compile(re.escape(term or ""), re.IGNORECASE | re.ASCII)
    turns = list[dict[str, Any]]()
    for entry in items:
        if entry.type == "user" and (term is None or any(map(pattern.search, entry.texts))):
            content = entry.item.get("content", "")
            text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
            cut = f"{text[:_PREVIEW_CHARS]}..." if term is None and len(text) > _PREVIEW_CHARS else text
            time = timestamp(entry.stored.created_at)
            turns.append(
                {"turn": entry.turn, "content": cut, "full_content": content, "timestamp": time, "can_branch": True}
            )
    return turns


def tool_calls(items: Sequence[TurnItem]) -> list[tuple[str | None, int, int]]:
    """Return the tools that were called: name, number of calls, and turn. A search of tools without a call counts by its output."""
    searched = {entry.turn for entry in items if entry.type == "tool_search_call"}
    calls = Counter(
        (entry.turn, entry.tool_name or "")
        for entry in items
        if entry.type in _CALLS or (entry.type == "tool_search_output" and entry.turn not in searched)
    )
    return [(name or None, calls[turn, name], turn) for turn, name in sorted(calls)]


def timestamp(time: str) -> str:
    """Return a time of RFC 3339 as SQLite writes it."""
    return time[:19].replace("T", " ")
