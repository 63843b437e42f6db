"""To and from the state of a graph framework: a dict of messages, settings of a run, results, and the framework's own things.

Each conversion validates, names the log's head before it by a ``ref`` snapshot, and leaves an entry in the history. What is
wrong is said in the state's ``errors`` and stops nothing.
"""

from __future__ import annotations

from turnlog.client.graph.conversion import load_graph_state, save_graph_state
from turnlog.client.graph.nodes import with_state
from turnlog.client.graph.outcomes import Converted

__all__ = ["Converted", "load_graph_state", "save_graph_state", "with_state"]
