"""The contract suite of `ItemTable`."""

from __future__ import annotations

from turnlog.testing.contracts.item_writes import ItemWritesContract
from turnlog.testing.contracts.items import ItemReadsContract


class ItemTableContract(ItemWritesContract, ItemReadsContract):
    """Tests of an `ItemTable`. Fixture: ``table``. Every test uses a partition of its own."""
