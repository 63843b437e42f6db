"""Tenant isolation where it meets AWS: whose requests are signed by whom, and what happens while STS does not answer."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import EndpointConnectionError
from moto import mock_aws
from moto.core.botocore_stubber import MockRawResponse

from tests.functions.deployment import noise
from tests.support.aws_requests import on_every_client
from turnlog import Turnlog
from turnlog.app import make_application
from turnlog.client.in_process import InProcessBackend
from turnlog.core.errors import ThrottledError, UnavailableError
from turnlog.core.identity import Owner, serving
from turnlog.engines.aws_clients import Clients
from turnlog.engines.s3 import S3BlobStore
from turnlog.settings import Settings
from turnlog.testing.aws import create_bucket, create_table

REGION, BUCKET = "eu-central-1", "turnlog-blobs"
ROLE = "arn:aws:iam::123456789012:role/tenant"
_CREDENTIAL = re.compile(r"Credential=([^/]+)/")


class Watched:
    """An application whose requests are seen: ``signed`` has the access key of each, and whether it is a session's."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.signed = list[tuple[str, str]]()
        self.assumed = dict[str, str]()
        self.hosts = set[str]()
        self.sts_answers: Callable[[], AWSResponse | None] = lambda: None
        on_every_client(patch, self._watch)
        settings = Settings(
            engine=f"dynamodb://t?bucket={BUCKET}&region={REGION}", tenant_role_arn=ROLE, token_counter="estimate"
        )
        self.app = make_application(settings)

    def _watch(self, service: str, client: Any) -> None:
        if service == "sts":
            client.meta.events.register_first("before-send", self._asked)
            client.meta.events.register("after-call", self._answered)
            client.meta.events.register("before-parameter-build", self._named)
        else:
            client.meta.events.register_first("before-send", self._sent)

    def log(self, tenant: str) -> Turnlog:
        return Turnlog(InProcessBackend(self.app, Owner.of(tenant, "ada")))

    def _named(self, params: Any, **_: Any) -> None:
        assert (params["RoleArn"], params["DurationSeconds"]) == (ROLE, 3600)
        (tag,) = params["Tags"]
        assert tag["Key"] == "tenant" and params["RoleSessionName"] == f"turnlog-{tag['Value']}"

    def _asked(self, request: Any, **_: Any) -> AWSResponse | None:
        self.hosts.add(request.url.split("/")[2])
        return self.sts_answers()

    def _answered(self, parsed: Any, **_: Any) -> None:
        if "Credentials" in parsed:
            session = parsed["AssumedRoleUser"]["Arn"].rpartition("/turnlog-")[2]
            self.assumed[parsed["Credentials"]["AccessKeyId"]] = session

    def _sent(self, request: Any, **_: Any) -> None:
        header = request.headers["Authorization"]
        (key,) = _CREDENTIAL.findall(header.decode() if isinstance(header, bytes) else header)
        body = request.body.decode("latin-1") if isinstance(request.body, bytes) else str(request.url)
        self.signed.append((self.assumed.get(key, key), request.url + body))


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "own")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    with mock_aws():
        plain = Clients(REGION)
        create_table(plain.dynamodb, "t")
        create_bucket(plain.s3, BUCKET)
        yield Watched(monkeypatch)


def items() -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = Clients(REGION).dynamodb.scan(TableName="t")["Items"]  # type: ignore[assignment]
    return result


def objects() -> int:
    return int(Clients(REGION).s3.list_objects_v2(Bucket=BUCKET)["KeyCount"])


def test_requests_of_two_tenants_at_once_are_signed_for_each(aws: Watched) -> None:
    """Items and blobs, in the threads that a call begins too. STS is asked once for each, at its regional address."""
    start, texts = Barrier(2), (noise(50_000), noise(50_001))

    def work(tenant: str) -> None:
        session = aws.log(tenant).sessions.create("s")
        start.wait(10)
        for _ in range(2):
            session.append(*({"role": "user", "content": text} for text in texts))
        assert len(list(session.messages())) == 4

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, ("alpha", "beta")))
    assert sorted(aws.assumed.values()) == ["alpha", "beta"]
    assert aws.hosts == {f"sts.{REGION}.amazonaws.com"}
    for tenant, other in (("alpha", "beta"), ("beta", "alpha")):
        sent = [text for who, text in aws.signed if who == tenant]
        assert len(sent) > 15 and any("s3" in text for text in sent)
        assert all(tenant in text and other not in text for text in sent)
    own = [text for who, text in aws.signed if who == "own"]
    assert all("alpha" not in text and "beta" not in text for text in own)


def refused(code: str, status: int) -> AWSResponse:
    text = f"<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>m</Message></Error></ErrorResponse>"
    return AWSResponse("https://sts", status, {"content-type": "text/xml"}, MockRawResponse(text))


def down() -> AWSResponse:
    raise EndpointConnectionError(endpoint_url="https://sts")


@pytest.mark.parametrize(
    ("answers", "kind", "code"),
    [
        (lambda: refused("AccessDenied", 403), UnavailableError, "storage_denied"),
        (lambda: refused("ExpiredTokenException", 403), UnavailableError, "storage_denied"),
        (lambda: refused("Throttling", 400), ThrottledError, "throttled"),
        (lambda: refused("InternalFailure", 500), UnavailableError, "unavailable"),
        (down, UnavailableError, "unavailable"),
    ],
)
def test_while_sts_does_not_answer_nothing_is_half_done(
    aws: Watched, answers: Any, kind: type[Exception], code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it says is told as what the table says would be; the next call goes on as if nothing had been."""
    monkeypatch.setattr("time.sleep", lambda _: None)  # botocore's, between its tries
    session = aws.log("a").sessions.create("s")
    assert len(list(aws.log("a").sessions.list())) == 1  # the cursor secret, which is no tenant's, is there
    before, blobs = items(), objects()
    fresh = make_application(aws.app.settings)
    log = Turnlog(InProcessBackend(fresh, Owner.of("a", "ada")))
    aws.sts_answers = answers
    message = {"role": "user", "content": noise(60_000)}
    for ask in (
        lambda: log.sessions.get("s").append(message),
        lambda: log.sessions.create("other"),
        lambda: list(log.sessions.list()),
    ):
        with pytest.raises(kind) as raised:
            ask()
        assert raised.value.error_code == code  # type: ignore[attr-defined]
        assert str(raised.value).startswith("AssumeRole ") and "123456789012" not in str(raised.value)
    assert (items(), objects()) == (before, blobs)
    aws.sts_answers = lambda: None
    log.sessions.get("s").append(message)
    assert [message.position for message in session.messages()] == [2]


def test_an_address_that_somebody_gets_is_signed_for_the_tenant(aws: Watched) -> None:
    store = aws.app.engine.blobs
    with serving("a"):
        store.put("a/x", b"bytes")
        url = store.url("a/x", seconds=60, filename="x")
    assert url is not None
    (key,) = re.findall(r"X-Amz-Credential=([^%]+)%2F", url)
    assert aws.assumed[key] == "a" and "X-Amz-Security-Token=" in url


@pytest.mark.parametrize(
    ("listing", "raised"), [("", None), ("AccessDenied", "storage_denied"), ("SlowDown", "throttled")]
)
def test_a_blob_that_s3_denies_is_missing_if_its_name_is(aws: Watched, listing: str, raised: str | None) -> None:
    client = Clients(REGION, max_attempts=1).s3
    client.put_object(Bucket=BUCKET, Key="a/x-and-more", Body=b"")
    client.put_object(Bucket=BUCKET, Key="a/there", Body=b"")
    store = S3BlobStore(client, BUCKET)

    def answer(request: Any, **_: Any) -> AWSResponse | None:
        code = listing if "list-type" in request.url else "AccessDenied"
        return refused_by_s3(code) if code else None

    client.meta.events.register_first("before-send", answer)
    if raised is None:
        assert store.get("a/x") is None
        raised = "storage_denied"
        with pytest.raises(UnavailableError) as denied:
            store.get("a/there")
    else:
        with pytest.raises((UnavailableError, ThrottledError)) as denied:
            store.get("a/x")
    assert denied.value.error_code == raised


def refused_by_s3(code: str) -> AWSResponse:
    text = f"<Error><Code>{code}</Code><Message>m</Message></Error>"
    return AWSResponse("https://s3", 403 if code == "AccessDenied" else 503, {}, MockRawResponse(text))


def test_without_the_setting_nobody_asks_sts() -> None:
    """Nor is its module loaded: it would take time of each cold start."""
    code = f"""
import os, sys
os.environ.update(AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x")
from turnlog.engines.aws_clients import Clients
for role, loaded in (("", False), ({ROLE!r}, True)):
    clients = Clients({REGION!r}, tenant_role_arn=role)
    clients.dynamodb.meta, clients.s3.meta
    assert ("turnlog.engines.aws_tenants" in sys.modules) is loaded, role
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
