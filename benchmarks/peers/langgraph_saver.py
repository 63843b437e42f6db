"""LangGraph: `DynamoDBSaver` as the checkpointer of a graph of messages, without and with its S3 offload."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph_checkpoint_aws import DynamoDBSaver

from benchmarks.peers.prices import REGION
from benchmarks.peers.system import BUCKET, SESSION, TABLE, System, Thinking, Writer, client, nothing
from benchmarks.peers.turnlog_log import make_stores, open_log
from benchmarks.peers.turns import TOOL, Turn
from turnlog.engines import SystemClock
from turnlog.integrations.langgraph import TurnlogSaver

_CONFIG: Any = {"configurable": {"thread_id": SESSION}}


class SaverWriter(Writer):
    """A graph of a scripted model and one tool."""

    def __init__(self, saver: Any) -> None:
        self._answers, self._results, self._thinking = list[BaseMessage](), dict[str, str](), nothing

        @tool(TOOL)
        def look_up(query: str) -> str:
            """Looks up orders."""
            return self._results[query]

        graph = StateGraph(MessagesState)
        graph.add_node("model", self._model)
        graph.add_node("tools", ToolNode([look_up]))
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", "model")
        self._graph: Any = graph.compile(checkpointer=saver)

    def run(self, turn: Turn, thinking: Thinking = nothing) -> None:
        self._answers = [_calling(turn), AIMessage(turn.reply)] if turn.calls else [AIMessage(turn.reply)]
        self._results = {call.query: call.result for call in turn.calls}
        self._thinking = thinking
        self._graph.invoke({"messages": [{"role": "user", "content": turn.user}]}, _CONFIG)

    def fill(self, turns: Sequence[Turn]) -> None:
        """Update the state once: the newest checkpoint, which is all that a later turn reads, has the same messages."""
        messages = list[BaseMessage]()
        for turn in turns:
            messages.append(HumanMessage(turn.user))
            if turn.calls:
                messages.append(_calling(turn))
                messages += [ToolMessage(call.result, tool_call_id=call.id, name=TOOL) for call in turn.calls]
            messages.append(AIMessage(turn.reply))
        self._graph.update_state(_CONFIG, {"messages": messages}, as_node="model")

    def restore(self) -> int:
        return len(self._messages())

    def stored(self) -> str:
        return "\n".join(str(message.content) for message in self._messages())

    def _messages(self) -> list[BaseMessage]:
        value: list[BaseMessage] = self._graph.get_state(_CONFIG).values.get("messages", [])
        return value

    def _model(self, _state: MessagesState) -> dict[str, list[BaseMessage]]:
        thinking, self._thinking = self._thinking, nothing
        thinking()
        return {"messages": [self._answers.pop(0)]}


class SaverSystem(System):
    name = "LangGraph DynamoDBSaver"
    packages = ("langgraph-checkpoint-aws", "langgraph", "langgraph-checkpoint")
    turn = (
        "one invoke of a compiled graph of MessagesState (a model node; with tools a ToolNode between two model nodes), "
        "checkpointer with default options, default durability. Restore: get_state of a new process."
    )
    bulk = True
    offload: ClassVar[Any] = None

    def set_up(self) -> None:
        client("dynamodb").create_table(
            TableName=TABLE,
            KeySchema=[{"AttributeName": "PK", "KeyType": "HASH"}, {"AttributeName": "SK", "KeyType": "RANGE"}],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("PK", "SK")],
            BillingMode="PAY_PER_REQUEST",
        )
        client("s3").create_bucket(Bucket=BUCKET)

    def _open(self) -> SaverWriter:
        return SaverWriter(DynamoDBSaver(table_name=TABLE, region_name=REGION, s3_offload_config=self.offload))


class OffloadingSaverSystem(SaverSystem):
    name = "LangGraph DynamoDBSaver + S3"
    turn = "as without S3, with s3_offload_config={'bucket_name': ...}: checkpoints over 350 KB go to S3."
    offload: ClassVar[Any] = {"bucket_name": BUCKET}


class TurnlogSaverSystem(System):
    name = "LangGraph TurnlogSaver"
    packages = ("turnlog", "langgraph", "langgraph-checkpoint")
    turn = (
        "the same graph with TurnlogSaver: checkpoints are documents of a Turnlog session, large ones are in S3. A process that "
        "lives on has what it has read; a new one pays the restore."
    )
    guarded = True
    turn_reads = False

    def set_up(self) -> None:
        make_stores()

    def _open(self) -> SaverWriter:
        return SaverWriter(TurnlogSaver(open_log(SystemClock())))


def _calling(turn: Turn) -> AIMessage:
    calls: Any = [{"id": call.id, "name": TOOL, "args": {"query": call.query}} for call in turn.calls]
    return AIMessage("", tool_calls=calls)
