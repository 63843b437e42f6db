"""Clients of AWS that a test watches, or answers in place of AWS."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pytest
from botocore.awsrequest import AWSResponse

from turnlog.engines.aws_clients import Clients

Answer: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]


def on_every_client(patch: pytest.MonkeyPatch, watch: Callable[[str, Any], None]) -> None:
    """Call ``watch`` with the service and the botocore client, for each client that `Clients` makes from now on."""
    make = Clients.make

    def watched(clients: Clients, service: str, read_timeout_seconds: float) -> Any:
        client = make(clients, service, read_timeout_seconds)
        watch(service, client)
        return client

    patch.setattr(Clients, "make", watched)


@dataclass(frozen=True)
class AwsRequest:
    """A request: its operation, its address, its body where that is JSON, and the `ClientMeta` of its client."""

    operation: str
    url: str
    body: dict[str, Any]
    client: Any


@dataclass
class AnsweredRequests:
    """Requests of all clients that are made from now on. Each is kept, and gets the answer for its operation, or an empty one."""

    patch: pytest.MonkeyPatch
    answers: Mapping[str, Answer] = field(default_factory=dict)
    requests: list[AwsRequest] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            self.patch.setenv(name, "testing")
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK"):
            self.patch.delenv(name, raising=False)
        on_every_client(self.patch, self._watch)

    def _watch(self, _service: str, client: Any) -> None:
        def answered(model: Any, params: dict[str, Any], **_: Any) -> tuple[AWSResponse, dict[str, Any]]:
            data = params["body"] if params["headers"].get("Content-Type", "").endswith(("json", "json-1.0")) else b"{}"
            body = json.loads(data)
            self.requests.append(AwsRequest(model.name, params["url"], body, client.meta))
            answer = self.answers[model.name](body) if model.name in self.answers else {}
            return AWSResponse(params["url"], 200, {}, None), answer

        client.meta.events.register("before-call", answered)
