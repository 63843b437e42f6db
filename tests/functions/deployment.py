"""The template's functions over its resources in moto, under IAM: each request is compared with the role that it is signed for.

moto asks for no permission. Here a request that the roles of the expanded template do not allow is answered as AWS answers it.
"""

from __future__ import annotations

import json
import os
import random
import re
import string
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.signers import RequestSigner
from moto import mock_aws
from moto.core.botocore_stubber import MockRawResponse
from moto.s3.models import s3_backends

from tests.functions.events import Context, Handler, handler_of, load, run_events
from tests.http.events import event
from tests.iam import Asked, allows, asked, may_assume, resolved
from tests.support.aws_requests import on_every_client
from tests.support.templates import template
from turnlog.core.errors import UnavailableError
from turnlog.engines import SystemClock
from turnlog.engines.aws_clients import Clients
from turnlog.memory.embedded import EmbeddedMemory
from turnlog.routing import function_of
from turnlog.search.over_sessions import OF_A_WINDOW
from turnlog.server.stack import REGION, STACK, Stack, Template, deploy

_KEPT = {"TURNLOG_TOKEN_COUNTER"}
RECALLING = {"steps": [{"step": "digest_when_full"}, {"step": "recall", "scope": "user"}]}
"""A policy whose windows have what the user's other sessions know."""
_CREDENTIAL = re.compile(r"Credential=([^/]+)/")
_DENIED = {
    "dynamodb": ("application/x-amz-json-1.0", '{"__type": "com.amazonaws.dynamodb.v20120810#AccessDeniedException"}'),
    "sqs": ("application/x-amz-json-1.0", '{"__type": "com.amazonaws.sqs#AccessDenied"}'),
    "s3": ("application/xml", "<Error><Code>AccessDenied</Code></Error>"),
    "sts": ("text/xml", "<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>"),
}


@dataclass(frozen=True, order=True)
class Call:
    """What a function asked of AWS. ``role`` is the logical id of the role that it was signed for, ``tenant`` its session's tag."""

    function: str
    role: str
    tenant: str
    asked: Asked = field(compare=False)


class Iam:
    """Between the functions and moto. ``calls`` is all that was asked and allowed, ``refused`` the rest."""

    def __init__(self, template: Template, stack: Stack) -> None:
        self.resources = resolved(template)
        self.calls = list[Call]()
        self.refused = list[Call]()
        self.running = ""
        self._names = {resource.name.rpartition("/")[2]: resource.logical_id for resource in stack.resources}
        self._sessions = dict[str, tuple[str, str]]()
        self._local = threading.local()

    def watch(self, client: Any) -> None:
        events = client.meta.events
        events.register("before-parameter-build", self._begun)
        events.register_first("before-send", self._sent)
        events.register("before-sign.s3.GetObject", self._signed)
        events.register("after-call", self._ended)

    def role_of(self, function: str) -> str:
        return str(self.resources[function]["Properties"]["Role"]["Fn::GetAtt"][0])

    def _signed(
        self, request_signer: RequestSigner, signing_name: str, region_name: str, signature_version: str, **_: Any
    ) -> None:
        """Of an address that somebody gets: nothing is sent."""
        if signature_version.endswith("-query"):
            _, _, params = self._under_way[-1]
            signer = request_signer.get_auth_instance(signing_name, region_name, "v4")
            role, tenant = self._sessions[signer.credentials.access_key]
            for item in asked("s3", "GetObject", params):
                call = Call(self.running, role, tenant, item)
                (self.calls if self._is_allowed(call, params) else self.refused).append(call)

    def _begun(self, params: Mapping[str, Any], model: Any, **_: Any) -> None:
        self._under_way.append((model.service_model.service_name, model.name, params))

    @property
    def _under_way(self) -> list[tuple[str, str, Mapping[str, Any]]]:
        """Requests of this thread, innermost last: a role is assumed while the request is signed that needs it."""
        result: list[tuple[str, str, Mapping[str, Any]]] = self._local.__dict__.setdefault("requests", [])
        return result

    def _sent(self, request: Any, **_: Any) -> AWSResponse | None:
        service, operation, params = self._under_way[-1]
        header = request.headers["Authorization"]
        (key,) = _CREDENTIAL.findall(header.decode() if isinstance(header, bytes) else header)
        role, tenant = self._sessions.get(key) or (self.role_of(self.running), "")
        for item in self._asked(service, operation, params):
            call = Call(self.running, role, tenant, item)
            if not self._is_allowed(call, params):
                self.refused.append(call)
                return _denied(request.url, service)
            self.calls.append(call)
        return _denied(request.url, service) if self._looks_denied(role, tenant, operation, params) else None

    def _asked(self, service: str, operation: str, params: Mapping[str, Any]) -> list[Asked]:
        if service == "sqs":
            return [Asked(f"sqs:{operation}", self._names[params["QueueUrl"].rpartition("/")[2]])]
        if service == "sts":
            return [Asked(f"sts:{operation}", params["RoleArn"].rpartition(f"/{STACK}-")[2])]
        return asked(service, operation, params)

    def _is_allowed(self, call: Call, params: Mapping[str, Any]) -> bool:
        if call.asked.action == "sts:AssumeRole":
            tags = {tag["Key"]: tag["Value"] for tag in params.get("Tags", [])}
            return may_assume(self.resources[call.asked.resource], call.role, tags)
        tags = {"tenant": call.tenant} if call.tenant else {}
        return allows(self.resources[call.role], call.asked, tags)

    def _looks_denied(self, role: str, tenant: str, operation: str, params: Mapping[str, Any]) -> bool:
        """S3 says so of an object that is missing to who may not list the whole bucket."""
        if operation != "GetObject" or allows(
            self.resources[role], Asked("s3:ListBucket", "Bucket"), {"tenant": tenant}
        ):
            return False
        account = s3_backends["123456789012"]["aws"]
        return params["Key"] not in account.buckets[params["Bucket"]].keys

    def _ended(self, parsed: Mapping[str, Any], **_: Any) -> None:
        _, operation, params = self._under_way.pop()
        if operation == "AssumeRole" and "Credentials" in parsed:
            (tag,) = params["Tags"]
            role = params["RoleArn"].rpartition(f"/{STACK}-")[2]
            self._sessions[parsed["Credentials"]["AccessKeyId"]] = role, tag["Value"]


def _denied(url: str, service: str) -> AWSResponse:
    kind, text = _DENIED[service]
    return AWSResponse(url, 403, {"content-type": kind, "x-amzn-requestid": "r"}, MockRawResponse(text))


class Deployment:
    """The functions, their table and their IAM."""

    def __init__(self, template: Template, stack: Stack, patch: pytest.MonkeyPatch) -> None:
        self.iam = Iam(template, stack)
        self.patch = patch
        self.table = next(resource.name for resource in stack.resources if resource.logical_id == "Table")
        self.bucket = next(resource.name for resource in stack.resources if resource.logical_id == "Bucket")
        self._functions = {function.handler: function for function in stack.functions.values()}
        self._handlers = dict[str, Handler]()

    def run(self, handler: str, given: dict[str, Any]) -> dict[str, Any]:
        """One invocation, with the variables of the function and no others."""
        function = self._functions[handler]
        for variable in [name for name in os.environ if name.startswith("TURNLOG_")]:
            if variable not in _KEPT | set(function.environment):
                self.patch.delenv(variable)
        for variable, value in function.environment.items():
            self.patch.setenv(variable, value)
        self.iam.running = function.name
        return self._handlers.setdefault(handler, load(handler))(given, Context())

    def call(self, resource: str, method: str, path: str, status: int, **options: Any) -> dict[str, Any]:
        answer = self.run(f"api.{function_of(resource)}.handler", event(method, path, **options))
        assert answer["statusCode"] == status, answer["body"]
        content: dict[str, Any] = json.loads(answer["body"])
        return content

    def restart(self) -> None:
        """Cold starts from here on."""
        self._handlers.clear()


@contextmanager
def deployed(parameters: Mapping[str, str]) -> Iterator[Deployment]:
    """The template with these parameters, before anything was asked of it."""
    expanded = template(**parameters)
    with pytest.MonkeyPatch.context() as patch, mock_aws():
        for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
            patch.setenv(variable, "testing")
        patch.delenv("AWS_PROFILE", raising=False)
        patch.setenv("AWS_DEFAULT_REGION", REGION)
        made = Deployment(expanded, deploy(expanded, Clients(REGION)), patch)
        patch.setenv("TURNLOG_TOKEN_COUNTER", "estimate")
        on_every_client(patch, lambda _service, client: made.iam.watch(client))
        yield made


def use(made: Deployment) -> None:
    """Every event, large contents, lost caches, cold starts."""
    run_events(lambda name, item: made.run(handler_of(name), item))
    _large(made)
    _sealed(made)
    _copied(made)
    _remembered(made)
    _without_caches(made)
    _erased(made)
    _retained(made)


def _large(made: Deployment) -> None:
    """Settings and messages beside the commits, in items and in blobs."""
    for session_id, size in (("middle", 6_000), ("large", 70_000)):
        path, texts = f"/v1/sessions/{session_id}", [noise(size) for _ in range(6)]
        made.call("sessions", "POST", "/v1/sessions", 201, body={"session_id": session_id, "system": noise(size)})
        messages = [
            {"role": "user" if at % 2 == 0 else "assistant", "content": text} for at, text in enumerate(texts)
        ] + [{"role": "user", "content": "And now?"}]
        for _ in range(2):
            made.call(
                "append", "POST", f"{path}/messages", 201, body={"messages": messages}, headers={"idempotency-key": "k"}
            )
        made.call("sessions", "POST", "/v1/sessions", 200, body={"session_id": session_id, "if_exists": "return"})
        made.call("sessions", "PATCH", path, 200, body={"system": noise(size)})
        state = {"agent_id": "main", "scratchpad": noise(size)}
        made.call("append", "POST", f"{path}/messages", 201, body={"messages": messages, "run": state})
        _read(made, path)
        made.call("compress", "POST", f"{path}/compress", 200, body={"mode": "sync", "keep_loops": 1})
        job = made.call("compress", "POST", f"{path}/compress", 202, body={"mode": "async", "keep_loops": 0})
        assert made.run("workers.compress.handler", _message("compress", job["job_id"], session_id)) == _DONE
        made.call("compress", "GET", f"{path}/summary", 200)
        made.call("build_context", "POST", f"{path}/context", 200, body={"policy": "default", "budget": 90_000})
        made.call("snapshot", "POST", f"{path}/snapshots", 201, body={"name": "n", "if_name_absent": True})
        job = made.call("snapshot", "POST", f"{path}/snapshots", 202, body={"name": "n", "mode": "async"})
        assert made.run("workers.snapshot.handler", _message("snapshot", job["job_id"], session_id)) == _DONE
        made.call("snapshot", "GET", f"{path}/snapshots/n", 200)
        _recall(made, path, size)
        _state(made, path, size)


def _state(made: Deployment, path: str, size: int) -> None:
    """A state and its patches out of line, what an agent waits for, and what history tells of them."""
    made.call("state", "PUT", f"{path}/state", 200, body={"state": {"noise": noise(size)}})
    for _ in range(2):
        made.call("state", "PATCH", f"{path}/state", 200, body={"more": noise(min(size, 40_000))})
    made.call("state", "GET", f"{path}/state", 200)
    made.call("state", "GET", f"{path}/state", 200, query={"at": "2"})
    call = {"id": "w", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    run = {"pending_action": {"call_id": "w"}}
    made.call("append", "POST", f"{path}/messages", 201, body={"messages": messages, "run": run})
    made.call("state", "POST", f"{path}/agents/main/pending", 200, body={"decision": "reject", "reason": noise(3_000)})
    entry = {"action": "noted", "metadata": {"noise": noise(min(size, 60_000))}}
    made.call("history", "POST", f"{path}/history", 201, body=entry)
    made.call("history", "GET", f"{path}/history", 200, query={"limit": "1000"})


def _sealed(made: Deployment) -> None:
    """A segment of messages in the commits and beside them."""
    made.call("sessions", "POST", "/v1/sessions", 201, body={"session_id": "sealed"})
    for at in range(11):
        messages = [{"role": "user", "content": f"{at} {n}"} for n in range(24)]
        messages.append({"role": "assistant", "content": noise(6_000 + at)})
        made.call("append", "POST", "/v1/sessions/sealed/messages", 201, body={"messages": messages})
    jobs = made.call("jobs", "GET", "/v1/jobs", 200, query={"limit": "1"})["jobs"]
    assert jobs[0]["kind"] == "seal"
    assert made.run("workers.compress.handler", _message("seal", jobs[0]["job_id"], "sealed")) == _DONE
    (job,) = made.call("jobs", "GET", "/v1/jobs", 200, query={"limit": "1"})["jobs"]
    assert job["result"] == {"segments": 1, "last": 276}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("turnlog.search.over_sessions.SCANNED", 0)
        patch.setattr("turnlog.search.over_sessions.OF_A_WINDOW", type(OF_A_WINDOW)(0, 4, 8, 60.0, 100))
        assert made.call("search", "GET", "/v1/search", 200, query={"q": "words"})["unindexed"]
        made.call("build_context", "POST", "/v1/sessions/sealed/context", 200, body={"policy": RECALLING})
    job, _ = [job for job in made.call("jobs", "GET", "/v1/jobs", 200)["jobs"] if job["kind"] == "index"]
    assert made.run("workers.compress.handler", _message("index", job["job_id"], "")) == _DONE
    assert made.call("search", "GET", "/v1/search", 200, query={"q": "10 23"})["is_complete"]


def _copied(made: Deployment) -> None:
    """Full snapshots, restores of them without their log, exports and imports; at once and as jobs."""
    table = boto3.resource("dynamodb", REGION).Table(made.table)
    path = "/v1/sessions/large/snapshots"
    made.call("snapshot", "POST", path, 201, body={"name": "whole", "kind": "full"})
    made.call("export", "POST", "/v1/sessions/large/export", 200, body={})
    made.call("sessions", "POST", "/v1/sessions", 201, body={"session_id": "long"})
    messages = [{"role": "user", "content": noise(size)} for size in (3_000, 60_000, 6_000)]
    made.call("append", "POST", "/v1/sessions/long/messages", 201, body={"messages": messages})
    for limit in ("lifecycle.MAX_UNSEALED", "exports.MAX_POSITIONS", "restore.MAX_POSITIONS"):
        made.patch.setattr(f"turnlog.snapshots.{limit}", -1)
    job = made.call("snapshot", "POST", "/v1/sessions/long/snapshots", 202, body={"name": "whole", "kind": "full"})
    assert made.run("workers.snapshot.handler", _message("snapshot", job["job_id"], "long")) == _DONE
    job = made.call("export", "POST", "/v1/sessions/long/export", 202, body={})
    assert made.run("workers.snapshot.handler", _message("export", job["job_id"], "long")) == _DONE
    assert made.call("jobs", "GET", f"/v1/jobs/{job['job_id']}", 200)["result"]["url"]
    for session_id in ("large", "long"):
        partition = f"T#111122223333#U#agent-backend#S#{session_id}"
        for item in table.scan()["Items"]:
            if item["pk"] == partition and not item["sk"].startswith("P#"):
                table.delete_item(Key={"pk": item["pk"], "sk": item["sk"]})
    made.call("snapshot", "GET", f"{path}/whole", 200)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("turnlog.snapshots.restore.MAX_POSITIONS", 1_000)
        made.call("snapshot", "POST", f"{path}/whole/restore", 201, body={"as": "rewind"})
    job = made.call("snapshot", "POST", "/v1/sessions/long/snapshots/whole/restore", 202, body={"as": "rewind"})
    assert made.run("workers.snapshot.handler", _message("restore", job["job_id"], "long")) == _DONE
    made.call("snapshot", "DELETE", "/v1/sessions/long/snapshots/whole", 200)
    (job,) = made.call("jobs", "GET", "/v1/jobs", 200, query={"limit": "1"})["jobs"]
    assert job["kind"] == "sweep"
    assert made.run("workers.erase.handler", _message("sweep", job["job_id"], "long")) == _DONE


def _recall(made: Deployment, path: str, size: int) -> None:
    """A call and its result out of line, by ref; and the words of a message."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": noise(size)}}
    small = {**call, "function": {"name": "f", "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": "c", "content": noise(size)}
    for value in (call, small):
        messages = [{"role": "assistant", "content": None, "tool_calls": [value]}, result]
        refs = made.call("append", "POST", f"{path}/messages", 201, body={"messages": messages})["refs"]
        query = {"ref": refs[0]["ref"], "max_tokens": "100"}
        assert made.call("search", "GET", f"{path}/recall", 200, query=query)["found"]
    made.call("search", "GET", f"{path}/search", 200, query={"q": "and now"})


def _read(made: Deployment, path: str) -> None:
    made.call("sessions", "GET", path, 200)
    made.call("messages", "GET", f"{path}/messages", 200)
    made.call("messages", "GET", f"{path}/loops", 200)
    made.call("build_context", "POST", f"{path}/context", 200, body={"budget": 2_000_000})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("turnlog.http.api.fits_as_text", lambda *_: False)
        patch.setattr("turnlog.http.api.MAX_ANSWER_BYTES", 0)
        made.call("build_context", "POST", f"{path}/context", 303, body={"budget": 2_000_000})
        made.call("state", "GET", f"{path}/state", 303)


def _without_caches(made: Deployment) -> None:
    """Each reader after a cold start, with the caches of the sessions and the cursor secret gone."""
    table = boto3.resource("dynamodb", REGION).Table(made.table)
    readers: list[Callable[[], object]] = [
        lambda: made.call("jobs", "GET", "/v1/jobs", 200, query={"limit": "1"}),
        lambda: made.call("sessions", "GET", "/v1/sessions", 200),
        lambda: made.call("sessions", "GET", "/v1/sessions/large", 200),
        lambda: made.call("state", "GET", "/v1/sessions/middle/agents/main", 200),
        lambda: made.call("state", "GET", "/v1/sessions/large/state", 200),
        lambda: made.call("state", "PUT", "/v1/sessions/large/state", 200, body={"state": {}}),
        lambda: made.call("history", "GET", "/v1/sessions/large/history", 200),
        lambda: made.call("messages", "GET", "/v1/sessions/large/messages", 200),
        lambda: made.call("messages", "GET", "/v1/sessions/large/loops", 200),
        lambda: made.call("build_context", "POST", "/v1/sessions/large/context", 200, body={"budget": 2_000_000}),
        lambda: made.call("append", "POST", "/v1/sessions/large/messages", 201, body=_SHORT),
        lambda: made.call("compress", "GET", "/v1/sessions/large/summary", 200),
        lambda: made.call("snapshot", "GET", "/v1/sessions/large/snapshots/n", 200),
        lambda: made.call("snapshot", "GET", "/v1/sessions/large/snapshots", 200),
    ]
    for read in readers:
        made.restart()
        for item in table.scan()["Items"]:
            if item["pk"] == "#turnlog" or item["sk"] in ("D#META", "E#SYS", "E#SUM", "S#STATE"):
                table.delete_item(Key={"pk": item["pk"], "sk": item["sk"]})
        read()


def _remembered(made: Deployment) -> None:
    """Sessions that end, with payloads in items and in blobs; an engine that is down for a moment."""
    for name, size in (("known", 10), ("known-middle", 6_000), ("known-large", 70_000)):
        said = [{"role": "user", "content": f"I live in {name}."}, {"role": "assistant", "content": noise(size)}]
        made.call("sessions", "POST", "/v1/sessions", 201, body={"session_id": name})
        made.call("append", "POST", f"/v1/sessions/{name}/messages", 201, body={"messages": said})
        made.call("sessions", "POST", f"/v1/sessions/{name}/end", 200)
        jobs = made.call("jobs", "GET", "/v1/jobs", 200)["jobs"]
        (job,) = [job for job in jobs if job["session_id"] == name]
        assert job["kind"] == "offload"
        for is_down in (True, False):
            with made.patch.context() as patch:
                if is_down:
                    patch.setattr(EmbeddedMemory, "remember", _down)
                assert made.run("workers.offload.handler", _message("offload", job["job_id"], name)) == _DONE
    known = made.call("memory", "GET", "/v1/users/me/memory", 200)["memories"]
    assert [item["text"] for item in known if item["replaced_by"] is None] == ["I live in known-large"]
    body = {"session_id": "begun", "bootstrap": True}
    assert made.call("sessions", "POST", "/v1/sessions", 201, body=body)["bootstrap"]["status"] == "ok"
    made.call("memory", "DELETE", f"/v1/users/me/memory/{known[0]['memory_id']}", 200)


def _down(*_: object) -> int:
    raise UnavailableError("the memory engine is down")


def _erased(made: Deployment) -> None:
    """A session with payloads in items and in blobs, by both passes."""
    made.call("sessions", "POST", "/v1/sessions", 201, body={"session_id": "whole"})
    job = made.call("snapshot", "POST", "/v1/sessions/whole/snapshots", 202, body={"name": "w", "kind": "full"})
    assert made.run("workers.snapshot.handler", _message("snapshot", job["job_id"], "whole")) == _DONE
    made.call("snapshot", "DELETE", "/v1/sessions/whole/snapshots/w", 200)
    for name in ("large", "middle"):
        made.call("sessions", "POST", "/v1/sessions", 201, body={"fork": {"session_id": name}})
    for name in ("large", "middle"):
        (message, *_) = made.call("messages", "GET", f"/v1/sessions/{name}/messages", 200)["messages"]
        path = f"/v1/sessions/{name}/messages/{message['position']}/redact"
        job = made.call("erase", "POST", path, 202)
        assert made.run("workers.erase.handler", _message("redact", job["job_id"], name)) == _DONE
    job = made.call("erase", "DELETE", "/v1/sessions/middle", 202)
    assert made.run("workers.erase.handler", _message("erase", job["job_id"], "middle")) == _DONE
    job = made.call("erase", "DELETE", "/v1/sessions/large", 202)
    assert made.run("workers.erase.handler", _message("erase", job["job_id"], "large")) == _DONE
    made.call("sessions", "GET", "/v1/sessions/large", 404)
    answer = made.call("jobs", "GET", f"/v1/jobs/{job['job_id']}", 200)
    assert answer["result"]["blobs"] > 3


def _retained(made: Deployment) -> None:
    """A session that expired long ago, as its log and the index say; and one that ended and was not handed over."""
    with made.patch.context() as past:
        past.setattr(SystemClock, "now_ms", lambda _clock: int(time.time() * 1000) - 3 * 86_400_000)
        made.call("sessions", "POST", "/v1/sessions", 201, body={"session_id": "left"})
        made.call("sessions", "POST", "/v1/sessions/left/end", 200)
        body = {"session_id": "expired", "ttl_days": 1}
        made.call("sessions", "POST", "/v1/sessions", 201, body=body)
    done = [made.run("workers.retention.handler", {"worker": worker, "workers": 4}) for worker in range(4)]
    assert (sum(item["expired"] for item in done), sum(item["offloaded"] for item in done)) == (1, 1)
    made.call("sessions", "GET", "/v1/sessions/expired", 404)


_SHORT = {"messages": [{"role": "user", "content": "hi"}]}
_DONE: dict[str, Any] = {"batchItemFailures": []}


def noise(size: int) -> str:
    """Text that no compression makes small."""
    return "".join(random.Random(size).choices(string.ascii_letters + string.digits, k=size))


def _message(kind: str, job_id: str, session_id: str) -> dict[str, Any]:
    ids = {"tenant": "111122223333", "user": "agent-backend", "session_id": session_id}
    body = json.dumps({"v": 1, "job_id": job_id, "kind": kind, **ids})
    return {"Records": [{"messageId": "m", "receiptHandle": "r", "body": body, "eventSource": "aws:sqs"}]}
