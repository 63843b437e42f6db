"""What is measured: sessions of a length, and the operations on them. Made text, the same in every run."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from turnlog.app import Application
from turnlog.client.in_process import InProcessBackend
from turnlog.client.model import Session, Turnlog
from turnlog.core.identity import Owner
from turnlog.log.commit import VERIFIED
from turnlog.routing import BY_NAME
from turnlog.testing.fixed import FixedClock

TENANT, USER = "111122223333", "user-0000001"
"""12 characters each, as the budgets name them; the owner of a role ``user-0000001`` in that account."""
ENGLISH = (
    "Could you please check whether the order that I placed last Tuesday has already left the warehouse, and if it has, "
    "tell me which carrier is bringing it and on which day I should be at home to sign for the parcel? The shop promised "
    "delivery before the end of the week, but the page only says that the package is being prepared. I would also like "
    "to change the address to my office, because nobody is at home on working days, and I need the invoice with the name "
    "of the company on it. If the address can no longer be changed, please tell the carrier to leave the parcel with the "
    "neighbour on the left side."
)[:600]
_WORD_LIST = (
    "the of and to a in is it you that he was for on are with as his they be at one have this from or had by not but some "
    "what there we can out other were all your when up use word how said an each she which do their time if will way about "
    "many then them would write like so these her long make thing see him two has look more day could go come did my sound "
    "no most number who over know water than call first people may down side been now find any new work part take get place "
    "made live where after back little only round man year came show every good me give our under name very through just "
    "form much great think say help low line before turn cause same mean differ move right boy old too does tell sentence "
    "set three want air well also play small end put home read hand port large spell add even land here must big high such "
    "follow act why ask men change went light kind off need house picture try us again animal point mother world near build "
    "order invoice parcel carrier delivery address warehouse refund account shipment customer tracking payment receipt agent"
)
_WORDS = _WORD_LIST.split()
SYSTEM = "You are a careful agent. Work in small steps, look before you change anything, and say what you did. " * 4
TOOL = {
    "type": "function",
    "function": {
        "name": "read_log",
        "description": "Reads the lines of a log of a service",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}}},
    },
}
RESULT_BYTES = 3_000
AGENT_COMMITS = 64
_ONE_BY_ONE = 1_000
_BATCH = 25
_TURN_MESSAGES = 22


@dataclass(frozen=True)
class Call:
    """One request of the route table."""

    operation: str
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str | int | None] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None

    def send(self, app: Application) -> Any:
        backend = InProcessBackend(app, Owner.of(TENANT, USER))
        return backend.call(self.operation, path=self.path, query=self.query, body=self.body)


@dataclass
class Scene:
    """A chat of so many messages, a session of as many that ends with an agent's turns, and one of just 64 commits."""

    messages: int
    clock: FixedClock
    log: Turnlog
    chat: Session
    agent: Session
    of_64: Session
    created: int = 0

    @classmethod
    def build(cls, app: Application, clock: FixedClock, messages: int, *, batches: bool = False) -> Scene:
        """Build a scene. ``batches``: also a short session is appended 25 messages a commit, all but its newest 64."""
        log = Turnlog(InProcessBackend(app, Owner.of(TENANT, USER)))
        chat = log.sessions.create(f"chat-{messages:07}")
        one_by_one = messages if messages <= _ONE_BY_ONE and not batches else min(messages, AGENT_COMMITS)
        _fill(chat, messages - one_by_one)
        for at in range(one_by_one):
            chat.append(chat_message(at))
        agent, of_64 = (
            log.sessions.create(f"{name}-{messages:07}", system=SYSTEM, tools=[TOOL]) for name in ("agnt", "comm")
        )
        _turns(agent, messages)
        _turns(of_64, 4 + 5 * _TURN_MESSAGES)
        return cls(messages, clock, log, chat, agent, of_64)


def _turns(session: Session, messages: int) -> None:
    """Older messages 25 a commit, then 4 of a chat one by one, then up to 5 turns: 64 commits in all at the end."""
    turns = min(5, max(0, (messages - 4) // _TURN_MESSAGES))
    _fill(session, max(0, messages - 4 - _TURN_MESSAGES * turns))
    for at in range(min(4, messages)):
        session.append(chat_message(at))
    for turn in range(turns):
        for commit in agent_turn(turn):
            session.append(*commit)


def _fill(session: Session, messages: int) -> None:
    for start in range(0, messages, _BATCH):
        session.append(*(chat_message(at) for at in range(start, min(start + _BATCH, messages))))


def chat_message(at: int) -> dict[str, Any]:
    """600 characters of English words, no two messages alike: zlib makes 25 of them about 2.4 times smaller."""
    rng = random.Random(at)
    return {"role": ("user", "assistant")[at % 2], "content": " ".join(rng.choices(_WORDS, k=170))[:600]}


def agent_turn(turn: int) -> list[list[dict[str, Any]]]:
    """12 commits: a question, 10 times a call with its result of 3 KB, an answer."""
    steps = [[call(turn, step), result(turn, step)] for step in range(10)]
    return [[{"role": "user", "content": ENGLISH}], *steps, [{"role": "assistant", "content": ENGLISH[:300]}]]


def call(turn: int, step: int) -> dict[str, Any]:
    function = {"name": "read_log", "arguments": f'{{"path": "/var/log/orders-{turn}-{step}.log", "lines": 30}}'}
    return {
        "role": "assistant",
        "content": f"I look at part {step} of the log.",
        "tool_calls": [{"id": f"call_{turn:04}{step:03}", "type": "function", "function": function}],
    }


def result(turn: int, step: int) -> dict[str, Any]:
    rng = random.Random(turn * 1_000 + step)
    lines = [
        f"2026-11-21T09:{rng.randrange(60):02}:{rng.randrange(60):02}Z INFO worker-{rng.randrange(8)} order "
        f"{rng.getrandbits(40):010x} took {rng.randrange(20, 900)} ms, status {rng.choice((200, 200, 404, 503))}"
        for _ in range(40)
    ]
    return {"role": "tool", "tool_call_id": f"call_{turn:04}{step:03}", "content": "\n".join(lines)[:RESULT_BYTES]}


@dataclass(frozen=True)
class Budget:
    """Limits of 6-quality.md; None: there is none."""

    requests: int | None = None
    read_units: float | None = None
    write_units: float | None = None
    own_ms: float | None = None


@dataclass(frozen=True)
class Operation:
    """``make`` gives the call; ``prepare`` brings the scene about, once an engine."""

    name: str
    make: Callable[[Scene], Call]
    budget: Budget = Budget()
    prepare: Callable[[Scene], None] = lambda scene: None
    before_each: Callable[[Scene], None] = lambda scene: None
    once: bool = False
    """Of the session of 64 commits: the same at every length, measured at the first."""
    needs: str | None = None
    """A route that may not be there."""


def operations() -> list[Operation]:
    """Return the operations that the route table has."""
    listed = [
        Operation("window, agent of 64 commits", _window_of_64, Budget(1, 13, 0, 10), once=True),
        Operation(
            "window, the same, never read before",
            _window_of_64,
            Budget(1, 13, 0, 10),
            before_each=lambda scene: VERIFIED.clear(),
            once=True,
        ),
        Operation(
            "window, the same in mid-turn", _window_of_64, Budget(2, None, 0, 10), prepare=_begin_turn, once=True
        ),
        Operation(
            "window, default, 24k tokens", lambda scene: _window(scene, budget=24_000), Budget(None, None, 0, 10)
        ),
        Operation("window, default, no budget", _window, Budget(None, None, 0, 10)),
        Operation("read 100 messages", _read),
        Operation("loops, 20", lambda scene: Call("read_loops", _of(scene.agent))),
        Operation("list 20 sessions", lambda scene: Call("list_sessions", query={"limit": 20}), prepare=_settle_list),
        Operation("create", _create),
        Operation("append 1 x 600 B", _append_one, Budget(2, 1, 1, 3)),
        Operation("append 1, touching the list", _append_one, before_each=_advance),
        Operation("append 25 x 600 B", _append_25),
        Operation("snapshot, ref", _snapshot, needs="create_snapshot"),
        Operation(
            "compress 13 new commits",
            _compress,
            prepare=_first_summary,
            before_each=_whole_turn,
            needs="compress_session",
        ),
        Operation(
            "window after it, 24k tokens",
            lambda scene: _window(scene, budget=24_000),
            Budget(None, None, 0, 10),
            needs="compress_session",
        ),
    ]
    return [item for item in listed if item.needs is None or item.needs in BY_NAME]


def _create(scene: Scene) -> Call:
    scene.created += 1
    return Call("create_session", body={"session_id": f"n{scene.messages:05}{scene.created:06}"})


def _append_one(scene: Scene) -> Call:
    return Call("append_messages", _of(scene.chat), body={"messages": [{"role": "user", "content": ENGLISH}]})


def _append_25(scene: Scene) -> Call:
    return Call("append_messages", _of(scene.chat), body={"messages": [chat_message(-at) for at in range(1, 26)]})


def _read(scene: Scene) -> Call:
    return Call("read_messages", _of(scene.chat), {"limit": 100, "order": "desc"})


def _snapshot(scene: Scene) -> Call:
    return Call("create_snapshot", _of(scene.agent), body={"kind": "ref"})


def _compress(scene: Scene) -> Call:
    return Call("compress_session", _of(scene.agent), body={"mode": "sync", "keep_loops": 0})


def _first_summary(scene: Scene) -> None:
    """Summarise all there is; what is measured continues it."""
    _whole_turn(scene)
    scene.agent.compress(keep_loops=0)


def _whole_turn(scene: Scene) -> None:
    """Append a closed loop of its own, so that there is something to cover."""
    scene.created += 1
    for commit in agent_turn(1_000 + scene.created):
        scene.agent.append(*commit)
    scene.agent.append({"role": "user", "content": "Thanks. Go on."})


def _settle_list(scene: Scene) -> None:
    """20 sessions at least, with exact entries: the first list after five quiet minutes settles them."""
    for at in range(20 - len(scene.log.sessions.page().sessions)):
        scene.log.sessions.create(f"l{scene.messages:05}{at:06}")
    scene.log.sessions.page()


def _window(scene: Scene, **options: Any) -> Call:
    return Call("build_context", _of(scene.agent), body=options)


def _window_of_64(scene: Scene) -> Call:
    return Call("build_context", _of(scene.of_64), body={})


def _begin_turn(scene: Scene) -> None:
    for commit in agent_turn(99)[:4]:
        scene.of_64.append(*commit)


def _advance(scene: Scene) -> None:
    scene.clock.advance(301)


def _of(session: Session) -> dict[str, str]:
    return {"session_id": session.id}
