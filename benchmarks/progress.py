"""How far a benchmark is, for whoever sits before it."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """In place of what was said before, on a terminal only; nothing takes it away."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
