"""Who is served: a variable of the context, from the call to the threads that it begins, and never from a key."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from random import Random
from threading import Barrier
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import Harness, sqlite_harness
from turnlog.app import Application
from turnlog.client.in_process import InProcessBackend
from turnlog.core.errors import InvalidInputError
from turnlog.core.identity import Owner, correlated, correlation_id, served_tenant, serving
from turnlog.engines import Engine, make_engine
from turnlog.log.payloads import in_parallel
from turnlog.ports import Condition, Item, ItemTable, Key, Lost, Page, Query
from turnlog.settings import Settings
from turnlog.testing.fixed import FixedClock, SequentialIds

ROLE = "arn:aws:iam::111122223333:role/turnlog-prod-TenantWriterRole-1A2B3C"


def test_a_block_serves_one_tenant_and_what_is_in_it_another() -> None:
    assert served_tenant() is None
    with serving("a"):
        with serving("b"), serving(None):
            assert served_tenant() is None
        assert served_tenant() == "a"
        with pytest.raises(RuntimeError), serving("b"):
            raise RuntimeError
        assert served_tenant() == "a"
    assert served_tenant() is None


@pytest.mark.parametrize("tenant", ["", "a*", "a?", "a#b", "a/b", "${aws:username}", "a" * 65, "ä", "a\n"])
def test_nothing_but_the_id_of_a_key_is_served(tenant: str) -> None:
    with pytest.raises(ValueError, match="not an id of a tenant"), serving(tenant):
        raise AssertionError


@given(st.text(min_size=1, max_size=80))
def test_every_tenant_has_an_id_without_wildcards(name: str) -> None:
    tenant_id = Owner.of(name, "ada").tenant_id
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", tenant_id)
    with serving(tenant_id):
        assert served_tenant() == tenant_id


def test_threads_serve_whom_their_caller_serves() -> None:
    both = Barrier(2)

    def seen(_: int) -> tuple[str | None, str | None]:
        both.wait(10)  # two at a time are under way, so it takes two threads
        return served_tenant(), correlation_id()

    def work(tenant: str) -> list[tuple[str | None, str | None]]:
        with serving(tenant), correlated(f"call-of-{tenant}"):
            return in_parallel(seen, range(20), threads=2)

    with ThreadPoolExecutor(2) as pool:
        values = dict(zip("ab", pool.map(work, "ab"), strict=True))
    assert values == {tenant: [(tenant, f"call-of-{tenant}")] * 20 for tenant in "ab"}


def test_in_parallel_keeps_the_order_and_raises_the_first_error() -> None:
    assert in_parallel(lambda item: item * 2, range(50), threads=4) == [number * 2 for number in range(50)]
    with pytest.raises(ZeroDivisionError):
        in_parallel(lambda item: 1 // item, [1, 0, 2], threads=2)


class Watched:
    """An engine's table or bucket that is asked for the tenant that is served, and for what is nobody's by nobody."""

    def __init__(self, inner: Any, tenants: set[str]) -> None:
        self._inner = inner
        self._tenants = tenants

    def _check(self, partition: str) -> None:
        served = served_tenant()
        of = partition.split("#")[1] if partition.startswith("T#") else None
        assert of == served, f"{partition} is asked for while {served} is served"
        self._tenants |= {of} if of else set()

    def get_many(self, keys: Sequence[Key], *, consistent: bool = True) -> dict[Key, Item]:
        for key in keys:
            self._check(key.pk)
        result: dict[Key, Item] = self._inner.get_many(keys, consistent=consistent)
        return result

    def query(self, query: Query) -> Page:
        self._check(query.pk)
        result: Page = self._inner.query(query)
        return result

    def put(self, item: Item, *, condition: Condition | None = None) -> Lost | None:
        self._check(str(item["pk"]))
        lost: Lost | None = self._inner.put(item, condition=condition)
        return lost

    def write_many(self, items: Sequence[Item]) -> None:
        for item in items:
            self._check(str(item["pk"]))
        self._inner.write_many(items)

    def delete_many(self, keys: Sequence[Any]) -> None:
        for key in keys:
            self._check(key.pk if isinstance(key, Key) else _partition(key))
        self._inner.delete_many(keys)

    def __getattr__(self, name: str) -> Any:
        """Of blobs."""

        def ask(blob: str, *args: Any, **options: Any) -> Any:
            self._check(_partition(blob))
            return getattr(self._inner, name)(blob, *args, **options)

        return ask


def _partition(blob: str) -> str:
    return f"T#{blob.removeprefix('~exports/').split('/')[0]}"


class WatchedBlobs(Watched):
    put = None  # type: ignore[assignment]

    def __getattribute__(self, name: str) -> Any:
        return self.__getattr__(name) if name == "put" else super().__getattribute__(name)


@pytest.fixture
def watched(tmp_path: Path) -> Any:
    tenants = set[str]()
    with sqlite_harness(tmp_path) as made:
        inner = made.app.engine
        items: ItemTable = Watched(inner.items, tenants)
        engine = Engine(inner.name, items, WatchedBlobs(inner.blobs, tenants), inner.queue, inner.close)
        app = Application(engine, Settings(token_counter="estimate"), clock=made.clock, ids=SequentialIds())
        yield Harness("watched", app, made.clock, made.faults), tenants


def test_t1_all_that_is_asked_of_the_engine_is_asked_for_the_tenant_of_who_calls(
    watched: tuple[Harness, set[str]],
) -> None:
    """Calls, jobs and retention, of two tenants in turn: each key is of the tenant that is served, or nobody's."""
    made, tenants = watched
    clock: FixedClock = made.clock
    long = Random(1).randbytes(35_000).hex()
    for tenant in ("a", "b"):
        session = made.log(tenant).sessions.create("s", ttl_days=1, system=long)
        for number in range(3):
            session.append({"role": "user", "content": f"{number} {long}"}, {"role": "assistant", "content": long})
        session.append({"role": "user", "content": "And now?"})
        session.context(budget=400_000)
        session.create_snapshot("n", kind="full")
        session.export(BytesIO())
        made.log(tenant).search("now")
        assert len(list(made.log(tenant).sessions.list())) == 1
        made.log(tenant).sessions.create("left").end()
        body = {"session_id": "begun", "bootstrap": True}
        backend = InProcessBackend(made.app, Owner.of(tenant, "ada"))
        begun = backend.call("create_session", body=body)
        assert begun.bootstrap["status"] == "empty"
        job = session.create_snapshot("m", mode="async")
        backend.run_job(job.job_id)
        assert made.log(tenant).job(job.job_id).status == "done"
    backends = [InProcessBackend(made.app, Owner.of(tenant, "ada")) for tenant in ("a", "b")]
    assert sum(backend.run_jobs() for backend in backends) > 0
    clock.sleep(2 * 86_400)
    retained = made.app.retain_sessions()
    assert retained.expired == 2 and retained.failed == 0
    assert sum(backend.run_jobs() for backend in backends) > 0
    assert tenants == {"a", "b"} and served_tenant() is None


@pytest.mark.parametrize(
    "arn", ["x", "arn:aws:iam::111122223333:role/*", "arn:aws:iam::1:role/x", "arn:aws:iam::111122223333:user/x"]
)
def test_a_tenants_role_is_the_arn_of_one(arn: str) -> None:
    assert Settings.from_environment({"TURNLOG_TENANT_ROLE_ARN": ROLE}).tenant_role_arn == ROLE
    with pytest.raises(InvalidInputError, match="TURNLOG_TENANT_ROLE_ARN"):
        Settings.from_environment({"TURNLOG_TENANT_ROLE_ARN": arn})


@pytest.mark.parametrize("engine", ["memory://", "sqlite:///x.db"])
def test_an_engine_that_knows_no_roles_is_not_made_as_if_it_did(engine: str) -> None:
    settings = Settings(engine=engine, tenant_role_arn=ROLE)
    with pytest.raises(InvalidInputError, match="keeps tenants apart on dynamodb:// only"):
        make_engine(settings, clock=FixedClock(), ids=SequentialIds())
