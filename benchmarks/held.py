"""What `turnlog serve` holds in memory at most while clients send and read the largest contents at once.

    python -m benchmarks.held                  # needs Linux: the peak is read from /proc

Contents are lists of empty lists: as Python objects they take the most of all JSON.
"""

from __future__ import annotations

import http.client
import re
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.load.serving import Served, serving

CLIENTS = 8
JSON = {"Content-Type": "application/json"}
LISTS = ",".join(["[]"] * 1_300_000)
MESSAGE = f'{{"role": "user", "content": [{{"type": "x", "lists": [{",".join(["[]"] * 340_000)}]}}]}}'
Request = tuple[str, str, str | None]

APPEND: Request = ("POST", "/v1/sessions/s/messages", f'{{"format": "turnlog", "messages": [{MESSAGE}]}}')
CASES: dict[str, tuple[list[Request], Request]] = {
    "appends of 4 MB that are refused": ([], ("POST", "/v1/sessions/s/messages", f"[{LISTS}]")),
    "a state of 4 MB is read": (
        [("PUT", "/v1/sessions/s/state", f'{{"state": {{"a": [{LISTS}]}}}}')],
        ("GET", "/v1/sessions/s/state", None),
    ),
    "a page of 4 messages of 1 MB is read": ([APPEND] * 4, ("GET", "/v1/sessions/s/messages", None)),
}


def ask(url: str, request: Request) -> int:
    method, path, body = request
    with closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=300)) as connection:
        connection.request(method, path, body, JSON if body is not None else {})
        answer = connection.getresponse()
        answer.read()
        return answer.status


def peak_mb(server: Served) -> int:
    status = Path(f"/proc/{server.pid}/status").read_text(encoding="ascii")
    hits = re.search(r"VmHWM:\s+(\d+) kB", status)
    if hits is None:
        raise RuntimeError("the kernel tells no peak of a process")
    return int(hits[1]) // 1024


def measure(before: list[Request], request: Request) -> str:
    with tempfile.TemporaryDirectory() as folder, serving("embedded", Path(folder) / "data") as (server,):
        idle = peak_mb(server)
        for first in (("POST", "/v1/sessions", '{"session_id": "s"}'), *before):
            ask(server.url, first)
        alone = peak_mb(server)
        with ThreadPoolExecutor(CLIENTS) as pool:
            statuses = Counter(pool.map(lambda value: ask(server.url, value), [request] * CLIENTS))
        answers = ", ".join(f"{count} x {status}" for status, count in sorted(statuses.items()))
        return f"{idle} | {alone} | {peak_mb(server)} | {answers}"


def main() -> None:
    print(
        f"| {CLIENTS} clients at once | idle, MB | after what they read is stored | at most | answers |\n|---|---:|---:|---:|---|"
    )
    for name, (before, request) in CASES.items():
        print(f"| {name} | {measure(before, request)} |", flush=True)


if __name__ == "__main__":
    main()
