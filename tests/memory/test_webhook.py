"""The webhook engine against the example's receiver over real HTTP, and against servers that misbehave."""

from __future__ import annotations

import dataclasses
import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from urllib.parse import urlsplit

import pytest

from tests.memory.receivers import SECRET, OddServer, Says, WebhookServer
from turnlog import Turnlog
from turnlog.core.errors import InvalidInputError, MemoryConfigError, ThrottledError, TurnlogError, UnavailableError
from turnlog.core.identity import Owner
from turnlog.core.memory import Offloaded, SpokenMessage
from turnlog.engines import SystemClock
from turnlog.engines.http_post import MAX_REPLY_BYTES
from turnlog.memory.webhook import WebhookMemoryEngine
from turnlog.testing.contracts.memory import MemoryEngineContract, every, having, part_of
from turnlog.testing.fixed import FixedClock, SequentialIds

pytestmark = pytest.mark.network

ADA = Owner.of("acme", "ada")
CANARY = "canary-4411"


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
def server(clock: FixedClock) -> Iterator[WebhookServer]:
    made = WebhookServer(lambda: clock.now_ms() / 1000)
    yield made
    made.close()


@pytest.fixture
def memory(server: WebhookServer, clock: FixedClock) -> WebhookMemoryEngine:
    return WebhookMemoryEngine(server.url, SECRET, timeout_seconds=5, clock=clock, ids=SequentialIds())


class TestWebhook(MemoryEngineContract):
    replaces = False
    """The example keeps what was said and understands none of it."""

    @pytest.fixture
    def memory(self, server: WebhookServer, clock: FixedClock) -> WebhookMemoryEngine:
        return WebhookMemoryEngine(server.url, SECRET, timeout_seconds=5, clock=clock, ids=SequentialIds())

    @pytest.fixture
    def settle(self) -> Callable[[], None]:
        return lambda: None


# ------------------------------------------------------------ what is asked


def test_a_request_is_signed_and_names_its_owner_by_ids(memory: WebhookMemoryEngine, server: WebhookServer) -> None:
    memory.known(Owner.of("acme", "ada@example.com"), "tea?", limit=3, timeout_seconds=1)
    ((headers, body),) = server.asked
    asked = json.loads(body)
    assert asked == {
        "version": 1,
        "action": "known",
        "tenant": "acme",
        "user": Owner.of("acme", "ada@example.com").user_id,
        "question": "tea?",
        "limit": 3,
    }
    assert headers["Turnlog-Signature"].startswith("v1=") and SECRET not in str(headers)
    assert headers["Turnlog-Timestamp"].isdigit() and headers["Turnlog-Request-Id"]


@pytest.mark.parametrize(
    "change",
    [
        {"Turnlog-Timestamp": "1763683201"},
        {"Turnlog-Request-Id": "other"},
        {"Idempotency-Key": "other"},
        {"Turnlog-Signature": "v1=00"},
        {"body": "other"},
        {},
    ],
)
def test_a_request_that_was_overheard_is_of_no_use(
    memory: WebhookMemoryEngine, server: WebhookServer, change: dict[str, str]
) -> None:
    memory.remember(part_of(ADA, "s1", ["I like tea."]))
    headers, body = server.asked[0]
    headers = headers | {name: value for name, value in change.items() if name in headers}
    if "body" in change:
        body = body.replace(b"tea", b"gin")
    parts = urlsplit(server.url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=5)
    connection.request("POST", parts.path, body, headers)
    answer = connection.getresponse()
    assert answer.status == 401
    connection.close()
    assert [item.text for item in every(memory, ADA)] == ["I like tea."]


def test_an_old_request_is_of_no_use(memory: WebhookMemoryEngine, server: WebhookServer, clock: FixedClock) -> None:
    memory.known(ADA, "", limit=1, timeout_seconds=1)
    headers, body = server.asked[0]
    headers["Turnlog-Request-Id"] = "fresh"
    clock.advance(301)
    parts = urlsplit(server.url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=5)
    connection.request("POST", parts.path, body, headers)
    assert connection.getresponse().status == 401
    connection.close()


def test_a_long_part_is_sent_in_several_requests_each_with_a_key_of_its_own(
    memory: WebhookMemoryEngine, server: WebhookServer
) -> None:
    texts = [f"My word number {at} is word{at}." for at in range(450)]
    texts[7] = "x" * 3_000_000
    part = part_of(ADA, "s1", texts)
    part = dataclasses.replace(
        part, read_messages=lambda: (SpokenMessage(at + 1, "user", text, at) for at, text in enumerate(texts))
    )
    assert memory.remember(part) == 450
    keys = [headers["Idempotency-Key"] for headers, _ in server.asked]
    positions = [message["position"] for _, body in server.asked for message in json.loads(body)["messages"]]
    assert positions == list(range(1, 451))
    assert max(len(json.loads(body)["messages"]) for _, body in server.asked) <= 200
    assert len(keys) == len(set(keys)) >= 4
    assert memory.remember(part) == 450
    assert [headers["Idempotency-Key"] for headers, _ in server.asked[len(keys) :]] == keys, "again, the same keys"
    assert len(every(memory, ADA)) == 450


def test_a_part_that_was_sent_in_part_is_one_memory_when_it_comes_again(
    memory: WebhookMemoryEngine, server: WebhookServer
) -> None:
    """Also when a message of it has been redacted meanwhile, and what goes together in a request is other messages."""
    texts = [f"My word number {at} is word{at}." for at in range(450)]
    said = [SpokenMessage(at + 1, "user", text, at) for at, text in enumerate(texts)]

    def broken() -> Iterator[SpokenMessage]:
        yield from said[:250]
        raise UnavailableError("the store is away")

    part = dataclasses.replace(part_of(ADA, "s1", texts), read_messages=broken)
    with pytest.raises(UnavailableError):
        memory.remember(part)
    assert 0 < len(every(memory, ADA)) < 450
    memory.remember(dataclasses.replace(part, read_messages=lambda: said[:100] + said[101:]))
    listed = every(memory, ADA)
    assert len(listed) == 450
    assert all(item.confirmations == 1 for item in listed)


def test_a_memory_of_two_sessions_outlives_one(memory: WebhookMemoryEngine) -> None:
    for session_id in ("s1", "s2"):
        memory.remember(part_of(ADA, session_id, ["I like tea."]))
    (both,) = every(memory, ADA)
    assert both.confirmations == 2
    assert memory.erase(ADA, "s1") == 0
    (left,) = every(memory, ADA)
    assert left.session_id == "s2"


# ------------------------------------------------------------ what goes wrong


Use = Callable[[WebhookMemoryEngine], object]
USES: dict[str, Use] = {
    "remember": lambda engine: engine.remember(part_of(ADA, "s1", [CANARY])),
    "known": lambda engine: engine.known(ADA, CANARY, limit=5, timeout_seconds=0.3),
    "page": lambda engine: engine.page(ADA, limit=5),
    "forget": lambda engine: engine.forget(ADA, [CANARY]),
    "erase": lambda engine: engine.erase(ADA, CANARY),
}


def failing(kind: type[TurnlogError], plan: Sequence[Says], uses: Sequence[str] = tuple(USES)) -> list[TurnlogError]:
    """What each use raises of a server with that plan; nothing of what was said is in it, and nothing is asked again."""
    result = list[TurnlogError]()
    for name in uses:
        server = OddServer(plan)
        engine = WebhookMemoryEngine(server.url, SECRET, timeout_seconds=0.3, clock=SystemClock(), ids=SequentialIds())
        with pytest.raises(kind) as raised:
            USES[name](engine)
        server.close()
        assert server.requests == 1
        assert type(raised.value) is kind
        assert CANARY not in repr(raised.value) + str(raised.value)
        assert SECRET not in repr(raised.value) + str(raised.value)
        assert raised.value.__suppress_context__ or raised.value.__context__ is None
        result.append(raised.value)
    return result


def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    engine = WebhookMemoryEngine(url, SECRET, timeout_seconds=1, clock=SystemClock(), ids=SequentialIds())
    for use in USES.values():
        with pytest.raises(UnavailableError, match="ConnectionRefusedError"):
            use(engine)


def test_throttled() -> None:
    errors = failing(ThrottledError, [Says(429, CANARY.encode(), {"Retry-After": "7"})])
    assert {error.retry_after_seconds for error in errors} == {7}
    (error,) = failing(ThrottledError, [Says(429, headers={"Retry-After": "Fri, 21 Nov 2025 00:00:00 GMT"})], ["page"])
    assert error.retry_after_seconds is None


@pytest.mark.parametrize("status", [500, 502, 503, 504, 408, 409, 425])
def test_it_is_away(status: int) -> None:
    errors = failing(UnavailableError, [Says(status, CANARY.encode(), {"Retry-After": "7"})], ["known", "erase"])
    assert {error.retry_after_seconds for error in errors} == {7}


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 301, 302, 307, 308])
def test_wrong_settings_and_no_redirect_is_followed(status: int) -> None:
    headers = {"Location": "http://127.0.0.1:9/elsewhere"}
    for error in failing(MemoryConfigError, [Says(status, CANARY.encode(), headers)], ["remember", "known"]):
        assert error.details == {"memory_status": status}


GARBAGE = [
    b"{",
    b"null",
    b"[]",
    b"<html>",
    b"[" * 9_999,
    b'{"memories": true}',
    b'{"memories": "3"}',
    b'{"memories": -1}',
    b"\xff\xfe",
    b'"memories"',
]
NO_MEMORIES = [
    b'{"memories": [1]}',
    b'{"memories": [{}]}',
    b'{"memories": [{"id": "", "text": "t", "created_at": "2026-01-01T00:00:00Z"}]}',
    b'{"memories": [{"id": "i", "text": 5, "created_at": "2026-01-01T00:00:00Z"}]}',
    b'{"memories": [{"id": "i", "text": "t", "created_at": "yesterday"}]}',
    b'{"memories": [{"id": "i", "text": "\\ud800", "created_at": "2026-01-01T00:00:00Z"}]}',
    b'{"memories": [{"id": "i", "text": "t", "created_at": "2026-01-01T00:00:00Z", "score": NaN}]}',
    b'{"memories": [{"id": "i", "text": "t", "created_at": "2026-01-01T00:00:00Z", "position": 0}]}',
    b"{}",
]


@pytest.mark.parametrize("body", GARBAGE)
def test_an_answer_that_is_none_of_the_protocol(body: bytes) -> None:
    errors = failing(UnavailableError, [Says(body=body)], ["remember", "known", "page", "erase"])
    assert {error.error_code for error in errors} == {"memory_unreadable"}


@pytest.mark.parametrize("body", NO_MEMORIES)
def test_memories_that_are_none(body: bytes) -> None:
    failing(UnavailableError, [Says(body=body)], ["known", "page"])


def test_an_answer_that_is_too_long() -> None:
    padded = b'{"memories": [], "x": "' + b"y" * MAX_REPLY_BYTES + b'"}'
    for error in failing(UnavailableError, [Says(body=padded)], ["known"]):
        assert "too long" not in str(error)


@pytest.mark.parametrize(
    "says",
    [
        Says(drip=b" "),
        Says(raw=b"HTTP/1.1 200 OK\r\n", drip=b"X: y\r\n"),
        Says(raw=b"HTTP/1.1 200 OK\r\nX: ", drip=b"y"),
        Says(raw=b"", drip=b"HTTP"),
        Says(raw=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", drip=b"1\r\n \r\n"),
    ],
)
def test_one_that_sends_a_byte_now_and_then_wins_no_time(says: Says) -> None:
    for error in failing(UnavailableError, [says], ["known"]):
        assert error.error_code in {"memory_timeout", "unavailable"}


def test_what_a_server_adds_is_no_matter() -> None:
    memory = {"id": "m", "text": "t" * 20_000, "created_at": "2026-01-01T00:00:00Z", "kind": "mood", "colour": 1}
    replaced = {**memory, "id": "old", "replaced_by": "m"}
    foreign = {**memory, "session_id": "chat with Bob"}
    body = json.dumps({"memories": [memory, replaced, memory, foreign], "next": "", "more": 1}).encode()
    server = OddServer([Says(body=body)])
    engine = WebhookMemoryEngine(server.url, SECRET, timeout_seconds=5, clock=SystemClock(), ids=SequentialIds())
    known = engine.known(ADA, "", limit=2, timeout_seconds=5)
    page = engine.page(ADA, limit=9)
    server.close()
    assert [(item.id, item.kind, len(item.text)) for item in known] == [("m", "other", 16_000)] * 2
    assert len(page.memories) == 4 and page.next is None
    assert page.memories[-1].session_id is None, "it is no session of Turnlog's"
    assert having(page.memories, "t")


def test_an_empty_answer_is_one() -> None:
    server = OddServer([Says(204, b""), Says(202, b""), Says(200, b"")])
    engine = WebhookMemoryEngine(server.url, SECRET, timeout_seconds=5, clock=SystemClock(), ids=SequentialIds())
    assert engine.remember(part_of(ADA, "s1", ["I like tea."])) == 0
    engine.forget(ADA, ["a"])
    assert engine.erase(ADA) == 0
    server.close()


def test_memories_are_forgotten_once_and_500_at_a_time(memory: WebhookMemoryEngine, server: WebhookServer) -> None:
    ids = [f"m{number}" for number in range(501)]
    memory.forget(ADA, ids + ids)
    assert [json.loads(body)["memory_ids"] for _, body in server.asked] == [ids[:500], ids[500:]]


def test_nothing_to_say_is_not_said(memory: WebhookMemoryEngine, server: WebhookServer) -> None:
    part = part_of(ADA, "s1", [])
    assert isinstance(part, Offloaded)
    memory.remember(part)
    memory.forget(ADA, [])
    assert server.asked == []


# ------------------------------------------------------------ settings


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://x",
        "https://",
        "http://memory.example.com/hook",
        "https://user:pw@host/v1",
        "https://host/v1?key=1",
        "https://host:99999/",
    ],
)
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(InvalidInputError, match="TURNLOG_MEMORY_WEBHOOK_URL") as raised:
        WebhookMemoryEngine(url, SECRET, timeout_seconds=1, clock=FixedClock(), ids=SequentialIds())
    assert "pw" not in str(raised.value)


def test_a_short_secret_is_none() -> None:
    with pytest.raises(InvalidInputError, match="TURNLOG_MEMORY_WEBHOOK_SECRET") as raised:
        WebhookMemoryEngine("https://h", "short" * 3, timeout_seconds=1, clock=FixedClock(), ids=SequentialIds())
    assert "short" not in str(raised.value)
    WebhookMemoryEngine("https://h", "s" * 16, timeout_seconds=1, clock=FixedClock(), ids=SequentialIds())


def test_the_certificate_is_checked() -> None:
    """A server without TLS, or with a certificate that nobody has signed, hears nothing of what was said."""
    server = OddServer([Says()])
    url = server.url.replace("http://", "https://")
    engine = WebhookMemoryEngine(url, SECRET, timeout_seconds=1, clock=SystemClock(), ids=SequentialIds())
    with pytest.raises(UnavailableError):
        engine.known(ADA, CANARY, limit=1, timeout_seconds=1)
    server.close()


def test_what_one_session_hears_the_next_begins_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way, through the service's own jobs."""
    server = WebhookServer(time.time)
    monkeypatch.setenv("TURNLOG_MEMORY", "webhook")
    monkeypatch.setenv("TURNLOG_MEMORY_WEBHOOK_URL", server.url)
    monkeypatch.setenv("TURNLOG_MEMORY_WEBHOOK_SECRET", SECRET)
    with Turnlog.open("memory://", worker=False) as log:
        first = log.sessions.create("first")
        first.append({"role": "user", "content": "I prefer green tea."}, {"role": "assistant", "content": "Noted."})
        first.end()
        assert log.run_jobs() == 1
        second = log.sessions.create("second", bootstrap={"question": "tea?", "timeout_seconds": 20})
        result = second.info().bootstrap
        assert result is not None and (result.status, result.engine, result.memories) == ("ok", "webhook", 1)
        (message,) = second.messages()
        assert "I prefer green tea." in message.body["content"]
        (known,) = log.memory()
        log.forget(known.memory_id)
        third = log.sessions.create("third", bootstrap={"timeout_seconds": 20})
        assert third.info().bootstrap.status == "empty"  # type: ignore[union-attr]
        server.close()
        fourth = log.sessions.create("fourth", bootstrap={"timeout_seconds": 20})
        assert fourth.info().bootstrap.status == "unavailable"  # type: ignore[union-attr]
