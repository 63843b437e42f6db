"""Memory engine over Amazon Bedrock AgentCore Memory. docs/how-to/memory-engines.md describes how to set up the memory resource.

A part of a session is stored as events, from which AgentCore makes memory records later. Each session's records have a
namespace of their own: so a session can be erased, and a memory names the session that it came from.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeAlias

from turnlog.core.errors import InvalidInputError, MemoryConfigError, UnavailableError
from turnlog.core.identity import Owner, safe_id
from turnlog.core.json_values import sendable_text
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.limits import batches
from turnlog.core.memory import Memory, MemoryPage, Offloaded, SpokenMessage
from turnlog.engines.aws_clients import Clients, fitting
from turnlog.engines.aws_errors import Service
from turnlog.settings import Settings

_MEMORY = Service(MemoryConfigError, "memory_status", "memory_timeout", "memory_unreadable", "its protocol")
_PLACEHOLDER = re.compile(r"\{([^}]*)\}")
_NAMESPACE = re.compile(r"/[a-zA-Z0-9-_/{}]*")
_SESSION = "s-"
MAX_PAYLOADS = 100
MAX_EVENT_CHARS = 100_000
"""Characters of all texts of an event. The service limits each text to as many."""
MAX_QUERY_CHARS = 10_000
MAX_BATCH = 100
_MAX_PASSES = 20
"""Times that a list is read until everything in it is deleted."""
_ROLES = {"user": "USER", "assistant": "ASSISTANT", "tool": "TOOL"}
_PART, _FIRST, _LAST = "turnlog-part", "turnlog-first", "turnlog-last"
_Place: TypeAlias = tuple[int, int]
_MEMORY_ID = re.compile(
    r"(arn:(aws|aws-cn|aws-us-gov):bedrock-agentcore:[a-z0-9-]+:[0-9]{12}:memory/)?[a-zA-Z][a-zA-Z0-9-_]{0,99}-[a-zA-Z0-9]{10}"
)
_RECORD_ID = re.compile(r"mem-[a-zA-Z0-9-_]{36,46}")


class AgentCoreCalls:
    """Calls AgentCore for one memory resource. The time-out holds for each try."""

    def __init__(self, clients: Clients, memory_id: str, *, timeout_seconds: int) -> None:
        self._clients = clients
        self._memory_id = memory_id
        self._timeout_seconds = timeout_seconds

    def pages(self, operation: str, field: str, **parameters: Any) -> Iterator[list[Any]]:
        """Yield the pages of a list operation; ``field`` names the list in the answer."""
        token: dict[str, str] = {}
        while True:
            answer = self.call(operation, maxResults=100, **token, **parameters)
            with readable():
                page = list(answer[field])
                following = answer.get("nextToken")
            yield page
            if not following or token.get("nextToken") == following:
                return
            token = {"nextToken": str(following)}

    def call(self, operation: str, **parameters: Any) -> Any:
        """Call an operation. Its errors become `UnavailableError` and `MemoryConfigError`."""
        with _MEMORY.asked(f"AgentCore's {operation}"):
            client = self._clients.open("bedrock-agentcore", read_timeout_seconds=fitting(self._timeout_seconds))
            call: Callable[..., Any] = getattr(client, operation)
            return call(memoryId=self._memory_id, **parameters)


@contextmanager
def readable() -> Iterator[None]:
    """Turn errors of reading an answer into `UnavailableError`."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise _MEMORY.no_answer("AgentCore") from None


class Namespaces:
    """Builds and reads the namespaces of people's and sessions' records."""

    def __init__(self, template: str) -> None:
        names = _PLACEHOLDER.findall(template)
        is_whole = names == ["actorId", "sessionId"] and template.endswith("/")
        if (
            not is_whole
            or not _NAMESPACE.fullmatch(template)
            or "}" in template.replace("{actorId}/", "").replace("{sessionId}/", "")
        ):
            message = "TURNLOG_MEMORY_NAMESPACE is no template such as /turnlog/{actorId}/{sessionId}/"
            raise InvalidInputError(message, code="invalid_settings")
        self._actor_path, rest = template.split("{actorId}/")
        self._between = rest.split("{sessionId}/")[0]

    def of_person(self, owner: Owner) -> str:
        return f"{self._actor_path}{actor_id(owner)}/"

    def of_session(self, owner: Owner, session_id: str) -> str:
        return f"{self.of_person(owner)}{self._between}{session_name(session_id)}/"

    def session_in(self, namespaces: Sequence[str]) -> str | None:
        """Return the id of the session that one of a record's namespaces belongs to, or None.

        A session whose id AgentCore can't hold has only a digest there, so None too.
        """
        for namespace in namespaces:
            _, _, below = namespace.removeprefix(self._actor_path).partition("/")
            session = below.removeprefix(self._between).split("/")[0]
            if below.startswith(self._between) and session.startswith(_SESSION):
                name = session.removeprefix(_SESSION)
                return name if safe_id(name) == name else None
        return None


def actor_id(owner: Owner) -> str:
    """Return AgentCore's actor id of an owner. Ids of tenants and users have no colon, so no two owners share one."""
    return f"t-{owner.tenant_id}:u-{owner.user_id}"


def session_name(session_id: str) -> str:
    """Return AgentCore's id of a session: letters, digits, hyphens and underscores, a letter or digit first."""
    return _SESSION + safe_id(session_id)


def below(path: str, records: Iterable[Any]) -> list[Any]:
    """Return only records below a path, whatever AgentCore answered: nobody may read another owner's memories."""
    with readable():
        return [record for record in records if any(name.startswith(path) for name in namespaces_of(record))]


def namespaces_of(record: Any) -> list[str]:
    """Return the namespaces of a record, each with a slash at its end."""
    return [str(name) if str(name).endswith("/") else f"{name}/" for name in record.get("namespaces", ())]


class AgentCoreMemoryEngine:
    """Implements `MemoryEngine` with AgentCore.

    ``namespace`` is the template of the resource's strategies, with ``{actorId}`` followed by ``{sessionId}``. ``clients``
    has the region and its own time-outs.
    """

    name = "agentcore"

    def __init__(self, clients: Clients, memory_id: str, *, namespace: str, timeout_seconds: int) -> None:
        if not _MEMORY_ID.fullmatch(memory_id):
            raise InvalidInputError("TURNLOG_MEMORY_ID is no id of an AgentCore memory", code="invalid_settings")
        self._namespaces = Namespaces(namespace)
        self._calls = AgentCoreCalls(clients, memory_id, timeout_seconds=timeout_seconds)

    @classmethod
    def from_settings(cls, settings: Settings) -> AgentCoreMemoryEngine:
        """Return the engine that the settings describe, in the memory's own region."""
        region = settings.memory_region or _region_in(settings.memory_id) or settings.engine_region
        # Two attempts: requests may wait for a short time only, and jobs are retried anyway.
        clients = Clients(region, settings.endpoint_url, max_attempts=2)
        seconds, namespace = settings.memory_timeout_seconds, settings.memory_namespace
        return cls(clients, settings.memory_id, namespace=namespace, timeout_seconds=seconds)

    def remember(self, part: Offloaded) -> int:
        """Store a part as events; messages that are stored already are skipped. Returns 0: AgentCore makes memories later."""
        actor, session = actor_id(part.owner), session_name(part.session_id)
        label = hashlib.sha256(part.id.encode()).hexdigest()
        stored = list(self._ranges(actor, session, label))
        new_pieces = _pieces(part.read_messages(), stored)
        for pieces in batches(
            new_pieces, lambda piece: len(piece.text), max_size=MAX_EVENT_CHARS, max_count=MAX_PAYLOADS
        ):
            (first, last), time_ms = (pieces[0].place, pieces[-1].place), pieces[0].message.time_ms
            said = [(_ROLES.get(piece.message.role, "OTHER"), piece.text) for piece in pieces]
            self._calls.call(
                "create_event",
                actorId=actor,
                sessionId=session,
                eventTimestamp=datetime.fromtimestamp(time_ms / 1000, UTC),
                payload=[{"conversational": {"role": role, "content": {"text": text}}} for role, text in said],
                clientToken=hashlib.sha256(f"{label} {first} {last}".encode()).hexdigest(),
                metadata={_PART: _value(label), _FIRST: _value(_place_name(first)), _LAST: _value(_place_name(last))},
            )
        return 0

    def known(self, owner: Owner, question: str, *, limit: int, timeout_seconds: float) -> list[Memory]:
        """Return memories for a question. The client's time-out holds; a caller with less time stops waiting."""
        path, query = self._namespaces.of_person(owner), question.strip()[:MAX_QUERY_CHARS]
        if not query:
            return self._newest(owner)[:limit]
        records = list[Any]()
        pages = self._calls.pages(
            "retrieve_memory_records",
            "memoryRecordSummaries",
            namespacePath=path,
            searchCriteria={"searchQuery": query, "topK": min(limit, MAX_BATCH)},
        )
        for page in pages:
            records += below(path, page)
            if len(records) >= limit:
                break
        return [self._memory(record) for record in records[:limit]]

    def page(self, owner: Owner, *, limit: int, after: str | None = None) -> MemoryPage:
        """Return a page of memories, newest first. AgentCore promises no order, so each page reads the whole list."""
        memories = [memory for memory in self._newest(owner) if after is None or _place(memory) < after]
        page = tuple(memories[:limit])
        return MemoryPage(page, _place(page[-1]) if len(memories) > limit else None)

    def forget(self, owner: Owner, memory_ids: Collection[str]) -> None:
        """Delete memories. The events behind them stay, but AgentCore makes no new memories of them."""
        ids = {memory_id for memory_id in memory_ids if _RECORD_ID.fullmatch(memory_id)}
        if ids:
            # An id does not say whose record it names, so only the owner's records are deleted.
            records = self._records(self._namespaces.of_person(owner))
            self._delete_records([record for record in records if record["memoryRecordId"] in ids])

    def erase(self, owner: Owner, session_id: str | None = None, *, position: int | None = None) -> int:
        """Erase all memories and events of an owner or a session; return the number of erased memories.

        AgentCore does not say which message a memory came from, so ``position`` erases the whole session. Events are deleted
        first, so that nothing more is made of them. A memory that AgentCore is making meanwhile may appear later; erasing
        again deletes it.
        """
        actor = actor_id(owner)
        if session_id is not None:
            self._delete_events(actor, session_name(session_id))
            return self._delete_all(self._namespaces.of_session(owner, session_id))
        for page in self._calls.pages("list_sessions", "sessionSummaries", actorId=actor):
            for session in page:
                self._delete_events(actor, str(session["sessionId"]))
        return self._delete_all(self._namespaces.of_person(owner))

    def _ranges(self, actor: str, session: str, label: str) -> Iterator[tuple[_Place, _Place]]:
        """Yield the first and last place of each stored event of a part."""
        only = {"left": {"metadataKey": _PART}, "operator": "EQUALS_TO", "right": {"metadataValue": _value(label)}}
        for page in self._events(actor, session, filter={"eventMetadata": [only]}):
            for event in page:
                with readable():
                    first, last = (event["metadata"][name]["stringValue"] for name in (_FIRST, _LAST))
                    yield _place_named(first), _place_named(last)

    def _events(self, actor: str, session: str, **options: Any) -> Iterator[list[Any]]:
        """Yield pages of a session's events, without what was said."""
        place = {"actorId": actor, "sessionId": session, "includePayloads": False}
        return self._calls.pages("list_events", "events", **place, **options)

    def _delete_events(self, actor: str, session: str) -> None:
        for _ in range(_MAX_PASSES):
            event_ids = [str(event["eventId"]) for page in self._events(actor, session) for event in page]
            if not event_ids:
                return
            for event_id in event_ids:
                try:
                    self._calls.call("delete_event", actorId=actor, sessionId=session, eventId=event_id)
                except MemoryConfigError as error:
                    # Another process has deleted the event. If the memory itself is missing, the next list raises.
                    if error.details.get("memory_status") != 404:
                        raise
        raise UnavailableError("AgentCore still lists events that were deleted")

    def _records(self, path: str) -> list[Any]:
        """Return all records below a path. AgentCore also lists names that merely begin alike; these are left out."""
        pages = self._calls.pages("list_memory_records", "memoryRecordSummaries", namespacePath=path)
        return [record for page in pages for record in below(path, page)]

    def _newest(self, owner: Owner) -> list[Memory]:
        memories = [self._memory(record) for record in self._records(self._namespaces.of_person(owner))]
        return sorted(memories, key=_place, reverse=True)

    def _delete_all(self, path: str) -> int:
        ids = set[str]()
        for _ in range(_MAX_PASSES):
            records = self._records(path)
            if not records:
                return len(ids)
            ids |= {str(record["memoryRecordId"]) for record in records}
            self._delete_records(records)
        raise UnavailableError("AgentCore still lists memories that were deleted")

    def _delete_records(self, records: Sequence[Any]) -> None:
        for start in range(0, len(records), MAX_BATCH):
            batch = records[start : start + MAX_BATCH]
            places = [(record["memoryRecordId"], namespaces_of(record)[0]) for record in batch]
            deleted = [{"memoryRecordId": record_id, "namespace": namespace} for record_id, namespace in places]
            answer = self._calls.call("batch_delete_memory_records", records=deleted)
            # A record that is gone already counts as deleted.
            failed = [record for record in answer.get("failedRecords", []) if record.get("errorCode") != 404]
            if failed:
                raise UnavailableError(f"AgentCore kept {len(failed)} of {len(batch)} memories")

    def _memory(self, record: Any) -> Memory:
        with readable():
            created_at = record.get("timestamp") or record["createdAt"]
            score = record.get("score")
            return Memory(
                id=str(record["memoryRecordId"]),
                text=str(record["content"]["text"]),
                created_ms=round(created_at.timestamp() * 1000),
                session_id=self._namespaces.session_in(namespaces_of(record)),
                score=float(score) if score is not None else None,
            )


@lazy_dataclass(frozen=True, slots=True)
class _Piece:
    """A message, or a piece of a long one. ``place`` is its position and the number of the piece."""

    message: SpokenMessage
    text: str
    place: _Place


def _pieces(messages: Iterable[SpokenMessage], stored: Sequence[tuple[_Place, _Place]]) -> Iterator[_Piece]:
    """Yield the pieces of messages, except for those that are stored already.

    A redaction between two tries changes which messages share an event, so each piece is checked by its place.
    """
    for message in messages:
        text = sendable_text(message.text)
        for start in range(0, len(text), MAX_EVENT_CHARS):
            place = message.position, start // MAX_EVENT_CHARS
            if not any(first <= place <= last for first, last in stored):
                yield _Piece(message, text[start : start + MAX_EVENT_CHARS], place)


def _place_name(place: _Place) -> str:
    return f"{place[0]}-{place[1]}"


def _place_named(name: str) -> _Place:
    position, _, piece = name.partition("-")
    return int(position), int(piece)


def _place(memory: Memory) -> str:
    """Return a memory's sort key in the list."""
    return f"{memory.created_ms:015d} {memory.id}"


def _value(value: str) -> dict[str, str]:
    return {"stringValue": value}


def _region_in(memory_id: str) -> str | None:
    """Return the region in an ARN, or None."""
    parts = memory_id.split(":")
    return parts[3] if parts[0] == "arn" and len(parts) > 3 else None
