"""What accumulates the events of a provider's stream into the message that they tell."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from turnlog.core.json_values import JsonObject

Event = Mapping[str, Any]


class Accumulator(Protocol):
    """Events in, messages out. It may be read at any time, and keeps nothing of the objects that it was given."""

    format: str
    finish_reason: str | None
    """Why the provider has ended; None while it has not said so."""
    is_broken: bool
    """The stream itself has told of an error."""

    @property
    def usage(self) -> dict[str, int] | None:
        """``input_tokens`` and ``output_tokens``, once the provider has told both."""

    def add(self, event: Event) -> None:
        """What is not known of an event is passed over."""

    @property
    def messages(self) -> list[JsonObject]:
        """What has been said so far, in the stream's format; empty before anything was."""

    @property
    def text(self) -> str:
        """The text of it so far, without thinking."""


def plain(event: object) -> Event:
    """An event as a mapping: as it is, or of a provider's own type."""
    if isinstance(event, Mapping):
        return event
    dump = getattr(event, "model_dump", None)
    if callable(dump):
        found: Event = dump(mode="json", exclude_unset=True)
        return found
    raise TypeError(f"an event is a mapping or a model of the provider's library, not {type(event).__name__}")


def mapping(value: object) -> Event:
    return value if isinstance(value, Mapping) else {}


def listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def text_of(value: object) -> str:
    return value if isinstance(value, str) else ""


def index_of(value: object, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def input_of(text: str) -> JsonObject:
    """The arguments that a text is the JSON of; kept as ``_raw`` where it is not, or not yet."""
    if not text.strip():
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {"_raw": text}


def counted(input_tokens: object, output_tokens: object) -> dict[str, int] | None:
    if isinstance(input_tokens, int) and isinstance(output_tokens, int):
        return {"input_tokens": input_tokens, "output_tokens": output_tokens}
    return None
