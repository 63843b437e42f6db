"""Contract suites: tests of what every engine must do. To test an engine, subclass a suite and define its fixtures.

    import pytest
    from turnlog.testing.contracts import BlobStoreContract, ItemTableContract, JobQueueContract, MemoryEngineContract

    class TestMyItemTable(ItemTableContract):
        @pytest.fixture
        def table(self):                      # an ItemTable; it may hold other items
            return MyItemTable(...)

    class TestMyBlobStore(BlobStoreContract):
        @pytest.fixture
        def blobs(self):                      # a BlobStore; it may hold other blobs
            return MyBlobStore(...)

    class TestMyJobQueue(JobQueueContract):
        @pytest.fixture
        def queue(self):                      # an empty JobQueue with the class's two settings
            return MyJobQueue(visibility_seconds=self.visibility_seconds, max_receives=self.max_receives)

        @pytest.fixture
        def advance(self):                    # lets a number of seconds pass for the queue
            return my_clock.advance           # time.sleep, for an engine on real time

    class TestMyMemoryEngine(MemoryEngineContract):
        @pytest.fixture
        def memory(self):                     # an empty MemoryEngine
            return MyMemoryEngine(...)

        @pytest.fixture
        def settle(self):                     # waits for memories that the engine makes in the background
            return lambda: None

The suites need pytest and no plugin. For explained assertions, call
``pytest.register_assert_rewrite("turnlog.testing.contracts")`` in a conftest before the first import.
Class attributes with a docstring are settings: a subclass may change them with a comment that says why.
"""

from turnlog.testing.contracts.blob_store import BlobStoreContract
from turnlog.testing.contracts.item_writes import ItemTableContract
from turnlog.testing.contracts.job_queue import Advance, JobQueueContract, RedrivableContract
from turnlog.testing.contracts.memory import MemoryEngineContract, Settle

__all__ = [
    "Advance",
    "BlobStoreContract",
    "ItemTableContract",
    "JobQueueContract",
    "MemoryEngineContract",
    "RedrivableContract",
    "Settle",
]
