"""Strands Agents: `S3SessionManager`, one object a message."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from strands import Agent, tool
from strands.agent.conversation_manager import NullConversationManager
from strands.models import Model
from strands.session import RepositorySessionManager
from strands.session.s3_session_manager import S3SessionManager

from benchmarks.peers.prices import REGION
from benchmarks.peers.system import BUCKET, SESSION, System, Thinking, Writer, client, nothing
from benchmarks.peers.turnlog_log import make_stores, open_log
from benchmarks.peers.turns import TOOL, Call, Turn
from turnlog.engines import SystemClock
from turnlog.integrations.strands import TurnlogRepository

_AGENT = "assistant"


class ScriptedModel(Model):
    """Streams the answers that it was given."""

    def __init__(self) -> None:
        self.answers = list[tuple[tuple[Call, ...], str]]()
        self.thinking: Thinking = nothing

    def update_config(self, **model_config: Any) -> None:
        """Has none."""

    def get_config(self) -> dict[str, Any]:
        return {}

    async def structured_output(self, *_args: Any, **_options: Any) -> AsyncIterator[dict[str, Any]]:  # type: ignore[override]
        raise NotImplementedError
        yield {}

    async def stream(self, *_args: Any, **_options: Any) -> AsyncIterator[Any]:
        thinking, self.thinking = self.thinking, nothing
        thinking()
        calls, text = self.answers.pop(0)
        yield {"messageStart": {"role": "assistant"}}
        for call in calls:
            yield {"contentBlockStart": {"start": {"toolUse": {"toolUseId": call.id, "name": TOOL}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": call.arguments}}}}
            yield {"contentBlockStop": {}}
        if text:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": text}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if calls else "end_turn"}}


class StrandsWriter(Writer):
    """An agent with a session manager, which restores when the agent is made."""

    def __init__(self, manager: Any, options: dict[str, Any]) -> None:
        self._model, self._results = ScriptedModel(), dict[str, str]()

        @tool(name=TOOL)
        def look_up(query: str) -> str:
            """Looks up orders.

            Args:
                query: What to look up.
            """
            return self._results[query]

        self._manager = manager
        self._agent = Agent(
            model=self._model,
            tools=[look_up],
            agent_id=_AGENT,
            session_manager=self._manager,
            callback_handler=None,
            **options,
        )

    def run(self, turn: Turn, thinking: Thinking = nothing) -> None:
        self._results = {call.query: call.result for call in turn.calls}
        self._model.answers = [(turn.calls, ""), ((), turn.reply)] if turn.calls else [((), turn.reply)]
        self._model.thinking = thinking
        self._agent(turn.user)

    def restore(self) -> int:
        return len(self._agent.messages)

    def stored(self) -> str:
        return "\n".join(
            str(list_message.to_message())
            for list_message in self._manager.session_repository.list_messages(SESSION, _AGENT)
        )


class StrandsSystem(System):
    name = "Strands S3SessionManager"
    packages = ("strands-agents",)
    turn = (
        "agent(prompt) of an Agent that lives on in its process (no read of the history). Results of one reply's tools are one "
        "message there. Restore: a new S3SessionManager and Agent, whose default conversation manager keeps the last 40 messages."
    )
    turn_reads = False

    def set_up(self) -> None:
        client("s3").create_bucket(Bucket=BUCKET)

    def _open(self) -> StrandsWriter:
        return StrandsWriter(_s3_manager(), {})


class WholeStrandsSystem(StrandsSystem):
    name = "Strands S3SessionManager, whole history"
    turn = "the same with conversation_manager=NullConversationManager(): the model is given everything, as by the other peers."

    def _open(self) -> StrandsWriter:
        return StrandsWriter(_s3_manager(), {"conversation_manager": NullConversationManager()})


class TurnlogStrandsSystem(StrandsSystem):
    name = "Strands TurnlogRepository"
    packages = ("turnlog", "strands-agents")
    turn = (
        "the same Agent with RepositorySessionManager over TurnlogRepository, and Strands' default conversation manager: "
        "messages are in the log."
    )
    guarded = True

    def set_up(self) -> None:
        make_stores()

    def _open(self) -> StrandsWriter:
        return StrandsWriter(RepositorySessionManager(SESSION, TurnlogRepository(open_log(SystemClock()))), {})


def _s3_manager() -> S3SessionManager:
    return S3SessionManager(session_id=SESSION, bucket=BUCKET, region_name=REGION)
