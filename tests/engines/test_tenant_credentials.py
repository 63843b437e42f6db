"""Credentials of tenants: each its own, kept for a while and in a bounded number, refreshed before their end."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import botocore.session
import pytest
from botocore.credentials import Credentials
from botocore.exceptions import NoCredentialsError

from turnlog.core.errors import ThrottledError, UnavailableError
from turnlog.core.identity import serving
from turnlog.engines.aws_tenants import MAX_TENANTS, TenantCredentials, session_of_tenants


class Sts:
    """Gives credentials that say whose they are, and the how many."""

    def __init__(self, minutes: float = 60) -> None:
        self.asked = list[str]()
        self.minutes = minutes
        self.fails: Exception | None = None
        self._lock = threading.Lock()

    def __call__(self, tenant_id: str) -> dict[str, str]:
        if self.fails is not None:
            raise self.fails
        with self._lock:
            self.asked.append(tenant_id)
            key = f"{tenant_id}-{self.asked.count(tenant_id)}"
        until = datetime.now(UTC) + timedelta(minutes=self.minutes)
        return {"access_key": key, "secret_key": "s", "token": key, "expiry_time": until.isoformat()}


def key_of(credentials: TenantCredentials, tenant: str | None) -> str:
    with serving(tenant):
        result = credentials.get_frozen_credentials()
    assert result.token in (result.access_key, None)
    return str(result.access_key)


OWN = Credentials("own", "s")


def test_each_tenant_has_its_own_and_keeps_them() -> None:
    sts = Sts()
    credentials = TenantCredentials(OWN, sts)
    assert [key_of(credentials, value) for value in ("a", "b", None, "a", "b")] == ["a-1", "b-1", "own", "a-1", "b-1"]
    assert sts.asked == ["a", "b"]
    with pytest.raises(NoCredentialsError):
        key_of(TenantCredentials(None, sts), None)


def test_they_are_refreshed_before_their_end() -> None:
    sts = Sts(minutes=14)
    credentials = TenantCredentials(OWN, sts)
    assert [key_of(credentials, "a") for _ in range(3)] == ["a-1", "a-2", "a-3"]
    sts.minutes = 60
    assert [key_of(credentials, "a") for _ in range(3)] == ["a-4"] * 3


def test_while_they_last_nobody_hears_that_new_ones_are_refused() -> None:
    sts = Sts(minutes=14)
    credentials = TenantCredentials(OWN, sts)
    assert key_of(credentials, "a") == "a-1"
    sts.fails = ThrottledError("AssumeRole was throttled")
    assert key_of(credentials, "a") == "a-1"
    with pytest.raises(ThrottledError):
        key_of(credentials, "b")
    sts.fails, sts.minutes = None, 9  # botocore waits for new ones with less than 10 left
    assert key_of(credentials, "a") == "a-2"
    sts.fails = ThrottledError("AssumeRole was throttled")
    with pytest.raises(ThrottledError):
        key_of(credentials, "a")


def test_credentials_that_are_over_already_are_denied() -> None:
    with pytest.raises(UnavailableError) as raised:
        key_of(TenantCredentials(OWN, Sts(minutes=-1)), "a")
    assert raised.value.error_code == "storage_denied"


def test_who_was_not_served_for_longest_is_forgotten() -> None:
    sts = Sts()
    credentials = TenantCredentials(OWN, sts, max_tenants=2)
    assert [key_of(credentials, item) for item in "abacba"] == ["a-1", "b-1", "a-1", "c-1", "b-2", "a-2"]
    many = TenantCredentials(OWN, sts)
    for number in range(MAX_TENANTS + 5):
        key_of(many, f"t{number}")
    assert [key_of(many, tenant) for tenant in ("t5", "t4")] == ["t5-1", "t4-2"], "the first five are forgotten"


def test_tenants_in_threads_never_share() -> None:
    """Eight threads serve four tenants in turn, of which two are kept: each asks for its own, however they meet."""
    sts = Sts()
    credentials, start = TenantCredentials(OWN, sts, max_tenants=2), threading.Barrier(8)

    def work(number: int) -> set[tuple[str, str]]:
        start.wait(10)
        tenants = ["abcd"[(number + at) % 4] for at in range(200)]
        return {(tenant, key_of(credentials, tenant).partition("-")[0]) for tenant in tenants}

    with ThreadPoolExecutor(8) as pool:
        assert set().union(*pool.map(work, range(8))) == {(item, item) for item in "abcd"}


def test_threads_of_one_tenant_ask_once() -> None:
    sts = Sts()
    credentials, start = TenantCredentials(OWN, sts), threading.Barrier(8)

    def work(_: int) -> str:
        start.wait(10)
        return key_of(credentials, "a")

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(work, range(8))) == {"a-1"}
    assert sts.asked == ["a"]


def test_the_models_of_services_are_read_once_for_all_tenants() -> None:
    """A model takes megabytes and tens of milliseconds."""
    own, models = botocore.session.get_session(), object()
    own.register_component("data_loader", models)
    tenants = session_of_tenants(own, "arn:aws:iam::123456789012:role/tenants", lambda: None)
    assert tenants.get_component("data_loader") is models
