"""Agents of each framework for the contract of adapters. A module each: they take seconds to import."""

from __future__ import annotations

import importlib
from typing import Any

AGENTS = {
    "agent_framework": "FrameworkAgent",
    "google_adk": "AdkAgent",
    "langchain": "LangChainAgent",
    "langgraph": "LangGraphAgent",
    "llama_index": "LlamaAgent",
    "openai_agents": "OpenAIAgent",
    "pydantic_ai": "PydanticAgent",
    "strands": "StrandsAgent",
}


def agent_of(name: str) -> Any:
    """Return the agent of a framework; None where the framework is not installed."""
    try:
        return getattr(importlib.import_module(f"tests.integrations.adapters.{name}"), AGENTS[name])
    except ImportError:
        return None
