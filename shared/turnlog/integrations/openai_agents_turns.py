"""Items of the OpenAI Agents SDK by turn, and what each turn used: the answers of the SDK's `AdvancedSQLiteSession`.

A turn is a message of the user with all items up to the next one; turn 0 is what comes before the first.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from turnlog.client.model import Session
from turnlog.integrations.openai_agents import Item, item_of
from turnlog.sessions.message_models import StoredMessage

USAGE = "openai_agents_usage"
"""Action of the history entries that hold the usage of a turn."""
_COUNTS = ("requests", "input_tokens", "output_tokens", "total_tokens")
_DETAILS = ("input_tokens_details", "output_tokens_details")
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


def types_by_turn(items: Iterable[TurnItem]) -> dict[int, list[dict[str, str | None]]]:
    """Return type and tool name of each item, by turn."""
    turns = dict[int, list[dict[str, str | None]]]()
    for entry in items:
        turns.setdefault(entry.turn, []).append({"type": entry.type, "tool_name": entry.tool_name})
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


def branch_entry(name: str, session: Session, items: Sequence[TurnItem], *, is_current: bool) -> dict[str, Any]:
    """Return what a list of branches says of one with these items."""
    return {
        "branch_id": name,
        "message_count": len(items),
        "user_turns": sum(entry.type == "user" for entry in items),
        "is_current": is_current,
        "created_at": timestamp(session.info().created_at),
    }


def record_usage(session: Session, branch: str, items: Sequence[TurnItem], usage: Any) -> None:
    """Record the SDK's ``usage`` as that of the newest turn of a branch with these items."""
    start = next(entry for entry in items if entry.turn == items[-1].turn)
    counts = {name: getattr(usage, name) or 0 for name in _COUNTS}
    details = {name: dict(vars(value)) if (value := getattr(usage, name)) else None for name in _DETAILS}
    metadata = {"usage": {**counts, **details}, "branch": branch, "turn_position": start.stored.position}
    session.record(USAGE, metadata=metadata)


def usage_by_turn(session: Session, branch: str, items: Sequence[TurnItem]) -> dict[int, dict[str, Any]]:
    """Return what turns of a branch with these items used: the newest record of each. A branch does not have its parent's."""
    starts = {entry.turn: entry.stored.position for entry in reversed(items)}
    turns = {position: turn for turn, position in starts.items()}
    usage = dict[int, dict[str, Any]]()
    for record in session.history(action=USAGE) if items else ():
        turn = turns.get(record.metadata["turn_position"])
        if turn is not None and record.metadata["branch"] == branch:
            usage.setdefault(turn, record.metadata["usage"])
    return usage


def total(usages: Sequence[dict[str, Any]]) -> dict[str, int] | None:
    """Return the sum of turns' usage and their number; None without any."""
    sums = {name: sum(usage[name] for usage in usages) for name in _COUNTS}
    return {**sums, "total_turns": len(usages)} if usages else None


def timestamp(time: str) -> str:
    """Return a time of RFC 3339 as SQLite writes it."""
    return time[:19].replace("T", " ")
