"""README.zh-CN.md says what README.md says: same sections, commands, figures and links. A change of the one shows in the other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent.parent
ENGLISH, CHINESE = ("README.md", "README.zh-CN.md")
TRANSLATED = "docs/zh-CN/"
"""Pages in Chinese: only the Chinese README links to them, beside the English ones."""
_FENCE = re.compile(r"^```.*?^```", re.S | re.M)


class Section(NamedTuple):
    """What is not translated of a section."""

    level: int
    blocks: list[str]
    names: list[str]
    links: list[str]
    figures: list[str]
    rows: list[int]


def sections(name: str) -> list[Section]:
    text = (ROOT / name).read_text(encoding="utf-8")
    blocks = _FENCE.findall(text)
    bare = _FENCE.sub("```", text)
    parts = re.split(r"^(#+) .*$", bare, flags=re.M)[1:]
    result, at = list[Section](), 0
    for marks, body in zip(parts[::2], parts[1::2], strict=True):
        count = body.count("```")
        links = re.findall(r"\]\(([^)\s]+)\)", body)
        rest = re.sub(r"\]\([^)\s]+\)|`[^`\n]+`", "", body)
        result.append(
            Section(
                len(marks),
                blocks[at : at + count],
                sorted(re.findall(r"`([^`\n]+)`", body)),
                sorted(link for link in links if link not in (ENGLISH, CHINESE) and not link.startswith(TRANSLATED)),
                sorted(re.findall(r"(?<![A-Za-z0-9_])\d+(?:[.,]\d+)*", rest)),
                [line.count("|") for line in body.splitlines() if line.startswith("|")],
            )
        )
        at += count
    return result


def test_each_links_to_the_other() -> None:
    assert f"]({CHINESE})" in (ROOT / ENGLISH).read_text(encoding="utf-8")
    assert f"]({ENGLISH})" in (ROOT / CHINESE).read_text(encoding="utf-8")


def test_they_have_the_same_sections() -> None:
    assert [section.level for section in sections(ENGLISH)] == [section.level for section in sections(CHINESE)]


@pytest.mark.parametrize("what", ["blocks", "names", "links", "figures", "rows"])
@pytest.mark.parametrize("at", range(len(sections(ENGLISH))))
def test_a_section_has_the_same(what: str, at: int) -> None:
    assert getattr(sections(CHINESE)[at], what) == getattr(sections(ENGLISH)[at], what)


def test_it_is_in_chinese() -> None:
    text = _FENCE.sub("", (ROOT / CHINESE).read_text(encoding="utf-8"))
    paragraphs = [
        word for word in text.split("\n\n") if re.search(r"[A-Za-z]{3} [a-z]{3}", word) and not word.startswith("|")
    ]
    assert [paragraph for paragraph in paragraphs if not re.search(r"[\u4e00-\u9fff]", paragraph)] == []
