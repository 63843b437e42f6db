"""What segments take of the bytes that were said, by source, codec, and appends with or without idempotency keys.

    make bench-segments                                 # the project's own conversations
    make bench-segments ARGS='FOLDER --loader load.py'

All conversations of a source are appended to one session, a message each, one after the other, so that there are 256 of them;
each complete stretch is sealed and read back. Exit 1 when a segment of appends without keys is over the limit.
"""

from __future__ import annotations

import argparse
import bz2
import lzma
import random
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.replay.loading import load_transcripts
from turnlog.app import Application
from turnlog.cli.transcripts import Transcript
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Turnlog
from turnlog.core.errors import TurnlogError
from turnlog.core.identity import Owner
from turnlog.engines import Engine
from turnlog.engines.files import MemoryBlobStore
from turnlog.engines.sqlite import MEMORY, SqliteDatabase
from turnlog.engines.sqlite_tables import SqliteItemTable
from turnlog.log.keys import SessionKeys
from turnlog.settings import Settings
from turnlog.testing.fixed import FixedClock

SAMPLES = Path(__file__).parent.parent / "examples" / "conversations"
LIMIT = 0.4
KEY_BYTES = 32
"""A commit with an idempotency key carries the hashes of key and payload, which nothing makes smaller."""
_OWNER = Owner.of("acme", "ada")
_MOST_MESSAGES, _LONGEST_PAUSE = 1_540, 20.0
_CODECS: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    "zlib": (lambda data: zlib.compress(data, 9), zlib.decompress),
    "bzip2": (bz2.compress, bz2.decompress),
    "lzma": (lzma.compress, lzma.decompress),
}


@dataclass
class Codec:
    """What a codec makes of the lines of segments, and the CPU seconds that it takes."""

    given: int = 0
    packed: int = 0
    pack_seconds: float = 0.0
    unpack_seconds: float = 0.0

    def add(self, other: Codec) -> None:
        self.given, self.packed = self.given + other.given, self.packed + other.packed
        self.pack_seconds += other.pack_seconds
        self.unpack_seconds += other.unpack_seconds


@dataclass
class Row:
    """Sums over a source's segments. ``body_bytes`` is what was said; ``packed`` what the segments take, ``largest`` of the worst
    one; ``codecs`` what their lines alone take by codec; times in CPU seconds."""

    source: str
    segments: int = 0
    messages: int = 0
    commits: int = 0
    body_bytes: int = 0
    packed: int = 0
    largest: float = 0.0
    seal_seconds: float = 0.0
    read_seconds: float = 0.0
    codecs: dict[str, Codec] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        return self.packed / self.body_bytes


class _SeededIds:
    """`IdSource` with as much chance in its nonces as real ones have."""

    def __init__(self) -> None:
        self._random = random.Random(256)

    def new_id(self) -> str:
        return f"s{self._random.getrandbits(128):032x}"

    def nonce(self) -> bytes:
        return self._random.randbytes(8)

    def jitter(self) -> float:
        return self._random.random()


def measure(source: str, messages: Iterable[Any], *, keyed: bool, compare: bool = False) -> Row:
    """Measure one session of these messages, each an append of its own, sealed and read back. ``compare``: by other codecs too."""
    clock, pauses, row = FixedClock(), random.Random(20), Row(source)
    engine = Engine("memory", SqliteItemTable(SqliteDatabase(MEMORY)), MemoryBlobStore(), None, lambda: None)
    app = Application(engine, Settings(token_counter="estimate"), clock=clock, ids=_SeededIds())
    session = Turnlog(InProcessBackend(app, _OWNER)).sessions.create("s")
    for at, message in enumerate(messages):
        session.append(message, lenient=True, idempotency_key=f"append-{at}" if keyed else None)
        clock.advance(pauses.random() * _LONGEST_PAUSE)
    keys = SessionKeys(_OWNER, "s")
    begun = time.process_time()
    app.seal_session.run(_OWNER, "s", {})
    row.seal_seconds = time.process_time() - begun
    for segment in app.segments.list(keys):
        begun = time.process_time()
        commits = list(app.segments.commits(keys, segment))
        row.read_seconds += time.process_time() - begun
        lines = b"\n".join(line for sealed in commits for line in [*sealed.lines, *sealed.contents.values()])
        for name in _CODECS if compare else ():
            row.codecs.setdefault(name, Codec()).add(_tried(name, lines))
        row.segments += 1
        row.messages += segment.messages
        row.commits += len(commits)
        row.body_bytes += segment.body_bytes
        row.packed += segment.size_bytes
        row.largest = max(row.largest, segment.size_bytes / segment.body_bytes)
    return row


def _tried(name: str, lines: bytes) -> Codec:
    pack, unpack = _CODECS[name]
    begun = time.process_time()
    packed = pack(lines)
    packed_at = time.process_time()
    assert unpack(packed) == lines
    return Codec(len(lines), len(packed), packed_at - begun, time.process_time() - packed_at)


def by_source(transcripts: Iterable[Transcript], *, whole: bool = False) -> Iterator[tuple[str, list[Any]]]:
    """Yield the messages of each source, one conversation after the other; with ``whole`` all sources together."""
    values: dict[str, list[Any]] = {}
    for transcript in transcripts:
        values.setdefault("all" if whole else transcript.source, []).extend(transcript.messages)
    yield from ((source, messages[:_MOST_MESSAGES]) for source, messages in sorted(values.items()))


def show(pairs: Sequence[tuple[Row, Row]]) -> None:
    """Tables for docs/reference/benchmarks.md, from rows without and with keys."""
    print(
        "| source | segments | a body, bytes | segment | largest | with keys | by zlib | by lzma | seal, ms | read, ms |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    total = {name: Codec() for name in _CODECS}
    for plain, keyed in pairs:
        ours = plain.codecs["bzip2"].packed
        others = [(plain.packed - ours + plain.codecs[name].packed) / plain.body_bytes for name in ("zlib", "lzma")]
        times = [1000 * spent / plain.segments for spent in (plain.seal_seconds, plain.read_seconds)]
        cells = [plain.source, plain.segments, plain.body_bytes // plain.messages]
        cells += [f"{ratio:.1%}" for ratio in (plain.ratio, plain.largest, keyed.ratio, *others)]
        print("| " + " | ".join(map(str, [*cells, *(f"{spent:.0f}" for spent in times)])) + " |")
        for name, codec in plain.codecs.items():
            total[name].add(codec)
    print("\n| lines by | of their size | pack, MB/s | unpack, MB/s |")
    print("|---|---:|---:|---:|")
    for name, codec in total.items():
        speeds = [codec.given / 1e6 / max(spent, 1e-9) for spent in (codec.pack_seconds, codec.unpack_seconds)]
        print(f"| {name} | {codec.packed / codec.given:.1%} | {speeds[0]:.0f} | {speeds[1]:.0f} |")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.segments", description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, default=[SAMPLES], metavar="FILE_OR_FOLDER")
    parser.add_argument("--loader", type=Path, metavar="FILE.py", help="its iter_sessions(path) gives conversations")
    options = parser.parse_args(arguments)
    try:
        transcripts = load_transcripts(options.paths, options.loader)
    except TurnlogError as error:
        print(f"error: {error.detail}", file=sys.stderr)
        return 2
    pairs = list[tuple[Row, Row]]()
    for source, messages in by_source(transcripts, whole=options.paths == [SAMPLES]):
        plain = measure(source, messages, keyed=False, compare=True)
        if plain.segments:
            pairs.append((plain, measure(source, messages, keyed=True)))
        else:
            print(f"{source}: {len(messages)} messages are no segment", file=sys.stderr)
    if pairs:
        show(pairs)
    return 1 if any(plain.largest > LIMIT for plain, _ in pairs) else 0


if __name__ == "__main__":
    sys.exit(main())
