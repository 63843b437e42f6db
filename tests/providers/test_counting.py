"""Tokens of messages, media and tools, by rule. The counter counts characters here, so that the sums can be read."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Callable
from functools import partial

import pytest

from turnlog.core.json_values import JsonValue
from turnlog.core.messages import Block, Media, Message, Opaque, Text, Thinking, ToolCall, ToolResult
from turnlog.providers import token_rules as counting
from turnlog.providers.token_rules import count_head, count_media, count_message, count_tools, image_size


class Characters:
    name = "characters"

    def __init__(self) -> None:
        self.seen: list[str] = []

    def count(self, text: str) -> int:
        self.seen.append(text)
        return len(text)


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def png(width: int, height: int) -> str:
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return base64_of(b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header)))


def gif(width: int, height: int) -> str:
    return base64_of(b"GIF89a" + struct.pack("<HH", width, height) + bytes(20))


def jpeg(width: int, height: int, *, preview_bytes: int = 0, marker: int = 0xC2, before: bytes = b"") -> str:
    segments = before + b"\xff\xe0" + struct.pack(">H", 16) + bytes(14)
    while preview_bytes > 0:
        length = min(preview_bytes, 60_000)
        segments += b"\xff\xe1" + struct.pack(">H", length + 2) + bytes(length)
        preview_bytes -= length
    frame = bytes([0xFF, marker]) + struct.pack(">HBHHB", 17, 8, height, width, 3) + bytes(9)
    return base64_of(b"\xff\xd8" + segments + b"\xff\xc4\x00\x04\x00\x00" + frame + bytes(50))


def webp(kind: str, width: int, height: int) -> str:
    body = {
        "VP8X": b"VP8X" + bytes(8) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little"),
        "VP8L": b"VP8L"
        + bytes(4)
        + b"\x2f"
        + ((width - 1) | (height - 1) << 14 | 1 << 28).to_bytes(4, "little")
        + bytes(9),
        "VP8 ": b"VP8 " + bytes(7) + b"\x9d\x01\x2a" + struct.pack("<HH", width | 1 << 14, height | 1 << 14),
    }[kind]
    return base64_of(b"RIFF" + bytes(4) + b"WEBP" + body)


def tokens(*content: Block) -> int:
    return count_message(Message("user", content), Characters()) - counting.MESSAGE_OVERHEAD


def test_a_message_is_its_parts_and_four() -> None:
    message = Message(
        "assistant",
        (Text("hello"), Thinking("hm", signature="c2lnbmF0dXJl")),
        (ToolCall("call_1", "search", '{"q":1}'), ToolCall("call_2", "get", "")),
        (ToolResult("call_0", (Text("four"), Text("two")), name="old"),),
        name="ann",
    )
    assert count_message(message, Characters()) == 5 + 2 + 6 + 7 + 3 + 0 + 4 + 3 + 3 + 3 + 4
    assert count_message(Message("user"), Characters()) == counting.MESSAGE_OVERHEAD == 4
    assert counting.WINDOW_OVERHEAD == 3


def test_an_opaque_block_is_its_compact_json() -> None:
    assert tokens(Opaque("x", {"type": "odd", "n": [1, None]})) == len('{"type":"odd","n":[1,null]}')
    assert tokens(Opaque("x", "\ud83d")) == len('"\ufffd"'), "as it is sent"


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ({"data": "QUJD" * 1000, "id": "a"}, '{"data":"","id":"a"}'),
        ({"data": "QUJD" * 1000 + "QQ==\n"}, '{"data":""}'),
        ([{"deep": "_-ab" * 100}], '[{"deep":""}]'),
        ({"url": "data:audio/mp3;base64,QUJD"}, '{"url":"data:audio/mp3;base64,"}'),
        ({"long": "A" * 257}, '{"long":""}'),
        ({"short": "QUJD" * 64}, '{"short":"' + "QUJD" * 64 + '"}'),
        ({"text": "two words " * 100}, '{"text":"' + "two words " * 100 + '"}'),
    ],
)
def test_base64_in_an_opaque_block_is_not_tokenised(value: JsonValue, kept: str) -> None:
    counter = Characters()
    count_message(Message("user", (Opaque("x", value),)), counter)
    assert counter.seen == [kept]


@pytest.mark.parametrize(
    ("kind", "source", "count"),
    [
        ("audio", {"bytes": base64_of(bytes(48_000))}, 30),
        ("audio", {"s3Location": {"uri": "s3://bucket/a.mp3"}}, 600),
        ("video", {"bytes": base64_of(bytes(93_750))}, 432),
        ("video", {"s3Location": {"uri": "s3://bucket/a.mp4"}}, 17_280),
    ],
)
def test_a_sound_or_a_video_of_bedrock_counts_by_its_length(
    kind: str, source: dict[str, JsonValue], count: int
) -> None:
    bare = len(json.dumps({kind: {"source": source | ({"bytes": ""} if "bytes" in source else {})}}).replace(" ", ""))
    assert tokens(Opaque("bedrock_converse", {kind: {"source": source}})) == bare + count


def test_an_image_in_an_opaque_block_counts_as_an_image() -> None:
    image = png(512, 512) + "A" * 300
    assert tokens(Opaque("x", {"d": image})) == len('{"d":""}') + 255
    assert tokens(Opaque("x", [f"data:image/png;base64,{image}"])) == len('["data:image/png;base64,"]') + 255


SIZED = [png, gif, jpeg, *(partial(webp, kind) for kind in ("VP8X", "VP8L", "VP8 "))]


@pytest.mark.parametrize("picture", SIZED)
@pytest.mark.parametrize("size", [(1, 1), (640, 480), (481, 16_000)])
def test_the_size_is_read_from_the_header(picture: Callable[[int, int], str], size: tuple[int, int]) -> None:
    assert image_size(picture(*size)) == size


@pytest.mark.parametrize("marker", [0xC0, 0xC1, 0xC3, 0xC5, 0xC9, 0xCD, 0xCF])
@pytest.mark.parametrize(
    "before",
    [
        b"\xff",
        b"\xff\x01",
        b"\xff\xd0",
        b"\xff\xd8",
        *(bytes([0xFF, table, 0, 2]) for table in (0xC4, 0xC8, 0xCC, 0xD9)),
    ],
)
def test_the_size_of_a_jpeg_is_in_its_first_frame(marker: int, before: bytes) -> None:
    assert image_size(jpeg(800, 600, marker=marker, before=before)) == (800, 600)


@pytest.mark.parametrize(
    ("picture", "length"),
    [
        (png, 24),
        (partial(jpeg, before=b"\xff"), 36),
        *((partial(webp, kind), 30) for kind in ("VP8X", "VP8L", "VP8 ")),
    ],
)
def test_a_header_is_enough_and_less_is_not(picture: Callable[[int, int], str], length: int) -> None:
    header = base64.b64decode(picture(640, 480))
    assert image_size(base64_of(header[:length])) == (640, 480)
    assert image_size(base64_of(header[: length - 3])) is None


def test_a_jpeg_with_a_preview_in_front_has_a_size() -> None:
    assert image_size(jpeg(800, 600, preview_bytes=2_000)) == (800, 600)
    assert image_size(jpeg(800, 600, preview_bytes=100_000)) == (800, 600)


@pytest.mark.parametrize(
    "data",
    [
        "",
        "A",
        "not base64 at all!",
        "QUJD" * 100,
        png(0, 5),
        png(5, 5)[:20],
        jpeg(9, 9)[:12],
        base64_of(b"\xff\xd8\xff"),
        "é",
    ],
)
def test_what_has_no_size_is_unknown(data: str) -> None:
    assert image_size(data) is None
    assert count_media(Media("image", data=data)) == counting.IMAGE_UNKNOWN == 765


def test_both_alphabets_and_line_breaks_are_read() -> None:
    plain = png(1 << 20, 0xFBFF)
    url_safe = plain.replace("+", "-").replace("/", "_")
    assert image_size(url_safe) == image_size("\n".join(plain[i : i + 7] for i in range(0, len(plain), 7)))
    assert image_size(url_safe) == (1 << 20, 0xFBFF)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((1024, 1024), 765),  # the provider's own example
        ((2048, 4096), 1105),  # the provider's own example
        ((512, 512), 255),
        ((513, 512), 425),
        ((1, 1), 255),
        ((768, 768), 765),
        ((10_000, 100), 765),
        ((8192, 8192), 765),
    ],
)
def test_images_by_tiles(size: tuple[int, int], expected: int) -> None:
    assert count_media(Media("image", data=png(*size))) == expected
    assert count_media(Media("image", url=f"data:image/png;base64,{png(*size)}")) == expected
    assert count_media(Media("image", data=png(*size), detail="low")) == 85


@pytest.mark.parametrize(
    ("media", "expected"),
    [
        (Media("image", url="https://example.com/a.png"), 765),
        (Media("image", file_id="file-1", detail="low"), 85),
        (Media("file", file_id="file-1"), 3000),
        (Media("file", media_type="application/pdf", data=base64_of(bytes(250_000))), 9000),
        (Media("file", media_type="text/csv", data=base64_of(bytes(3000))), 1000),
        (Media("file", media_type="text/csv", data="A" * 6), 2),
        (Media("file", media_type="application/pdf", data="A" * 133_334), 3000),
        (Media("file", media_type="application/pdf", data="A" * 133_335), 6000),
        (Media("audio", data="A" * 2), 1),
        (Media("file", url="data:text/plain;base64," + base64_of(bytes(300))), 100),
        (Media("audio", url="https://example.com/a.mp3"), 600),
        (Media("audio", media_type="audio/mp3", data=base64_of(bytes(48_000))), 30),
        (Media("audio", media_type="audio/wav", data=base64_of(bytes(48_000))), 10),
    ],
)
def test_media_by_rule(media: Media, expected: int) -> None:
    assert count_media(media) == expected


def test_media_count_their_name_and_are_never_given_to_the_counter() -> None:
    counter = Characters()
    count_message(Message("user", (Media("image", data=png(9, 9), name="a.png"), Media("file", data="QUJD"))), counter)
    assert counter.seen == ["a.png"]


def test_the_head_is_the_first_characters() -> None:
    assert count_head("abcdef", 4, Characters()) == 4
    assert count_head("ab", 500, Characters()) == 2
    assert count_head("", 500, Characters()) == 0


def test_tools_are_their_compact_json() -> None:
    assert count_tools([], Characters()) == 0
    assert count_tools([{"name": "f", "parameters": {"é": 1}}], Characters()) == len(
        '[{"name":"f","parameters":{"é":1}}]'
    )
