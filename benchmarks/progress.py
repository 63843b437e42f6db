"""How far a benchmark is, for whoever sits before it."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """Show a text in place of the last one, on a terminal only; nothing takes it away."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
