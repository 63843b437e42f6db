"""`make bench-recall`, over a conversation made here: what it counts, and its picture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import longmemeval
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
    assert shares["hits, by turn 10 0"] == shares["hits, by day 10 4"] == shares["plain FTS5 10 0"] == 1.0
    assert "left out, because its key names no turn: c1: What is the order" in capsys.readouterr().out
    drawn = picture.read_text(encoding="utf-8")
    assert ">100%<" in drawn and ">800 tokens<" in drawn and drawn.endswith("</svg>\n")


def test_longmemeval_is_one_conversation_in_the_order_of_time_with_its_marked_turns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    marked = {"s2_0": "My violin\u2028teacher is called Ottilie Brandt."}
    texts = {f"s{day}_{turn}": f"Day {day}, {turn}: rain again." for day in range(1, 5) for turn in range(10)} | marked
    sessions: list[dict[str, object]] = [
        {
            "id": f"s{day}",
            "timestamp": f"2026/01/0{day} (Thu) 09:30",
            "turns": [
                {
                    "id": f"s{day}_{turn}",
                    "role": ("user", "assistant")[turn % 2],
                    "content": texts[f"s{day}_{turn}"],
                    "metadata": {"has_answer": f"s{day}_{turn}" in marked},
                }
                for turn in range(10)
            ],
        }
        for day in (3, 1, 4, 2)
    ]
    asked = {"question": "What is my violin teacher called?", "category": "knowledge_update"}
    questions: list[dict[str, object]] = [
        {**asked, "ground_truth": {"supporting_session_ids": names}} for names in (["s2"], ["s1"])
    ]
    folder = tmp_path / "longmemeval-s" / "processed"
    folder.mkdir(parents=True)
    for name, lines in (("sessions", sessions), ("questions", questions)):
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    loader = Path(longmemeval.__file__)
    (conversation,) = longmemeval.iter_sessions(str(tmp_path / "longmemeval-s"))
    assert [message["dia_id"] for message in conversation["messages"][::10]] == ["s1_0", "s2_0", "s3_0", "s4_0"]
    figures = tmp_path / "f.json"
    options = ["--loader", str(loader), "--set", "longmemeval-s", "--budget", "400", "2000", "--json", str(figures)]
    assert main([str(tmp_path), *options, "--costs"]) == 0
    shares = json.loads(figures.read_text(encoding="utf-8"))
    assert (shares["`recall` 400 6"], shares["`default` 400 6"]) == (1.0, 0.0)
    output = capsys.readouterr().out
    assert "\nchats" in output and "calls of tools" not in output
    assert "- update" in output and "names no turn: longmemeval-s: What is my violin" in output
