"""Names and ids that providers take."""

from __future__ import annotations

import hashlib
import re

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SAFE_ID = re.compile(r"[A-Za-z0-9_-]+")


def is_tool_name(name: str) -> bool:
    """Whether every provider takes the name."""
    return _TOOL_NAME.fullmatch(name) is not None


def legal_tool_name(name: str) -> str:
    """A name that every provider takes: as given, or its legal characters and a hash that keeps names apart."""
    if is_tool_name(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    kept = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_")[:48]
    return f"{kept}_{digest}" if kept else f"tool_{digest}"


def is_safe_id(call_id: str, *, longest: int) -> bool:
    """Whether the id has none but letters, digits, _ and -, and at most ``longest`` of them."""
    return len(call_id) <= longest and _SAFE_ID.fullmatch(call_id) is not None
