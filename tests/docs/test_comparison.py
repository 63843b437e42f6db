"""docs/explanation/comparison.md says nothing of other packages that they do not have."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import botocore.session
import pytest

PAGE = (Path(__file__).parent.parent.parent / "docs" / "explanation" / "comparison.md").read_text(encoding="utf-8")
NAMES = {
    "BaseStore": "langgraph.store.base",
    "trim_messages": "langchain_core.messages",
    "SummarizationMiddleware": "langchain.agents.middleware",
    "SlidingWindowConversationManager": "strands.agent.conversation_manager",
    "SummarizingConversationManager": "strands.agent.conversation_manager",
    "SnapshotSessionManager": "strands.session",
    "SessionSettings": "agents.memory",
    "OpenAIConversationsSession": "agents.memory",
    "OpenAIResponsesCompactionSession": "agents.memory",
    "AdvancedSQLiteSession": "agents.extensions.memory",
}
MEMBERS = {
    "copy_thread": "langgraph.checkpoint.base.BaseCheckpointSaver",
    "delete_thread": "langgraph.checkpoint.base.BaseCheckpointSaver",
    "get_state_history": "langgraph.pregel.Pregel",
    "update_state": "langgraph.pregel.Pregel",
    "redact_latest_message": "strands.session.session_manager.SessionManager",
    "delete_session": "strands.session.s3_session_manager.S3SessionManager",
    "pop_item": "agents.memory.Session",
    "clear_session": "agents.memory.Session",
    "create_branch_from_turn": "agents.extensions.memory.AdvancedSQLiteSession",
    "find_turns_by_content": "agents.extensions.memory.AdvancedSQLiteSession",
}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_class_is_there(name: str) -> None:
    assert f"`{name}`" in PAGE and hasattr(importlib.import_module(NAMES[name]), name)


@pytest.mark.parametrize("name", sorted(MEMBERS))
def test_a_method_is_there(name: str) -> None:
    module, _, owner = MEMBERS[name].rpartition(".")
    assert f"`{name}`" in PAGE and hasattr(getattr(importlib.import_module(module), owner), name)


def test_agentcore_has_what_is_said() -> None:
    model: Any = botocore.session.get_session().get_service_model("bedrock-agentcore")
    event = model.operation_model("CreateEvent").input_shape.members
    assert {"clientToken", "branch"} <= set(event) and event["payload"].metadata["max"] == 100
    assert model.shape_for("ContentTextString").metadata["max"] == 100_000
    assert {"DeleteEvent", "RetrieveMemoryRecords"} <= set(model.operation_names)
    named = {"DeleteMemory", "DeleteSession", "DeleteActor"}
    assert named.isdisjoint(model.operation_names), "a session or a person is not erased in one call"


def test_every_row_has_a_cell_for_each() -> None:
    table = re.search(r"^\| \| Turnlog .*?\n\n", PAGE, re.S | re.M)
    assert table is not None
    assert {line.count(" |") for line in table[0].strip().splitlines()[2:]} == {6}
