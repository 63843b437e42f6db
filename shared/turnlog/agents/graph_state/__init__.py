"""Convert the state of a graph framework to a session and back: messages, run settings, results, and the framework's own
values.

Each conversion validates the state, names the log's head by a ``ref`` snapshot first, and records an entry in the history.
Problems are listed in the state's ``errors``; they do not stop a conversion.
"""

from __future__ import annotations

from turnlog.agents.graph_state.checks import Converted
from turnlog.agents.graph_state.conversion import load_graph_state, save_graph_state, validate_graph_state, with_state

__all__ = ["Converted", "load_graph_state", "save_graph_state", "validate_graph_state", "with_state"]
