"""What must hold, and the tests that show it: docs/contributing/properties.md, made of the names of the tests themselves.

A test says what it shows by its name: ``test_d2_every_order_of_…`` is of property D2, ``test_W1_to_W5_and_W7_hold_…`` of six. A
property without a test is an error here.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROPERTIES: dict[str, dict[str, str]] = {
    "Append": {
        "A1": "Many appenders at once: nothing is lost, positions have no gap, all readers see one order",
        "A2": "A batch is never seen in part, at any point of a crash",
        "A3": "For 24 hours the same key makes one commit and gives the same answer, whatever else is written",
        "A4": "The same key with another payload is refused",
        "A5": "Acknowledged is durable, and readable at once by anyone",
        "A6": "A wrong `if_head` is refused with the head; an invented one makes neither gap nor overlap",
        "A7": "Every kind of disorder is kept and reported",
        "A8": "A whole stream is kept whole, a broken one marked; a retry after it is clean",
    },
    "Window": {
        "W1": "Every window passes the linter of its provider's format",
        "W2": "A call and its results are in or out together; an unanswered call is settled",
        "W3": "The budget holds, counted afresh",
        "W4": "The task stays: the user messages of the current loop are in, uncut",
        "W5": "What is left out is declared",
        "W6": "The prefix changes only when it must",
        "W7": "The same input gives the same bytes",
        "W8": "A build gives the same bytes again, whatever has come since",
        "W9": "The recall tools and their line are in every window, or in none",
    },
    "Summary": {
        "S1": "Delivered twice, late or out of order: applied at most once",
        "S2": "Never covers an open loop, nor the newest ones",
        "S3": "Bound to the hash of what it covers",
        "S4": "With the summariser down for hours all else goes on, and is drained without duplicates",
        "S5": "Facts survive rounds within the cap; the others are found by search",
        "S6": "A rewind or restore below a summary brings the earlier one back",
    },
    "Storage": {
        "D1": "A crash at every boundary of every operation, then the same again: one effect",
        "D2": "Every order of every pair of operations",
        "D3": "Any JSON comes back equal",
        "D4": "Damage is a typed error that names the item",
        "D5": "Golden histories of every schema version read the same",
        "D6": "A snapshot is the fold at one commit; restoring gives an equal fold",
        "D7": "A replay to a time is the fold of the commits up to it",
        "D8": "Limits of items, pages and batches are invisible",
    },
    "Erasing": {
        "E1": "Nothing answers from then on; after the sweep no content is left anywhere",
        "E2": "Interrupted anywhere, it goes on",
        "E3": "An error of the blob store or of a memory engine is never reported as done",
        "E4": "Expired is invisible at once",
        "E5": "A redacted body is nowhere",
    },
    "Tenancy": {
        "T1": "Nothing of another owner is read, written, listed, guessed or told apart from what is not there",
        "T2": "Cursors are bound to their caller",
    },
    "Service": {
        "V1": "Requests and capacity of each operation are counted, and flat in the session's length",
        "V2": "Contents reach no log, metric, error or queue body",
        "V3": "Fuzzed input makes no 5xx, and memory stays bounded",
        "V4": "One poison record of ten: nine succeed",
        "V5": "Under 30 % throttling an operation ends once, or in a typed error",
        "V6": "No new write near the deadline",
    },
}
_NAMED = re.compile(r"test_((?:[AaWwSsDdEeTtVv]\d_(?:to_|and_)?)+)")
_SPAN = re.compile(r"([A-Z])(\d)(?:_TO_[A-Z](\d))?")


def properties_of(name: str) -> Iterator[str]:
    """The properties that a test names, spans written out."""
    match = _NAMED.match(name)
    if match is None:
        return
    for letter, first, last in _SPAN.findall(match[1].upper()):
        yield from (f"{letter}{number}" for number in range(int(first), int(last or first) + 1))


def tests_of() -> dict[str, list[tuple[str, str]]]:
    """Property -> (file, test) of each test that names it."""
    result = defaultdict[str, list[tuple[str, str]]](list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for name in properties_of(node.name):
                    result[name].append((path.relative_to(ROOT).as_posix(), node.name))
    return result


def page() -> str:
    """docs/contributing/properties.md. `ValueError` when a property has no test, or a test names none that there is."""
    result, known = tests_of(), {name for group in PROPERTIES.values() for name in group}
    if wrong := known ^ set(result):
        raise ValueError(f"a property without a test, or a test without a property: {', '.join(sorted(wrong))}")
    lines = [
        "# What must hold",
        "",
        "<!-- Generated by `make docs` from the names of the tests; do not edit. -->",
        "",
        "Each property, how many tests show it, and the file of the first one. They run on SQLite and on moto where that makes a",
        "difference. All of one: `.venv/bin/python -m pytest -q -k test_d2`.",
    ]
    for title, group in PROPERTIES.items():
        lines += ["", f"## {title}", "", "| | must hold | tests | first |", "|---|---|---:|---|"]
        for name, statement in group.items():
            tests = result[name]
            lines.append(f"| {name} | {statement} | {len(tests)} | {_link(*tests[0])} |")
    return "\n".join([*lines, ""])


def _link(path: str, name: str) -> str:
    """Return a link to a test's file, called as the file is."""
    return f"[{Path(path).stem.removeprefix('test_')}](../../{path})"
