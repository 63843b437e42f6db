"""The token vocabulary o200k_base, shipped with us: a look-up at run time fails in a network without a way out.

`mergeable_ranks`, `PATTERN` and `SPECIAL_TOKENS` are what ``tiktoken.Encoding`` takes. The data is openai/tiktoken's
(MIT: see ``NOTICE`` and openai/tiktoken#92), made compact by ``tools/make_vocabulary.py``; `expand` gives the official
file back. Importing this package reads nothing; `mergeable_ranks` takes some 60 ms.
"""

from __future__ import annotations

import zlib
from base64 import b64encode
from importlib import resources

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


def mergeable_ranks() -> dict[bytes, int]:
    """The 199,998 tokens, each with its rank, in order of rank: a new dictionary with each call."""
    tokens = unpack(resources.files(__name__).joinpath(DATA_FILE).read_bytes())
    return dict(zip(tokens, range(len(tokens)), strict=True))


def expand() -> bytes:
    """The official file, byte by byte: a line per token, its base64 and its rank. Its hash is `SHA256`."""
    return b"".join(b"%b %d\n" % (b64encode(token), rank) for token, rank in mergeable_ranks().items())


def pack(tokens: list[bytes]) -> bytes:
    """The compact form of all tokens in order of rank.

    The first 256 are the single bytes; the byte that no other token holds stands between the others. Deflate, not LZMA:
    0.95 MB read in 10 ms against 0.75 MB in 43, and it is read while a Lambda starts. Raises ValueError for a
    vocabulary of another kind.
    """
    single, others = tokens[:_SINGLE_BYTES], tokens[_SINGLE_BYTES:]
    if {len(token) for token in single} != {1} or any(_SEPARATOR in token for token in others):
        raise ValueError("the vocabulary does not begin with all single bytes, or a token holds the separator")
    return zlib.compress(b"".join(single) + _SEPARATOR.join(others), 9)


def unpack(data: bytes) -> list[bytes]:
    """The tokens that `pack` was given. Raises ``zlib.error`` for damaged data."""
    plain = zlib.decompress(data)
    return [plain[index : index + 1] for index in range(_SINGLE_BYTES)] + plain[_SINGLE_BYTES:].split(_SEPARATOR)
