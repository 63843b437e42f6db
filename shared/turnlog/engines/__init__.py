"""Storage engines, models and token counters, made as the settings name them; the clock and the ids of this machine.

An engine stores items and blobs and queues jobs. Its libraries are imported when it is made.
"""

from __future__ import annotations

import base64
import logging
import os
import random
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from turnlog.core.errors import InvalidInputError, SummariserConfigError, TurnlogError, UnavailableError, describe_error
from turnlog.core.lazy_dataclass import lazy_dataclass
from turnlog.ports import (
    QUEUES,
    BlobStore,
    ChatModel,
    Clock,
    Embedder,
    IdSource,
    ItemTable,
    JobQueue,
    ModelAnswer,
    Prompt,
    TokenCounter,
)

if TYPE_CHECKING:
    from turnlog.settings import Settings


@lazy_dataclass(frozen=True, slots=True)
class Engine:
    """A storage engine: items, blobs and job queues.

    - ``name``: shown by the health routes.
    - ``queue``: the queue for kinds of jobs that have no queue of their own in ``queues``.
    - ``prepare``: makes what the first request would make, without I/O: the client of the items.
    - ``close``: frees all resources. ``release``: frees the resources of the calling thread.
    - ``next_job_ms``: returns when the next job of the queue is due, None without one; None if not supported.
    - ``has_due``: whether partitions of the expiry index have an item before a sort key. An engine with ``next_job_ms`` has it.
    - ``copy_to``: copies items and jobs to a new file and opens it with its own blob folder; None if not supported.
    """

    name: str
    items: ItemTable
    blobs: BlobStore
    queue: JobQueue | None
    close: Callable[[], None]
    queues: Mapping[str, JobQueue] = field(default_factory=dict)
    release: Callable[[], None] = field(default=lambda: None)
    copy_to: Callable[[Path, Path], Engine] | None = None
    next_job_ms: Callable[[], int | None] | None = None
    has_due: Callable[[Sequence[str], str], bool] = field(default=lambda partitions, before: False)
    prepare: Callable[[], object] = field(default=lambda: None)

    def queue_of(self, kind: str) -> JobQueue | None:
        """Return the queue for a kind of job, or None."""
        return self.queues.get(kind, self.queue)


_log = logging.getLogger("turnlog")
DATABASE = "turnlog.db"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:|[\w.-]+:\d+(/|$)")
"""The beginning of a URL, or of an address without ``http://``, which is no file's name."""
_SECRET = re.compile(r"(://|^(?!.*://))([^/?#@]*(?=@[^@]*$)|[^/].*@.*)|(?<=[?#]).+", re.DOTALL)


def shown_url(url: str) -> str:
    """Return a URL, 200 characters at most, with ``***`` in place of user, password, query and fragment."""
    return _SECRET.sub(r"\1***", url)[:200]


def location_url(location: str | os.PathLike[str]) -> str:
    """Return the URL of an engine or a service: a URL as it is, and for a path that of SQLite.

    A path with a suffix is a database file (``agent.db``), one without is a folder that holds ``turnlog.db``; what exists at
    the path decides first. Raises `InvalidInputError` for a text that is neither a path nor a URL.
    """
    text = os.fsdecode(location)
    if "://" in text:
        return text
    if not text.strip() or "\0" in text or text.startswith(":") or _SCHEME.match(text):
        raise _invalid(
            f"{shown_url(text)!r} is neither a path nor a URL: give agent.db, sqlite:///agent.db, memory:// or https://HOST"
        )
    path = _at_home(text)
    try:
        is_folder = path.is_dir() or (not path.suffix and not path.is_file())
    except OSError as error:
        raise _invalid(f"{text[:200]!r} can't be a path: {(error.strerror or '').lower()}") from error
    return "sqlite:///" + quote(str(path / DATABASE if is_folder else path))


def sqlite_path(url: str) -> Path | None:
    """Return the database file of an engine's URL, ``~`` being the user's home; None for another engine or a service."""
    scheme, _, path = url.partition(":///")
    return _at_home(unquote(path)) if scheme.lower() == "sqlite" else None


def _at_home(path: str) -> Path:
    """Return a path with the user's home in place of a leading ``~``."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - `Path.expanduser` raises for a file such as ~old.db


def make_engine(settings: Settings, *, clock: Clock, ids: IdSource) -> Engine:
    """Return the engine that the settings name; open its SQLite file, or create it. Raises `InvalidInputError` for a bad URL."""
    shown = repr(shown_url(settings.engine))
    unknown = _invalid(f"engine {shown} is not sqlite:///PATH, memory:// or dynamodb://")
    try:
        url = urlsplit(settings.engine)
    except ValueError:
        raise unknown from None
    if settings.tenant_role_arn and url.scheme != "dynamodb":
        raise _invalid(f"TURNLOG_TENANT_ROLE_ARN keeps tenants apart on dynamodb:// only, not on {shown}")
    if url.scheme == "sqlite":
        path = sqlite_path(settings.engine)
        if path is None or url.query or url.fragment or not url.path.strip("/") or "\0" in str(path):
            raise unknown
        return _embedded(path, settings, clock, ids)
    if settings.engine == "memory://":
        return _embedded(Path(":memory:"), settings, clock, ids)
    if url.scheme == "dynamodb":
        return _aws(url.netloc, parse_qs(url.query), settings)
    raise unknown


def _invalid(detail: str) -> InvalidInputError:
    return InvalidInputError(detail, code="invalid_settings")


def _embedded(path: Path, settings: Settings, clock: Clock, ids: IdSource) -> Engine:
    """Return an engine with items and jobs in an SQLite database; blobs are in a folder beside its file, or in memory too."""
    from turnlog.engines.files import FileBlobStore, MemoryBlobStore
    from turnlog.engines.sqlite import MEMORY, SqliteDatabase
    from turnlog.engines.sqlite_tables import SqliteItemTable, SqliteJobQueue

    name = "memory"
    blobs: BlobStore = MemoryBlobStore()
    if str(path) != MEMORY:
        try:
            path = path.absolute()  # the process may change its folder, and each of its threads opens the file
        except FileNotFoundError as error:
            raise UnavailableError("the folder of this process was deleted", code="no_folder") from error
        # The file may be opened by a symbolic link and by its own name. Earlier versions kept blobs beside the link.
        folders = [f"{place}.blobs" for place in (path, os.path.realpath(path))]
        name, blobs = "sqlite", FileBlobStore(next(filter(os.path.isdir, folders), folders[-1]))
    database = SqliteDatabase(path)
    database.connection()  # so that a file that can't be used is refused here, and not by the first call
    queue = SqliteJobQueue(
        database,
        ids,
        clock.now_ms,
        visibility_seconds=settings.queue_visibility_seconds,
        max_receives=settings.queue_max_receives,
    )

    def copy_to(path: Path, folder: Path) -> Engine:
        database.copy_to(path)
        copy = SqliteDatabase(path)
        return Engine("sqlite", SqliteItemTable(copy), FileBlobStore(folder), None, copy.close)

    table = SqliteItemTable(database, clock.now_ms)
    return Engine(
        *(name, table, blobs, queue, database.close),
        release=database.release,
        copy_to=copy_to,
        next_job_ms=queue.next_due_ms,
        has_due=table.has_due,
    )


def _aws(table: str, query: dict[str, list[str]], settings: Settings) -> Engine:
    """Return the DynamoDB engine with the options of the engine's URL.

    The option ``queue`` names the queue of all jobs; ``compress_queue``, ``snapshot_queue`` and others name the queues of
    their kinds. All are names or URLs.
    """
    own_queues = {f"{name}_queue": kinds for name, kinds in QUEUES.items()}
    known = {"bucket", "queue", "region", *own_queues}
    if not table or "@" in table or "bucket" not in query or set(query) - known:
        raise _invalid(f"engine {shown_url(settings.engine)!r} is not dynamodb://TABLE?bucket=B&queue=Q&region=R")
    from turnlog.engines.aws_clients import Clients
    from turnlog.engines.dynamodb import DynamoItemTable
    from turnlog.engines.s3 import S3BlobStore

    region = query["region"][0] if "region" in query else None
    clients = Clients(region, settings.endpoint_url, tenant_role_arn=settings.tenant_role_arn)
    queue: JobQueue | None = None
    queues = dict[str, JobQueue]()
    if set(query) & {"queue", *own_queues}:
        from turnlog.engines.sqs import SqsJobQueue

        if "queue" in query:
            queue = SqsJobQueue(clients.sqs, query["queue"][0])
        for name, kinds in own_queues.items():
            if name in query:
                queues |= dict.fromkeys(kinds, SqsJobQueue(clients.sqs, query[name][0]))
    return Engine(
        "dynamodb",
        DynamoItemTable(clients.dynamodb, table),
        S3BlobStore(clients.s3, query["bucket"][0]),
        queue,
        lambda: None,  # AWS clients have no resources that must be closed
        queues,
        prepare=lambda: clients.dynamodb.meta,
    )


class AtFirstUse:
    """A stand-in for an object that is made when one of its attributes is first read."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the object and keep it, so that only its first use comes here."""
        attribute = getattr(self._make(), name)
        setattr(self, name, attribute)
        return attribute


def make_counter(name: str) -> TokenCounter:
    """Return the token counter with this name."""
    if name == "estimate":
        from turnlog.engines.token_estimate import EstimateCounter

        return EstimateCounter()
    from turnlog.engines.token_counters import TiktokenCounter

    return TiktokenCounter()


def make_chat_model(settings: Settings) -> ChatModel:
    """Return the model that the settings name: at their endpoint, or else on Bedrock in the engine's region."""
    timeout_seconds = settings.summary_timeout_seconds
    if settings.summary_url:
        from turnlog.engines.openai_compatible import OpenAiCompatibleModel

        key = settings.summary_api_key.get_secret_value()
        return OpenAiCompatibleModel(
            settings.summary_url, settings.summary_model, api_key=key, timeout_seconds=timeout_seconds
        )
    from turnlog.engines.aws_clients import Clients
    from turnlog.engines.bedrock import BedrockConverseModel

    # ModelSummariser does the retries.
    clients = Clients(settings.engine_region, settings.endpoint_url, max_attempts=1)
    return BedrockConverseModel(clients, settings.summary_model, timeout_seconds=timeout_seconds)


class FunctionModel:
    """Implements `ChatModel` with a caller's function, which takes a `Prompt` and returns the text of the answer."""

    def __init__(self, function: Callable[[Prompt], str]) -> None:
        self._function = function

    @property
    def name(self) -> str:
        return f"function:{getattr(self._function, '__name__', type(self._function).__name__)}"[:128]

    def answer(self, prompt: Prompt, *, max_tokens: int) -> ModelAnswer:
        """Implement `ChatModel`. An error of the function is an outage."""
        try:
            text = self._function(prompt)
        except TurnlogError:
            raise
        except Exception as error:
            _log.warning("the summariser %r met %s", self.name, describe_error(error))
            raise UnavailableError(f"the summariser has raised {type(error).__name__}") from error
        if not isinstance(text, str):
            _log.warning("the summariser %r returned %s, not a text", self.name, type(text).__name__)
            raise SummariserConfigError(f"the summariser must return a text, not {type(text).__name__}")
        return ModelAnswer(text)


def make_embedder(settings: Settings) -> Embedder | None:
    """Return the embedder that the settings name, in the engine's region, or None."""
    if not settings.rerank_model:
        return None
    from turnlog.engines.aws_clients import Clients
    from turnlog.engines.bedrock import BedrockEmbedder

    clients = Clients(settings.engine_region, settings.endpoint_url, max_attempts=1)
    return BedrockEmbedder(clients, settings.rerank_model, timeout_seconds=settings.rerank_timeout_seconds)


class SystemClock:
    """`Clock` by the machine's time."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class RandomIds:
    """`IdSource` by the system's random numbers."""

    def new_id(self) -> str:
        # A letter first, so that an id never begins with "h_" or "-".
        return "s" + base64.b32encode(secrets.token_bytes(20)).decode("ascii").lower()[:31]

    def nonce(self) -> bytes:
        return secrets.token_bytes(8)

    def jitter(self) -> float:
        return random.random()
