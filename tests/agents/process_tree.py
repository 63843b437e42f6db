"""A parent and two workers, each a process of its own, on one engine: what `test_process_tree` kills.

``parent URL FOLDER`` runs the parent agent; its tool starts two workers, each on a child session, and waits for both.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.agents.scripts import TOOLS, calls, says
from turnlog import Turnlog
from turnlog.agents import Effect, RequestedCall, RunResult, Tool, current_call
from turnlog.client.model import Session
from turnlog.core.errors import RunActiveError

NAMES = ("first", "second")


def go_on(session: Session, model: Callable[[Any], Any], tools: dict[str, Any], question: str) -> RunResult:
    """Run to the end: from the beginning, or from where a killed process has left it, when its lease is over."""
    run = session.run(model, tools, on_busy="reject", lease_seconds=1)
    while True:
        try:
            return run.resume() if session.info().messages else run.send(question)
        except RunActiveError:
            time.sleep(0.2)


def parent(url: str, folder: Path) -> RunResult:
    with Turnlog.open(url) as log:
        session = log.sessions.get_or_create("desk", tools=TOOLS)

        def find(q: str) -> str:
            children = [session.child(name, tools=TOOLS) for name in NAMES]
            workers = [
                subprocess.Popen(
                    [sys.executable, "-m", __spec__.name, "worker", url, str(folder), child.id],
                    stdout=subprocess.PIPE,
                    text=True,
                )
                for child in children
            ]
            return "; ".join(worker.communicate()[0].strip() for worker in workers)

        def model(window: Any) -> Any:
            is_done = window.messages[-1]["role"] == "tool"
            return says(window.messages[-1]["content"]) if is_done else calls(("c", "find", {"q": "both"}))

        return go_on(session, model, {"find": Tool(find, idempotent=True)}, "Pay both")


def worker(url: str, folder: Path, session_id: str) -> RunResult:
    book, name = folder / "paid", session_id.rpartition("/")[2]

    def stop(moment: str) -> None:
        if (folder / moment).exists():
            (folder / f"{name} stops").touch()
            time.sleep(300)

    def pay(q: str) -> str:
        stop("before")
        with book.open("a") as lines:
            lines.write(f"{current_call().key}\n")
        stop("after")
        return "paid"

    def verify(call: RequestedCall) -> Any:
        return "paid before" if book.exists() and f"{call.key}\n" in book.read_text() else Effect.NONE

    def model(window: Any) -> Any:
        is_done = window.messages[-1]["role"] == "tool"
        return says(f"{name} has paid") if is_done else calls(("c", "find", {"q": name}))

    with Turnlog.open(url) as log:
        session = log.sessions.get(session_id)
        outcome = go_on(session, model, {"find": Tool(pay, verify=verify)}, f"Pay {name}")
    stop("replied")
    return outcome


if __name__ == "__main__":
    kind, url, folder, *rest = sys.argv[1:]
    outcome = worker(url, Path(folder), *rest) if kind == "worker" else parent(url, Path(folder))
    print(json.dumps([outcome.text, outcome.usage]) if kind == "parent" else outcome.text)
