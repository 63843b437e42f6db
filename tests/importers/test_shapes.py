"""Each shape of a source: all of it is kept, in order, and said in windows as it was said there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import DATA, ROOT
from tests.effort import examples
from tests.importers.reading import (
    CODING,
    CODING_ID,
    DOCUMENT,
    FLAT,
    JSON,
    copied,
    held,
    imported_twice,
    lost,
    sample,
    statuses,
    told,
    written,
)
from turnlog.client.model import Turnlog
from turnlog.core.errors import InvalidInputError
from turnlog.core.json_values import encode_json
from turnlog.core.times import milliseconds_of, rfc3339
from turnlog.importers import SHAPES, NewerSourceError, UnknownSourceError, import_files, shape_of
from turnlog.importers.models import SourceFile, SourceMessage
from turnlog.importers.writing import EARLIER_BODY_BYTES, fitted
from turnlog.linter.rules import FORMATS as LINTED


@pytest.fixture
def log() -> Iterator[Turnlog]:
    """What depends on no engine; what does asks for the harness."""
    with Turnlog.open("memory://") as made:
        yield made


def test_a_flat_list_is_kept_whole_with_its_times(harness: Any) -> None:
    log = harness.log()
    report = imported_twice(log, FLAT)
    assert statuses(report) == ["new"] and report.sessions[0].shape == "flat"
    session = log.sessions.get("travel-7")
    messages = list(session.messages())
    given = sample(FLAT)["messages"]
    assert [message.body["role"] for message in messages] == [*(item["kind"] for item in given), "assistant"]
    assert [message.body["content"] for message in messages[:-1]] == [item.get("content") for item in given]
    assert messages[0].created_at == "2025-11-21T00:00:01.000Z" and messages[0].id == "m-1"
    calls = messages[1].body["tool_calls"]
    assert [call["function"]["arguments"] for call in calls] == [call["input"] for call in given[1]["toolCalls"]]
    assert [message.status for message in messages] == ["complete"] * 6 + ["interrupted"]
    assert lost(sample(FLAT), [session]) == []
    window = session.context(format="openai_chat")
    assert window.messages[0]["content"].startswith("You book trains.") and "I am book" not in json.dumps(
        window.messages
    )


def test_what_the_model_was_sent_last_is_told_as_a_time_and_a_position(log: Turnlog) -> None:
    import_files(log, [FLAT]).check()
    session = log.sessions.get("travel-7")
    imported = (session.info().metadata or {})["imported"]
    assert imported["last_sent_at"] == "2025-11-21T00:00:04.500Z"
    seen = [message.created_at <= imported["last_sent_at"] for message in session.messages()]
    assert [message.position <= imported["last_sent_position"] for message in session.messages()] == seen
    info = session.info()
    assert (info.last_sent_at, info.last_sent_position) == (imported["last_sent_at"], imported["last_sent_position"])
    window = session.context()
    session.append({"role": "assistant", "content": "x"}, window=window)
    assert session.info().last_sent_position == window.head, "a window of ours was sent"


@pytest.mark.every_engine
def test_an_imported_session_has_the_times_of_its_source(harness: Any, tmp_path: Path) -> None:
    log = harness.log()
    times = {"created_at": "2025-01-02T03:04:05Z", "updated_at": "2025-02-02T03:04:05.5Z"}
    own = {**sample(DOCUMENT), "id": "own", **times}
    none = {name: value for name, value in sample(DOCUMENT).items() if name not in times} | {"id": "none"}
    report = import_files(log, [written(tmp_path, "two.json", [own, none])]).check()
    stamps = [item["timestamp"] for item in none["history"]]
    expected = {"own": [rfc3339(milliseconds_of(time)) for time in times.values()]}
    assert [(row.first_at, row.last_at) for row in report.sessions] == [(stamps[0], stamps[-1])] * 2
    expected["none"] = [rfc3339(milliseconds_of(time)) for time in (stamps[0], stamps[-1])]
    for session_id, (created_at, updated_at) in expected.items():
        session = log.sessions.get(session_id)
        assert (session.info().created_at, session.info().updated_at) == (created_at, updated_at)
        assert [info.created_at for info in log.sessions.list() if info.session_id == session_id] == [created_at]
        assert session.fork().info().created_at != created_at, "a fork was created here"
        session.append({"role": "user", "content": "later"})
        assert session.info().created_at == created_at and session.info().updated_at != updated_at


def test_a_flat_list_may_be_messages_alone_and_one_file_may_have_many(log: Turnlog, tmp_path: Path) -> None:
    alone = written(tmp_path, "alone.json", sample(FLAT)["messages"])
    many = written(tmp_path, "many.json", [{**sample(FLAT), "id": name} for name in ("a", "b")])
    lines = written(
        tmp_path, "more.jsonl", [json.dumps({**sample(FLAT), "id": "c"}), json.dumps(sample(FLAT) | {"id": 7})]
    )
    report = import_files(log, [alone, many, lines]).check()
    assert [session.session_id for session in report.sessions] == ["alone", "a", "b", "c", "7"]
    assert [session.messages for session in report.sessions] == [6, 7, 7, 7, 7]


def test_a_session_document_is_kept_whole_with_its_state(harness: Any) -> None:
    log = harness.log()
    report = imported_twice(log, DOCUMENT)
    assert statuses(report) == ["new"] and report.sessions[0].shape == "document"
    session = log.sessions.get("s-1")
    assert session.state().state == sample(DOCUMENT)["state"]
    assert (session.info().metadata or {})["team"] == "north"
    assert lost(sample(DOCUMENT), [session]) == []
    window = session.context(format="openai_chat")
    roles = [message["role"] for message in window.messages if message["role"] != "system"]
    assert roles == ["user", "assistant", "tool", "assistant"]
    assert [message.created_at for message in session.messages()] == [
        item["timestamp"] for item in sample(DOCUMENT)["history"]
    ]


def test_a_text_that_is_no_time_stays_in_the_metadata(log: Turnlog, tmp_path: Path) -> None:
    document = sample(DOCUMENT)
    document["history"][0]["timestamp"] = "yesterday"
    row = import_files(log, [written(tmp_path, "a.json", document)]).check().sessions[0]
    assert [warning.reason for warning in row.warnings] == ["time_not_read"]
    assert lost(document, [log.sessions.get("s-1")]) == []


@pytest.mark.parametrize("version", [2, 17, "1", True, -1, 1.5])
def test_a_document_of_a_newer_version_is_refused_by_name_and_the_others_are_imported(
    log: Turnlog, tmp_path: Path, version: Any
) -> None:
    documents = [{**sample(DOCUMENT), "version": 0}, {**sample(DOCUMENT), "id": "s-2", "version": version}]
    path = written(tmp_path, "two.json", documents)
    report = import_files(log, [path])
    assert [(session.session_id, session.status) for session in report.sessions] == [("s-1", "new"), ("s-2", "refused")]
    with pytest.raises(NewerSourceError, match=f"'s-2' has version '{version}'; the newest we read is 1"):
        report.check()
    assert [item.session_id for item in log.sessions.list()] == ["s-1"]


def test_a_coding_agents_log_is_kept_line_by_line(harness: Any) -> None:
    log = harness.log()
    report = imported_twice(log, CODING)
    assert [(session.session_id, session.messages) for session in report.sessions] == [
        (CODING_ID, 6),
        (f"{CODING_ID}-a2018e5", 2),
    ]
    main, agent = (log.sessions.get(session.session_id) for session in report.sessions)
    answer = list(main.messages())[1]
    assert [block["type"] for block in answer.body["content"]] == ["thinking", "text", "tool_use", "tool_use"]
    assert [loop.first for loop in main.loops()] == [7, 2]
    lines = [
        json.loads(line) for line in CODING.read_text("utf-8").splitlines() if line.startswith('{"') and line[-1] == "}"
    ]
    assert lost(lines, [main, agent]) == []
    assert [item.reason for item in report.sessions[0].skipped].count("malformed") == 2
    assert "cut off" in json.dumps(held(main)) and "Kept by hand" in json.dumps(held(main))
    for format in LINTED:
        window = main.context(format=format)
        assert log.lint(window.messages, format=format).problems == []


def line(message: Any, **fields: Any) -> str:
    """A line of a coding agent's log."""
    return json.dumps({"type": "assistant", "sessionId": "s-1", "uuid": "u", "message": message, **fields})


@pytest.mark.parametrize(
    "message",
    [
        None,
        "text",
        {"content": "no role"},
        {"role": "system", "content": "hm"},
        {"role": "user"},
        {"role": "user", "content": {"text": "hm"}},
        {"role": "user", "content": ["hm"]},
        {"role": "user", "content": [{"text": "no type"}]},
    ],
)
def test_a_line_that_holds_no_message_is_kept_beside_the_next_one(log: Turnlog, tmp_path: Path, message: Any) -> None:
    lines = [line(message, uuid="odd"), line({"role": "user", "content": "hi"})]
    (row,) = imported_twice(log, written(tmp_path, "s-1.jsonl", lines)).sessions
    assert [(item.place, item.reason) for item in row.skipped] == [("line 1", "no_message: assistant")]
    nameless = written(tmp_path, "nameless.jsonl", [line({"role": "user", "content": "hi"}, sessionId=7)])
    assert import_files(log, [nameless]).sessions[0].session_id == "nameless"
    (stored,) = log.sessions.get("s-1").messages()
    assert (stored.body, stored.id) == ({"role": "user", "content": "hi"}, "u")
    assert [line["uuid"] for line in (stored.metadata or {})["imported"]["lines"]] == ["odd", "u"]


def test_lines_of_another_session_are_imported_with_a_warning(log: Turnlog, tmp_path: Path) -> None:
    message = {"role": "user", "content": "hi"}
    lines = [line(message, sessionId=name, uuid=str(at)) for at, name in enumerate(("s-2", "s-1", "s-2", "s-1"))]
    (row,) = imported_twice(log, written(tmp_path, "s-1.jsonl", lines)).sessions
    assert (row.session_id, row.messages) == ("s-1", 4)
    assert ("line 1", "other_session: s-2") in [(item.place, item.reason) for item in row.warnings]


def test_neighbouring_lines_of_one_answer_are_one_message_which_ends_as_its_last_line_says(
    log: Turnlog, tmp_path: Path
) -> None:
    def answer(text: str, reason: str | None, **fields: Any) -> str:
        content = [{"type": "text", "text": text}]
        return line({"id": "m", "role": "assistant", "content": content, "stop_reason": reason}, uuid=text, **fields)

    lines = [
        answer("a", "tool_use"),
        answer("b", "end_turn"),
        answer("c", None),
        line({"id": "m", "role": "user", "content": "d"}, uuid="d", type="user"),
        answer("e", "stop", isSidechain=True),
        *(line({"role": "user", "content": "n"}, uuid=str(name), isSidechain=True, agentId=name) for name in ("", 7)),
        line({"role": "user", "content": "f"}, uuid="f", isSidechain=True, agentId="x"),
        line({"role": "user", "content": "g"}, uuid="g"),
        line({"role": "user", "content": "h"}, uuid="h", isSidechain=False),
    ]
    report = imported_twice(log, written(tmp_path, "other.jsonl", lines))
    sessions = {
        session.session_id: list(log.sessions.get(session.session_id).messages()) for session in report.sessions
    }
    assert {name: [(item.id, item.finish_reason) for item in stored] for name, stored in sessions.items()} == {
        "s-1": [("a", "end_turn"), ("d", None), ("h", None)],
        "s-1-sidechain": [("e", "stop"), (None, None), ("7", None)],
        "s-1-x": [("f", None), ("g", None)],
    }
    assert [block["text"] for block in sessions["s-1"][0].body["content"]] == ["a", "b", "c"]


@pytest.mark.parametrize("length", [0, 1, 128, 129])
def test_an_id_that_no_message_may_have_stays_in_the_metadata(log: Turnlog, tmp_path: Path, length: int) -> None:
    name = "x" * length
    message = {"role": "assistant", "content": "a", "stop_reason": name}
    paths = [
        written(tmp_path, "flat.json", {"id": "flat", "messages": [{"kind": "user", "content": "a", "id": name}]}),
        written(tmp_path, "document.json", {"id": "document", "history": [{"role": "user", "text": "a", "id": name}]}),
        written(tmp_path, "s-1.jsonl", [line(message, uuid=name)]),
    ]
    stored = [
        next(iter(log.sessions.get(row.session_id).messages())) for row in import_files(log, paths).check().sessions
    ]
    kept = name if 0 < length <= 128 else None
    assert [item.id for item in stored] == [kept] * 3 and stored[2].finish_reason == kept
    assert all(kept or f'"{name}"' in json.dumps(item.metadata) for item in stored)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # files that the loader leaves open
def test_real_logs_of_coding_agents_are_kept_whole(real_data: ModuleType, tmp_path: Path) -> None:
    for path in sorted((DATA / "dev" / "session-share").rglob("*.jsonl")):
        with Turnlog.open("memory://") as log:
            report = import_files(log, [path]).check()
            sessions = [
                log.sessions.get(session.session_id) for session in report.sessions if session.status != "skipped"
            ]
            bodies = [message.body for session in sessions for message in session.messages()]
            (known,) = list(real_data.load_file(str(path)))
            calls = [
                b["id"] for body in bodies for b in body["content"] if isinstance(b, dict) and b["type"] == "tool_use"
            ]
            assert calls == [call["id"] for message in known["messages"] for call in message.get("tool_calls") or []]
            lines = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.startswith("{")]
            assert lost(lines, sessions) == []
            assert import_files(log, [path]).written == 0


def test_each_sample_is_recognised_as_what_it_is_and_nothing_else() -> None:
    ours = ROOT / "examples" / "conversations"
    others = [(path, "messages") for path in sorted(ours.iterdir())]
    for path, name in ((FLAT, "flat"), (DOCUMENT, "document"), (CODING, "coding_agent"), *others):
        assert [shape.name for shape in SHAPES if shape.recognises(SourceFile(path))] == [name]
    assert shape_of(SourceFile(Path(__file__))) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "null",
        '{"messages": []}',
        '{"messages": [7]}',
        '[["hi"]]',
        "\x00",
        "a\nb",
        '{"history": 1, "id": 2}',
    ],
)
def test_a_file_without_a_shape_is_refused_by_name(log: Turnlog, tmp_path: Path, text: str) -> None:
    path = tmp_path / "what.json"
    path.write_text(text, "utf-8")
    with pytest.raises(UnknownSourceError, match=r"what\.json' is none of: "):
        import_files(log, [path])
    (row,) = import_files(log, [tmp_path]).sessions
    if text in ("", "\x00", "a\nb"):
        assert (row.status, row.skipped) == ("refused", []), "its name says that it is JSON, and it is not"
        assert isinstance(row.error, UnknownSourceError)
    else:
        assert (row.status, [item.reason for item in row.skipped]) == ("skipped", ["unknown_source"])
    path.rename(tmp_path / "what.txt")
    assert [row.status for row in import_files(log, [tmp_path]).sessions] == ["skipped"]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'{"messages": [], "messages": []}', "an object has the key 'messages' twice"),
        (b'{"kind": NaN}', "NaN is not JSON"),
        (b'{"a": [1,\n2', "it is not JSON: Expecting ',' delimiter at line 2 column 2"),
        (b"\xff\xfe", "is not UTF-8 at byte 0"),
    ],
)
def test_a_file_that_is_no_json_is_refused_with_what_is_wrong(
    log: Turnlog, tmp_path: Path, data: bytes, why: str
) -> None:
    path = tmp_path / "what.json"
    path.write_bytes(data)
    with pytest.raises(UnknownSourceError, match=re.escape(why)):
        import_files(log, [path])


def test_json_lines_of_no_known_shape_are_not_said_to_be_no_json(log: Turnlog, tmp_path: Path) -> None:
    path = tmp_path / "what.jsonl"
    path.write_text('{"history": 1}\n7')
    with pytest.raises(UnknownSourceError, match="what") as raised:
        import_files(log, [path])
    assert "JSON:" not in str(raised.value)


def test_a_shape_may_be_named_and_must_be_the_files(log: Turnlog, tmp_path: Path) -> None:
    assert statuses(import_files(log, [FLAT], shape="flat")) == ["new"]
    with pytest.raises(UnknownSourceError, match="flat message lists"):
        import_files(log, [DOCUMENT], shape="flat")
    with pytest.raises(UnknownSourceError, match="no shape 'nothing'; there are "):
        import_files(log, [FLAT], shape="nothing")
    with pytest.raises(InvalidInputError, match="no file"):
        import_files(log, [tmp_path / "nowhere"])


def test_an_id_that_we_do_not_take_is_replaced_by_one_that_is_always_the_same(log: Turnlog, tmp_path: Path) -> None:
    path = written(tmp_path, "odd.json", {**sample(FLAT), "id": "user/1: ☃"})
    report = imported_twice(log, path)
    assert [warning.reason for warning in report.sessions[0].warnings][:1] == ["id_made"]
    info = log.sessions.get(report.sessions[0].session_id).info()
    assert (info.metadata or {})["imported"]["id"] == "user/1: ☃"


def test_a_message_over_the_limit_is_cut_and_said_to_be(
    log: Turnlog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a smaller limit than an append has; an import by today's finds what that one stored."""
    monkeypatch.setattr(fitted, "__defaults__", (EARLIER_BODY_BYTES,))
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 300_000}}
    deep: Any = "bottom"
    for _ in range(29):
        deep = [deep]
    flat = {
        "id": "big",
        "messages": [
            {"kind": "user", "content": "x" * 1_500_000},
            {"kind": "user", "content": [{"type": "text", "text": "see"}, picture]},
            {"kind": "assistant", "content": "fine", "raw": deep, "dump": "y" * 3_000_000},
        ],
    }
    report = imported_twice(log, written(tmp_path, "big.json", flat))
    changes = [(item.place, item.reason) for item in report.sessions[0].changed]
    assert [(place, reason.split(" ")[0]) for place, reason in changes] == [
        ("message 1", "cut"),
        ("message 2", "cut"),
        ("message 3", "as_text"),
        ("message 3", "cut"),
    ]
    bodies = [message.body for message in log.sessions.get("big").messages()]
    assert bodies[0]["content"].endswith("[1,499,000 characters left out by the import]")
    assert [part["type"] for part in bodies[1]["content"]] == ["text", "text"]
    assert all(len(encode_json(body)) <= EARLIER_BODY_BYTES for body in bodies)
    monkeypatch.undo()
    assert import_files(log, [tmp_path / "big.json"]).sessions[0].status == "same"


def nested(levels: int, bottom: str) -> str:
    """A JSON text, because Python's own encoder ends at its limit of recursion."""
    return '{"a":' * levels + bottom + "}" * levels


def called(text: str) -> list[str]:
    """Lines of a coding agent's log whose call has this JSON as its input."""
    call = {"type": "tool_use", "id": "c", "name": "f", "input": "?"}
    result = {"type": "tool_result", "tool_use_id": "c", "content": "the result"}
    messages = {"1": ("user", "hi"), "2": ("assistant", [call]), "3": ("user", [result])}
    rows = [line({"role": role, "content": content}, uuid=uuid) for uuid, (role, content) in messages.items()]
    return [row.replace('"?"', text) for row in rows]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (nested(30, '"bottom"'), "/a" * 25),
        (nested(195, f"[{2**70}]"), "/a" * 25),
        (nested(1, str(2**64)), "/a"),
        (nested(1, f"[{2**64 - 1},{-(2**63) - 1}]"), "/a/1"),
        (nested(1, "9" * 4_000), "/a"),
    ],
    ids=["deep", "very deep", "wide", "wide and negative", "very wide"],
)
def test_json_that_the_log_cannot_hold_becomes_text_and_is_told(
    log: Turnlog, tmp_path: Path, text: str, place: str
) -> None:
    (row,) = imported_twice(log, written(tmp_path, "s-1.jsonl", called(text))).sessions
    assert (row.messages, row.skipped, row.warnings) == (3, [], [])
    assert [(note.place, note.reason) for note in row.changed] == [("line 2", f"as_text /content/0/input{place}")]
    stored = list(log.sessions.get("s-1").messages())[1].body["content"][0]["input"]
    source = json.loads(text)
    for step in place.split("/")[1:]:
        stored, source = (value[int(step) if step.isdigit() else step] for value in (stored, source))
    assert isinstance(stored, str) and json.loads(stored) == source
    assert "the result" in json.dumps(log.sessions.get("s-1").context().messages)


@pytest.mark.parametrize(
    "text",
    [nested(200, "1"), nested(100_000, "1"), "[" * 100_000, "9" * 5_000, "1e999"],
    ids=["too deep", "absurdly deep", "never closed", "too wide", "too large"],
)
def test_a_line_beyond_all_measure_is_skipped_and_kept_as_text(log: Turnlog, tmp_path: Path, text: str) -> None:
    (row,) = imported_twice(log, written(tmp_path, "s-1.jsonl", called(text))).sessions
    assert [(note.place, note.reason) for note in row.skipped] == [("line 2", "malformed")]
    assert row.messages == 2 and text in str(list(log.sessions.get("s-1").messages())[1].metadata)


def test_a_session_keeps_what_the_log_cannot_hold_of_its_state_and_other_fields(log: Turnlog, tmp_path: Path) -> None:
    deep = nested(40, "7")
    history = f'[{{"role":"user","text":"hi","n":{2**64}}}]'
    fields = f'"state":{deep},"metadata":{{"n":{2**64}}},"more":{deep},"history":{history}'
    (tmp_path / "d.json").write_text(f'{{"id":"d",{fields}}}')
    tools = f'"tools":[{{"name":"f","parameters":{deep}}}]'
    (tmp_path / "m.json").write_text(f'{{"id":"m",{tools},"messages":[{{"role":"user","content":"hi"}}]}}')
    (tmp_path / "f.json").write_text(
        f'{{"id":"f","messages":[{{"kind":"assistant","toolCalls":[{{"input":{deep}}}]}}]}}'
    )
    notes = {
        row.session_id: [note.reason for note in row.changed]
        for name in "dmf"
        for row in imported_twice(log, tmp_path / f"{name}.json").check().sessions
    }
    session = [f"as_text /state{'/a' * 31}", "as_text /metadata/n", f"as_text /extra/more{'/a' * 28}"]
    assert notes == {
        "d": ["as_text /metadata/imported/n", *session],
        "m": [f"as_text /settings/tools/0/parameters{'/a' * 28}"],
        "f": [],
    }
    assert nested(9, "7") in json.dumps(log.sessions.get("d").state().state).replace("\\", "")
    (message,) = log.sessions.get("f").messages()
    assert message.body["tool_calls"][0]["function"]["arguments"] == deep


def test_the_largest_are_cut_first_each_once_and_none_that_a_cut_makes_no_shorter() -> None:
    """Also when all cuts together are not enough: then the log refuses the message."""
    picture = {"type": "image", "source": {"data": "A" * 1_400}}
    texts = [{"type": "text", "text": "x" * size} for size in (1_000, 1_500, 1_300)]
    message = SourceMessage("message 1", {"role": "user", "content": [*texts, picture]})
    cut, changes = fitted(message, "anthropic", max_bytes=100)
    assert [(change.place, change.reason) for change in changes] == [
        ("message 1", f"cut /content/{at}{'' if at == 3 else '/text'}") for at in (1, 3, 2)
    ]
    x = "x" * 1_000
    notes = ["", *(f"\n[{count} characters left out by the import]" for count in (500, 300))]
    note = f"[image of {len(encode_json(picture)):,} bytes left out by the import]"
    assert [part["text"] for part in cut.body["content"]] == [*(x + text for text in notes), note]
    size = len(encode_json(message.body))
    assert fitted(message, "anthropic", max_bytes=size) == (message, ())
    once, changes = fitted(message, "anthropic", max_bytes=size - 1)
    assert [change.reason for change in changes] == ["cut /content/1/text"]
    assert [part == whole for part, whole in zip(once.body["content"], [*texts, picture], strict=True)].count(
        False
    ) == 1


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"kind": None},
        {"kind": "user"},
        {"kind": "tool"},
        {"kind": "wizard", "content": "hm"},
        {"kind": "user", "content": {"a": [1]}},
        {"kind": "user", "content": 7, "timestamp": "yesterday"},
        {"kind": "user", "content": "x", "timestamp": -1},
        {"kind": "assistant", "toolCalls": {"id": "c"}},
        {"kind": "assistant", "toolCalls": [{}, {"id": 3, "input": {"a": 1}}]},
        {"kind": "assistant", "toolCalls": [7]},
        {"kind": "user", "content": "x", "id": "", "imported": 1, "metadata": {"imported": 2}},
        7,
        None,
        "hm",
    ],
)
def test_disorder_in_a_flat_list_is_kept_and_told(tmp_path: Path, message: Any) -> None:
    source = {"id": "s", "systemMessage": 7, "messages": [{"kind": "user", "content": "hi"}, message]}
    with Turnlog.open("memory://") as log:
        imported_twice(log, written(tmp_path, "s.json", source))
        missing = lost(source, [log.sessions.get("s")])
        assert [item for item in missing if item is not None and not isinstance(item, int)] == []


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"role": "user"},
        {"role": "user", "text": ["a"], "metadata": 3},
        {"role": "tool", "tool_result": "42"},
        {"role": "tool", "tool_result": {"content": "a", "is_error": True}},
        {"role": "tool", "tool_result": [{"tool_call_id": "c1", "content": "a"}, {"content": "b", "took": "long"}]},
        {"role": "tool", "tool_result": [1]},
        {"role": "assistant", "tool_calls": 1},
        {"role": "assistant", "text": "x", "metadata": {"imported": "theirs"}, "more": "ours"},
        None,
    ],
)
def test_disorder_in_a_document_is_kept_and_told(tmp_path: Path, message: Any) -> None:
    source = {**sample(DOCUMENT), "state": ["odd"], "metadata": {"imported": "theirs too"}}
    source["history"] = [*source["history"], message]
    with Turnlog.open("memory://") as log:
        imported_twice(log, written(tmp_path, "s.json", source))
        missing = lost(source, [log.sessions.get("s-1")])
        assert [item for item in missing if item is not None and not isinstance(item, int)] == []


MESSAGE = st.dictionaries(
    st.sampled_from(["kind", "content", "toolCalls", "callId", "timestamp", "id", "role", "metadata"])
    | st.text(max_size=5),
    JSON | st.sampled_from(["user", "assistant", "tool"]) | st.integers(0, 2 * 10**12),
    max_size=6,
)


@settings(max_examples=examples(60), deadline=None)
@given(messages=st.lists(MESSAGE, min_size=1, max_size=4), extra=st.dictionaries(st.text(max_size=6), JSON, max_size=3))
def test_any_flat_list_is_imported_once_and_told_alike_dry(
    tmp_path_factory: pytest.TempPathFactory, messages: list[Any], extra: dict[str, Any]
) -> None:
    source = {**extra, "id": "s", "lastSentToLLMAt": "never", "messages": messages}
    path = written(tmp_path_factory.mktemp("any"), "s.json", source)
    with Turnlog.open("memory://") as log:
        dry, report = import_files(log, [path], dry_run=True), import_files(log, [path])
        assert told(dry) == told(report)
        if report.ok:
            assert report.written == len(messages) and import_files(log, [path]).written == 0
            missing = [item for item in lost(source, [log.sessions.get("s")]) if item is not None and item != ""]
            assert [item for item in missing if not (isinstance(item, int) and not isinstance(item, bool))] == []


@pytest.mark.parametrize(
    "call",
    [
        {"id": "c1", "name": "find", "input": {"a": 1}},
        {"id": "c1", "name": "find", "arguments": '{"a":1}'},
        {"id": "c1", "name": "find", "input": None, "args": {"a": 1}},
        {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"a":1}'}},
    ],
)
@pytest.mark.parametrize("names", [("content", "toolCalls", "callId"), ("text", "tool_calls", "tool_call_id")])
def test_a_flat_list_may_have_common_names_for_its_fields(tmp_path: Path, names: tuple[str, ...], call: Any) -> None:
    text, calls, call_id = names
    messages = [
        {"kind": "user", text: "q"},
        {"kind": "assistant", calls: [call]},
        {"kind": "tool", call_id: "c1", text: "r"},
    ]
    with Turnlog.open("memory://") as log:
        report = imported_twice(log, written(tmp_path, "flat.json", messages))
        assert report.sessions[0].warnings == []
        window = log.sessions.get("flat").context(format="openai_chat").messages
    function = {"name": "find", "arguments": '{"a":1}'}
    assert [message["content"] or "" for message in window] == ["q", "", "r"]
    assert window[1]["tool_calls"] == [{"id": "c1", "type": "function", "function": function}]
    assert window[2]["tool_call_id"] == "c1"


@pytest.mark.parametrize("text", ["text", "content"])
@pytest.mark.parametrize("arguments", ["args", "arguments", "input"])
@pytest.mark.parametrize("result", [("tool_call_id", "content"), ("id", "result"), ("call_id", "output")])
def test_a_document_may_have_common_names_for_its_fields(
    log: Turnlog, tmp_path: Path, text: str, arguments: str, result: tuple[str, str]
) -> None:
    history = [
        {"role": "user", text: "q"},
        {"role": "assistant", "tool_calls": [{"id": "c1", "name": "find", arguments: {"a": 1}}]},
        {"role": "tool", "tool_result": dict(zip(result, ("c1", "r"), strict=True))},
    ]
    report = imported_twice(log, written(tmp_path, "d.json", {"id": "d", "version": 1, "history": history}))
    assert report.sessions[0].warnings == []
    messages = [message.body for message in log.sessions.get("d").messages()]
    assert [message["content"] for message in messages] == ["q", None, None]
    assert messages[1]["tool_calls"] == [{"id": "c1", "name": "find", "args": {"a": 1}}]
    assert messages[2]["tool_results"] == [{"tool_call_id": "c1", "result": "r"}]


def test_a_message_without_a_kind_is_named_and_the_others_of_its_list_are_imported(
    log: Turnlog, tmp_path: Path
) -> None:
    messages = [{"kind": "user", "content": "a"}, {"content": "b"}, 5, {"kind": "robot", "content": "c"}]
    (row,) = imported_twice(log, written(tmp_path, "odd.json", messages)).sessions
    assert (row.status, row.written) == ("new", 3)
    places = {(item.place, item.reason) for item in (*row.warnings, *row.skipped)}
    assert {("message 2", "no_kind"), ("message 3", "not_an_object"), ("message 4", "unknown_role")} <= places
    roles = written(tmp_path, "roles.json", [*messages, {"role": "user", "content": "d"}])
    with pytest.raises(UnknownSourceError):
        import_files(log, [roles])


@pytest.mark.parametrize("shape", ["list", "object", "lines"])
def test_messages_of_gemini_are_no_source(log: Turnlog, tmp_path: Path, shape: str) -> None:
    messages = [{"role": "user", "parts": [{"text": "hi"}]}, {"role": "model", "parts": [{"functionCall": {}}]}]
    sources = {"list": messages, "object": {"messages": messages}, "lines": list(map(json.dumps, messages))}
    path = written(tmp_path, "gemini.jsonl" if shape == "lines" else "gemini.json", sources[shape])
    with pytest.raises(UnknownSourceError, match="OpenAI, Anthropic or Bedrock"):
        import_files(log, [path])
    typed = [{"id": "m", "role": "user", "parts": [{"type": "text", "text": "hi"}]}]
    assert statuses(import_files(log, [written(tmp_path, "ai-sdk.json", typed)])) == ["new"]


def test_names_of_files_are_told_in_reports(log: Turnlog, tmp_path: Path) -> None:
    path = copied(FLAT, tmp_path)
    assert [session.file for session in import_files(log, [tmp_path]).sessions] == [str(path)]
