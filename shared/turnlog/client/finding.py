"""Finding again what a window has left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from turnlog.client.backend import OfSession
from turnlog.contracts.recall import Recalled, SearchAnswer


class FindingCalls(OfSession):
    """Recall, search, and both as tools of a model."""

    def recall(
        self,
        ref: str | None = None,
        *,
        call_id: str | None = None,
        pattern: str | None = None,
        from_line: int | None = None,
        to_line: int | None = None,
        pointer: str | None = None,
        max_tokens: int | None = None,
    ) -> Recalled:
        """A tool call and its result, or ``found`` false with a hint."""
        query = {
            "ref": ref,
            "call_id": call_id,
            "pattern": pattern,
            "from_line": from_line,
            "to_line": to_line,
            "pointer": pointer,
            "max_tokens": max_tokens,
        }
        answer: Recalled = self._backend.call("recall", path=self._path, query=query)
        return answer

    def search(
        self,
        q: str,
        *,
        limit: int | None = None,
        role: Literal["system", "user", "assistant", "tool"] | None = None,
        loop: int | None = None,
        tool: str | None = None,
        after: int | str | None = None,
        before: int | str | None = None,
    ) -> SearchAnswer:
        """Messages by the words of a question, best first; ``after`` and ``before`` are a position or a time each."""
        query = {
            "q": q,
            "limit": limit,
            "role": role,
            "loop": loop,
            "tool": tool,
            "after": after,
            "before": before,
        }
        answer: SearchAnswer = self._backend.call("search_session", path=self._path, query=query)
        return answer

    def run_recall_tool(self, name: str, arguments: str | Mapping[str, Any]) -> str:
        """Executes a call of `recall_tool_call` or `search_history` that a model made: the text to give back to it.

        What is wrong with the call is said in the text, so that the model can try again; `KeyError` when the name is
        another tool's.
        """
        from turnlog.client.recall_tools import run

        return run(self, name, arguments)
