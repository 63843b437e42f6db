"""The shipped vocabulary is the official one."""

from __future__ import annotations

import hashlib
import importlib
import subprocess
import sys
from base64 import b64decode

import pytest
import tiktoken

import turnlog_vocabulary as vocabulary

SAMPLES = [
    "",
    "Hello, world! It's 2024 and I'm counting 1234567 tokens.",
    '{"order_id":"#W2378156","items":[{"name":"T-Shirt","price":46.66}]}',
    "你好，我想预订一间酒店的房间。明天早上八点。",
    "안녕하세요. 오늘 날씨가 정말 좋네요.",
    "これは日本語の文章です。カタカナもあります。",
    "Le café déjà vu, où êtes-vous ?",
    "नमस्ते दुनिया, यह एक परीक्षण है।",
    "Привет, мир! مرحبا بالعالم שלום עולם ภาษาไทย",
    "👩‍👩‍👧‍👦 🇫🇷 👍🏽 ☃️",
    "def f(x):\n\treturn x  # comment\r\n\r\n    \n",
    "<|endoftext|>",
    "\x00\x1b[31mred\x1b[0m",
    "\ud83d",
]


@pytest.fixture(scope="module")
def ranks() -> dict[bytes, int]:
    return vocabulary.mergeable_ranks()


def test_expands_to_the_official_file() -> None:
    official = vocabulary.expand()
    assert len(official) == 3_613_922
    assert hashlib.sha256(official).hexdigest() == vocabulary.SHA256


def test_ranks_are_complete_and_without_gaps(ranks: dict[bytes, int]) -> None:
    assert list(ranks.values()) == list(range(199_998))
    assert all(bytes([byte]) in ranks for byte in range(256))


def test_packing_refuses_what_it_could_not_unpack(ranks: dict[bytes, int]) -> None:
    tokens = list(ranks)
    assert vocabulary.unpack(vocabulary.pack(tokens)) == tokens
    with pytest.raises(ValueError, match="separator"):
        vocabulary.pack([*tokens, b"a\xffb"])
    with pytest.raises(ValueError, match="single bytes"):
        vocabulary.pack(tokens[1:])


def test_counts_equal_tiktokens_own(ranks: dict[bytes, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """tiktoken's definition of the encoding, with the ranks read from the expanded file by its own rules."""
    openai_public = importlib.import_module("tiktoken_ext.openai_public")
    lines = (line.split() for line in vocabulary.expand().splitlines())
    official = {b64decode(token): int(rank) for token, rank in lines}
    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", lambda *_args, **_keywords: official)
    definition = openai_public.o200k_base()
    assert (definition["name"], definition["pat_str"]) == (vocabulary.NAME, vocabulary.PATTERN)
    assert definition["special_tokens"] == vocabulary.SPECIAL_TOKENS
    theirs = tiktoken.Encoding(**definition)
    ours = tiktoken.Encoding(
        vocabulary.NAME,
        pat_str=vocabulary.PATTERN,
        mergeable_ranks=ranks,
        special_tokens=vocabulary.SPECIAL_TOKENS,
    )
    for sample in SAMPLES:
        assert ours.encode_ordinary(sample) == theirs.encode_ordinary(sample)


def test_importing_reads_and_loads_nothing() -> None:
    code = "import sys, turnlog_vocabulary; print(sorted({'tiktoken', 'regex', 'pydantic'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
