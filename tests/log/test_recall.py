"""Recall and search: every call of a session is found again, whole or a part, at a bounded cost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnlog.client.model import Session, Turnlog
from turnlog.domain.errors import InvalidInputError, NotFoundError

LONG = "\n".join(f"line {at}: {at * 7919:x}" for at in range(1, 2_001))


def calls(*ids: str, name: str = "f", arguments: str = "{}") -> dict[str, Any]:
    made = [{"id": one, "type": "function", "function": {"name": name, "arguments": arguments}} for one in ids]
    return {"role": "assistant", "content": None, "tool_calls": made}


def result(call_id: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def filled(log: Turnlog) -> Session:
    """Ids that are empty and that repeat, parallel calls, results in the same commit and later ones, large and small."""
    session = log.sessions.create("s")
    session.append(user("go"))  # 2
    session.append(calls("a", "b", arguments='{"x": 1}'))  # 3
    session.append(result("b", "of b"))  # 4
    session.append(result("a", LONG))  # 5
    session.append(calls("", ""), result("", "first"), result("", "second"))  # 6 to 8
    session.append({"role": "assistant", "content": "done"}, user("again"))  # 9, 10
    session.append(calls("a"))  # 11
    session.append(result("a", json.dumps({"items": [{"id": "x/1", "n~": [1, 2]}]})))  # 12
    session.append(calls("open"))  # 13
    return session


@pytest.mark.parametrize(
    ("ref", "content", "position"),
    [("3.1", "of b", 4), ("6.0", "first", 7), ("6.1", "second", 8), ("13.0", None, None)],
)
def test_a_call_is_found_by_its_ref(log: Turnlog, ref: str, content: str | None, position: int | None) -> None:
    found = filled(log).recall(ref)
    assert (found.found, found.ref, found.content, found.position) == (True, ref, content, position)
    assert (found.note is None) == (content is not None)


def test_a_call_id_is_its_newest_use_and_the_ids_that_we_make_are_known(log: Turnlog) -> None:
    session = filled(log)
    assert session.recall(call_id="a").ref == "11.0"
    assert session.recall(call_id="b").content == "of b"
    assert session.recall(call_id="call_6_1").content == "second"


def test_a_result_far_behind_its_call_and_late_ones_are_found(log: Turnlog) -> None:
    session = log.sessions.create("s")
    session.append(user("go"), calls("late", "other"))
    for at in range(30):
        session.append(calls(f"c{at}"), result(f"c{at}", str(at)))
    session.append(result("late", "at last"))
    assert session.recall("3.0").content == "at last"
    assert session.recall("3.1").content is None


def test_each_part_can_be_asked_for(log: Turnlog) -> None:
    session = filled(log)
    lines = LONG.split("\n")
    assert session.recall("3.0", from_line=10, to_line=12).content == "\n".join(lines[9:12])
    numbered = session.recall("3.0", pattern=r"^line 19\d\d:.*e$", max_tokens=5_000).content
    assert numbered is not None
    assert numbered.split("\n") == [
        f"{at}: {line}" for at, line in enumerate(lines, start=1) if 1900 <= at < 2000 and line.endswith("e")
    ]
    assert session.recall("11.0", pointer="/items/0/id").content == "x/1"
    assert json.loads(session.recall("11.0", pointer="/items/0/n~0").content or "") == [1, 2]
    assert json.loads(session.recall("11.0", pointer="").content or "") == {"items": [{"id": "x/1", "n~": [1, 2]}]}
    for empty in ({"pointer": "/items/7"}, {"pointer": "/no"}, {"pattern": "nowhere"}, {"from_line": 99}):
        found = session.recall("11.0", **empty)  # type: ignore[arg-type]
        assert found.found and not found.content and found.note
    assert session.recall("3.1", pointer="/x").note is not None


@pytest.mark.parametrize("max_tokens", [64, 100, 2_000, 20_000])
def test_what_is_cut_says_so_and_goes_on_where_it_was_cut(log: Turnlog, max_tokens: int) -> None:
    from turnlog.adapters.tokens.tiktoken_counter import TiktokenCounter

    session, shown, start = filled(log), list[str](), 1
    for _ in range(100):
        found = session.recall("3.0", from_line=start, max_tokens=max_tokens)
        assert found.content is not None
        assert TiktokenCounter().count(found.content) <= found.tokens <= max_tokens
        lines = found.content.split("\n")
        if not found.truncated:
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
    found = session.recall("3.0", max_tokens=500)
    assert found.truncated and found.tokens <= 500
    assert isinstance(found.arguments, str) and "more characters" in found.arguments
    assert found.content is not None and found.content.startswith("éé") and "more characters" in found.content


def test_a_miss_is_an_answer_with_what_to_try(log: Turnlog) -> None:
    session = filled(log)
    for asked in ({"ref": "99.0"}, {"ref": "3.2"}, {"ref": "2.0"}, {"ref": "1.0"}, {"call_id": "nobody"}):
        found = session.recall(**asked)  # type: ignore[arg-type]
        assert not found.found
        assert found.error == "Tool call result not found"
        assert found.ref == next(iter(asked.values()))
        assert found.hint
        assert found.newest_refs == ["13.0", "11.0", "6.1", "6.0", "3.1", "3.0"]


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
        {"ref": "3.0", "from_line": 3, "to_line": 2},
        {"ref": "3.0", "max_tokens": 63},
    ]
    for one in wrong:
        with pytest.raises(InvalidInputError):
            session.recall(**one)
    for q in ("", " ", "x" * 1_001):
        with pytest.raises(InvalidInputError):
            session.search(q)
    with pytest.raises(NotFoundError):
        Session(log._backend, "nobody").search("x")


def test_the_tools_of_a_model_are_run_and_say_what_is_wrong(log: Turnlog) -> None:
    session = filled(log)
    assert "of b" in session.run_recall_tool("recall_tool_call", '{"ref": "3.1"}')
    assert "of b" in session.run_recall_tool("recall_tool_call", {"ref": "b"})
    assert "1900: line 1900" in session.run_recall_tool("recall_tool_call", {"ref": 3.0, "pattern": "line 1900"})
    assert session.run_recall_tool("recall_tool_call", {"ref": "99.0"}).startswith("Tool call result not found: 99.0")
    for arguments in ("", "{", "[]", '{"ref": null}', '{"ref": "\\ud83d"}', '{"ref": "3.1", "pattern": "("}'):
        assert session.run_recall_tool("recall_tool_call", arguments)
    assert "again" in session.run_recall_tool("search_history", {"q": "doing it again", "limit": "3"})
    assert session.run_recall_tool("search_history", {"q": "nowhere"}).startswith("Nothing found")
    with pytest.raises(KeyError):
        session.run_recall_tool("get_order", {})


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
        found = session.search(q)
        assert found.results[0].position == position, q
        assert found.results[0].score > 0
    assert session.search("colour", role="assistant").results[0].position == 3, "the reply counts with its question"
    assert [one.ref for one in session.search("Oslo", tool="get_weather").results] == ["10.0", "10.0"]
    assert session.search("Oslo", tool="other").results == []
    assert {one.loop for one in session.search("reply", loop=2).results} == {2}
    assert len(session.search("reply", limit=2).results) == 2
    for odd in ('"', "NEAR(a b)", "a OR", "* ^ -", "the of", "\x00", "²", "own:x", "'; DROP"):
        session.search(odd)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_search_on_locomo_finds_the_evidence(real_data: Any) -> None:
    """recall@5 and @10 of the evidence turns, all questions: at least 64 and 74 %."""
    from datetime import datetime

    from turnlog.adapters.search.fts5 import Fts5SearchEngine

    at_5, at_10 = list[float](), list[float]()
    for session in real_data.iter_sessions("dev/locomo"):
        ids = [message["dia_id"] for message in session["messages"]]
        days = [datetime.fromisoformat(message["created_at"]) for message in session["messages"]]
        texts = [
            f"{day.day} {day:%B} {day.year} {message['name']} {message['content']}"
            for day, message in zip(days, session["messages"], strict=True)
        ]
        for question in session["meta"]["qa"][::4]:
            evidence = [one for one in real_data.fix_evidence(question.get("evidence")) if one in ids]
            if evidence:
                ranked = [ids[at] for at, _ in Fts5SearchEngine().rank(texts, question["question"])[:10]]
                at_5.append(sum(one in ranked[:5] for one in evidence) / len(evidence))
                at_10.append(sum(one in ranked for one in evidence) / len(evidence))
    assert len(at_5) > 200
    assert sum(at_5) / len(at_5) >= 0.62 and sum(at_10) / len(at_10) >= 0.72
