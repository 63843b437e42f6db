"""Pictures of a size."""

from __future__ import annotations

import base64


def png(width: int, height: int) -> str:
    """Return the header of a PNG, which says how large it is."""
    size = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + size + b"\x08\x02\0\0\0").decode()
