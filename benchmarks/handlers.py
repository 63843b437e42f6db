"""Import, readiness and first request of each Lambda handler, in fresh processes, against ``boto3`` and one client.

    make bench-starts                       # the built layers in the runtime's Python, as they start in Lambda
    python -m benchmarks.handlers           # the sources in this Python  [--runs N] [--names api.append,api.state]

A handler is ready when its module is imported, its application is made and the client of its table too: that is what
``import boto3; boto3.client("dynamodb")`` is compared with. Its first request, in a process of its own, makes the client
and, where tokens are counted, loads the vocabulary. CPU time of the process and wall time; the median, taken turn by turn.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.engines import REGION, TABLE
from benchmarks.measuring import event_of
from benchmarks.scenarios import ENGLISH, TENANT, USER, Call
from tools.emulators import DYNOXIDE, running
from turnlog.http.lambda_api import INITIALIZATION

ROOT = Path(__file__).parent.parent
RATIO = 1.6
"""Of 6-quality.md: a handler against boto3 and one client."""
BOTO3 = "boto3 + 1 client"
_CLOCK = "import time\nW, C = time.perf_counter(), time.process_time()\nT = []\n"
_MARK = "T.append((time.perf_counter() - W, time.process_time() - C))\n"
_PRINT = (
    "\nimport json, resource"
    "\nT.append((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, len(__import__('sys').modules)))"
    "\nprint(json.dumps(T))"
)
BUILD = ROOT / ".aws-sam" / "host" / "build"
_BASELINE = "import boto3\nboto3.client('dynamodb', region_name='eu-central-1')\n" + _MARK * 2
_PACKAGES = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s+([\w.]+)")


@dataclass(frozen=True)
class Place:
    """What handlers are started from: a Python, and the folders before its own; and those for boto3."""

    python: str
    path: tuple[Path, ...]
    boto3: tuple[Path, ...]
    told: str


_SOURCES = tuple(ROOT / name for name in ("functions", "shared", "layers/dependencies"))
HERE = Place(sys.executable, _SOURCES, (), "the sources, in the Python of the tests")


def built() -> Place:
    """Return what `make bench-starts` has made: the layers, and a whole boto3 of the same version, with its bytecode."""
    folders = tuple(BUILD / f"{name}Layer" / "python" for name in ("Dependencies", "Shared"))
    python, boto3 = ROOT / ".venv-lambda" / "bin" / "python", BUILD.parent / "boto3"
    if missing := [str(path.relative_to(ROOT)) for path in (*folders, python, boto3) if not path.exists()]:
        raise FileNotFoundError(f"make bench-starts makes {', '.join(missing)}")
    return Place(
        str(python), (BUILD / "AppendFunction", *folders), (boto3,), "the built layers, in the runtime's Python"
    )


@dataclass
class Start:
    """Milliseconds, CPU and wall, from a process' first line."""

    name: str
    import_ms: float
    import_wall_ms: float
    ready_ms: float
    ready_wall_ms: float
    ratio: float | None = None
    first_request_ms: float | None = None
    first_answer_ms: float | None = None
    """All of it: from the process' first line to the first answer."""
    second_request_ms: float | None = None
    peak_mb: float = 0
    modules: int = 0
    over: list[str] = field(default_factory=list)


def handler_names() -> list[str]:
    """List every module of functions/ that has a handler, such as ``api.append``."""
    files = sorted((ROOT / "functions").glob("*/*.py"))
    return [f"{file.parent.name}.{file.stem}" for file in files if file.stem != "__init__"]


def measure_starts(
    *, runs: int, names: list[str], say: Callable[[str], None], place: Place = HERE
) -> tuple[list[Start], str]:
    """Measure the baseline, then each handler; return them with what the first requests were made against."""
    with _target() as (environment, target):
        sources = {(BOTO3, "ready"): _BASELINE}
        sources |= {(name, "ready"): _READY.format(name=name) for name in names}
        if "TURNLOG_ENDPOINT_URL" in environment:
            sources |= {(name, "first"): _first(name) for name in names if name in _REQUESTS}
        times = defaultdict[tuple[str, str], list[list[list[float]]]](list)
        for run in range(runs + 1):
            say(f"handlers in fresh processes: {run} of {runs}")
            for key, source in sources.items():
                taken = json.loads(_started(key[0], _CLOCK + source + _PRINT, environment, place).splitlines()[-1])
                if run:  # the first fills the page cache
                    times[key].append(taken)
    starts = [_start(name, times) for name, which in sources if which == "ready"]
    base = starts[0].ready_ms
    for start in starts[1:]:
        start.ratio = start.ready_ms / base
        if start.ratio > RATIO:
            start.over = [f"{start.ratio:.2f} x > {RATIO} x"]
    return starts, target


_PATH = {"session_id": "bench-000001"}
_REQUESTS = {
    "api.append": Call("append_messages", _PATH, body={"messages": [{"role": "user", "content": ENGLISH}]}),
    "api.build_context": Call("build_context", _PATH, body={}),
    "api.lint": Call("lint_messages", body={"messages": [{"role": "user", "content": ENGLISH}]}),
    "api.messages": Call("read_messages", _PATH, {"limit": 100}),
    "api.sessions": Call("get_session", _PATH),
    "api.health": Call("health"),
}
# `meta` makes a client that is made at its first use.
_READY = (
    "from {name} import handler\n"
    + _MARK
    + "from turnlog.app import make_application\nmake_application().engine.items._client.meta\n"
    + _MARK
)


def _first(name: str) -> str:
    """Imports the handler as Lambda does, serves a request, and the same again."""
    serve = "A = handler(E, None)\nassert A['statusCode'] < 300, A['body']\n" + _MARK
    start = f"import os\nos.environ[{INITIALIZATION!r}] = 'on-demand'\nfrom {name} import handler\n"
    return f"{start}E = {event_of(_REQUESTS[name])!r}\n" + _MARK + serve + serve


def _start(name: str, times: Mapping[tuple[str, str], list[list[list[float]]]]) -> Start:
    def median(which: str, mark: int, clock: int) -> float:
        return statistics.median(
            (item[mark][clock] - (item[mark - 1][clock] if which == "first" else 0)) * 1_000
            for item in times[name, which]
        )

    has_first = (name, "first") in times
    last = "first" if has_first else "ready"
    return Start(
        name,
        median("ready", 0, 1),
        median("ready", 0, 0),
        median("ready", 1, 1),
        median("ready", 1, 0),
        first_request_ms=median("first", 1, 1) if has_first else None,
        first_answer_ms=statistics.median(item[1][1] for item in times[name, "first"]) * 1_000 if has_first else None,
        second_request_ms=median("first", 2, 1) if has_first else None,
        peak_mb=statistics.median(item[-1][0] for item in times[name, last])
        / (1024 if sys.platform == "linux" else 1024**2),
        modules=int(times[name, last][0][-1][1]),
    )


@contextlib.contextmanager
def _target() -> Iterator[tuple[dict[str, str], str]]:
    """Yield the environment of a function: with dynoxide and one session in it; without it nothing would answer a request."""
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "PYTHONPATH": os.pathsep.join(map(str, _SOURCES)),
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_EC2_METADATA_DISABLED": "true",
        "TURNLOG_ENGINE": f"dynamodb://{TABLE}?bucket=blobs&region={REGION}",
    }
    if not DYNOXIDE.is_installed and DYNOXIDE.variable not in os.environ:
        yield environment, "none: no first request without dynoxide"
        return
    with running(DYNOXIDE) as url:
        environment["TURNLOG_ENDPOINT_URL"] = url
        _python(_SETUP, environment)
        yield environment, f"dynoxide {DYNOXIDE.version}"


_SETUP = f"""
from turnlog.engines.aws_clients import Clients
from turnlog.app import make_application
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Turnlog
from turnlog.core.identity import Owner
from turnlog.settings import Settings
from turnlog.testing.aws import create_table
create_table(Clients({REGION!r}, Settings.from_environment().endpoint_url).dynamodb, {TABLE!r})
session = Turnlog(InProcessBackend(make_application(), Owner.of({TENANT!r}, {USER!r}))).sessions.create("bench-000001")
session.append({{"role": "user", "content": "hello"}})
"""


def import_costs(name: str) -> dict[str, float]:
    """Milliseconds of each top-level package's own modules, by ``-X importtime``, dearest first."""
    environment = {"PATH": os.environ.get("PATH", ""), "PYTHONPATH": os.pathsep.join(map(str, _SOURCES))}
    answer = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", f"import {name}"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    costs = defaultdict[str, float](float)
    for microseconds, module in _PACKAGES.findall(answer.stderr):
        parts = module.split(".")
        costs[".".join(parts[:2]) if parts[0] == "turnlog" else parts[0]] += int(microseconds) / 1_000
    return dict(sorted(costs.items(), key=lambda pair: -pair[1]))


def _started(name: str, source: str, environment: Mapping[str, str], place: Place) -> str:
    """Run a source in a fresh process, without this project's folder in its path, and return its output."""
    path = os.pathsep.join(map(str, place.boto3 if name == BOTO3 else place.path))
    return _python(source, {**environment, "PYTHONPATH": path}, place.python)


def _python(source: str, environment: Mapping[str, str], python: str = sys.executable) -> str:
    answer = subprocess.run(
        [python, "-c", source],
        env=dict(environment),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if answer.returncode:
        raise RuntimeError(f"a fresh process failed: {answer.stderr.strip()[-1_500:]}")
    return answer.stdout


def show(starts: list[Start]) -> None:
    """Print a table as docs/reference/benchmarks.md has it."""
    print("| handler | import, ms | ready, ms | against boto3 | first request, ms | import to first answer, ms | MB |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for start in starts:
        cells = (start.import_ms, start.ready_ms), (start.first_request_ms, start.first_answer_ms)
        (imported, ready), (request, answer) = (
            ["–" if item is None else f"{item:.0f}" for item in pair] for pair in cells
        )
        ratio = f"{start.ratio:.2f} x" if start.ratio is not None else "1"
        print(f"| `{start.name}` | {imported} | {ready} | {ratio} | {request} | {answer} | {start.peak_mb:.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--built", action="store_true", help="the built layers, after `make build-test`")
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument("--names", help="some handlers, separated by commas")
    options = parser.parse_args()
    names = options.names.split(",") if options.names else handler_names()
    place = built() if options.built else HERE
    starts, target = measure_starts(runs=options.runs, names=names, say=lambda text: None, place=place)
    print(f"{place.told}; first requests on {target}; medians of {options.runs} runs, CPU of the process\n")
    show(starts)
    print(
        "\nOver budget: " + (", ".join(f"{start.name} {start.over[0]}" for start in starts if start.over) or "nothing")
    )


if __name__ == "__main__":
    main()
