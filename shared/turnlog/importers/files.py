"""A file that may be a source, read once."""

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
    """A line of JSON Lines that is not blank. ``value`` is None, and ``is_json`` False, when it is no JSON that we take."""

    number: int
    text: str
    value: Any
    is_json: bool


class SourceFile:
    """A path with what is in it, as far as it was asked for. ``documents``: those of an export are wanted too."""

    def __init__(self, path: Path, *, documents: bool = True) -> None:
        self.path = path
        self.documents = documents

    @property
    def name(self) -> str:
        return str(self.path)

    @cached_property
    def is_sqlite(self) -> bool:
        with _opened(self.path) as file:
            return bool(file.read(len(_SQLITE)) == _SQLITE)

    @cached_property
    def text(self) -> str:
        """Raises `MalformedError` when it is not UTF-8."""
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
        found = list[Line]()
        for number, text in enumerate(self.text.split("\n"), start=1):
            if not text.strip():
                continue
            try:
                found.append(Line(number, text, parse_strict_json(text), True))
            except MalformedError:
                found.append(Line(number, text, None, False))
        return tuple(found)

    @cached_property
    def values(self) -> tuple[tuple[str, Any], ...]:
        """The sessions of a file of JSON: its one value, the items of its list, or its lines; each with its place."""
        if self.document is None:
            return tuple((f"line {line.number}", line.value) for line in self.lines)
        if isinstance(self.document, list):
            return tuple((f"item {at}", value) for at, value in enumerate(self.document, start=1))
        return (("", self.document),)

    @property
    def why_not_json(self) -> str:
        """What is wrong with the file as JSON, where no line of it is an object either; else nothing."""
        if self.is_sqlite or any(isinstance(line.value, dict) for line in self.lines):
            return ""
        try:
            parse_strict_json(self.text)
        except MalformedError as error:
            return error.detail.replace("body", "it", 1)
        return ""

    def source_id(self, value: dict[str, Any], place: str, *keys: str) -> str:
        """The id that a session's value has under one of the keys; else the file's name, with the place."""
        for key in keys:
            found = value.get(key)
            if isinstance(found, str) and found:
                return found
            if isinstance(found, int) and not isinstance(found, bool):
                return str(found)
        return f"{self.path.stem}-{place.replace(' ', '-')}" if place else self.path.stem


def _opened(path: Path) -> Any:
    try:
        return path.open("rb")
    except OSError as error:
        raise InvalidInputError(
            f"can't read {str(path)!r}: {(error.strerror or '').lower()}", code="no_file"
        ) from error
