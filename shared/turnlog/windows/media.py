"""Images and files of a window, as many of the newest as the provider takes; the others leave a line behind.

A provider limits the images and files of a request: their number, their bytes and their pixels. When a new one does not fit, the
oldest leave, and so many at once that the next ones fit: windows begin otherwise only then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from turnlog.core.calls import Ref
from turnlog.core.messages import Block, Media, Message, Opaque, Text, ToolResult
from turnlog.providers.bedrock_converse import is_document
from turnlog.providers.token_rules import image_size
from turnlog.windows.breaks import EpochStart
from turnlog.windows.render import Place, PlacedTurn
from turnlog.windows.view import OF_ITEMS, Unit


class MediaLimits(NamedTuple):
    """The limits of a provider on images and files.

    A request has at most ``images`` images, and its media at most ``chars`` characters of base64. An image has at most
    ``image_chars`` characters of base64, and no side over ``side`` pixels; in a request of more than ``many`` images, none over
    ``many_side``. The messages between two answers have at most ``turn_images`` images and ``turn_files`` files.
    """

    images: int
    chars: int
    image_chars: int
    side: int
    many: int
    many_side: int
    turn_images: int
    turn_files: int


_MB = 1_000_000
_ANY = 1_000_000_000
MEDIA_LIMITS: Mapping[str, MediaLimits] = {
    # https://platform.claude.com/docs/en/build-with-claude/vision: a request of 32 MB (2 are left for texts), 10 MB of base64 for
    # an image. The 100 images are those of models with 200,000 tokens of context.
    "anthropic": MediaLimits(100, 30 * _MB, 10 * _MB, 8_000, 20, 2_000, _ANY, _ANY),
    # https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Message.html: 3.75 MB for an image, of each message 20
    # images and 5 documents. Claude's limits hold too: https://platform.claude.com/docs/en/api/overview has 20 MB for a request.
    "bedrock_converse": MediaLimits(100, 18 * _MB, 5 * _MB, 8_000, 20, 2_000, 20, 5),
    # https://developers.openai.com/api/docs/guides/images-vision: 1,500 images, a request of 512 MB.
    **dict.fromkeys(("openai_chat", *OF_ITEMS), MediaLimits(1_500, 500 * _MB, *[_ANY] * 6)),
}
_LARGE_CONTEXT, _IMAGES_OF_LARGE = 200_000, 600
_HEADROOM = 0.5
"""Share of each limit that is left when the oldest media leave: so many messages later the next ones do."""


def limits_of(format: str, context: int | None) -> MediaLimits | None:
    """Return the limits of a format's provider for a model with so many tokens of context; the strictest for an unknown model."""
    limits = MEDIA_LIMITS.get(format)
    is_large = format == "anthropic" and context is not None and context > _LARGE_CONTEXT
    return limits._replace(images=_IMAGES_OF_LARGE) if limits is not None and is_large else limits


class _Item(NamedTuple):
    """An image or file of a window: the index of its turn, its number among the turn's blocks, and what is limited of it."""

    turn: int
    number: int
    is_image: bool
    chars: int
    side: int
    answers_before: int


class _SentMedia:
    """The media that are sent, oldest first, and the totals that limits are compared with."""

    def __init__(self, limits: MediaLimits) -> None:
        self._limits = limits
        self._items = deque[_Item]()
        self._images = self._chars = self._wide = self._turn_images = self._turn_files = 0

    def add(self, items: Sequence[_Item]) -> list[_Item]:
        """Add a turn's media. Return the oldest that must go so that the rest fits, with some room; the turn's own go last."""
        for item in items:
            if self._items and self._items[-1].answers_before != item.answers_before:
                self._turn_images = self._turn_files = 0
            self._items.append(item)
            self._count(item, 1)
        if not items or self._fits(1):
            return []
        gone, turn = list[_Item](), items[-1].turn
        while self._items and not self._fits(1 if self._items[0].turn == turn else _HEADROOM):
            gone.append(self._items.popleft())
            self._count(gone[-1], -1)
        return gone

    def _count(self, item: _Item, change: int) -> None:
        self._images += item.is_image * change
        self._chars += item.chars * change
        self._wide += (item.side > self._limits.many_side) * change
        if not self._items or item.answers_before == self._items[-1].answers_before:
            self._turn_images += item.is_image * change
            self._turn_files += (not item.is_image) * change

    def _fits(self, share: float) -> bool:
        limits = self._limits
        return (
            not (self._images > limits.many * share and self._wide)
            and self._images <= limits.images * share
            and self._chars <= limits.chars * share
            and self._turn_images <= limits.turn_images
            and self._turn_files <= limits.turn_files
        )


def within_media_limits(
    placed_turns: Sequence[PlacedTurn], limits: MediaLimits | None, units: Iterable[Unit]
) -> tuple[list[PlacedTurn], Place | None, Place | None]:
    """Return the turns with as many of their newest media as the provider takes; the others leave a line.

    ``units`` have the calls by whose refs a line names results. The second value is the place with which media left the last time,
    the third that of the first turn that they left; both None when they never did.
    """
    if limits is None:
        return list(placed_turns), None, None
    media, left, since, first = _SentMedia(limits), dict[int, set[int]](), None, None
    for items in _items(placed_turns):
        large = {item.number for item in items if item.chars > limits.image_chars or item.side > limits.side}
        gone = media.add([item for item in items if item.number not in large])
        if gone and gone[0].turn != items[0].turn:
            since, first = placed_turns[items[0].turn].place, placed_turns[gone[0].turn].place
        for item in (*gone, *(item for item in items if item.number in large)):
            left.setdefault(item.turn, set()).add(item.number)
    answers = (answer for unit in units for answer in unit.answers) if left else ()
    refs = {(answer.entry.position, answer.index): answer.ref for answer in answers if answer.entry is not None}
    sent = list(placed_turns)
    for turn, numbers in left.items():
        placed = placed_turns[turn]
        message = _without_media(placed, numbers, refs)
        sent[turn] = replace(placed, turn=replace(placed.turn, message=message, body=None))
    return sent, since, first


def without_expired(turns: Sequence[PlacedTurn]) -> tuple[list[PlacedTurn], list[EpochStart]]:
    """Return the turns with transcripts of answers whose sound OpenAI no longer has, and the breaks there."""
    sent, breaks = list(turns), list[EpochStart]()
    for index, placed in enumerate(turns):
        audio, entry = (placed.turn.body or {}).get("audio"), placed.entry
        expires_at = audio.get("expires_at") if isinstance(audio, dict) else None
        if entry is None or not isinstance(expires_at, int):
            continue
        entries = [turn.entry for turn in turns if turn.entry is not None]
        since = min([late.position for late in entries if late.time_ms >= expires_at * 1000], default=0)
        if since:
            sent[index] = replace(placed, turn=replace(placed.turn, body=None))
        if since > entry.position:
            breaks.append(EpochStart(since, "media", entry.position))
    return sent, breaks


def _items(placed_turns: Sequence[PlacedTurn]) -> Iterator[list[_Item]]:
    """Yield the media of each turn that has some. An assistant's media are never sent."""
    answers = 0
    for turn, placed in enumerate(placed_turns):
        message = placed.turn.message
        answers += _separates(message)
        media = [block for block in message.blocks if _kind(block)]
        if media and message.role != "assistant":
            yield [_item(turn, number, block, answers) for number, block in enumerate(media)]


def _separates(message: Message) -> bool:
    """Return whether a message is sent as an answer between two messages of the user.

    An answer without a text or call may be left out; the messages on both sides are then sent as one.
    """
    texts = (block.text for block in message.content if isinstance(block, Text))
    return message.role == "assistant" and (bool(message.tool_calls) or any(map(str.strip, texts)))


def _item(turn: int, number: int, block: Block, answers: int) -> _Item:
    data = block.data or "" if isinstance(block, Media) else ""
    is_image = _kind(block) == "image"
    size = image_size(data) if is_image and data else None
    return _Item(turn, number, is_image, len(data), max(size) if size else 0, answers)


def _kind(block: Block) -> str | None:
    """Return the kind of an image or file, None for other blocks. Bedrock counts documents of text among the files too."""
    if isinstance(block, Media):
        return block.kind
    return "file" if isinstance(block, Opaque) and is_document(block.value) else None


def _without_media(placed: PlacedTurn, numbers: set[int], refs: Mapping[tuple[int, int], Ref]) -> Message:
    """Return the message of a turn with a line in the place of some of its media."""
    message, position, count = placed.turn.message, placed.place, 0

    def shown(blocks: Sequence[Block], where: str) -> tuple[Block, ...]:
        nonlocal count
        lines = list[Block]()
        for block in blocks:
            kind = _kind(block)
            is_left = kind is not None and count in numbers
            count += kind is not None
            lines.append(Text(f"[{kind} not shown here: ref {where} has it]") if is_left else block)
        return tuple(lines)

    # What a recall brought back is named by the place that it came from.
    recall = placed.entry.event.recall if placed.entry is not None else None
    origin = ", ".join(map(str, recall.places)) if recall is not None else ""
    content = shown(message.content, str(position))
    results = list[ToolResult]()
    for index, result in enumerate(message.tool_results):
        is_known = isinstance(position, int) and placed.part != "some results"
        ref = refs.get((position, index)) if is_known and isinstance(position, int) else None
        results.append(replace(result, content=shown(result.content, origin or str(ref or position))))
    return replace(message, content=content, tool_results=tuple(results))
