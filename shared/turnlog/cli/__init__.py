"""The command line, `turnlog`. Needs the extra ``cli``."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence

_NEEDED = ("typer", "rich", "waitress", "aws_lambda_powertools")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit: 0 done, 1 failed, 2 wrong usage (an input that the caller must change)."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        sys.stderr.write(f"turnlog: the command line needs {', '.join(missing)}: pip install 'turnlog[cli]'\n")
        raise SystemExit(1)
    from turnlog.cli.app import app

    app(args=None if arguments is None else list(arguments), prog_name="turnlog")
