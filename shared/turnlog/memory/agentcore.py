"""Amazon Bedrock AgentCore Memory. docs/memory-engines.md says how the memory resource must be set up.

A part of a session is kept as events, of which AgentCore makes memory records later, by itself. The records of a session stand
in a namespace of its own: so a session can be erased, and a memory tells which one it came from.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeAlias

from turnlog.core.errors import InvalidInputError, MemoryConfigError, UnavailableError
from turnlog.core.identity import Owner
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.memory import Memory, MemoryPage, Offloaded, SpokenMessage
from turnlog.engines.aws_clients import Clients, fitting
from turnlog.engines.aws_invoke import Service

_MEMORY = Service(MemoryConfigError, "memory_status", "memory_timeout", "memory_unreadable", "its protocol")


class AgentCoreCalls:
    """What is asked of one memory resource. The time-out is that of each try."""

    def __init__(self, clients: Clients, memory_id: str, *, timeout_seconds: int) -> None:
        self._clients = clients
        self._memory_id = memory_id
        self._timeout_seconds = timeout_seconds

    def pages(self, operation: str, field: str, **asked: Any) -> Iterator[list[Any]]:
        token: dict[str, str] = {}
        while True:
            answer = self.call(operation, maxResults=100, **token, **asked)
            with readable():
                page = list(answer[field])
                following = answer.get("nextToken")
            yield page
            if not following or token.get("nextToken") == following:
                return
            token = {"nextToken": str(following)}

    def call(self, operation: str, **asked: Any) -> Any:
        with _MEMORY.asked(f"AgentCore's {operation}"):
            client = self._clients.open("bedrock-agentcore", read_timeout_seconds=fitting(self._timeout_seconds))
            call: Callable[..., Any] = getattr(client, operation)
            return call(memoryId=self._memory_id, **asked)


@contextmanager
def readable() -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise unreadable() from None


def unreadable() -> UnavailableError:
    return _MEMORY.no_answer("AgentCore")


_PLACEHOLDER = re.compile(r"\{([^}]*)\}")
_NAMESPACE = re.compile(r"/[a-zA-Z0-9-_/{}]*")
_SESSION = "s-"


class Namespaces:
    """Where the records of people and sessions stand."""

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
        """The session whose records stand in a namespace."""
        for namespace in namespaces:
            _, _, below = namespace.removeprefix(self._actor_path).partition("/")
            session = below.removeprefix(self._between).split("/")[0]
            if below.startswith(self._between) and session.startswith(_SESSION):
                return session.removeprefix(_SESSION)
        return None


def actor_id(owner: Owner) -> str:
    """Tenant and user, neither of which has a colon in its id: no two owners share one."""
    return f"t-{owner.tenant_id}:u-{owner.user_id}"


def session_name(session_id: str) -> str:
    """AgentCore's ids begin with a letter or a digit; ours need not."""
    return _SESSION + session_id


def below(path: str, records: Iterable[Any]) -> list[Any]:
    """Those that stand below a path, whatever else was answered: nobody is told of another."""
    with readable():
        return [record for record in records if any(name.startswith(path) for name in namespaces_of(record))]


def namespaces_of(record: Any) -> list[str]:
    return [str(name) if str(name).endswith("/") else f"{name}/" for name in record.get("namespaces", ())]


MAX_PAYLOADS = 100
MAX_EVENT_CHARS = 100_000
"""Of all texts of an event; of one text it is the service's own limit."""
MAX_QUERY_CHARS = 10_000
MAX_BATCH = 100
_MAX_PASSES = 20
"""So often a list is asked for until nothing is left in it."""
_ROLES = {"user": "USER", "assistant": "ASSISTANT", "tool": "TOOL"}
_PART, _FIRST, _LAST = "turnlog-part", "turnlog-first", "turnlog-last"
_Place: TypeAlias = tuple[int, int]
_MEMORY_ID = re.compile(
    r"(arn:(aws|aws-cn|aws-us-gov):bedrock-agentcore:[a-z0-9-]+:[0-9]{12}:memory/)?[a-zA-Z][a-zA-Z0-9-_]{0,99}-[a-zA-Z0-9]{10}"
)
_RECORD_ID = re.compile(r"mem-[a-zA-Z0-9-_]{36,46}")


class AgentCoreMemoryEngine:
    """Implements `MemoryEngine`. ``namespace`` is the template that the resource's strategies have, with ``{actorId}`` and
    behind it ``{sessionId}``; ``clients`` has the region and the time-outs of its own."""

    def __init__(self, clients: Clients, memory_id: str, *, namespace: str, timeout_seconds: int) -> None:
        if not _MEMORY_ID.fullmatch(memory_id):
            raise InvalidInputError("TURNLOG_MEMORY_ID is no id of an AgentCore memory", code="invalid_settings")
        self._namespaces = Namespaces(namespace)
        self._calls = AgentCoreCalls(clients, memory_id, timeout_seconds=timeout_seconds)

    @property
    def name(self) -> str:
        return "agentcore"

    def remember(self, part: Offloaded) -> int:
        """0: AgentCore makes memories later. What an event has already is not kept again, however late that is."""
        actor, session = actor_id(part.owner), session_name(part.session_id)
        label = hashlib.sha256(part.id.encode()).hexdigest()
        kept = list(self._ranges(actor, session, label))
        for pieces in _events(_pieces(part.said(), kept)):
            (first, last), time_ms = (pieces[0].place, pieces[-1].place), pieces[0].said.time_ms
            self._calls.call(
                "create_event",
                actorId=actor,
                sessionId=session,
                eventTimestamp=datetime.fromtimestamp(time_ms / 1000, UTC),
                payload=[
                    {"conversational": {"role": _ROLES.get(one.said.role, "OTHER"), "content": {"text": one.text}}}
                    for one in pieces
                ],
                clientToken=hashlib.sha256(f"{label} {first} {last}".encode()).hexdigest(),
                metadata={_PART: _text(label), _FIRST: _text(_named(first)), _LAST: _text(_named(last))},
            )
        return 0

    def known(self, owner: Owner, question: str, *, limit: int, timeout_seconds: float) -> list[Memory]:
        """The time-out is that of the client: who needs it shorter stops waiting."""
        path, query = self._namespaces.of_person(owner), question.strip()[:MAX_QUERY_CHARS]
        if not query:
            return self._newest(owner)[:limit]
        found = list[Any]()
        pages = self._calls.pages(
            "retrieve_memory_records",
            "memoryRecordSummaries",
            namespacePath=path,
            searchCriteria={"searchQuery": query, "topK": min(max(limit, 1), MAX_BATCH)},
        )
        for page in pages:
            found += below(path, page)
            if len(found) >= limit:
                break
        return [self._memory(record) for record in found[:limit]]

    def page(self, owner: Owner, *, limit: int, after: str | None = None) -> MemoryPage:
        """AgentCore promises no order, so each page is made of the whole list."""
        memories = [one for one in self._newest(owner) if after is None or _place(one) < after]
        page = tuple(memories[:limit])
        return MemoryPage(page, _place(page[-1]) if len(memories) > limit else None)

    def forget(self, owner: Owner, memory_ids: Collection[str]) -> None:
        """The events that a memory came from stay, and nothing is made of them again."""
        wanted = {memory_id for memory_id in memory_ids if _RECORD_ID.fullmatch(memory_id)}
        if wanted:
            # An id says nothing of whose it is.
            found = self._records(self._namespaces.of_person(owner))
            self._delete_records([record for record in found if record["memoryRecordId"] in wanted])

    def erase(self, owner: Owner, session_id: str | None = None, *, position: int | None = None) -> int:
        """What came from one message is not told apart from the rest of its session: all of that goes.

        Events go first, so that nothing more is made of them. What AgentCore is just making of one may come later; erasing again
        finds it.
        """
        actor = actor_id(owner)
        if session_id is not None:
            self._delete_events(actor, session_name(session_id))
            return self._delete_all(self._namespaces.of_session(owner, session_id))
        for page in self._calls.pages("list_sessions", "sessionSummaries", actorId=actor):
            for session in page:
                self._delete_events(actor, str(session["sessionId"]))
        return self._delete_all(self._namespaces.of_person(owner))

    # ------------------------------------------------------------ events

    def _ranges(self, actor: str, session: str, label: str) -> Iterator[tuple[_Place, _Place]]:
        """From where to where the events of a part that are there reach."""
        only = {"left": {"metadataKey": _PART}, "operator": "EQUALS_TO", "right": {"metadataValue": _text(label)}}
        pages = self._calls.pages(
            "list_events",
            "events",
            actorId=actor,
            sessionId=session,
            includePayloads=False,
            filter={"eventMetadata": [only]},
        )
        for page in pages:
            for event in page:
                with readable():
                    first, last = (event["metadata"][name]["stringValue"] for name in (_FIRST, _LAST))
                    yield _place_named(first), _place_named(last)

    def _delete_events(self, actor: str, session: str) -> None:
        for _ in range(_MAX_PASSES):
            found = [
                str(event["eventId"])
                for page in self._calls.pages(
                    "list_events", "events", actorId=actor, sessionId=session, includePayloads=False
                )
                for event in page
            ]
            if not found:
                return
            for event_id in found:
                try:
                    self._calls.call("delete_event", actorId=actor, sessionId=session, eventId=event_id)
                except MemoryConfigError as error:
                    # Another one has deleted it; whether the memory itself is there, the next list says.
                    if error.details.get("memory_status") != 404:
                        raise
        raise UnavailableError("AgentCore still lists events that were deleted")

    # ------------------------------------------------------------ records

    def _records(self, path: str) -> list[Any]:
        """All records below a path. What is under a name that only begins alike is another's."""
        found = list[Any]()
        for page in self._calls.pages("list_memory_records", "memoryRecordSummaries", namespacePath=path):
            found += below(path, page)
        return found

    def _newest(self, owner: Owner) -> list[Memory]:
        found = [self._memory(record) for record in self._records(self._namespaces.of_person(owner))]
        return sorted(found, key=_place, reverse=True)

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
        for at in range(0, len(records), MAX_BATCH):
            batch = records[at : at + MAX_BATCH]
            answer = self._calls.call(
                "batch_delete_memory_records",
                records=[
                    {"memoryRecordId": one["memoryRecordId"], "namespace": namespaces_of(one)[0]} for one in batch
                ],
            )
            # One that is gone meanwhile is what was asked for.
            failed = [one for one in answer.get("failedRecords", []) if one.get("errorCode") != 404]
            if failed:
                raise UnavailableError(f"AgentCore kept {len(failed)} of {len(batch)} memories")

    def _memory(self, record: Any) -> Memory:
        with readable():
            said = record.get("timestamp") or record["createdAt"]
            score = record.get("score")
            return Memory(
                id=str(record["memoryRecordId"]),
                text=str(record["content"]["text"]),
                created_ms=round(said.timestamp() * 1000),
                session_id=self._namespaces.session_in(namespaces_of(record)),
                score=float(score) if score is not None else None,
            )


@lazy_dataclass(frozen=True, slots=True)
class _Piece:
    """A message, or a piece of a long one. ``place`` is its position, and which piece it is."""

    said: SpokenMessage
    text: str
    place: _Place


def _pieces(said: Iterable[SpokenMessage], kept: Sequence[tuple[_Place, _Place]]) -> Iterator[_Piece]:
    """The messages but for what is kept already: between two tries one may have been redacted, and others stand together then."""
    for one in said:
        text = one.text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        for at in range(0, len(text), MAX_EVENT_CHARS):
            place = one.position, at // MAX_EVENT_CHARS
            if not any(first <= place <= last for first, last in kept):
                yield _Piece(one, text[at : at + MAX_EVENT_CHARS], place)


def _events(pieces: Iterable[_Piece]) -> Iterator[list[_Piece]]:
    """The pieces in events of a bounded size."""
    event, chars = list[_Piece](), 0
    for one in pieces:
        if event and (len(event) == MAX_PAYLOADS or chars + len(one.text) > MAX_EVENT_CHARS):
            yield event
            event, chars = [], 0
        event.append(one)
        chars += len(one.text)
    if event:
        yield event


def _named(place: _Place) -> str:
    return f"{place[0]}-{place[1]}"


def _place_named(name: str) -> _Place:
    position, _, piece = name.partition("-")
    return int(position), int(piece)


def _place(memory: Memory) -> str:
    """Where a memory stands in the list."""
    return f"{memory.created_ms:015d} {memory.id}"


def _text(value: str) -> dict[str, str]:
    return {"stringValue": value}
