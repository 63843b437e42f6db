"""The newest commits in view, page by page, newest page first: for readers that look back and know when to stop."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from turnlog.domain.errors import NotFoundError
from turnlog.log.commit_items import is_tombstone
from turnlog.log.commits import Commit, CommitLog, header_in
from turnlog.log.keys import SessionKeys


def newest_pages(
    log: CommitLog, keys: SessionKeys, *, pages: int | None, first_limit: int | None = None, first: int = 1
) -> Iterator[list[Commit]]:
    """At most so many pages, each oldest commit first and checked as a chain; each is one request of at most 1 MB.

    ``first`` is the oldest position that is wanted; the newest commit is there in any case. ``first_limit`` counts the commits of
    the first page. `NotFoundError` when there is no session.
    """
    newest = next(log.stored.back(keys, first=first, first_limit=first_limit), ())
    if not newest or is_tombstone(newest[:1]):
        raise NotFoundError(f"no session {keys.session_id!r}")
    header = header_in(newest[0])
    log.check_alive(keys, header)
    yield from islice(log.in_view(keys, header, first=first, read=newest), pages)
