"""The newest commits, page by page, newest page first: for readers that look back and know when to stop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from turnlog.domain.errors import NotFoundError
from turnlog.log.commits import Commit, CommitLog, checked_chain
from turnlog.log.keys import COMMITS_FROM, COMMITS_TO, SessionKeys
from turnlog.ports import ItemTable, Query


def newest_pages(
    items: ItemTable, log: CommitLog, keys: SessionKeys, *, pages: int, first_limit: int | None = None
) -> Iterator[list[Commit]]:
    """At most so many pages, each oldest commit first and checked as a chain; each is one request of at most 1 MB.

    ``first_limit`` counts the commits of the first page. `NotFoundError` when there is no session.
    """
    after: Mapping[str, str] | None = None
    for at in range(pages):
        limit = first_limit if at == 0 else None
        query = Query(keys.partition, COMMITS_FROM, COMMITS_TO, descending=True, limit=limit, after=after)
        page = items.query(query)
        if not at and not page.items:
            raise NotFoundError(f"no session {keys.session_id!r}")
        if page.items:
            commits = checked_chain(page.items[::-1])
            if not at:
                log.check_alive(keys, commits[-1].header)
            yield commits
        after = page.next
        if after is None:
            return
