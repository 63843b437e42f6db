"""Emulators of AWS on this machine: dynoxide (DynamoDB) and ministack (DynamoDB, S3, SQS).

    python tools/emulators.py install            # what can be had; says plainly what can't, and why
    python tools/emulators.py test [pytest's]    # starts what is installed, runs the contract suites on it, stops it

Both stand under .venv/emulators and listen on 127.0.0.1 only, on a free port. Nothing else needs them: without them their
tests are skipped and say so.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".venv" / "emulators"
SUITE = "tests/engines/test_engines_emulators.py"

DYNOXIDE_VERSION = "1.2.1"
DYNOXIDE_PACKAGE = "@dynoxide/linux-x64"
DYNOXIDE_INTEGRITY = "sha512-sBHqlxJ9ANkLluFkYRfd5r8Y0ApFew4FhOrlhgRAgD4XzEoFOukEo1nuBTQ1+jTtofqwn4NWQ2k0Tn5mNTjgUg=="
MINISTACK_VERSION = "1.5.33"

_START_SECONDS = 30
_STOP_SECONDS = 10
_FETCH_SECONDS = 300


class CannotHaveError(Exception):
    """Why an emulator can't be installed here."""


@dataclass(frozen=True, slots=True)
class Emulator:
    """``variable`` may name one that runs already. ``command`` is asked for the port; ``ready`` is a path that answers 200."""

    name: str
    version: str
    variable: str
    executable: Path
    command: Callable[[int], list[str]]
    environment: Callable[[int], Mapping[str, str]]
    ready: str | None
    install: Callable[[], None]

    @property
    def is_installed(self) -> bool:
        return self.executable.is_file()

    @property
    def why_not(self) -> str:
        """The reason of a skip."""
        return f"{self.name} is not installed (make emulators) and {self.variable} names none"


def _install_dynoxide() -> None:
    machine = (platform.system(), platform.machine())
    if machine != ("Linux", "x86_64"):
        raise CannotHaveError(f"the binary is for Linux on x86-64, this is {machine[0]} on {machine[1]}")
    npm = shutil.which("npm")
    if npm is None:
        raise CannotHaveError("npm is not on PATH")
    with tempfile.TemporaryDirectory() as folder:
        _run([npm, "pack", "--silent", f"{DYNOXIDE_PACKAGE}@{DYNOXIDE_VERSION}"], cwd=Path(folder))
        (archive,) = Path(folder).glob("*.tgz")
        digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if f"sha512-{digest}" != DYNOXIDE_INTEGRITY:
            raise CannotHaveError(f"{DYNOXIDE_PACKAGE} {DYNOXIDE_VERSION} is not the file whose hash is pinned")
        with tarfile.open(archive) as files:
            binary = files.extractfile("package/dynoxide")
            assert binary is not None  # noqa: S101 - the hash says what is inside
            DYNOXIDE.executable.parent.mkdir(parents=True, exist_ok=True)
            DYNOXIDE.executable.write_bytes(binary.read())
    DYNOXIDE.executable.chmod(0o755)


def _install_ministack() -> None:
    folder = MINISTACK.executable.parent.parent
    try:
        _run([sys.executable, "-m", "venv", str(folder)])
        pip = [str(MINISTACK.executable), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, f"ministack[full]=={MINISTACK_VERSION}"])
    except CannotHaveError:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _run(command: list[str], cwd: Path | None = None) -> None:
    try:
        subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True, timeout=_FETCH_SECONDS)  # noqa: S603
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip() or error.stdout.strip() or "no message").splitlines()[-1]
        raise CannotHaveError(f"{Path(command[0]).name} failed: {last}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotHaveError(f"{Path(command[0]).name} failed: {error}") from error


DYNOXIDE = Emulator(
    "dynoxide",
    DYNOXIDE_VERSION,
    "TURNLOG_TEST_DYNOXIDE",
    FOLDER / f"dynoxide-{DYNOXIDE_VERSION}" / "dynoxide",
    command=lambda port: ["serve", "--host", "127.0.0.1", "--port", str(port)],
    environment=lambda port: {},
    ready=None,
    install=_install_dynoxide,
)
MINISTACK = Emulator(
    "ministack",
    MINISTACK_VERSION,
    "TURNLOG_TEST_MINISTACK",
    FOLDER / f"ministack-{MINISTACK_VERSION}" / "bin" / "python",
    command=lambda port: ["-m", "ministack"],
    environment=lambda port: {
        "GATEWAY_PORT": str(port),
        "BIND_HOST": "127.0.0.1",
        "MINISTACK_HOST": "127.0.0.1",
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
        "SERVICES": "dynamodb,s3,sqs",
        "DOCKER_HOST": "unix:///nonexistent",  # it removes containers that it takes for its own
        "LOG_LEVEL": "WARNING",
    },
    ready="/_ministack/ready",
    install=_install_ministack,
)
EMULATORS = (DYNOXIDE, MINISTACK)


@contextlib.contextmanager
def running(emulator: Emulator) -> Iterator[str]:
    """Yield the address of a fresh emulator, stopped at the end of the block, or of the one that its variable names."""
    if named := os.environ.get(emulator.variable):
        yield named
        return
    port = _free_port()
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "log").open("w+") as output:
        process = subprocess.Popen(  # noqa: S603
            [str(emulator.executable), *emulator.command(port)],
            env={"PATH": os.environ.get("PATH", ""), "TMPDIR": folder, **emulator.environment(port)},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            if not _is_ready(process, port, emulator.ready):
                output.seek(0)
                raise TimeoutError(f"{emulator.name} did not start: {output.read()[-2_000:]}")
            yield f"http://127.0.0.1:{port}"
        finally:
            _stop(process)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _is_ready(process: subprocess.Popen[bytes], port: int, path: str | None) -> bool:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            if path is None:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return True
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=1) as answer:
                if answer.status == 200:
                    return True
        except urllib.error.HTTPError as error:
            error.close()
        except OSError:
            pass
        time.sleep(0.05)
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_STOP_SECONDS)


def install() -> list[Emulator]:
    """Fetches what is missing; those that are there now."""
    for emulator in EMULATORS:
        if not emulator.is_installed:
            try:
                emulator.install()
            except CannotHaveError as error:
                print(f"{emulator.name} {emulator.version}: could not be had: {error}")
                continue
        print(f"{emulator.name} {emulator.version}: installed")
    return [emulator for emulator in EMULATORS if emulator.is_installed]


def test(arguments: list[str]) -> int:
    """Runs the suites on what is installed; the exit code of pytest, 1 when nothing is installed."""
    with contextlib.ExitStack() as stack:
        environment = dict(os.environ)
        for emulator in EMULATORS:
            if emulator.is_installed or emulator.variable in environment:
                environment[emulator.variable] = stack.enter_context(running(emulator))
                print(f"{emulator.name} on {environment[emulator.variable]}")
        if not any(emulator.variable in environment for emulator in EMULATORS):
            print("no emulator is installed, so nothing was run; try again with PyPI in reach", file=sys.stderr)
            return 1
        command = [sys.executable, "-m", "pytest", "-q", *(arguments or [SUITE])]
        return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode  # noqa: S603


def main(arguments: list[str]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is stopped
    match arguments:
        case ["install"]:
            install()
            return 0
        case ["test", *rest]:
            return test(rest)
        case ["versions"]:
            print(json.dumps({emulator.name: emulator.version for emulator in EMULATORS if emulator.is_installed}))
            return 0
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
