"""Recall and search: every call of a session is found again, whole or a part, at a bounded cost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.recalls import LONG, calls, filled, result, user
from turnlog.client.model import Turnlog
from turnlog.core.errors import CorruptError, InvalidInputError, NotFoundError
from turnlog.core.identity import Owner
from turnlog.log.keys import SessionKeys


@pytest.mark.parametrize(
    ("ref", "content", "position"),
    [("3.1", "of b", 4), ("6.0", "first", 7), ("6.1", "second", 8), ("13.0", None, None)],
)
def test_a_call_is_found_by_its_ref(log: Turnlog, ref: str, content: str | None, position: int | None) -> None:
    recalled = filled(log).recall(ref)
    assert (recalled.found, recalled.ref, recalled.content, recalled.position) == (True, ref, content, position)
    assert (recalled.note is None) == (content is not None)


def test_a_position_is_a_message_or_its_first_call(log: Turnlog) -> None:
    session = filled(log)
    for position, content in (("2", "go"), ("4", "of b"), ("9", "done")):
        recalled = session.recall(position)
        assert (recalled.found, recalled.ref, recalled.content, recalled.position, recalled.name) == (
            *(True, position, content, int(position)),
            None,
        )
    assert session.recall("3").ref == "3.0" and session.recall("3").other_refs == ["3.1"]
    assert session.recall("1").found is False and session.recall("99").found is False
    large = {"role": "user", "content": [{"type": "image", "data": "A" * 400_000}], "author": "me"}
    session.append(large)  # 14
    assert session.recall("14").media == large["content"]


def test_a_call_id_is_its_newest_use_and_the_ids_that_we_make_are_known(log: Turnlog) -> None:
    session = filled(log)
    assert session.recall(call_id="a").ref == "11.0"
    assert session.recall(call_id="b").content == "of b"
    assert session.recall(call_id="call_6_1").content == "second"


def test_the_other_calls_of_an_id_are_named(log: Turnlog) -> None:
    session = filled(log)
    assert session.recall(call_id="a").other_refs == ["3.0"]
    assert session.recall(call_id="b").other_refs is session.recall("3.0").other_refs is None
    assert session.execute_tool("recall_tool_call", {"ref": "a"}).text.endswith("(other calls: 3.0)")
    session.append(calls("a", "a"), result("a", "of the first"), result("a", "of the second"))  # 14
    recalled = session.recall(call_id="a")
    assert (recalled.ref, recalled.content, recalled.other_refs) == ("14.0", "of the first", ["14.1", "11.0", "3.0"])


def test_a_second_result_replaces_the_first_where_it_was_read(log: Turnlog) -> None:
    session = log.sessions.create("s")
    session.append(user("go"), calls("a"), result("a", "one"), result("a", "two"))
    assert session.recall("3.0").content == session.recall(call_id="a").content == "two"
    session.append(user("and?"), result("a", "three"))
    assert session.recall(call_id="a").content == "three"


def test_json_of_one_line_is_shown_in_several_where_a_part_of_it_is_wanted(log: Turnlog) -> None:
    rows = [{"id": at, "tag": f"é{at}", "exact": 0.1} for at in range(2_000)]
    text = json.dumps({"rows": rows}).replace("0.1}", "12345678901234567890.1230}")
    session = log.sessions.create("s")
    session.append(user("go"), calls("a"), result("a", text))
    session.append(calls("b"), result("b", '{"small": [1]}'), calls("c"), result("c", "one line, not JSON " * 9))
    whole = session.recall("3.0")
    assert whole.truncated and whole.content is not None and "from_line=" in whole.content
    assert (whole.lines, whole.note) == (3 + 5 * 2_000 + 1, "one line, shown in several")
    assert session.recall("3.0", pattern='"tag": "é1777"').content == '8890:    "tag": "é1777",'
    assert session.recall("3.0", from_line=8891, to_line=8891).content == '   "exact": 12345678901234567890.1230'
    assert session.recall("5.0").content == '{"small": [1]}', "whole where it has room"
    assert session.recall("5.0", from_line=2, to_line=3).content == ' "small": [\n  1'
    assert session.recall("7.0", from_line=2).note == "there is 1 line; none from 2 on"
    lines, start = list[str](), 1
    for _ in range(100):
        recalled = session.recall("3.0", from_line=start, max_tokens=4_000)
        assert recalled.content is not None
        shown = recalled.content.split("\n")
        lines += shown[:-1] if recalled.truncated else shown
        start = len(lines) + 1
        if not recalled.truncated:
            break
    assert json.loads("\n".join(lines)) == json.loads(text)


@pytest.mark.parametrize("text", ["[" * 900 + "1, " * 20_000 + "1" + "]" * 900, "[" * 100_000 + "]" * 100_000, "{" * 9])
def test_json_that_is_nested_deep_takes_no_more_room_than_it_has(log: Turnlog, text: str) -> None:
    session = log.sessions.create("s")
    session.append(user("go"), calls("a"), result("a", text))
    for part in ({}, {"from_line": 1}, {"pattern": "1"}, {"pointer": "/0/0"}):
        recalled = session.recall("3.0", **part)  # type: ignore[arg-type]
        assert recalled.found and recalled.tokens <= 2_000


@pytest.mark.parametrize(
    ("pointer", "content"),
    [
        ("/~01", "tilde"),
        ("/~1", "slash"),
        ("/", "empty"),
        ("/l/1", "1e400"),
        ("/l/2", "NaN"),
        ("/l/-", None),
        ("/l/01", None),
        ("/l/٣", None),
        ("/l/0/x", None),
    ],
)
def test_pointers_are_those_of_the_rfc(log: Turnlog, pointer: str, content: str | None) -> None:
    text = '{"~1": "tilde", "/": "slash", "": "empty", "l": [0, 1e400, NaN]}'
    session = log.sessions.create("s")
    session.append(user("go"), calls("a"), result("a", text))
    recalled = session.recall("3.0", pointer=pointer)
    assert (recalled.content or None) == content
    assert (recalled.note is None) == (content is not None)


def test_lone_surrogates_are_found_and_shown(log: Turnlog) -> None:
    session = log.sessions.create("s")
    text = '{"k": "\\ud800", "\ud83d": [1]}'
    session.append(user("go"), calls("a", arguments='{"x": "\ud800"}'), result("a", text))
    assert session.recall("3.0").content == text
    assert session.recall("3.0", pointer="/k").content == "\ud800"
    assert session.recall("3.0", pattern="\ud83d").content == '3:  "\ud83d": ['
    assert session.search("x").results


def test_results_of_each_format_are_told(log: Turnlog) -> None:
    used = {"type": "tool_use", "id": "t", "name": "look", "input": {"a": 1}}
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    results: list[tuple[list[dict[str, Any]], str, bool]] = [
        (
            [
                {"role": "assistant", "content": [used]},
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "t",
                            "is_error": True,
                            "content": [{"type": "text", "text": "seen"}, image],
                        }
                    ],
                },
            ],
            "seen\n[image]",
            True,
        ),
        (
            [
                {"role": "assistant", "content": [{"toolUse": {"toolUseId": "t", "name": "look", "input": {"a": 1}}}]},
                {"role": "user", "content": [{"toolResult": {"toolUseId": "t", "content": [{"json": {"k": [1]}}]}}]},
            ],
            '{"k":[1]}',
            False,
        ),
        (
            [
                {"type": "function_call", "call_id": "t", "name": "look", "arguments": '{"a": 1}'},
                {"type": "function_call_output", "call_id": "t", "output": "[1]"},
            ],
            "[1]",
            False,
        ),
        (
            [
                {"role": "assistant", "content": None, "tool_calls": [{"id": "t", "name": "look", "args": {"a": 1}}]},
                {"role": "tool", "tool_results": [{"tool_call_id": "t", "result": {"k": 1}, "is_error": False}]},
            ],
            '{"k":1}',
            False,
        ),
    ]
    for at, (messages, content, is_error) in enumerate(results):
        session = log.sessions.create(f"s{at}")
        session.append(user("go"), *messages)
        for value in (session.recall("3.0"), session.recall(call_id="t")):
            assert (value.name, value.arguments, value.content) == ("look", {"a": 1}, content)
            assert value.is_error is is_error


def test_a_session_without_the_tools_can_be_searched_all_the_same(log: Turnlog) -> None:
    session = log.sessions.create("s", recall="never")
    session.append(user("go"), calls("a"), result("a", "found"))
    assert session.recall("3.0").content == "found"
    assert session.search("found").results


def test_a_result_far_behind_its_call_and_late_ones_are_found(log: Turnlog) -> None:
    session = log.sessions.create("s")
    session.append(user("go"), calls("late", "other"))
    for at in range(30):
        session.append(calls(f"c{at}"), result(f"c{at}", str(at)))
    session.append(result("late", "at last"))
    assert session.recall("3.0").content == "at last"
    assert session.recall("3.1").content is None


def test_a_call_and_its_result_are_found_over_the_borders_of_forks_and_rewinds(log: Turnlog) -> None:
    session = log.sessions.create("s")
    session.append(user("go"), calls("late"))
    for number in range(12):
        if number % 2:
            head = session.append(user("a mistake")).first - 1
            session.rewind(head)
        else:
            session = session.fork(f"fork-{number}")
        session.append(user(f"go on {number}"))
    position = session.append(result("late", "at last")).first
    for recalled in (session.recall("3.0"), session.recall(call_id="late")):
        assert (recalled.ref, recalled.content, recalled.position) == ("3.0", "at last", position)


def test_the_calls_that_a_miss_names_are_those_in_view_of_a_fork_too(log: Turnlog) -> None:
    fork = filled(log).fork("forked")
    assert fork.recall(call_id="no such").newest_refs[:2] == ["13.0", "11.0"]
    text = fork.execute_tool("recall_tool_call", {"call_id": "no such"}).text
    assert "Newest calls: 13.0, 11.0" in text and text.count("Newest calls") == 1


def test_a_result_hundreds_of_commits_behind_its_call_is_found_or_the_answer_says_how_far_it_looked(
    log: Turnlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = log.sessions.create("s")
    session.append(user("go"), calls("late", "never"))
    for number in range(200):
        session.append(user(f"go on {number}"))
    session.append(result("late", "at last"))
    assert session.recall("3.0").content == "at last"
    assert session.recall("3.1").note == "this call has no result"
    monkeypatch.setattr("turnlog.search.recall.POSITIONS", 50)
    note = "this call has no result up to position 71; the search went no further: use its call_id"
    assert session.recall("3.0").note == session.recall("3.1").note == note
    assert session.recall(call_id="late").found is False, "it is further back than the search goes"


def test_a_commit_that_is_missing_between_a_call_and_its_result_is_named(harness: Any) -> None:
    session = harness.log().sessions.create("s")
    for message in (user("go"), calls("a"), user("and?"), result("a", "late")):
        session.append(message)
    assert session.recall("3.0").content == "late"
    harness.app.engine.items.delete_many([SessionKeys(Owner.of("acme", "ada"), "s").commit(4)])
    with pytest.raises(CorruptError, match="C#000000000004"):
        session.recall("3.0")


def test_each_part_can_be_asked_for(log: Turnlog) -> None:
    session = filled(log)
    lines = LONG.split("\n")
    assert session.recall("3.0", from_line=10, to_line=12).content == "\n".join(lines[9:12])
    numbered = session.recall("3.0", pattern=r"^line 19\d\d:.*e$", max_tokens=5_000)
    assert numbered.content is not None and numbered.note is None
    assert numbered.content.split("\n") == [
        f"{at}: {line}" for at, line in enumerate(lines, start=1) if 1900 <= at < 2000 and line.endswith("e")
    ]
    assert session.recall("11.0", pointer="/items/0/id").content == "x/1"
    assert json.loads(session.recall("11.0", pointer="/items/0/n~0").content or "") == [1, 2]
    assert json.loads(session.recall("11.0", pointer="").content or "") == {"items": [{"id": "x/1", "n~": [1, 2]}]}
    for empty, note in (
        ({"pointer": "/items/7"}, "the pointer leads nowhere: a list of 1 at step 2"),
        ({"pointer": "/no"}, "the pointer leads nowhere at step 1: there is an object of 1 keys: items"),
        ({"pattern": "nowhere"}, "no line matches, of 11"),
        ({"from_line": 99}, "there are 11 lines; none from 99 on"),
    ):
        recalled = session.recall("11.0", **empty)  # type: ignore[arg-type]
        assert (recalled.found, recalled.content or "", recalled.note) == (True, "", note)
    assert session.recall("3.1", pointer="/x").note is not None


@pytest.mark.parametrize("max_tokens", [64, 100, 2_000, 20_000])
def test_what_is_cut_says_so_and_goes_on_where_it_was_cut(log: Turnlog, max_tokens: int) -> None:
    from turnlog.engines.token_counters import TiktokenCounter

    session, shown, start = filled(log), list[str](), 1
    for _ in range(100):
        recalled = session.recall("3.0", from_line=start, max_tokens=max_tokens)
        assert recalled.content is not None
        assert TiktokenCounter().count(recalled.content) <= recalled.tokens <= max_tokens
        lines = recalled.content.split("\n")
        if not recalled.truncated:
            shown += lines
            break
        assert "more lines" in lines[-1]
        shown += lines[:-1]
        start += len(lines) - 1
        if max_tokens < 1_000 and len(shown) > 20:
            assert LONG.startswith("\n".join(shown))
            return
    assert "\n".join(shown) == LONG


def test_one_long_line_and_long_arguments_are_cut_too(log: Turnlog) -> None:
    session = log.sessions.create("s")
    session.append(user("go"), calls("a", arguments=json.dumps({"x": "word " * 20_000})), result("a", "é" * 50_000))
    recalled = session.recall("3.0", max_tokens=500)
    assert recalled.truncated and recalled.tokens <= 500
    assert isinstance(recalled.arguments, str) and "more characters" in recalled.arguments
    assert recalled.content is not None and recalled.content.startswith("éé") and "more characters" in recalled.content


LONG_LINE = "word " * 30_000 + "the door code is 7731. " + "word " * 30_000


@pytest.mark.parametrize("text", [LONG_LINE, json.dumps({"html": LONG_LINE}), "<html>\n" + LONG_LINE])
def test_the_middle_of_a_long_line_is_found_by_a_pattern(log: Turnlog, text: str) -> None:
    session = log.sessions.create("s")
    session.append(user("go"), calls("a"), result("a", text))
    for pattern in ("7731", "code is .{4}"):
        recalled = session.recall("3.0", pattern=pattern)
        assert recalled.content is not None and "the door code is 7731." in recalled.content
        assert len(recalled.content) < 1_100 and not recalled.truncated
    assert session.recall("3.0", pattern="nowhere").content == ""


def test_behind_a_long_line_that_matches_in_many_places_the_next_match_is_named(log: Turnlog) -> None:
    session = log.sessions.create("s")
    session.append(user("go"), calls("a"), result("a", "<html>\n" + "a code " * 20_000 + "\nno\nthe last code"))
    recalled = session.recall("3.0", pattern="code", max_tokens=500)
    assert recalled.content is not None and recalled.content.endswith("; from_line=4 is behind this line]")
    assert recalled.tokens <= 500
    assert session.recall("3.0", pattern="code", from_line=4).content == "4: the last code"


@pytest.mark.parametrize("text", [LONG_LINE, "é" * 50_000])
def test_one_long_line_can_be_read_to_its_end(log: Turnlog, text: str) -> None:
    session, shown = log.sessions.create("s"), list[str]()
    session.append(user("go"), calls("a"), result("a", text))
    for _ in range(100):
        recalled = session.recall("3.0", from_line=len(shown) + 1, max_tokens=20_000)
        assert recalled.content and recalled.note == "one line, shown in several"
        lines = recalled.content.split("\n")
        shown += lines[:-1] if recalled.truncated else lines
        if not recalled.truncated:
            break
    assert "".join(shown) == text


def test_a_miss_is_an_answer_with_what_to_try(log: Turnlog) -> None:
    session = filled(log)
    for hint, asked in {
        "position 99 is beyond the newest, 13": {"ref": "99.0"},
        "position 3 has no call 2": {"ref": "3.2"},
        "position 2 has no call 0": {"ref": "2.0"},
        "position 1 has no call 0": {"ref": "1.0"},
        "position 1 has no message": {"ref": "1"},
        "no call of this session has this id": {"call_id": "nobody"},
    }.items():
        recalled = session.recall(**asked)  # type: ignore[arg-type]
        assert not recalled.found
        assert recalled.error == "Tool call result not found"
        assert recalled.ref == next(iter(asked.values()))
        assert recalled.hint == hint
        assert recalled.newest_refs == ["13.0", "11.0", "6.1", "6.0", "3.1", "3.0"]


def test_what_is_no_question_is_refused(log: Turnlog) -> None:
    session = filled(log)
    wrong: list[dict[str, Any]] = [
        {},
        {"ref": "3.0", "call_id": "a"},
        {"ref": "x"},
        {"call_id": ""},
        {"ref": "3.0", "pattern": "(a"},
        {"ref": "3.0", "pointer": "x"},
        {"ref": "3.0", "pointer": "/~2"},
        {"ref": "3.0", "pointer": "/~~01"},
        {"ref": "3.0", "pointer": "/~"},
        {"ref": "3.0", "from_line": 3, "to_line": 2},
        {"ref": "3.0", "max_tokens": 63},
    ]
    for item in wrong:
        with pytest.raises(InvalidInputError):
            session.recall(**item)
    for q in ("", " ", "x" * 1_001):
        with pytest.raises(InvalidInputError):
            session.search(q)
    with pytest.raises(NotFoundError):
        log.sessions.of("nobody").search("x")


# ------------------------------------------------------------ search


def test_search_finds_words_stems_pairs_of_characters_and_the_turn_after(log: Turnlog) -> None:
    session = log.sessions.create("s")
    said = [
        "Which colours were the painted boats?",
        "你好,我想订一张去北京的火车票",
        "한국어 메시지입니다",
        "Über naïve Wörter",
    ]
    for content in said:
        session.append(user(content), {"role": "assistant", "content": f"reply {session.info().head}"})
    session.append(calls("a", name="get_weather", arguments='{"city": "Oslo"}'), result("a", "rain in Oslo"))
    for q, position in (("painting a boat", 2), ("火车", 4), ("메시지", 6), ("uber worter", 8), ("weather", 10)):
        hits = session.search(q)
        assert hits.results[0].position == position, q
        assert hits.results[0].score > 0
    assert session.search("colour", role="assistant").results[0].position == 3, "the reply counts with its question"
    assert [result.ref for result in session.search("Oslo", tool="get_weather").results] == ["10.0", "10.0"]
    assert session.search("Oslo", tool="other").results == []
    assert {result.loop for result in session.search("reply", loop=2).results} == {2}
    assert len(session.search("reply", limit=2).results) == 2
    session.append(calls("q", name="search_history", arguments='{"q": "weather"}'), result("q", "rain: weather"))
    assert session.search("weather", role="assistant").results[0].position == 10, "echoes come last"
    assert session.search("weather", tool="search_history").results[0].ref == "12.0"
    for odd in ('"', "NEAR(a b)", "a OR", "* ^ -", "the of", "\x00", "²", "own:x", "'; DROP"):
        session.search(odd)
