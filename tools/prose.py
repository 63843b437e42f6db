"""Check spelling and prose of the Markdown pages with codespell and proselint, without their code.

    python tools/prose.py               # every page
    python tools/prose.py docs/how-to   # some

Exceptions are few: ``SPELLING`` for codespell, ``RULES`` for proselint. ``AVOIDED`` are phrases that readers stumble over.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
SPELLING = ("mis",)
"""Words that codespell takes for mistakes, and that are right here."""
RULES = ("typography.", "weasel_words.very", "dates_times.")
"""Checks of proselint that are left out: straight quotes are right beside code, and positions are no dates."""
AVOIDED = re.compile(
    r"\b(gone on with|whoever|a process that ends|is told of|by whom it|so is it to|mended|in force|of before)\b", re.I
)
CODE = re.compile(r"^(`{3,}).*?^\1|`[^`\n]*`|<!--.*?-->|^\|.*?$|\]\([^)\s]*\)", re.S | re.M)


def pages(names: Sequence[str]) -> list[Path]:
    """Return the Markdown pages below the given folders; without names those of users, in English."""
    paths = [
        path
        for name in names or ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs", "examples")
        for path in below(name)
    ]
    return sorted(path for path in paths if "zh-CN" not in str(path))


def below(name: str) -> Iterator[Path]:
    """Yield a page, or the pages in a folder."""
    path = ROOT / name
    yield from path.rglob("*.md") if path.is_dir() else [path]


def prose(text: str) -> str:
    """Return the text with code, tables, comments and addresses blanked; lines keep their numbers."""
    return CODE.sub(lambda code: re.sub(r"\S", "·", code[0]), text)


def spelling(copies: Path) -> list[str]:
    """Return what codespell finds in the copies."""
    command = ["codespell", "--ignore-words-list", ",".join(SPELLING), str(copies)]
    return ran(command, copies)


def rules(copies: Path) -> list[str]:
    """Return what proselint finds in the copies."""
    return [line for line in ran(["proselint", "check", str(copies)], copies) if rule_of(line)]


def rule_of(line: str) -> str:
    """Return the rule that a line of proselint names, or nothing for one that is left out."""
    named = re.search(r":\d+: ([\w.]+):", line)
    return "" if named is None or named[1].startswith(RULES) else named[1]


def ran(command: Sequence[str], copies: Path) -> list[str]:
    """Run a linter of this environment and return its lines, with the pages' own paths."""
    program = Path(sys.executable).parent / command[0]
    ended = subprocess.run(  # noqa: S603 - our own linters
        [str(program), *command[1:]], capture_output=True, text=True, check=False
    )
    return [line.replace(f"{copies}/", "") for line in ended.stdout.splitlines() if re.search(r":\d+", line)]


def avoided(path: Path, text: str) -> Iterator[str]:
    """Yield places of phrases that readers stumble over."""
    for number, line in enumerate(text.splitlines(), 1):
        for phrase in AVOIDED.findall(line):
            yield f"{path.relative_to(ROOT)}:{number}: avoid {phrase!r}"


def problems(names: Sequence[str] = ()) -> list[str]:
    """Return every problem of the pages."""
    result = list[str]()
    with tempfile.TemporaryDirectory() as folder:
        copies = Path(folder) / "pages"
        for path in pages(names):
            text = prose(path.read_text(encoding="utf-8"))
            copy = copies / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(text, encoding="utf-8")
            result += avoided(path, text)
        return result + spelling(copies) + rules(copies)


def main() -> int:
    """Print the problems; 1 when there are some."""
    result = problems(sys.argv[1:])
    print("\n".join(result) if result else "spelling and prose are right")
    return 1 if result else 0


if __name__ == "__main__":
    sys.exit(main())
