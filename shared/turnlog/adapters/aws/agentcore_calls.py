"""Calls of AgentCore Memory's data plane: pages, and one translator of its errors. Only codes reach an error's text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from turnlog.adapters.aws.asking import Service
from turnlog.adapters.aws.clients import Clients, fitting
from turnlog.domain.errors import MemoryConfigError, UnavailableError

_MEMORY = Service(MemoryConfigError, "memory_status", "memory_timeout", "memory_unreadable", "its protocol")


class AgentCoreCalls:
    """What is asked of one memory resource. The time-out is that of each try."""

    def __init__(self, clients: Clients, memory_id: str, *, timeout_seconds: int) -> None:
        self._clients = clients
        self._memory_id = memory_id
        self._timeout_seconds = timeout_seconds

    def pages(self, operation: str, field: str, **asked: Any) -> Iterator[list[Any]]:
        token: dict[str, str] = {}
        while True:
            answer = self.call(operation, maxResults=100, **token, **asked)
            with readable():
                page = list(answer[field])
                following = answer.get("nextToken")
            yield page
            if not following or token.get("nextToken") == following:
                return
            token = {"nextToken": str(following)}

    def call(self, operation: str, **asked: Any) -> Any:
        with _MEMORY.asked(f"AgentCore's {operation}"):
            client = self._clients.open("bedrock-agentcore", read_timeout_seconds=fitting(self._timeout_seconds))
            call: Callable[..., Any] = getattr(client, operation)
            return call(memoryId=self._memory_id, **asked)


@contextmanager
def readable() -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise unreadable() from None


def unreadable() -> UnavailableError:
    return _MEMORY.no_answer("AgentCore")
