"""T1: every route and every worker, asked by another owner for what is mine. A route that is not in the matrix fails it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal
from urllib.parse import quote

import pytest

from tests.conftest import Harness
from tests.effort import is_full
from tests.http.events import event
from tests.log.everything import blobs_of, items_of
from tests.support.jobs import deliver
from turnlog.app import Application
from turnlog.client.model import Session
from turnlog.core.identity import Owner
from turnlog.http.lambda_api import make_handler
from turnlog.log.keys import OwnerKeys
from turnlog.ports import QUEUES, JobKind
from turnlog.routing import BY_NAME, ROUTES

CANARY = "canary-matrix-41"
MINE = ("111122223333", "ada")
OTHERS = [("111122223333", "bob"), ("444455556666", "ada")]
"""Another user of my tenant, and one of my name in another tenant."""
ABSENT = "not-there"


@dataclass(frozen=True)
class Case:
    """What another owner asks of a route. ``{…}`` in its parts stand for ids of mine, or for what is not there.

    ``answer``: ``missing``, the same 404 as for what is not there; ``same``, the same answer as for that, whatever it is;
    ``refused``, 400; ``own``, something of the caller's own, which has nothing of mine in it."""

    answer: Literal["missing", "same", "refused", "own"]
    path: dict[str, str] = field(default_factory=dict)
    query: dict[str, str] = field(default_factory=dict)
    body: Any = None


SESSION = {"session_id": "{session}"}
AGENT = {**SESSION, "agent_id": "main"}
SNAPSHOT = {**SESSION, "snapshot": "{snapshot}"}
CASES: dict[str, list[Case]] = {
    "create_session": [
        Case("own", body={"session_id": "{session}"}),
        Case("own", body={"session_id": "{session}", "if_exists": "return"}),
        Case("missing", body={"fork": {"session_id": "{session}"}}),
        Case("missing", body={"fork": {"session_id": "{session}", "at": 3}}),
    ],
    "list_sessions": [Case("own"), Case("refused", query={"cursor": "{sessions}"})],
    "get_session": [Case("missing", SESSION)],
    "update_session": [Case("missing", SESSION, body={"title": "theirs"})],
    "erase_session": [Case("missing", SESSION)],
    "end_session": [Case("missing", SESSION)],
    "reset_session": [Case("missing", SESSION)],
    "append_messages": [Case("missing", SESSION, body={"messages": [{"role": "user", "content": "x"}]})],
    "read_messages": [Case("missing", SESSION), Case("missing", SESSION, {"format": "anthropic"})],
    "read_loops": [Case("missing", SESSION)],
    "build_context": [Case("missing", SESSION, body={}), Case("missing", SESSION, body={"at": 3})],
    "build_window": [Case("own", body={"messages": [{"role": "user", "content": "x"}], "budget": 100})],
    "lint_messages": [Case("own", body={"messages": [], "format": "anthropic"})],
    "recall": [Case("missing", SESSION, {"ref": "3.0"})],
    "search_session": [Case("missing", SESSION, {"q": CANARY})],
    "search_sessions": [Case("own", query={"q": CANARY})],
    "get_state": [Case("missing", SESSION), Case("missing", SESSION, {"at": "3"})],
    "put_state": [Case("missing", SESSION, body={"state": {"x": 1}})],
    "patch_state": [Case("missing", SESSION, body={"x": 1})],
    "get_agent": [Case("missing", AGENT)],
    "patch_agent": [Case("missing", AGENT, body={"iteration": 1})],
    "decide_pending": [Case("missing", AGENT, body={"decision": "reject"})],
    "send_to_run": [Case("missing", AGENT, body={"messages": [{"role": "user", "content": "x"}]})],
    "lease_session": [Case("missing", SESSION, body={"holder": "theirs"})],
    "put_documents": [
        Case("missing", SESSION, body={"put": [{"key": "mine", "data": ""}]}),
        Case("missing", SESSION, body={"delete": ["mine"]}),
    ],
    "get_documents": [
        Case("missing", SESSION, body={"keys": ["mine"]}),
        Case("missing", SESSION, body={"prefix": "", "reading": "{reading}"}),
    ],
    "read_history": [Case("missing", SESSION)],
    "record_history": [Case("missing", SESSION, body={"action": "theirs"})],
    "diff_session": [Case("missing", SESSION, {"from": "1"})],
    "rewind_session": [Case("missing", SESSION, body={"to": 1})],
    "compress_session": [
        Case("missing", SESSION, body={"mode": "sync"}),
        Case("missing", SESSION, body={"mode": "async"}),
    ],
    "get_summary": [Case("missing", SESSION)],
    "discard_summary": [Case("missing", SESSION)],
    "create_snapshot": [
        Case("missing", SESSION, body={"name": "theirs"}),
        Case("missing", SESSION, body={"kind": "full", "mode": "async"}),
    ],
    "list_snapshots": [Case("missing", SESSION)],
    "get_snapshot": [Case("missing", SNAPSHOT), Case("missing", {**SESSION, "snapshot": "named"})],
    "delete_snapshot": [Case("missing", SNAPSHOT)],
    "restore_snapshot": [
        Case("missing", SNAPSHOT, body={"as": "fork"}),
        Case("missing", SNAPSHOT, body={"as": "rewind"}),
    ],
    "download": [Case("missing", {"token": "{token}"})],
    "redact_message": [Case("missing", {**SESSION, "position": "3"})],
    "erase_user": [Case("own")],
    "export_session": [Case("missing", SESSION, body={}), Case("missing", SESSION, body={"mode": "async"})],
    "export_everything": [Case("own")],
    "import_session": [Case("same", SESSION, body={"head": 1, "hash": "0" * 32, "commits": ["{}"]})],
    "list_memories": [Case("own"), Case("refused", query={"cursor": "{memories}"})],
    "forget_memory": [Case("same", {"memory_id": "{memory}"})],
    "get_job": [Case("missing", {"job_id": "{job}"})],
    "list_jobs": [Case("own"), Case("refused", query={"cursor": "{jobs}"})],
    "health": [Case("own")],
    "openapi": [Case("own")],
}
"""By the name of the route."""
NOT_THERE = {
    "session": ABSENT,
    "snapshot": ABSENT,
    "token": "AAAA",
    "memory": ABSENT,
    "job": "1763720100000-absent",
    "reading": "AAAA",
    "memories": "AAAA",
    "jobs": "AAAA",
    "sessions": "AAAA",
}


def test_t1_every_route_is_in_the_matrix() -> None:
    assert set(CASES) == set(BY_NAME) == {route.name for route in ROUTES}
    assert all(CASES.values())


# ------------------------------------------------------------ what is mine


def mine(harness: Harness) -> tuple[Session, dict[str, str]]:
    """A session with something of everything in it, and the ids by which it is asked for."""
    log = harness.log(*MINE)
    session = log.sessions.create("mine", title=CANARY, system=CANARY, metadata={"m": CANARY}, state={"s": CANARY})
    session.append({"role": "user", "content": f"I live in Lisbon and like {CANARY}."})
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": json.dumps({"a": CANARY})}}
    session.append({"role": "assistant", "content": None, "tool_calls": [call]})
    session.append({"role": "tool", "tool_call_id": "c", "content": CANARY})
    session.append({"role": "assistant", "content": CANARY}, run={"iteration": 1, "pending_action": {"tool": CANARY}})
    session.documents.put("mine", CANARY.encode())
    session.record("noted", metadata={"m": CANARY})
    snapshot = session.create_snapshot("named", metadata={"m": CANARY})
    log.sessions.create("spare").compress(mode="async")
    made = handled(harness, MINE, "POST", "/v1/sessions/mine/documents/read", body={"prefix": ""})
    exported = handled(harness, MINE, "POST", "/v1/sessions/mine/export", body={})
    # In ended sessions is what long-term memory has read.
    for number in (1, 2):
        talk = log.sessions.create(f"talk-{number}")
        talk.append({"role": "user", "content": f"My name is Ada and I prefer tea number {number}, {CANARY}."})
        talk.append({"role": "assistant", "content": "Noted."})
        talk.end()
    while log.run_jobs():
        pass
    memories = handled(harness, MINE, "GET", "/v1/users/me/memory", query={"limit": "1"})
    jobs = handled(harness, MINE, "GET", "/v1/jobs", query={"limit": "1"})
    sessions = handled(harness, MINE, "GET", "/v1/sessions", query={"limit": "1"})
    assert all(page["next_cursor"] for page in (memories, jobs, sessions))
    return session, {
        "session": "mine",
        "snapshot": snapshot.snapshot_id,
        "token": str(exported["url"]).rpartition("/")[2].partition("?")[0],
        "memory": memories["memories"][0]["memory_id"],
        "job": jobs["jobs"][0]["job_id"],
        "reading": made["reading"],
        "memories": memories["next_cursor"],
        "sessions": sessions["next_cursor"],
        "jobs": jobs["next_cursor"],
    }


def stored(harness: Harness) -> tuple[dict[tuple[str, str], Any], dict[str, bytes]]:
    """Items and blobs of mine, byte for byte."""
    own = OwnerKeys(Owner.of(*MINE)).partition
    place = f"{MINE[0]}/{MINE[1]}/"
    items = {(item["pk"], item["sk"]): item for item in items_of(harness)}
    return (
        {key: item for key, item in items.items() if key[0] == own or key[0].startswith(own + "#")},
        {name: data for name, data in blobs_of(harness).items() if place in name},
    )


# ------------------------------------------------------------ asking


@lru_cache(maxsize=1)
def handler_of(app: Application) -> Callable[[dict[str, Any], Any], dict[str, Any]]:
    return make_handler(ROUTES, app)


def asked(
    harness: Harness,
    owner: tuple[str, str],
    method: str,
    path: str,
    *,
    query: dict[str, str] | None = None,
    body: Any = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, str]:
    """Through the handler, as API Gateway would send it: who asks is in the signature and nowhere else."""
    account, role = owner
    arn = f"arn:aws:sts::{account}:assumed-role/{role}/session"
    made = event(method, path, query=query, body=body, headers=headers, authorizer={"iam": {"userArn": arn}})
    answer = handler_of(harness.app)(made, None)
    dumps = json.dumps(answer.get("headers"))
    return answer["statusCode"], f"{answer.get('body') or ''}{dumps if CANARY in dumps else ''}"


def handled(harness: Harness, *args: Any, **options: Any) -> dict[str, Any]:
    status, body = asked(harness, *args, **options)
    assert status in (200, 201, 202), body
    content: dict[str, Any] = json.loads(body)
    return content


def filled(value: Any, ids: dict[str, str]) -> Any:
    if isinstance(value, str):
        for name, entry in ids.items():
            value = value.replace("{" + name + "}", entry)
        return value
    if isinstance(value, dict):
        return {name: filled(item, ids) for name, item in value.items()}
    return [filled(item, ids) for item in value] if isinstance(value, list) else value


def ask(harness: Harness, owner: tuple[str, str], name: str, case: Case, ids: dict[str, str]) -> tuple[int, str]:
    route, path = BY_NAME[name], BY_NAME[name].path
    for parameter, value in filled(case.path, ids).items():
        path = path.replace("{" + parameter + "}", quote(value, safe=""))
    return asked(harness, owner, route.method, path, query=filled(case.query, ids), body=filled(case.body, ids))


def without(text: str, ids: dict[str, str]) -> str:
    for item in sorted(set(ids.values()), key=len, reverse=True):
        text = text.replace(item, "ID")
    return text


def in_order() -> list[tuple[str, Case]]:
    """First what is missing, for a caller with nothing; then what makes something of the caller's own, and erases it."""
    values = [(name, case) for name, cases in CASES.items() for case in cases]
    return sorted(values, key=lambda item: (item[1].answer == "own", item[0] == "erase_user"))


def test_t1_nothing_of_mine_is_told_or_changed_on_any_route(harness: Harness) -> None:
    session, ids = mine(harness)
    before, result = stored(harness), session.info()
    for owner in OTHERS if harness.name == "sqlite" or is_full() else OTHERS[:1]:
        nothing_is_told_or_changed(harness, owner, ids, before)
        assert session.info() == result
    assert [item.session_id for item in harness.log(*MINE).sessions.list()]


def nothing_is_told_or_changed(harness: Harness, owner: tuple[str, str], ids: dict[str, str], before: Any) -> None:
    for name, case in in_order():
        status, said = ask(harness, owner, name, case, ids)
        absent_status, absent = ask(harness, owner, name, case, NOT_THERE)
        assert CANARY not in said, name
        if harness.name == "sqlite" or case.answer == "own":  # to read all of moto takes longer than all else
            assert stored(harness) == before, name
        assert status < 500, (name, said)
        if case.answer == "refused":
            assert status == absent_status == 400, (name, said)
        elif case.answer != "own":
            assert (status, without(said, ids)) == (absent_status, without(absent, NOT_THERE)), name
            assert status == 404 or case.answer == "same", (name, said)
    # What the eraser and others have been asked to do for them is done for them.
    while harness.log(*owner).run_jobs():
        harness.clock.advance(3600)
    assert stored(harness) == before


HEADERS = [
    {"X-Turnlog-User": "ada"},
    {"x-turnlog-user": "ada", "X-Turnlog-Tenant": MINE[0]},
    {"X-Amzn-Oidc-Identity": "ada", "X-Forwarded-User": "ada"},
]


@pytest.mark.parametrize("headers", HEADERS, ids=str)
@pytest.mark.parametrize("harness", ["sqlite"], indirect=True)
def test_t1_no_header_query_or_body_names_another_owner(harness: Harness, headers: dict[str, str]) -> None:
    mine(harness)
    before = stored(harness)
    status, said = asked(harness, OTHERS[0], "GET", "/v1/sessions/mine", headers=headers)
    assert status in (403, 404) and CANARY not in said
    for name in ("tenant", "user", "owner", "tenant_id", "user_id"):
        query = {name: "ada"}
        status, said = asked(harness, OTHERS[0], "GET", "/v1/sessions", query=query)
        assert status == (403 if name == "user" else 422) and CANARY not in said
        body = {"session_id": "x", name: "ada"}
        assert asked(harness, OTHERS[0], "POST", "/v1/sessions", body=body)[0] == 422
    assert stored(harness) == before


# ------------------------------------------------------------ workers


def forged(kind: JobKind, owner: Owner, session_id: str, job_id: str) -> str:
    ids = {"tenant": owner.tenant_id, "user": owner.user_id, "session_id": session_id}
    return json.dumps({"v": 1, "job_id": job_id, "kind": kind, **ids})


def test_t1_no_worker_does_anything_for_a_message_whose_job_is_another_owner_s(harness: Harness) -> None:
    """Whoever may write to a queue: a message does what a record of its own owner says, or nothing."""
    mine(harness)
    me, other = Owner.of(*MINE), Owner.of(*OTHERS[0])
    log = harness.log(*OTHERS[0])
    log.sessions.create("mine").append({"role": "user", "content": "theirs"})
    theirs = log.sessions.get("mine").compress(mode="async").job_id
    before = stored(harness)
    for queue, kinds in QUEUES.items():
        for kind in kinds:
            deliver(
                harness,
                forged(kind, me, "mine", theirs),
                forged(kind, me, "", theirs),
                forged(kind, me, "spare", theirs),
                forged(kind, me, "../mine", theirs),
                forged(kind, me, "mine", f"../{theirs}"),
                forged(kind, me, "mine", "1763720100000-invented"),
                kinds=kinds,
            )
            poison = [  # of their own job: another session than its record says, another kind, a name in place of an id
                forged(kind, other, "spare", theirs),
                forged(kind, other, f"mine#{MINE[1]}", theirs),
                json.dumps({**json.loads(forged(kind, other, "mine", theirs)), "user": f"bob#S#mine/../{MINE[1]}"}),
                *([forged(kind, other, "mine", theirs)] if kind != "compress" else []),
            ]
            assert len(deliver(harness, *poison, kinds=kinds)) == len(poison)
        assert stored(harness) == before, queue
    # And the job itself, delivered to its own worker, does its work on theirs.
    assert deliver(harness, forged("compress", other, "mine", theirs), kinds=QUEUES["compress"]) == set()
    assert log.job(theirs).status == "done"
    assert stored(harness) == before
