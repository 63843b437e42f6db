"""`turnlog diff`, `rewind`, `fork` and `show` of a moment."""

from __future__ import annotations

from pathlib import Path

from tests.support.command_line import SESSION, as_json, ok, refused
from turnlog import Turnlog
from turnlog.engines import location_url


def test_rewind_says_how_to_undo_it_and_undoes_it(data: Path) -> None:
    before = as_json("show", SESSION, "--in-view", "--limit", "500", "--data", data)["messages"]
    head = as_json("rewind", SESSION, "--to", "5", "--data", data)["head"]
    shown = as_json("show", SESSION, "--in-view", "--data", data)["messages"]
    assert [item["position"] for item in shown] == [item["position"] for item in before if item["position"] <= 5]
    assert len(as_json("show", SESSION, "--limit", "500", "--data", data)["messages"]) == len(before)
    assert as_json("show", SESSION, "--at", "5", "--data", data)["messages"] == shown
    said = ok("rewind", SESSION, "--to", str(head - 1), "--if-head", str(head), "--data", data)
    assert f"is as it was at {head - 1}" in said
    assert said.rstrip().endswith(f"undo with --to {head}")
    assert as_json("show", SESSION, "--in-view", "--limit", "500", "--data", data)["messages"] == before


def test_fork_and_diff(data: Path) -> None:
    made = as_json("fork", SESSION, "--as", "what-if", "--at", "5", "--title", "What if", "--data", data)
    assert (made["forked_from"], made["forked_at"], made["title"]) == (SESSION, 5, "What if")
    assert "begins as" in ok("fork", SESSION, "--data", data)
    with Turnlog.open(location_url(data)) as log:
        fork = log.sessions.get("what-if")
        fork.put_state({"lang": "en"})
        fork.update(policy="full")
        fork.append({"role": "user", "content": "And now?"})
    result = as_json("diff", "what-if", "--from", "5", "--data", data)
    assert [message["body"]["content"] for message in result["messages"]] == ["And now?"]
    said = ok("diff", "what-if", "--from", "5", "--data", data)
    assert "more messages" not in said
    assert "And now?" in said and "+ state /lang: 'en'" in said and "~ settings: title, policy" in said
    ok("rewind", "what-if", "--to", "3", "--data", data)
    assert "positions 4–" in ok("diff", "what-if", "--from", "9", "--data", data)
    with Turnlog.open(location_url(data)) as log:
        log.sessions.get(SESSION).compress()
        head = log.sessions.get(SESSION).info().head
    said = ok("diff", SESSION, "--from", "3", "--limit", "2", "--data", data)
    assert (
        said.count("\n+ ") == 2 and "more messages: --limit" in said and f"~ current summary: none -> {head}\n" in said
    )


def test_what_is_wrong_is_said_in_a_line(data: Path) -> None:
    refused("rewind", SESSION, "--to", "99999", "--data", data, code=2, says="above the head")
    refused("rewind", SESSION, "--to", "yesterday", "--data", data, code=2, says="neither a position nor a time")
    refused("rewind", SESSION, "--to", "3", "--if-head", "2", "--data", data, code=1, says="head_mismatch")
    refused("fork", SESSION, "--as", SESSION, "--data", data, code=1, says="session_exists")
    refused("fork", "not-there", "--data", data, code=1, says="no session 'not-there'")
    refused("diff", SESSION, "--from", "0", "--data", data, code=2, says="from is not a position")
