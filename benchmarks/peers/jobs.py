"""What is run: each system in a process of its own, so that moto's memory and a peer's failure stay there."""

from __future__ import annotations

import importlib
import logging
import multiprocessing
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from typing import TypeAlias

from benchmarks.peers.runs import SCHEDULES, Costs, Losses, SystemType, costs_of, losses_of
from benchmarks.peers.turns import PROFILES

SYSTEMS = (
    ("turnlog_log", "TurnlogSystem"),
    ("langchain_history", "HistorySystem"),
    ("langgraph_saver", "SaverSystem"),
    ("langgraph_saver", "OffloadingSaverSystem"),
    ("langgraph_saver", "TurnlogSaverSystem"),
    ("strands_session", "StrandsSystem"),
    ("strands_session", "WholeStrandsSystem"),
    ("strands_session", "TurnlogStrandsSystem"),
)
_HARNESS = ("boto3", "botocore", "moto")


@dataclass(frozen=True, slots=True)
class Failure:
    """A peer that is not there, or works in another way than it did; ``part`` is what of it was run."""

    system: str
    part: str
    reason: str


Result: TypeAlias = Costs | Losses | Failure


@dataclass(frozen=True, slots=True)
class Described:
    """A system as the report names it."""

    name: str
    turn: str
    versions: dict[str, str]


def run_all(sizes: Sequence[int], processes: int) -> Iterator[list[Result]]:
    """Yield the results of each system, in their order."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawn, max_tasks_per_child=1) as pool:
        yield from pool.map(_run, SYSTEMS, [tuple(sizes)] * len(SYSTEMS))


def _run(place: tuple[str, str], sizes: tuple[int, ...]) -> list[Result]:
    logging.disable(logging.CRITICAL)  # peers log what they refuse; the table says it
    warnings.simplefilter("ignore")
    try:
        kind = _kind(*place)
    except (ImportError, AttributeError) as error:
        return [Failure(place[1], "", _reason(error))]
    results = list[Result]()
    for profile in PROFILES:
        results.append(_attempt(kind, profile.name, lambda item=profile: costs_of(kind, item, sizes)))  # type: ignore[misc]
    for schedule in SCHEDULES:
        results.append(_attempt(kind, schedule, lambda item=schedule: losses_of(kind, item)))  # type: ignore[misc]
    return results


def _attempt(kind: SystemType, part: str, work: Callable[[], Result]) -> Result:
    try:
        return work()
    except Exception as error:
        if kind.guarded:
            raise  # ours
        return Failure(kind.name, part, _reason(error))


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def describe() -> tuple[list[Described], dict[str, str]]:
    """Return the systems that can be imported, and the versions of what they run on."""
    result = list[Described]()
    for module, name in SYSTEMS:
        try:
            kind = _kind(module, name)
        except (ImportError, AttributeError):
            continue
        result.append(
            Described(kind.name, kind.turn, {package: metadata.version(package) for package in kind.packages})
        )
    return result, {item: metadata.version(item) for item in _HARNESS}


def _kind(module: str, name: str) -> SystemType:
    kind: SystemType = getattr(importlib.import_module(f"benchmarks.peers.{module}"), name)
    return kind
