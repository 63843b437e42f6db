"""What is downloaded is of one version, and what goes into Lambda is of one content."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent.parent
LAYER = ROOT / "layers" / "dependencies" / "requirements.txt"
SKIPPED = {".aws-sam", ".git", "node_modules", "build", "dist"}
PIN = re.compile(r"[A-Za-z0-9._-]+(?:\[[a-z0-9_,-]+\])?==[A-Za-z0-9.!+-]+")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
RUNS_ON = ("Lambda on arm64", "Lambda on x86_64")


def made_of() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_requirements", ROOT / "tools" / "make_requirements.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def requirement_files() -> list[Path]:
    result = [ROOT / "constraints.txt"]
    for folder in sorted(path for path in ROOT.iterdir() if path.is_dir()):
        if folder.name not in SKIPPED and not folder.name.startswith(".venv"):
            result += sorted(folder.rglob("*requirements*.txt"))
    return result


def lines_of(path: Path) -> list[str]:
    """Requirements with their options, continued lines joined, without comments."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.partition(" #")[0].strip() for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def test_the_files_of_requirements_are_found() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in requirement_files()}
    assert names >= {
        "constraints.txt",
        "layers/dependencies/requirements.txt",
        "benchmarks/peers/requirements.txt",
        *(f"mk/{tool}-requirements.txt" for tool in ("sam", "lambda", "checkov", "ministack")),
    }


@pytest.mark.parametrize("path", requirement_files(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_requirement_is_one_version_and_names_no_address(path: Path) -> None:
    lines = lines_of(path)
    assert lines
    for line in lines:
        pin, *options = line.split()
        assert PIN.fullmatch(pin), line
        assert all(HASH.fullmatch(option) for option in options), line


def test_every_wheel_of_the_layer_has_its_hash_and_it_is_made_of_the_pins() -> None:
    make_requirements = made_of()
    result = dict[str, list[str]]()
    for line in lines_of(LAYER):
        pin, *options = line.split()
        result[pin] = options
    assert list(result) == make_requirements.pinned(), "run tools/make_requirements.py"
    for pin, options in result.items():
        assert options and len(set(options)) == len(options), pin
        assert len(options) == 1 or len(options) >= len(RUNS_ON), f"{pin}: a wheel for each architecture"
    hashes = {
        make_requirements.name_in(pin): [option.rpartition(":")[2] for option in options]
        for pin, options in result.items()
    }
    assert make_requirements.hashed(list(result), hashes) == LAYER.read_text(encoding="utf-8")


def test_hashes_are_asked_for_both_architectures_of_lambda() -> None:
    platforms = made_of().PLATFORMS
    for name, tag in zip(RUNS_ON, ("aarch64", "x86_64"), strict=True):
        assert platforms[name] and all(item.endswith(tag) for item in platforms[name])


def commands(text: str) -> list[str]:
    """The recipes' lines that call pip, continued ones joined and variables put in."""
    text = re.sub(r"^PIP_INSTALL := .*\n", "", text.replace("\\\n", " "), flags=re.M)  # what each of them begins with
    return [line for line in text.splitlines() if re.search(r"-m pip (?:install|download)\b|\$\(PIP_INSTALL\)", line)]


def test_make_installs_nothing_but_pins() -> None:
    result = list[str]()
    for path in [ROOT / "Makefile", *sorted((ROOT / "mk").glob("*.mk"))]:
        for command in commands(path.read_text(encoding="utf-8")):
            result.append(command)
            is_pinned = " -c constraints.txt " in command or " -r " in command or "--require-hashes" in command
            assert is_pinned, f"{path.name}: {command}"
            assert "://" not in command and "index-url" not in command
    assert len(result) > 5


def test_the_layer_is_built_of_wheels_with_hashes_and_without_an_index() -> None:
    rules = (ROOT / "mk" / "aws.mk").read_text(encoding="utf-8") + (ROOT / "mk" / "e2e.mk").read_text(encoding="utf-8")
    (download,) = [line for line in commands(rules) if "--require-hashes" in line]
    assert {"--no-deps", "--only-binary=:all:"} <= set(download.split())
    builds = re.findall(r"^\t@(\$\(SAM_BUILD\)|\$\(SAM_CLI\) build)", rules, re.M)
    assert builds == ["$(SAM_BUILD)"] * 3
    assert re.search(r"^SAM_BUILD := PIP_NO_INDEX=1 PIP_FIND_LINKS=\$\(abspath \$\(LAYER_WHEELS\)\) ", rules, re.M)


def test_actions_of_ci_are_named_by_their_commit() -> None:
    result = 0
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for action in re.findall(r"uses:\s*(\S+)", path.read_text(encoding="utf-8")):
            result += 1
            assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", action), f"{path.name}: {action}"
    assert result
