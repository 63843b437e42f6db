"""Ports: the protocols that Turnlog needs from its environment. An engine implements `ItemTable`, `BlobStore` and `JobQueue`.

The contract suites in `turnlog.testing` check each protocol; run them against an engine of your own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

from turnlog.core.lazy_dataclass import lazy_dataclass

if TYPE_CHECKING:
    from turnlog.core.identity import Owner
    from turnlog.core.memory import MadeFacts, Memory, MemoryPage, Offloaded, SpokenMessage
    from turnlog.core.summaries import Summarised, SummaryRequest

AttributeValue: TypeAlias = str | int | bytes
Item: TypeAlias = Mapping[str, AttributeValue]
"""An item: flat attributes. ``pk`` and ``sk`` are required; ``g1pk``/``g1sk`` and ``g2pk``/``g2sk`` put the item on an index.
``ttl`` is a time in epoch seconds. After that time the engine may remove the item, at any later moment or never."""

MAX_ITEM_BYTES = 409_600
"""Size limit of an item, counted by DynamoDB's rule (`item_size_bytes`). Every engine refuses larger items."""
MAX_PAGE_BYTES = 1_048_576
MAX_GET_ITEMS = 100
MAX_WRITE_ITEMS = 25

IndexName: TypeAlias = Literal["activity", "expiry"]
INDEX_KEYS: dict[IndexName, tuple[str, str]] = {"activity": ("g1pk", "g1sk"), "expiry": ("g2pk", "g2sk")}


@lazy_dataclass(frozen=True, slots=True)
class Key:
    """The primary key of an item: partition key and sort key."""

    pk: str
    sk: str


@lazy_dataclass(frozen=True, slots=True)
class Absent:
    """A condition: no item has this key."""


@lazy_dataclass(frozen=True, slots=True)
class Equal:
    """A condition: the item exists and its attribute has this value."""

    attribute: str
    value: AttributeValue


@lazy_dataclass(frozen=True, slots=True)
class Less:
    """A condition: the item's attribute is a number below ``value``. With ``or_absent``, a missing item passes too."""

    attribute: str
    value: int
    or_absent: bool = True


Condition: TypeAlias = Absent | Equal | Less


@lazy_dataclass(frozen=True, slots=True)
class Lost:
    """A conditional put that was refused. ``existing`` is the item that has the key, or None when there is none."""

    existing: Item | None


@lazy_dataclass(frozen=True, slots=True)
class Query:
    """A query for items of a partition with ``low <= sort key <= high``, in bytewise order of the sort key.

    An empty ``low`` means from the start; ``low > high`` gives no items. ``limit`` counts items; a page ends early after
    `MAX_PAGE_BYTES`. ``after`` is the ``next`` of the previous page. Reads are consistent, except with ``index``: then ``pk``,
    ``low`` and ``high`` are keys of that index.
    """

    pk: str
    low: str
    high: str
    descending: bool = False
    limit: int | None = None
    index: IndexName | None = None
    after: Mapping[str, str] | None = None


@lazy_dataclass(frozen=True, slots=True)
class Page:
    """A page of a query's items.

    ``next`` holds the key attributes to continue after, or None on the last page. A page that ends exactly with the last
    item may have a ``next`` whose page is empty.
    """

    items: tuple[Item, ...]
    next: Mapping[str, str] | None


class ItemTable(Protocol):
    """A table of items with primary key (pk, sk). Writes of an item are atomic, and durable and readable once acknowledged.

    Methods raise `UnavailableError` (effect unknown), `ThrottledError`, and `TooLargeError` for an item over
    `MAX_ITEM_BYTES` (nothing was written).
    """

    def get_many(self, keys: Sequence[Key], *, consistent: bool = True) -> dict[Key, Item]:
        """Return the items that exist among any number of keys, by key."""

    def query(self, query: Query) -> Page:
        """Return a page of items."""

    def put(self, item: Item, *, condition: Condition | None = None) -> Lost | None:
        """Replace the whole item if the condition holds. Return None on success, else `Lost`.

        Exactly one of several concurrent puts with `Absent` succeeds.
        """

    def write_many(self, items: Sequence[Item]) -> None:
        """Replace any number of items without conditions. Each is written atomically, all together are not."""

    def delete_many(self, keys: Sequence[Key]) -> None:
        """Delete any number of keys, not atomically together. Missing keys are no error."""


def get_item(items: ItemTable, key: Key) -> Item | None:
    """Return the item with this key, or None."""
    return items.get_many([key]).get(key)


def pages(items: ItemTable, query: Query) -> Iterator[Sequence[Item]]:
    """Yield the items of a query, a page at a time; empty pages are left out."""
    while True:
        page = items.query(query)
        if page.items:
            yield page.items
        if page.next is None:
            return
        query = replace(query, after=page.next)


@runtime_checkable
class Purgeable(Protocol):
    """An optional protocol of tables and blob stores that keep deleted bytes in local files."""

    def purge(self) -> None:
        """Remove all bytes of deleted and replaced items or blobs from every file before it returns.

        Raises `UnavailableError` when that is not possible at the moment.
        """


@runtime_checkable
class Inspectable(Protocol):
    """An optional protocol of tables whose contents can be listed completely."""

    def partitions(self) -> Iterator[str]:
        """Yield the partitions that hold items, sorted."""

    def damages(self) -> list[str]:
        """Return descriptions of the damage that the engine's own check finds in its files; empty when there is none."""


class BlobStore(Protocol):
    """Immutable bytes under names such as ``tenant/user/session/…``. ``place`` says in errors where they are."""

    @property
    def place(self) -> str:
        return "the blob store"

    def put(self, name: str, data: bytes | BinaryIO) -> None:
        """Store a blob, or replace it completely. The blob is durable when the call returns.

        A file stands at its start, from where a retry reads it again. It is never held in memory as a whole.
        """

    def get(self, name: str) -> bytes | None:
        """Return the bytes of a blob, or None when it does not exist."""

    def names(self, prefix: str) -> Sequence[str]:
        """Return all names that begin with the prefix, sorted."""

    def erase(self, prefix: str, *, keep: Collection[str] = ()) -> int:
        """Delete every blob whose name begins with the prefix, except those in ``keep``, with all versions.

        Return the number of versions deleted. When the call returns, none is left. Raises `UnavailableError` when the store
        refused to delete one.
        """

    def url(self, name: str, *, seconds: int, filename: str) -> str | None:
        """Return a URL from which anyone can download the blob as ``filename`` for ``seconds``.

        Makes no request. Returns None when the store is not on the network.
        """
        return None

    def upload_url(self, name: str, *, seconds: int, size_bytes: int) -> str | None:
        """Return a URL to which anyone can put this many bytes as the blob for ``seconds``.

        Makes no request. Returns None when the store is not on the network.
        """
        return None


@lazy_dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery of a job. ``receives`` counts the deliveries of the job so far, including this one."""

    job_id: str
    body: str
    receipt: str
    receives: int


JobKind: TypeAlias = Literal[
    "compress", "snapshot", "seal", "index", "sweep", "restore", "export", "erase", "erase_user", "redact", "offload"
]
JobStatus: TypeAlias = Literal["queued", "done", "failed"]
QUEUES: dict[str, tuple[JobKind, ...]] = {
    "compress": ("compress", "seal", "index"),
    "snapshot": ("snapshot", "restore", "export"),
    "erase": ("erase", "erase_user", "sweep", "redact"),
    "offload": ("offload",),
}
"""The kinds of job that go through each queue, to the worker of the same name."""
JOB_KINDS: tuple[JobKind, ...] = tuple(kind for kinds in QUEUES.values() for kind in kinds)


class JobQueue(Protocol):
    """A job queue with at-least-once delivery in no particular order.

    A job that is not acknowledged is delivered again. After ``max_receives`` deliveries it is a dead letter.
    """

    def send(self, body: str, *, group: str, delay_seconds: int = 0) -> str:
        """Send a job and return its id, when the job is durable.

        ``group`` is the tenant; the queue delivers fairly between groups.
        """

    def receive(self, *, limit: int = 10) -> Sequence[Delivery]:
        """Receive up to ``limit`` (at most 10) jobs without waiting. They are hidden until the queue's visibility timeout."""

    def acknowledge(self, receipt: str) -> None:
        """Remove a finished job from the queue. An outdated receipt is no error."""


@runtime_checkable
class Redrivable(Protocol):
    """An optional protocol of queues that can return dead letters, for an operator who has fixed their cause."""

    def redrive(self, group_of: Callable[[str], str | None]) -> int:
        """Return dead letters to the queue, counted as new jobs, and return their number.

        ``group_of`` maps a body to its group; a dead letter for which it returns None stays. After an interruption no letter
        is lost, but one may be delivered twice.
        """


class TokenCounter(Protocol):
    """A counter of tokens. ``name`` identifies the encoding and is stored with the counts."""

    @property
    def name(self) -> str: ...

    def count(self, text: str) -> int:
        """Return the number of tokens in a text."""


class Summariser(Protocol):
    """A writer of summaries. ``name`` identifies it; the result names the actual writer, which may be another one.

    Raises `UnavailableError` (try again later), `SummaryRefusedError` (this request will never succeed) and
    `SummariserConfigError` (no request will succeed before the settings change). Appends and windows work in any case.
    """

    @property
    def name(self) -> str: ...

    def summarise(self, request: SummaryRequest) -> Summarised:
        """Return a summary of at most ``request.max_tokens`` tokens, and the tokens it cost."""


@lazy_dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt: ``system`` has the instructions, ``record`` the history as data. ``record_tokens`` counts the history's tokens."""

    system: str
    record: str
    record_tokens: int


Ending: TypeAlias = Literal["done", "cut_off", "filtered"]


@lazy_dataclass(frozen=True, slots=True)
class ModelAnswer:
    """The answer of a model and the tokens that it cost; None if the provider gave no count."""

    text: str
    ending: Ending = "done"
    input_tokens: int | None = None
    output_tokens: int | None = None


class ChatModel(Protocol):
    """A chat model that is called once, without retries.

    Raises `UnavailableError` (outage, time-out, unreadable answer), `ThrottledError` and `SummariserConfigError`.
    """

    @property
    def name(self) -> str: ...

    def answer(self, prompt: Prompt, *, max_tokens: int) -> ModelAnswer:
        """Return the model's answer, of at most ``max_tokens`` tokens including reasoning."""


SignalName: TypeAlias = Literal[
    "compression_off", "conflicts_exhausted", "corrupt_item", "erasure_overdue", "summary_over_budget", "summary_tokens"
]


class Signals(Protocol):
    """Counters of events that an operator must know of. They never hold contents."""

    def count(self, name: SignalName, value: int = 1) -> None:
        """Increment the counter ``name`` by ``value``. Never raises."""


@lazy_dataclass(frozen=True, slots=True)
class TermDocuments:
    """Texts that a search engine has cut into terms.

    ``lengths`` are sizes of the texts, all in the same unit. ``counts_of`` maps terms to how often each text has them, `MAX_COUNT`
    at most, or to nothing where none has. ``prefix*`` stands for all longer terms with this prefix; a source may know none of them.
    """

    lengths: Sequence[int]
    counts_of: Callable[[Collection[str]], Mapping[str, Sequence[int]]]

    @classmethod
    def from_terms(cls, texts: Sequence[Collection[str]]) -> TermDocuments:
        """Build the documents from the terms of each text."""

        def counts_of(terms: Collection[str]) -> dict[str, bytearray]:
            counts = {term: bytearray(len(texts)) for term in terms}
            prefixes = tuple(term[:-1] for term in terms if term.endswith("*"))
            for row, term in ((row, term) for row, its_terms in enumerate(texts) for term in its_terms):
                if term in counts:
                    counts[term][row] += counts[term][row] < MAX_COUNT
                for prefix in prefixes if term.startswith(prefixes) else ():
                    if term.startswith(prefix) and term != prefix:
                        counts[f"{prefix}*"][row] += counts[f"{prefix}*"][row] < MAX_COUNT
            return counts

        return cls([len(terms) for terms in texts], counts_of)


MAX_COUNT = 85
"""The most occurrences of a term in a text that count; more change its rank hardly. Three times as many fit into a byte."""
NEIGHBOUR_REACH = 3
"""The largest distance between two texts of a conversation that a search engine ranks together."""


class Ranking(NamedTuple):
    """Rows that match a question, best first, each with its score.

    ``highest`` is the limit that the score of a text approaches, the more often it repeats all terms of the question.
    """

    rows: list[tuple[int, float]]
    highest: float


class SearchEngine(Protocol):
    """A deterministic, stateless search engine that cuts texts into terms and ranks them by the terms of a question."""

    @property
    def name(self) -> str:
        """The name of the method that cuts texts."""

    @property
    def reads(self) -> Collection[str]:
        """The names of the engines, its own included, whose stored terms this engine can use if it makes the same terms."""

    def words(self, texts: Sequence[str]) -> list[str]:
        """Return the words of each text as one, in lower case, each word between two spaces."""

    def places(self, words: str, terms: Collection[str]) -> Mapping[str, Sequence[int]]:
        """Return for each term an offset into each word that has it, in any order. ``words`` is a text that `words` has returned.

        For ``prefix*`` these are the words whose terms have the prefix and are longer.
        """

    def terms(self, texts: Sequence[str]) -> list[list[str]]:
        """Return the terms of each text; a term that occurs several times is repeated."""

    def rank(self, documents: TermDocuments, question: str, limit: int | None = None) -> Ranking:
        """Return the rows that share a term with the question, and the row after each, best first, with scores above 0.

        A greater score is better; of equal scores, the later row comes first. Each text is ranked together with its
        neighbours, because an answer follows its question. Statistics are those of all documents. With ``limit`` at most
        so many rows are returned, and of more documents only the neighbourhoods that have most of the question are ranked.
        """

    def spans(self, texts: Sequence[str], question: str) -> list[list[tuple[int, int]]]:
        """Return for each text the spans (begin, end) of words that share a term with the question.

        Spans are in order and do not overlap.
        """


class Embedder(Protocol):
    """A maker of vectors: texts of similar meaning get vectors of similar direction, whatever their words.

    Raises `UnavailableError` (try again later) and `EmbedderConfigError` (try again only after the settings change).
    """

    @property
    def name(self) -> str: ...

    def embed(self, texts: Sequence[str], *, as_question: bool = False) -> list[Sequence[float]]:
        """Return a vector for each text, all of one length. Some models embed questions differently from texts."""


class MemoryReader(Protocol):
    """Reads memories of persons across sessions.

    Raises `UnavailableError` and `ThrottledError` (try again later), and `MemoryConfigError` (try again only after the
    settings change).
    """

    @property
    def name(self) -> str: ...

    def known(self, owner: Owner, question: str, *, limit: int, timeout_seconds: float) -> list[Memory]:
        """Return the memories that matter most for a question, best first. An empty question asks in general.

        Replaced memories are left out.
        """

    def page(self, owner: Owner, *, limit: int, after: str | None = None) -> MemoryPage:
        """Return a page of all memories of a person, newest first, including replaced ones."""


class MemoryEngine(MemoryReader, Protocol):
    """A store of memories. Handing over the same part twice stores its memories once. Raises the errors of `MemoryReader`."""

    def remember(self, part: Offloaded) -> int:
        """Keep memories from a part of a session. Repeating the same part has no further effect.

        Return the number of memories that the part created or confirmed; 0 for an engine that creates them later.
        """

    def forget(self, owner: Owner, memory_ids: Collection[str]) -> None:
        """Delete memories for good. They are not created again from their parts. Unknown ids are no error."""

    def erase(self, owner: Owner, session_id: str | None = None, *, position: int | None = None) -> int:
        """Erase all memories from a session, or all of a person, and return their number.

        When the call returns, none is left. With ``position`` only the memories from that message are erased; an engine that
        can't tell messages apart erases those of the session.
        """


class FactMaker(Protocol):
    """An extractor of facts about a person that are worth keeping beyond the session.

    Raises `UnavailableError` (try again later), `SummaryRefusedError` (these messages will never succeed) and
    `SummariserConfigError`.
    """

    @property
    def name(self) -> str: ...

    def facts(self, messages: Iterable[SpokenMessage]) -> MadeFacts:
        """Return facts from the messages, in order of position."""


class Clock(Protocol):
    """The current time, and waiting."""

    def now_ms(self) -> int:
        """Return the milliseconds since 1970 (UTC). They may go backwards; the log's own times do not."""

    def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``."""


class IdSource(Protocol):
    """A source of random ids and numbers."""

    def new_id(self) -> str:
        """Return a new id of at least 120 random bits, in the alphabet of ids."""

    def nonce(self) -> bytes:
        """Return 8 random bytes."""

    def jitter(self) -> float:
        """Return a random number in [0, 1)."""


def item_size_bytes(item: Item) -> int:
    """Return an item's size by DynamoDB's rule.

    Names and strings count in UTF-8, bytes as they are, and numbers a byte for each pair of digits plus one.
    """
    texts, size = list(item), 0
    for value in item.values():
        kind = type(value)  # a hundred times in an append: much quicker than isinstance
        if kind is str:
            texts.append(value)  # type: ignore[arg-type]
        elif kind is bytes:
            size += len(value)  # type: ignore[arg-type]
        else:
            digits = str(abs(value)).rstrip("0") or "0"  # type: ignore[arg-type]
            size += (len(digits) + 1) // 2 + (2 if value < 0 else 1)  # type: ignore[operator]
    return size + len("".join(texts).encode())
