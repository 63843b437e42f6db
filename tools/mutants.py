"""Breaks a seeded sample of places of the code, one at a time, and sees whether the related tests fail.

python tools/mutants.py [--seed N] [--sample N] [--jobs N] [--minutes N] [--of FOLDER ...] [-k WORD] [--again]

The related tests run in copies of the project, the nearest first, to the first failure. With --minutes no mutant begins after
that time. build/mutants-SEED.jsonl keeps what each mutant came to: the same command goes on where it was stopped, and --again
runs the survivors once more. The page Mutants has the survivors of the newest run; a person writes there why each survived, and
the reason stays while the mutant survives.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.faults import commit_id  # noqa: E402
from tools.mutation import Mutant, mutants_of  # noqa: E402
from tools.plant_faults import copy_project  # noqa: E402
from tools.related_tests import SCOPE, needs_moto, related  # noqa: E402

PAGE = ROOT / "docs" / "contributing" / "mutants.md"
BUILD = ROOT / "build"
SAMPLE_HEADING = "## The newest sample"
TEST_SECONDS = 120
CPU_SECONDS = 1_800
"""A mutant whose tests take more of the CPU hangs, and is killed. A machine that does other work gives it no less."""
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?\.py(?:::\w+)*)", re.MULTILINE)
_HUNG = re.compile(r"^\+* Timeout \+*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Outcome:
    """``by`` is the first test that failed, ``hung`` for one that was ended, empty when all passed."""

    mutant: Mutant
    by: str


def chosen(seed: int, count: int, word: str = "", *, folders: Sequence[str] = ()) -> list[Mutant]:
    """Return the sample of a seed, from all places in scope, those of some folders, or those whose file or kind has the word."""
    files = sorted({path for pattern in SCOPE for path in ROOT.glob(pattern) if path.read_text(encoding="utf-8")})
    names = [path.relative_to(ROOT).as_posix() for path in files if not folders or path.parent.name in folders]
    every = [mutant for name in names for mutant in _mutants_in(name)]
    matching = [item for item in every if word in f"{item.file} {item.kind}"]
    return random.Random(seed).sample(matching, min(count, len(matching)))


@functools.cache
def _mutants_in(name: str) -> tuple[Mutant, ...]:
    return tuple(mutants_of(name, (ROOT / name).read_text(encoding="utf-8")))


class Results:
    """What the mutants of a seed came to, in a file that a stopped run goes on from."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        self._by: dict[str, str] = {row["key"]: row["by"] for row in map(json.loads, lines)}

    def get(self, mutant: Mutant) -> Outcome | None:
        by = self._by.get(_key(mutant))
        return None if by is None else Outcome(mutant, by)

    def add(self, outcome: Outcome) -> None:
        self._by[_key(outcome.mutant)] = outcome.by
        self._path.parent.mkdir(exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": _key(outcome.mutant), "by": outcome.by}) + "\n")

    def forget_survivors(self) -> None:
        self._by = {key: by for key, by in self._by.items() if by}


def _key(mutant: Mutant) -> str:
    """Return the name of an edit of one version of a module."""
    digest = hashlib.sha256((ROOT / mutant.file).read_bytes()).hexdigest()[:12]
    return f"{mutant.file} {digest} {mutant.start}-{mutant.end} {mutant.new}"


class Copies:
    """Copies of the project, one for each mutant that is tried at a time."""

    def __init__(self, folder: Path, count: int) -> None:
        self._free = SimpleQueue[Path]()
        for number in range(count):
            copy_project(folder / f"{number}")
            self._free.put(folder / f"{number}")

    def run(self, tests: Sequence[str]) -> tuple[int, str]:
        copy = self._free.get()
        try:
            return run(copy, tests)
        finally:
            self._free.put(copy)

    def tried(self, mutant: Mutant) -> Outcome:
        copy = self._free.get()
        try:
            return self._tried(copy, mutant)
        finally:
            self._free.put(copy)

    def _tried(self, copy: Path, mutant: Mutant) -> Outcome:
        tests, path = related(mutant.file), copy / mutant.file
        before, stat = path.read_bytes(), path.stat()
        path.write_bytes(mutant.apply(before))
        try:
            code, result = run(copy, tests, aws=needs_moto(mutant.file))
        finally:
            path.write_bytes(before)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # the bytecode of the mutant is not the module's
        if code == 0:
            return Outcome(mutant, "")
        if code > 2:
            raise SystemExit(f"{mutant.name}: pytest ended with {code}\n{result[-2000:]}")
        failed = _FAILED.search(result)
        hung = _HUNG.search(result) or code < 0
        return Outcome(mutant, failed[1] if failed is not None else "hung" if hung else result[-300:])


def run(copy: Path, tests: Sequence[str], *, aws: bool = True, cpu_seconds: int = CPU_SECONDS) -> tuple[int, str]:
    """Return how pytest ended in a copy of the project, and what it printed. A negative code: it took too much CPU."""
    places = [str(copy / "shared"), str(copy / "layers" / "dependencies")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    options = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", "--hypothesis-seed=0", "--tb=no"]
    options.append("--hypothesis-profile=turnlog-unshrunk")
    shutil.rmtree(copy / ".hypothesis" / "examples", ignore_errors=True)  # no mutant is killed by what killed another
    command = [sys.executable, "-m", "pytest", *options, "--timeout", str(TEST_SECONDS), *tests]
    command += [] if aws else ["-k", "not moto"]
    limit = ["/bin/sh", "-c", f'ulimit -t {cpu_seconds}; exec "$@"', "sh"]
    try:
        done = subprocess.run(  # noqa: S603 - our own command
            [*limit, *command],
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=4 * CPU_SECONDS,
        )
    except subprocess.TimeoutExpired:  # it waits for what never comes, and takes no CPU
        return -1, ""
    return done.returncode, done.stdout + done.stderr


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--sample", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=600, help="begin no mutant after that time")
    parser.add_argument("--of", metavar="FOLDER", nargs="+", default=[], help="only modules of these folders")
    parser.add_argument("-k", metavar="WORD", default="", help="only mutants whose file or kind has the word")
    parser.add_argument("--again", action="store_true", help="run the survivors of the seed once more")
    asked = parser.parse_args()
    sample, results = (
        chosen(asked.seed, asked.sample, asked.k, folders=asked.of),
        Results(BUILD / f"mutants-{asked.seed}.jsonl"),
    )
    if asked.again:
        results.forget_survivors()
    ends, commit = time.monotonic() + asked.minutes * 60, commit_id()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(asked.jobs) as pool:
        copies = Copies(Path(folder), asked.jobs)

        def outcome_of(mutant: Mutant) -> Outcome | None:
            if (kept := results.get(mutant)) is not None or time.monotonic() > ends:
                return kept
            outcome = copies.tried(mutant)
            results.add(outcome)
            print(f"{outcome.by or 'SURVIVED'} | {mutant.line} | {mutant.name}", flush=True)
            return outcome

        outcomes = [outcome for outcome in pool.map(outcome_of, sample) if outcome is not None]
        killers = {outcome.by for outcome in outcomes if "::" in outcome.by}
        if killers and copies.run(sorted(killers))[0] != 0:
            print("tests that failed with a mutant fail without one too", file=sys.stderr)
            return 1
    if not asked.k:
        text = PAGE.read_text(encoding="utf-8")
        above, _, _ = text.partition(SAMPLE_HEADING)
        arguments = f"--seed {asked.seed} --sample {asked.sample}" + (f" --of {' '.join(asked.of)}" if asked.of else "")
        PAGE.write_text(above + page(outcomes, judged_on(text), arguments, commit=commit), encoding="utf-8")
    print(f"{sum(bool(outcome.by) for outcome in outcomes)} of {len(outcomes)} killed, seed {asked.seed}")
    return 0


def page(outcomes: Sequence[Outcome], judged: dict[str, str], arguments: str, *, commit: str) -> str:
    """Return the last section of docs/contributing/mutants.md for a run with these arguments; a person writes what is above it."""
    survivors = [outcome.mutant for outcome in outcomes if not outcome.by]
    reasons = [judged.get(" ".join(mutant.name.split()), "not judged") for mutant in survivors]
    equal = sum(reason.startswith("equivalent") for reason in reasons)
    killed, counted = len(outcomes) - len(survivors), len(outcomes) - equal
    lines = [
        SAMPLE_HEADING,
        "",
        "<!-- Written by `make mutants`; only the last column is written by hand. -->",
        "",
        f"**{killed} of {counted} mutants were killed** ({killed / max(1, counted):.0%}) by the related tests:",
        f"{len(outcomes)} were tried, of which {equal} are equivalent, of `make mutants ARGS='{arguments}'`",
        f"at commit `{commit}`. The survivors, and why:",
        "",
        "File · kind · was · became · why",
        "",
    ]
    lines += [_item(f"{mutant.name} | {reason}") for mutant, reason in zip(survivors, reasons, strict=True)]
    return "\n".join([*lines, ""])


def judged_on(page: str) -> dict[str, str]:
    """Return what the page says already of survivors, by their names."""
    items = re.findall(r"^- (`.*(?:\n  .*)*)$", page, re.MULTILINE)
    rows = [re.sub(r"(?<=`) · | · (?=`)", " | ", " ".join(item.split())).rpartition(" | ") for item in items]
    return {name: reason for name, _, reason in rows}


def _item(row: str) -> str:
    """Return a survivor as an item of the page's list, in lines that can be read."""
    item = "- " + re.sub(r"(?<=`) \| | \| (?=`)", " · ", row)
    return textwrap.fill(item, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    raise SystemExit(main())
