"""`BlobStore` on an S3 bucket."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, BinaryIO

from botocore.exceptions import ChecksumError, ClientError, FlexibleChecksumError

from turnlog.core.errors import CorruptError, UnavailableError
from turnlog.core.limits import check_time
from turnlog.engines.aws_clients import BLOB_SECONDS
from turnlog.engines.aws_errors import error_code, translated
from turnlog.ports import BlobStore

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import ObjectIdentifierTypeDef


_MAX_DELETES = 1_000
_CHUNK_BYTES = 256 * 1024
_DENIED = "AccessDenied"


class S3BlobStore(BlobStore):
    """`BlobStore` in S3. A blob's name is its key. S3 and the reader check a SHA-256 of the bytes."""

    def __init__(self, client: S3Client, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    def put(self, name: str, data: bytes | BinaryIO) -> None:
        with translated("PutObject"):
            self._client.put_object(Bucket=self._bucket, Key=name, Body=data, ChecksumAlgorithm="SHA256")

    def get(self, name: str) -> bytes | None:
        """Implement `BlobStore`; raise `CorruptError` if the bytes don't have their checksum."""
        with translated("GetObject"):
            try:
                answer = self._client.get_object(Bucket=self._bucket, Key=name, ChecksumMode="ENABLED")
                with closing(answer["Body"]) as body:
                    return b"".join(_chunks(body))
            except ClientError as error:
                code = error_code(error)
                if code == "NoSuchKey" or (code == _DENIED and self._is_missing(name)):
                    return None
                raise
            except (ChecksumError, FlexibleChecksumError) as error:
                raise CorruptError("the blob does not have its checksum", item=name) from error

    def _is_missing(self, name: str) -> bool:
        """Return whether a denied object does not exist.

        Without the right to list the whole bucket, S3 answers AccessDenied for a missing object. Listing the object's own name
        needs only the right to list the prefix.
        """
        try:
            answer = self._client.list_objects_v2(Bucket=self._bucket, Prefix=name, MaxKeys=1)
        except ClientError as error:
            if error_code(error) != _DENIED:
                raise
            return False
        return all(entry["Key"] != name for entry in answer.get("Contents", []))

    def names(self, prefix: str) -> Sequence[str]:
        names: list[str] = []
        with translated("ListObjectsV2"):
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix)
            for page in pages:
                names += [entry["Key"] for entry in page.get("Contents", [])]
        return sorted(names)

    def erase(self, prefix: str, *, keep: Collection[str] = ()) -> int:
        """Implement `BlobStore`: list and delete all versions, a page at a time, until a listing is empty.

        Raise `UnavailableError` if S3 kept one of them. The others are deleted.
        """
        kept, erased = set(keep), 0
        while count := self._erase_listed(prefix, kept):
            erased += count
        return erased

    def _erase_listed(self, prefix: str, kept: Collection[str]) -> int:
        erased, failed = 0, list[str]()
        pages = self._client.get_paginator("list_object_versions").paginate(Bucket=self._bucket, Prefix=prefix)
        with translated("ListObjectVersions"):
            for page in pages:
                versions: list[Any] = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
                erasable: list[ObjectIdentifierTypeDef] = [
                    {"Key": version["Key"], "VersionId": version["VersionId"]}
                    for version in versions
                    if version["Key"] not in kept
                ]
                failed += self._delete(erasable)
                erased += len(erasable)
        if failed:
            raise UnavailableError(f"DeleteObjects kept {len(failed)} versions: {', '.join(sorted(set(failed)))}")
        return erased

    def _delete(self, objects: Sequence[ObjectIdentifierTypeDef]) -> list[str]:
        """Delete versions of objects; return the error codes of those that S3 kept."""
        codes = list[str]()
        for start in range(0, len(objects), _MAX_DELETES):
            chunk = objects[start : start + _MAX_DELETES]
            answer = self._client.delete_objects(Bucket=self._bucket, Delete={"Objects": chunk, "Quiet": True})
            codes += [error.get("Code", "unknown") for error in answer.get("Errors", [])]
        return codes

    def url(self, name: str, *, seconds: int, filename: str) -> str | None:
        """Return an address that is signed with this process's credentials; it ends when they expire. Needs ``s3:GetObject``."""
        params = {
            "Bucket": self._bucket,
            "Key": name,
            "ResponseContentDisposition": f'attachment; filename="{filename}"',
        }
        return self._client.generate_presigned_url("get_object", Params=params, ExpiresIn=seconds)

    def upload_url(self, name: str, *, seconds: int, size_bytes: int) -> str | None:
        """Return an address that takes exactly so many bytes, signed as that of `url`. Needs ``s3:PutObject``."""
        params = {"Bucket": self._bucket, "Key": name, "ContentLength": size_bytes}
        return self._client.generate_presigned_url("put_object", Params=params, ExpiresIn=seconds)


def _chunks(body: Any) -> Iterator[bytes]:
    """Read an object in chunks. The time-out applies to each chunk, so a large object may take longer, up to the deadline."""
    for chunk in body.iter_chunks(_CHUNK_BYTES):
        check_time(BLOB_SECONDS, "the rest of an object of S3")
        yield chunk
