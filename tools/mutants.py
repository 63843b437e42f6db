"""Breaks a seeded sample of places of the code, one at a time, and sees whether the related tests fail.

python tools/mutants.py [--seed N] [--sample N] [--jobs N] [--minutes N] [-k WORD]

The related tests are run in copies of the project. With --minutes no mutant is begun after that time.
docs/mutants.md has the survivors of the newest run; why each survived is written there by hand, and kept while it survives.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
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
from tools.related_tests import SCOPE, related  # noqa: E402

PAGE = ROOT / "docs" / "mutants.md"
TEST_SECONDS, MUTANT_SECONDS = 120, 1_200
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?\.py(?:::\w+)*)", re.MULTILINE)
_HUNG = re.compile(r"^\+* Timeout \+*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Outcome:
    """``by`` is the first test that failed, ``hung`` for one that was ended, empty when all passed."""

    mutant: Mutant
    by: str


def chosen(seed: int, count: int, word: str = "") -> list[Mutant]:
    """Return the sample of a seed, from all places in scope or those whose file or kind has the word."""
    files = sorted(path for pattern in SCOPE for path in ROOT.glob(pattern) if path.read_text(encoding="utf-8"))
    names = [path.relative_to(ROOT).as_posix() for path in files]
    every = [one for name in names for one in mutants_of(name, (ROOT / name).read_text(encoding="utf-8"))]
    matching = [one for one in every if word in f"{one.file} {one.kind}"]
    return random.Random(seed).sample(matching, min(count, len(matching)))


def tried(copy: Path, mutant: Mutant) -> Outcome:
    path = copy / mutant.file
    before = path.read_bytes()
    path.write_bytes(mutant.apply(before))
    try:
        code, told = run(copy, related(mutant.file), aws="/aws/" in mutant.file)
    finally:
        path.write_bytes(before)
    if code == 0:
        return Outcome(mutant, "")
    if code > 2:
        raise SystemExit(f"{mutant.name}: pytest ended with {code}\n{told[-2000:]}")
    failed = _FAILED.search(told)
    return Outcome(
        mutant, failed[1] if failed is not None else "hung" if _HUNG.search(told) or code < 0 else told[-300:]
    )


def run(copy: Path, tests: Sequence[str], *, aws: bool = True) -> tuple[int, str]:
    """Return how pytest ended in a copy of the project, and what it printed. A negative code: it took too long."""
    places = [str(copy / "shared"), str(copy / "layers" / "dependencies")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "PYTHONDONTWRITEBYTECODE": "1"}
    options = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", "--hypothesis-seed=0", "--tb=no"]
    try:
        done = subprocess.run(  # noqa: S603 - our own command
            [sys.executable, "-m", "pytest", *options, "--timeout", str(TEST_SECONDS), *tests]
            + ([] if aws else ["-k", "not moto"]),
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=MUTANT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return -1, ""
    return done.returncode, done.stdout + done.stderr


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--sample", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=600, help="begin no mutant after that time")
    parser.add_argument("-k", metavar="WORD", default="", help="only mutants whose file or kind has the word")
    asked = parser.parse_args()
    sample, copies = chosen(asked.seed, asked.sample, asked.k), SimpleQueue[Path]()
    ends = time.monotonic() + asked.minutes * 60
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(asked.jobs) as pool:
        for number in range(asked.jobs):
            copy_project(Path(folder) / f"{number}")
            copies.put(Path(folder) / f"{number}")

        def one(mutant: Mutant) -> Outcome | None:
            if time.monotonic() > ends:
                return None
            copy = copies.get()
            try:
                outcome = tried(copy, mutant)
            finally:
                copies.put(copy)
            print(f"{outcome.by or 'SURVIVED'} | {mutant.line} | {mutant.name}", flush=True)
            return outcome

        outcomes = [outcome for outcome in pool.map(one, sample) if outcome is not None]
        killers = {outcome.by for outcome in outcomes if "::" in outcome.by}
        if killers and run(copies.get(), sorted(killers))[0] != 0:
            print("tests that failed with a mutant fail without one too", file=sys.stderr)
            return 1
    if not asked.k:
        PAGE.write_text(page(outcomes, _judged(), seed=asked.seed, commit=commit_id()), encoding="utf-8")
    print(f"{sum(bool(outcome.by) for outcome in outcomes)} of {len(outcomes)} killed, seed {asked.seed}")
    return 0


def page(outcomes: Sequence[Outcome], judged: dict[str, str], *, seed: int, commit: str) -> str:
    """Return docs/mutants.md."""
    survivors = [outcome.mutant for outcome in outcomes if not outcome.by]
    reasons = [judged.get(mutant.name, "not judged") for mutant in survivors]
    equal = sum(reason.startswith("equivalent") for reason in reasons)
    killed, counted = len(outcomes) - len(survivors), len(outcomes) - equal
    lines = [
        "# Mutants",
        "",
        "<!-- Written by `make mutants`; only the last column is written by hand. -->",
        "",
        f"**{killed} of {counted} mutants were killed** ({killed / max(1, counted):.0%}) by the related tests, in a sample of",
        f"{len(outcomes)} of which {equal} are equivalent: `make mutants ARGS='--seed {seed} --sample {len(outcomes)}'` at",
        f"commit `{commit}`. A mutant is one small edit of the log, an engine or a window; the edits are in",
        "[tools/mutation.py](../tools/mutation.py). Survivors, and why:",
        "",
        "| file | kind | was | became | why |",
        "|---|---|---|---|---|",
    ]
    lines += [f"| {mutant.name} | {reason} |" for mutant, reason in zip(survivors, reasons, strict=True)]
    return "\n".join([*lines, ""])


def _judged() -> dict[str, str]:
    """Return what the page says already of survivors, by their names."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.is_file() else ""
    rows = [line.removeprefix("| ").removesuffix(" |").rpartition(" | ") for line in text.splitlines()]
    return {name: reason for name, _, reason in rows if name.startswith("`")}


if __name__ == "__main__":
    raise SystemExit(main())
