"""Make the environment of the adapters' frameworks: ``python tools/frameworks.py FOLDER``, for mk/frameworks.mk.

It lies over the development environment and has only what that lacks. The Claude Agent SDK is built from its sources: its wheel
has a program of 180 MB, which no test runs.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

TRIED = (
    "agent-framework-core==1.23.0",
    "claude-agent-sdk==0.2.189",
    "google-adk==2.13.0",
    "llama-index-core==0.14.25",
    "pydantic-ai-slim==2.68.0",
)
"""The releases that the adapters are tried with; their extras in pyproject.toml take newer ones too."""


def main(folder: Path) -> None:
    venv.create(folder, with_pip=False)
    packages = sysconfig.get_path("purelib", vars={"base": str(folder.absolute()), "platbase": str(folder.absolute())})
    below = sysconfig.get_path("purelib")
    (Path(packages) / "development.pth").write_text(f"import site; site.addsitedir({below!r})\n")
    command = [
        folder / "bin" / "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-compile",
    ]
    subprocess.run([*command, "--no-binary", "claude-agent-sdk", *TRIED], check=True)  # noqa: S603


if __name__ == "__main__":
    main(Path(sys.argv[1]))
