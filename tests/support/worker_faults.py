"""Jobs whose worker ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from turnlog.client.model import Session
from turnlog.core.errors import NotFoundError


def compressed(session: Session) -> None:
    summary = session.summary()
    assert summary is not None and (summary.position, summary.base) == (session.info().head, None)


def kept(session: Session) -> None:
    (only,) = session.snapshots()
    assert session.snapshot("whole").content.message_count == 11 and only.name == "whole"


def erased(session: Session) -> None:
    with pytest.raises(NotFoundError):
        session.info()


JOBS: dict[str, tuple[Callable[[Session], Any], Callable[[Session], None]]] = {
    "compress": (lambda session: session.compress(mode="async", keep_loops=1), compressed),
    "snapshot": (lambda session: session.create_snapshot("whole", kind="full", mode="async"), kept),
    "erase": (lambda session: session.erase(), erased),
}
