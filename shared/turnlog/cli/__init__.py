"""The command line, `turnlog`. Needs the extra ``cli``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from turnlog import __version__

_NEEDED = ("typer", "rich", "waitress", "aws_lambda_powertools")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit: 0 done, 1 failed, 2 wrong usage (an input that the caller must change), 130 Ctrl-C."""
    try:
        _run(sys.argv[1:] if arguments is None else list(arguments))
    except KeyboardInterrupt:
        sys.stderr.write("turnlog: stopped\n")
        raise SystemExit(130) from None


def _run(arguments: list[str]) -> None:
    if arguments == ["--version"]:  # without the imports of a command, which take 50 times as long
        sys.stdout.write(f"turnlog {__version__}\n")
        raise SystemExit(0)
    import importlib.util

    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        sys.stderr.write(f"turnlog: the command line needs {', '.join(missing)}: pip install 'turnlog[cli]'\n")
        raise SystemExit(1)
    from turnlog.cli.app import app

    app(args=arguments, prog_name="turnlog")
