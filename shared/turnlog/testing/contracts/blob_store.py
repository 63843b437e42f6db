"""The contract suite of `BlobStore`."""

from __future__ import annotations

import secrets
import tempfile
from urllib.parse import parse_qs, urlsplit

import pytest

from turnlog.ports import BlobStore


class BlobStoreContract:
    """Tests of a `BlobStore`. Fixture: ``blobs``. Every test uses names of its own."""

    many: int = 1_001
    """Blobs in the test of long listings: one more than fits into a listing or a batch delete of S3."""

    @pytest.fixture
    def root(self) -> str:
        """Return what the names of a test begin with."""
        return f"tenant/u{secrets.token_hex(6)}/"

    def test_bytes_come_back_as_they_were(self, blobs: BlobStore, root: str) -> None:
        cases = {"empty": b"", "nul": b"\x00", "all": bytes(range(256)), "large": secrets.token_bytes(3_000_000)}
        for name, data in cases.items():
            blobs.put(root + name, data)
        assert {name: blobs.get(root + name) for name in cases} == cases

    def test_a_missing_blob_is_none(self, blobs: BlobStore, root: str) -> None:
        blobs.put(root + "ab", b"1")
        assert blobs.get(root + "a") is None
        assert blobs.get(root + "abc") is None

    def test_a_second_put_replaces_the_bytes_whole(self, blobs: BlobStore, root: str) -> None:
        name = root + "blob"
        for data in (b"a long first version", b"short", b""):
            blobs.put(name, data)
            assert blobs.get(name) == data

    def test_a_file_is_stored(self, blobs: BlobStore, root: str) -> None:
        name, data = root + "blob", secrets.token_bytes(300_000)
        blobs.put(name, b"before")
        with tempfile.TemporaryFile() as file:
            file.write(data)
            file.seek(0)
            blobs.put(name, file)
        assert blobs.get(name) == data

    def test_an_address_names_the_blob_and_ends(self, blobs: BlobStore, root: str) -> None:
        name = root + "blob"
        blobs.put(name, b"1")
        url = blobs.url(name, seconds=60, filename="a.zip")
        if url is None:
            return
        parts = urlsplit(url)
        assert parts.path.endswith(name)
        query = parse_qs(parts.query)
        assert query["X-Amz-Expires"] == ["60"]
        assert query["response-content-disposition"] == ['attachment; filename="a.zip"']
        assert blobs.url(name + "2", seconds=60, filename="a.zip") != url

    def test_names_are_those_with_the_prefix_sorted_bytewise(self, blobs: BlobStore, root: str) -> None:
        inside = ["s/B", "s/a", "s/seg/10", "s/seg/100", "s/seg/9", "s/seg/99", "s/z_-.~"]
        outside = ["r/a", "sa", "t/a"]
        for name in [*outside, *reversed(inside)]:
            blobs.put(root + name, b"")
        assert list(blobs.names(root + "s/")) == [root + name for name in inside]

    def test_a_prefix_may_end_inside_a_name(self, blobs: BlobStore, root: str) -> None:
        for name in ("seg/1-256-aa", "seg/257-512-bb", "seh/1"):
            blobs.put(root + name, b"")
        assert list(blobs.names(root + "seg/2")) == [root + "seg/257-512-bb"]
        assert list(blobs.names(root + "se")) == [root + "seg/1-256-aa", root + "seg/257-512-bb", root + "seh/1"]
        assert list(blobs.names(root + "none")) == []

    def test_erased_is_gone_and_an_absent_name_is_no_error(self, blobs: BlobStore, root: str) -> None:
        blobs.put(root + "gone", b"1")
        blobs.put(root + "kept", b"2")
        assert [blobs.erase(root + name) for name in ("gone", "never", "gone")] == [1, 0, 0]
        assert blobs.get(root + "gone") is None
        assert blobs.get(root + "kept") == b"2"
        blobs.put(root + "gone", b"3")
        assert blobs.get(root + "gone") == b"3"

    def test_erased_is_gone_with_all_its_versions(self, blobs: BlobStore, root: str) -> None:
        for name in ("s/a", "s/seg/1", "s/seg/2", "s2/a", "t"):
            for data in (b"first", b"second"):
                blobs.put(root + name, data)
        assert blobs.erase(root + "s/seg/1") >= 1
        assert list(blobs.names(root + "s/")) == [root + "s/a", root + "s/seg/2"]
        blobs.erase(root + "s/", keep=[root + "s/seg/2"])
        assert blobs.get(root + "s/seg/2") == b"second"
        blobs.erase(root + "s/")
        assert list(blobs.names(root)) == [root + "s2/a", root + "t"]
        assert blobs.erase(root + "s/") == 0, "nothing is left of what was deleted or replaced"
        blobs.put(root + "s/a", b"again")
        assert blobs.get(root + "s/a") == b"again"

    def test_listings_and_erasing_have_no_limit(self, blobs: BlobStore, root: str) -> None:
        names = sorted(f"{root}many/{number}" for number in range(self.many))
        for name in names:
            blobs.put(name, b"")
        assert list(blobs.names(root + "many/")) == names
        assert blobs.erase(root + "many/") == self.many
        assert list(blobs.names(root)) == []
