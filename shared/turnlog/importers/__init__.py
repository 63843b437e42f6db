"""Import sessions from other stores: one module for each shape of a source, and one that writes what they read.

`import_files` recognises the shape of each file, compares it with the log, writes what is missing, and returns a report.
"""

from __future__ import annotations

from turnlog.importers.models import (
    NewerSourceError,
    Report,
    SessionReport,
    SourceChangedError,
    SourceMessage,
    SourceSession,
    UnknownSourceError,
)
from turnlog.importers.running import import_files
from turnlog.importers.writing import import_session

__all__ = [
    "NewerSourceError",
    "Report",
    "SessionReport",
    "SourceChangedError",
    "SourceMessage",
    "SourceSession",
    "UnknownSourceError",
    "import_files",
    "import_session",
]
