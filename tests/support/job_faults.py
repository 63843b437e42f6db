"""A session to work on, and an application whose jobs meet faults."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from turnlog.app import Application
from turnlog.client.model import Session, Turnlog
from turnlog.ports import BlobStore, ItemTable
from turnlog.settings import Settings
from turnlog.testing.fixed import SequentialIds

SAID = [{"role": ("user", "assistant")[at % 2], "content": f"{at} " + "something to say " * 40} for at in range(10)]


def said(log: Turnlog, session_id: str = "s") -> Session:
    session = log.sessions.create(session_id)
    session.append(*SAID)
    return session


def application(harness: Any, items: ItemTable, blobs: BlobStore) -> Application:
    engine = replace(harness.app.engine, items=items, blobs=blobs)
    ids = SequentialIds(harness.app.ids.nonce()[-1] * 10**6 + 10**9)
    return Application(engine, Settings(), clock=harness.clock, ids=ids, counter=harness.app.counter)
