"""Make the environment of the adapters' frameworks: ``python tools/frameworks.py FOLDER``, for mk/frameworks.mk.

It lies over the development environment and has only what that lacks. The Claude Agent SDK is built from its sources: its wheel
has a program of 180 MB, which no test runs.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

EXTRAS = ("agent-framework", "claude-agent-sdk", "google-adk", "llama-index", "pydantic-ai")
ROOT = Path(__file__).parent.parent


def main(folder: Path) -> None:
    venv.create(folder, with_pip=False)
    packages = sysconfig.get_path("purelib", vars={"base": str(folder.absolute()), "platbase": str(folder.absolute())})
    below = sysconfig.get_path("purelib")
    (Path(packages) / "development.pth").write_text(f"import site; site.addsitedir({below!r})\n")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = [requirement for name in EXTRAS for requirement in extras[name]]
    command = [
        folder / "bin" / "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-compile",
    ]
    subprocess.run([*command, "--no-binary", "claude-agent-sdk", *wanted], check=True)  # noqa: S603


if __name__ == "__main__":
    main(Path(sys.argv[1]))
