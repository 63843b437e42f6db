"""To and from the state of a graph framework: a dict of messages, settings of a run, results, and the framework's own things.

Each conversion validates, names the log's head before it by a ``ref`` snapshot, and leaves an entry in the history. What is
wrong is said in the state's ``errors`` and stops nothing.
"""

from __future__ import annotations

from turnlog.agents.graph_state.checks import Converted
from turnlog.agents.graph_state.conversion import load_graph_state, save_graph_state, with_state

__all__ = ["Converted", "load_graph_state", "save_graph_state", "with_state"]
