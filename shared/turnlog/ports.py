"""What Turnlog needs from the world, as small protocols. An engine implements `ItemTable`, `BlobStore` and `JobQueue`.

The contract of each is proven by the suites in `turnlog.testing`: run them to prove an engine of your own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, BinaryIO, Literal, Protocol, TypeAlias, runtime_checkable

from turnlog.core.lazy_dataclass import lazy_dataclass

if TYPE_CHECKING:
    from turnlog.core.identity import Owner
    from turnlog.core.memory import MadeFacts, Memory, MemoryPage, Offloaded, SpokenMessage
    from turnlog.core.summaries import Summarised, SummaryRequest

AttributeValue: TypeAlias = str | int | bytes
Item: TypeAlias = Mapping[str, AttributeValue]
"""Flat attributes. ``pk`` and ``sk`` are always there; ``g1pk``/``g1sk`` and ``g2pk``/``g2sk`` put an item on an index.
``ttl`` is a time in epoch seconds: once that has passed, the engine may remove the item, at any time later or never."""

MAX_ITEM_BYTES = 409_600
"""An item's limit, by DynamoDB's rule of counting (`item_size_bytes`). Every engine refuses a larger one."""
MAX_PAGE_BYTES = 1_048_576
MAX_GET_ITEMS = 100
MAX_WRITE_ITEMS = 25

IndexName: TypeAlias = Literal["activity", "expiry"]
INDEX_KEYS: dict[IndexName, tuple[str, str]] = {"activity": ("g1pk", "g1sk"), "expiry": ("g2pk", "g2sk")}


@lazy_dataclass(frozen=True, slots=True)
class Key:
    pk: str
    sk: str


@lazy_dataclass(frozen=True, slots=True)
class Absent:
    """No item has this key."""


@lazy_dataclass(frozen=True, slots=True)
class Equal:
    """The item exists and its attribute has this value."""

    attribute: str
    value: AttributeValue


@lazy_dataclass(frozen=True, slots=True)
class Less:
    """The item's attribute is a number smaller than the value; with ``or_absent``, an item that does not exist passes too."""

    attribute: str
    value: int
    or_absent: bool = True


Condition: TypeAlias = Absent | Equal | Less


@lazy_dataclass(frozen=True, slots=True)
class Lost:
    """A conditional put that did not happen. ``existing`` is the item that stood in its way (None: there was none)."""

    existing: Item | None


@lazy_dataclass(frozen=True, slots=True)
class Query:
    """Items of one partition with ``low <= sort key <= high``, in order of the sort key (bytewise). An empty ``low`` is an open
    start; with ``low > high`` there are none.

    ``limit`` counts items; a page ends early after `MAX_PAGE_BYTES`. ``after`` is a former page's ``next``.
    On an index (never consistent) ``pk``, ``low`` and ``high`` are those of the index.
    """

    pk: str
    low: str
    high: str
    descending: bool = False
    limit: int | None = None
    consistent: bool = True
    index: IndexName | None = None
    after: Mapping[str, str] | None = None


@lazy_dataclass(frozen=True, slots=True)
class Page:
    """``next`` is the key attributes to continue after; None: nothing follows. A page that ends exactly at the end may name a
    ``next`` whose page is empty."""

    items: tuple[Item, ...]
    next: Mapping[str, str] | None


class ItemTable(Protocol):
    """A table of items under (pk, sk). Single-item writes are atomic; what is acknowledged is durable and readable at once.

    Raises `UnavailableError` (effect unknown), `ThrottledError`, `TooLargeError` (item over `MAX_ITEM_BYTES`, nothing written).
    """

    def get_many(self, keys: Sequence[Key], *, consistent: bool = True) -> dict[Key, Item]:
        """Those of any number of keys that exist."""

    def query(self, query: Query) -> Page: ...

    def put(self, item: Item, *, condition: Condition | None = None) -> Lost | None:
        """Writes the item whole if the condition holds; None on success. Exactly one of several racing `Absent` puts wins."""

    def write_many(self, items: Sequence[Item]) -> None:
        """Any number of items, each whole, without a condition, together not atomic."""

    def delete_many(self, keys: Sequence[Key]) -> None:
        """Any number of keys, together not atomic; an absent one is no error."""


@runtime_checkable
class Purgeable(Protocol):
    """What a table or a blob store can do besides, where deleted bytes stay in files of this machine."""

    def purge(self) -> None:
        """Remove the bytes of what was deleted or replaced so far from every file; none of them is left when this returns.

        Raises `UnavailableError` when they can't be removed now.
        """


@runtime_checkable
class Inspectable(Protocol):
    """What a table can do besides, where everything in it can be listed."""

    def partitions(self) -> Iterator[str]:
        """Yield the partitions that hold items, sorted."""

    def damages(self) -> list[str]:
        """Return what the engine itself finds wrong with its files, in words; empty when nothing is."""


class BlobStore(Protocol):
    """Immutable bytes under names such as ``tenant/user/session/…``."""

    def put(self, name: str, data: bytes | BinaryIO) -> None:
        """Durable when it returns. Putting the same name again replaces the bytes, whole. A file is read from where it stands, and
        never held in memory whole."""

    def get(self, name: str) -> bytes | None:
        """The bytes, or None when there is no such blob."""

    def names(self, prefix: str) -> Sequence[str]:
        """All names that begin with the prefix, sorted."""

    def delete_many(self, names: Sequence[str]) -> None: ...

    def erase(self, prefix: str, *, keep: Collection[str] = ()) -> int:
        """Deletes every blob whose name begins with the prefix, but for those to ``keep``, with all its versions; how many
        versions there were. When it returns, nothing of them is left. `UnavailableError` when one of them was kept.
        """

    def url(self, name: str, *, seconds: int, filename: str) -> str | None:
        """An address that gives the bytes to whoever has it, for so long; they are saved as ``filename``. No request. None: this
        store is not on the network."""


@lazy_dataclass(frozen=True, slots=True)
class Delivery:
    """One receipt of a job. ``receives`` counts the deliveries of it so far, this one included."""

    job_id: str
    body: str
    receipt: str
    receives: int


class JobQueue(Protocol):
    """At-least-once delivery, no order. A job that is not acknowledged comes again; after ``max_receives`` it is a dead letter."""

    def send(self, body: str, *, group: str, delay_seconds: int = 0) -> str:
        """Durable when it returns the job's id. ``group`` is the tenant: the queue is fair between groups."""

    def receive(self, *, limit: int = 10) -> Sequence[Delivery]:
        """Up to ``limit`` (at most 10) jobs, invisible to others until the queue's visibility time-out. Does not wait."""

    def acknowledge(self, receipt: str) -> None:
        """The job is done. An outdated receipt is no error."""

    def postpone(self, receipt: str, *, seconds: int) -> None:
        """The job becomes visible again after ``seconds``. An outdated receipt has no effect."""

    def dead_letters(self, *, limit: int = 10) -> Sequence[Delivery]:
        """Some of the dead letters, without taking them."""


@runtime_checkable
class Redrivable(Protocol):
    """What a queue can do besides, for an operator who has mended what made its dead letters."""

    def redrive(self, group_of: Callable[[str], str | None]) -> int:
        """Gives each dead letter for whose body ``group_of`` names a group back to the queue, with as many receives as a new
        job; the others stay. Returns how many went back. Ended in between, none is lost; one may come twice.
        """


class TokenCounter(Protocol):
    """Counts a text's tokens. ``name`` identifies the encoding and is stored with the counts."""

    @property
    def name(self) -> str: ...

    def count(self, text: str) -> int: ...


class Summariser(Protocol):
    """Makes a summary's text. ``name`` identifies it; what it gives back says who made it, for it may ask another.

    May raise `UnavailableError` (try again later), `SummaryRefusedError` (this request will never do) and
    `SummariserConfigError` (none will, before the settings change). Appends and windows go on in any case.
    """

    @property
    def name(self) -> str: ...

    def summarise(self, request: SummaryRequest) -> Summarised:
        """A text of at most ``request.max_tokens`` tokens, and what it cost."""


SignalName: TypeAlias = Literal[
    "compression_off",
    "conflicts_exhausted",
    "corrupt_item",
    "erasure_overdue",
    "summary_over_budget",
    "summary_tokens",
]


class Signals(Protocol):
    """Events that an operator is to be told of, counted. Never contents."""

    def count(self, name: SignalName, value: int = 1) -> None:
        """It has happened so many times. Raises nothing."""


@lazy_dataclass(frozen=True, slots=True)
class TermDocuments:
    """Texts as an engine cut them into terms: how many terms each has, and for a term the rows that have it, with how often."""

    lengths: Sequence[int]
    rows_of: Callable[[str], Sequence[tuple[int, int]]]


class SearchEngine(Protocol):
    """Cuts texts into terms, and ranks them by the terms of a question. Deterministic; holds nothing between two calls."""

    @property
    def name(self) -> str:
        """Of the way texts are cut. What is kept of texts is used by an engine of the same name only."""

    def terms(self, texts: Sequence[str]) -> list[dict[str, int]]:
        """The terms of each text, and how often it has each."""

    def rank(self, documents: TermDocuments, question: str) -> list[tuple[int, float]]:
        """The rows that share a term with the question, best first, with a score above 0: greater is better; of equals the later.

        Each text is ranked with the one before it: a question is answered a turn later. Statistics are those of all documents.
        """

    def spans(self, texts: Sequence[str], question: str) -> list[list[tuple[int, int]]]:
        """Where in each text words stand that share a term with the question: begin and end, in order, apart from each other."""


class Embedder(Protocol):
    """Makes a vector of a text, so that texts of one meaning have vectors of one direction, whatever their words.

    Raises `UnavailableError` (try again later) and `EmbedderConfigError` (not before the settings change).
    """

    @property
    def name(self) -> str: ...

    def embed(self, texts: Sequence[str], *, as_question: bool = False) -> list[Sequence[float]]:
        """A vector for each text, all of one length. Some models tell a question from what it asks for."""


class MemoryEngine(Protocol):
    """Keeps what is known of a person beyond a session. What it is told twice it knows once.

    Raises `UnavailableError` and `ThrottledError` (try again later), and `MemoryConfigError` (not before the settings change).
    """

    @property
    def name(self) -> str: ...

    def remember(self, part: Offloaded) -> int:
        """Takes what it wants to keep of a part of a session; how many memories it knows were made or confirmed by it (0 where
        the engine makes them later). The same part again has no further effect."""

    def known(self, owner: Owner, question: str, *, limit: int, timeout_seconds: float) -> list[Memory]:
        """What matters most for a question, best first (an empty question: in general); none that another one replaces."""

    def page(self, owner: Owner, *, limit: int, after: str | None = None) -> MemoryPage:
        """All that is known of a person, newest first, those that were replaced too."""

    def forget(self, owner: Owner, memory_ids: Collection[str]) -> None:
        """For good, and not to be made again of the parts that they came from. An unknown id is no error."""

    def erase(self, owner: Owner, session_id: str | None = None, *, position: int | None = None) -> int:
        """Everything that came from a session, or all of a person; how many memories there were. When it returns, nothing of them
        is left. With ``position`` what came from that message of the session: an engine that can't tell erases the session's."""


class FactMaker(Protocol):
    """Reads what was said for what is worth to be known of the person beyond the session.

    Raises `UnavailableError` (try again later), `SummaryRefusedError` (this will never do) and `SummariserConfigError`.
    """

    @property
    def name(self) -> str: ...

    def facts(self, said: Iterable[SpokenMessage]) -> MadeFacts:
        """Facts in order of position, each of a message that was given."""


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC. May go backwards; the log's own times do not."""

    def sleep(self, seconds: float) -> None: ...


class IdSource(Protocol):
    def new_id(self) -> str:
        """A fresh id of at least 120 random bits, in the alphabet of ids."""

    def nonce(self) -> bytes:
        """8 random bytes."""

    def jitter(self) -> float:
        """A random number in [0, 1)."""


def item_size_bytes(item: Item) -> int:
    """The size by DynamoDB's rule: names and strings in UTF-8, bytes as they are, a number's digits in pairs plus one."""
    return sum(len(name.encode()) + value_size_bytes(value) for name, value in item.items())


def value_size_bytes(value: AttributeValue) -> int:
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, bytes):
        return len(value)
    digits = str(abs(value)).rstrip("0") or "0"
    return (len(digits) + 1) // 2 + (2 if value < 0 else 1)
