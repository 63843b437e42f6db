"""The token vocabulary o200k_base, shipped with us: a look-up at run time fails in a network without a way out.

`TokenTable` finds single tokens in the data file, without a dictionary. `mergeable_ranks`, `PATTERN` and `SPECIAL_TOKENS` are what
``tiktoken.Encoding`` takes. The data is openai/tiktoken's (MIT: see ``NOTICE`` and openai/tiktoken#92), laid out by
``tools/make_vocabulary.py``; `expand` gives the official file back. Importing this package reads nothing; `TokenTable` takes some
3 ms and 4 MB, `mergeable_ranks` some 40 ms.
"""

from __future__ import annotations

import sys
from array import array
from base64 import b64encode
from pkgutil import get_data
from zlib import crc32

NAME = "o200k_base"
SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
"""Of the official file ``o200k_base.tiktoken``, 3,613,922 bytes."""
DATA_FILE = "o200k_base.bin"

PATTERN = "|".join(
    [
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""\p{N}{1,3}""",
        r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""",
        r"""\s*[\r\n]+""",
        r"""\s+(?!\S)""",
        r"""\s+""",
    ]
)
"""Cuts text into the pieces that are encoded one by one (tiktoken_ext/openai_public.py). Syntax of Rust's regex."""
SPECIAL_TOKENS = {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}

_SINGLE_BYTES = 256
_SEPARATOR = b"\xff"
_SLOTS = 1 << 19
"""Slots of the hash table, four bytes each: 0 if empty, else a token's place in the file, and above it 11 bits of its CRC-32."""
_PLACE_BITS = 21
_PLACE = (1 << _PLACE_BITS) - 1
NO_TOKEN = 1 << 30
"""The place of bytes that are no token: behind all places."""


def mergeable_ranks() -> dict[bytes, int]:
    """Return a new dictionary of the 199,998 tokens, each with its rank, in order of rank."""
    tokens = unpack(_read())
    return dict(zip(tokens, range(len(tokens)), strict=True))


def expand() -> bytes:
    """Return the official file, byte by byte: a line per token, its base64 and its rank. Its hash is `SHA256`."""
    return b"".join(b"%b %d\n" % (b64encode(token), rank) for token, rank in mergeable_ranks().items())


def pack(tokens: list[bytes]) -> bytes:
    """Return the form of the data file: a hash table of tokens, then all tokens in order of rank.

    The first 256 tokens are the single bytes; the byte that no other token holds stands behind each of the others. The file is
    not compressed, since a process reads a few pages of it. Raises ValueError for a vocabulary of another kind.
    """
    single, others = tokens[:_SINGLE_BYTES], tokens[_SINGLE_BYTES:]
    if {len(token) for token in single} != {1} or any(_SEPARATOR in token for token in others):
        raise ValueError("the vocabulary does not begin with all single bytes, or a token holds the separator")
    slots, place = array("I", bytes(4 * _SLOTS)), _SINGLE_BYTES
    for token in others:
        hashed = crc32(token)
        slot = hashed % _SLOTS
        while slots[slot]:
            slot = (slot + 1) % _SLOTS
        slots[slot] = hashed >> _PLACE_BITS << _PLACE_BITS | place
        place += len(token) + 1
    if place > _PLACE:
        raise ValueError(f"the vocabulary has {place} bytes; at most {_PLACE} have a place")
    return b"".join((_little_endian(slots).tobytes(), *single, *(token + _SEPARATOR for token in others)))


def unpack(data: bytes) -> list[bytes]:
    """Return the tokens that `pack` was given."""
    plain = data[4 * _SLOTS :]
    return [plain[index : index + 1] for index in range(_SINGLE_BYTES)] + plain[_SINGLE_BYTES:-1].split(_SEPARATOR)


class TokenTable:
    """A look-up of tokens of two bytes or more, in half a microsecond each."""

    def __init__(self) -> None:
        data = _read()
        self._slots = _little_endian(array("I", data[: 4 * _SLOTS]))
        self._plain = data[4 * _SLOTS :]

    def place(self, token: bytes) -> int:
        """Return a number that is less for a token of lower rank; `NO_TOKEN` for bytes that are no token."""
        slots, starts_with = self._slots, self._plain.startswith
        hashed, key = crc32(token), token + _SEPARATOR
        slot, mark = hashed % _SLOTS, hashed >> _PLACE_BITS
        while entry := slots[slot]:
            if entry >> _PLACE_BITS == mark and starts_with(key, entry & _PLACE):
                return entry & _PLACE
            slot = (slot + 1) % _SLOTS
        return NO_TOKEN


def _read() -> bytes:
    data = get_data(__name__, DATA_FILE)
    if data is None:
        raise FileNotFoundError(f"{DATA_FILE} of {__name__} cannot be read by its loader")
    return data


def _little_endian(slots: array[int]) -> array[int]:
    if sys.byteorder == "big":
        slots.byteswap()
    return slots
