"""Read the history of a session from its log, record entries of the caller, and compare two moments.

Each event of the log is one entry, so the history is complete and nothing is pruned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from turnlog.core.calls import Ref
from turnlog.core.errors import TooLargeError
from turnlog.core.events import (
    CREATE,
    END,
    FORK,
    MESSAGE_ADDED,
    POLICY_CHANGE,
    RESTORE,
    REWIND,
    SUMMARY_DISCARDED,
    SUMMARY_PUBLISHED,
    TOOL_CALL,
    TOOL_RECALLED,
    TOOL_RESULT,
    CloseEvent,
    CreateEvent,
    DiscardEvent,
    Event,
    ForkEvent,
    MessageEvent,
    NoteEvent,
    Notes,
    Payload,
    RewindEvent,
    SettingsEvent,
    StateEvent,
    SummaryEvent,
    own_action,
)
from turnlog.core.identity import Owner, check_agent_id
from turnlog.core.json_patch import difference
from turnlog.core.json_values import JsonObject, JsonValue, encode_json, without_none
from turnlog.core.limits import MAX_POSITION, PAGE_BYTES
from turnlog.core.positions import Stretch, subtract
from turnlog.core.session_settings import SessionSettings
from turnlog.core.times import rfc3339
from turnlog.log.commit import Commit, checked_chain
from turnlog.log.commits import Draft, Tail
from turnlog.log.headers import Header, following
from turnlog.log.keys import SessionKeys
from turnlog.log.reading import Located, header_of_moment, located
from turnlog.log.request_keys import request_key
from turnlog.sessions.history_routes import Diff, HistoryEntry, HistoryPage, RecordHistory
from turnlog.sessions.history_routes import Stretch as StretchAnswer
from turnlog.sessions.messages import MAX_LIMIT, ReadMessages
from turnlog.sessions.session_log import LogUseCase, SessionLog
from turnlog.sessions.state_store import state_at, state_key_names

MAX_METADATA_BYTES = 64 * 1024
_FILTERED_COMMITS, _FILTERED_PAGES = 500, 4
"""Commits per page and pages that a filtered request reads at most. Then it answers with a short page and ``next``."""


class ReadHistory(LogUseCase):
    """Use case: list history entries, newest first, at most 4 MB.

    One request to the engine, or at most four with a filter, and those that fetch large diffs.
    """

    def __call__(
        self,
        owner: Owner,
        session_id: str,
        *,
        limit: int = 100,
        before: int | None = None,
        action: str | None = None,
        agent: str | None = None,
    ) -> HistoryPage:
        keys = SessionKeys(owner, session_id)
        if before is not None:
            before = min(before, self._log.commits.tail(keys).header.last + 1)
        has_filter = action is not None or agent is not None
        entries, size, below = list[HistoryEntry](), 0, before if before is not None else MAX_POSITION + 1
        for _ in range(_FILTERED_PAGES if has_filter else 1):
            commits = self._commits(keys, below, _FILTERED_COMMITS if has_filter else limit + 1)
            if before is None and below > MAX_POSITION:
                self._check_exists(keys, commits)
            if not commits:
                return HistoryPage(entries=entries, next=None)
            matching = (
                item
                for item in self._listed(keys, commits)
                if item.position < below and action in (None, item.action) and agent in (None, item.agent_id)
            )
            page_items = list[_ListedEvent]()
            for item in matching:
                size += item.size_bytes
                if len(entries) + len(page_items) == limit or ((entries or page_items) and size > PAGE_BYTES):
                    entries += self._entries(keys, page_items)
                    return HistoryPage(entries=entries, next=int(entries[-1].history_id))
                page_items.append(item)
            entries += self._entries(keys, page_items)
            below = commits[0].header.first
            if below == 1:
                return HistoryPage(entries=entries, next=None)
        return HistoryPage(entries=entries, next=below)

    def _check_exists(self, keys: SessionKeys, newest: Sequence[Commit]) -> None:
        """Raise `NotFoundError` unless the session exists, by its newest commits."""
        if newest:
            self._log.commits.check_alive(keys, newest[-1].header)
        else:
            self._log.commits.tail(keys)

    def _commits(self, keys: SessionKeys, below: int, limit: int) -> list[Commit]:
        """Return the newest commits with an event below a position, oldest first."""
        if below <= 1:
            return []
        commits = checked_chain(next(self._log.commits.stored.back(keys, below - 1, limit=limit), ())[::-1])
        if below <= MAX_POSITION and (not commits or commits[-1].header.last < below - 1):
            raise self._log.commits.missing(keys, below - 1)
        return commits

    def _listed(self, keys: SessionKeys, commits: Sequence[Commit]) -> Iterator[_ListedEvent]:
        """Yield the events of commits, newest first, without their payloads that are stored elsewhere."""
        for commit in reversed(commits):
            messages = {message.event.position: message for message in located(self._log.commits, keys, [commit])}
            events = self._log.commits.events(keys, [commit], fetch=False)
            agent_id = next((event.agent_id for event in events if isinstance(event, StateEvent)), None)
            for event in reversed(events):
                yield _ListedEvent(commit, event, messages.get(event.position), agent_id)

    def _entries(self, keys: SessionKeys, listed: Sequence[_ListedEvent]) -> list[HistoryEntry]:
        out_of_line = [(item.commit, item.position) for item in listed if item.payload is not None]
        by_position = {event.position: event for event in self._log.commits.whole(keys, out_of_line)}
        return [item.entry(by_position.get(item.position, item.event)) for item in listed]


class _ListedEvent:
    """An event of the log that becomes an entry of the history."""

    def __init__(self, commit: Commit, event: Event, message: Located | None, agent_id: str | None) -> None:
        self.commit = commit
        self.event = event
        self._message = message
        self.action = _message_action(message) if message is not None else _ENTRIES[type(event)][0](event)
        self.agent_id = event.agent_id if isinstance(event, StateEvent | NoteEvent) else agent_id
        if isinstance(event, MessageEvent) and event.envelope.agent_id is not None:
            self.agent_id = event.envelope.agent_id

    @property
    def position(self) -> int:
        return self.event.position

    @property
    def payload(self) -> Payload | None:
        """The payload that the entry needs, if it is stored elsewhere. Entries of messages, summaries and settings need none."""
        return self.event.payload if isinstance(self.event, StateEvent | CreateEvent | NoteEvent) else None

    @property
    def size_bytes(self) -> int:
        """Size of the event's part of the entry; 0 for entries that are always small."""
        if isinstance(self.event, MessageEvent | SummaryEvent | SettingsEvent | ForkEvent):
            return 0
        out_of_line = self.payload.size_bytes if self.payload is not None else 0
        return out_of_line + len(encode_json(self.commit.line(self.position)))

    def entry(self, event: Event) -> HistoryEntry:
        """Return the entry. ``event`` is this event with its payload."""
        message, first, last = self._message, event.position, event.position
        if isinstance(event, SummaryEvent):
            first, last = event.first, event.last
        return HistoryEntry(
            history_id=str(event.position),
            agent_id=self.agent_id,
            action=self.action,
            created_at=rfc3339(self.commit.header.time_ms),
            first=first,
            last=last,
            diff=_diff(event),
            metadata=_message_metadata(message) if message is not None else _ENTRIES[type(event)][1](event),
        )


class RecordEntries(LogUseCase):
    """Use case: record an entry of the caller in the history, by one commit that changes nothing else."""

    def __call__(self, owner: Owner, session_id: str, body: RecordHistory, *, key: str | None = None) -> HistoryEntry:
        keys = SessionKeys(owner, session_id)
        own_action(body.action, pointer="/action")
        if body.agent_id is not None:
            check_agent_id(body.agent_id)
        metadata = cast("JsonObject | None", body.metadata)
        if len(encode_json(metadata)) > MAX_METADATA_BYTES:
            raise TooLargeError(f"metadata is over the limit of {MAX_METADATA_BYTES} bytes")
        request = request_key(key, "history", body)

        def compose(tail: Tail) -> Draft:
            header = tail.header
            state = state_at(self._log, keys, header.last_state)
            event = NoteEvent(header.last + 1, body.action, body.agent_id, metadata, state_key_names(state.value))
            return Draft(following(header, kind="h", events=1, now_ms=self._log.clock.now_ms()), (event,))

        written = self._log.commits.write(keys, compose, request)
        commit = written.commit
        if not written.repeated:
            self._log.refresh_listing(keys, written.tail, commit.header)
        (event,) = self._log.commits.whole(keys, [(commit, commit.header.first)])
        return _ListedEvent(commit, event, None, None).entry(event)


def _message_action(message: Located) -> str:
    if message.event.recall is not None:
        return TOOL_RECALLED
    facts = message.facts
    if facts.results:
        return TOOL_RESULT
    return TOOL_CALL if facts.calls else MESSAGE_ADDED


def _diff(event: Event) -> JsonObject | list[JsonValue] | None:
    """Return the change of the state that an event has made, as a Merge Patch or a JSON Patch; None without one."""
    if isinstance(event, CreateEvent):
        return _replacement(event.state) if event.state is not None else None
    if not isinstance(event, StateEvent):
        return None
    return event.patch if event.patch is not None else _replacement(event.full)


def _replacement(value: JsonValue) -> list[JsonValue]:
    return [{"op": "replace", "path": "", "value": value}]


def _message_metadata(message: Located) -> JsonObject:
    """Return the metadata of a message's entry: role, loop, recalls, and the refs of its tool calls."""
    event, facts = message.event, message.facts
    refs: list[JsonValue] = [str(Ref(event.position, index)) for index in range(len(facts.calls))]
    metadata: JsonObject = {"role": facts.given_role, "loop": message.loop or None}
    if event.envelope.parent is not None:
        metadata |= {"parent": event.envelope.parent}
    if event.recall is not None:
        metadata |= {"answers": list(event.recall.answers), "recalled": list(event.recall.places)}
    if event.notes is not None:
        metadata |= _notes_metadata(event.notes)
    return metadata | ({"refs": refs} if refs else {})


def _notes_metadata(notes: Notes) -> JsonObject:
    """Return what an append said beside its messages: its warnings, the provider's usage, and the window that was sent."""
    metadata: JsonObject = {}
    if notes.warnings:
        metadata["warnings"] = [
            {"code": code, "position": position, "pointer": pointer} for code, position, pointer in notes.warnings
        ]
    if notes.usage is not None:
        metadata["usage"] = {"input_tokens": notes.usage[0], "output_tokens": notes.usage[1]}
    if notes.window is not None:
        metadata["window"] = {"position": notes.window[0], "tokens": notes.window[1]}
    return metadata


def _key_names(before: Sequence[str] | None, after: Sequence[str] | None) -> JsonObject:
    return {
        "old_state_keys": list(before) if before is not None else None,
        "new_state_keys": list(after) if after is not None else None,
    }


_ENTRIES: Mapping[type[Event], tuple[Callable[[Any], str], Callable[[Any], JsonObject]]] = {
    StateEvent: (lambda event: event.action, lambda event: _key_names(event.keys_before, event.keys_after)),
    NoteEvent: (
        lambda event: event.action,
        lambda event: {**(event.metadata or {}), **_key_names(event.keys, event.keys)},
    ),
    CreateEvent: (lambda event: CREATE, lambda event: _key_names((), state_key_names(event.state or {}))),
    SummaryEvent: (
        lambda event: SUMMARY_PUBLISHED,
        lambda event: {
            "loops": [event.first_loop, event.last_loop],
            "tokens": event.tokens,
            "summariser": event.summariser,
        },
    ),
    RewindEvent: (
        lambda event: REWIND if event.snapshot_id is None else RESTORE,
        lambda event: without_none({"to": event.to, "snapshot_id": event.snapshot_id}),
    ),
    ForkEvent: (lambda event: FORK, lambda event: {"session_id": event.parent, "at": event.at}),
    DiscardEvent: (lambda event: SUMMARY_DISCARDED, lambda event: {"summary": event.summary}),
    SettingsEvent: (lambda event: POLICY_CHANGE, lambda event: {"changed": list(event.changed)}),
    CloseEvent: (lambda event: END, lambda event: {}),
}
"""Type of event, messages apart -> functions that return the action and the metadata of its entry."""
_ORIGIN = frozenset({"reset_of", "forked_from", "forked_at"})


class CompareMoments:
    """Use case: compare two moments of a session.

    ``to`` may come before ``from_``, and either may be a moment that a rewind has taken out of view.
    """

    def __init__(self, log: SessionLog, read_messages: ReadMessages) -> None:
        self._log = log
        self._read_messages = read_messages

    def __call__(
        self,
        owner: Owner,
        session_id: str,
        *,
        from_: int | str,
        to: int | str | None = None,
        after: int = 0,
        limit: int = MAX_LIMIT,
    ) -> Diff:
        """Return the differences. ``to`` defaults to the head; ``after`` and ``limit`` page through the messages."""
        keys = SessionKeys(owner, session_id)
        start = header_of_moment(self._log.commits, keys, from_, pointer="/query/from")
        head = self._log.commits.tail(keys).header
        end = head if to is None else header_of_moment(self._log.commits, keys, to, pointer="/query/to")
        start_view, end_view = self._view(keys, start), self._view(keys, end)
        page = self._read_messages.among(keys, end, subtract(end_view, start_view), after=after, limit=limit)
        return Diff(
            from_position=start.last,
            to_position=end.last,
            messages=page.messages,
            next=page.next,
            left=[StretchAnswer(first=first, last=last) for first, last in subtract(start_view, end_view)],
            state=self._state_patch(keys, start, end),
            settings=self._changed_settings(keys, start, end),
            summary_from=start.summary.position if start.summary is not None else None,
            summary_to=end.summary.position if end.summary is not None else None,
        )

    def _view(self, keys: SessionKeys, header: Header) -> Sequence[Stretch]:
        return self._log.commits.view(keys, header).up_to(header.last)

    def _state_patch(self, keys: SessionKeys, start: Header, end: Header) -> list[Any]:
        if start.last_state == end.last_state:
            return []
        states = [state_at(self._log, keys, header.last_state).value for header in (start, end)]
        return list(difference(*states))

    def _changed_settings(self, keys: SessionKeys, start: Header, end: Header) -> list[str]:
        if start.last_settings == end.last_settings:
            return []
        old, new = (self._log.settings_at(keys, header).settings for header in (start, end))
        names = (name for name in SessionSettings.__slots__ if not name.endswith("_tokens") and name not in _ORIGIN)
        return [name for name in names if getattr(old, name) != getattr(new, name)]
