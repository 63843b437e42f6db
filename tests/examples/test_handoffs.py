"""Examples of agents that hand over or work side by side run to their end, with the real frameworks."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@pytest.mark.parametrize(
    ("name", "library", "lines"),
    [
        (
            "openai_handoffs",
            "agents",
            ["desk: My invoice is wrong.  ->  Billing: My invoice is wrong.", "6 items of both"],
        ),
        ("langgraph_supervisor", "langgraph", ["I have 2 offers.", "4 messages kept, each once"]),
    ],
)
def test_an_example_of_several_agents_runs(
    name: str, library: str, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip(library)
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    for line in lines:
        assert line in printed
