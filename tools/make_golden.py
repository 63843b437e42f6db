"""Writes the golden histories of the current schema version: run once per version, then never again.

python tools/make_golden.py messages tests/log/golden/schema-1.json
python tools/make_golden.py kinds tests/log/golden/schema-1-kinds.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from turnlog.app import Application
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Session, Turnlog
from turnlog.core.identity import Owner
from turnlog.engines import Engine
from turnlog.engines.files import MemoryBlobStore
from turnlog.engines.sqlite import MEMORY, SqliteDatabase
from turnlog.engines.sqlite_tables import SqliteItemTable
from turnlog.ports import Item, Key
from turnlog.settings import Settings
from turnlog.testing.fixed import FixedClock, SequentialIds


def main(which: str, path: Path) -> None:
    database, blobs, clock = SqliteDatabase(MEMORY), MemoryBlobStore(), FixedClock()
    items = SqliteItemTable(database)
    app = Application(
        Engine("memory", items, blobs, None, lambda: None),
        Settings(token_counter="estimate"),
        clock=clock,
        ids=SequentialIds(),
    )
    log = Turnlog(InProcessBackend(app, Owner.of("acme", "ada")))
    session = {"messages": messages, "kinds": kinds}[which](log, clock)
    rows = database.connection().execute("SELECT pk, sk FROM items ORDER BY pk, sk").fetchall()
    stored = items.get_many([Key(pk, sk) for pk, sk in rows])
    golden = {
        "items": [_json(item) for item in stored.values()],
        "blobs": {name: (blobs.get(name) or b"").hex() for name in blobs.names("")},
        "messages": [message.model_dump() for message in session.messages()],
        "session": session.info().model_dump(),
        "agent": session.agent().model_dump(),
    }
    if which == "kinds":
        golden["state"] = session.state().model_dump()
        golden["history"] = [entry.model_dump() for entry in session.history()]
        golden["in_view"] = [message.position for message in session.messages(in_view=True)]
        golden["summary"] = made.model_dump() if (made := session.summary()) is not None else None
    path.write_text(json.dumps(golden, indent=1) + "\n")


def kinds(log: Turnlog, clock: FixedClock) -> Session:
    """Return every kind of commit but the plain ones, in a fork of a session that was rewound."""
    parent = log.sessions.create("parent", state={"n": 1}, system="Be brief.", recall="never")
    for number in range(6):
        clock.advance(60)
        parent.append(
            {"role": "user", "content": f"Question {number}: " + "what about order A-3417? " * 20},
            {"role": "assistant", "content": f"Answer {number}: " + "it has been shipped. " * 20},
            run={"iteration": number},
        )
    parent.update(title="Golden", policy="run_loops")
    parent.compress(keep_loops=3)
    parent.record("noted", metadata={"by": "hand"})
    parent.put_state({"m": [1, 2.5, None], **parent.state().state})
    parent.rewind(9)
    parent.append({"role": "user", "content": "Another question"}, {"role": "assistant", "content": "Another answer"})
    parent.rewind(parent.info().head - 4)
    parent.compress(keep_loops=0)
    session = parent.fork("golden", at=parent.info().head - 1, title="Fork")
    session.append({"role": "user", "content": "kept"}, {"role": "user", "content": "left"})
    session.rewind(session.info().head - 1)
    session.patch_state([{"op": "add", "path": "/of", "value": "fork"}])
    session.end()
    return session


def messages(log: Turnlog, clock: FixedClock) -> Session:
    """Messages of every sort, payloads out of line."""
    session = log.sessions.create(
        "golden", title="Golden", system="Be brief. " * 20, metadata={"é": [1, 2.5, None]}, state={"n": 1}
    )
    clock.advance(7)
    session.append(
        {"role": "user", "content": "Find the log, 你好 \ud83d"},
        idempotency_key="first",
        meta=[{"pin": True, "id": "m1"}],
    )
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "/var/log/app.log"}'}}
    session.append(
        {"role": "assistant", "content": None, "tool_calls": [call, {**call, "id": ""}]}, run={"iteration": 1}
    )
    session.append({"role": "tool", "tool_call_id": "c1", "content": "".join(f"{at:06d} " for at in range(1_500))})
    session.append({"role": "tool", "tool_call_id": "", "content": "".join(f"{at * 7919:09x}" for at in range(9_000))})
    clock.advance(400)
    session.append(
        {"role": "assistant", "content": "Done."},
        run={"iteration": 2, "pending_action": None},
        usage={"input_tokens": 9, "output_tokens": 1},
    )
    session.append(
        {"role": "exit", "content": "\x1b[0m"},
        {"role": "assistant", "content": "cut o"},
        meta=[{}, {"status": "interrupted"}],
    )
    return session


def _json(item: Item) -> dict[str, Any]:
    return {name: {"hex": value.hex()} if isinstance(value, bytes) else value for name, value in item.items()}


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
