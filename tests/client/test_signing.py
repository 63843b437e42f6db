"""Requests to AWS are signed: as a server computes it from their bytes, anew for each try, with credentials that hold."""

from __future__ import annotations

import contextlib
import datetime
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import botocore.auth
import botocore.session
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials, RefreshableCredentials
from botocore.exceptions import CredentialRetrievalError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.service import Gate, Received, gated, status
from tests.client.sigv4 import Signature
from tests.effort import examples
from turnlog import Aws, Turnlog
from turnlog.client.over_http import HttpBackend
from turnlog.core.errors import (
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
    TurnlogError,
    UnauthorizedError,
    UnavailableError,
)
from turnlog.snapshots.routes import Snapshot
from turnlog.testing.fixed import FixedClock, SequentialIds

ACCESS, SECRET, TOKEN = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "a/session+token=="
API = "https://a1b2c3d4e5.execute-api.eu-central-1.amazonaws.com/dev"
USER = {"role": "user", "content": "hi"}


class Held:
    """A session that holds credentials, as those of boto3 and botocore do."""

    region_name = "eu-central-1"

    def __init__(self, credentials: Any) -> None:
        self._credentials = credentials

    def get_credentials(self) -> Any:
        return self._credentials


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of this machine's is found."""
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "PROFILE", "REGION", "DEFAULT_REGION"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


@pytest.fixture
def ambient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)


@pytest.fixture
def gate() -> Iterator[Gate]:
    with gated() as (_, made):
        yield made


def signed(gate: Gate, *, user: str | None = None, aws: Aws | None = None, clock: FixedClock | None = None) -> Turnlog:
    held = Aws(session=Held(Credentials(ACCESS, SECRET, TOKEN)))
    return Turnlog(HttpBackend(gate.url, user=user, aws=aws or held, clock=clock or FixedClock(), ids=SequentialIds()))


def everything(log: Turnlog) -> None:
    """Each kind of request: with a body and without, media types, encoded names, odd queries."""
    session = log.sessions.create("a", title="Ünïcode / ~tilde + plus & =")
    session.append(
        USER, {"role": "assistant", "content": "\ud83d lone, 😀"}, idempotency_key="a key with  spaces, ~ and é"
    )
    session.context()
    session.create_snapshot("before lunch; 100% ~ +&=")
    assert session.snapshot("before lunch; 100% ~ +&=").name
    session.search("what? a=b&c=d + e/f ~ 100% *'()! ü 🙂", role="user")
    session.patch_state([{"op": "add", "path": "/x", "value": 1}], action="an.action:with-signs")
    session.patch_state({"x": 2})
    list(session.messages(order="desc"))
    session.delete_snapshot("before lunch; 100% ~ +&=")
    session.erase()


@pytest.mark.network
@pytest.mark.parametrize("user", ["ada", "Zoë 🙂 à Å", "two  spaces", "ARN:aws:iam::1/x~y"])
def test_a_server_computes_the_signature_of_every_request_from_its_bytes(gate: Gate, user: str) -> None:
    with signed(gate, user=user) as log:
        everything(log)
        assert not log.sessions.exists("a")
    assert len(gate.received) > 10
    for received in gate.received:
        signature = Signature(received)
        assert signature.is_of(SECRET), received
        assert (signature.access_key, signature.region, signature.service) == (ACCESS, "eu-central-1", "execute-api")
        assert received.text("x-amz-security-token") == TOKEN
        assert received.text("x-turnlog-user") == user
        sent = {name for name in received.headers if name.startswith(("x-", "idempotency-", "content-type"))}
        assert set(signature.headers) == sent | {"host"}, "all that says something is signed"


def _as_botocore_signs(received: Received, url: str) -> str:
    """The signature that botocore gives to the request that came."""
    names = Signature(received).headers
    headers = {name: received.text(name) for name in names if name not in ("host", "x-amz-date")}
    request = AWSRequest(received.method, url + received.target.decode(), headers, received.body)
    auth = botocore.auth.SigV4Auth(Credentials(ACCESS, SECRET, TOKEN), "execute-api", "eu-central-1")
    request.headers["X-Amz-Date"] = request.context["timestamp"] = received.text("x-amz-date")
    return str(auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request))


@pytest.mark.network
def test_botocore_gives_the_received_requests_the_same_signatures(gate: Gate) -> None:
    with signed(gate, user="Zoë 🙂") as log:
        everything(log)
    for received in gate.received:
        assert _as_botocore_signs(received, gate.url) == Signature(received).given


@pytest.mark.network
def test_whatever_is_changed_on_the_way_breaks_the_signature(gate: Gate) -> None:
    with signed(gate, user="ada") as log:
        log.sessions.create("a")
        log.sessions.of("a").append(USER)
        log.sessions.of("a").search("order", role="user")
    for received in gate.received:
        others = [
            replace(received, method="PUT"),
            replace(received, target=received.target.replace(b"/a", b"/b") + b"?x=1"),
            replace(received, target=received.target.replace(b"order", b"other") + b"&"[: received.target.count(b"?")]),
            replace(received, body=received.body + b" "),
            *(replace(received, headers={**received.headers, name: b"x" + received.headers[name]}) for name in
              ("host", "x-turnlog-user", "x-amz-security-token", "x-amz-date")),
        ]  # fmt: skip
        changed = [other for other in others if other != received and other.target != received.target + b"&"]
        assert len(changed) >= 7 and not any(Signature(item).is_of(SECRET) for item in changed)
        assert not Signature(received).is_of(SECRET + "x")


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=12)
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), min_size=1, max_size=20)


@pytest.mark.network
def test_any_name_key_query_and_body_are_signed_as_they_are_sent() -> None:
    with gated() as (_, gate):

        @settings(max_examples=examples(60), deadline=None)
        @given(user=NAMES, key=NAMES, text=TEXTS, snapshot=TEXTS)
        def check(user: str, key: str, text: str, snapshot: str) -> None:
            gate.received.clear()
            with signed(gate, user=user) as log:
                session = log.sessions.get_or_create("a")
                for call in (
                    lambda: session.append({"role": "user", "content": text}, idempotency_key=key),
                    lambda: session.search(text),
                    lambda: session.snapshot(snapshot),
                ):
                    with contextlib.suppress(InvalidInputError, NotFoundError):
                        call()
            assert gate.received and all(Signature(received).is_of(SECRET) for received in gate.received)

        check()


@pytest.mark.network
def test_each_try_is_signed_at_its_own_time_with_one_key(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FixedClock()

    def now(remove_tzinfo: bool = True) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(clock.now_ms() / 1000, datetime.UTC).replace(tzinfo=None)

    monkeypatch.setattr(botocore.auth, "get_current_datetime", now)
    gate.plan = [status(503, "Retry-After: 7"), status(429, "Retry-After: 9")]
    with signed(gate, clock=clock) as log:
        log.sessions.create("a")
    times = [datetime.datetime.fromisoformat(received.text("x-amz-date")) for received in gate.received]
    assert [(later - times[0]).total_seconds() for later in times] == [0, 7, 16]
    assert len({received.text("authorization") for received in gate.received}) == 3
    assert len({received.text("idempotency-key") for received in gate.received}) == 1
    assert all(Signature(received).is_of(SECRET) for received in gate.received)


@pytest.mark.network
def test_credentials_that_expire_are_refreshed_between_tries(gate: Gate) -> None:
    """An hour of work outlives any session token."""
    made: list[str] = []

    def refresh() -> dict[str, str]:
        made.append(f"token-{len(made)}")
        soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=30)
        return {"access_key": ACCESS, "secret_key": SECRET, "token": made[-1], "expiry_time": soon.isoformat()}

    held = RefreshableCredentials.create_from_metadata(refresh(), refresh, "test")
    gate.plan = [status(503), status(503)]
    with signed(gate, aws=Aws(session=Held(held))) as log:
        log.health()
    tokens = [received.text("x-amz-security-token") for received in gate.received]
    assert tokens == made[-3:] and len(set(tokens)) == 3
    assert all(Signature(received).is_of(SECRET) for received in gate.received)


@pytest.mark.network
def test_credentials_that_cant_be_refreshed_are_unavailable_and_nothing_is_sent(gate: Gate) -> None:
    class Failing:
        def get_frozen_credentials(self) -> Any:
            raise CredentialRetrievalError(provider="sso", error_msg="SECRET")

    with signed(gate, aws=Aws(session=Held(Failing()))) as log, pytest.raises(UnavailableError) as caught:
        log.health()
    assert caught.value.error_code == "credentials_unavailable" and "SECRET" not in caught.value.detail
    assert not gate.received


@pytest.mark.network
def test_credentials_that_cant_be_looked_for_are_unavailable(gate: Gate) -> None:
    class Broken(Held):
        def get_credentials(self) -> Any:
            raise CredentialRetrievalError(provider="sso", error_msg="SECRET")

    with signed(gate, aws=Aws(session=Broken(None))) as log, pytest.raises(UnavailableError) as caught:
        log.health()
    assert caught.value.error_code == "credentials_unavailable" and "SECRET" not in caught.value.detail


@pytest.mark.network
def test_credentials_come_from_where_they_are_said_to_be(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ambient: None
) -> None:
    import boto3

    (tmp_path / "config").write_text("[profile work]\nregion = us-west-2\n")
    (tmp_path / "credentials").write_text("[work]\naws_access_key_id = WORK\naws_secret_access_key = s-work\n")
    ours = boto3.Session(aws_access_key_id="BOTO3", aws_secret_access_key="s-boto3", region_name="ca-central-1")
    cases: list[tuple[Aws | bool, tuple[str, str, str, str]]] = [
        (True, (ACCESS, "eu-west-1", "execute-api", SECRET)),
        (Aws(), (ACCESS, "eu-west-1", "execute-api", SECRET)),
        (Aws(region="us-gov-west-1", service="lambda"), (ACCESS, "us-gov-west-1", "lambda", SECRET)),
        (Aws(profile="work"), ("WORK", "us-west-2", "execute-api", "s-work")),
        (Aws(session=ours), ("BOTO3", "ca-central-1", "execute-api", "s-boto3")),
        (Aws(session=botocore.session.Session(profile="work")), ("WORK", "us-west-2", "execute-api", "s-work")),
    ]
    for aws, (access, region, service, secret) in cases:
        # The environment's region is before a profile's: as all AWS tools have it.
        if access == ACCESS:
            monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
        else:
            monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
        with Turnlog.open(gate.url, aws=aws) as log:
            log.health()
        signature = Signature(gate.received[-1])
        assert (signature.access_key, signature.region, signature.service) == (access, region, service)
        assert signature.is_of(secret)


@pytest.mark.network
def test_a_service_on_loopback_is_not_signed_for(gate: Gate, ambient: None) -> None:
    for aws in (None, False):
        with Turnlog.open(gate.url, aws=aws) as log:
            log.health()
        assert not {"authorization", "x-amz-date", "x-amz-security-token"} & set(gate.received[-1].headers)


# ------------------------------------------------------------ addresses

SIGNED = {
    API: ("eu-central-1", "execute-api"),
    "https://abc.execute-api.us-gov-west-1.amazonaws.com": ("us-gov-west-1", "execute-api"),
    "https://abc-vpce-0123.execute-api.us-east-1.amazonaws.com/v": ("us-east-1", "execute-api"),
    "https://ABC.execute-api.cn-north-1.amazonaws.com.cn/dev": ("cn-north-1", "execute-api"),
    "https://abcdef.lambda-url.ap-southeast-2.on.aws/": ("ap-southeast-2", "lambda"),
}
NOT_SIGNED = [
    "https://api.example.com/dev",
    "https://execute-api.eu-central-1.amazonaws.com",
    "https://a.execute-api.eu-central-1.amazonaws.com.example.com",
    "https://a.execute-api.eu-central-1.amazonaws.com.cn.example.com",
    "https://a.b.execute-api.eu-central-1.amazonaws.com.evil",
    "https://a.lambda-url.eu-central-1.on.aws.example.com",
    "https://a.lambda-url.eu-central-1.on.aws.",
    "http://a.execute-api.eu-central-1.amazonaws.com",
    "http://localhost:8787",
    "https://127.0.0.1",
]


def sent_by(url: str, monkeypatch: pytest.MonkeyPatch, **options: Any) -> dict[str, str]:
    """The headers of a request to an address that is never reached."""
    seen: list[dict[str, str]] = []

    def exchange(self: Any, call: Any, ends_ms: int | None) -> Any:
        seen.append(dict(call.headers))
        raise OSError("not here")

    monkeypatch.setattr("turnlog.client.connections.Connections.exchange", exchange)
    with Turnlog(HttpBackend(url, max_tries=1, **options)) as log, pytest.raises(UnavailableError):
        log.health()
    return seen[0]


@pytest.mark.parametrize("url", SIGNED)
def test_an_address_of_aws_tells_region_and_service(url: str, monkeypatch: pytest.MonkeyPatch, ambient: None) -> None:
    region, service = SIGNED[url]
    assert f"/{region}/{service}/aws4_request" in sent_by(url, monkeypatch)["Authorization"]
    other = Aws(region="eu-north-1", service="other")
    assert "/eu-north-1/other/aws4_request" in sent_by(url, monkeypatch, aws=other)["Authorization"]


@pytest.mark.parametrize("url", NOT_SIGNED)
def test_no_other_address_gets_a_signature_unasked(url: str, monkeypatch: pytest.MonkeyPatch, ambient: None) -> None:
    headers = sent_by(url, monkeypatch)
    assert not {"Authorization", "X-Amz-Date", "X-Amz-Security-Token"} & set(headers)


def test_a_token_is_sent_in_place_of_a_signature(monkeypatch: pytest.MonkeyPatch, ambient: None) -> None:
    headers = sent_by(API, monkeypatch, token="t")
    assert headers["Authorization"] == "Bearer t" and "X-Amz-Date" not in headers
    assert "Authorization" not in sent_by(API, monkeypatch, aws=False)
    for aws in (True, Aws()):
        with pytest.raises(InvalidInputError, match="not both"):
            Turnlog.open(API, token="t", aws=aws)
    with pytest.raises(InvalidInputError, match="not both"):
        Turnlog.open(API, aws=Aws(profile="x", session=Held(None)))


# ------------------------------------------------------------ what is missing


def without_profile(monkeypatch: pytest.MonkeyPatch) -> Aws | None:
    return Aws(profile="nobody")


def without_anything(monkeypatch: pytest.MonkeyPatch) -> Aws | None:
    return None


def without_secret(monkeypatch: pytest.MonkeyPatch) -> Aws | None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    return None


def with_an_empty_session(monkeypatch: pytest.MonkeyPatch) -> Aws | None:
    return Aws(session=Held(None))


@pytest.mark.parametrize("lack", [without_profile, without_anything, without_secret, with_an_empty_session])
def test_without_credentials_it_is_unauthorized(
    lack: Callable[[pytest.MonkeyPatch], Aws | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Turnlog.open(API, aws=lack(monkeypatch)) as log:
        for _ in range(2):
            with pytest.raises(UnauthorizedError) as caught:
                log.health()
            assert caught.value.error_code == "no_credentials"


@pytest.mark.network
def test_credentials_that_come_later_are_found_later(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    with Turnlog.open(gate.url, aws=Aws(region="x-1")) as log:
        with pytest.raises(UnauthorizedError):
            log.health()
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        assert log.health().status == "ok"
    assert Signature(gate.received[-1]).is_of(SECRET) and "x-amz-security-token" not in gate.received[-1].headers


def test_without_a_region_it_is_said_how_to_give_one(ambient: None) -> None:
    with Turnlog.open("https://turnlog.example.com", aws=True) as log, pytest.raises(InvalidInputError) as caught:
        log.health()
    assert caught.value.error_code == "no_region" and "region=" in caught.value.detail


def test_without_botocore_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "turnlog.client.aws_signing", raising=False)
    monkeypatch.setitem(sys.modules, "botocore.auth", None)
    for url, aws in ((API, None), ("http://127.0.0.1:1", True)):
        with pytest.raises(InvalidInputError, match=r"pip install 'turnlog\[aws\]'") as caught:
            Turnlog.open(url, aws=aws)
        assert caught.value.error_code == "extra_missing"
    Turnlog.open(API, token="t").close()


def test_botocore_is_imported_for_such_an_address_alone() -> None:
    code = (
        "import json, sys; from turnlog import Turnlog; found = []\n"
        "def check(**given): Turnlog.open(**given).close(); found.append('botocore' in sys.modules)\n"
        "check(url='http://127.0.0.1:1'); check(url='https://example.com', token='t')\n"
        f"check(url={API!r}, token='t'); check(url={API!r})\n"
        "print(json.dumps([*found, 'boto3' in sys.modules]))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == [False, False, False, True, False]


# ------------------------------------------------------------ what stands before the service


@pytest.mark.network
@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(gate: Gate, code: int) -> None:
    """A signature, and what it is for, go to the address that was given."""
    with gated() as (_, elsewhere):
        gate.plan = [status(code, f"Location: {elsewhere.url}/v1/sessions")]
        with signed(gate) as log, pytest.raises(TurnlogError, match=str(code)):
            log.sessions.create("a")
        assert len(gate.received) == 1 and not elsewhere.received


@pytest.mark.network
def test_a_gateway_that_refuses_is_told_apart_from_the_service(gate: Gate) -> None:
    said = b'{"message": "The Canonical String for this request should have been TOKEN"}'
    gate.plan = [status(403, "x-amzn-ErrorType: InvalidSignatureException:http://x", body=said)]
    with signed(gate) as log, pytest.raises(ForbiddenError) as caught:
        log.health()
    assert "AWS refused" in caught.value.detail and "(InvalidSignatureException)" in caught.value.detail
    assert "TOKEN" not in caught.value.detail
    gate.plan = [status(401, body=b'{"message": "Unauthorized"}')]
    with Turnlog.open(gate.url) as log, pytest.raises(UnauthorizedError) as plain:
        log.health()
    assert "AWS" not in plain.value.detail


@pytest.mark.network
@pytest.mark.parametrize("name", [".", ".."])
def test_a_name_that_would_be_another_path_is_not_sent(gate: Gate, name: str) -> None:
    """A proxy makes the session of /snapshots/.., and the person of /memory/.., who would be erased."""
    with signed(gate) as log:
        session = log.sessions.create("a")
        made = session.create_snapshot(name)
        for call in (session.snapshot, session.delete_snapshot, session.restore_snapshot):
            with pytest.raises(InvalidInputError, match="by its id"):
                call(name)
        assert isinstance(made, Snapshot) and session.snapshot(made.snapshot_id).name == name
        with pytest.raises(NotFoundError):
            log.forget(name)
        assert len(gate.received) == 3


@pytest.mark.parametrize("options", [{"aws": True}, {"aws": False}, {"timeout_seconds": 1}, {"deadline_seconds": 1}])
def test_options_of_a_service_are_not_for_an_engine(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(options))):
        Turnlog.open("memory://", **options)
