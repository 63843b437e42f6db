"""An agent of LangChain whose graph has its checkpoints in the session that has its messages: persistence and windows."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import HumanMessage

from tests.integrations.adapters.langchain import LangChainAgent
from turnlog.integrations.langgraph import TurnlogSaver


class LangGraphAgent(LangChainAgent):
    def _checkpointer(self) -> TurnlogSaver:
        return TurnlogSaver(self._log)

    def _given(self, question: str | None) -> Any:
        return {"messages": [HumanMessage(question)]} if question is not None else None

    def texts(self) -> list[str]:
        """Return the texts of the graph's own state."""
        state = self._agent.get_state({"configurable": {"thread_id": self._id}})
        return [message.text for message in state.values.get("messages", ()) if message.type != "tool" and message.text]

    def delete(self) -> None:
        TurnlogSaver(self._log).delete_thread(self._id)
        super().delete()

    def forked(self, session_id: str) -> LangGraphAgent:
        self.session().fork(session_id)
        TurnlogSaver(self._log).copy_thread(self._id, session_id)
        return LangGraphAgent(self._log, session_id, self._model, self._shop)
