"""Conversations for benchmarks: of files, or of any format by a loader of the user, and samples of them."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from turnlog.cli.transcripts import Transcript, read_transcripts, transcript_of
from turnlog.core.errors import InvalidInputError

Loader = Callable[[str], Iterable[dict[str, Any]]]


def load_transcripts(paths: Iterable[Path], loader: Path | None = None) -> list[Transcript]:
    """Read conversations, with ``loader`` by the ``iter_sessions(path)`` of that Python file. Raises `InvalidInputError`."""
    if loader is None:
        return read_transcripts(paths)
    load = _loader_of(loader)
    return [transcript for path in paths for transcript in _loaded(load, loader, path)]


def sample_of(transcripts: Sequence[Transcript], count: int) -> list[Transcript]:
    """Return a repeatable sample in the given order: sources take turns, evenly spaced within each source."""
    by_source: dict[str, list[int]] = {}
    for index, transcript in enumerate(transcripts):
        by_source.setdefault(transcript.source, []).append(index)
    shares = dict.fromkeys(by_source, 0)
    left = min(count, len(transcripts))
    while left:
        for source, places in by_source.items():
            if left and shares[source] < len(places):
                shares[source] += 1
                left -= 1
    chosen = [
        places[number * len(places) // shares[source]]
        for source, places in by_source.items()
        for number in range(shares[source])
    ]
    return [transcripts[index] for index in sorted(chosen)]


def _loader_of(path: Path) -> Loader:
    if not path.is_file():
        raise InvalidInputError(f"no loader {str(path)!r}", code="no_file")
    spec = importlib.util.spec_from_file_location("turnlog_loader", path)
    if spec is None or spec.loader is None:
        raise InvalidInputError(f"the loader {str(path)!r} is not a Python file", code="loader_failed")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        load: Loader = module.iter_sessions
    except Exception as error:
        raise _loader_error(path, error) from error
    return load


def _loaded(load: Loader, loader: Path, path: Path) -> Iterator[Transcript]:
    if not path.exists():
        raise InvalidInputError(f"no file {str(path)!r}", code="no_file")
    try:
        with warnings.catch_warnings():
            # A loader may leave files open; only its author can fix that.
            warnings.simplefilter("ignore", ResourceWarning)
            values = list(load(str(path)))
    except Exception as error:
        raise _loader_error(loader, error) from error
    for index, value in enumerate(values):
        place = f"{str(loader)!r}: conversation {index + 1} of {str(path)!r}"
        yield transcript_of(value, place=place, id=f"{path.stem}:{index + 1}", source=path.name)


def _loader_error(path: Path, error: Exception) -> InvalidInputError:
    return InvalidInputError(
        f"the loader {str(path)!r} failed: {type(error).__name__}: {str(error)[:200]}", code="loader_failed"
    )
