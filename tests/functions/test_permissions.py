"""Every AWS call that a function makes is one that its role allows, and a role allows little else.

The functions run with the environments of the template on its table, bucket and queues in moto, which asks for no
permission: the calls are recorded and compared with the roles.
"""

from __future__ import annotations

import json
import random
import string
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.functions.events import Context, Handler, handler_of, load, run_events
from tests.http.events import event

boto3 = pytest.importorskip("boto3")
pytest.importorskip("moto")
pytest.importorskip("samtranslator")

from turnlog.adapters.aws.clients import Clients, make_clients  # noqa: E402
from turnlog.domain.errors import UnavailableError  # noqa: E402
from turnlog.local.stack import Stack, deploy  # noqa: E402
from turnlog.local.template import REGION, Template, expand  # noqa: E402
from turnlog.services.remember import EmbeddedMemory  # noqa: E402

IMPLICIT = {
    "logs:CreateLogStream",  # the Lambda service writes logs and receives messages with the role
    "logs:PutLogEvents",
    "xray:PutTraceSegments",  # and traces
    "xray:PutTelemetryRecords",
    "sqs:ReceiveMessage",
    "sqs:DeleteMessage",
    "sqs:GetQueueAttributes",
    "kms:Decrypt",  # by DynamoDB, S3 and SQS, when there is a key
    "kms:GenerateDataKey",
    "s3:ListBucket",  # S3 asks for it when the object of a GetObject is missing
}
_NO_CARD = "a message without a card is read whole by a summary"
_LARGE_SUMMARY = "a summary of more than 32 KB packed is a blob"
_NO_MODEL = "moto has no models: tests/summarisers asks one over HTTP"
_LOST = "large settings of a silent session are a blob, read when their cache is lost"
_NO_CARD_FOUND = "a message without a card is read whole by a search"
_NO_AGENTCORE = "the embedded engine runs here: tests/memories asks AgentCore over HTTP"
_EMBEDDINGS = "arn:AWS::Partition}:bedrock:AWS::Region}::foundation-model/RerankModel}"
NOT_RUN_HERE = {
    **{
        (function, f"bedrock-agentcore:{action}", "MemoryArn"): _NO_AGENTCORE
        for function, actions in {
            "SessionsFunction": ("RetrieveMemoryRecords", "ListMemoryRecords"),
            "MemoryFunction": ("ListMemoryRecords", "BatchDeleteMemoryRecords"),
            "OffloadWorker": ("ListEvents", "CreateEvent"),
            "EraseWorker": (
                *("ListSessions", "ListEvents", "DeleteEvent"),
                *("ListMemoryRecords", "BatchDeleteMemoryRecords"),
            ),
        }.items()
        for action in actions
    },
    ("RetentionWorker", "s3:GetObject", "Bucket/*"): _LOST,
    ("EraseWorker", "s3:DeleteObject", "Bucket/*"): "S3 asks for it in every DeleteObjects, beside DeleteObjectVersion",
    ("SearchFunction", "dynamodb:BatchGetItem", "Table"): _NO_CARD_FOUND,
    ("SearchFunction", "dynamodb:GetItem", "Table"): _NO_CARD_FOUND,
    ("SearchFunction", "s3:GetObject", "Bucket/*"): _NO_CARD_FOUND,
    ("SearchFunction", "bedrock:InvokeModel", _EMBEDDINGS): "moto has no models: tests/embedders asks one over HTTP",
    ("CompressFunction", "dynamodb:BatchGetItem", "Table"): _NO_CARD,
    ("CompressFunction", "s3:GetObject", "Bucket/*"): _NO_CARD,
    ("CompressFunction", "s3:PutObject", "Bucket/*"): _LARGE_SUMMARY,
    ("CompressWorker", "s3:GetObject", "Bucket/*"): _NO_CARD,
    ("CompressWorker", "sqs:SendMessage", "CompressQueue"): "more to cover than one job has time for",
    ("CompressFunction", "bedrock:InvokeModel", "SummaryModelArns"): _NO_MODEL,
    ("CompressWorker", "bedrock:InvokeModel", "SummaryModelArns"): _NO_MODEL,
    ("OffloadWorker", "bedrock:InvokeModel", "SummaryModelArns"): _NO_MODEL,
}
"""What is allowed for paths that these runs don't take, and why."""
_NAMED_OTHERWISE = {
    "s3:ListObjectVersions": ("s3:ListBucketVersions", "Bucket"),
    "s3:ListObjectsV2": ("s3:ListBucket", "Bucket"),
    "s3:DeleteObjects": ("s3:DeleteObjectVersion", "Bucket/*"),
}
"""What IAM calls a request of S3, and on what it is granted."""
Call = tuple[str, str, str, str]
"""Function, action, resource, partition key of what is put."""


class Deployment:
    """The template's functions over its resources in moto. ``calls`` is what they asked of AWS."""

    def __init__(self, template: Template, stack: Stack, patch: pytest.MonkeyPatch) -> None:
        self.template = template
        self.calls = set[Call]()
        self._stack = stack
        self.patch = patch
        self._names = {resource.name.rpartition("/")[2]: resource.logical_id for resource in stack.resources}
        self._functions = {function.handler: function for function in stack.functions.values()}
        self._handlers = dict[str, Handler]()
        self._running = ""

    @property
    def table(self) -> str:
        return next(name for name, logical_id in self._names.items() if logical_id == "Table")

    def run(self, handler: str, given: dict[str, Any]) -> dict[str, Any]:
        """One invocation, with the variables of the function and no others."""
        function = self._functions[handler]
        for variable, value in function.environment.items():
            self.patch.setenv(variable, value)
        self._running = function.name
        return self._handlers.setdefault(handler, load(handler))(given, Context())

    def call(self, resource: str, method: str, path: str, status: int, **options: Any) -> dict[str, Any]:
        answer = self.run(f"api.{resource}.handler", event(method, path, **options))
        assert answer["statusCode"] == status, answer["body"]
        found: dict[str, Any] = json.loads(answer["body"])
        return found

    def restart(self) -> None:
        """Cold starts from here on."""
        self._handlers.clear()

    def record(self, params: Mapping[str, Any], model: Any, **_: Any) -> None:
        service = model.service_model.service_name
        put = str(params["Item"]["pk"]["S"]) if model.name == "PutItem" else ""
        action, resource = f"{service}:{model.name}", self._resource(service, params)
        self.calls.add((self._running, *_NAMED_OTHERWISE.get(action, (action, resource)), put))

    def _resource(self, service: str, params: Mapping[str, Any]) -> str:
        if service == "s3":
            return self._names[params["Bucket"]] + (
                "/~exports/*" if str(params.get("Key", "")).startswith("~exports/") else "/*"
            )
        if service == "sqs":
            return self._names[params["QueueUrl"].rpartition("/")[2]]
        names = [params["TableName"]] if "TableName" in params else list(params["RequestItems"])
        (table,) = (self._names[name] for name in names)
        return f"{table}/index/{params['IndexName']}" if "IndexName" in params else table


@pytest.fixture(scope="module")
def deployment() -> Iterator[Deployment]:
    """What the functions did: every event, large contents, lost caches, cold starts."""
    from moto import mock_aws

    template = expand(ROOT / "template.yaml")
    with pytest.MonkeyPatch.context() as patch, mock_aws():
        for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
            patch.setenv(variable, "testing")
        patch.delenv("AWS_PROFILE", raising=False)
        patch.setenv("AWS_DEFAULT_REGION", REGION)
        clients = make_clients(REGION)
        made = Deployment(template, deploy(template, clients), patch)
        patch.setenv("TURNLOG_TOKEN_COUNTER", "estimate")
        _record_clients(patch, made.record)
        run_events(lambda name, given: made.run(handler_of(name), given))
        _large(made)
        _sealed(made)
        _copied(made)
        _remembered(made)
        _without_caches(made)
        _erased(made)
        _retained(made)
        yield made


def _record_clients(patch: pytest.MonkeyPatch, record: Callable[..., None]) -> None:
    make = Clients._make

    def recorded(self: Clients, service: str, read_timeout_seconds: int) -> Any:
        client = make(self, service, read_timeout_seconds)
        client.meta.events.register("before-parameter-build", record)
        return client

    patch.setattr(Clients, "_make", recorded)


def _large(made: Deployment) -> None:
    """Settings and messages beside the commits, in items and in blobs."""
    for session_id, size in (("middle", 6_000), ("large", 70_000)):
        path, texts = f"/v1/sessions/{session_id}", [_noise(size) for _ in range(6)]
        made.call("sessions", "POST", "/v1/sessions", 201, body={"session_id": session_id, "system": _noise(size)})
        messages = [
            {"role": "user" if at % 2 == 0 else "assistant", "content": text} for at, text in enumerate(texts)
        ] + [{"role": "user", "content": "And now?"}]
        for _ in range(2):
            made.call(
                "append", "POST", f"{path}/messages", 201, body={"messages": messages}, headers={"idempotency-key": "k"}
            )
        made.call("sessions", "POST", "/v1/sessions", 200, body={"session_id": session_id, "if_exists": "return"})
        made.call("sessions", "PATCH", path, 200, body={"system": _noise(size)})
        state = {"agent_id": "main", "scratchpad": _noise(size)}
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
    noise = {"noise": _noise(size)}
    made.call("state", "PUT", f"{path}/state", 200, body={"state": noise})
    for _ in range(2):
        made.call("state", "PATCH", f"{path}/state", 200, body={"more": _noise(min(size, 40_000))})
    made.call("state", "GET", f"{path}/state", 200)
    made.call("state", "GET", f"{path}/state", 200, query={"at": "2"})
    call = {"id": "w", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    run = {"pending_action": {"call_id": "w"}}
    made.call("append", "POST", f"{path}/messages", 201, body={"messages": messages, "run": run})
    made.call("state", "POST", f"{path}/agents/main/pending", 200, body={"decision": "reject", "reason": _noise(3_000)})
    entry = {"action": "noted", "metadata": {"noise": _noise(min(size, 60_000))}}
    made.call("history", "POST", f"{path}/history", 201, body=entry)
    made.call("history", "GET", f"{path}/history", 200, query={"limit": "1000"})


def _sealed(made: Deployment) -> None:
    """A segment of messages in the commits and beside them."""
    made.call("sessions", "POST", "/v1/sessions", 201, body={"session_id": "sealed"})
    for at in range(11):
        messages = [{"role": "user", "content": f"{at} {n}"} for n in range(24)]
        messages.append({"role": "assistant", "content": _noise(6_000 + at)})
        made.call("append", "POST", "/v1/sessions/sealed/messages", 201, body={"messages": messages})
    jobs = made.call("jobs", "GET", "/v1/jobs", 200, query={"limit": "1"})["jobs"]
    assert jobs[0]["kind"] == "seal"
    assert made.run("workers.compress.handler", _message("seal", jobs[0]["job_id"], "sealed")) == _DONE
    (job,) = made.call("jobs", "GET", "/v1/jobs", 200, query={"limit": "1"})["jobs"]
    assert job["result"] == {"segments": 1, "last": 276}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("turnlog.services.search_sessions.SCANNED", 0)
        assert made.call("search", "GET", "/v1/search", 200, query={"q": "words"})["unindexed"]
    (job,) = [one for one in made.call("jobs", "GET", "/v1/jobs", 200)["jobs"] if one["kind"] == "index"]
    assert made.run("workers.compress.handler", _message("index", job["job_id"], "")) == _DONE
    assert made.call("search", "GET", "/v1/search", 200, query={"q": "10 23"})["is_complete"]


def _copied(made: Deployment) -> None:
    """Full snapshots, restores of them without their log, exports and imports; at once and as jobs."""
    table = boto3.resource("dynamodb", REGION).Table(made.table)
    path = "/v1/sessions/large/snapshots"
    made.call("snapshot", "POST", path, 201, body={"name": "whole", "kind": "full"})
    made.call("export", "POST", "/v1/sessions/large/export", 200, body={})
    made.call("sessions", "POST", "/v1/sessions", 201, body={"session_id": "long"})
    messages = [{"role": "user", "content": _noise(size)} for size in (3_000, 60_000, 6_000)]
    made.call("append", "POST", "/v1/sessions/long/messages", 201, body={"messages": messages})
    for limit in ("snapshots.MAX_UNSEALED", "export.MAX_POSITIONS", "restore.MAX_POSITIONS"):
        made.patch.setattr(f"turnlog.services.{limit}", -1)
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
        patch.setattr("turnlog.services.restore.MAX_POSITIONS", 1_000)
        made.call("snapshot", "POST", f"{path}/whole/restore", 201, body={"as": "rewind"})
    job = made.call("snapshot", "POST", "/v1/sessions/long/snapshots/whole/restore", 202, body={"as": "rewind"})
    assert made.run("workers.snapshot.handler", _message("restore", job["job_id"], "long")) == _DONE
    made.call("snapshot", "DELETE", "/v1/sessions/long/snapshots/whole", 200)
    (job,) = made.call("jobs", "GET", "/v1/jobs", 200, query={"limit": "1"})["jobs"]
    assert job["kind"] == "sweep"
    assert made.run("workers.erase.handler", _message("sweep", job["job_id"], "long")) == _DONE


def _recall(made: Deployment, path: str, size: int) -> None:
    """A call and its result out of line, by ref; and the words of a message."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": _noise(size)}}
    small = {**call, "function": {"name": "f", "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": "c", "content": _noise(size)}
    for one in (call, small):
        messages = [{"role": "assistant", "content": None, "tool_calls": [one]}, result]
        refs = made.call("append", "POST", f"{path}/messages", 201, body={"messages": messages})["refs"]
        query = {"ref": refs[0]["ref"], "max_tokens": "100"}
        assert made.call("recall", "GET", f"{path}/recall", 200, query=query)["found"]
    made.call("search", "GET", f"{path}/search", 200, query={"q": "and now"})


def _read(made: Deployment, path: str) -> None:
    made.call("sessions", "GET", path, 200)
    made.call("messages", "GET", f"{path}/messages", 200)
    made.call("messages", "GET", f"{path}/loops", 200)
    made.call("build_context", "POST", f"{path}/context", 200, body={"budget": 2_000_000})


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
        said = [{"role": "user", "content": f"I live in {name}."}, {"role": "assistant", "content": _noise(size)}]
        made.call("sessions", "POST", "/v1/sessions", 201, body={"session_id": name})
        made.call("append", "POST", f"/v1/sessions/{name}/messages", 201, body={"messages": said})
        made.call("sessions", "POST", f"/v1/sessions/{name}/end", 200)
        jobs = made.call("jobs", "GET", "/v1/jobs", 200)["jobs"]
        (job,) = [one for one in jobs if one["session_id"] == name]
        assert job["kind"] == "offload"
        for is_down in (True, False):
            with made.patch.context() as patch:
                if is_down:
                    patch.setattr(EmbeddedMemory, "remember", _down)
                assert made.run("workers.offload.handler", _message("offload", job["job_id"], name)) == _DONE
    known = made.call("memory", "GET", "/v1/users/me/memory", 200)["memories"]
    assert [one["text"] for one in known if one["replaced_by"] is None] == ["I live in known-large"]
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
    made.call("sessions", "POST", "/v1/sessions", 201, body={"session_id": "left"})
    made.call("sessions", "POST", "/v1/sessions/left/end", 200)
    body = {"session_id": "expired", "ttl_days": 1}
    made.call("sessions", "POST", "/v1/sessions", 201, body=body)
    table = boto3.resource("dynamodb", REGION).Table(made.table)
    pk = "T#111122223333#U#agent-backend"
    for key, change in (
        ({"pk": f"{pk}#S#expired", "sk": "C#000000000001"}, {"t": 1}),
        ({"pk": pk, "sk": "S#expired"}, {"g2pk": f"X#{int(time.time()) // 86_400}", "g2sk": f"{1:013d}#"}),
        ({"pk": f"{pk}#S#left", "sk": "O#DUE"}, {"g2pk": f"X#{int(time.time()) // 86_400}", "g2sk": f"{1:013d}#"}),
    ):
        table.put_item(Item={**table.get_item(Key=key)["Item"], **change})
    done = made.run("workers.retention.handler", {})
    assert (done["expired"], done["offloaded"]) == (1, 1)
    made.call("sessions", "GET", "/v1/sessions/expired", 404)


_SHORT = {"messages": [{"role": "user", "content": "hi"}]}
_DONE: dict[str, Any] = {"batchItemFailures": []}


def _noise(size: int) -> str:
    """Text that no compression makes small."""
    return "".join(random.Random(size).choices(string.ascii_letters + string.digits, k=size))


def _message(kind: str, job_id: str, session_id: str) -> dict[str, Any]:
    ids = {"tenant": "111122223333", "user": "agent-backend", "session_id": session_id}
    body = json.dumps({"v": 1, "job_id": job_id, "kind": kind, **ids})
    return {"Records": [{"messageId": "m", "receiptHandle": "r", "body": body, "eventSource": "aws:sqs"}]}


def _granted(template: Template, function: str) -> list[tuple[str, str, list[str] | None]]:
    """Action, resource, and the partition keys that it is limited to."""
    role = template.resources[template.resources[function]["Properties"]["Role"]["Fn::GetAtt"][0]]["Properties"]
    found: list[tuple[str, str, list[str] | None]] = []
    for policy in role["Policies"]:
        for entry in policy["PolicyDocument"]["Statement"]:
            one = entry["Fn::If"][1] if "Fn::If" in entry else entry
            keys = one.get("Condition", {}).get("ForAllValues:StringEquals", {}).get("dynamodb:LeadingKeys")
            actions = one["Action"] if isinstance(one["Action"], list) else [one["Action"]]
            resources = one["Resource"] if isinstance(one["Resource"], list) else [one["Resource"]]
            found += [(action, _logical(resource), keys) for action in actions for resource in resources]
    return found


def _logical(resource: dict[str, Any] | str) -> str:
    if isinstance(resource, str):
        return resource
    if "Fn::If" in resource:
        return _logical(resource["Fn::If"][1])
    if "Fn::Sub" in resource:
        return str(resource["Fn::Sub"]).replace("${", "").replace(".Arn}", "")
    return str(resource["Fn::GetAtt"][0] if "Fn::GetAtt" in resource else resource["Ref"])


def _whole(resource: str) -> str:
    """All objects of a bucket, where a resource is some of them."""
    return resource.replace("/~exports/*", "/*")


def _allows(granted: list[tuple[str, str, list[str] | None]], call: Call) -> bool:
    _, action, resource, put = call
    return any(
        action == one and on in (resource, _whole(resource)) and (keys is None or put in keys)
        for one, on, keys in granted
    ) and (action != "s3:GetObject" or any(one == "s3:ListBucket" for one, _, _ in granted))


def test_every_call_is_allowed(deployment: Deployment) -> None:
    assert len(deployment.calls) > 30
    refused = [call for call in sorted(deployment.calls) if not _allows(_granted(deployment.template, call[0]), call)]
    assert not refused, "\n".join(map(str, refused))


def test_nothing_is_allowed_that_is_not_used(deployment: Deployment) -> None:
    used = {(function, action, resource) for function, action, resource, _ in deployment.calls}
    used |= {(function, action, _whole(resource)) for function, action, resource in used}
    idle = sorted(
        (function, action, resource)
        for function, _ in deployment.template.of_type("AWS::Lambda::Function")
        for action, resource, _ in _granted(deployment.template, function)
        if action not in IMPLICIT and (function, action, resource) not in used
    )
    idle = [one for one in idle if one not in NOT_RUN_HERE]
    assert not idle, "\n".join(map(str, idle))
