"""Two processes for each agent: one is killed in its tool, the next goes on. ``python -m tests.integrations.adapters FOLDER NAMES``

Prints what became of each named agent whose framework is installed. One interpreter imports them; the agents run in forks.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
from pathlib import Path

from tests.integrations.adapters import agent_of
from turnlog.testing.adapters import run_continued, run_killed


def main(folder: Path, names: list[str]) -> None:
    for name in names:
        kind = agent_of(name)
        if kind is None:
            continue
        url, result = f"sqlite:///{folder}/{name}.db", folder / f"{name}.json"
        pid = os.fork()
        if not pid:
            run_killed(kind, url, lambda: os.kill(os.getpid(), signal.SIGKILL))
            sys.exit()
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        pid = os.fork()
        if not pid:
            result.write_text(json.dumps(dataclasses.asdict(run_continued(kind, url))))
            sys.exit()
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, name


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
