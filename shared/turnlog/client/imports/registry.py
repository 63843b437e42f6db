"""The shapes that a source can have. Another one is one line here.

A shape reads a file as sessions, which are compared with the log and written; or it comes with an importer of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from turnlog.client.imports import coding_agents, conversations, documents, exported, flat, openai_agents
from turnlog.client.imports.errors import UnknownSourceError
from turnlog.client.imports.files import SourceFile
from turnlog.client.imports.report import SessionReport
from turnlog.client.imports.sessions import SourceSession
from turnlog.client.imports.writing import import_session
from turnlog.client.model import Turnlog
from turnlog.domain.errors import ConflictError, InvalidInputError
from turnlog.domain.values import dataclass

Tick: TypeAlias = Callable[[int], None]
Importer: TypeAlias = Callable[[Turnlog, SourceFile, bool, Tick], Iterator[SessionReport]]
"""Imports a file's sessions, one report each: (log, file, dry run, what to call after so many messages)."""


@dataclass(frozen=True, slots=True)
class Shape:
    """``label`` is for people. ``count`` tells how many messages there will be, for a progress bar."""

    name: str
    label: str
    recognises: Callable[[SourceFile], bool]
    run: Importer
    count: Callable[[SourceFile], int]


def _of_sessions(
    name: str,
    label: str,
    recognises: Callable[[SourceFile], bool],
    read: Callable[[SourceFile], Iterator[SourceSession]],
) -> Shape:
    """A shape whose sessions are written by `import_session`. One that is refused does not stop the others."""

    def run(log: Turnlog, file: SourceFile, dry_run: bool, tick: Tick) -> Iterator[SessionReport]:
        for source in read(file):
            try:
                yield import_session(log, source, file=file.name, dry_run=dry_run, on_messages=tick)
            except (InvalidInputError, ConflictError) as error:
                yield SessionReport(
                    file.name,
                    source.shape,
                    source.id,
                    source.source_id,
                    "refused",
                    messages=len(source.messages),
                    skipped=list(source.skipped),
                    warnings=list(source.warnings),
                    error=error,
                )

    def count(file: SourceFile) -> int:
        return sum(len(source.messages) for source in read(file))

    return Shape(name, label, recognises, run, count)


SHAPES: tuple[Shape, ...] = (
    Shape(exported.SHAPE, "exports of Turnlog", exported.recognises, exported.run, exported.count),
    _of_sessions(
        openai_agents.SHAPE, "SQLite sessions of the OpenAI Agents SDK", openai_agents.recognises, openai_agents.read
    ),
    _of_sessions(documents.SHAPE, "session documents", documents.recognises, documents.read),
    _of_sessions(flat.SHAPE, "flat message lists", flat.recognises, flat.read),
    _of_sessions(coding_agents.SHAPE, "logs of coding agents", coding_agents.recognises, coding_agents.read),
    _of_sessions(conversations.SHAPE, "messages of a provider's format", conversations.recognises, conversations.read),
)


def shape_named(name: str) -> Shape:
    for shape in SHAPES:
        if shape.name == name:
            return shape
    raise UnknownSourceError(f"no shape {name[:40]!r}; there are {', '.join(shape.name for shape in SHAPES)}")


def shape_of(file: SourceFile) -> Shape | None:
    """The file's shape, by what only files of it have; None when it has none that we know."""
    return next((shape for shape in SHAPES if shape.recognises(file)), None)
