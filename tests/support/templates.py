"""The stack of template.yaml: SAM takes seconds for it, so each set of parameters is expanded once."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from tests.conftest import ROOT

if TYPE_CHECKING:
    from turnlog.server.stack import Template

WORKERS = {
    "CompressWorker": "compress",
    "SnapshotWorker": "snapshot",
    "EraseWorker": "erase",
    "OffloadWorker": "offload",
}


def template(**parameters: str) -> Template:
    """Return the expanded template with these parameters. Tests only read it."""
    return _expanded(frozenset(parameters.items()))


@cache
def _expanded(parameters: frozenset[tuple[str, str]]) -> Template:
    from turnlog.server.stack import expand

    return expand(ROOT / "template.yaml", dict(parameters))
