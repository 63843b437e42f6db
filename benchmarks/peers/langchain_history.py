"""LangChain: `DynamoDBChatMessageHistory`, one item with all messages, as its integration page shows it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from langchain_community.chat_message_histories import DynamoDBChatMessageHistory
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory

from benchmarks.peers.system import SESSION, TABLE, System, Thinking, Writer, client, nothing
from benchmarks.peers.turns import TOOL, Turn

_CONFIG: Any = {"configurable": {"session_id": SESSION}}


class HistoryWriter(Writer):
    """A chain with history. The model is a script: what it answers in a turn is known."""

    def __init__(self) -> None:
        self._history = DynamoDBChatMessageHistory(table_name=TABLE, session_id=SESSION)
        self._answer, self._thinking = list[BaseMessage](), nothing
        prompt = ChatPromptTemplate.from_messages([MessagesPlaceholder("history"), ("human", "{question}")])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecated in favour of LangGraph, and still what the page shows
            self._chain: Any = RunnableWithMessageHistory(
                prompt | RunnableLambda(self._model),
                lambda session_id: self._history,
                input_messages_key="question",
                history_messages_key="history",
            )

    def run(self, turn: Turn, thinking: Thinking = nothing) -> None:
        self._answer, self._thinking = _answers(turn), thinking
        self._chain.invoke({"question": turn.user}, config=_CONFIG)

    def fill(self, turns: Sequence[Turn]) -> None:
        self._history.add_messages([value for turn in turns for value in (HumanMessage(turn.user), *_answers(turn))])

    def restore(self) -> int:
        return len(self._history.messages)

    def stored(self) -> str:
        return "\n".join(str(message.content) for message in self._history.messages)

    def _model(self, _prompt: Any) -> list[BaseMessage]:
        self._thinking()
        return self._answer


class HistorySystem(System):
    name = "LangChain DynamoDBChatMessageHistory"
    packages = ("langchain-community", "langchain-core")
    turn = (
        "one invoke of RunnableWithMessageHistory, which reads the history before the model and adds all messages of the "
        "turn in one add_messages after it (tool messages too: the cheapest way it has). Restore: history.messages."
    )
    bulk = True

    def set_up(self) -> None:
        client("dynamodb").create_table(
            TableName=TABLE,
            KeySchema=[{"AttributeName": "SessionId", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "SessionId", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )

    def _open(self) -> HistoryWriter:
        return HistoryWriter()


def _answers(turn: Turn) -> list[BaseMessage]:
    if not turn.calls:
        return [AIMessage(turn.reply)]
    calls: Any = [{"id": call.id, "name": TOOL, "args": {"query": call.query}} for call in turn.calls]
    results = [ToolMessage(call.result, tool_call_id=call.id, name=TOOL) for call in turn.calls]
    return [AIMessage("", tool_calls=calls), *results, AIMessage(turn.reply)]
