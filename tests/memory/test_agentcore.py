"""The engine on AgentCore Memory, against a server that speaks its protocol and holds its limits, and has its faults."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.memory.agentcore import ARN, MEMORY_ID, TEMPLATE, AgentCore, RefusedError
from turnlog.core.errors import InvalidInputError, MemoryConfigError, ThrottledError, TurnlogError, UnavailableError
from turnlog.core.identity import Owner
from turnlog.core.memory import SpokenMessage
from turnlog.engines.aws_clients import Clients
from turnlog.memory.agentcore import AgentCoreMemoryEngine, Namespaces, actor_id
from turnlog.testing.contracts.memory import MemoryEngineContract, every, having, part_of

pytestmark = pytest.mark.network

ADA = Owner.of("acme", "ada")
CANARY = "canary-9b02"


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def service() -> Iterator[AgentCore]:
    made = AgentCore()
    yield made
    made.close()


def engine_at(url: str, *, timeout_seconds: int = 5, template: str = TEMPLATE) -> AgentCoreMemoryEngine:
    clients = Clients("eu-central-1", url, max_attempts=1)
    return AgentCoreMemoryEngine(clients, MEMORY_ID, namespace=template, timeout_seconds=timeout_seconds)


@pytest.fixture
def memory(service: AgentCore) -> AgentCoreMemoryEngine:
    return engine_at(service.url)


class TestAgentCore(MemoryEngineContract):
    tells_places = False
    """Records tell of a session by their namespace, and of no message."""
    replaces = False
    """AgentCore consolidates as its strategies say."""
    counts = False
    """Memories are made later."""

    @pytest.fixture
    def memory(self, service: AgentCore) -> AgentCoreMemoryEngine:
        return engine_at(service.url)

    @pytest.fixture
    def settle(self, service: AgentCore) -> Callable[[], None]:
        return service.settle


class TestAgentCoreInShortPages(TestAgentCore):
    @pytest.fixture
    def memory(self, service: AgentCore) -> AgentCoreMemoryEngine:
        service.page_items = 2
        service.remembers_tokens = False
        return engine_at(service.url)


# ------------------------------------------------------------ what is asked


def test_what_is_kept_of_a_part(memory: AgentCoreMemoryEngine, service: AgentCore) -> None:
    memory.remember(part_of(ADA, "-s1", ["I like tea."], first=5))
    ((actor, session),) = service.events
    assert (actor, session) == ("t-acme:u-ada", "s--s1")
    (event,) = service.events[actor, session]
    assert event.payload == [
        {"conversational": {"role": "USER", "content": {"text": "I like tea."}}},
        {"conversational": {"role": "ASSISTANT", "content": {"text": "I see. What else would you like to do?"}}},
    ]
    assert event.time == pytest.approx(1_763_683_200.006)
    service.settle()
    (result,) = every(memory, ADA)
    assert (result.session_id, result.position, result.text) == ("-s1", None, "I like tea.")
    assert result.created_ms == 1_763_683_200_006


@pytest.mark.parametrize(("named", "second"), [({"timestamp": 60}, 60), ({"timestamp": None}, 30), ({}, 30)])
def test_a_record_without_a_time_of_its_own_has_that_of_its_creation(
    memory: AgentCoreMemoryEngine, service: AgentCore, named: dict[str, int | None], second: int
) -> None:
    record = {"memoryRecordId": "m1", "content": {"text": "tea"}, "namespaces": ["/turnlog/t-acme:u-ada/"]}
    service.records["m1"] = {**record, "createdAt": 30, **named}
    (result,) = every(memory, ADA)
    assert (result.id, result.text, result.created_ms, result.score) == ("m1", "tea", second * 1000, None)
    assert result.session_id is None


def test_a_memory_may_be_named_by_its_arn(service: AgentCore) -> None:
    clients = Clients("eu-central-1", service.url, max_attempts=1)
    memory = AgentCoreMemoryEngine(clients, ARN, namespace=TEMPLATE, timeout_seconds=5)
    memory.remember(part_of(ADA, "s1", ["I like tea."]))
    service.settle()
    assert having(every(memory, ADA), "tea")
    assert memory.erase(ADA) == 1


def test_owners_never_share_an_actor() -> None:
    names = ("a", "b", "-", "_", "a-u-b", "ada@example.com", "x" * 64, "t-a", "a_u-b")
    ids = [actor_id(Owner.of(tenant, user)) for tenant in names for user in names]
    assert len(set(ids)) == len(ids)
    assert max(map(len, ids)) <= 255
    paths = [Namespaces(TEMPLATE).of_person(Owner.of(tenant, user)) for tenant in names for user in names]
    assert not [(path, other) for path in paths for other in paths if path is not other and path.startswith(other)]


def test_a_long_part_is_several_events_within_the_limits(memory: AgentCoreMemoryEngine, service: AgentCore) -> None:
    texts = [f"word{at}" for at in range(230)] + ["y" * 250_000, "z" * 60_000, "a" * 60_000]
    said = [
        SpokenMessage(at + 1, "user" if at % 2 else "tool", text, 1_763_683_200_000 + at)
        for at, text in enumerate(texts)
    ]
    part = dataclasses.replace(part_of(ADA, "s1", []), read_messages=lambda: said)
    memory.remember(part)
    (events,) = service.events.values()
    sizes = [sum(len(item["conversational"]["content"]["text"]) for item in event.payload) for event in events]
    assert max(sizes) <= 100_000 and max(len(event.payload) for event in events) == 100
    whole = "".join(item["conversational"]["content"]["text"] for event in events for item in event.payload)
    assert whole == "".join(texts)
    before = len(events)
    service.remembers_tokens = False
    memory.remember(part)
    assert len(next(iter(service.events.values()))) == before


@pytest.mark.parametrize("lost", ["before", "after"])
@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("remembers_tokens", [True, False])
def test_a_part_that_was_kept_in_part_is_kept_once_when_it_comes_again(
    memory: AgentCoreMemoryEngine, service: AgentCore, lost: str, at: int, remembers_tokens: bool
) -> None:
    """However long AgentCore remembers its tokens."""
    said = [SpokenMessage(n + 1, "user", f"My cat number {n} is called Mia{n}x.", n * 1_000) for n in range(250)]
    part = dataclasses.replace(part_of(ADA, "s1", []), read_messages=lambda: said)
    service.remembers_tokens = remembers_tokens
    met = list[str]()

    def fails(name: str, _: Any) -> None:
        met.extend([name] if name == "CreateEvent" else [])
        if len(met) == at:
            met.append("")
            raise RefusedError(503, "ServiceUnavailableException")

    setattr(service, lost, fails)
    with pytest.raises(UnavailableError):
        memory.remember(part)
    setattr(service, lost, None)
    memory.remember(part)
    service.settle()
    assert len(every(memory, ADA)) == 250
    assert len(next(iter(service.events.values()))) == 3


def test_each_part_of_a_session_is_kept_whatever_is_kept_of_another(
    memory: AgentCoreMemoryEngine, service: AgentCore
) -> None:
    for part in ("first", "second"):
        said = [SpokenMessage(1, "user", f"the {part} part", 1_000)]
        memory.remember(dataclasses.replace(part_of(ADA, "s1", []), id=part, read_messages=lambda said=said: said))
    (events,) = service.events.values()
    texts = [item["conversational"]["content"]["text"] for event in events for item in event.payload]
    assert texts == ["the first part", "the second part"]


def test_a_message_that_is_redacted_between_two_tries_takes_no_other_with_it(
    memory: AgentCoreMemoryEngine, service: AgentCore
) -> None:
    said = [SpokenMessage(n + 1, "user", f"My cat number {n} is called Mia{n}x.", n * 1_000) for n in range(250)]

    def broken() -> Iterator[SpokenMessage]:
        yield from said[:150]
        raise UnavailableError("the store is away")

    part = dataclasses.replace(part_of(ADA, "s1", []), read_messages=broken)
    with pytest.raises(UnavailableError):
        memory.remember(part)
    memory.remember(dataclasses.replace(part, read_messages=lambda: said[:50] + said[51:]))
    service.settle()
    assert sorted(item.text for item in every(memory, ADA)) == sorted(item.text for item in said)


def test_a_question_is_cut_to_what_the_service_takes(memory: AgentCoreMemoryEngine, service: AgentCore) -> None:
    memory.known(ADA, "x" * 30_000, limit=500, timeout_seconds=5)
    (name, asked) = service.calls[-1]
    assert name == "RetrieveMemoryRecords"
    assert (len(asked["searchCriteria"]["searchQuery"]), asked["searchCriteria"]["topK"]) == (10_000, 100)
    assert asked["namespacePath"] == "/turnlog/t-acme:u-ada/"


def test_an_id_that_is_no_records_is_not_looked_for(memory: AgentCoreMemoryEngine, service: AgentCore) -> None:
    memory.forget(ADA, ["unknown-id"])
    assert service.calls == []


def test_e1_nothing_of_a_person_is_left(memory: AgentCoreMemoryEngine, service: AgentCore) -> None:
    for session_id in ("s1", "s2"):
        for first in range(0, 300, 100):
            memory.remember(part_of(ADA, session_id, [f"{CANARY} {session_id} {first}"], first=first + 1))
    service.settle()
    assert memory.erase(ADA) == 6
    assert CANARY not in str(service.events) + str(service.records)


def test_what_is_made_of_an_event_after_an_erasure_goes_with_the_next(
    memory: AgentCoreMemoryEngine, service: AgentCore
) -> None:
    memory.remember(part_of(ADA, "s1", ["I like tea."]))
    late = [(key, list(events)) for key, events in service.events.items()]
    assert memory.erase(ADA, "s1") == 0
    service.events.update(late)
    service.settle()
    service.events.clear()
    assert having(every(memory, ADA), "tea")
    assert memory.erase(ADA, "s1") == 1
    assert every(memory, ADA) == []


def test_two_that_erase_at_once_are_both_done(memory: AgentCoreMemoryEngine, service: AgentCore) -> None:
    memory.remember(part_of(ADA, "s1", ["I like tea."]))
    service.settle()

    def another(name: str, _: Any) -> None:
        if name == "ListEvents":
            service.events.clear()
        if name == "ListMemoryRecords":
            service.records.clear()

    service.after = another
    assert memory.erase(ADA, "s1") == 1
    assert memory.erase(ADA, "s1") == 0


def test_an_erasure_of_what_comes_back_again_and_again_ends_with_an_error(
    memory: AgentCoreMemoryEngine, service: AgentCore
) -> None:
    memory.remember(part_of(ADA, "s1", ["I like tea."]))
    service.settle()
    events, records = {key: list(kept) for key, kept in service.events.items()}, dict(service.records)

    def bring_back(name: str, _: Any) -> None:
        if name == "DeleteEvent" and says == "events":
            service.events.update({key: list(kept) for key, kept in events.items()})
        if name == "BatchDeleteMemoryRecords":
            service.records.update(records)

    service.after = bring_back
    for says in ("events", "memories"):
        with pytest.raises(UnavailableError, match=f"still lists {says} that were deleted"):
            memory.erase(ADA, "s1")


def test_a_memory_that_is_kept_is_never_reported_as_gone(memory: AgentCoreMemoryEngine, service: AgentCore) -> None:
    memory.remember(part_of(ADA, "s1", ["I like tea.", "I live in Lisbon."]))
    service.settle()
    gone = having(every(memory, ADA), "tea")[0].id
    service.kept.add(gone)
    for use in (
        lambda: memory.forget(ADA, [gone]),
        lambda: memory.erase(ADA, "s1"),
        lambda: memory.erase(ADA),
    ):
        with pytest.raises(UnavailableError):
            use()
    service.kept.clear()
    assert memory.erase(ADA) == 1


# ------------------------------------------------------------ what goes wrong


Use = Callable[[AgentCoreMemoryEngine], object]
USES: dict[str, Use] = {
    "remember": lambda engine: engine.remember(part_of(ADA, "s1", [CANARY])),
    "known": lambda engine: engine.known(ADA, CANARY, limit=5, timeout_seconds=1),
    "page": lambda engine: engine.page(ADA, limit=5),
    "forget": lambda engine: engine.forget(ADA, ["mem-" + "a" * 40]),
    "erase": lambda engine: engine.erase(ADA, "s1"),
}


def failing(service: AgentCore, kind: type[TurnlogError], refused: RefusedError) -> list[TurnlogError]:
    """What each use raises; nothing of what was said is in it."""

    def fails(*_: Any) -> None:
        raise refused

    service.before = fails
    result, engine = list[TurnlogError](), engine_at(service.url)
    for use in USES.values():
        with pytest.raises(kind) as raised:
            use(engine)
        assert type(raised.value) is kind
        error: BaseException | None = raised.value
        while error is not None:
            assert CANARY not in repr(error) + str(error)
            assert error.__suppress_context__ or error.__context__ is None
            error = error.__cause__
        result.append(raised.value)
    return result


@pytest.mark.parametrize(
    ("status", "code"),
    [(429, "ThrottledException"), (400, "ThrottlingException"), (402, "ServiceQuotaExceededException")],
)
def test_throttled(service: AgentCore, status: int, code: str) -> None:
    errors = failing(service, ThrottledError, RefusedError(status, code, {"Retry-After": "7"}))
    assert {error.retry_after_seconds for error in errors} == {7}


@pytest.mark.parametrize(
    ("status", "code"),
    [(500, "ServiceException"), (503, "ServiceUnavailable"), (409, "RetryableConflictException"), (502, "Bad")],
)
def test_it_is_away(service: AgentCore, status: int, code: str) -> None:
    failing(service, UnavailableError, RefusedError(status, code))


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "ValidationException"),
        (400, "InvalidInputException"),
        (403, "AccessDeniedException"),
        (404, "ResourceNotFoundException"),
    ],
)
def test_wrong_settings(service: AgentCore, status: int, code: str) -> None:
    errors = failing(service, MemoryConfigError, RefusedError(status, code))
    assert [error.details for error in errors] == [{"memory_status": status}] * len(USES)
    assert all(code in str(error) for error in errors)


OTHER = b'{"memoryRecordSummaries": [{"namespaces": ["/turnlog/t-acme:u-ada/s-s1/"]}]}'


@pytest.mark.parametrize("body", [b"<html>", b"{", b"[]", b"null", OTHER])
def test_an_answer_that_is_none_of_the_protocol(service: AgentCore, body: bytes) -> None:
    def fails(*_: Any) -> None:
        raise RefusedError(200, "", {"Content-Type": "text/html"}, body)

    service.before, engine = fails, engine_at(service.url)
    for name in ("known", "page"):
        with pytest.raises(UnavailableError) as raised:
            USES[name](engine)
        assert raised.value.error_code == "memory_unreadable"


def test_what_is_another_s_is_never_told(memory: AgentCoreMemoryEngine, service: AgentCore) -> None:
    """Whatever AgentCore answers."""
    memory.remember(part_of(Owner.of("acme", "ada-2"), "s1", [CANARY]))
    service.settle()
    for record in service.records.values():
        record["namespaces"] = ["/turnlog/t-acme:u-ada-2/s-s1/"]
    service.below = lambda _path: iter(service.records.values())  # type: ignore[method-assign]
    assert (
        memory.known(ADA, CANARY, limit=5, timeout_seconds=1) == memory.known(ADA, "", limit=5, timeout_seconds=1) == []
    )
    assert every(memory, ADA) == []
    memory.forget(ADA, list(service.records))
    assert memory.erase(ADA) == 0
    assert len(service.records) == 1


def test_nobody_listens_and_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(UnavailableError) as raised:
            USES["known"](engine_at(url, timeout_seconds=1))
        assert raised.value.error_code == "memory_timeout"
    engine = engine_at(url)
    for use in USES.values():
        with pytest.raises(UnavailableError, match="EndpointConnectionError"):
            use(engine)


def test_no_credentials(service: AgentCore, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "nowhere")
    with pytest.raises(MemoryConfigError, match="NoCredentialsError"):
        USES["known"](engine_at(service.url))


# ------------------------------------------------------------ settings


@pytest.mark.parametrize(
    "template",
    [
        "",
        "/",
        "/turnlog/",
        "/turnlog/{actorId}/",
        "/turnlog/{sessionId}/{actorId}/",
        "/turnlog/{actorId}/{sessionId}",
        "/turnlog/{actorId}/{sessionId}/facts",
        "turnlog/{actorId}/{sessionId}/",
        "/turnlog/x{actorId}y/{sessionId}/",
        "/{memoryStrategyId}/{actorId}/{sessionId}/",
        "/t/{actorId}/{sessionId}/{actorId}/",
        "/t }/{actorId}/{sessionId}/",
    ],
)
def test_a_template_that_is_none(template: str) -> None:
    with pytest.raises(InvalidInputError, match="TURNLOG_MEMORY_NAMESPACE"):
        Namespaces(template)


@pytest.mark.parametrize(
    "template",
    [TEMPLATE, "/{actorId}/{sessionId}/", "/t/{actorId}/a{sessionId}/", "/a/b/{actorId}/of/{sessionId}/facts/"],
)
def test_a_template_that_is_one(template: str) -> None:
    result = Namespaces(template)
    path = template.replace("{actorId}", actor_id(ADA)).replace("{sessionId}", "s-my_session")
    assert path.startswith(result.of_session(ADA, "my_session"))
    assert result.session_in([path]) == "my_session"
    assert result.session_in(["/elsewhere/"]) is None


@pytest.mark.parametrize("memory_id", ["", "short", "has space-Ab12Cd34Ef", "x-Ab12Cd34Ef/../y"])
def test_an_id_that_is_none(memory_id: str) -> None:
    with pytest.raises(InvalidInputError, match="TURNLOG_MEMORY_ID"):
        AgentCoreMemoryEngine(Clients("eu-central-1"), memory_id, namespace=TEMPLATE, timeout_seconds=1)
