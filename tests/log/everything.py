"""All that an engine holds, unpacked: to search it for what must not be there."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from typing import Any

from tests.conftest import Harness
from turnlog.core.errors import CorruptError
from turnlog.engines.files import FileBlobStore, MemoryBlobStore
from turnlog.log.headers import hashed_header
from turnlog.log.packing import unpack
from turnlog.ports import BlobStore, Item, ItemTable
from turnlog.snapshots.segment_format import read_segment


def items_of(harness: Harness) -> list[dict[str, Any]]:
    """Every item of the table, of all owners."""
    if harness.name == "moto":
        import boto3

        table = boto3.resource("dynamodb", "eu-central-1").Table("turnlog")
        result, start = list[dict[str, Any]](), dict[str, Any]()
        while True:
            page = table.scan(**start)
            result += [{name: _plain(value) for name, value in item.items()} for item in page["Items"]]
            if "LastEvaluatedKey" not in page:
                return result
            start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}
    return sqlite_items(harness.app.engine.items)


def sqlite_items(table: ItemTable) -> list[dict[str, Any]]:
    from turnlog.engines.sqlite_tables import _decode

    return [dict(_decode(*row)) for row in sqlite_rows(table)]


def sqlite_rows(table: ItemTable) -> list[Any]:
    """Return every item as it is stored, in the order of keys."""
    from turnlog.engines.sqlite_tables import _SELECT

    inner: Any = getattr(table, "_inner", table)
    connection: sqlite3.Connection = inner._database.connection()
    return connection.execute(f"{_SELECT} TRUE ORDER BY pk, sk").fetchall()


def blobs_of(harness: Harness) -> dict[str, bytes]:
    """Every version of every blob, and what is on its way to be one."""
    if harness.name == "moto":
        import boto3

        client = boto3.client("s3", "eu-central-1")
        pages = client.get_paginator("list_object_versions").paginate(Bucket="turnlog-blobs")
        versions = [(version["Key"], version["VersionId"]) for page in pages for version in page.get("Versions", [])]
        return {
            f"{key}@{version}": client.get_object(Bucket="turnlog-blobs", Key=key, VersionId=version)["Body"].read()
            for key, version in versions
        }
    return local_blobs(harness.app.engine.blobs)


def local_blobs(blobs: BlobStore) -> dict[str, bytes]:
    inner: Any = getattr(blobs, "_inner", blobs)
    if isinstance(inner, MemoryBlobStore):
        return {name: inner.get(name) or b"" for name in inner.names("")}
    assert isinstance(inner, FileBlobStore)
    return {str(path): path.read_bytes() for path in inner._folder.rglob("*") if path.is_file()}


def _plain(value: Any) -> Any:
    if hasattr(value, "value") and isinstance(value.value, bytes):
        return value.value
    return int(value) if not isinstance(value, str | bytes) else value


def places_of(needle: str, items: list[dict[str, Any]], blobs: dict[str, bytes]) -> list[str]:
    """The sort keys and names of what holds the needle, however it is packed."""
    values = [str(item["sk"]) for item in items if any(needle.encode() in text for text in _texts_of_item(item))]
    values += [name for name, data in blobs.items() if any(needle.encode() in text for text in _texts_of(data))]
    return sorted(values)


def held(needle: str, harness: Harness) -> list[str]:
    return places_of(needle, items_of(harness), blobs_of(harness))


def _texts_of_item(item: Item) -> Iterator[bytes]:
    for name, value in item.items():
        if isinstance(value, bytes):
            beside = hashed_header(str(item["sk"]), item) if "k" in item and name == "b" else b""
            yield from _texts_of(value, beside=beside)
        else:
            yield json.dumps(value).encode()


def _texts_of(data: bytes, *, beside: bytes = b"") -> Iterator[bytes]:
    yield data
    with contextlib.suppress(CorruptError):
        yield unpack(data, item="x", beside=beside)
    if data[:4] == b"TLsg":
        for sealed in read_segment(data, name="x"):
            yield from sealed.lines
            yield from sealed.contents.values()
