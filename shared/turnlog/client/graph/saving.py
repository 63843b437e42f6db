"""A graph's state into a session: new messages into the log, the rest into the agent's execution state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from turnlog.client.graph.aligning import Aligned
from turnlog.client.graph.appending import append_new
from turnlog.client.graph.checks import FULL, MESSAGES, has_compressed, problems_of, valid_fields
from turnlog.client.graph.handlers import storable
from turnlog.client.graph.messages import KEPT, Said, is_removal, said
from turnlog.client.graph.outcomes import Converted, concluded, take_snapshot, told_of
from turnlog.client.model import Session
from turnlog.domain.errors import InvalidInputError, NotFoundError, Problem, TurnlogError, VersionMismatchError
from turnlog.domain.identity import check_agent_id

GRAPH = "graph"
"""The field of an agent's execution state that holds what only the graph knows."""
_TRIES = 10


class Saving:
    """One state on its way into a session.

    ``given`` are messages in place of the state's own, and the key they are under, where only these can be new; ``earlier``
    the messages that were there before them.
    """

    def __init__(
        self,
        session: Session,
        state: Mapping[str, Any],
        agent_id: str,
        snapshot: str | None,
        snapshot_after: str | None,
        *,
        given: tuple[str, Any] | None = None,
        earlier: Sequence[Any] = (),
        is_compressed: bool | None = None,
    ) -> None:
        self._session = session
        self._state = dict(state)
        self._snapshot = snapshot
        self._snapshot_after = snapshot_after
        self._problems = list[Problem]()
        self._agent_id = self._checked_agent(agent_id)
        self._source, listed = given if given is not None else self._own_messages()
        self._messages = [one for one in listed if not is_removal(one)] if isinstance(listed, list | tuple) else None
        self._lists = [name for name in (MESSAGES, FULL) if isinstance(self._state.get(name), list | tuple)]
        self._said = list[Said | None]()
        self._earlier = earlier
        self._is_compressed = is_compressed if is_compressed is not None else has_compressed(self._state)

    def run(self) -> Converted:
        values = {name: value for name, value in self._state.items() if name not in self._lists}
        stored, handlers, lost = storable(values)
        for at, message in enumerate(self._messages or []):
            made, problems = said(message, f"/{self._source}/{at}")
            self._said.append(made)
            self._problems += problems
        self._check(stored)
        self._problems += lost
        snapshot_id = take_snapshot(self._session, self._snapshot, self._agent_id)
        aligned, places = self._appended()
        converted = concluded(
            self._session,
            self._state,
            handlers,
            self._problems,
            self._agent_id,
            None,
            "to_session",
            (places[0], places[-1]) if places else None,
            snapshot_id=snapshot_id,
        )
        converted = self._remembered(converted, aligned, stored)
        if self._snapshot_after is not None:
            take_snapshot(self._session, self._snapshot_after, self._agent_id)
        return converted

    def _checked_agent(self, agent_id: str) -> str:
        own = self._state.get("agent_id", agent_id)
        try:
            return check_agent_id(own if isinstance(own, str) else "")
        except InvalidInputError:
            if isinstance(own, str) and own:
                self._problems.append(Problem("invalid_id", "/agent_id", "agent_id is not one that we take"))
            return check_agent_id(agent_id)

    def _own_messages(self) -> tuple[str, Any]:
        source = FULL if isinstance(self._state.get(FULL), list | tuple) and self._state[FULL] else MESSAGES
        return source, self._state.get(source)

    def _check(self, stored: Mapping[str, Any]) -> None:
        bodies = None if self._messages is None else [_body(one) for one in self._said]
        is_whole = self._source == FULL or not self._is_compressed
        earlier = [_body(said(one, "")[0]) for one in self._earlier]
        found = problems_of(stored, bodies, self._agent_id, source=self._source, earlier=earlier)
        # A compressed list may have lost the call of a result that it kept.
        self._problems += [one for one in found if is_whole or one.code != "result_without_call"]

    def _appended(self) -> tuple[Aligned, list[int]]:
        """The positions of what was appended, once; what is refused is a problem."""

        def refused(error: TurnlogError) -> None:
            self._problems.append(Problem(error.error_code, f"/{self._source}", error.detail))

        is_compressed = self._source == MESSAGES and self._is_compressed
        aligned, positions = append_new(
            self._session, self._said, is_compressed=is_compressed, is_same_run=self._is_same_run, refused=refused
        )
        if not aligned.is_sure:
            message = "nothing of a compressed list is in the log: none of it was appended"
            self._problems.append(Problem("messages_not_aligned", f"/{self._source}", message))
        return aligned, positions

    def _is_same_run(self) -> bool | None:
        run_id = self._state.get("run_id")
        try:
            known = self._session.agent(self._agent_id).state.get("run_id")
        except NotFoundError:
            known = None
        return None if run_id is None or known is None else bool(known == run_id)

    def _remembered(self, converted: Converted, aligned: Aligned, stored: Mapping[str, Any]) -> Converted:
        """The execution state stored, with what the graph keeps beside it; refused, that is a problem too."""
        told, _, _ = storable(
            {name: converted.state[name] for name in ("metadata", "errors") if name in converted.state}
        )
        values = {**stored, **told}
        fields = valid_fields(values, self._agent_id)
        kept = {
            "values": {name: value for name, value in values.items() if name not in fields},
            "view": self._view(aligned, converted.last),
            "lists": self._lists,
        }
        try:
            self._store({**fields, GRAPH: kept}, values)
        except InvalidInputError as error:
            problem = Problem(error.error_code, "", error.detail)
            return told_of(converted, [*converted.problems, problem])
        return converted

    def _store(self, fields: dict[str, Any], values: Mapping[str, Any]) -> None:
        """Stores the fields; what the graph does not have stays as it is."""
        for left in reversed(range(_TRIES)):
            state = self._session.state()
            agents = state.state.get("agents")
            before = agents.get(self._agent_id) if isinstance(agents, dict) else None
            known: dict[str, Any] = before if isinstance(before, dict) else {}
            # Before the state tells that it is done: a conversion that is stopped in between does it again.
            self._set_system(known, values.get("system_prompt"))
            others = {name: value for name, value in known.items() if name not in values}
            after = {**others, **fields, "agent_id": self._agent_id}
            patch = [] if isinstance(agents, dict) else [{"op": "add", "path": "/agents", "value": {}}]
            patch.append({"op": "add", "path": f"/agents/{self._agent_id}", "value": after})
            try:
                self._session.patch_state(patch, if_version=state.version)
            except VersionMismatchError:
                if not left:
                    raise
                continue
            return
        raise AssertionError("a try returns or raises")

    def _set_system(self, before: Mapping[str, Any], system: Any) -> None:
        """The graph's system prompt is what windows of the session send first."""
        kept = before.get(GRAPH)
        known = kept["values"].get("system_prompt") if isinstance(kept, dict) else None
        if isinstance(system, str) and system and system != known:
            self._session.update(system=system)

    def _view(self, aligned: Aligned, last: int | None) -> dict[str, Any] | None:
        """A compressed list: positions of what is in the log, and the rest as it is. None where the list is the log."""
        short = self._state.get(MESSAGES)
        if not self._is_compressed or not isinstance(short, list | tuple):
            return None
        shown = list[Any]()
        for at, message in enumerate(short):
            made, _ = said(message, f"/{MESSAGES}/{at}")
            if made is None:
                continue
            position = aligned.position(made.identity)
            shown.append(position if position is not None else [made.body, (made.meta.get("metadata") or {}).get(KEPT)])
        return {"shown": shown, "head": last if last is not None else aligned.head}


def _body(message: Said | None) -> dict[str, Any]:
    return message.body if message is not None else {}
