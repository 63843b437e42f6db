"""What an import refuses."""

from __future__ import annotations

from turnlog.domain.errors import ConflictError, InvalidInputError


class UnknownSourceError(InvalidInputError):
    """The file has no shape that we know, or not the one that was named."""

    code = "unknown_source"


class NewerSourceError(InvalidInputError):
    """The source was written by a newer version of its program than we know. ``details["version"]`` is what it says."""

    code = "newer_source"


class SourceChangedError(ConflictError):
    """What was imported is no longer what the source says, or others have written into the session.

    ``details["place"]`` is the message of the source, ``details["position"]`` that of the log.
    """

    code = "source_changed"
