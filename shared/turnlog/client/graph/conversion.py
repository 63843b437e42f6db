"""The two conversions: a graph's state into a session, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from turnlog.client.graph.checks import FULL, MESSAGES, problems_of, valid_fields
from turnlog.client.graph.handlers import Handlers, Place, put_back
from turnlog.client.graph.messages import as_given, given_of
from turnlog.client.graph.outcomes import PRE_EXECUTION, Converted, concluded
from turnlog.client.graph.saving import GRAPH, Saving
from turnlog.client.model import Session
from turnlog.contracts.messages import StoredMessage
from turnlog.domain.errors import NotFoundError
from turnlog.domain.execution import DEFAULT_AGENT


def save_graph_state(
    session: Session,
    state: Mapping[str, Any],
    *,
    agent_id: str = DEFAULT_AGENT,
    snapshot: str | None = PRE_EXECUTION,
    snapshot_after: str | None = None,
) -> Converted:
    """Takes a graph's state into the session: new messages into the log, the rest into the agent's execution state.

    ``full_messages`` wins over ``messages``. ``snapshot`` names the head before, ``snapshot_after`` the one after; None for
    none. Problems stop nothing; that a session has ended, or that Turnlog can't be reached, is raised.
    """
    return Saving(session, state, agent_id, snapshot, snapshot_after).run()


def load_graph_state(
    session: Session,
    *,
    handlers: Mapping[Place, Any] | None = None,
    agent_id: str = DEFAULT_AGENT,
    snapshot: str | None = PRE_EXECUTION,
) -> Converted:
    """The graph's state as the session has it: also what others have appended or changed since it was saved.

    ``handlers`` of the saved state are put back. `NotFoundError` when no graph's state was saved for the agent.
    """
    agent = session.agent(agent_id).state
    kept = agent.get(GRAPH)
    if not isinstance(kept, dict):
        raise NotFoundError(f"no graph's state of agent {agent_id!r} in session {session.id!r}", code="no_graph_state")
    stored = [one for one in session.messages(in_view=True) if one.status == "complete"]
    values: dict[str, Any] = {**kept["values"], **{name: agent[name] for name in valid_fields(agent, agent_id)}}
    whole = [given_of(one) for one in stored]
    lists = {FULL: whole, MESSAGES: whole if kept.get("view") is None else _viewed(kept["view"], stored)}
    values |= {name: lists[name] for name in kept["lists"]}
    bodies = [one.body for one in stored]
    problems = problems_of({**values, FULL: bodies, MESSAGES: bodies}, bodies, agent_id)
    made = put_back(values, handlers or {})
    return concluded(session, made, Handlers(handlers or {}), problems, agent_id, snapshot, "from_session", None)


def _viewed(view: Mapping[str, Any], stored: Sequence[StoredMessage]) -> list[Any]:
    """A compressed list again, and behind it what was appended since."""
    by_position = {one.position: one for one in stored}
    shown = [
        given_of(by_position[one]) if isinstance(one, int) else as_given(one[0], one[1])
        for one in view["shown"]
        if not isinstance(one, int) or one in by_position
    ]
    return [*shown, *(given_of(one) for one in stored if one.position > view["head"])]
