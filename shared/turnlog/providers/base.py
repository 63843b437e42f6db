"""The seam between providers' shapes and the domain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import NamedTuple, Protocol, TypeAlias

from turnlog.core.json_values import JsonObject
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.messages import Message


@lazy_dataclass(frozen=True, slots=True)
class Turn:
    """One message to be rendered.

    ``body`` is the message as given, in ``format``: a codec of that format sends it back equal, except for ``call_ids``.
    ``body`` is None when the message was made or altered by the window (a note, a cut text, a stub).
    ``call_ids`` are the ids to send for the message's calls, in order; ``result_ids`` those its results answer.
    """

    message: Message
    format: str = ""
    body: JsonObject | None = None
    call_ids: tuple[str, ...] = ()
    result_ids: tuple[str, ...] = ()


Envelope: TypeAlias = Mapping[str, object]
Bodies: TypeAlias = Sequence[Sequence[JsonObject]]
"""What each of some turns is told as."""


class End(NamedTuple):
    """A place in rendered messages: behind so many ``blocks`` of the message with this index. Content that is no list is
    one block."""

    message: int
    blocks: int


BEFORE_ALL = End(-1, 0)


@lazy_dataclass(frozen=True, slots=True)
class Rendered:
    """What the provider's call takes. ``system`` is None where the system text is a message, or there is none.

    ``ends``: how far each turn reaches in the messages, in order; `BEFORE_ALL` for those in the system text. Where blocks of
    several turns are put in another order, these turns reach as far as the last of the blocks. ``bodies``: what each turn is
    told as, before neighbours of one role are put together; nothing for those in the system text.
    """

    messages: list[JsonObject]
    system: str | None = None
    tools: list[JsonObject] = field(default_factory=list)
    ends: tuple[End, ...] = ()
    bodies: Bodies = ()


class Codec(Protocol):
    """One provider format. Parsing never fails on disorder; it raises `InvalidInputError` on what is no message at all."""

    @property
    def format(self) -> str: ...

    def recognises(self, body: JsonObject) -> bool:
        """Whether the body has a block or field that only this format has."""

    def parse(self, body: JsonObject, *, is_error: bool | None = None) -> Message:
        """The body understood. ``is_error`` overrides what the format says of a result."""

    def legal_id(self, call_id: str) -> bool:
        """Whether the provider takes this call id."""

    def render(
        self, turns: Sequence[Turn], *, system: str | None, tools: Sequence[JsonObject], bodies: Bodies | None = None
    ) -> Rendered:
        """The provider's request. Turns are in a valid order already; results follow their call. ``bodies``: those of the
        turns, where they have been rendered before, at the beginning of the same turns."""

    def bodies(self, turn: Turn) -> list[JsonObject]:
        """One message by itself, whatever stands around it; several where the format has no one body for it."""

    def tools(self, tools: Sequence[JsonObject]) -> list[JsonObject]:
        """Tool schemas in the provider's shape."""
