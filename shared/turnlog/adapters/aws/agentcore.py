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
from typing import Any

from turnlog.adapters.aws.clients import Clients
from turnlog.domain.errors import InvalidInputError, MemoryConfigError, ThrottledError, UnavailableError
from turnlog.domain.identity import Owner
from turnlog.domain.memory import Memory, MemoryPage, Offloaded, Said

MAX_PAYLOADS = 100
MAX_EVENT_CHARS = 100_000
"""Of all texts of an event; of one text it is the service's own limit."""
MAX_QUERY_CHARS = 10_000
MAX_BATCH = 100
_MAX_PASSES = 20
"""So often a list is asked for until nothing is left in it."""
_ROLES = {"user": "USER", "assistant": "ASSISTANT", "tool": "TOOL"}
_PART, _FIRST = "turnlog-part", "turnlog-first"
_PLACEHOLDER = re.compile(r"\{([^}]*)\}")
_MEMORY_ID = re.compile(
    r"(arn:(aws|aws-cn|aws-us-gov):bedrock-agentcore:[a-z0-9-]+:[0-9]{12}:memory/)?[a-zA-Z][a-zA-Z0-9-_]{0,99}-[a-zA-Z0-9]{10}"
)
_NAMESPACE = re.compile(r"/[a-zA-Z0-9-_/{}]*")
_RECORD_ID = re.compile(r"mem-[a-zA-Z0-9-_]{36,46}")
_THROTTLED = frozenset({"ThrottledException", "ThrottlingException", "ServiceQuotaExceededException"})
_PASSING = frozenset({"RetryableConflictException", "ServiceException", "RequestTimeout", "RequestTimeoutException"})


class AgentCoreMemoryEngine:
    """Implements `MemoryEngine`. ``namespace`` is the template that the resource's strategies have, with ``{actorId}`` and
    behind it ``{sessionId}``; ``clients`` has the region and the time-outs of its own."""

    def __init__(self, clients: Clients, memory_id: str, *, namespace: str, timeout_seconds: int) -> None:
        if not _MEMORY_ID.fullmatch(memory_id):
            raise InvalidInputError("TURNLOG_MEMORY_ID is no id of an AgentCore memory", code="invalid_settings")
        self._namespaces = Namespaces(namespace)
        self._clients = clients
        self._memory_id = memory_id
        self._timeout_seconds = timeout_seconds

    @property
    def name(self) -> str:
        return "agentcore"

    def remember(self, part: Offloaded) -> int:
        """0: AgentCore makes memories later. Events that are there already are not made again, however late that is."""
        actor, session = actor_id(part.owner), _session_id(part.session_id)
        label = hashlib.sha256(part.id.encode()).hexdigest()
        present: set[str] | None = None
        for messages in _events(part.said()):
            first = f"{messages[0][0].position}-{messages[0][2]}"
            if present is None:
                present = {str(event) for event in self._firsts(actor, session, label)}
            if first in present:
                continue
            self._call(
                "create_event",
                actorId=actor,
                sessionId=session,
                eventTimestamp=_time(messages[0][0].time_ms),
                payload=[
                    {"conversational": {"role": _ROLES.get(said.role, "OTHER"), "content": {"text": text}}}
                    for said, text, _ in messages
                ],
                clientToken=hashlib.sha256(f"{label} {first}".encode()).hexdigest(),
                metadata={_PART: {"stringValue": label}, _FIRST: {"stringValue": first}},
            )
        return 0

    def known(self, owner: Owner, question: str, *, limit: int, timeout_seconds: float) -> list[Memory]:
        """The time-out is that of the client: who needs it shorter stops waiting."""
        path, query = self._namespaces.of_person(owner), question.strip()[:MAX_QUERY_CHARS]
        if not query:
            return self._newest(owner)[:limit]
        found = list[Any]()
        pages = self._pages(
            "retrieve_memory_records",
            "memoryRecordSummaries",
            namespacePath=path,
            searchCriteria={"searchQuery": query, "topK": min(max(limit, 1), MAX_BATCH)},
        )
        for page in pages:
            found += _below(path, page)
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
            self._delete_events(actor, _session_id(session_id))
            return self._delete_all(self._namespaces.of_session(owner, session_id))
        for page in self._pages("list_sessions", "sessionSummaries", actorId=actor):
            for session in page:
                self._delete_events(actor, str(session["sessionId"]))
        return self._delete_all(self._namespaces.of_person(owner))

    # ------------------------------------------------------------ events

    def _firsts(self, actor: str, session: str, label: str) -> Iterator[str]:
        """The events of a part that are there, by the piece of text that they begin with."""
        only = {"left": {"metadataKey": _PART}, "operator": "EQUALS_TO", "right": {"metadataValue": _text(label)}}
        pages = self._pages(
            "list_events",
            "events",
            actorId=actor,
            sessionId=session,
            includePayloads=False,
            filter={"eventMetadata": [only]},
        )
        for page in pages:
            for event in page:
                yield str(event.get("metadata", {}).get(_FIRST, {}).get("stringValue", ""))

    def _delete_events(self, actor: str, session: str) -> None:
        for _ in range(_MAX_PASSES):
            found = [
                str(event["eventId"])
                for page in self._pages(
                    "list_events", "events", actorId=actor, sessionId=session, includePayloads=False
                )
                for event in page
            ]
            if not found:
                return
            for event_id in found:
                self._call("delete_event", actorId=actor, sessionId=session, eventId=event_id)
        raise UnavailableError("AgentCore still lists events that were deleted")

    # ------------------------------------------------------------ records

    def _records(self, path: str) -> list[Any]:
        """All records below a path. What is under a name that only begins alike is another's."""
        found = list[Any]()
        for page in self._pages("list_memory_records", "memoryRecordSummaries", namespacePath=path):
            found += _below(path, page)
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
            answer = self._call(
                "batch_delete_memory_records",
                records=[
                    {"memoryRecordId": one["memoryRecordId"], "namespace": _namespaces_of(one)[0]} for one in batch
                ],
            )
            # One that is gone meanwhile is what was asked for.
            failed = [one for one in answer.get("failedRecords", []) if one.get("errorCode") != 404]
            if failed:
                raise UnavailableError(f"AgentCore kept {len(failed)} of {len(batch)} memories")

    def _memory(self, record: Any) -> Memory:
        with _readable():
            said = record.get("timestamp") or record["createdAt"]
            score = record.get("score")
            return Memory(
                id=str(record["memoryRecordId"]),
                text=str(record["content"]["text"]),
                created_ms=round(said.timestamp() * 1000),
                session_id=self._namespaces.session_in(_namespaces_of(record)),
                score=float(score) if score is not None else None,
            )

    # ------------------------------------------------------------ calls

    def _pages(self, operation: str, field: str, **asked: Any) -> Iterator[list[Any]]:
        token: dict[str, str] = {}
        while True:
            answer = self._call(operation, maxResults=100, **token, **asked)
            with _readable():
                page = list(answer[field])
                following = answer.get("nextToken")
            yield page
            if not following or token.get("nextToken") == following:
                return
            token = {"nextToken": str(following)}

    def _call(self, operation: str, **asked: Any) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        try:
            client = self._clients.open("bedrock-agentcore", read_timeout_seconds=self._timeout_seconds)
            call: Callable[..., Any] = getattr(client, operation)
            return call(memoryId=self._memory_id, **asked)
        except ClientError as error:
            # The message may repeat what was sent, so it must not stand in a traceback either.
            raise _refused(operation, error.response) from None
        except BotoCoreError as error:
            raise _broken(operation, error) from None
        except (ResponseParserError, ValueError, TypeError, AttributeError, RecursionError):
            # What botocore's parser meets in an answer of another protocol, an HTML page for one.
            raise _unreadable() from None


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
        return f"{self.of_person(owner)}{self._between}{_session_id(session_id)}/"

    def session_in(self, namespaces: Sequence[str]) -> str | None:
        """The session whose records stand in a namespace."""
        for namespace in namespaces:
            _, _, below = namespace.removeprefix(self._actor_path).partition("/")
            session = below.removeprefix(self._between).split("/")[0]
            if below.startswith(self._between) and session.startswith(_SESSION):
                return session.removeprefix(_SESSION)
        return None


_SESSION = "s-"


def actor_id(owner: Owner) -> str:
    """Tenant and user, neither of which has a colon in its id: no two owners share one."""
    return f"t-{owner.tenant_id}:u-{owner.user_id}"


def _session_id(session_id: str) -> str:
    """AgentCore's ids begin with a letter or a digit; ours need not."""
    return _SESSION + session_id


def _events(said: Iterable[Said]) -> Iterator[list[tuple[Said, str, int]]]:
    """The messages in events of a bounded size: message, text, and which piece of the message it is."""
    event, chars = list[tuple[Said, str, int]](), 0
    for one in said:
        text = one.text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        for at in range(0, len(text), MAX_EVENT_CHARS):
            piece = text[at : at + MAX_EVENT_CHARS]
            if event and (len(event) == MAX_PAYLOADS or chars + len(piece) > MAX_EVENT_CHARS):
                yield event
                event, chars = [], 0
            event.append((one, piece, at // MAX_EVENT_CHARS))
            chars += len(piece)
    if event:
        yield event


def _place(memory: Memory) -> str:
    """Where a memory stands in the list."""
    return f"{memory.created_ms:015d} {memory.id}"


def _below(path: str, records: Iterable[Any]) -> list[Any]:
    """Those that stand below a path, whatever else was answered: nobody is told of another."""
    with _readable():
        return [record for record in records if any(name.startswith(path) for name in _namespaces_of(record))]


def _namespaces_of(record: Any) -> list[str]:
    return [str(name) if str(name).endswith("/") else f"{name}/" for name in record.get("namespaces", ())]


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _text(value: str) -> dict[str, str]:
    return {"stringValue": value}


def _refused(operation: str, response: Any) -> UnavailableError | MemoryConfigError:
    code = str(response.get("Error", {}).get("Code", ""))
    metadata = response.get("ResponseMetadata", {})
    status, header = int(metadata.get("HTTPStatusCode", 0)), metadata.get("HTTPHeaders", {}).get("retry-after", "")
    if code not in _PASSING and (code in _THROTTLED or status == 429):
        seconds = int(header[:4]) if header.isascii() and header.isdigit() else None
        return ThrottledError(f"AgentCore's {operation} was throttled", retry_after_seconds=seconds)
    # A code as AWS writes them; anything else could be somebody's text.
    known = code if code.isascii() and code.isalnum() and len(code) <= 80 else ""
    said = f"AgentCore's {operation} answered {status} {known}".rstrip()
    if code in _PASSING or not 400 <= status < 500:
        return UnavailableError(said)
    return MemoryConfigError(said, details={"memory_status": status})


def _broken(operation: str, error: Exception) -> UnavailableError | MemoryConfigError:
    from botocore.exceptions import (
        CredentialRetrievalError,
        NoCredentialsError,
        NoRegionError,
        ParamValidationError,
        PartialCredentialsError,
        ReadTimeoutError,
    )

    wrong = (NoCredentialsError, PartialCredentialsError, NoRegionError, ParamValidationError)
    if isinstance(error, wrong) and not isinstance(error, CredentialRetrievalError):
        return MemoryConfigError(f"AgentCore could not be asked: {type(error).__name__}")
    if isinstance(error, ReadTimeoutError):
        return UnavailableError(f"AgentCore's {operation} gave no answer in time", code="memory_timeout")
    return UnavailableError(f"AgentCore's {operation} gave no answer: {type(error).__name__}")


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise _unreadable() from None


def _unreadable() -> UnavailableError:
    return UnavailableError("the answer of AgentCore is none of its protocol", code="memory_unreadable")
