"""Exports that were forged with care: hashes, sizes and manifest are right, and one value is not.

A chain of hashes is no signature. Such a file is refused, or what it made is used without an error that has no type, and
the owner's other sessions are listed.
"""

from __future__ import annotations

import copy
import io
import json
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeAlias

import pytest

from tests.effort import is_full
from tests.support.exports import zipped
from tests.support.forged_exports import forged, held_payloads, lines, world
from turnlog import Turnlog
from turnlog.core.errors import InvalidInputError, TurnlogError
from turnlog.core.json_values import encode_json

Path: TypeAlias = tuple[str | int, ...]
PARTS = 8
ONE_OF = 72
"""In `make pr` so few of the forgeries are tried."""
_DEEPEST = 7
VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 7, 10**12, 10**15, 2**63, -(2**63), 1.5, "", "x", "9" * 30, "\ud83d"),
    *([], ["x"], [1], [None], [[1, 2]], {}, {"x": 1}, {"role": {"x": []}}),
)
HEADER_VALUES = (*VALUES, "1 2", "9 9 9", "1 2 3 4", "-1 -1", "0-5 3", "1-2-3", "~ 1")
BYTES = ("", "00", "ff" * 6, "ff" * 10, "00" * 32, "7b" * 40)


# ------------------------------------------------------------ the session


# ------------------------------------------------------------ the forgeries


def _paths(value: Any, above: Path = ()) -> Iterator[Path]:
    yield above
    if len(above) < _DEEPEST:
        inner = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
        for name, item in inner:
            yield from _paths(item, (*above, name))


@cache
def places() -> list[tuple[int, Path]]:
    """One commit and path for each kind of value in the log."""
    result = dict[object, tuple[int, Path]]()
    for at, line in enumerate(lines()):
        for path in _paths(line):
            if len(path) < 2 or path[0] == "position":
                continue
            of = line["events"][path[1]]["k"] if path[0] == "events" else ""
            kinds = tuple(item if isinstance(item, str) and "~" not in item else 0 for item in path)
            result.setdefault((of, kinds, path[0] == "header" and at == len(lines()) - 1), (at, path))
    return list(result.values())


def _values(path: Path) -> tuple[Any, ...]:
    return BYTES if path[0] == "bytes" else HEADER_VALUES if path[0] == "header" else VALUES


def _with(at: int, path: Path, value: Any) -> Callable[[list[dict[str, Any]]], None]:
    def change(changed: list[dict[str, Any]]) -> None:
        place: Any = changed[at]
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = copy.deepcopy(value)

    return change


def _without(at: int, path: Path) -> Callable[[list[dict[str, Any]]], None]:
    def change(changed: list[dict[str, Any]]) -> None:
        place: Any = changed[at]
        for name in path[:-1]:
            place = place[name]
        del place[path[-1]]

    return change


def forgeries(part: int) -> Iterator[tuple[str, Callable[[list[dict[str, Any]]], None]]]:
    for at, path in places():
        changes = [(f"{at} {path} = {value!r}"[:200], _with(at, path, value)) for value in _values(path)]
        for name, change in [*changes, (f"{at} {path} gone", _without(at, path))]:
            number = zlib.crc32(name.encode("utf-8", "surrogatepass"))
            if number % PARTS == part and (is_full() or number // PARTS % ONE_OF == 0):
                yield name, change


def _uses(log: Turnlog) -> Iterator[tuple[str, Callable[[], object]]]:
    """All that can be done with a session, what changes it last."""
    session = log.sessions.of("x")
    yield "info", session.info
    yield "list", lambda: list(log.sessions.list())
    yield "messages", lambda: list(session.messages())
    yield "in view", lambda: list(session.messages(in_view=True))
    for policy in ("default", "run_loops", "classic", "full"):
        yield policy, lambda policy=policy: session.context(policy=policy, budget=6_000)
    yield "another format", lambda: session.context(format="anthropic")
    yield "before", lambda: session.context(at=9)
    yield "state", session.state
    yield "state before", lambda: session.state(at=9)
    yield "agent", session.agent
    yield "history", lambda: list(session.history())
    yield "loops", lambda: list(session.loops())
    yield "summary", session.summary
    yield "search", lambda: session.search("there")
    yield "search everywhere", lambda: log.search("there")
    yield "recall", lambda: session.recall("5.0")
    yield "diff", lambda: session.diff(3)
    yield "replay", session.replay
    yield "append", lambda: session.append({"role": "user", "content": "more"}, {"role": "assistant", "content": "ok"})
    yield "patch", lambda: session.patch_state({"a": 2})
    yield "patch an agent", lambda: session.patch_agent({"iteration": 10})
    yield "decide", lambda: session.decide_pending("approve")
    yield "update", lambda: session.update(title="Mine")
    yield "compress", lambda: session.compress(keep_loops=0)
    yield "snapshot", lambda: session.create_snapshot("n", kind="full")
    yield "restore", lambda: session.restore_snapshot("n", session_id="z")
    yield "rewind", lambda: session.rewind(3)
    yield "fork", lambda: session.fork("y")
    yield "export", lambda: session.export(io.BytesIO())
    yield "jobs", log.run_jobs
    yield "redact", lambda: session.redact(2)
    yield "end", session.end
    yield "reset", session.reset
    yield "list again", lambda: list(log.sessions.list())
    yield "erase", session.erase
    yield "jobs again", log.run_jobs


@pytest.mark.parametrize("part", range(PARTS))
def test_a_forged_export_is_refused_or_what_it_made_can_be_used(part: int) -> None:
    taken, refused, untyped = 0, 0, list[str]()
    for name, change in forgeries(part):
        with Turnlog.open("memory://") as log:
            log.sessions.create("mine")
            try:
                log.sessions.import_(io.BytesIO(forged(change)), session_id="x")
            except TurnlogError:
                refused += 1
            except Exception as error:
                untyped.append(f"import, {name}: {error!r}"[:300])
                continue
            else:
                taken += 1
                for use, do in _uses(log):
                    try:
                        do()
                    except TurnlogError:
                        continue
                    except Exception as error:
                        untyped.append(f"{use}, {name}: {error!r}"[:300])
            assert "mine" in [item.session_id for item in log.sessions.list()], name
    assert not untyped, "\n".join(untyped)
    assert taken > 0 and refused > 0


def _payload(changed: list[dict[str, Any]]) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return the place of the first payload, what it holds, and the event that names it."""
    line = next(line for line in changed if line.get("payloads"))
    place, event = next(held_payloads(line))
    return place, line["payloads"], event


def _other_text(value: Any) -> Any:
    """Return JSON of the same length in which one letter is another one."""
    text = json.dumps(value)
    at = text.index("there")
    return json.loads(text[:at] + "w" + text[at + 1 :])


def _taken(data: bytes) -> None:
    with Turnlog.open("memory://") as log:
        log.sessions.import_(io.BytesIO(data), session_id="x")


def test_a_payload_of_the_same_length_is_refused() -> None:
    """The chain of hashes has a payload's digest and size, not its bytes."""
    result, changed = world(), copy.deepcopy(lines())
    place, payloads, _ = _payload(changed)
    before, payloads[place] = payloads[place], _other_text(payloads[place])
    assert len(encode_json(payloads[place])) == len(encode_json(before)) and payloads[place] != before
    log = b"".join(json.dumps(line).encode() + b"\n" for line in changed)
    with pytest.raises(InvalidInputError, match="not the one its commit names"):
        _taken(zipped({**result, "sessions/s/log.jsonl": log}))


@pytest.mark.parametrize("change", ["longer", "shorter", "another digest"])
def test_a_payload_that_its_event_says_wrong_is_refused(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every hash of the file is right; the event's size or digest is of another payload."""

    def forge(changed: list[dict[str, Any]]) -> None:
        _, _, event = _payload(changed)
        place, size, digest = event["@"]
        event["@"] = {
            "longer": [place, size + 1, digest],
            "shorter": [place, size - 1, digest],
            "another digest": [place, size, digest[::-1]],
        }[change]

    monkeypatch.setattr("tests.support.forged_exports._held_again", lambda line: iter(()))
    with pytest.raises(InvalidInputError, match="not the one its commit names"):
        _taken(forged(forge))


@pytest.mark.parametrize("change", ["one more", "one less"])
def test_payloads_that_no_event_names_are_refused(change: str) -> None:
    result, changed = world(), copy.deepcopy(lines())
    place, payloads, _ = _payload(changed)
    if change == "one more":
        payloads[place[:-2] + "77"] = payloads[place]
    else:
        del payloads[place]
    log = b"".join(json.dumps(line).encode() + b"\n" for line in changed)
    with pytest.raises(InvalidInputError, match="payload"):
        _taken(zipped({**result, "sessions/s/log.jsonl": log}))


def test_what_is_not_forged_is_taken() -> None:
    with Turnlog.open("memory://") as log:
        (made,) = log.sessions.import_(io.BytesIO(forged(lambda changed: None)), session_id="x")
        assert made.status == "imported"
        for use, do in _uses(log):
            try:
                do()
            except TurnlogError as error:
                assert use in ("decide", "recall", "agent"), f"{use}: {error!r}"


@pytest.mark.parametrize("position", [None, -1, 1.5, "2", ["x"], {"x": 1}, 10**12])
def test_a_redaction_of_no_earlier_message_is_refused(position: Any) -> None:
    def forge(changed: list[dict[str, Any]]) -> None:
        events = (event for line in changed for event in line["events"])
        redaction = next(event for event in events if event.get("a") == "redact")
        redaction["md"]["position"] = position

    with pytest.raises(InvalidInputError, match="does not lie before it"):
        _taken(forged(forge))
