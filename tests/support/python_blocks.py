"""Python files that each run in a process of its own, forked from one that has loaded the library."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_FORKING = """
import json, os, pathlib, runpy, sys
from turnlog import Turnlog

with Turnlog.open("memory://") as log:  # loads what a session loads
    session = log.sessions.create()
    session.append({"role": "user", "content": "hi"})
    session.context()

results = []
for file in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(f"{file}.{name}", os.O_CREAT | os.O_WRONLY | os.O_TRUNC), number)
        os.chdir(os.path.dirname(file))
        sys.argv[:], sys.path[0] = [file], os.path.dirname(file)
        runpy.run_path(file, run_name="__main__")
        break
    _, status = os.waitpid(child, 0)
    results.append((os.waitstatus_to_exitcode(status), pathlib.Path(f"{file}.stderr").read_text()))
else:
    print(json.dumps(results))
"""


def run_alone(files: Sequence[Path]) -> list[tuple[int, str]]:
    """Run files one after the other, each in its folder and process. Return exit code and standard error of each.

    Warnings are errors, but for Python 3.13's of a log that is open at the process's end: many examples leave it open.
    """
    warnings = ["-W", "error", "-W", "ignore:unclosed database:ResourceWarning"]
    command = [sys.executable, *warnings, "-c", _FORKING, *map(str, files)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    return [(code, text) for code, text in json.loads(run.stdout)]
