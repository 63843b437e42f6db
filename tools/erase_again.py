"""Ask again for erasures and redactions that a restored table does not know: docs/how-to/deploy.md#restore.

    ENGINE="dynamodb://TABLE?bucket=BUCKET&erase_queue=URL&region=REGION" python tools/erase_again.py jobs.json

``jobs.json`` is what `aws dynamodb scan` has printed of the jobs of the old table. Erasures of expired sessions are left out: the
schedule finds these in the restored table. Running it again asks for nothing twice.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from pathlib import Path
from typing import Any

from turnlog import Turnlog
from turnlog.app import Application, make_application
from turnlog.client.in_process import InProcessBackend
from turnlog.core.errors import InvalidInputError, NotFoundError
from turnlog.core.identity import Owner, owner_of_ids
from turnlog.log.packing import json_in
from turnlog.settings import Settings

KINDS = ("erase", "erase_user", "redact")
BY_SCHEDULE = {"expired", "release"}
"""Options of jobs that retention starts."""


def main(path: str) -> None:
    """Ask again for each job of a scan, and print what became of it."""
    app = make_application(Settings(engine=os.environ["ENGINE"]))
    for item in json.loads(Path(path).read_text(encoding="utf-8"))["Items"]:
        _, tenant, _, user = item["pk"]["S"].split("#")
        job_id = item["sk"]["S"].removeprefix("J#")
        job = json_in({"sk": job_id, "b": base64.b64decode(item["b"]["B"])})
        if job["kind"] in KINDS and not BY_SCHEDULE & set(job["options"]):
            print(tenant, user, job["kind"], job["session"], ask_again(app, owner_of_ids(tenant, user), job_id, job))
    app.close()


def ask_again(app: Application, owner: Owner, job_id: str, job: dict[str, Any]) -> str:
    """Queue a job again that the restored table has, else ask for it anew. Return what was done."""
    try:
        app.redrive_jobs(owner, job_id)
    except InvalidInputError:
        return "is done in this table"
    except NotFoundError:
        log = Turnlog(InProcessBackend(app, owner))
        try:
            if job["kind"] == "erase_user":
                return f"asked again: {log.erase_me(idempotency_key=job_id).job_id}"
            session = log.sessions.of(job["session"])
            if job["kind"] == "erase":
                return f"asked again: {session.erase(idempotency_key=job_id).job_id}"
            return f"asked again: {session.redact(job['options']['position'], idempotency_key=job_id).job_id}"
        except NotFoundError as error:
            return f"is not in this table: {error}"
    return "queued again"


if __name__ == "__main__":
    main(sys.argv[1])
