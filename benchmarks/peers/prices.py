"""What AWS asks, in one place."""

from __future__ import annotations

from types import MappingProxyType

REGION = "us-east-1"
AS_OF = "2026-11-21"
NOTE = f"List prices of {REGION}, on demand, noted on {AS_OF}; storage and free tiers left out; transfer inside a region is free."

WRITE_UNIT, READ_UNIT, PUT, GET = "write unit", "read unit", "S3 PUT, LIST", "S3 GET, HEAD"

DOLLARS = MappingProxyType(
    {
        WRITE_UNIT: 0.625 / 1_000_000,
        READ_UNIT: 0.125 / 1_000_000,
        PUT: 0.005 / 1_000,
        GET: 0.0004 / 1_000,
    }
)
"""Of one unit or request. DELETE is free."""
