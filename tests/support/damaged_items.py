"""A session with every kind of item, and its readers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

import turnlog.search.over_sessions  # noqa: F401 - keeps the length of a stretch, which tests make FEW later
from tests.conftest import Harness
from tests.log.everything import items_of
from tests.support.segments import noise
from tests.support.talks import turn
from turnlog.client.model import Turnlog
from turnlog.core.errors import CorruptError
from turnlog.log.commit import VERIFIED
from turnlog.ports import Key, Page, Query

FEW = 16


READERS: dict[str, Callable[[Turnlog], Any]] = {
    "info": lambda log: log.sessions.get("s").info().model_dump(exclude={"status"}),
    "messages": lambda log: [message.model_dump() for message in log.sessions.get("s").messages()],
    "in view": lambda log: [message.position for message in log.sessions.get("s").messages(in_view=True)],
    "window": lambda log: log.sessions.get("s").context(budget=20_000).messages,
    "whole window": lambda log: log.sessions.get("s").context(budget=10**6, policy="full").messages,
    "loops": lambda log: [loop.model_dump() for loop in log.sessions.get("s").loops()],
    "state": lambda log: log.sessions.get("s").state().state,
    "replay": lambda log: log.sessions.get("s").replay().state,
    "history": lambda log: [item.model_dump() for item in log.sessions.get("s").history()],
    "summary": lambda log: getattr(log.sessions.get("s").summary(), "text", None),
    "search": lambda log: [result.model_dump() for result in log.sessions.get("s").search("order late parcel").results],
    "search of all": lambda log: [result.model_dump() for result in log.search("order late parcel").results],
    "snapshots": lambda log: [snapshot.model_dump() for snapshot in log.sessions.get("s").snapshots()],
    "snapshot": lambda log: log.sessions.get("s").snapshot("whole").content.model_dump(),
    "documents": lambda log: [(item.key, item.data) for item in log.sessions.get("s").documents.list()],
    "document": lambda log: getattr(log.sessions.get("s").documents.get("large"), "data", None),
    "list": lambda log: [item.model_dump() for item in log.sessions.list()],
    "jobs": lambda log: [job.model_dump() for job in log.jobs()],
    "fork": lambda log: [message.model_dump() for message in log.sessions.get("fork").messages()],
}


@dataclass
class Built:
    """A session with every kind of item, all that is stored of it, and what its readers say.

    ``read`` holds the items that a reader reads when nothing is damaged.
    """

    harness: Harness
    items: list[dict[str, Any]]
    blobs: dict[str, bytes]
    said: dict[str, Any]
    read: dict[str, set[Key]] = field(default_factory=dict)

    def restore(self) -> None:
        """Write what has changed since `note` as it was."""
        table, stored = self.harness.app.engine.items, by_key(items_of(self.harness))
        whole = by_key(self.items)
        table.delete_many([key for key in stored if key not in whole])
        table.write_many([item for key, item in whole.items() if stored.get(key) != item])
        VERIFIED.clear()

    def note(self) -> None:
        """Keep what readers say and read, and what is stored, after a first time that makes caches."""
        for read in READERS.values():
            read(self.harness.log())
        for reader, read in READERS.items():
            VERIFIED.clear()
            with watched(self.harness.app.engine.items) as keys:
                self.said[reader] = read(self.harness.log())
            self.read[reader] = keys
        self.items = items_of(self.harness)

    def wrong_about(self, damaged: Mapping[str, Any], *names: str) -> list[str]:
        """Return what readers say wrong after this damage. Others than those who read the item are asked if these have written."""
        key = Key(damaged["pk"], damaged["sk"])
        touched = [reader for reader in READERS if key in self.read[reader]]
        wrong = list(self.wrong(*names, readers=touched))
        stored = by_key(items_of(self.harness))
        if stored != by_key(self.items) | {key: dict(damaged)}:
            wrong += self.wrong(*names, readers=[reader for reader in READERS if reader not in touched])
        return wrong

    def wrong(self, *names: str, readers: Iterable[str] = READERS) -> Iterator[str]:
        """What readers say that is neither what they said before nor an error that names one of the items or blobs."""
        log = self.harness.log()
        for reader in readers:
            VERIFIED.clear()
            try:
                if READERS[reader](log) != self.said[reader]:
                    yield f"{reader} says something else"
            except CorruptError as error:
                if not any(error.item in name or name in error.item for name in names):
                    yield f"{reader}: {error}"
            except Exception as error:
                yield f"{reader} raised {type(error).__name__}: {error}"


def by_key(items: Iterable[dict[str, Any]]) -> dict[Key, dict[str, Any]]:
    return {Key(item["pk"], item["sk"]): item for item in items}


@contextmanager
def watched(table: Any) -> Iterator[set[Key]]:
    """Gather the keys of the items that are read from a table within the block."""
    keys, get_many, query = set[Key](), table.get_many, table.query

    def gets(wanted: Sequence[Key], **options: Any) -> Any:
        keys.update(wanted)
        return get_many(wanted, **options)

    def queries(asked: Query) -> Page:
        page: Page = query(asked)
        keys.update(Key(str(item["pk"]), str(item["sk"])) for item in page.items)
        return page

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "get_many", gets)
        patch.setattr(table, "query", queries)
        yield keys


def build(harness: Harness) -> Built:
    log = harness.log()
    session = log.sessions.create("s", title="A title", system=noise(6_000), metadata={"m": 1}, state={"a": 1})
    for number in range(1, 5):
        session.append(*turn(number), {"role": "user", "content": f"order {number} is late, where is the parcel"})
    session.append({"role": "user", "content": noise(5_000)}, {"role": "assistant", "content": noise(90_000)})
    session.append({"role": "user", "content": "go on"}, run={"scratchpad": noise(9_000), "iteration": 1})
    session.compress(keep_loops=1)
    session.patch_state({"b": noise(4_000)})
    session.create_snapshot("point", metadata={"m": 1}, idempotency_key="k")
    session.create_snapshot("whole", kind="full")
    session.record("noted", metadata={"m": 1})
    session.documents.put_many({"a": b"small", "large": random.Random(1).randbytes(270_000)})
    while log.run_jobs():
        pass
    session.fork("fork", at=4)
    store = harness.app.engine.blobs
    made = Built(harness, items_of(harness), {name: store.get(name) or b"" for name in store.names("")}, {})
    made.note()
    return made


KINDS = {
    "C#": "commit",
    "D#META": "card of the session",
    "E#SUM": "cache of the summary",
    "E#SYS": "cache of the settings",
    "S#STATE": "cache of the state",
    "F#": "mark of a fork",
    "G#": "entry of a segment",
    "J#": "job",
    "K#": "document",
    "P#": "snapshot",
    "P#@": "name of a snapshot",
    "P#~": "key of a snapshot",
    "R#": "payload",
    "S#": "entry of the list",
    "U#": "user of the tenant",
    "cursor-secret": "secret of cursors",
}
"""What a sort key begins with, longest first -> what the item is."""


def kind_of(item: dict[str, Any]) -> str:
    prefix = max((kind for kind in KINDS if str(item["sk"]).startswith(kind)), key=len)
    return KINDS[prefix]


def items_by_kind(built: Built) -> dict[str, list[dict[str, Any]]]:
    result = dict[str, list[dict[str, Any]]]()
    for item in built.items:
        result.setdefault(kind_of(item), []).append(item)
    return result


KEYS = ("pk", "sk", "g1pk", "g1sk", "g2pk", "g2sk", "ttl")
"""Not read as attributes: by them an item is found."""


OTHER_FORMS = {"C#": ("k", "bs", "fa", "ls", "sm", "ca")}
"""Without these an item is another one, and whole: a slot without a commit is an erased one's, a fork without its parent's name has
got a copy, and a log whose end names no state or summary has none: for those the header of the end is read alone, and its
checksum with its body."""


BLOBS = {
    "payload": "payload",
    "seg": "segment",
    "snap": "full snapshot",
    "index": "index of search",
    "doc": "document",
}
