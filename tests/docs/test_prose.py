"""The check of spelling and prose, a part of `make lint`: what it finds, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import prose


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It recieves a message.", "recieves"),
        ("It keeps the the message.", "lexical_illusions"),
        ("Whoever asks is told.", "avoid 'Whoever'"),
    ],
)
def test_a_mistake_is_found_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, found: str
) -> None:
    (tmp_path / "page.md").write_text(f"# Page\n\n{text}\n", encoding="utf-8")
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    (problem,) = prose.problems(["page.md"])
    assert problem.startswith("page.md:3") and found in problem


def test_code_tables_and_addresses_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "`recieve`\n\n```text\nrecieve\n```\n\n| recieve |\n|---|\n\n[a page](recieve.md)\n"
    (tmp_path / "page.md").write_text(text, encoding="utf-8")
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    assert prose.problems(["page.md"]) == []
