"""Token counts of messages, and the factor between them and a provider's own counts.

A message is counted once, when it is appended. The count is the sum of the parts, each counted alone, plus `MESSAGE_OVERHEAD`; a
window adds `WINDOW_OVERHEAD` once. Base64 is not tokenised, because providers charge media by size or duration.

The calibration factor says how many tokens a provider counts for each token that Turnlog estimates. It is a pure fold over
commits, so any old window can be built again. It follows the median of the last five ratios, in steps of 5 %. It changes seldom,
because each change may shift a window that the provider has cached:

- It rises as soon as the median is above it, because the provider would refuse a window that is too large.
- It falls only when a run loop begins and the factor is at least 15 points too high.
"""

from __future__ import annotations

import binascii
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from turnlog.core.json_values import JsonObject, JsonValue, sendable_json_text
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.core.messages import Media, Message, Text, Thinking

if TYPE_CHECKING:
    from turnlog.ports import TokenCounter


MESSAGE_OVERHEAD = 4
"""Tokens of a message besides its parts: its role and its delimiters."""
MAX_CALLS = 128
"""Calls in a message of OpenAI Chat (openai/openai-dotnet#317). A message with more is sent as several."""
WINDOW_OVERHEAD = 3
"""Tokens of a window besides its messages: the start of the answer (openai/openai-cookbook, How to count tokens)."""

IMAGE_BASE, IMAGE_TILE = 85, 170
IMAGE_UNKNOWN = IMAGE_BASE + 4 * IMAGE_TILE
"""An image of unknown size, such as one with only a URL, counts as 1024 x 1024 pixels."""
CLAUDE_PATCH, CLAUDE_SIDE, CLAUDE_TOKENS, CLAUDE_UNKNOWN = 28, 2_576, 4_784, 1_568
FILE_PAGE = 3_000
"""A page of a PDF, text and picture: 1,500 to 3,000 tokens (Anthropic, PDF support). A file of unknown size is one page."""
FILE_PAGE_BYTES = 100_000
TEXT_FILE_BYTES_PER_TOKEN = 3
AUDIO_TOKENS_PER_SECOND = 10
AUDIO_UNKNOWN = 60 * AUDIO_TOKENS_PER_SECOND
"""Audio of unknown length, such as audio with only a URL, counts as one minute."""
_BYTES_PER_SECOND, _PLAIN_BYTES_PER_SECOND = 16_000, 48_000
"""Bytes per second of compressed audio (128 kbit/s), and of WAV or PCM (16 bit, 24 kHz, one channel)."""
VIDEO_TOKENS_PER_SECOND, _VIDEO_BYTES_PER_SECOND = 288, 62_500
"""A video of Bedrock (https://docs.aws.amazon.com/nova/latest/userguide/modalities-video.html), as compressed to 500 kbit/s."""

_LONGEST_TOKENISED = 256
_BASE64 = re.compile(r"[A-Za-z0-9+/_\-\r\n]+={0,2}[\r\n]{0,2}", re.ASCII)
_DATA_URL = re.compile(r"data:(?P<type>[\w.+-]+/[\w.+-]+)?[^,]{0,200};base64,", re.ASCII)
_TEXT_TYPES = re.compile(r"text/|application/(?:.*\+)?(?:json|xml|yaml|csv)", re.ASCII)
_NO_BASE64 = re.compile(r"[^A-Za-z0-9+/]+", re.ASCII)
_SIGNATURES = {b"\x89PNG\r\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
_HEADER_BYTES = (3_072, 196_608)
"""Bytes in which the size of an image is looked for; the second, longer try is for JPEGs that begin with a preview."""


def count_message(message: Message, counter: TokenCounter) -> int:
    """Return the tokens of a message.

    ``counter`` counts text, thinking, names, arguments and results. Media are counted by rule (`count_media`), blocks that only
    one format has as their compact JSON.
    """
    texts, tokens = [message.name], MESSAGE_OVERHEAD * (1 + max(0, len(message.tool_calls) - 1) // MAX_CALLS)
    for call in message.tool_calls:
        texts += [call.name, call.arguments]
    for result in message.tool_results:
        texts.append(result.name)
    for block in message.blocks:
        if isinstance(block, Text | Thinking):
            texts.append(block.text)
        elif isinstance(block, Media):
            texts.append(block.name or "")
            tokens += count_media(block)
        else:
            bare, media_tokens = _without_base64(block.value)
            texts.append(sendable_json_text(bare))
            tokens += media_tokens
    return tokens + sum([counter.count(text) for text in texts if text])


def count_head(text: str, limit: int, counter: TokenCounter) -> int:
    """Return the tokens of the first ``limit`` characters of ``text``."""
    return counter.count(text[:limit])


def count_tools(tools: Sequence[JsonObject], counter: TokenCounter) -> int:
    """Return the tokens of the tools' compact JSON, 0 when there are none."""
    return counter.count(sendable_json_text(list(tools))) if tools else 0


def count_media(media: Media) -> int:
    """Return the tokens of an image, a file or audio by rule, without its name.

    Image: OpenAI's rule (platform.openai.com/docs/guides/images-vision). 85 tokens, and unless ``detail`` is low 170 for each
    512 px tile, after scaling the image into 2048 x 2048 and then to 768 on the shortest side. The size is read from the
    header of PNG, JPEG, GIF or WebP data; without one it is `IMAGE_UNKNOWN`.
    File: text by `TEXT_FILE_BYTES_PER_TOKEN`; others (PDF) `FILE_PAGE` for each `FILE_PAGE_BYTES` begun.
    Audio: `AUDIO_TOKENS_PER_SECOND`, with the length estimated from the number of bytes; what has an id, which may be sent in
    place of the bytes, at least `AUDIO_UNKNOWN`.
    """
    data, media_type = _data_of(media)
    if media.kind == "image":
        return _count_image(data, media.detail)
    size_bytes = len(data) * 3 // 4 if data else 0
    if media.kind == "audio":
        rate = _PLAIN_BYTES_PER_SECOND if re.search("wav|pcm", media_type) else _BYTES_PER_SECOND
        least = 0 if size_bytes and not media.file_id else AUDIO_UNKNOWN
        return max(least, math.ceil(size_bytes * AUDIO_TOKENS_PER_SECOND / rate))
    if size_bytes and _TEXT_TYPES.match(media_type):
        return math.ceil(size_bytes / TEXT_FILE_BYTES_PER_TOKEN)
    return FILE_PAGE * max(1, math.ceil(size_bytes / FILE_PAGE_BYTES))


def _data_of(media: Media) -> tuple[str | None, str]:
    """Return the base64 of media, also that of a data URL, and its type."""
    if not media.data and media.url and (match := _DATA_URL.match(media.url)):
        return media.url[match.end() :], match["type"] or media.media_type or ""
    return media.data, media.media_type or ""


def count_image_of_claude(media: Media) -> int:
    """Return the most tokens of an image for Claude: one for each patch of 28 x 28 pixels.

    The image is first scaled to 2,576 pixels and 4,784 tokens (https://platform.claude.com/docs/en/build-with-claude/vision);
    models before 4.7 scale it to 1,568 of each, which an image of unknown size counts as.
    """
    data, _ = _data_of(media)
    size = image_size(data) if data else None
    if size is None:
        return CLAUDE_UNKNOWN
    scale = min(1.0, CLAUDE_SIDE / max(size))
    width, height = (math.ceil(round(side * scale, 3) / CLAUDE_PATCH) for side in size)
    return min(CLAUDE_TOKENS, width * height)


def image_size(data: str) -> tuple[int, int] | None:
    """Return width and height in pixels from the header of a base64 PNG, JPEG, GIF or WebP; None when it has none."""
    for limit in _HEADER_BYTES:
        size = _size_in(_decode_head(data, limit))
        if size or len(data) * 3 // 4 <= limit:
            break
    return size if size and min(size) > 0 else None


def image_type(data: str) -> str | None:
    """Return the media type of a base64 PNG, JPEG, GIF or WebP by its first bytes; None for all else."""
    head = _decode_head(data, 16) if _BASE64.fullmatch(data) else b""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for signature, kind in _SIGNATURES.items() if head.startswith(signature)), None)


def _without_base64(value: JsonValue) -> tuple[JsonValue, int]:
    """Return the value without its base64 strings, and the tokens of the images, sounds and videos in it."""
    if isinstance(value, str):
        url = _DATA_URL.match(value)
        data = value[url.end() :] if url else value
        if not url and (len(value) <= _LONGEST_TOKENISED or not _BASE64.fullmatch(value)):
            return value, 0
        return value[: url.end()] if url else "", _count_image(data, None) if image_size(data) else 0
    if isinstance(value, list):
        items = [_without_base64(item) for item in value]
        return [item for item, _ in items], sum(tokens for _, tokens in items)
    if isinstance(value, dict):
        members = {key: _without_base64(member) for key, member in value.items()}
        tokens = sum(tokens for _, tokens in members.values()) + _count_recordings(value)
        return {key: member for key, (member, _) in members.items()}, tokens
    return value, 0


def _count_recordings(block: JsonObject) -> int:
    """Return the tokens of the sound and the video in a block of Bedrock. One in S3 counts as a minute."""
    tokens = 0
    for kind, per_second, bytes_per_second in (
        ("audio", AUDIO_TOKENS_PER_SECOND, _BYTES_PER_SECOND),
        ("video", VIDEO_TOKENS_PER_SECOND, _VIDEO_BYTES_PER_SECOND),
    ):
        recording = block.get(kind)
        source = recording.get("source") if isinstance(recording, dict) else None
        if isinstance(source, dict):
            data = source.get("bytes")
            seconds = len(data) * 3 / 4 / bytes_per_second if isinstance(data, str) else 60
            tokens += math.ceil(seconds * per_second)
    return tokens


def _count_image(data: str | None, detail: str | None) -> int:
    if detail == "low":
        return IMAGE_BASE
    size = image_size(data) if data else None
    if size is None:
        return IMAGE_UNKNOWN
    scale = min(1.0, 2048 / max(size))
    scale = min(scale, 768 / min(size))
    # Rounded, so that 768.0000001 pixels are not two tiles.
    tiles = [math.ceil(round(side * scale, 3) / 512) for side in size]
    return IMAGE_BASE + IMAGE_TILE * tiles[0] * tiles[1]


def _decode_head(data: str, limit: int) -> bytes:
    """Decode up to ``limit`` bytes of base64 of either alphabet; line breaks are allowed. Returns no bytes when it cannot."""
    head = _NO_BASE64.sub("", data[: limit * 4 // 3].replace("-", "+").replace("_", "/"))
    try:
        return binascii.a2b_base64(head[: len(head) // 4 * 4])
    except binascii.Error:
        return b""


def _size_in(head: bytes) -> tuple[int, int] | None:
    if head.startswith(b"\x89PNG\r\n\x1a\n") and len(head) >= 24:
        return int.from_bytes(head[16:20]), int.from_bytes(head[20:24])
    if head[:6] in (b"GIF87a", b"GIF89a") and len(head) >= 10:
        return int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little")
    if head.startswith(b"\xff\xd8"):
        return _jpeg_size(head)
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP" and len(head) >= 30:
        return _webp_size(head)
    return None


def _jpeg_size(head: bytes) -> tuple[int, int] | None:
    """Read the size from the frame header of a JPEG, to which its segments lead (ITU T.81, B.2.2)."""
    position = 2
    while position + 9 <= len(head) and head[position] == 0xFF:
        marker = head[position + 1]
        if marker == 0xFF:
            position += 1
        elif marker == 0x01 or 0xD0 <= marker <= 0xD8:
            position += 2
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(head[position + 7 : position + 9]), int.from_bytes(head[position + 5 : position + 7])
        else:
            position += 2 + int.from_bytes(head[position + 2 : position + 4])
    return None


def _webp_size(head: bytes) -> tuple[int, int] | None:
    """Read the size from one of the three kinds of WebP (RFC 9649, 2.5 to 2.7)."""
    kind = head[12:16]
    if kind == b"VP8X":
        return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
    if kind == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 ":
        return int.from_bytes(head[26:28], "little") & 0x3FFF, int.from_bytes(head[28:30], "little") & 0x3FFF
    return None


MAX_RATIOS = 5
MIN_RATIOS = 3
"""Ratios that are needed before the factor changes: the median of three ignores one outlier."""
STEP_PERCENT = 5
FALL_PERCENT = 15
MIN_PERCENT, MAX_PERCENT = 100, 300
"""Bounds of the factor. Below 1, after cheap images for example, a window of text would have more tokens than its budget."""
MIN_WINDOW_TOKENS = 256
"""Smaller windows are ignored: the tokens that a provider adds to every call would distort the ratio."""
_PLAUSIBLE = range(20, 501)


@lazy_dataclass(frozen=True, slots=True)
class Calibration:
    """The current factor and the ratios it follows.

    ``percent`` is the factor in hundredths. ``ratios`` are the last five, in hundredths, rounded up, oldest first.
    """

    percent: int = 100
    ratios: tuple[int, ...] = ()

    def after(self, ratio: int | None, *, opens_loop: bool) -> Calibration:
        """Return the calibration after one more commit.

        ``ratio`` is the ratio that the commit reports, or None. ``opens_loop`` says whether the commit opens a run loop.
        """
        ratios = (*self.ratios, ratio)[-MAX_RATIOS:] if ratio is not None else self.ratios
        if len(ratios) < MIN_RATIOS:
            return self if ratio is None else Calibration(self.percent, ratios)
        median = sorted(ratios)[len(ratios) // 2]
        step = -(-min(max(median, MIN_PERCENT), MAX_PERCENT) // STEP_PERCENT) * STEP_PERCENT
        is_moved = step > self.percent or (opens_loop and step <= self.percent - FALL_PERCENT)
        return Calibration(step if is_moved else self.percent, ratios)

    @property
    def factor(self) -> float:
        return self.percent / 100

    def encode(self) -> str:
        return "" if self.percent == 100 and not self.ratios else " ".join(map(str, (self.percent, *self.ratios)))

    @classmethod
    def decode(cls, text: str) -> Calibration:
        percent, *ratios = (int(number) for number in text.split(" "))
        return cls(max(percent, MIN_PERCENT), tuple(ratios))  # before renderer version 30 the factor could be below 1


def ratio_of(counted: int, ours: int) -> int | None:
    """Return ``counted`` (the provider's tokens) over ``ours`` in hundredths, rounded up.

    Returns None for a window of fewer than `MIN_WINDOW_TOKENS` tokens. Raises `ValueError` for counts of 0 and for an
    implausible ratio.
    """
    if counted <= 0 or ours <= 0:
        raise ValueError("a count of 0")
    if ours < MIN_WINDOW_TOKENS:
        return None
    ratio = -(-counted * 100 // ours)
    if ratio not in _PLAUSIBLE:
        raise ValueError("an implausible ratio of token counts")
    return ratio
