"""The TypeScript client: `install` fetches what it needs with npm; `test` makes its types, compiles it, and runs its tests against
`turnlog serve`. `install` ends with 1 where npm fetches nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "clients" / "typescript"
STAMP = FOLDER / "node_modules" / ".stamp"
FETCH_SECONDS, TEST_SECONDS = 180, 120
TOKEN = "secret"  # noqa: S105 - of a server on this machine that ends with the tests


def main(command: str) -> int:
    if command == "install":
        return 0 if installed() else 1
    for script in ("types", "build"):
        subprocess.run(["npm", "run", "--silent", script], check=True, cwd=FOLDER)  # noqa: S603, S607
    with tempfile.TemporaryDirectory() as folder, served(folder) as url:
        environment = {**os.environ, "TURNLOG_URL": url, "TURNLOG_TOKEN": TOKEN}
        test = ["npm", "run", "--silent", "test"]
        return subprocess.run(test, check=False, cwd=FOLDER, env=environment, timeout=TEST_SECONDS).returncode  # noqa: S603


def installed() -> bool:
    """Return whether the packages of package-lock.json are there; fetch them where they are not."""
    lock = FOLDER / "package-lock.json"
    if STAMP.is_file() and STAMP.stat().st_mtime >= lock.stat().st_mtime:
        return True
    print("Fetching the packages of the TypeScript client (once) ...", flush=True)
    command = ["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error", "--fetch-retries=1"]
    try:
        run = subprocess.run(command, check=False, cwd=FOLDER, timeout=FETCH_SECONDS)  # noqa: S603
    except subprocess.TimeoutExpired:
        return False
    if run.returncode == 0:
        STAMP.touch()
    return run.returncode == 0


@contextmanager
def served(folder: str) -> Iterator[str]:
    """Yield the address of `turnlog serve` over a new SQLite file."""
    program = "from turnlog.cli import main; main()"
    options = ["serve", "--port", "0", "--data", folder, "--token", TOKEN]
    command = [sys.executable, "-c", program, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603
        try:
            lines = iter(server.stdout or ())
            address = next((word for line in lines for word in line.split() if word.startswith("http://")), None)
            if address is None:
                raise SystemExit("turnlog serve has said no address")
            yield address.rstrip(".,")
        finally:
            server.terminate()
            server.communicate()  # its last line, which it could not write to a closed pipe


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
