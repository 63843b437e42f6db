"""Conversations that are written to two stores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class OldList:
    """An old store as people have it."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self.kept = list(messages)

    def append(self, *messages: Mapping[str, Any]) -> None:
        self.kept.extend(dict(message) for message in messages)

    def messages(self) -> Iterable[Mapping[str, Any]]:
        return iter(self.kept)
