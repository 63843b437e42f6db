"""Texts whose tokens are bounded."""

from __future__ import annotations

import gc
import importlib.util
import json
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from string import ascii_letters, digits, punctuation
from types import ModuleType

import tiktoken
from hypothesis import strategies as st

import turnlog_vocabulary as vocabulary
from turnlog.core import token_bounds

CONVERSATIONS = Path(__file__).parents[3] / "shared" / "data"


@cache
def ranks() -> dict[bytes, int]:
    return vocabulary.mergeable_ranks()


@cache
def encoding() -> tiktoken.Encoding:
    return tiktoken.Encoding(
        vocabulary.NAME,
        pat_str=vocabulary.PATTERN,
        mergeable_ranks=ranks(),
        special_tokens=vocabulary.SPECIAL_TOKENS,
    )


def encode_piece(piece: bytes) -> list[int]:
    """Return the tokens of one piece, which may end within a character. tiktoken has no public name for that."""
    result: list[int] = encoding()._encode_single_piece(piece)
    return result


def count(text: str) -> int:
    return len(encoding().encode_ordinary(text))


NASTY = [
    "'",
    "'s",
    "'ll",
    "lL",
    "rE",
    "vE",
    "RE",
    "REx",
    "I'",
    " I'",
    "t",
    "i",
    "pp",
    "\n",
    "\r",
    "\r\n",
    " ",
    "  ",
    "\t",
]


PIECES = sorted(token_bounds.PIECE_BOUNDS.keys())


HAN = "".join(map(chr, range(0x4E00, 0x9FFF)))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(ascii_letters + "_", max_size=12), inner, max_size=5)
    ),
    max_leaves=20,
)


TEXTS = {
    "any text": st.text(st.characters(), max_size=200),
    "surrogates": st.text(st.characters(min_codepoint=0xD700, max_codepoint=0xE100), max_size=30),
    "ids": st.text(ascii_letters + digits + "-_.:/@#", max_size=120),
    "letters": st.text(ascii_letters, max_size=80),
    "signs": st.text(punctuation + " \n\t", max_size=80),
    "white space": st.text(" \n\t\r\x0b\u3000/", max_size=200),
    "JSON": VALUES.map(lambda value: json.dumps(value, ensure_ascii=False)),
    "indented JSON": VALUES.map(lambda value: json.dumps(value, indent=2)),
    "Chinese": st.text(HAN + "，。！？、 ", max_size=80),
    "Japanese and Korean": st.text(
        HAN[:500] + "".join(map(chr, [*range(0x3041, 0x30FF), *range(0xAC00, 0xD7A4)])) + " "
    ),
    "emoji": st.text("".join(map(chr, range(0x1F300, 0x1F700))) + "\u200d\ufe0f\U0001f3fd ab", max_size=40),
    "tabled pieces": st.lists(st.sampled_from(PIECES), max_size=20).map("".join),
    "nasty": st.lists(st.sampled_from([*NASTY, *PIECES[::40]]), max_size=14).map("".join),
    "repeated": st.lists(st.tuples(st.sampled_from(NASTY), st.integers(1, 200)), max_size=4).map(
        lambda runs: "".join(part * times for part, times in runs)
    ),
    "tokens": st.lists(st.integers(0, 199_997), max_size=12).map(lambda item: encoding().decode(item)),
}


PROSE = (
    "Please return the shoes that you bought last week, and we will send you a new pair by Friday. If the store has no "
    "black ones in your size, call us at any time: the next order is on us."
)


OBJECT = (
    '{"order_id":"#W2378156","status":"delivered","items":[{"name":"T-Shirt","item_id":"9523456873","price":46.66}]}'
)


def load_conversations() -> ModuleType:
    spec = importlib.util.spec_from_file_location("conversations", CONVERSATIONS / "load.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def real_texts() -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the loader leaves its files to the garbage collector
        sessions = list(load_conversations().iter_sessions("dev"))
        gc.collect()
    for session in sessions:
        for message in session["messages"]:
            parts = message["content"] if isinstance(message["content"], list) else [{"text": message["content"]}]
            yield from (part["text"] for part in parts if part.get("text"))
            for call in message.get("tool_calls") or []:
                yield f"{call['function']['name']}({call['function']['arguments']})"
