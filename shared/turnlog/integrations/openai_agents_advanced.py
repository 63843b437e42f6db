"""Branches and usage of an OpenAI Agents SDK session: the counterpart of the SDK's `AdvancedSQLiteSession`.

    from turnlog.integrations.openai_agents_advanced import TurnlogAdvancedSession

    session = TurnlogAdvancedSession(log, "support-42")
    result = await Runner.run(agent, "Where is my order?", session=session)
    await session.store_run_usage(result)
    await session.create_branch_from_turn(1, "politer")

A branch is a fork: a session of its own, with windows, search and summaries.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from turnlog.client.async_calls import reads, to_end, writes
from turnlog.client.model import Session
from turnlog.core.errors import NotFoundError
from turnlog.integrations.openai_agents import Item, TurnlogSession, batch_end, in_batch, item_of, newest_first
from turnlog.integrations.sessions import KeptDocuments
from turnlog.sessions.message_models import StoredMessage

if TYPE_CHECKING:
    from agents.result import RunResultBase

_MAIN, _BRANCHES = "main", "openai_agents/branches"
_USAGE = "openai_agents_usage"
"""Action of the history entries that hold the usage of a turn."""
_PREVIEW_CHARS = 100
_BUILT_IN = ("apply_patch", "code_interpreter", "computer", "file_search", "shell", "web_search")
_NAMED_BY_TYPE = {
    **{f"{tool}_call": f"{tool}_call" for tool in _BUILT_IN},
    **dict.fromkeys(("tool_search_call", "tool_search_output"), "tool_search"),
}
_OF_SERVERS = {"mcp_call", "mcp_approval_request"}
_CALLS = {*_NAMED_BY_TYPE, *_OF_SERVERS, "custom_tool_call", "function_call", "tool_call"} - {"tool_search_output"}
_COUNTS = ("requests", "input_tokens", "output_tokens", "total_tokens")
_DETAILS = ("input_tokens_details", "output_tokens_details")


class _Branches(NamedTuple):
    """The branch that was switched to last, the session ids of all but ``main``, and how often the session was cleared."""

    current: str = _MAIN
    sessions: Mapping[str, str] = {}
    clears: int = 0

    def added(self, name: str | None, turn: int, session_id: str) -> _Branches:
        """Return the branches with a new one, which is current. Raises `ValueError` when its name was used before."""
        used = {_MAIN, *self.sessions}
        if name in used:
            raise ValueError(f"Branch ID '{name}' has already been used. Choose a new branch ID.")
        made = f"branch_from_turn_{turn}_{int(time.time())}"
        made_names = (made, *(f"{made}_{number}" for number in range(2, len(used) + 3)))
        new = name or next(made for made in made_names if made not in used)
        return self._replace(current=new, sessions={**self.sessions, new: session_id})


class TurnlogAdvancedSession(TurnlogSession):
    """A `TurnlogSession` with branches and usage by turn: methods and answers of the SDK's `AdvancedSQLiteSession`.

    ``main`` is the session itself. An object begins on the branch that was switched to last, by any process, and stays on its
    own until it switches or the session is cleared. As in the SDK a branch without items does not exist, and the name of a
    branch can be used once. With ``ttl_days``, ``main`` expires after all branches that get items, and another one by itself.
    """

    _place: tuple[str, int] | None = None
    """The branch that this object is on, and the clears until then."""

    @reads
    def get_items(self, limit: int | None = None, branch_id: str | None = None) -> list[Item]:
        """Return the newest ``limit`` items of a branch, oldest first. See `TurnlogSession.get_items`."""
        return self._items_of(branch_id, self._limit(limit))

    @writes
    def store_run_usage(self, result: RunResultBase) -> None:
        """Record what a run used as the usage of the current branch's newest turn, in the history of its session.

        Usage that is stored again for a turn replaces the earlier one.
        """
        branch, session = self._find(None)
        items, usage = self._turn_items(branch), result.context_wrapper.usage
        if session is not None and items and usage is not None:
            start = next(entry for entry in items if entry.turn == items[-1].turn)
            counts = {name: getattr(usage, name) or 0 for name in _COUNTS}
            details = {name: dict(vars(value)) if (value := getattr(usage, name)) else None for name in _DETAILS}
            metadata = {"usage": {**counts, **details}, "branch": branch, "turn_position": start.stored.position}
            session.record(_USAGE, metadata=metadata)

    @writes
    def create_branch_from_turn(self, turn_number: int, branch_name: str | None = None) -> str:
        """Fork the current branch before a turn, switch to the new branch, and return its name.

        Raises `ValueError` when the branch has no such turn of the user, or when the name is blank or was used before.
        """
        if branch_name is not None and not branch_name.strip():
            raise ValueError("Branch name cannot be empty")
        branch, parent = self._find(None)
        items = self._turn_items(branch)
        starts = [entry.stored for entry in items if (entry.turn, entry.type) == (turn_number, "user")]
        if parent is None or not starts:
            raise ValueError(f"Turn {turn_number} does not contain a user message in branch '{branch}'")
        place, before = self._place, starts[0].position - 1
        # Items of a batch are shown when its last part is in the log. The fork has that part too, out of view.
        fork = parent.fork(at=batch_end(parent, starts[0]) if in_batch(starts[0]) else before)
        if in_batch(starts[0]):
            fork.rewind(before)

        def add(branches: _Branches) -> _Branches:
            if place != (branch, branches.clears):
                raise ValueError(f"Session '{self.session_id}' was cleared meanwhile")
            return branches.added(branch_name, turn_number, fork.id)

        try:
            branches = self._change(add)
        except ValueError:
            fork.erase()
            raise
        self._place = branches.current, branches.clears
        return branches.current

    async def create_branch_from_content(self, search_term: str, branch_name: str | None = None) -> str:
        """Fork the current branch before its first turn that contains a text. See `create_branch_from_turn`."""
        matching = await self.find_turns_by_content(search_term)
        if not matching:
            raise ValueError(f"No user turns found containing '{search_term}'")
        return await self.create_branch_from_turn(matching[0]["turn"], branch_name)

    def _switch(self, branch_id: str) -> None:
        """Make a branch the current one. Raises `ValueError` when there is no such branch."""
        if not self._items_of(branch_id, 1):
            raise ValueError(f"Branch '{branch_id}' does not exist")
        branches = self._change(lambda branches: branches._replace(current=branch_id))
        self._place = branch_id, branches.clears

    switch_to_branch = to_end(_switch)

    @writes
    def delete_branch(self, branch_id: str, force: bool = False) -> None:
        """Erase the session of a branch for good. With ``force`` also the current branch; ``main`` is then the current one.

        Raises `ValueError` for ``main``, for an unknown branch, and without ``force`` for the current one.
        """
        if not branch_id.strip():
            raise ValueError("Branch ID cannot be empty")
        if branch_id == _MAIN:
            raise ValueError("Cannot delete the 'main' branch")
        is_current = branch_id == self._find(None)[0]
        if is_current and not force:
            raise ValueError(f"Cannot delete current branch '{branch_id}'. Use force=True or switch branches first")
        if not self._items_of(branch_id, 1):
            raise ValueError(f"Branch '{branch_id}' does not exist")
        if is_current:
            self._switch(_MAIN)
        self.session(branch_id).erase()
        self._change(lambda branches: branches._replace(current=_MAIN) if branches.current == branch_id else branches)

    @reads
    def list_branches(self) -> list[dict[str, Any]]:
        """Return ``branch_id``, ``message_count``, ``user_turns``, ``is_current`` and ``created_at`` of each branch."""
        current, _ = self._find(None)
        items = {name: self._turn_items(name) for name in (_MAIN, *self._branches().sessions)}
        return [
            {
                "branch_id": name,
                "message_count": len(entries),
                "user_turns": sum(entry.type == "user" for entry in entries),
                "is_current": name == current,
                "created_at": _timestamp(self.session(name).info().created_at),
            }
            for name, entries in items.items()
            if entries
        ]

    @reads
    def get_conversation_turns(self, branch_id: str | None = None) -> list[dict[str, Any]]:
        """Return the user's messages in a branch, with their ``content`` cut to 100 characters."""
        return _user_turns(self._turn_items(branch_id))

    @reads
    def find_turns_by_content(self, search_term: str, branch_id: str | None = None) -> list[dict[str, Any]]:
        """Return the user's messages in a branch that contain a text, in capitals or not."""
        return _user_turns(self._turn_items(branch_id), search_term)

    @reads
    def get_conversation_by_turns(self, branch_id: str | None = None) -> dict[int, list[dict[str, str | None]]]:
        """Return ``type`` and ``tool_name`` of a branch's items, by turn."""
        types = dict[int, list[dict[str, str | None]]]()
        for entry in self._turn_items(branch_id):
            types.setdefault(entry.turn, []).append({"type": entry.type, "tool_name": entry.tool_name})
        return types

    @reads
    def get_tool_usage(self, branch_id: str | None = None) -> list[tuple[str | None, int, int]]:
        """Return the tools that were called in a branch: name, number of calls, and turn."""
        items = self._turn_items(branch_id)
        searched = {entry.turn for entry in items if entry.type == "tool_search_call"}
        calls = Counter(
            (entry.turn, entry.tool_name or "")
            for entry in items
            # A search of tools without a call counts by its output.
            if entry.type in _CALLS or (entry.type == "tool_search_output" and entry.turn not in searched)
        )
        return [(name or None, calls[turn, name], turn) for turn, name in sorted(calls)]

    @reads
    def get_session_usage(self, branch_id: str | None = None) -> dict[str, int] | None:
        """Return the usage of a branch, or of all branches together, with ``total_turns``; None when none is stored."""
        names = [branch_id] if branch_id else [_MAIN, *self._branches().sessions]
        usages = [usage for name in names for usage in self._usage(name).values()]
        sums = {name: sum(usage[name] for usage in usages) for name in _COUNTS}
        return {**sums, "total_turns": len(usages)} if usages else None

    @reads
    def get_turn_usage(
        self, user_turn_number: int | None = None, branch_id: str | None = None
    ) -> list[dict[str, Any]] | dict[str, Any]:
        """Return the usage of a turn, empty when none is stored; without a turn, a list of all with ``user_turn_number``."""
        usage = self._usage(branch_id)
        if user_turn_number is not None:
            return usage.get(user_turn_number, {})
        return [{"user_turn_number": turn, **usage[turn]} for turn in sorted(usage)]

    def session(self, branch_id: str | None = None) -> Session:
        """Return the Turnlog session of a branch, by default the current one, for windows, search and summaries.

        Raises `ValueError` when there is no such branch.
        """
        name, session = self._find(branch_id)
        if session is None:
            raise ValueError(f"Branch '{name}' does not exist")
        return session

    def _session(self) -> Session:
        return self.session()

    def _created(self) -> Session:
        if self._find(None)[0] == _MAIN:
            return super()._created()
        if self._settings.get("ttl_days"):
            self._change(lambda branches: branches)  # keeps the session of `main` from expiring: it lists the branches
        return self.session()

    def _find(self, branch_id: str | None) -> tuple[str, Session | None]:
        """Return the name of a branch, by default the current one, and its session; None when there is no such branch."""
        branches = self._branches()
        if self._place is None or self._place[1] != branches.clears:
            self._place = branches.current, branches.clears
        name = self._place[0] if branch_id is None else branch_id
        if name == _MAIN:
            return name, super()._session()
        return name, self._log.sessions.of(branches.sessions[name]) if name in branches.sessions else None

    def _branches(self) -> _Branches:
        return _Branches(**(self._kept.read(_BRANCHES) or {}))

    def _change(self, change: Callable[[_Branches], _Branches]) -> _Branches:
        """Replace the stored branches by what ``change`` makes of them, and return these."""
        return _Branches(**self._kept.change(_BRANCHES, lambda old: change(_Branches(**(old or {})))._asdict()))

    @property
    def _kept(self) -> KeptDocuments:
        return KeptDocuments(self._log, super()._session().id)

    def _items_of(self, branch_id: str | None, limit: int | None) -> list[Item]:
        _, session = self._find(branch_id)
        return self._items(session, limit) if session is not None else []

    def _turn_items(self, branch_id: str | None) -> list[TurnItem]:
        """Return the items of a branch with their turns, oldest first; none when there is no such branch."""
        _, session = self._find(branch_id)
        items, turn = list[TurnItem](), 0
        for stored in reversed(list(newest_first(session)) if session is not None else []):
            item = item_of(stored)
            turn += item.get("role") == "user"
            items.append(TurnItem(turn, stored, item))
        return items

    def _clear(self) -> None:
        with suppress(NotFoundError):
            super()._session().rewind(1)
            branches = self._change(lambda old: old._replace(current=_MAIN, clears=old.clears + 1))
            for session_id in branches.sessions.values():
                with suppress(NotFoundError):
                    self._log.sessions.of(session_id).rewind(1)

    def _usage(self, branch_id: str | None) -> dict[int, dict[str, Any]]:
        """Return what turns of a branch used: the newest record of each. A branch does not have its parent's."""
        branch, session = self._find(branch_id)
        starts = {entry.turn: entry.stored.position for entry in reversed(self._turn_items(branch))}
        turn_at, usage = {position: turn for turn, position in starts.items()}, dict[int, dict[str, Any]]()
        for record in session.history(action=_USAGE) if session is not None and starts else ():
            turn = turn_at.get(record.metadata["turn_position"])
            if turn is not None and record.metadata["branch"] == branch:
                usage.setdefault(turn, record.metadata["usage"])
        return usage


class TurnItem(NamedTuple):
    """An item, and the number of its turn: a message of the user with all items up to the next one. Turn 0 is before the first."""

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


def _user_turns(items: Iterable[TurnItem], term: str | None = None) -> list[dict[str, Any]]:
    """Return the user's messages, cut to a preview, or whole those that contain a term, in capitals or not."""
    pattern = re.compile(re.escape(term or ""), re.IGNORECASE | re.ASCII)
    turns = list[dict[str, Any]]()
    for entry in items:
        if entry.type == "user" and (term is None or any(map(pattern.search, entry.texts))):
            content = entry.item.get("content", "")
            text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
            cut = f"{text[:_PREVIEW_CHARS]}..." if term is None and len(text) > _PREVIEW_CHARS else text
            turn = {"turn": entry.turn, "content": cut, "full_content": content}
            turns.append({**turn, "timestamp": _timestamp(entry.stored.created_at), "can_branch": True})
    return turns


def _timestamp(time: str) -> str:
    """Return a time of RFC 3339 as SQLite writes it."""
    return time[:19].replace("T", " ")
