"""The command line, `turnlog`. Needs the extra ``cli``."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from signal import SIG_IGN, SIGINT, signal

from turnlog import __version__

_NEEDED = ("typer", "rich", "waitress", "aws_lambda_powertools")
_STOPPED = "turnlog: stopped\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit: 0 done, 1 failed, 2 wrong usage (an input that the caller must change), 130 Ctrl-C."""
    for stream, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, stream) is None:  # closed by the caller; a file would get its descriptor
            setattr(sys, stream, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8", closefd=False))
    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = _end_on_ctrl_c
    try:
        _run(sys.argv[1:] if arguments is None else list(arguments))
    except KeyboardInterrupt:
        sys.stderr.write(_STOPPED)
        raise SystemExit(130) from None
    finally:
        # The command is done: Ctrl-C in the interpreter's shutdown would print a traceback and change the exit code.
        atexit.register(signal, SIGINT, SIG_IGN)


def _end_on_ctrl_c(unraisable: sys.UnraisableHookArgs) -> None:
    """End the process when C code has swallowed a Ctrl-C, as imports of pydantic do; report other errors as Python does."""
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        sys.stderr.write(_STOPPED)
        sys.stderr.flush()
        os._exit(130)
    sys.__unraisablehook__(unraisable)


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
