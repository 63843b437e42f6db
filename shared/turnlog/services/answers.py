"""Answers that several use cases give."""

from __future__ import annotations

from turnlog.contracts.sessions import Bootstrapped, Session
from turnlog.domain.session import SCHEMA_VERSION, Settings
from turnlog.domain.times import rfc3339
from turnlog.log.headers import Header
from turnlog.log.keys import SessionKeys


def session_answer(keys: SessionKeys, settings: Settings, header: Header, *, created_ms: int) -> Session:
    flow = header.flow
    return Session(
        session_id=keys.session_id,
        user=keys.owner.user,
        title=settings.title,
        status=header.status,
        created_at=rfc3339(created_ms),
        updated_at=rfc3339(header.active_ms),
        head=header.last,
        messages=flow.messages,
        loops=flow.loop.number,
        tokens=flow.tokens,
        summary_to=header.summary.last if header.summary is not None else None,
        last_sent_at=rfc3339(header.sent.time_ms) if header.sent is not None else None,
        last_sent_position=header.sent.position if header.sent is not None else None,
        policy=settings.policy,
        model=settings.model,
        recall=settings.recall,
        metadata=settings.metadata,
        reset_of=settings.reset_of,
        ttl_days=settings.ttl_days,
        expires_at=rfc3339(header.expires_ms) if header.expires_ms is not None else None,
        inactive_after_days=settings.inactive_after_days,
        forked_from=settings.forked_from,
        forked_at=settings.forked_at,
        bootstrap=_bootstrapped(settings),
        schema_version=SCHEMA_VERSION,
    )


def _bootstrapped(settings: Settings) -> Bootstrapped | None:
    found = settings.bootstrap
    return Bootstrapped.model_validate(found["found"]) if found is not None else None
