"""Loader for the part of LongMemEval that the package memory-arena ships, as one long conversation with marked evidence.

    make bench-recall ARGS='FOLDER --loader benchmarks/longmemeval.py --set longmemeval-s'

FOLDER/longmemeval-s/processed has `sessions.jsonl` and `questions.jsonl`. The sessions of all its questions follow each other
in the order of their times.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

CATEGORIES = {"multi_session_reasoning": 1, "temporal": 2, "information_extraction": 4, "knowledge_update": 6}
"""Numbers of the kinds of questions, as `benchmarks.recall` names them."""


def iter_sessions(path: str) -> Iterator[dict[str, Any]]:
    """Yield the conversation of a folder with its questions. Evidence are the marked turns of a question's sessions."""
    sessions = sorted(_lines(path, "sessions"), key=lambda session: _time_of(session["timestamp"]))
    messages = [
        {
            "role": turn["role"],
            "content": turn["content"],
            "created_at": _time_of(session["timestamp"]),
            "dia_id": turn["id"],
        }
        for session in sessions
        for turn in session["turns"]
    ]
    marked = {
        session["id"]: [turn["id"] for turn in session["turns"] if turn["metadata"].get("has_answer")]
        for session in sessions
    }
    questions = [
        {
            "question": question["question"],
            "category": CATEGORIES[question["category"]],
            "evidence": [
                turn for session in question["ground_truth"]["supporting_session_ids"] for turn in marked[session]
            ],
        }
        for question in _lines(path, "questions")
    ]
    yield {"id": "longmemeval-s", "source": "longmemeval-s", "messages": messages, "meta": {"qa": questions}}


def fix_evidence(names: list[str] | None) -> list[str]:
    """Return the names of a question's turns, which need no mending."""
    return names or []


def _lines(path: str, name: str) -> list[dict[str, Any]]:
    text = (Path(path) / "processed" / f"{name}.jsonl").read_text(encoding="utf-8")
    # Texts may have characters that `str.splitlines` takes for the end of a line.
    return [json.loads(line) for line in text.split("\n") if line.strip()]


def _time_of(text: str) -> str:
    return datetime.strptime(text, "%Y/%m/%d (%a) %H:%M").replace(tzinfo=UTC).isoformat()
