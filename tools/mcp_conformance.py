"""The MCP conformance suite against `turnlog mcp --http`: `install` fetches it with npm, `test` runs what applies and reports it.

Node comes with it, as a package: the suite needs 22. `install` ends with 1 where npm fetches nothing.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".mcp-conformance"
SUITE, VERSION = "@modelcontextprotocol/conformance", "0.2.0-alpha.12"
PACKAGES = (f"{SUITE}@{VERSION}", "node@22.23.3")
SPECIFICATIONS = ("2025-11-25", "2026-07-28")
RUNNING = "=== Running scenario: "
MESSAGES = "wire-schema-valid"
"""The check that each scenario makes of every message, also of those that do not apply."""

APPLIES = {
    "server-initialize": "the handshake",
    "server-session-lifecycle": "sessions of the transport",
    "server-stateless": "requests without a session, discovery, subscriptions",
    "ping": "ping",
    "tools-list": "the tools, their names and schemas",
    "tools-call-error": "a call that fails is a result with `isError`",
    "server-sse-multiple-streams": "several streams at once",
    "resources-list": "the list of resources",
    "sep-2164-resource-not-found": "a resource that is not there",
    "prompts-list": "the list of prompts",
    "dns-rebinding-protection": "a `Host` or `Origin` of another site is refused",
    "caching": "how long lists may be kept",
    "http-header-validation": "headers that differ from the body are refused",
}
"""Scenarios that ask nothing of a server but the protocol."""

_OWN_TOOL = "calls a tool that only the suite's own server has"
_ASKS = "of servers that ask the client for something: ours never does"
_NOT = {
    _OWN_TOOL: (
        "tools-call-simple-text tools-call-image tools-call-audio tools-call-embedded-resource tools-call-mixed-content "
        "tools-call-with-logging tools-call-with-progress json-schema-2020-12 server-sse-polling "
        "http-custom-header-server-validation"
    ),
    _ASKS: (
        "tools-call-sampling tools-call-elicitation elicitation-sep1034-defaults elicitation-sep1330-enums "
        "input-required-result-basic-elicitation input-required-result-basic-sampling "
        "input-required-result-basic-list-roots input-required-result-request-state "
        "input-required-result-multiple-input-requests input-required-result-multi-round "
        "input-required-result-missing-input-response input-required-result-non-tool-request "
        "input-required-result-result-type input-required-result-unsupported-methods "
        "input-required-result-tampered-state input-required-result-capability-check "
        "input-required-result-ignore-extra-params input-required-result-validate-input"
    ),
    "reads a resource that only the suite's own server has": (
        "resources-read-text resources-read-binary resources-templates-read resources-subscribe resources-unsubscribe"
    ),
    "gets a prompt that only the suite's own server has": (
        "prompts-get-simple prompts-get-with-args prompts-get-embedded-resource prompts-get-with-image"
    ),
    "optional, and not offered": "completion-complete logging-set-level",
}
DOES_NOT = {name: reason for reason, names in _NOT.items() for name in names.split()}
CHECKS = {
    "sep-2575-server-rejects-undeclared-capability": _OWN_TOOL,
    "sep-2575-missing-capability-http-400": _OWN_TOOL,
}
"""Single checks of scenarios that apply, which do not."""
FETCH_SECONDS = 90
Checks = Mapping[str, Sequence[Mapping[str, Any]]]


def main(command: str) -> int:
    if command == "install":
        return 0 if installed() else 1
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as url:
        values = {version: checks(url, version, Path(folder) / version) for version in SPECIFICATIONS}
    lines, is_right = report(values)
    print("\n".join(lines))
    return 0 if is_right else 1


def stamp() -> Path:
    return FOLDER / f"{VERSION}.stamp"


def installed() -> bool:
    if stamp().is_file():
        return True
    FOLDER.mkdir(exist_ok=True)
    print(f"Fetching {' and '.join(PACKAGES)} (once) ...", flush=True)
    options = ["--no-save", "--no-audit", "--no-fund", "--loglevel=error", "--fetch-retries=1", "--prefix", str(FOLDER)]
    command = ["npm", "install", *options, *PACKAGES]
    try:
        ran = subprocess.run(command, check=False, cwd=FOLDER, timeout=FETCH_SECONDS)  # noqa: S603
    except subprocess.TimeoutExpired:
        return False
    if ran.returncode == 0:
        stamp().touch()
    return ran.returncode == 0


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Yield the address of `turnlog mcp --http` over a session of its own."""
    from turnlog import Turnlog

    with Turnlog.open(f"sqlite:///{folder}/turnlog.db") as log:
        log.sessions.create("desk").append({"role": "user", "content": "Where is the parcel?"})
    with socket.socket() as resource:
        resource.bind(("127.0.0.1", 0))
        port = resource.getsockname()[1]
    run = "from turnlog.cli import main; main()"
    command = [sys.executable, "-c", run, "mcp", "--data", str(folder), "--http", "--port", str(port)]
    with (folder / "said").open("w") as said, subprocess.Popen(command, stdout=said, stderr=said) as server:  # noqa: S603
        try:
            for _ in range(600):
                with socket.socket() as probe:
                    if server.poll() is not None or probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            server.terminate()


def checks(url: str, version: str, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the checks of each scenario of a version of the specification."""
    programs = FOLDER / "node_modules" / ".bin"
    outcome = ["--url", url, "--suite", "all", "--spec-version", version, "-o", str(folder)]
    command = [str(programs / "node"), str(programs / "conformance"), "server", *outcome]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603
    result = dict[str, list[dict[str, Any]]]()
    for name in [*APPLIES, *DOES_NOT]:
        # Results are in folders of the scenario's name and the time.
        for path in folder.glob(f"server-{name}-20??-??-??T*"):
            result[name] = json.loads((path / "checks.json").read_text(encoding="utf-8"))
    known = {*APPLIES, *DOES_NOT}
    lines = [line.strip("= ").removeprefix("Running scenario: ") for line in ran.stdout.splitlines() if RUNNING in line]
    for name in lines:
        if name not in known:
            raise SystemExit(f"nobody has said whether the scenario {name!r} applies")
    if not result:
        raise SystemExit(f"the suite has tested nothing:\n{ran.stdout[-2_000:]}{ran.stderr[-2_000:]}")
    return result


def report(found: Mapping[str, Checks]) -> tuple[list[str], bool]:
    """Return the lines that say what passed and what did not."""
    lines = [f"{SUITE} {VERSION}", ""]
    width = max(map(len, APPLIES))
    lines.append("  ".join(["scenario".ljust(width), *SPECIFICATIONS]))
    wrong = list[str]()
    for name in APPLIES:
        cells = []
        for version in SPECIFICATIONS:
            made = [
                item for item in found[version].get(name, ()) if item["status"] != "INFO" and item["id"] not in CHECKS
            ]
            failed = [item for item in made if item["status"] == "FAILURE"]
            cells.append(f"{len(made) - len(failed)}/{len(made)}".ljust(10) if made else "-".ljust(10))
            wrong += [f"{version} {name}: {item['id']}: {item.get('errorMessage', '')}" for item in failed]
        lines.append("  ".join([name.ljust(width), *cells]))
    for version in SPECIFICATIONS:
        for name in DOES_NOT:
            failed = [
                item for item in found[version].get(name, ()) if (item["id"], item["status"]) == (MESSAGES, "FAILURE")
            ]
            wrong += [f"{version} {name}: {MESSAGES}: {item.get('errorMessage', '')}" for item in failed]
    lines += [
        "",
        f"{len(DOES_NOT)} scenarios do not apply (docs/contributing/mcp-conformance.md); their messages are checked all the same",
    ]
    never = [name for name in APPLIES if not any(found[version].get(name) for version in SPECIFICATIONS)]
    wrong += [f"{name} was not run" for name in never]
    return [*lines, *(f"FAILED {item}" for item in wrong), "failed" if wrong else "passed"], not wrong


def table() -> str:
    """Return the page's list of what applies and what does not."""
    rows = [f"| `{name}` | {what} |" for name, what in APPLIES.items()]
    rest = [f"- {reason}: {len(names.split())}" for reason, names in _NOT.items()]
    rest.append(f"- of `server-stateless`: {_OWN_TOOL}: {len(CHECKS)}")
    return "\n".join(
        ["| scenario | what it asks for |", "|---|---|", *rows, "", "Do not apply, and how many:", "", *rest]
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
