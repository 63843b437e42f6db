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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnlog.adapters.embedded.files import MemoryBlobStore
from turnlog.adapters.embedded.sqlite import MEMORY, SqliteDatabase, SqliteItemTable
from turnlog.bootstrap import Application, Engine
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Turnlog
from turnlog.domain.errors import TurnlogError
from turnlog.domain.identity import Owner
from turnlog.local.transcripts import Transcript, read_transcripts
from turnlog.log.keys import SessionKeys
from turnlog.settings import Settings
from turnlog.testing.fixed import FixedClock

SAMPLES = Path(__file__).parent.parent / "examples" / "conversations"
LIMIT = 0.4
KEY_BYTES = 32
"""A commit with an idempotency key carries the hashes of key and payload, which nothing makes smaller."""
_OWNER = Owner.of("acme", "ada")
_MOST_MESSAGES, _LONGEST_PAUSE = 1_540, 20.0
_CODECS: dict[str, Callable[[bytes], bytes]] = {
    "zlib": lambda data: zlib.compress(data, 9),
    "bzip2": bz2.compress,
    "lzma": lzma.compress,
}


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
    codecs: dict[str, int] = field(default_factory=dict)

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
    """One session of these messages, each an append of its own, sealed and read back. ``compare``: by other codecs too."""
    clock, pauses, row = FixedClock(), random.Random(20), Row(source)
    engine = Engine("memory", SqliteItemTable(SqliteDatabase(MEMORY)), MemoryBlobStore(), None, lambda: None)
    app = Application(engine, Settings(token_counter="estimate"), clock=clock, ids=_SeededIds())  # noqa: S106
    session = Turnlog(InProcessBackend(app, _OWNER)).sessions.create("s")
    for at, message in enumerate(messages):
        session.append(message, key=f"append-{at}" if keyed else None)
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
        for name, compress in _CODECS.items() if compare else ():
            row.codecs[name] = row.codecs.get(name, 0) + len(compress(lines))
        row.segments += 1
        row.messages += segment.messages
        row.commits += len(commits)
        row.body_bytes += segment.body_bytes
        row.packed += segment.size_bytes
        row.largest = max(row.largest, segment.size_bytes / segment.body_bytes)
    return row


def by_source(transcripts: Iterable[Transcript], *, whole: bool = False) -> Iterator[tuple[str, list[Any]]]:
    """The messages of each source, one conversation after the other; with ``whole`` all sources together."""
    found: dict[str, list[Any]] = {}
    for one in transcripts:
        found.setdefault("all" if whole else one.source, []).extend(one.messages)
    yield from ((source, messages[:_MOST_MESSAGES]) for source, messages in sorted(found.items()))


def show(pairs: Iterable[tuple[Row, Row]]) -> None:
    """A table for docs/benchmarks.md, from rows without and with keys."""
    print(
        "| source | segments | body, bytes | segment | largest | with keys | lines: zlib | bzip2 | lzma | seal, ms | read, ms |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for plain, keyed in pairs:
        codecs = " | ".join(f"{plain.codecs[name] / plain.body_bytes:.1%}" for name in _CODECS)
        times = " | ".join(f"{1000 * spent / plain.segments:.0f}" for spent in (plain.seal_seconds, plain.read_seconds))
        mean = plain.body_bytes // plain.messages
        print(
            f"| {plain.source} | {plain.segments} | {mean} | {plain.ratio:.1%} | {plain.largest:.1%} | {keyed.ratio:.1%} "
            f"| {codecs} | {times} |"
        )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.segments", description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, default=[SAMPLES], metavar="FILE_OR_FOLDER")
    parser.add_argument("--loader", type=Path, metavar="FILE.py", help="its iter_sessions(path) gives conversations")
    options = parser.parse_args(arguments)
    try:
        transcripts = read_transcripts(options.paths, loader=options.loader)
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
    show(pairs)
    return 1 if any(plain.largest > LIMIT for plain, _ in pairs) else 0


if __name__ == "__main__":
    sys.exit(main())
