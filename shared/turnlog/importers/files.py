"""A file that may be a source. It is read once."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from turnlog.core.errors import InvalidInputError, MalformedError
from turnlog.core.json_values import parse_strict_json
from turnlog.core.lazy_dataclass import lazy_dataclass

_SQLITE = b"SQLite format 3\x00"


@lazy_dataclass(frozen=True, slots=True)
class Line:
    """A line of JSON Lines that is not blank. ``value`` is None and ``is_json`` False when it is not valid JSON."""

    number: int
    text: str
    value: Any
    is_json: bool


class SourceFile:
    """A file, read when its contents are first used. With ``documents=False``, documents of an export are not imported."""

    def __init__(self, path: Path, *, documents: bool = True) -> None:
        self.path = path
        self.documents = documents

    @property
    def name(self) -> str:
        return str(self.path)

    @cached_property
    def is_sqlite(self) -> bool:
        """Whether the file is an SQLite database."""
        with _opened(self.path) as file:
            return bool(file.read(len(_SQLITE)) == _SQLITE)

    @cached_property
    def text(self) -> str:
        """The text of the file. Raises `MalformedError` when it is not UTF-8."""
        with _opened(self.path) as file:
            data: bytes = file.read()
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise MalformedError(f"{self.name!r} is not UTF-8 at byte {error.start}") from error

    @cached_property
    def document(self) -> Any:
        """The file as one JSON value, or None."""
        try:
            return parse_strict_json(self.text)
        except MalformedError:
            return None

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """The lines of the file that are not blank."""
        parsed = list[Line]()
        for number, text in enumerate(self.text.split("\n"), start=1):
            if not text.strip():
                continue
            try:
                parsed.append(Line(number, text, parse_strict_json(text), True))
            except MalformedError:
                parsed.append(Line(number, text, None, False))
        return tuple(parsed)

    @cached_property
    def values(self) -> tuple[tuple[str, Any], ...]:
        """The sessions of a JSON file with their places: its one value, the items of its list, or its lines."""
        if self.document is None:
            return tuple((f"line {line.number}", line.value) for line in self.lines)
        if isinstance(self.document, list):
            return tuple((f"item {number}", value) for number, value in enumerate(self.document, start=1))
        return (("", self.document),)

    @property
    def why_not_json(self) -> str:
        """The reason why the file is not JSON; empty when the file or one of its lines is an object."""
        if self.is_sqlite or any(isinstance(line.value, dict) for line in self.lines):
            return ""
        try:
            parse_strict_json(self.text)
        except MalformedError as error:
            return error.detail.replace("body", "it", 1)
        return ""

    def source_id(self, value: dict[str, Any], place: str, *keys: str) -> str:
        """Return the id of a session under the first of ``keys`` that it has, else the file's name with the place."""
        for key in keys:
            own_id = value.get(key)
            if isinstance(own_id, str) and own_id:
                return own_id
            if isinstance(own_id, int) and not isinstance(own_id, bool):
                return str(own_id)
        return f"{self.path.stem}-{place.replace(' ', '-')}" if place else self.path.stem


def _opened(path: Path) -> Any:
    try:
        return path.open("rb")
    except OSError as error:
        raise InvalidInputError(
            f"can't read {str(path)!r}: {(error.strerror or '').lower()}", code="no_file"
        ) from error
