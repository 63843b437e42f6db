"""Fixtures for all tests: the engines, the project's samples, and the real conversations where they are."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.util
import logging
import os
import re
import secrets
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase
from hypothesis import settings as hypothesis_settings

pytest.register_assert_rewrite("turnlog.testing.contracts", "tests.support")

from tests.effort import FULL, is_full  # noqa: E402
from tests.faults import FAULT, KINDS, FaultReport, commit_id  # noqa: E402
from tests.support.quick_moto import quick_moto  # noqa: E402
from turnlog.app import Application  # noqa: E402
from turnlog.client.in_process import InProcessBackend  # noqa: E402
from turnlog.client.model import Turnlog  # noqa: E402
from turnlog.core.errors import NotFoundError  # noqa: E402
from turnlog.core.identity import Owner  # noqa: E402
from turnlog.engines import Engine  # noqa: E402
from turnlog.settings import Settings  # noqa: E402
from turnlog.testing.fixed import FixedClock, SequentialIds  # noqa: E402

ROOT = Path(__file__).parent.parent
DATA = ROOT.parent / "shared" / "data"
SAMPLES = ROOT / "examples" / "conversations"
FAULT_REPORT = "turnlog-faults-report"
MEMORY = Path("/dev/shm")  # noqa: S108
"""Linux keeps files there in memory, so a test that opens a new SQLite file, or commits to it, does not wait for the disk."""

if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 1 << 30:
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)  # also of the processes that tests start


@pytest.fixture(scope="session", autouse=True)
def service_models_are_read_once() -> Iterator[None]:
    """botocore reads the JSON of its services for each session anew: half of what a harness on moto takes."""
    import botocore.session
    from botocore.loaders import create_loader

    from turnlog.engines import aws_service_models

    @functools.cache
    def loader(search_paths: tuple[str, ...]) -> aws_service_models.ServiceModels:
        return aws_service_models.ServiceModels(list(search_paths))

    def use_service_models(session: botocore.session.Session) -> None:
        paths = create_loader(session.get_config_variable("data_path")).search_paths
        session.register_component("data_loader", loader(tuple(paths)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.session, "create_loader", functools.cache(create_loader))
        patch.setattr(aws_service_models, "use_service_models", use_service_models)
        yield


@pytest.fixture(autouse=True)
def a_function_leaves_no_logger() -> Iterator[None]:
    """A Lambda function sets the logger of its process up: the tests share one."""
    yield
    logger = logging.getLogger("turnlog")
    if getattr(logger, "init", False):  # Powertools' mark
        from turnlog.http.logs import powertools_logger

        powertools_logger.cache_clear()
        logger.handlers.clear()
        logger.setLevel(logging.NOTSET)
        del logger.init  # type: ignore[attr-defined]


@pytest.fixture(scope="session", autouse=True)
def moto_does_no_more_than_is_asked() -> Iterator[None]:
    with quick_moto():
        yield


@pytest.fixture(scope="session", autouse=True)
def a_search_for_a_window_has_time() -> Iterator[None]:
    """On a busy machine an index may take longer than a window waits for one. Tests of the wait set it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("turnlog.search.session.RECALL_SECONDS", 600.0)
        yield


PROPERTY = re.compile(r"test_[aswdetv]\d_", re.IGNORECASE)
"""The name of a test that shows a property of docs/contributing/properties.md."""


gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Thousands of tests, and all that they import, are there to the end: they are not looked through for garbage."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(100_000, 20, 50)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run the long forms too")
    parser.addoption(
        "--faults-report", metavar="PATH", help="write what faults were tried: docs/contributing/faults.md"
    )


# No machine is too slow; and examples are new in each run of a CI too, where Hypothesis has a profile of its own.
hypothesis_settings.register_profile(
    "turnlog",
    parent=hypothesis_settings.get_profile("default"),
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
# For `make mutants`, which asks whether a test fails and not with which small example.
hypothesis_settings.register_profile(
    "turnlog-unshrunk",
    parent=hypothesis_settings.get_profile("turnlog"),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
# `make pr` tries fewer examples of a test that says no number.
hypothesis_settings.register_profile(
    "turnlog-short", parent=hypothesis_settings.get_profile("turnlog"), max_examples=25
)
hypothesis_settings.load_profile("turnlog")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = str(secrets.randbelow(2**32))  # xdist gives its workers the options
    config.add_cleanup(gc.freeze)  # nor does a process that ends take its millions of objects apart
    if config.getoption("--full"):
        os.environ[FULL] = "1"
    else:
        hypothesis_settings.load_profile("turnlog-short")
    if config.getoption("--faults-report") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(FaultReport(), FAULT_REPORT)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Use one worker more than there are cores: while one waits for a process or a clock, another uses its core."""
    return (os.cpu_count() or 1) + 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    report: FaultReport | None = session.config.pluginmanager.get_plugin(FAULT_REPORT)
    if report is not None and report.cells:
        command = "make faults" + (" ARGS=--full" if is_full() else "")
        page = report.page(commit=commit_id(), command=command)
        Path(session.config.getoption("--faults-report")).write_text(page, encoding="utf-8")
        (ROOT / "tools" / "faults_tried.json").write_text(report.operations(), encoding="utf-8")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = set[pytest.Item]() if config.getoption("--full") else on_a_second_engine(items)
    for item in items:
        if item.get_closest_marker("network"):
            item.add_marker(pytest.mark.enable_socket)
        if config.getoption("--full"):
            continue
        if item.get_closest_marker("full"):
            item.add_marker(pytest.mark.skip(reason="the long form: run by `make full`"))
        elif item in left_out:
            item.add_marker(pytest.mark.skip(reason="on moto too by `make full`"))


def on_a_second_engine(items: list[pytest.Item]) -> set[pytest.Item]:
    """Return the tests that run on SQLite and need not on moto in `make pr`. A test that is marked runs on both with all its
    parameters, one of two of a property with every third of them, and one of ten others, always the same ones. The engines
    themselves are shown to be alike by the suites of tests/engines."""
    functions = dict[str, list[pytest.Item]]()
    for item in items:
        engine = getattr(item, "callspec", None) and item.callspec.params.get("harness")  # type: ignore[attr-defined]
        is_named = item.get_closest_marker("parametrize") and len(engines_of(item)) == 1
        if engine == "moto" and not is_named and not item.get_closest_marker("every_engine"):
            functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out = set[pytest.Item]()
    for name, cases in functions.items():
        number = zlib.crc32(name.encode())
        runs = number % (2 if PROPERTY.match(cases[0].name) else 10) == 0
        left_out.update(set(cases) - set(cases[number % min(3, len(cases)) :: 3]) if runs else cases)
    return left_out


def engines_of(item: pytest.Item) -> list[object]:
    """The engines that a test names itself; all when it names none."""
    for mark in item.iter_markers("parametrize"):
        if mark.args[0] == "harness":
            return list(mark.args[1])
    return ["sqlite", "moto"]


def pytest_report_header(config: pytest.Config) -> str:
    return f"hypothesis seed: --hypothesis-seed={config.getoption('hypothesis_seed')}"


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the seed that a failure needs, and the reports of published conformance suites that tests have recorded."""
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        terminalreporter.write_line(f"Examples of this run: {pytest_report_header(config)}")
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
    lines = sorted(text for report in reports for name, text in report.user_properties if name == "conformance")
    if lines:
        terminalreporter.section("conformance")
        for line in lines:
            terminalreporter.write_line(line)


@dataclass
class Harness:
    """An application on one engine, with its clock and its faults; on moto its meter and `Clients`, on SQLite its database."""

    name: str
    app: Application
    clock: FixedClock
    faults: Any
    meter: Any = None
    clients: Any = None
    database: Any = None

    def log(self, tenant: str = "acme", user: str = "ada") -> Turnlog:
        return Turnlog(InProcessBackend(self.app, Owner.of(tenant, user)))

    def other_process(self) -> Harness:
        """Return the harness of a process that remembers nothing, over the same engine."""
        app = Application(self.app.engine, self.app.settings, clock=self.clock, ids=self.app.ids)
        return replace(self, app=app)


class _GuardFaults:
    """The faults of `tests.faulty_engines`, by the hooks of the moto guard."""

    def __init__(self, guard: Any) -> None:
        self._guard = guard

    @property
    def calls(self) -> int:
        return sum(self._guard.meter.requests.values())

    def fail(self, at: int, when: str) -> None:
        self._guard.fail(at, when)

    def fail_often(self, share: float, when: str, *, seed: int) -> None:
        self._guard.fail_often(share, when, seed=seed)

    @property
    def often_met(self) -> int:
        return int(self._guard.often_met)

    @property
    def is_pending(self) -> bool:
        return bool(self._guard.faults_left)

    def clear(self) -> None:
        self._guard.clear_faults()


@contextlib.contextmanager
def sqlite_harness(folder: Path) -> Iterator[Harness]:
    from tests.faulty_engines import Faults, FaultyBlobStore, FaultyItemTable, FaultyJobQueue
    from turnlog.engines.files import FileBlobStore
    from turnlog.engines.sqlite import SqliteDatabase
    from turnlog.engines.sqlite_tables import SqliteItemTable, SqliteJobQueue

    database, faults, clock = SqliteDatabase(folder / "turnlog.db"), Faults(), FixedClock()
    queue = SqliteJobQueue(database, SequentialIds(10**6), clock.now_ms, visibility_seconds=360, max_receives=5)
    engine = Engine(
        "sqlite",
        FaultyItemTable(SqliteItemTable(database), faults),
        FaultyBlobStore(FileBlobStore(folder / "blobs"), faults),
        FaultyJobQueue(queue, faults),
        database.close,
    )
    app = Application(engine, Settings(), clock=clock, ids=SequentialIds())
    yield Harness("sqlite", app, clock, faults, database=database)
    app.close()


@contextlib.contextmanager
def moto_harness(monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    from moto import mock_aws

    from tests.faulty_engines import FaultyGuard
    from turnlog.engines.aws_clients import Clients
    from turnlog.engines.dynamodb import DynamoItemTable
    from turnlog.engines.s3 import S3BlobStore
    from turnlog.engines.sqs import SqsJobQueue
    from turnlog.testing.aws import create_bucket, create_queue, create_table, real_item_limit

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    with mock_aws(), real_item_limit():
        clients, clock = Clients("eu-central-1", max_attempts=1), FixedClock()
        create_table(clients.dynamodb, "turnlog")
        create_bucket(clients.s3, "turnlog-blobs")
        url, _ = create_queue(clients.sqs, "jobs", visibility_seconds=360, max_receives=5)
        queue = SqsJobQueue(clients.sqs, url, look_seconds=0)  # moto has one host, which knows all letters
        guard = FaultyGuard.attach(clients.dynamodb, clients.s3, clients.sqs)
        table = DynamoItemTable(clients.dynamodb, "turnlog", sleep=clock.sleep)
        engine = Engine("dynamodb", table, S3BlobStore(clients.s3, "turnlog-blobs"), queue, lambda: None)
        app = Application(engine, Settings(), clock=clock, ids=SequentialIds())
        yield Harness("moto", app, clock, _GuardFaults(guard), guard, clients)


@pytest.fixture(params=["sqlite", "moto"])
def harness(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    """The application on each engine."""
    make: Callable[[], contextlib.AbstractContextManager[Harness]] = {
        "sqlite": lambda: sqlite_harness(tmp_path),
        "moto": lambda: moto_harness(monkeypatch),
    }[request.param]
    with make() as made:
        yield made


@pytest.fixture
def tells(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Tells of faults that a test has tried, for docs/contributing/faults.md. If the test passes, all of them were survived."""
    callspec = getattr(request.node, "callspec", None)
    engine = callspec.params.get("harness", "sqlite") if callspec is not None else "sqlite"

    def tell(kind: str, operation: str, tried: int = 1) -> None:
        assert kind in KINDS and tried > 0, (kind, tried)
        record_property(FAULT, (kind, operation, engine, tried))

    return tell


@pytest.fixture
def moto(monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    """The application on moto alone, for what only AWS does."""
    with moto_harness(monkeypatch) as made:
        yield made


@pytest.fixture
def log(harness: Harness) -> Turnlog:
    return harness.log()


@pytest.fixture(scope="session")
def real_data() -> ModuleType:
    """The loader of the real conversations beside the project; tests that need it are skipped without it."""
    path = DATA / "load.py"
    if not path.is_file():
        pytest.skip("../shared/data is not there: real conversations are not part of the project")
    spec = importlib.util.spec_from_file_location("real_conversations", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["real_conversations"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def by_bucket(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Signed addresses lead to moto's bucket without a socket."""
    from turnlog.client import over_http as downloads

    def fetch(url: str, into: Any, *_: Any) -> None:
        name = url.partition("?")[0].split("/", 3)[3]
        data = request.getfixturevalue("harness").app.engine.blobs.get(name)
        if data is None:
            raise NotFoundError("gone")
        into.write(data)

    monkeypatch.setattr(downloads, "fetch", fetch)
