"""The interface of a provider format: a codec, the turns it renders, and the request it returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import field, replace
from typing import ClassVar, NamedTuple, TypeAlias

from turnlog.core.json_values import JsonObject
from turnlog.core.lazy_dataclass import Lasting, lazy_dataclass, once
from turnlog.core.messages import Block, Media, Message
from turnlog.providers.blocks import convert_tools, is_safe_name


@lazy_dataclass(frozen=True, slots=True)
class Turn(Lasting):
    """A message to render.

    ``body`` is the message as it was appended, in ``format``: a codec of that format sends it back unchanged, except for
    ``call_ids``. It is None when the window made or changed the message (a note, a cut text, a stub). Ids of files are of the
    provider of ``format``.
    ``call_ids`` are the ids to send for the message's calls, in order; ``result_ids`` are the ids of the calls that its
    results answer.
    """

    message: Message
    format: str = ""
    body: JsonObject | None = None
    call_ids: tuple[str, ...] = ()
    result_ids: tuple[str, ...] = ()

    @classmethod
    def with_own_ids(cls, message: Message, format: str = "", body: JsonObject | None = None) -> Turn:
        """Return the turn of a message whose calls and results are sent with the ids that they have."""
        calls = tuple(call.id for call in message.tool_calls)
        return cls(message, format, body, calls, tuple(result.tool_call_id for result in message.tool_results))

    @property
    def has_own_results(self) -> bool:
        """Whether the message has results of its own calls; they follow it. Results of earlier calls come before it."""
        return bool(set(self.call_ids) & set(self.result_ids))


Bodies: TypeAlias = Sequence[Sequence[JsonObject]]
"""The provider messages of each turn."""


class End(NamedTuple):
    """A position in rendered messages: behind the first ``blocks`` blocks of the message with index ``message``.

    Content that is not a list counts as one block.
    """

    message: int
    blocks: int


BEFORE_ALL = End(-1, 0)
"""The position before the first message."""


@lazy_dataclass(frozen=True, slots=True)
class Rendered:
    """A request for a provider. ``system`` is None when the system text is a message, or when there is none.

    ``ends``: where each turn ends in the messages, in order; `BEFORE_ALL` for turns that are part of the system text. When the
    blocks of several turns are reordered, each of these turns ends behind the last of the blocks.
    ``bodies``: the messages of each turn before consecutive messages of one role are merged; empty for a turn in the system text.
    """

    messages: list[JsonObject]
    system: str | None = None
    tools: list[JsonObject] = field(default_factory=list)
    ends: tuple[End, ...] = ()
    bodies: Bodies = ()


class Codec(ABC):
    """Parser and renderer of one provider format.

    Parsing accepts messages in any order. It raises `InvalidInputError` only for an object that is not a message.
    """

    format: ClassVar[str]

    @abstractmethod
    def recognises(self, body: JsonObject) -> bool:
        """Return whether the body has a block or field that only this format has."""

    @abstractmethod
    def parse(self, body: JsonObject, *, is_error: bool | None = None) -> Message:
        """Return the body as a `Message`. ``is_error`` overrides the body's own mark of a failed result."""

    def legal_id(self, call_id: str) -> bool:
        """Return whether the provider accepts this call id."""
        return is_safe_name(call_id)

    @abstractmethod
    def render(self, turns: Sequence[Turn], *, system: str | None, tools: Sequence[JsonObject]) -> Rendered:
        """Return the provider's request. The turns must be in a valid order, with results behind their calls."""

    def bodies(self, turn: Turn) -> list[JsonObject]:
        """Return the messages of one turn, whatever its neighbours are. Several when the format has no single message for it."""
        return _bodies(turn, self)

    @abstractmethod
    def repaired(self, turn: Turn, body: JsonObject) -> list[JsonObject] | None:
        """Return the turn's body as it was appended, or with repairs; None when it must be rendered from the message."""

    @abstractmethod
    def rendered(self, turn: Turn) -> list[JsonObject]:
        """Return the messages that say what the turn's `Message` says."""

    def tools(self, tools: Sequence[JsonObject]) -> list[JsonObject]:
        """Return the tool schemas in the provider's shape."""
        return convert_tools(tools, self.format)


@once
def _bodies(turn: Turn, codec: Codec) -> list[JsonObject]:
    own = codec.repaired(turn, turn.body) if turn.format == codec.format and turn.body is not None else None
    return codec.rendered(_with_own_files(turn, codec)) if own is None else own


def _with_own_files(turn: Turn, codec: Codec) -> Turn:
    """Return the turn without the file ids that another provider gave; they mean nothing to this one."""
    message, (given_by, sent_to) = turn.message, (format.partition("_")[0] for format in (turn.format, codec.format))
    has_ids = any(isinstance(block, Media) and block.file_id for block in message.blocks)
    if not has_ids or sent_to in (given_by, "turnlog") or given_by in ("", "turnlog"):
        return turn

    def own(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
        return tuple(replace(block, file_id=None) if isinstance(block, Media) else block for block in blocks)

    results = tuple(replace(result, content=own(result.content)) for result in message.tool_results)
    return replace(turn, message=replace(message, content=own(message.content), tool_results=results))
