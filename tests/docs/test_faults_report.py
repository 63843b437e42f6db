"""Pages of faults and of planted faults: every kind and operation is there, nothing was lost, and every edit still applies."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tests.faults import FAULT, KINDS, FaultReport
from tests.support.damaged_items import BLOBS
from tests.support.damaged_items import KINDS as ITEM_KINDS
from tests.support.pairs import OPERATIONS
from tests.support.steps import STEPS
from tests.support.worker_faults import JOBS

ROOT = Path(__file__).parent.parent.parent
CAUGHT, TRIED = ROOT / "tools" / "planted_caught.json", ROOT / "tools" / "faults_tried.json"
PAGE, PLANTED_PAGE = ROOT / "docs" / "contributing" / "faults.md", ROOT / "docs" / "contributing" / "planted-faults.md"


@pytest.fixture(scope="module")
def planted() -> ModuleType:
    spec = importlib.util.spec_from_file_location("planted_faults", ROOT / "tools" / "planted_faults.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["planted_faults"] = module
    spec.loader.exec_module(module)
    return module


def told(kind: str, operation: str, tried: int, *, passed: bool) -> SimpleNamespace:
    return SimpleNamespace(when="call", passed=passed, user_properties=[(FAULT, (kind, operation, "sqlite", tried))])


def test_a_report_counts_what_was_lost() -> None:
    report = FaultReport()
    report.pytest_runtest_logreport(told("throttled", "append", 7, passed=True))
    report.pytest_runtest_logreport(told("throttled", "append", 2, passed=False))
    report.pytest_runtest_logreport(told("clock", "fork", 1, passed=True))
    assert json.loads(report.operations()) == {"throttled": {"append": [9, 2]}, "clock": {"fork": [1, 0]}}
    assert "10 faults tried, 8 survived, 2 lost" in report.page(commit="abc", command="make faults")


def test_every_operation_meets_every_kind_of_fault_that_it_can() -> None:
    tried = json.loads(TRIED.read_text(encoding="utf-8"))
    assert set(tried) == set(KINDS)
    wanted = {
        (kind, step)
        for kind in ("no answer before", "no answer after", "throttled", "denied", "clock", "full disk")
        for step in STEPS
    }
    wanted |= {("at once", operation) for operation in OPERATIONS}
    wanted |= {("damaged", kind) for kind in ITEM_KINDS.values()}
    wanted |= {(kind, blob) for kind in ("blob", "bomb") for blob in BLOBS.values()}
    wanted |= {(kind, f"{job} job") for kind in ("worker ends", "dead letter") for job in JOBS}
    assert wanted - {(kind, operation) for kind in tried for operation in tried[kind]} == set(), "run `make faults`"


def test_nothing_was_lost() -> None:
    counts = [count for kind in json.loads(TRIED.read_text(encoding="utf-8")).values() for count in kind.values()]
    assert sum(lost for _, lost in counts) == 0
    assert f"**{sum(tried for tried, _ in counts):,} faults tried" in PAGE.read_text(encoding="utf-8")


def test_every_planted_fault_still_applies(planted: ModuleType) -> None:
    for fault in planted.PLANTED:
        edits = dict[str, str]()
        for name, old, new in fault.edits:
            text = edits.get(name) or (ROOT / name).read_text(encoding="utf-8")
            assert text.count(old) == 1 and old != new, f"{fault.what}: the source has moved"
            edits[name] = text.replace(old, new)
        for name, text in edits.items():
            if name.endswith(".py"):
                compile(text, name, "exec")


def test_every_planted_fault_names_tests_that_there_are(planted: ModuleType) -> None:
    for fault in planted.PLANTED:
        for test in fault.tests:
            path, _, name = test.partition("::")
            text = (ROOT / path).read_text(encoding="utf-8")
            assert not name or f"def {name.partition('[')[0]}(" in text, test


def test_every_planted_fault_was_caught(planted: ModuleType) -> None:
    caught = json.loads(CAUGHT.read_text(encoding="utf-8"))
    assert [fault.what for fault in planted.PLANTED if not caught.get(f"{fault.kind} | {fault.what}")] == [], (
        "run `make planted`"
    )
    count = len(planted.PLANTED)
    assert f"**{count} of {count} faults" in PLANTED_PAGE.read_text(encoding="utf-8"), "run `make planted`"
