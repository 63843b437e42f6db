"""What a caller may do around the calls of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from turnlog.client.runs.outcomes import Call
from turnlog.contracts.context import WindowAnswer


class Hooks:
    """Override what you need; several are asked in order. What one raises ends the run: what was appended before stays.

    In an `AsyncRun` any of them may be ``async``.
    """

    def before_model(self, window: WindowAnswer) -> Any:
        """The window to send instead; None: this one."""

    def on_event(self, event: Any) -> Any:
        """An event of a model that streams, as it was given."""

    def after_model(self, messages: Sequence[Mapping[str, Any]]) -> Any:
        """The reply to append instead, as a list of messages; None: this one."""

    def before_tool(self, call: Call) -> Any:
        """What the call answers without its handler being asked; None: ask it."""

    def after_tool(self, call: Call, result: str, is_error: bool) -> Any:
        """The result to append instead, a text; None: this one."""
