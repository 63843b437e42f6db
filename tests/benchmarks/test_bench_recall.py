"""`make bench-recall`, over a conversation made here: what it counts, and its picture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.recall import main

LOADER = """
TEXTS = [f"{n}: the weather was fine, and so was the coffee in the old place." for n in range(60)]
TEXTS[6] = "The order for the green bicycle is AX-77012."

def iter_sessions(path):
    messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(TEXTS)]
    for n, message in enumerate(messages):
        message |= {"dia_id": f"D{n // 20}:{n}", "created_at": f"2026-01-0{n // 20 + 1}T10:00:00"}
    asked = {"question": "What is the order of the green bicycle?", "category": 4, "evidence": ["D0:6"]}
    yield {"id": "c1", "messages": messages, "meta": {"qa": [asked, {**asked, "evidence": ["D9:9"]}]}}

def fix_evidence(names):
    return names or []
"""


def test_evidence_in_windows_and_among_the_best_hits_is_counted_and_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "load.py").write_text(LOADER, encoding="utf-8")
    (tmp_path / "locomo").mkdir()
    figures, picture = tmp_path / "f.json", tmp_path / "p.svg"
    options = ["--loader", str(tmp_path / "load.py"), "--budget", "800", "--json", str(figures), "--svg", str(picture)]
    assert main([str(tmp_path), *options]) == 0
    shares = json.loads(figures.read_text(encoding="utf-8"))
    assert (shares["`recall` 800 0"], shares["`default` 800 0"]) == (1.0, 0.0)
    assert shares["hits, by turn 10 0"] == shares["hits, by day 10 4"] == 1.0
    assert "left out, because its key names no turn: c1: What is the order" in capsys.readouterr().out
    drawn = picture.read_text(encoding="utf-8")
    assert ">100%<" in drawn and ">800 tokens<" in drawn and drawn.endswith("</svg>\n")
