"""What an `ItemTable` promises."""

from __future__ import annotations

from turnlog.testing.contracts.item_writes import ItemWritesContract
from turnlog.testing.contracts.items import ItemReadsContract


class ItemTableContract(ItemWritesContract, ItemReadsContract):
    """Fixture: ``table``, an `ItemTable`. Every test works in a partition of its own."""
