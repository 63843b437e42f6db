"""What a notebook shows of windows, manifests and sessions, in a notebook that is really executed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

CELLS = (
    """
from turnlog import Turnlog
log = Turnlog.open("agent.db")
session = log.sessions.create("support-42", title="<script>alert(1)</script>", system="You are brief.")
for number in range(8):
    session.append({"role": "user", "content": f"q{number} " + "word " * 100}, {"role": "assistant", "content": "a " * 100})
window = session.context(budget=700, policy="run_loops")
log
""",
    "session",
    "window",
    "window.manifest",
    "[session, window]",
    "log.close()",
)


@pytest.mark.network
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_notebook_shows_lines_and_pictures(tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    client = nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    shown: list[dict[str, Any]] = [cell.outputs[0]["data"] if cell.outputs else {} for cell in notebook.cells]
    log, session, window, manifest, both, closed = shown
    assert log == {"text/plain": "Turnlog(sqlite:///agent.db, tenant='local', user='me')"} and closed == {}
    assert session["text/plain"] == "Session('support-42')"
    assert window["text/plain"].startswith("<Window: ") and manifest["text/plain"].startswith("<Manifest: ")
    for picture in (session["text/html"], window["text/html"], manifest["text/html"]):
        assert "<table>" in picture and "background:#" in picture and "loop 8" in picture and "<script>" not in picture
    assert "16 messages" in session["text/html"]
    assert both["text/plain"] == f"[{session['text/plain']},\n {window['text/plain']}]"
    assert (tmp_path / "agent.db").is_file()
