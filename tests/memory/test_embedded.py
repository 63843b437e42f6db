"""The shipped contract of memory engines on the embedded one, over each engine's table."""

from __future__ import annotations

import pytest

from tests.conftest import Harness
from tests.support.offloads import embedded_memory
from turnlog.memory.embedded import EmbeddedMemory
from turnlog.testing.contracts import MemoryEngineContract, Settle


class TestEmbeddedMemory(MemoryEngineContract):
    @pytest.fixture
    def memory(self, harness: Harness) -> EmbeddedMemory:
        return embedded_memory(harness.app.engine.items)

    @pytest.fixture
    def settle(self) -> Settle:
        return lambda: None
