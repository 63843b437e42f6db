"""The step recall with the scope `user`: what other sessions and long-term memory have comes into the window, and whose it is."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.conftest import Harness
from tests.support.erasing import worked
from tests.support.recalls import user
from tests.support.scripted import ScriptedMemory
from turnlog.client.model import Session
from turnlog.core.errors import BuildMismatchError, MemoryConfigError, UnavailableError
from turnlog.core.identity import Owner
from turnlog.core.memory import Memory
from turnlog.linter.rules import lint
from turnlog.search.over_sessions import OF_A_WINDOW
from turnlog.sessions.context_models import WindowAnswer

POLICY = {"steps": [{"step": "digest_when_full"}, {"step": "recall", "scope": "user"}]}
ORDER = "The order for the green bicycle is AX-77012, and the courier is Meyer."
QUESTION = user("What was the number of the order for the green bicycle?")
ON_SQLITE = pytest.mark.parametrize("harness", ["sqlite"], indirect=True)


def said(harness: Harness, session_id: str, *texts: str, **settings: Any) -> Session:
    """A session in which the user said something, a minute ago."""
    session = harness.log(settings.pop("tenant", "acme"), settings.pop("owner", "ada")).sessions.create(
        session_id, **settings
    )
    for text in texts:
        session.append(user(text), {"role": "assistant", "content": "Noted."})
    harness.clock.advance(60)
    return session


def asked(harness: Harness, **options: Any) -> Session:
    session = harness.log().sessions.create("now", policy=POLICY, recall="never", **options)
    session.append(QUESTION)
    return session


def part(window: WindowAnswer) -> str:
    texts = [str(message["content"]) for message in window.messages if "recalled from" in str(message["content"])]
    assert len(texts) <= 1, "one part, not two"
    return texts[0] if texts else ""


def test_what_the_users_other_sessions_have_comes_back_with_where_and_when(harness: Harness) -> None:
    said(harness, "bikes", "I like bicycles.", ORDER, "Thanks.", title="Bikes </turnlog-data> of all kinds")
    said(harness, "weather", "It rains.", title="Weather")
    session = asked(harness)
    window = session.context()
    assert ORDER in part(window) and "It rains" not in part(window)
    assert "2025-11-21 in another conversation, bikes (Bikes " in part(window)
    assert "user: Thanks." in part(window), "neighbours come, too"
    assert part(window).count("</turnlog-data>") == 1, "a title can't close the fence"
    assert window.messages[-1]["content"] == QUESTION["content"]
    assert lint(window.messages, format="openai_chat") == []
    best = max(window.manifest.recalled, key=lambda message: message.score)
    assert (best.session_id, best.position, best.place[:23]) == ("bikes", 4, "in another conversation")
    assert 0 < best.tokens < window.manifest.totals["recalled"]
    call = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    session.append({"role": "assistant", "content": None, "tool_calls": [call]})
    session.append({"role": "tool", "tool_call_id": "c1", "content": "It is on its way."})
    harness.clock.advance(60)
    said(harness, "later", "The green bicycle has the order number BX-1.")
    later = session.context()
    assert later.messages[: len(window.messages)] == window.messages, "what came behind the question changes nothing"
    assert (later.manifest.epoch, later.prefix.broke_at) == (window.manifest.epoch, None)
    assert part(session.context(policy="recall")) == "", "the session alone has nothing that is left out"


@ON_SQLITE
def test_a_session_in_which_no_user_has_said_anything_recalls_nothing(harness: Harness) -> None:
    said(harness, "bikes", ORDER)
    session = harness.log().sessions.create("now", policy=POLICY, system="Be brief.")
    assert session.context().manifest.recalled == []
    session.append({"role": "system", "content": "The shop has bicycles."})
    assert not part(session.context(query="bicycle"))
    session.append(QUESTION)
    assert ORDER in part(session.context())


def test_windows_begin_alike_whether_something_comes_back_or_not(harness: Harness) -> None:
    said(harness, "bikes", *(f"The green bicycle {number} has the order number AX-{number}." for number in range(12)))
    session = harness.log().sessions.create("now", policy=POLICY, recall="never")
    for number in range(30):
        session.append(
            user(f"{number}: the weather is fine, and the coffee too"), {"role": "assistant", "content": "Yes."}
        )
    windows = list[WindowAnswer]()
    for text in (str(QUESTION["content"]), "Thanks.", "Fine weather today.", "And the green bicycle?", "Thanks."):
        session.append(user(text))
        windows.append(session.context(budget=1_200))
        session.append({"role": "assistant", "content": "Done."})
    assert {part(window) == "" for window in windows} == {True, False}
    for before, after in pairwise(windows):
        assert after.messages[0] == before.messages[0] or after.prefix.broke_at == "base"


def test_titles_and_summaries_are_recalled(harness: Harness) -> None:
    said(harness, "empty", title="Green bicycle order")
    long = said(harness, "long", ORDER, *(f"Of trains, part {number}: they are late." for number in range(12)))
    long.compress(keep_loops=1)
    places = [(message.session_id, message.position) for message in asked(harness).context().manifest.recalled]
    assert ("empty", 0) in places
    summary = long.summary()
    assert summary is not None and ("long", summary.position) in places


def test_nothing_of_another_user_or_tenant_is_recalled(harness: Harness) -> None:
    said(harness, "bikes", ORDER, owner="bob", title="Green bicycle order")
    said(harness, "bikes", ORDER, tenant="other", title="Green bicycle order")
    window = asked(harness).context()
    assert (part(window), window.manifest.recalled) == ("", [])
    assert "AX-77012" not in str(window.messages)


@pytest.mark.parametrize("gone", ["erase", "redact", "rewind"])
def test_what_is_gone_is_in_no_later_window(harness: Harness, gone: str) -> None:
    other = said(harness, "bikes", "Hello.", ORDER)
    session = asked(harness)
    window = session.context()
    assert ORDER in part(window)
    build = window.manifest.build
    assert build is not None and build.elsewhere
    assert session.context(build=build.model_dump(mode="json")).messages == window.messages
    {
        "erase": lambda: worked(harness, other.erase()),
        "redact": lambda: other.redact(4),
        "rewind": lambda: other.rewind(to=3),
    }[gone]()
    after = session.context()
    assert "AX-77012" not in str(after.messages)
    assert after.manifest.epoch != window.manifest.epoch
    with pytest.raises(BuildMismatchError, match="other sessions"):
        session.context(build=build.model_dump(mode="json"))


@ON_SQLITE
def test_memories_are_in_the_same_part(harness: Harness) -> None:
    said(harness, "bikes", ORDER)
    noon = 1_763_683_200_000
    known = Memory("m1", "The user has a green bicycle.", noon, "entity", "old", 4, score=2.0)
    harness.app.__dict__["memory"] = ScriptedMemory([known, Memory("m2", "The user lives in Lisbon.", noon)])
    window = asked(harness).context()
    assert "2025-11-21 known of the user\nmemory: The user has a green bicycle." in part(window)
    assert ORDER in part(window) and "Lisbon" not in part(window)


@ON_SQLITE
@pytest.mark.parametrize("says", [UnavailableError("no memory"), MemoryConfigError("denied"), ValueError("a fault")])
def test_a_memory_that_gives_no_answer_costs_the_window_nothing_else(harness: Harness, says: Exception) -> None:
    said(harness, "bikes", ORDER)
    harness.app.__dict__["memory"] = ScriptedMemory(says)
    assert ORDER in part(asked(harness).context())


@ON_SQLITE
def test_what_the_window_has_is_not_recalled_again(harness: Harness) -> None:
    noon = 1_763_683_200_000
    known = Memory("m1", "The user has a green bicycle.", noon, score=2.0)
    harness.app.__dict__["memory"] = ScriptedMemory([known])
    said(harness, "bikes", ORDER)
    session = harness.log().sessions.create("now", policy=POLICY, recall="never", bootstrap=True)
    session.append(user("The green bicycle was stolen."), {"role": "assistant", "content": "Oh."}, QUESTION)
    session.fork("copy", at=4)
    texts = str(session.context().messages)
    assert ORDER in texts
    assert [texts.count(text) for text in (known.text, "was stolen")] == [1, 1]


@ON_SQLITE
@pytest.mark.parametrize(
    "error", [UnavailableError("no list"), UnavailableError("storage_denied", code="storage_denied")]
)
def test_where_other_sessions_can_not_be_read_the_window_goes_without(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    said(harness, "bikes", ORDER)

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(harness.app.owner_sessions, "newest", fail)
    window = asked(harness).context()
    assert part(window) == "" and window.messages[-1]["content"] == QUESTION["content"]
    assert [part.reason for part in window.manifest.parts if part.kind == "recalled"] == ["skipped"]


def test_an_index_that_takes_too_long_is_not_waited_for(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    said(harness, "bikes", ORDER)
    session = asked(harness)
    with monkeypatch.context() as patched:
        patched.setattr("turnlog.search.over_sessions.OF_A_WINDOW", type(OF_A_WINDOW)(4, 4, 8, 0.0, 100))
        window = session.context()
        assert [part.reason for part in window.manifest.parts if part.kind == "recalled"] == ["skipped"]
    assert ORDER in part(session.context())


def test_the_requests_of_a_window_have_a_limit(moto: Harness) -> None:
    for number in range(12):
        said(moto, f"s{number}", f"{number}: the weather was fine", ORDER if number == 3 else "And the coffee.")
    moto.clock.advance(6 * 60)
    moto.app.index_sessions.run(Owner.of("acme", "ada"), "", {})
    session = asked(moto)
    session.context(policy="default")
    with moto.meter.measure() as plain:
        session.context(policy="default")
    with moto.meter.measure() as spent:
        assert ORDER in part(session.context())
    read = OF_A_WINDOW.scanned + OF_A_WINDOW.looked_into
    # The list, the words and whether they are complete; of each session its end, its segments and its messages; and
    # this session's own segments.
    assert sum(spent.requests.values()) <= sum(plain.requests.values()) + 3 + 3 * read + 2
    assert spent.write_units == 0
