"""The recall tools as a model calls them: whatever it writes is an answer, what is appended pairs, and the history tells of it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.support.pictures import png
from tests.support.recalls import calls, filled, result, user
from tests.support.steps import application, fresh
from turnlog.client.model import Session, Turnlog
from turnlog.core.errors import InvalidInputError, UnavailableError
from turnlog.core.models import FORMATS
from turnlog.core.recall_calls import RECALL_TOOL, SEARCH_TOOL, ArgumentsError, parse_recall_request, ref_of
from turnlog.linter.rules import FORMATS as LINTED
from turnlog.providers.turnlog_format import media_of
from turnlog.testing.fixed import SequentialIds

OF_B = '3.1 f {"x": 1}\nresult, 1 line:\nof b'
SAME: list[Any] = [
    '{"ref": "3.1"}',
    {"ref": "3.1"},
    {"ref": 3.1},
    '{"ref": 3.1, "pattern": null, "from_line": null}',
    {"call_id": "b"},
    {"callId": "b"},
    {"tool_call_id": "b"},
    {"callID": "3.1"},
    {"id": "call_3_1"},
    {"ref": "ref 3.1"},
    {"ref": "[3.1]"},
    {"ref": '3.1 f {"x": 1}'},
    {"ref": ["3.1"]},
    {"refs": ["3.1"]},
    '{"arguments": {"ref": "3.1"}}',
    '{"arguments": "{\\"ref\\": \\"3.1\\"}"}',
    {"input": {"callId": "3.1"}},
    {"name": RECALL_TOOL, "arguments": {"ref": "3.1"}},
    {"function": {"name": RECALL_TOOL, "arguments": '{"ref": "3.1"}'}},
    [{"ref": "3.1"}],
    '"{\\"ref\\": \\"3.1\\"}"',
    '{"ref": "3.1\n"}',
    '```json\n{"ref": "3.1"}\n```',
    "{'ref': '3.1', 'pattern': None}",
    '{"ref": "3.1"}{"ref": "6.0"}',
    "3.1",
    '"3.1"',
    3.1,
]


@pytest.fixture
def here() -> Turnlog:
    """In memory: for what no engine has a part in."""
    return application(*fresh(lambda log: None)(), SequentialIds())


@pytest.fixture(scope="module")
def session() -> Session:
    return filled(application(*fresh(lambda log: None)(), SequentialIds()))


@pytest.mark.parametrize("arguments", SAME, ids=repr)
def test_what_a_model_means_is_understood(session: Session, arguments: Any) -> None:
    answer = session.execute_tool(RECALL_TOOL, arguments)
    assert (answer.text.partition("\n(other")[0], answer.is_error, answer.recalled) == (OF_B, False, ("3.1",))


@pytest.mark.parametrize(
    ("place", "ref"),
    [("3.1", "3.1"), ("call_3_1", "3.1"), ("call_03_1", None), ("call_3_1 ", None), ("toolu_1", None), ("", None)],
)
def test_an_id_that_was_made_of_a_ref_is_that_ref(place: str, ref: str | None) -> None:
    assert ref_of(place) == ref


def test_a_ref_ends_with_a_zero_where_the_model_wrote_it_as_a_number() -> None:
    assert parse_recall_request(RECALL_TOOL, '{"ref": 12.10}').places == ("12.10",)
    assert parse_recall_request(RECALL_TOOL, "12.10").places == ("12.10",)


@pytest.mark.parametrize(
    "part",
    [
        {"from_line": 2, "to_line": 3},
        {"fromLine": "2", "toLine": "3"},
        {"start_line": 2.0, "end_line": " 3 "},
        {"lines": "2-3"},
        {"lines": [2, 3]},
        {"fromLine": 2, "toLine": 3, "pattern": None, "pointer": "", "maxTokens": "900"},
    ],
)
def test_lines_are_chosen_however_they_are_named(session: Session, part: dict[str, Any]) -> None:
    assert session.execute_tool(RECALL_TOOL, {"ref": "3.0", **part}).text.split("\n")[2:] == [
        "line 2: 3dde",
        "line 3: 5ccd",
    ]


def test_a_pattern_a_pointer_and_a_cap_are_taken_and_brought_into_their_bounds(session: Session) -> None:
    assert "1900: line 1900" in session.execute_tool(RECALL_TOOL, {"ref": "3.0", "regex": "line 1900"}).text
    assert session.execute_tool(RECALL_TOOL, {"ref": "11.0", "jsonPointer": "/items/0/id"}).text.endswith("x/1")
    for tokens in (-5, 0, 1, "10"):
        said = session.execute_tool(RECALL_TOOL, {"ref": "3.0", "max_tokens": tokens}).text
        assert "more lines" in said and len(said) < 600
    assert len(session.execute_tool(RECALL_TOOL, {"ref": "3.0", "max_tokens": 10**9}).text) > 30_000


@pytest.mark.parametrize(
    ("tool", "option", "low", "high"),
    [
        *((RECALL_TOOL, name, 1, 10**9) for name in ("from_line", "to_line")),
        (RECALL_TOOL, "max_tokens", 64, 100_000),
        (SEARCH_TOOL, "limit", 1, 50),
        (SEARCH_TOOL, "loop", 1, 10**9),
    ],
)
def test_a_number_is_brought_into_its_bounds(tool: str, option: str, low: int, high: int) -> None:
    for number, within in ((-(10**14), low), (low, low), (low + 1, low + 1), (high, high), (10**14, high)):
        for value in (number, str(number), float(number), f" {number}.0 "):
            request = parse_recall_request(tool, {"ref": "3.1", "q": "x", option: value})
            assert request.options[option] == within
    for value in (True, None, "many", 10**15, "1.5", [1]):
        assert option not in parse_recall_request(tool, {"ref": "3.1", "q": "x", option: value}).options


def test_several_refs_share_the_room_of_one(session: Session) -> None:
    answer = session.execute_tool(RECALL_TOOL, {"ref": ["3.0", "3.1", "99.0", "6.0", "6.1"]})
    assert answer.recalled == ("3.0", "3.1", "6.0") and answer.text.endswith("(not shown: 6.1; ask again)")
    assert "Tool call result not found: 99.0" in answer.text
    assert len(answer.text) < len(session.execute_tool(RECALL_TOOL, "3.0").text)
    assert session.execute_tool(RECALL_TOOL, "3.1, 6.0").recalled == ("3.1", "6.0")
    for room, share in ((600, 200), (90, 64)):
        one = session.execute_tool(RECALL_TOOL, {"ref": "3.0", "max_tokens": share}).text
        several = session.execute_tool(RECALL_TOOL, {"ref": ["3.0", "3.1", "6.0"], "max_tokens": room}).text
        assert several.startswith(f"{one}\n\n")


def test_other_uses_of_a_call_id_are_named(session: Session) -> None:
    answer = session.execute_tool(RECALL_TOOL, {"callId": "a"})
    assert answer.text.endswith("(other calls: 3.0)") and answer.recalled == ("11.0",)


@pytest.mark.parametrize(
    ("arguments", "positions"),
    [
        ({"q": "doing it again", "limit": "1"}, (10,)),
        ('{"query": "again", "limit": 1}', (10,)),
        ("again", (10, 11)),
        ({"input": {"queries": ["again", "nowhere"]}}, (10, 11)),
        ({"q": "again", "role": "USER", "top_k": 500}, (10,)),
        ({"q": "again", "role": "bot", "after": "9", "before": 11}, (10,)),
        ({"q": "nowhere"}, ()),
        ({"q": "x" * 5_000}, ()),
    ],
)
def test_a_search_is_understood_too(session: Session, arguments: Any, positions: tuple[int, ...]) -> None:
    answer = session.execute_tool(SEARCH_TOOL, arguments)
    assert (answer.recalled, answer.is_error) == (positions, False)
    assert answer.text.startswith("position" if positions else "Nothing found")


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        (RECALL_TOOL, None, "give the ref"),
        (RECALL_TOOL, "", "give the ref"),
        (RECALL_TOOL, "{", "not JSON"),
        (RECALL_TOOL, "[]", "give the ref"),
        (RECALL_TOOL, {"q": "b"}, "give the ref"),
        (RECALL_TOOL, {"ref": None}, "give the ref"),
        (RECALL_TOOL, {"ref": True}, "give the ref"),
        (RECALL_TOOL, {"ref": "3.1", "pattern": "("}, "not closed"),
        (RECALL_TOOL, {"ref": "3.1", "pattern": "(a)\\1"}, "Not understood"),
        (RECALL_TOOL, {"ref": "3.1", "pointer": "x"}, "begin with /"),
        (RECALL_TOOL, {"ref": "3.0", "from_line": 9, "to_line": 3}, "before from_line"),
        (SEARCH_TOOL, {}, "give q"),
        (SEARCH_TOOL, {"q": "again", "after": "yesterday"}, "a time such as 2026-01-31T12:00:00Z"),
    ],
)
def test_a_mistake_is_an_answer_that_says_what_is_wrong(session: Session, name: str, arguments: Any, says: str) -> None:
    answer = session.execute_tool(name, arguments)
    assert answer.is_error and answer.is_ours and says in answer.text and answer.recalled == ()


def test_what_is_not_there_is_an_answer(session: Session, log: Turnlog) -> None:
    answer = session.execute_tool(RECALL_TOOL, {"ref": "99.0"})
    assert answer.text.startswith("Tool call result not found: 99.0") and answer.recalled == () and not answer.is_error
    assert "none from 5000 on" in session.execute_tool(RECALL_TOOL, {"ref": "3.0", "from_line": 5_000}).text
    nobody = log.sessions.of("nobody")
    for name, arguments in ((RECALL_TOOL, "3.0"), (SEARCH_TOOL, "words")):
        answer = nobody.execute_tool(name, arguments)
        assert (answer.text, answer.is_error) == ("Not found: no session 'nobody'", True)


def test_another_tool_s_name_is_told_from_ours(session: Session) -> None:
    for name in (RECALL_TOOL, "functions.recall_tool_call", "recallToolCall", " Recall_Tool_Call", SEARCH_TOOL):
        assert session.handles(name)
        assert session.execute_tool(name, {}).is_ours
    for name in ("get_order", "recall", "", "search"):
        assert not session.handles(name)
        answer = session.execute_tool(name, {"ref": "3.1"}, call_id="c")
        assert not answer.is_ours and answer.is_error and "There is no tool" in answer.text
        assert "recalled" not in answer.meta and answer.message["tool_call_id"] == "c"


def test_what_no_model_can_mend_is_raised(harness: Any) -> None:
    session = filled(harness.log())
    harness.faults.fail(1, "before")
    with pytest.raises(UnavailableError):
        session.execute_tool(RECALL_TOOL, "3.1")
    with pytest.raises(InvalidInputError):
        session.execute_tool(RECALL_TOOL, "3.1", format="xml")  # type: ignore[arg-type]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12)
    | st.sampled_from(["3.1", "a", "12.10", "(", "/x", "1-2"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["ref", "callId", "q", "pattern", "arguments", "input", "function", "from_line", "lines"])
        | st.text(max_size=6),
        inner,
        max_size=4,
    ),
    max_leaves=8,
)  # fmt: skip


@given(JSON, st.sampled_from([RECALL_TOOL, SEARCH_TOOL]), st.booleans())
@settings(max_examples=examples(300), deadline=None)
def test_whatever_a_model_writes_is_an_answer(session: Session, value: Any, name: str, as_text: bool) -> None:
    answer = session.execute_tool(name, json.dumps(value) if as_text else value)
    assert answer.text
    assert all(re.fullmatch(r"\d+\.\d+", str(item)) or isinstance(item, int) for item in answer.recalled)


@pytest.mark.parametrize(
    "nothing", [None, "", "null", " none ", "```\nundefined\n```", {"ref": "None"}, [], {"ref": []}]
)
def test_a_model_that_names_nothing_is_told_what_to_give(nothing: Any) -> None:
    for name, says in ((RECALL_TOOL, "give the ref of a call"), (SEARCH_TOOL, "give q, the words")):
        with pytest.raises(ArgumentsError, match=says):
            parse_recall_request(name, nothing)


@pytest.mark.parametrize("word", ["undefined", "null", "None"])
def test_words_that_often_mean_nothing_can_be_searched_for(word: str) -> None:
    assert parse_recall_request(SEARCH_TOOL, {"q": word}).options["q"] == word
    assert parse_recall_request(SEARCH_TOOL, json.dumps({"query": [word], "tool": word})).options == {"q": word}


@given(st.text(max_size=60))
@settings(max_examples=examples(300), deadline=None)
def test_whatever_text_it_writes_is_understood_or_refused(text: str) -> None:
    for name in (RECALL_TOOL, SEARCH_TOOL):
        try:
            parse_recall_request(name, text)
        except ArgumentsError as error:
            assert str(error)


# ------------------------------------------------------------ what is appended, and what the history tells


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_appended_answers_the_call_in_every_format(here: Turnlog, format: str) -> None:
    session = here.sessions.create("s")
    session.append(user("go"), calls("a"), result("a", "the result"))
    for at, arguments in enumerate(('{"callId": "3.0"}', "{")):
        call_id = f"r{at}"
        session.append(calls(call_id, name=RECALL_TOOL, arguments=arguments))
        answer = session.execute_tool(RECALL_TOOL, arguments, call_id=call_id, format=format)  # type: ignore[arg-type]
        appended = session.append(answer.message, meta=[answer.meta])
        assert appended.warnings == []
        window = session.context(format=format)
        assert window.open_calls == []
        assert format not in LINTED or here.lint(window.messages, format=format).problems == []
        recalled = session.recall(call_id=call_id)
        assert (recalled.content, recalled.is_error, recalled.position) == (
            answer.text,
            answer.is_error,
            appended.first,
        )
        entry = session.history_page(limit=1).entries[0]
        assert (entry.action, entry.first) == ("tool_recalled", appended.first)
        assert entry.metadata["answers"] == [str(recalled.ref)]
        assert entry.metadata["recalled"] == ([] if at else ["3.0"])


IMAGE = {"type": "image", "media_type": "image/png", "data": png(640, 480)}


@pytest.mark.parametrize("sent", FORMATS)
@pytest.mark.parametrize("place", ["2", "3.0", "4", "5"])
def test_an_image_comes_back_through_recall_in_every_format(here: Turnlog, sent: str, place: str) -> None:
    session = here.sessions.create("s")
    results = [{"tool_call_id": "a", "result": "seen", "media": [IMAGE]}]
    looked = {"role": "tool", "content": None, "tool_results": results}
    asked = {"role": "user", "content": [{"type": "text", "text": "look"}, IMAGE], "author": "me"}
    session.append(asked)  # 2
    session.append(calls("a"))  # 3
    session.append(looked, {"role": "user", "content": [IMAGE], "author": "me"})  # 4, 5
    session.append(calls("r", name=RECALL_TOOL, arguments=json.dumps({"ref": place})))  # 6
    answer = session.execute_tool(RECALL_TOOL, {"ref": place}, call_id="r", format=sent)  # type: ignore[arg-type]
    assert answer.media == media_of([IMAGE])
    assert answer.recalled == (place if "." in place else int(place) if place != "3" else "3.0",)
    session.append(answer.message, meta=[answer.meta])
    again = session.recall("6.0").media
    assert again is not None and [block["data"] for block in again] == [IMAGE["data"]]
    for format in FORMATS:
        window = session.context(format=format)  # type: ignore[arg-type]
        assert json.dumps(window.messages).count(IMAGE["data"]) == 4
        assert format not in LINTED or here.lint(window.messages, format=format).problems == []


def test_a_recalled_image_that_leaves_again_names_the_place_that_it_came_from(here: Turnlog) -> None:
    session = here.sessions.create("s")
    wide = {**IMAGE, "data": png(2_532, 1_170)}
    for _ in range(11):
        session.append({"role": "user", "content": [wide], "author": "me"}, {"role": "assistant", "content": "seen"})
    session.append(user("again"), calls("r", name=RECALL_TOOL, arguments='{"ref": "2"}'))
    answer = session.execute_tool(RECALL_TOOL, {"ref": "2"}, call_id="r", format="anthropic")
    session.append(answer.message, meta=[answer.meta])
    for _ in range(21):
        session.append({"role": "user", "content": [wide], "author": "me"}, {"role": "assistant", "content": "seen"})
    sent = session.context(format="anthropic", budget=1_000_000).messages
    (message,) = (message for message in sent if "tool_result" in json.dumps(message))
    assert message["content"][0]["content"][-1] == {"type": "text", "text": "[image not shown here: ref 2 has it]"}
    assert session.recall("2").media == [wide]


def test_what_asks_for_a_part_brings_no_image_and_too_many_bytes_are_named(
    here: Turnlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = here.sessions.create("s")
    session.append({"role": "user", "content": [{"type": "text", "text": "look\nthere"}, IMAGE], "author": "me"})
    assert session.recall("2", from_line=1, to_line=1).media is None
    assert session.recall("2").content == "look\nthere\n[image]"
    monkeypatch.setattr("turnlog.client.finding.MAX_MEDIA_CHARS", len(str(IMAGE["data"])))
    session.append({"role": "user", "content": [IMAGE], "author": "me"})
    answer = session.execute_tool(RECALL_TOOL, {"ref": ["2", "3"]})
    assert len(answer.media) == 1
    assert answer.text.endswith("(image of 3 not shown: too many bytes for one answer)")


def test_without_an_id_the_newest_open_call_is_answered(here: Turnlog) -> None:
    session = here.sessions.create("s")
    session.append(user("go"), calls("a"), result("a", "x"), calls("", name=RECALL_TOOL, arguments='{"ref": "3.0"}'))
    answer = session.execute_tool(RECALL_TOOL, '{"ref": "3.0"}')
    assert [warning.code for warning in session.append(answer.message, meta=[answer.meta]).warnings] == ["missing_id"]
    assert session.recall("5.0").content == answer.text
    assert session.history_page(limit=1).entries[0].metadata["answers"] == ["5.0"]


def told(session: Session) -> list[tuple[int, str, Any, Any]]:
    entries = [entry for entry in session.history() if entry.action in ("tool_recalled", "tool_result")]
    return [
        (entry.first, entry.action, entry.metadata.get("answers"), entry.metadata.get("recalled"))
        for entry in reversed(entries)
    ]


def test_a_recall_is_recorded_by_the_commit_that_appends_its_result(log: Turnlog) -> None:
    session = log.sessions.create("s")
    session.append(user("go"), calls("a"), result("a", "secret words"))
    head = session.info().head
    session.execute_tool(RECALL_TOOL, {"ref": "3.0"})
    session.recall("3.0")
    session.search("secret")
    assert session.info().head == head, "reading moves no head"
    session.append(calls("r1", name=RECALL_TOOL, arguments='{"callId": "3.0"}'))  # 5
    session.append(result("r1", "as the tool said"))  # 6: what was asked for is read off the commit before
    session.append(calls("r2", "r3", name=RECALL_TOOL, arguments='{"ref": "3.0"}'), result("r3", "x"))  # 7, 8
    session.append(user("meanwhile"))  # 9
    session.append(result("r2", "late"))  # 10: the call is not in the commit before
    session.append(calls("q", name=SEARCH_TOOL, arguments='{"q": "secret"}'))  # 11
    session.append(result("q", "found"), meta=[{"recalled": [4, "3.0"]}])  # 12
    session.append(calls("n"))  # 13
    session.append(result("n", "no recall"), result("q", "a second result"))  # 14, 15
    assert told(session) == [
        (4, "tool_result", None, None),
        (6, "tool_recalled", ["5.0"], ["3.0"]),
        (8, "tool_recalled", ["7.1"], ["3.0"]),
        (10, "tool_recalled", ["7.0"], []),
        (12, "tool_recalled", ["11.0"], [4, "3.0"]),
        (14, "tool_result", None, None),
        (15, "tool_result", None, None),
    ]
    entries = list(session.history(action="tool_recalled"))
    assert [entry.first for entry in entries] == [12, 10, 8, 6]
    assert "secret" not in "".join(entry.model_dump_json() for entry in entries), "no contents"
    with pytest.raises(InvalidInputError):
        session.record("tool_recalled")


def test_a_result_out_of_line_and_one_of_many_in_a_message_are_recorded(log: Turnlog) -> None:
    session = log.sessions.create("s")
    session.append(user("go"), calls("a"), result("a", "x"))
    large = " ".join(f"{at * 7919:x}" for at in range(20_000))
    session.append(calls("r", name=RECALL_TOOL, arguments='{"ref": "3.0"}'), result("r", large))
    assert told(session)[-1] == (6, "tool_recalled", ["5.0"], ["3.0"])
    blocks = [{"type": "tool_result", "tool_use_id": value, "content": "y"} for value in ("b", "r2")]
    used = [
        {"type": "tool_use", "id": "b", "name": "f", "input": {}},
        {"type": "tool_use", "id": "r2", "name": RECALL_TOOL, "input": {"call_id": "3.0"}},
    ]
    session.append({"role": "assistant", "content": used}, {"role": "user", "content": blocks})
    assert told(session)[-1] == (8, "tool_recalled", ["7.1"], ["3.0"])


def test_a_session_without_the_tools_records_what_its_caller_says_alone(here: Turnlog) -> None:
    session = here.sessions.create("s", recall="never")
    session.append(user("go"), calls("a", name=SEARCH_TOOL), result("a", "a tool of its own"))
    session.append(calls("b", name=RECALL_TOOL), result("b", "x"), meta=[{}, {"recalled": ["3.0"]}])
    assert told(session) == [(4, "tool_result", None, None), (6, "tool_recalled", ["5.0"], ["3.0"])]


def test_what_can_not_have_been_recalled_is_refused(here: Turnlog) -> None:
    session = here.sessions.create("s")
    for message, meta in (
        (user("go"), {"recalled": ["3.0"]}),
        (result("a", "x"), {"recalled": ["words"]}),
        (result("a", "x"), {"recalled": [0]}),
        (result("a", "x"), {"recalled": ["3.0"] * 65}),
    ):
        with pytest.raises(InvalidInputError):
            session.append(message, meta=[meta])
    assert session.info().head == 1


def test_a_recall_costs_its_append_nothing(harness: Any) -> None:
    session = harness.log().sessions.create("s", policy="turns")
    session.append(user("go"), calls("a"), result("a", "x"))
    session.append(calls("r", name=RECALL_TOOL, arguments='{"ref": "3.0"}'))
    answer = session.execute_tool(RECALL_TOOL, {"ref": "3.0"}, call_id="r")
    before = harness.faults.calls
    session.append(answer.message, meta=[answer.meta])
    assert harness.faults.calls - before == 2
    assert told(session)[-1][1] == "tool_recalled"


# ------------------------------------------------------------ refs for the session's life


def test_a_ref_names_its_call_through_rewind_fork_restore_and_compress(log: Turnlog) -> None:
    session = log.sessions.create("s", policy="run_loops")
    contents = {}
    for at in range(6):
        session.append(user(f"question {at} " + "words " * 40))
        called = session.append(calls("same", arguments=json.dumps({"at": at}))).first
        session.append(result("same", f"result {at}"), {"role": "assistant", "content": f"reply {at}"})
        contents[f"{called}.0"] = f"result {at}"

    def check(one: Session, refs: dict[str, str]) -> None:
        for ref, content in refs.items():
            answer = one.execute_tool(RECALL_TOOL, json.dumps({"ref": ref}))
            assert answer.recalled == (ref,) and answer.text.endswith(content), ref
        newest = one.execute_tool(RECALL_TOOL, {"callId": "same"})
        assert newest.recalled == (list(refs)[-1],)
        assert newest.text.endswith(f"(other calls: {', '.join(list(refs)[-2::-1])})")

    check(session, contents)
    session.compress(keep_loops=2)
    check(session, contents)
    session.create_snapshot("here")
    session.create_snapshot("all", kind="full")
    middle = int(list(contents)[3].split(".")[0]) + 2
    shared = dict(list(contents.items())[:4])
    fork = session.fork("f", at=middle)
    check(fork, shared)
    session.rewind(middle)
    for ref, content in contents.items():
        assert session.recall(ref).content == content, "what a rewind took out of view is there all the same"
    called = session.append(calls("same")).first
    session.append(result("same", "after the rewind"))
    assert session.recall(f"{called}.0").content == "after the rewind"
    session.restore_snapshot("here", as_="rewind")
    check(session, contents)
    session.restore_snapshot("all", session_id="g")
    check(log.sessions.get("g"), contents)


def test_a_call_in_view_has_no_result_that_a_rewind_took_back(log: Turnlog) -> None:
    session = log.sessions.create("s")
    session.append(user("go"), calls("a"), result("a", "taken back"))
    session.rewind(3)
    assert session.recall("3.0").content is None
    session.append(result("a", "in view"))
    assert session.recall("3.0").content == session.recall(call_id="a").content == "in view"


def test_every_ref_that_a_window_names_is_taken_by_the_tool(here: Turnlog) -> None:
    session = here.sessions.create("s")
    for at in range(4):
        session.append(user(f"question {at}"))
        made = calls(f"c{at}", arguments=json.dumps({"at": at}))
        session.append(made, result(f"c{at}", f"row {at} " * 400), {"role": "assistant", "content": "done"})
    session.append(user("and now?"), calls("d0"), result("d0", "line of the newest\n" * 600))
    session.append(calls("d1"), result("d1", "line\n" * 200))
    named = set[str]()
    for options in ({"policy": "run_loops", "budget": 2_000}, {"policy": "default", "budget": 1_500}):
        text = json.dumps(session.context(**options).messages)
        named |= {f"[shortened; ref {ref}]" for ref in re.findall(r"left out here; ref ([0-9.]+) ", text)} | set(
            re.findall(r"\d+\.\d+ f ", text)
        )
    assert any("shortened" in item for item in named) and any(item.endswith(" f ") for item in named)
    for entry in named:
        answer = session.execute_tool(RECALL_TOOL, {"ref": entry.strip("[]").removeprefix("shortened; ")})
        assert answer.recalled and answer.text.startswith(f"{answer.recalled[0]} f"), entry
