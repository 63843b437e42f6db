"""The events of `events/`, in an order in which each finds what it needs, through the entry points that they are for."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from tests.conftest import ROOT
from turnlog.routing import BY_NAME, function_of

FOLDER = ROOT / "events"
RUNS: Mapping[str, int] = {
    "health": 200,
    "openapi": 200,
    "create_session": 201,
    "append_messages": 201,
    "get_session": 200,
    "list_sessions": 200,
    "read_messages": 200,
    "read_loops": 200,
    "recall": 200,
    "search_session": 200,
    "search_sessions": 200,
    "build_context": 200,
    "build_window": 200,
    "lint_messages": 200,
    "patch_agent": 200,
    "get_agent": 200,
    "decide_pending": 200,
    "lease_session": 200,
    "send_to_run": 201,
    "put_state": 200,
    "patch_state": 200,
    "get_state": 200,
    "put_documents": 200,
    "get_documents": 200,
    "record_history": 201,
    "read_history": 200,
    "diff_session": 200,
    "compress_session": 202,
    "get_job": 200,
    "sqs_compress": 0,
    "get_summary": 200,
    "create_snapshot": 201,
    "list_snapshots": 200,
    "get_snapshot": 200,
    "sqs_snapshot": 0,
    "restore_snapshot": 201,
    "delete_snapshot": 200,
    "download": 404,  # the bucket gives addresses of its own
    "export_session": 200,
    "export_everything": 202,
    "import_session": 200,
    "list_jobs": 200,
    "update_session": 200,
    "discard_summary": 202,
    "rewind_session": 200,
    "end_session": 200,
    "sqs_offload": 0,
    "list_memories": 200,
    "forget_memory": 200,
    "reset_session": 201,
    "redact_message": 202,
    "erase_session": 202,
    "sqs_erase": 0,
    "schedule_retention": 0,
    "erase_user": 202,
}
"""What each event is answered with; 0: a queue's or a schedule's event, whose answer has no status."""
EXAMPLE_JOB = "1763720100000-example"

Handler = Callable[[dict[str, Any], Any], dict[str, Any]]


def read_event(name: str) -> dict[str, Any]:
    event: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return event


def handler_of(name: str) -> str:
    """The handler string of the function that an event is for."""
    kind = name.removeprefix("sqs_").removeprefix("schedule_")
    return f"workers.{kind}.handler" if kind != name else f"api.{function_of(BY_NAME[name].resource)}.handler"


def load(handler: str) -> Handler:
    """A handler as a cold start finds it: nothing is left of an earlier environment."""
    module, _, attribute = handler.rpartition(".")
    sys.modules.pop(module, None)
    result: Handler = getattr(importlib.import_module(module), attribute)
    sys.modules.pop(module, None)
    return result


class Context:
    """What our handlers ask of a Lambda context."""

    function_name = "turnlog"
    aws_request_id = "invocation-1"

    def get_remaining_time_in_millis(self) -> int:
        return 29_000


def run_events(invoke: Callable[[str, dict[str, Any]], dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The answer to each event, in order. ``invoke`` takes an event's name and the event.

    A job's id is made by the service: the events that name one get the id of a job that an earlier event began.
    """
    answers: dict[str, dict[str, Any]] = {}
    job = EXAMPLE_JOB
    for name in RUNS:
        if name == "sqs_snapshot":
            job = _job_of(invoke("create_snapshot", as_job(read_event("create_snapshot"))))
        if name == "sqs_offload":
            jobs = json.loads(invoke("list_jobs", read_event("list_jobs"))["body"])["jobs"]
            job = next(job["job_id"] for job in jobs if job["kind"] == "offload")
        event = json.loads(json.dumps(read_event(name)).replace(EXAMPLE_JOB, job))
        answers[name] = invoke(name, event)
        if name in ("compress_session", "erase_session"):
            job = _job_of(answers[name])
    return answers


def as_job(event: dict[str, Any]) -> dict[str, Any]:
    """The same request for a job."""
    headers = {**event["headers"], "idempotency-key": "as-a-job"}
    return {**event, "headers": headers, "body": json.dumps({**json.loads(event["body"]), "mode": "async"})}


def _job_of(answer: dict[str, Any]) -> str:
    assert answer["statusCode"] == 202, answer
    return str(json.loads(answer["body"])["job_id"])
