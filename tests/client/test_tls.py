"""Over https all is as it is over http: connections are kept, calls end in their time, and only who is trusted is spoken to."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import make_certificate
from tests.client.service import Gate, gated
from tests.support.deadlines import HANGS
from turnlog import Turnlog
from turnlog.client.over_http import HttpBackend
from turnlog.core.errors import UnavailableError
from turnlog.engines import SystemClock


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The certificate of 127.0.0.1, which is its own authority, and its key."""
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def gate(certificate: Path) -> Iterator[Gate]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    with gated(context) as (_, made):
        yield made


@pytest.mark.network
def test_large_bodies_go_both_ways_on_one_connection(
    gate: Gate, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    long = [{"role": "user", "content": f"{number} " + "x" * 300_000} for number in range(4)]
    with Turnlog.open(gate.url, deadline_seconds=60) as log:
        session = log.sessions.create("a")
        session.append(*long)
        assert [message.body for message in session.messages()] == long
        assert gate.connections == 1 and len(gate.received) == 3


@pytest.mark.network
@pytest.mark.parametrize("hang", HANGS)
def test_the_deadline_ends_a_call_there_too(
    gate: Gate, certificate: Path, monkeypatch: pytest.MonkeyPatch, hang: str
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    gate.plan = [HANGS[hang]] * 9
    with (
        Turnlog(HttpBackend(gate.url, clock=SystemClock(), deadline_seconds=0.4, timeout_seconds=5)) as log,
        pytest.raises(UnavailableError) as caught,
    ):
        log.health()
    assert caught.value.error_code == "deadline_exceeded"


@pytest.mark.network
@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""], ids=["plain http", "silence"])
def test_a_port_without_tls_is_named_as_such(answer: bytes) -> None:
    def serve() -> None:
        client, _ = listener.accept()
        client.sendall(answer)
        asked.wait()
        client.close()

    asked = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        backend = HttpBackend(url, clock=SystemClock(), timeout_seconds=0.3, max_tries=1)
        with Turnlog(backend) as log, pytest.raises(UnavailableError, match="TLS handshake failed") as caught:
            log.health()
        asked.set()
    assert caught.value.error_code == "unreachable"


@pytest.mark.network
def test_who_is_not_trusted_gets_no_request_and_no_second_try(gate: Gate) -> None:
    with Turnlog.open(gate.url, token="t") as log, pytest.raises(UnavailableError, match="certificate") as caught:
        log.health()
    assert caught.value.error_code == "unreachable" and not gate.received
