"""Engines: where everything is kept, by the URL that names one. Their libraries are imported by the function that needs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from turnlog.domain.errors import InvalidInputError
from turnlog.domain.values import dataclass
from turnlog.ports import BlobStore, Clock, IdSource, ItemTable, JobQueue
from turnlog.settings import Settings


@dataclass(frozen=True, slots=True)
class Engine:
    """Where everything is kept. ``name`` is shown by health; ``close`` frees what the engine holds, ``release`` what it holds for
    the thread that calls it.

    ``copy_to`` copies items and jobs to a new file, and opens that with a blob folder of its own; None where the engine can't.
    ``queue`` takes jobs of every kind that has no queue of its own in ``queues``.
    """

    name: str
    items: ItemTable
    blobs: BlobStore
    queue: JobQueue | None
    close: Callable[[], None]
    queues: Mapping[str, JobQueue] = field(default_factory=dict)
    release: Callable[[], None] = field(default=lambda: None)
    copy_to: Callable[[Path, Path], Engine] | None = None

    def queue_of(self, kind: str) -> JobQueue | None:
        return self.queues.get(kind, self.queue)


def make_engine(settings: Settings, *, clock: Clock, ids: IdSource) -> Engine:
    """The engine that ``settings.engine`` names, or `InvalidInputError`."""
    url = urlsplit(settings.engine)
    if settings.tenant_role_arn and url.scheme != "dynamodb":
        raise InvalidInputError(
            f"TURNLOG_TENANT_ROLE_ARN keeps tenants apart on dynamodb:// only, not on {settings.engine!r}",
            code="invalid_settings",
        )
    if url.scheme == "sqlite":
        if url.netloc or not url.path.strip("/") or "\0" in unquote(url.path):
            raise InvalidInputError(f"engine {settings.engine!r} is not sqlite:///PATH", code="invalid_settings")
        return _sqlite(Path(unquote(url.path[1:])), settings, clock, ids)
    if url.scheme == "memory":
        return _memory(settings, clock, ids)
    if url.scheme == "dynamodb":
        return _aws(url.netloc, parse_qs(url.query), settings)
    raise InvalidInputError(
        f"engine {settings.engine!r} is not sqlite:///, memory:// or dynamodb://", code="invalid_settings"
    )


def _sqlite(path: Path, settings: Settings, clock: Clock, ids: IdSource) -> Engine:
    from turnlog.adapters.embedded.files import FileBlobStore

    return _embedded("sqlite", path, FileBlobStore(path.with_name(path.name + ".blobs")), settings, clock, ids)


def _memory(settings: Settings, clock: Clock, ids: IdSource) -> Engine:
    from turnlog.adapters.embedded.files import MemoryBlobStore
    from turnlog.adapters.embedded.sqlite import MEMORY

    return _embedded("memory", MEMORY, MemoryBlobStore(), settings, clock, ids)


def _embedded(name: str, path: Path | str, blobs: BlobStore, settings: Settings, clock: Clock, ids: IdSource) -> Engine:
    """Items and jobs in one database."""
    from turnlog.adapters.embedded.files import FileBlobStore
    from turnlog.adapters.embedded.sqlite import SqliteDatabase
    from turnlog.adapters.embedded.sqlite_items import SqliteItemTable
    from turnlog.adapters.embedded.sqlite_jobs import SqliteJobQueue

    database = SqliteDatabase(path)
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
    return Engine(name, table, blobs, queue, database.close, release=database.release, copy_to=copy_to)


def _aws(table: str, query: dict[str, list[str]], settings: Settings) -> Engine:
    """``queue`` takes all jobs; ``compress_queue`` and ``snapshot_queue`` take those of their kinds. Names or URLs."""
    from turnlog.domain.jobs import QUEUES

    own_queues = {f"{name}_queue": kinds for name, kinds in QUEUES.items()}
    known = {"bucket", "queue", "dead_letters", "region", *own_queues}
    if not table or "bucket" not in query or set(query) - known:
        message = f"engine {settings.engine!r} is not dynamodb://TABLE?bucket=B&queue=Q&region=R"
        raise InvalidInputError(message, code="invalid_settings")
    from turnlog.adapters.aws.clients import make_clients
    from turnlog.adapters.aws.dynamodb import DynamoItemTable
    from turnlog.adapters.aws.s3 import S3BlobStore

    region = query["region"][0] if "region" in query else None
    clients = make_clients(region, settings.endpoint_url, tenant_role_arn=settings.tenant_role_arn)
    queue: JobQueue | None = None
    queues = dict[str, JobQueue]()
    if set(query) & {"queue", *own_queues}:
        from turnlog.adapters.aws.sqs import SqsJobQueue

        if "queue" in query:
            queue = SqsJobQueue(clients.sqs, query["queue"][0], query.get("dead_letters", [""])[0])
        for name, kinds in own_queues.items():
            if name in query:
                queues |= dict.fromkeys(kinds, SqsJobQueue(clients.sqs, query[name][0], ""))
    return Engine(
        "dynamodb",
        DynamoItemTable(clients.dynamodb, table),
        S3BlobStore(clients.s3, query["bucket"][0]),
        queue,
        _nothing,
        queues,
    )


def _nothing() -> None:
    """AWS clients hold nothing that must be closed."""
