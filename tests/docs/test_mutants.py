"""`make mutants`: each mutant is a real change that compiles, a seed gives one sample, and every module has its tests."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.conftest import ROOT
from tests.effort import is_full
from tools.mutants import Outcome, Results, chosen, judged_on, page, run
from tools.mutation import mutants_of
from tools.related_tests import RECORDED, SCOPE, related

RECORD = f"tests/{RECORDED}.py"
FOLDERS = () if is_full() else ("log", "engines")
"""Whose mutants are sampled: of all modules they are made in seconds."""
SOURCE = '''
"""A text with 1 < 2."""
from x import y

if TYPE_CHECKING:
    from z import a

_log = y(1)

def f(a: int = 3, *, b: bool = True) -> list[int]:
    """Return a < b."""
    if a < 3 and not b:
        raise ValueError(f"no {a + 1}", 2)
    _log.info("n", 5)
    y.call(a, b, key=1)
    return [a - 1]
'''
WANTED = {
    ("constant", "1", "(2)"),
    ("constant", "3", "(4)"),
    ("constant", "True", "(False)"),
    ("comparison", "a < 3", "(a <= 3)"),
    ("and, or", "a < 3 and not b", "(a < 3 or not b)"),
    ("condition dropped", "a < 3 and not b", "(a < 3)"),
    ("not removed", "not b", "(b)"),
    ("raise removed", 'raise ValueError(f"no {a + 1}", 2)', "pass"),
    ("call removed", "y.call(a, b, key=1)", "pass"),
    ("arguments swapped", "y.call(a, b, key=1)", "(y.call(b, a, key=1))"),
    ("keyword dropped", "y.call(a, b, key=1)", "(y.call(a, b))"),
    ("returns None", "return [a - 1]", "return None"),
    ("arithmetic", "a - 1", "(a + 1)"),
}


def test_what_is_changed_and_what_is_left_alone() -> None:
    assert {(item.kind, item.old, item.new) for item in mutants_of("f.py", SOURCE)} == WANTED
    for entry in mutants_of("f.py", SOURCE):
        changed = entry.apply(SOURCE.encode()).decode()
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(SOURCE))


def test_a_mutant_that_loops_is_ended_by_the_cpu_that_it_takes(tmp_path: Path) -> None:
    profile = "from hypothesis import settings\nsettings.register_profile('turnlog-unshrunk')\n"
    (tmp_path / "conftest.py").write_text(profile)
    (tmp_path / "test_loop.py").write_text("def test() -> None:\n    while True:\n        pass\n")
    assert run(tmp_path, ["test_loop.py"], cpu_seconds=3)[0] < 0


def test_a_seed_is_one_sample_of_mutants_that_compile() -> None:
    sample = chosen(7, 40, folders=FOLDERS)
    assert sample == chosen(7, 40, folders=FOLDERS) and sample != chosen(8, 40, folders=FOLDERS)
    for item in sample:
        source = (ROOT / item.file).read_bytes()
        assert ast.dump(ast.parse(item.apply(source))) != ast.dump(ast.parse(source)), item


def test_a_sample_may_be_of_some_folders() -> None:
    sample = chosen(7, 40, folders=["log", "engines"])
    assert len(sample) == 40 and {Path(item.file).parent.name for item in sample} == {"log", "engines"}
    assert all("engines/s3" in item.file for item in chosen(7, 40, "engines/s3", folders=["engines"]))
    assert chosen(7, 40, "engines/s3", folders=["log"]) == []


def test_every_module_has_tests() -> None:
    files = [path.relative_to(ROOT).as_posix() for pattern in SCOPE for path in ROOT.glob(pattern)]
    assert len(files) > 75
    for file in files:
        assert related(file) and all((ROOT / test).is_file() for test in related(file)), file


def test_the_tests_of_a_modules_name_come_first_then_those_of_its_folder() -> None:
    assert related("shared/turnlog/windows/prefix.py")[0] == "tests/windows/test_prefix.py"
    for file in (path.relative_to(ROOT).as_posix() for pattern in SCOPE for path in ROOT.glob(pattern)):
        folder, module = Path(file).with_suffix("").parts[2], Path(file).stem
        named = [test for test in related(file) if test != RECORD]
        ranks = [(f"test_{module}" not in test, test.split("/")[1] != folder) for test in named]
        assert ranks == sorted(ranks), file
        assert (related(file)[-1] == RECORD) == (folder == "windows"), (
            "what any change fails says least, and comes last"
        )


def test_a_stopped_run_goes_on_and_only_survivors_are_run_again(tmp_path: Path) -> None:
    killed, survivor, untried = chosen(7, 3, folders=FOLDERS)
    first = Results(tmp_path / "results.jsonl")
    first.add(Outcome(killed, "tests/x.py::test_y"))
    first.add(Outcome(survivor, ""))
    again = Results(tmp_path / "results.jsonl")
    assert [again.get(value) for value in (killed, survivor, untried)] == [
        Outcome(killed, "tests/x.py::test_y"),
        Outcome(survivor, ""),
        None,
    ]
    again.forget_survivors()
    assert again.get(killed) is not None and again.get(survivor) is None
    again.add(Outcome(survivor, "hung"))
    assert Results(tmp_path / "results.jsonl").get(survivor) == Outcome(survivor, "hung")


def test_the_page_counts_what_is_killed_of_what_is_not_equivalent() -> None:
    mutants = chosen(7, 12, folders=FOLDERS)
    outcomes = [Outcome(mutant, "tests/x.py::test_y" if at < 9 else "") for at, mutant in enumerate(mutants)]
    names = [" ".join(mutant.name.split()) for mutant in mutants[9:]]
    judged = {names[0]: "equivalent: a cache", names[1]: "hole"}
    text = page(outcomes, judged, "--seed 7 --sample 30", commit="abc")
    result = " ".join(text.split())
    assert "**9 of 11 mutants were killed** (82%)" in result and "--seed 7 --sample 30" in result
    assert result.count("· equivalent: a cache") == result.count("· hole") == result.count("· not judged") == 1
    again = judged_on(text)
    assert [again[name] for name in names] == [
        "equivalent: a cache",
        "hole",
        "not judged",
    ]
