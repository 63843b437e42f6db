"""A memory engine that notes what it is told, and offloads."""

from __future__ import annotations

import gzip
import json
from collections.abc import Collection
from typing import Any

import pytest

from tests.conftest import Harness
from turnlog.client.model import Turnlog
from turnlog.core.identity import Owner
from turnlog.core.memory import Memory, MemoryPage, Offloaded, SpokenMessage
from turnlog.jobs.models import Job
from turnlog.memory.embedded import EmbeddedMemory
from turnlog.memory.facts import SentenceFacts, without_cost
from turnlog.ports import ItemTable
from turnlog.search.fts5 import Fts5SearchEngine

SQLITE = pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
"""What is decided above the engines is tried on one of them."""


TEA = {"role": "user", "content": "I prefer green tea over coffee."}


CITY = {"role": "user", "content": "I live in Lisbon."}


ANSWER = {"role": "assistant", "content": "Noted."}


class Recorder:
    """A `MemoryEngine` that writes down what it is told, or fails as it is said to."""

    name = "recorder"

    def __init__(self) -> None:
        self.parts = list[tuple[Offloaded, list[SpokenMessage]]]()
        self.failing: Exception | None = None

    def remember(self, part: Offloaded) -> int:
        if self.failing is not None:
            raise self.failing
        self.parts.append((part, list(part.read_messages())))
        return 7

    def known(self, owner: Owner, question: str, *, limit: int, timeout_seconds: float) -> list[Memory]:
        return []

    def page(self, owner: Owner, *, limit: int, after: str | None = None) -> MemoryPage:
        return MemoryPage(())

    def forget(self, owner: Owner, memory_ids: Collection[str]) -> None: ...

    def erase(self, owner: Owner, session_id: str | None = None, *, position: int | None = None) -> int:
        return 0

    @property
    def told(self) -> list[list[int]]:
        return [[item.position for item in said] for _, said in self.parts]


def copy_of(harness: Harness, session_id: str = "s", user: str = "ada") -> list[dict[str, Any]]:
    """The lines of a session's newest copy."""
    value = harness.app.engine.blobs.get(f"acme/{user}/{session_id}/offload/messages.jsonl.gz")
    return [json.loads(line) for line in gzip.decompress(value).splitlines()] if value is not None else []


def known(log: Turnlog) -> list[str]:
    return [item.text for item in log.memory()]


def offloads(log: Turnlog) -> list[Job]:
    return [job for job in log.jobs() if job.kind == "offload"]


def embedded_memory(items: ItemTable) -> EmbeddedMemory:
    """Return the embedded engine over a table, with facts made of sentences."""
    return EmbeddedMemory(items, without_cost(SentenceFacts()), Fts5SearchEngine(is_conversation=False))
