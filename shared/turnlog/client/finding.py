"""Finding again what a window has left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from turnlog.client.backend import OfSession
from turnlog.contracts.base import FormatName
from turnlog.contracts.recall import Recalled, SearchAnswer

if TYPE_CHECKING:
    from turnlog.client.recall_tools import ToolAnswer


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

    @staticmethod
    def handles(name: str) -> bool:
        """Whether a tool of that name is one of the two that windows have brought: `execute_tool` executes it."""
        from turnlog.client.recall_tools import handles

        return handles(name)

    def execute_tool(
        self,
        name: str,
        arguments: str | Mapping[str, Any] | None,
        *,
        call_id: str | None = None,
        format: FormatName | None = None,
    ) -> ToolAnswer:
        """Executes a call of `recall_tool_call` or `search_history` that a model made: takes what it sent, gives what to append.

            answer = session.execute_tool(name, arguments, call_id=call_id)
            session.append(answer.message, meta=[answer.meta])

        ``arguments`` are JSON text or a mapping, however the model wrote them. What is wrong with the call is said in the answer,
        so that the model can try again; so is another tool's name (``is_ours`` is false then: ask `handles` before). Raised is only
        what no model can mend: an engine or a service that does not answer. ``call_id`` is the call's; without one the result
        belongs to the newest open call. Nothing is written: the commit that appends the message tells the history of the recall.
        """
        from turnlog.client.recall_tools import execute

        return execute(self, name, arguments, call_id=call_id, format=format)
