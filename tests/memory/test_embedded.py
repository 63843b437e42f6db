"""The shipped contract of memory engines on the embedded one, over each engine's table."""

from __future__ import annotations

import pytest

from tests.conftest import Harness
from turnlog.memory.embedded import EmbeddedMemory, Memories
from turnlog.memory.facts import SentenceFacts, without_cost
from turnlog.search.fts5 import Fts5SearchEngine
from turnlog.testing.contracts import MemoryEngineContract, Settle


class TestEmbeddedMemory(MemoryEngineContract):
    @pytest.fixture
    def memory(self, harness: Harness) -> EmbeddedMemory:
        return EmbeddedMemory(
            Memories(harness.app.engine.items), without_cost(SentenceFacts()), Fts5SearchEngine(is_conversation=False)
        )

    @pytest.fixture
    def settle(self) -> Settle:
        return lambda: None
