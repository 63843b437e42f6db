"""The object model for asyncio: the same objects, each call of theirs made in a thread (docs/adr/0033)."""
