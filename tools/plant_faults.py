"""Breaks the code on purpose, one fault after the other, and sees the tests fail: docs/contributing/planted-faults.md.

    make planted                       # all of them, and the page
    make planted ARGS="-k tenancy"     # those whose kind or name has the word; the others stay as they were

It works on a copy. First the tests must pass there as they are; then each fault is put in, its tests are run, and it is taken
out again. A fault that no test sees ends this with an error: a test is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tools.planted_faults import PLANTED, Planted  # noqa: E402

PAGE = ROOT / "docs" / "contributing" / "planted-faults.md"
CAUGHT = ROOT / "tools" / "planted_caught.json"
_PASSED, _FAILED = 0, 1
_LONGEST_SECONDS = 1_200
_FAILED_BY = re.compile(r"^FAILED (\S+?::\w+)", re.MULTILINE)
_COPIED = ("benchmarks", "docs", "events", "examples", "functions", "layers", "mk", "shared", "tests", "tools")
_FILES = ("*.md", "*.toml", "*.yaml", "*.txt", "Makefile", "LICENSE")


@dataclass(frozen=True, slots=True)
class Seen:
    """A fault, and the test that failed first; None when all passed."""

    fault: Planted
    by: str | None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-k", metavar="WORD", default="", help="only faults whose kind or name has the word")
    word = parser.parse_args().k
    faults = [fault for fault in PLANTED if word in f"{fault.kind} {fault.what}"]
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        copy = Path(folder) / "project"
        copy_project(copy)
        print(f"{len(faults)} faults; first their tests as the code is ...", flush=True)
        if (code := _run(copy, [test for fault in faults for test in fault.tests])[0]) != _PASSED:
            print(f"the tests do not pass without a fault (pytest ended with {code})", file=sys.stderr)
            return 1
        seen = list(_planted(copy, faults))
    known = caught_before() | {_name(item.fault): (item.by or "").partition("::")[0] for item in seen}
    caught = {name: known.get(name, "") for name in map(_name, PLANTED)}
    CAUGHT.write_text(json.dumps(caught, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(caught, _commit()), encoding="utf-8")
    missed = [item.fault.what for item in seen if item.by is None]
    print(f"{len(seen) - len(missed)} of {len(seen)} caught")
    return 1 if missed else 0


def _planted(copy: Path, faults: Sequence[Planted]) -> Iterator[Seen]:
    for at, fault in enumerate(faults, 1):
        before = fault.apply(copy)
        try:
            code, result = _run(copy, fault.tests)
        finally:
            for path, text in before.items():
                path.write_text(text, encoding="utf-8")
        if code not in (_PASSED, _FAILED):
            raise SystemExit(f"{fault.what}: pytest ended with {code}\n{result[-2000:]}")
        hits = _FAILED_BY.search(result)
        seen = Seen(fault, hits[1] if hits is not None and code == _FAILED else None)
        print(f"{at:3} {fault.kind:10} {fault.what}: {seen.by or 'NOT CAUGHT'}", flush=True)
        yield seen


def page(caught: Mapping[str, str], commit: str) -> str:
    """Return docs/contributing/planted-faults.md: how many faults of each kind were planted and caught."""
    planted = Counter(fault.kind for fault in PLANTED)
    result = Counter(fault.kind for fault in PLANTED if caught.get(_name(fault)))
    lines = [
        "# Planted faults",
        "",
        "<!-- Written by `make planted`; do not edit. -->",
        "",
        f"**{result.total()} of {planted.total()} faults that were put into the code on purpose were caught** by a test. By",
        f"`make planted` at commit `{commit}`; the edits are in [tools/planted_faults.py](../../tools/planted_faults.py), what",
        "caught each in [tools/planted_caught.json](../../tools/planted_caught.json). A test checks that each still applies.",
        "",
        "| kind | planted | caught |",
        "|---|---:|---:|",
    ]
    lines += [f"| {kind} | {count} | {result[kind]} |" for kind, count in planted.items()]
    return "\n".join([*lines, ""])


def _name(fault: Planted) -> str:
    return f"{fault.kind} | {fault.what}"


def caught_before() -> dict[str, str]:
    """Read which test file caught each fault when it was tried last; "" for none."""
    return dict(json.loads(CAUGHT.read_text(encoding="utf-8")))


def copy_project(to: Path) -> None:
    """Copy what the tests need to a new folder."""
    to.mkdir()
    for name in _COPIED:
        shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
    for pattern in _FILES:
        for path in ROOT.glob(pattern):
            shutil.copy2(path, to / path.name)


def _run(copy: Path, tests: Sequence[str]) -> tuple[int, str]:
    """Return pytest's exit code and its output."""
    places = [str(copy / "shared"), str(copy / "layers" / "dependencies")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", "--tb=no"]
    done = subprocess.run(  # noqa: S603 - our own command
        [*command, *dict.fromkeys(tests)],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=_LONGEST_SECONDS,
    )
    return done.returncode, done.stdout + done.stderr


def _commit() -> str:
    git = shutil.which("git")
    if git is None:
        return "unknown"
    done = subprocess.run(  # noqa: S603 - our own command
        [git, "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    raise SystemExit(main())
