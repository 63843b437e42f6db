"""Operations that meet one another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turnlog.client.model import Session, Turnlog

Does = Callable[[Session], Any]


SAID = {"role": "user", "content": "said at the same time"}


OPERATIONS: dict[str, Does] = {
    "append": lambda session: session.append(SAID, {"role": "assistant", "content": "yes"}, idempotency_key="append"),
    "state": lambda session: session.put_state({"put": 1}, idempotency_key="state"),
    "compress": lambda session: session.compress(keep_loops=1, idempotency_key="compress"),
    "snapshot": lambda session: session.create_snapshot("made", idempotency_key="snapshot"),
    "full snapshot": lambda session: session.create_snapshot("made", kind="full", idempotency_key="full"),
    "restore": lambda session: session.restore_snapshot("before", as_="rewind", idempotency_key="restore"),
    "rewind": lambda session: session.rewind(3, idempotency_key="rewind"),
    "fork": lambda session: session.fork("fork", at=3, idempotency_key="fork").info(),
    "update": lambda session: session.update(title="new", idempotency_key="update"),
    "end": lambda session: session.end(idempotency_key="end"),
    "redact": lambda session: session.redact(2, idempotency_key="redact"),
    "list": lambda session: [item.session_id for item in Turnlog(session.backend).sessions.list()],
}
