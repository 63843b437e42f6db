"""What tests of imports have in common: samples of each shape, and what a session holds."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from turnlog.client.model import Session, Turnlog
from turnlog.core.times import rfc3339
from turnlog.importers import Report, import_files

SAMPLES = Path(__file__).parent / "samples"
FLAT, DOCUMENT, CODING = (SAMPLES / name for name in ("flat.json", "document.json", "coding-agent.jsonl"))
CODING_ID = "7f3c1d52-0b7e-4a7e-9a40-3d1f5b0e2c11"

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def sample(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def written(folder: Path, name: str, value: Any) -> Path:
    """A source file of a JSON value, or of a list of lines."""
    path = folder / name
    text = "\n".join(value) + "\n" if name.endswith(".jsonl") else json.dumps(value)
    path.write_text(text, "utf-8")
    return path


def copied(path: Path, folder: Path) -> Path:
    return Path(shutil.copy(path, folder))


def told(report: Report) -> dict[str, Any]:
    """A report without what differs between a dry run and a run."""
    return {name: value for name, value in report.as_json().items() if name not in ("seconds", "dry_run")}


def statuses(report: Report) -> list[str]:
    return [session.status for session in report.sessions]


def held(session: Session) -> dict[str, Any]:
    """All that a session holds, but for its times and totals; its system text in paragraphs."""
    info = session.info()
    messages = [message.model_dump() for message in session.messages()]
    window = session.context(format="openai_chat")
    system = [
        part for message in window.messages if message["role"] == "system" for part in message["content"].split("\n\n")
    ]
    return {"metadata": info.metadata, "state": session.state().state, "system": system, "messages": messages}


def imported_twice(log: Turnlog, path: Path) -> Report:
    """The report of an import; its dry run told the same before, and a second one finds nothing to do."""
    before = [item.session_id for item in log.sessions.list()]
    dry = import_files(log, [path], dry_run=True)
    assert [item.session_id for item in log.sessions.list()] == before
    report = import_files(log, [path])
    assert told(dry) == told(report)
    heads = {session.session_id: log.sessions.get(session.session_id).info().head for session in report.sessions}
    again = import_files(log, [path])
    assert set(statuses(again)) <= {"same"} and again.written == 0
    assert heads == {name: log.sessions.get(name).info().head for name in heads}
    return report


def leaves(value: Any) -> Iterator[Any]:
    """The scalars of a JSON value; of a text that is JSON, those in it too."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from leaves(item)
        return
    yield value
    if isinstance(value, str):
        try:
            inner = json.loads(value)
        except ValueError:
            return
        yield from leaves(inner) if not isinstance(inner, str) else ()


def lost(source: Any, sessions: list[Session]) -> list[Any]:
    """The scalars of a source that are nowhere in the sessions; a time in milliseconds may be there as RFC 3339."""
    there = {json.dumps(leaf) for session in sessions for leaf in leaves(held(session))}
    return [
        leaf
        for leaf in leaves(source)
        if json.dumps(leaf) not in there
        and not (isinstance(leaf, int) and leaf > 10**12 and json.dumps(rfc3339(leaf)) in there)
    ]
