"""The lines of each framework on its page run, with a scripted model, and the session has what was said."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import ROOT
from turnlog import Turnlog
from turnlog.testing.adapters import ScriptedModel

PAGE = (ROOT / "docs" / "how-to" / "frameworks.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
NEEDS = {
    "OpenAI Agents SDK": ("openai_agents", "agents"),
    "OpenAI Agents SDK with branches": ("openai_agents", "agents"),
    "LangGraph": ("langgraph", "langgraph"),
    "LangChain": ("langchain", "langchain.agents"),
    "Strands": ("strands", "strands"),
    "Claude Agent SDK": (None, "claude_agent_sdk"),
    "Google ADK": ("google_adk", "google.adk.apps"),
    "Pydantic AI": ("pydantic_ai", "pydantic_ai"),
    "Microsoft Agent Framework": ("agent_framework", "agent_framework"),
    "LlamaIndex": ("llama_index", "llama_index.core.agent.workflow"),
}
ONLY_MAKES = ("Claude Agent SDK", "Google ADK")
"""Sections whose lines make the store or the runner, and say nothing yet."""


def names_of(section: str, adapter: Any) -> dict[str, Any]:
    """Return what the lines of a section take as the reader's own: a model, an agent, tools."""
    script = ScriptedModel()
    if section.startswith("OpenAI Agents SDK"):
        return {"agent": adapter.Agent(name="desk", model=adapter.Scripted(script))}
    if section == "LangGraph":
        return {"model": SimpleNamespace(invoke=lambda window: ("ai", "In Berlin."))}
    if section == "Strands":
        return {"model": adapter.Scripted(script), "tools": []}
    if section == "LangChain":
        return {"model": adapter.Scripted(script=script), "tools": []}
    if section == "Claude Agent SDK":
        return {}
    if section == "Google ADK":
        return {"agent": adapter.LlmAgent(name="seller", model=adapter.Scripted(model="scripted", script=script))}
    if section == "Pydantic AI":
        model = adapter.FunctionModel(lambda *_: adapter.ModelResponse([adapter.TextPart("In Berlin.")]))
        return {"model": model, "tools": []}
    if section == "Microsoft Agent Framework":
        return {"client": adapter.Scripted(script), "tools": []}
    tools = [adapter.FunctionTool.from_defaults(fn=lambda sku: sku, name="price")]
    return {"llm": adapter.Scripted(script=script), "tools": tools}


def test_every_framework_of_the_page_has_lines_that_are_tried() -> None:
    assert BLOCKS.keys() == NEEDS.keys()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("section", NEEDS)
def test_the_lines_of_a_framework_run(section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter, module = NEEDS[section]
    pytest.importorskip(module)
    outcome = import_module(f"tests.integrations.adapters.{adapter}") if adapter else None
    monkeypatch.chdir(tmp_path)
    names = names_of(section, outcome)
    if section == "LlamaIndex":  # the scripted model does not stream
        monkeypatch.setattr(f"{module}.FunctionAgent", partial(outcome.FunctionAgent, streaming=False))
    code = compile(BLOCKS[section], section, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    async def run() -> None:
        result = eval(code, names)  # noqa: S307 - the page's own lines
        if inspect.isawaitable(result):
            await result

    asyncio.run(run())
    if section == "Strands":
        names["agent"]("Where is my order?")
    if section in ONLY_MAKES:
        return
    with Turnlog.open(f"sqlite:///{tmp_path}/agent.db") as log:
        session = log.sessions.get("support-42")
        assert "Where is my order?" in str([message.body for message in session.messages()])
