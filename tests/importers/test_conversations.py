"""Messages of a provider's format, as people have them in files: each is kept as it stands there, whatever format it is in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import DATA, ROOT
from tests.effort import examples, is_full
from tests.importers.reading import JSON, imported_twice, lost, statuses, told, written
from turnlog import build_window
from turnlog.client.model import Turnlog
from turnlog.importers import import_files
from turnlog.importers.conversations import is_message, request_parts
from turnlog.linter.rules import FORMATS as LINTED
from turnlog.providers.registry import CODECS

SUPPORT = ROOT / "examples" / "conversations" / "support-agent.json"
CHAT = [
    {"role": "system", "content": "You book trains."},
    {"role": "user", "content": "A night train to Bergen?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"to": "Bergen"}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "NT-605, 23:03"},
    {"role": "assistant", "content": "NT-605 leaves at 23:03."},
]
TOOL = {"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture
def log() -> Iterator[Turnlog]:
    with Turnlog.open("memory://") as made:
        yield made


def bodies(log: Turnlog, session_id: str) -> list[dict[str, Any]]:
    return [message.body for message in log.sessions.get(session_id).messages()]


def test_a_conversation_is_kept_whole_with_its_tools_and_its_own_keys(harness: Any, tmp_path: Path) -> None:
    log = harness.log()
    source = {"id": "night trains", "messages": CHAT, "tools": [TOOL], "temperature": 0.2, "labels": ["night"]}
    report = imported_twice(log, written(tmp_path, "x.json", source))
    assert statuses(report) == ["new"] and report.sessions[0].shape == "messages"
    assert [warning.reason for warning in report.sessions[0].warnings] == ["id_made"]
    session = log.sessions.get(report.sessions[0].session_id)
    assert bodies(log, session.id) == CHAT and lost({**source, "tools": []}, [session]) == []
    assert (session.info().metadata or {})["imported"]["labels"] == ["night"]
    for format in LINTED:
        window = session.context(format=format, budget=10_000)
        assert log.lint(window.messages, format=format).problems == []
    assert TOOL in session.context(format="openai_chat", budget=10_000).tools


@pytest.mark.parametrize("format", sorted(CODECS))
def test_the_body_of_a_request_in_any_format_is_a_source(log: Turnlog, tmp_path: Path, format: str) -> None:
    given = json.loads(SUPPORT.read_text("utf-8"))
    window = build_window(given["messages"], format=format, tools=given["tools"], budget=10**6)
    fields = {"openai_responses": ("input", "instructions")}.get(format, ("messages", "system"))
    source: dict[str, Any] = {"model": "a-model", fields[0]: window.messages, fields[1]: window.system or None}
    if format == "bedrock_converse":
        source["toolConfig"] = {"tools": window.tools, "toolChoice": {"auto": {}}}
    else:
        source["tools"] = window.tools
    report = imported_twice(log, written(tmp_path, "request.json", source))
    assert [(session.status, session.messages) for session in report.sessions] == [("new", len(window.messages))]
    assert bodies(log, "request") == window.messages
    session = log.sessions.get("request")
    again = session.context(format=format, budget=10**6, policy="full")
    said = [message for message in again.messages if "recall_tool_call shows" not in str(message)]
    assert said == window.messages and (again.system or "").startswith(window.system or ""), "the same request again"
    assert [tool for tool in again.tools if tool in window.tools] == window.tools
    assert (session.info().metadata or {})["imported"]["model"] == "a-model"


@pytest.mark.parametrize(
    ("request_fields", "rest"),
    [
        ({"toolConfig": {"tools": [TOOL]}}, {}),
        ({"toolConfig": {"tools": [TOOL], "toolChoice": 1}}, {"toolConfig": {"toolChoice": 1}}),
        ({"toolConfig": {"toolChoice": 1}}, {"toolConfig": {"toolChoice": 1}}),
        ({"toolConfig": 1, "tools": [TOOL]}, {"toolConfig": 1}),
        ({"input": 1}, {"input": 1}),
    ],
)
def test_of_a_request_only_what_has_no_place_in_a_session_is_left(
    request_fields: dict[str, Any], rest: dict[str, Any]
) -> None:
    parts = request_parts({"messages": CHAT, **request_fields})
    assert (parts.messages, parts.rest) == (CHAT, rest)
    assert parts.tools == ([TOOL] if "tools" in str(request_fields) else None)


def test_blocks_of_system_text_are_kept_beside_it_when_they_say_more(log: Turnlog, tmp_path: Path) -> None:
    plain = {"type": "text", "text": "Be brief."}
    for name, block in (("plain", plain), ("marked", {**plain, "cache_control": {"type": "ephemeral"}})):
        source = {"id": name, "messages": CHAT[1:], "system": [plain, block]}
        import_files(log, [written(tmp_path, f"{name}.json", source)]).check()
        session = log.sessions.get(name)
        kept = (session.info().metadata or {})["imported"].get("system")
        assert kept == (source["system"] if name == "marked" else None)
        assert (session.context(format="anthropic").system or "").startswith("Be brief.\n\nBe brief.")


@pytest.mark.parametrize(
    ("value", "is_one"),
    [
        ({"role": "user"}, True),
        ({"content": "hi"}, True),
        ({"type": "function_call", "call_id": "c"}, True),
        ({"type": "shell_call_output"}, True),
        ({"type": "call"}, False),
        ({"type": 7}, False),
        ({"role": "user", "messages": []}, False),
        ("hi", False),
    ],
)
def test_a_message_has_a_role_a_content_or_the_type_of_an_item(value: Any, is_one: bool) -> None:
    assert is_message(value) is is_one


@pytest.mark.parametrize("name", ["lines.jsonl", "list.json", "lists.json", "input.json"])
def test_what_a_file_may_be(log: Turnlog, tmp_path: Path, name: str) -> None:
    source, wanted = {
        "lines.jsonl": ([json.dumps(item) for item in CHAT], {"lines": CHAT}),
        "list.json": (CHAT, {"list": CHAT}),
        "lists.json": ([CHAT, {"id": 7, "messages": CHAT[:2]}], {"lists-item-1": CHAT, "7": CHAT[:2]}),
        "input.json": ({"input": "hi", "id": "one"}, {"one": [{"role": "user", "content": "hi"}]}),
    }[name]
    report = imported_twice(log, written(tmp_path, name, source))
    assert {session.session_id: bodies(log, session.session_id) for session in report.sessions} == wanted


def test_a_file_that_grows_gives_what_is_new(log: Turnlog, tmp_path: Path) -> None:
    for count, status in ((2, "new"), (2, "same"), (4, "grown"), (5, "grown")):
        path = written(tmp_path, "agent.jsonl", [json.dumps(item) for item in CHAT[:count]])
        assert statuses(import_files(log, [path]).check()) == [status]
        assert bodies(log, "agent") == CHAT[:count]
    changed = [CHAT[0], {**CHAT[1], "content": "Another past"}, *CHAT[2:]]
    report = import_files(log, [written(tmp_path, "agent.jsonl", [json.dumps(item) for item in changed])])
    assert [(session.status, session.error.error_code) for session in report.sessions if session.error] == [
        ("refused", "source_changed")
    ]
    assert bodies(log, "agent") == CHAT


def test_a_line_that_a_killed_writer_has_left_is_kept_and_told(log: Turnlog, tmp_path: Path) -> None:
    path = written(tmp_path, "cut.jsonl", [*(json.dumps(item) for item in CHAT[:2]), '{"role": "assis'])
    report = imported_twice(log, path)
    assert [(item.place, item.reason) for item in report.sessions[0].skipped] == [("line 3", "malformed")]
    assert bodies(log, "cut") == CHAT[:2]
    assert '{"role": "assis' in str(log.sessions.get("cut").info().metadata)


@pytest.mark.parametrize(
    ("more", "told_as"),
    [
        ({"system": 7}, "system"),
        ({"system": [{"type": "image"}]}, "system"),
        ({"tools": "all"}, "tools"),
        ({"tools": [7]}, "tools"),
        ({"messages": [*CHAT, 7, None, "hm"]}, "message 6"),
        ({"system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]}, None),
        ({"imported": 1, "metadata": {"imported": 2}}, None),
    ],
)
def test_disorder_is_kept_and_told(log: Turnlog, tmp_path: Path, more: dict[str, Any], told_as: str | None) -> None:
    source = {"id": "s", "messages": CHAT, **more}
    (row,) = imported_twice(log, written(tmp_path, "s.json", source)).sessions
    assert bodies(log, "s") == CHAT
    places = {value.place for value in (*row.skipped, *row.warnings)}
    assert (told_as in places) if told_as else not places
    assert [
        item for item in lost(source, [log.sessions.get("s")]) if item is not None and not isinstance(item, int)
    ] == []


def test_a_message_that_the_log_does_not_take_refuses_its_session_and_no_other(log: Turnlog, tmp_path: Path) -> None:
    path = written(tmp_path, "two.json", [{"id": "a", "messages": [{"role": 7}]}, {"id": "b", "messages": CHAT}])
    report = import_files(log, [path])
    assert [(session.session_id, session.status) for session in report.sessions] == [("a", "refused"), ("b", "new")]
    assert [item.session_id for item in log.sessions.list()] == ["b"]


def test_a_text_is_one_path_not_one_for_each_letter(
    log: Turnlog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "a", [{"id": "a", "messages": CHAT}])
    (tmp_path / "b").mkdir()
    path = written(tmp_path, "b/ab", [{"id": "b", "messages": CHAT}])
    for paths in ("b/ab", path, "b"):
        assert [row.session_id for row in import_files(log, paths).sessions] == ["b"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # files that the loader leaves open
def test_real_conversations_are_kept_whole(log: Turnlog, real_data: ModuleType, tmp_path: Path) -> None:
    sources = [
        {"id": f"{at}", "messages": iter_session["messages"], "tools": iter_session.get("tools") or []}
        for at, iter_session in enumerate(real_data.iter_sessions(str(DATA / "dev")))
    ][:: 1 if is_full() else 4]
    path = written(tmp_path, "all.jsonl", [json.dumps(source) for source in sources])
    report = import_files(log, [path]).check()
    assert statuses(report) == ["new"] * len(sources)
    for source in sources:
        assert bodies(log, source["id"]) == source["messages"]
    assert import_files(log, [path]).written == 0


MESSAGE = st.dictionaries(
    st.sampled_from(["role", "content", "tool_calls", "tool_call_id", "type", "call_id", "arguments", "name"])
    | st.text(max_size=5),
    JSON | st.sampled_from(["user", "assistant", "tool", "system", "function_call", "message"]),
    max_size=6,
)


@settings(max_examples=examples(60), deadline=None)
@given(
    messages=st.lists(MESSAGE | JSON, min_size=1, max_size=4),
    extra=st.dictionaries(st.text(max_size=6), JSON, max_size=3),
)
def test_any_conversation_is_imported_once_and_told_alike_dry(
    tmp_path_factory: pytest.TempPathFactory, messages: list[Any], extra: dict[str, Any]
) -> None:
    source = {**extra, "id": "s", "messages": [{"role": "user", "content": "hi"}, *messages]}
    path = written(tmp_path_factory.mktemp("any"), "s.json", source)
    with Turnlog.open("memory://") as log:
        dry, report = (
            import_files(log, [path], shape="messages", dry_run=True),
            import_files(log, [path], shape="messages"),
        )
        assert told(dry) == told(report)
        if report.ok:
            taken = [message for message in source["messages"] if isinstance(message, dict)]
            assert bodies(log, "s") == taken and report.written == len(taken)
            assert import_files(log, [path], shape="messages").written == 0
