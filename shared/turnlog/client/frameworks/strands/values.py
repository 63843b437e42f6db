"""Bytes of any size in the documents of a session: large ones in parts, which are there before what names them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from turnlog.adapters.system import RandomIds
from turnlog.client.documents import Document, Documents
from turnlog.contracts.documents import MAX_DOCUMENT_BYTES
from turnlog.domain.errors import CorruptError
from turnlog.domain.jsonvalue import canonical_json, decode_json

_PARTS = "strands/parts/"
_WHOLE, _NAMED = b"\x00", b"\x01"
_INLINE = 16 * 1024
"""A listing reads documents with their data: what is larger is beside them."""
_TRIES = 5
_IDS = RandomIds()


class Values:
    """Bytes by key, the last writer's, whole. Whose parts are replaced while they are read is read again."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    def write(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        """`DocumentChangedError` with ``if_absent`` when there is one."""
        self._write(key, data, None if if_absent else self._documents.get(key), if_absent=if_absent)

    def read(self, key: str) -> bytes | None:
        found = self._read(key)
        return None if found is None else found[0]

    def change(self, key: str, change: Callable[[bytes], bytes]) -> bool:
        """Writes what ``change`` makes of what is there; False where nothing is."""
        found = self._read(key)
        if found is None:
            return False
        self._write(key, change(found[0]), found[1])
        return True

    def delete(self, key: str) -> None:
        self._documents.delete([key, *self._parts_of(self._documents.get(key))])

    def items(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        """Of small ones, in order of their keys."""
        for one in self._documents.list(prefix):
            yield one.key, one.data[1:] if not self._parts_of(one) else self.read(one.key) or b""

    def keys(self, prefix: str) -> list[str]:
        return [one.key for one in self._documents.list(prefix)]

    def _read(self, key: str) -> tuple[bytes, Document] | None:
        for _ in range(_TRIES):
            found = self._documents.get(key)
            if found is None:
                return None
            names = self._parts_of(found)
            if not names:
                return found.data[1:], found
            parts = self._documents.get_many(names)
            if len(parts) == len(names):
                return b"".join(parts[name].data for name in names), found
        raise CorruptError("parts of a value are not there", item=key)

    def _write(self, key: str, data: bytes, before: Document | None, *, if_absent: bool = False) -> None:
        """In place of what was there ``before``, whose parts go."""
        if len(data) < _INLINE:
            self._documents.put(key, _WHOLE + data, if_absent=if_absent)
        else:
            name = _IDS.new_id()
            starts = range(0, len(data), MAX_DOCUMENT_BYTES)
            parts = {_part(name, at): data[start : start + MAX_DOCUMENT_BYTES] for at, start in enumerate(starts)}
            named = _NAMED + canonical_json({"name": name, "parts": len(parts)})
            self._documents.put_many(parts, then={} if if_absent else {key: named})
            if if_absent:
                self._documents.put(key, named, if_absent=True)
        if names := self._parts_of(before):
            self._documents.delete(names)

    @staticmethod
    def _parts_of(document: Document | None) -> list[str]:
        if document is None or document.data[:1] != _NAMED:
            return []
        named = decode_json(document.data[1:])
        assert isinstance(named, dict)  # noqa: S101 - written above
        count = named["parts"]
        assert isinstance(count, int)  # noqa: S101
        return [_part(str(named["name"]), at) for at in range(count)]


def _part(name: str, at: int) -> str:
    return f"{_PARTS}{name}/{at:06d}"
