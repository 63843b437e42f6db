"""Agents in processes of their own, over a file and over the service on moto: killed while a tool runs, and two at once."""

from __future__ import annotations

import importlib
import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.integrations.served import url_of
from turnlog.client.model import Turnlog

pytestmark = pytest.mark.network

QUESTION = "What is the price of SKU-1?"


def command(framework: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", f"tests.integrations.{framework}_agents", *arguments]


def ran(framework: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(framework, *arguments), capture_output=True, text=True, check=False, timeout=120, cwd=ROOT
    )


@pytest.mark.parametrize(
    ("framework", "engine"),
    [
        ("langchain", "sqlite"),
        pytest.param("langchain", "moto", marks=pytest.mark.full),
        pytest.param("strands", "sqlite", marks=pytest.mark.full),
        pytest.param("strands", "moto", marks=pytest.mark.full),
        pytest.param("openai", "sqlite", marks=pytest.mark.full),
        pytest.param("openai", "moto", marks=pytest.mark.full),
    ],
)
def test_an_agent_that_is_killed_goes_on_in_a_new_process(tmp_path: Path, framework: str, engine: str) -> None:
    with url_of(engine, tmp_path) as url:
        killed = ran(framework, url, "desk", str(tmp_path), QUESTION)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        (tmp_path / "again").touch()
        again = ran(framework, url, "desk", str(tmp_path))
        assert again.returncode == 0, again.stderr
        content = json.loads(again.stdout)
        assert content["answer"] == "SKU-1 costs 12.50"
        assert content["calls"] == (2 if framework == "openai" else 1), (
            "what the log has of the turn is not asked for again"
        )
        assert (tmp_path / "executed").read_text() == "SKU-1\n" * 2
        with Turnlog.open(url) as log:
            said = [message.body for message in log.sessions.get("desk").messages(format="openai_chat")]
    assert [item["role"] for item in said] == ["user", "assistant", "tool", "assistant"]
    assert said[0]["content"] == QUESTION and said[2]["content"] == "SKU-1 costs 12.50"


@pytest.mark.parametrize(
    "framework", ["strands", *(pytest.param(value, marks=pytest.mark.full) for value in ("langchain", "openai"))]
)
def test_two_processes_on_one_session_lose_nothing(tmp_path: Path, framework: str) -> None:
    (tmp_path / "again").touch()
    url, names = f"sqlite:///{tmp_path}/agent.db", ("SKU-1", "SKU-2")
    with Turnlog.open(url) as log:
        importlib.import_module(f"tests.integrations.{framework}_agents").begun(log)
    both = [
        subprocess.Popen(
            command(framework, url, "desk", str(tmp_path), f"What is the price of {name}?"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for name in names
    ]
    ids = set[str]()
    for entry in both:
        output, errors = entry.communicate(timeout=120)
        assert entry.returncode == 0, errors
        ids |= set(json.loads(output).get("ids", ()))
    with Turnlog.open(url) as log:
        session = log.sessions.get("desk")
        said = list(session.messages(format="openai_chat"))
        window = session.context(format="openai_chat")
        assert log.lint(window.messages, format="openai_chat").problems == [] and not window.open_calls
    texts = [item.body["content"] for item in said]
    assert all(texts.count(f"What is the price of {name}?") == 1 for name in names)
    # Where both have asked before either's model is called, the model, which answers the last question, answers the same to both.
    assert any(f"{name} costs 12.50" in texts for name in names)
    calls = [call["id"] for item in said for call in item.body.get("tool_calls") or ()]
    results = [item.body["tool_call_id"] for item in said if item.body["role"] == "tool"]
    # Strands answers a call that is open when it is asked; that call has two results, where the other's tool ends later.
    assert set(calls) == set(results) and not Counter(calls) - Counter(results)
    # Two questions, a call with its result and its answer, and another answer at least; more, where one of them asks its model
    # after the other has had the last word: it goes on from there.
    assert len(said) >= 6
    if framework == "openai":
        return  # the SDK's items have no ids of ours
    assert sorted(ids) == sorted(str(item.id) for item in said), "each of both is there, once"
