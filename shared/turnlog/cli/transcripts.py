"""Reads conversations from files of JSON or JSON Lines."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnlog.cli.screen import decode_input
from turnlog.core.errors import InvalidInputError, MalformedError
from turnlog.core.json_values import parse_strict_json
from turnlog.importers.conversations import is_message, request_parts

_SUFFIXES = (".json", ".jsonl", ".ndjson")
_MANY_FILES = 20
STDIN = Path("-")


@dataclass(frozen=True, slots=True)
class Transcript:
    """One conversation. ``source`` groups conversations in tables."""

    id: str
    source: str
    messages: list[Any]
    system: str | None = None
    tools: list[dict[str, Any]] = field(default_factory=list)


def read_transcripts(paths: Iterable[Path]) -> list[Transcript]:
    """Read the conversations of files and folders, in order; ``-`` is standard input.

    Raises `InvalidInputError` naming the file and the place in it.
    """
    return [transcript for path in paths for file, source in _files(path) for transcript in _read(file, source)]


def _files(path: Path) -> list[tuple[Path, str]]:
    """Return the files below a path, each with its source: the subfolder, or the file itself in a folder of few files."""
    if path == STDIN:
        return [(path, _stem(path))]
    if not path.exists():
        raise InvalidInputError(f"no file {str(path)!r}", code="no_file")
    if not path.is_dir():
        return [(path, path.stem)]
    files = sorted(file for file in path.rglob("*") if file.is_file() and file.suffix in _SUFFIXES)
    if not files:
        raise InvalidInputError(f"no {', '.join(_SUFFIXES)} file in {str(path)!r}", code="no_file")
    inside = [file.relative_to(path).parts for file in files]
    are_few = sum(1 for parts in inside if len(parts) == 1) <= _MANY_FILES
    here = path.resolve().name
    return [
        (file, parts[0] if len(parts) > 1 else file.stem if are_few else here)
        for file, parts in zip(files, inside, strict=True)
    ]


def _read(file: Path, source: str) -> Iterator[Transcript]:
    try:
        data = sys.stdin.buffer.read() if file == STDIN else file.read_bytes()
    except OSError as error:
        raise InvalidInputError(f"can't read {str(file)!r}: {error.strerror}", code="no_file") from error
    values = _values(file, decode_input(data, repr(str(file))))
    if values and all(is_message(value) for value in values):
        values = [values]
    for index, value in enumerate(values):
        name = _stem(file) if len(values) == 1 else f"{_stem(file)}:{index + 1}"
        yield transcript_of(value, place=f"{str(file)!r}, conversation {index + 1}", id=name, source=source)


def _stem(file: Path) -> str:
    return "stdin" if file == STDIN else file.stem


def _values(file: Path, text: str) -> list[Any]:
    """Return the conversations of a file, or the messages of its only conversation."""
    try:
        value = parse_strict_json(text)
    except MalformedError as error:
        lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        if len(lines) < 2 or file.suffix == ".json":
            raise MalformedError(f"{str(file)!r}: {error.detail}") from error
        return [_line(file, number, line) for number, line in lines]
    if isinstance(value, list) and value and not any(is_message(item) for item in value):
        return value
    return [value]


def _line(file: Path, number: int, line: str) -> Any:
    try:
        return parse_strict_json(line)
    except MalformedError as error:
        raise MalformedError(f"{str(file)!r} line {number}: {error.detail}") from error


def transcript_of(value: Any, *, place: str, id: str, source: str) -> Transcript:
    """Return a transcript of ``{id?, messages, source?, system?, tools?}``, a provider's request body, or a list of messages.

    ``id`` and ``source`` are defaults. Raises `InvalidInputError` naming ``place``.
    """
    parts = request_parts(value)
    messages, system, tools = parts.messages, parts.system, parts.tools
    if not isinstance(messages, list):
        raise InvalidInputError(f"{place} is neither {{id, messages}} nor a list of messages")
    wrong = next((index for index, message in enumerate(messages) if not isinstance(message, dict)), None)
    if wrong is not None:
        raise InvalidInputError(f"{place}: message {wrong + 1} is not an object")
    if tools is not None and not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
        raise InvalidInputError(f"{place}: tools is not a list of objects")
    if system is not None and not isinstance(system, str):
        raise InvalidInputError(f"{place}: system is not a text")
    name, origin = parts.rest.get("id"), parts.rest.get("source")
    own_id = str(name) if name is not None else id
    return Transcript(own_id, origin if isinstance(origin, str) else source, messages, system, tools or [])
