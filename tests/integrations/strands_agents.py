"""Agents of Strands with a scripted model and a tool. A module of its own: the SDK takes a second to import.

Run, it is an agent that goes on where the log stops: ``strands_agents.py URL SESSION FOLDER [QUESTION]``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from strands import Agent, tool
from strands.models import Model
from strands.session import RepositorySessionManager, SnapshotSessionManager
from strands.types.exceptions import ContextWindowOverflowException

from turnlog.client.model import Turnlog
from turnlog.integrations.strands import TurnlogConversationManager, TurnlogRepository, TurnlogStorage

__all__ = ["SnapshotSessionManager", "TurnlogRepository", "TurnlogStorage"]


@tool
def price(sku: str) -> str:
    """The price of an article."""
    return f"{sku} costs 12.50"


class Scripted(Model):
    """Asks the tool for the last word of the question, then says what it answered; or says what it is told to. ``sent`` is what
    each call was sent; it takes no more than ``most`` characters."""

    def __init__(self, *says: Any, most: int | None = None, limit: int | None = None) -> None:
        self.says = list(says)
        self.sent = list[list[Any]]()
        self.systems = list[str | None]()
        self.tools = list[list[str]]()
        self.most = most
        self.config = {"context_window_limit": limit}

    def update_config(self, **model_config: Any) -> None:
        self.config.update(model_config)

    def get_config(self) -> Any:
        return self.config

    def structured_output(self, *given: Any, **more: Any) -> Any:
        raise NotImplementedError

    async def stream(
        self, messages: Any, tool_specs: Any = None, system_prompt: str | None = None, **more: Any
    ) -> AsyncIterator[Any]:
        if self.most is not None and len(str(messages)) > self.most:
            raise ContextWindowOverflowException("too much")
        self.sent.append(messages)
        self.systems.append(system_prompt)
        self.tools.append([tool_spec["name"] for tool_spec in tool_specs or []])
        said = self.says.pop(0) if self.says else self._said(messages)
        if "redactContent" in said:
            yield said
            said = {"text": "I can't say that."}
        yield {"messageStart": {"role": "assistant"}}
        if "name" in said:
            yield {"contentBlockStart": {"start": {"toolUse": {"name": said["name"], "toolUseId": said["id"]}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": said["input"]}}}}
        else:
            yield {"contentBlockDelta": {"delta": {"text": said["text"]}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if "name" in said else "end_turn"}}
        usage = {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}}

    def _said(self, messages: Any) -> dict[str, str]:
        last = messages[-1]["content"][-1]
        if "toolResult" in last:
            return {"text": last["toolResult"]["content"][0]["text"]}
        sku = last["text"].split()[-1].rstrip("?")
        return {"name": "price", "id": f"call-{len(messages)}-{sku}", "input": f'{{"sku": "{sku}"}}'}


def agent(
    log: Turnlog,
    session: str = "desk",
    *,
    model: Scripted | None = None,
    kept: bool = True,
    window: bool = True,
    **more: Any,
) -> Agent:
    """With a repository, a window, or both. Further options are the manager's, or the agent's."""
    own = {name: more.pop(name) for name in ("tools", "agent_id", "system_prompt", "session_manager") if name in more}
    if kept:
        own.setdefault("session_manager", RepositorySessionManager(session, TurnlogRepository(log)))
    if window:
        own["conversation_manager"] = TurnlogConversationManager(log, session, **more)
    return Agent(model=model or Scripted(), tools=own.pop("tools", [price]), callback_handler=None, **own)


def begun(log: Turnlog) -> None:
    """Of two managers that begin a session at once, one is told that the other has."""
    agent(log)


def said(result: Any) -> str:
    return str(result).strip()


def main(url: str, session: str, folder: str, *question: str) -> None:
    @tool
    def price(sku: str) -> str:
        """The price of an article."""
        with (Path(folder) / "executed").open("a") as executed:
            executed.write(f"{sku}\n")
        if not (Path(folder) / "again").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return f"{sku} costs 12.50"

    model, result = Scripted(), question[0] if question else None
    with Turnlog.open(url) as log:
        mine = agent(log, session, model=model, tools=[price])
        answer = said(mine(result))
    ids = [message["tracking_id"] for message in mine.messages]
    print(json.dumps({"answer": answer, "calls": len(model.sent), "ids": ids}))


def asked(agent: Agent, questions: Sequence[str]) -> list[str]:
    return [said(agent(question)) for question in questions]


if __name__ == "__main__":
    main(*sys.argv[1:])
