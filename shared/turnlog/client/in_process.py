"""Calls of the route table in this process, with the same checks as over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from turnlog.app import Application, make_application
from turnlog.core.errors import NotFoundError, TurnlogError, UnavailableError
from turnlog.core.identity import Owner, correlated, correlation_of, serving
from turnlog.core.json_values import check_json
from turnlog.jobs.models import Redriven
from turnlog.log.keys import SessionKeys
from turnlog.log.links import DOWNLOADS
from turnlog.ports import JOB_KINDS
from turnlog.routing import BY_NAME, JSON, HttpRequest, call
from turnlog.settings import Settings

if TYPE_CHECKING:
    from turnlog.upkeep.backup import Backup
    from turnlog.upkeep.verify import Verification


class InProcessBackend:
    """`Backend` over an application in this process."""

    def __init__(self, app: Application, owner: Owner) -> None:
        self._app = app
        self._owner = owner
        self._closed = False

    def call(
        self,
        operation: str,
        *,
        path: Mapping[str, str] | None = None,
        query: Mapping[str, str | int | None] | None = None,
        body: Mapping[str, Any] | Sequence[Any] | None = None,
        idempotency_key: str | None = None,
        media_type: str | None = None,
    ) -> Any:
        self._check_open()
        if body is not None:
            check_json(body)
        request = HttpRequest(
            owner=self._owner,
            path=path or {},
            query={name: str(value) for name, value in (query or {}).items() if value is not None},
            body=dict(body) if isinstance(body, Mapping) else list(body) if body is not None else None,
            idempotency_key=idempotency_key,
            media_type=media_type or JSON,
        )
        return call(self._app, BY_NAME[operation], request).answer

    def run_jobs(self) -> int:
        self._check_open()
        queue, done = self._app.engine.queue, 0
        while queue is not None and (deliveries := queue.receive(limit=1)):
            for delivery in deliveries:
                # The queue delivers a failed job again, and moves it to the dead letters after several tries.
                with suppress(TurnlogError), correlated(correlation_of(delivery.body)):
                    self._app.run_job(delivery.body, kinds=JOB_KINDS)
                    queue.acknowledge(delivery.receipt)
                    done += 1
        return done

    def download(self, url: str, into: BinaryIO) -> None:
        self._check_open()
        if url.startswith(DOWNLOADS):
            with serving(self._owner.tenant_id):
                into.write(self._app.links.open(self._owner, url[len(DOWNLOADS) :]).data)
            return
        from turnlog.client.over_http import fetch

        fetch(url, into)

    def redrive(self, job_id: str | None, *, failed: bool) -> Redriven:
        self._check_open()
        with serving(self._owner.tenant_id):
            return self._app.redrive_jobs(self._owner, job_id, failed=failed)

    def verify(self, session_id: str | None, progress: Callable[[Verification], None]) -> Verification:
        self._check_open()
        keys = SessionKeys(self._owner, session_id) if session_id is not None else None
        with serving(self._owner.tenant_id):
            done = self._app.upkeep.verify(keys, progress)
        if keys is not None and not (done.sessions or done.snapshots or done.damages):
            raise NotFoundError(f"no session {session_id!r}")
        return done

    def back_up(self, path: Path, progress: Callable[[Verification], None]) -> Backup:
        self._check_open()
        return self._app.upkeep.back_up(path, progress)

    def close(self) -> None:
        self._closed = True
        self._app.close()

    def _check_open(self) -> None:
        # Checked here too: a call that needs no engine must also fail after close, as it does over HTTP.
        if self._closed:
            raise UnavailableError("the client is closed", code="closed")


def open_backend(url: str, *, tenant: str, user: str) -> InProcessBackend:
    """Open a backend over the engine that the URL names. Its other settings come from the environment."""
    app = make_application(Settings.from_environment().model_copy(update={"engine": url}))
    return InProcessBackend(app, Owner.of(tenant, user))
