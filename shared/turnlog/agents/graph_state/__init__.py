"""Convert the state of a graph framework to a session and back: messages, run settings, results, and the framework's own
values.

Each conversion validates the state, names the log's head by a ``ref`` snapshot first, and records an entry in the history.
Problems are listed in the state's ``errors``; they do not stop a conversion.
"""
