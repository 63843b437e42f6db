"""A call ends in its time, whatever the network does, and says what became of it."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest

from tests.client.service import Gate, gated, status
from tests.support.deadlines import HANGS, silent
from turnlog import Turnlog
from turnlog.client.over_http import MAX_WAIT_SECONDS, HttpBackend
from turnlog.core.errors import InvalidInputError, ThrottledError, UnavailableError
from turnlog.core.limits import MAX_BODY_BYTES
from turnlog.engines import SystemClock
from turnlog.engines.http_post import open_connection
from turnlog.testing.fixed import FixedClock, SequentialIds

USER = {"role": "user", "content": "hi"}
_IDS = SequentialIds()


@pytest.fixture
def gate() -> Iterator[Gate]:
    with gated() as (_, made):
        yield made


def opened(gate: Gate, clock: Any, **options: Any) -> Turnlog:
    return Turnlog(HttpBackend(gate.url, clock=clock, ids=_IDS, **options))


@pytest.mark.network
@pytest.mark.parametrize("hang", HANGS)
def test_a_service_that_never_ends_its_answer_is_left_at_the_deadline(gate: Gate, hang: str) -> None:
    """Each wait is short enough, so only the deadline ends the call; and the time-out alone would not."""
    with opened(gate, SystemClock(), deadline_seconds=0.3, timeout_seconds=5) as log:
        gate.plan = [HANGS[hang]] * 9
        with pytest.raises(UnavailableError, match="time is up") as caught:
            log.health()
        assert caught.value.error_code == "deadline_exceeded" and isinstance(caught.value.__cause__, TimeoutError)
        gate.plan, log.backend.deadline_seconds = [], None  # type: ignore[attr-defined]
        assert log.health().status == "ok", "the next call has a connection of its own"


@pytest.mark.network
@pytest.mark.parametrize("hang", HANGS)
@pytest.mark.parametrize("place", ["service", "storage"])
def test_the_deadline_of_a_call_holds_for_what_it_fetches_and_uploads(gate: Gate, hang: str, place: str) -> None:
    url = f"{gate.url if place == 'storage' else ''}/v1/downloads/x"
    answers = {
        "elsewhere": status(303, body=json.dumps({"url": url, "status": 200}).encode()),
        "upload": status(200, body=json.dumps({"url": f"{gate.url}/file", "expires_at": "", "headers": {}}).encode()),
    }
    large = {"role": "user", "content": "x" * (MAX_BODY_BYTES + 1)}
    with opened(gate, SystemClock(), deadline_seconds=0.2, timeout_seconds=9) as log:
        for name, call in {
            "elsewhere": log.sessions.of("a").info,
            "upload": lambda: log.sessions.of("a").append(large),
        }.items():
            gate.plan = [answers[name], *[HANGS[hang]] * 9]
            start = time.monotonic()
            with pytest.raises(UnavailableError, match="no answer in time"):
                call()
            assert time.monotonic() - start < 5, name


@pytest.mark.network
def test_a_wait_that_is_too_long_is_tried_again_within_the_deadline(gate: Gate) -> None:
    gate.plan = [silent, silent]
    with opened(gate, SystemClock(), timeout_seconds=0.3, deadline_seconds=60) as log:
        assert log.health().status == "ok"
    assert len(gate.received) >= 3


@pytest.mark.network
def test_an_unanswered_call_can_be_repeated_with_the_key_that_its_error_has(gate: Gate) -> None:
    """It may have had its effect, or not: with the key it has one."""

    def lost(handler: Any) -> bool:
        received = gate.received[-1]
        with contextlib.closing(socket.create_connection(("127.0.0.1", int(gate.inner.rpartition(":")[2])))) as inner:
            lines = [f"{received.method} {received.target.decode()} HTTP/1.1", "Connection: close"]
            lines += [f"{name}: {value.decode()}" for name, value in received.headers.items()]
            inner.sendall("\r\n".join([*lines, "", ""]).encode() + received.body)
            while inner.recv(4096):
                pass
        return silent(handler)

    with opened(gate, SystemClock()) as log:
        log.sessions.create("a")
    with opened(gate, SystemClock(), deadline_seconds=0.5) as log:
        session, gate.plan = log.sessions.of("a"), [lost]
        with pytest.raises(UnavailableError) as caught:
            session.append(USER)
        key = str(caught.value.details["idempotency_key"])
        assert key == gate.received[-1].text("idempotency-key")
    with opened(gate, SystemClock()) as log:
        session = log.sessions.of("a")
        assert session.append(USER, idempotency_key=key).first == 2
        assert [message.body for message in session.messages()] == [USER]
        gate.plan = [silent]
    with opened(gate, SystemClock(), deadline_seconds=0.2) as log, pytest.raises(UnavailableError) as read:
        log.sessions.of("a").info()
    assert "idempotency_key" not in read.value.details, "reading has no effect that could be repeated"


@pytest.mark.network
def test_what_a_service_asks_for_is_waited_within_the_deadline(gate: Gate) -> None:
    """Its own error when its pause is longer than what is left; without a deadline, than `MAX_WAIT_SECONDS`."""
    clock = FixedClock()
    slow = status(429, "Retry-After: 40", body=b'{"code": "throttled", "detail": "slow down"}')
    assert MAX_WAIT_SECONDS < 40
    for deadline, tries, waited in ((None, 1, 0), (39, 1, 0), (41, 2, 40_000), (100, 3, 80_000), (1000, 4, 120_000)):
        begun, gate.plan, gate.received = clock.now_ms(), [slow, slow, slow], []
        with opened(gate, clock, deadline_seconds=deadline) as log, contextlib.suppress(ThrottledError):
            log.health()
            assert tries == 4
        assert (len(gate.received), clock.now_ms() - begun) == (tries, waited)


@pytest.mark.network
def test_a_wait_is_no_longer_than_what_is_left(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a connection that had more time when it was made."""
    clock = FixedClock()

    def slowly(handler: Any) -> bool:
        clock.advance(6)
        return status(503)(handler)

    gate.plan = [slowly]
    made = list[HTTPConnection]()

    def opened_connection(*base: Any, **options: Any) -> HTTPConnection:
        made.append(open_connection(*base, **options))
        return made[-1]

    monkeypatch.setattr("turnlog.client.connections.open_connection", opened_connection)
    with opened(gate, clock, deadline_seconds=10) as log:
        log.health()
        (connection,) = made
        assert gate.connections == 1 and 3 < connection.sock.gettimeout() < 4


@pytest.mark.network
def test_the_deadline_is_of_a_call_and_not_of_the_client(gate: Gate) -> None:
    clock = FixedClock()
    with opened(gate, clock, deadline_seconds=10) as log:
        for _ in range(3):
            gate.plan = [status(503, "Retry-After: 8")]
            assert log.health().status == "ok"


@pytest.mark.network
def test_pauses_between_connections_that_fail_end_with_the_deadline() -> None:
    clock = FixedClock()
    begun = clock.now_ms()
    log = Turnlog(HttpBackend("http://127.0.0.1:1", clock=clock, ids=SequentialIds(), deadline_seconds=1, max_tries=99))
    with log, pytest.raises(UnavailableError, match="connection refused; time is up") as caught:
        log.health()
    assert caught.value.error_code == "deadline_exceeded"
    assert 0 < clock.now_ms() - begun <= 1000


@pytest.mark.network
def test_a_large_body_that_nobody_reads_is_left_at_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        log = Turnlog(HttpBackend(url, deadline_seconds=0.3, timeout_seconds=5))
        batch = [{"role": "user", "content": "x" * 170_000}] * 25
        with log, pytest.raises(UnavailableError) as caught:
            log.sessions.of("a").append(*batch)
        assert caught.value.error_code == "deadline_exceeded"


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_a_time_is_above_nothing(value: float) -> None:
    for name in ("timeout_seconds", "deadline_seconds"):
        with pytest.raises(InvalidInputError, match=name):
            Turnlog.open("http://127.0.0.1:1", **{name: value})  # type: ignore[arg-type]
