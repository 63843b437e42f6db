"""Bodies and queries of each route of a session."""

from __future__ import annotations

from typing import Any

from turnlog.routing import ROUTES

CANARY = "canary-7f3a9c"


BODIES: dict[str, Any] = {
    "append_messages": {"messages": [{"role": "user", "content": "x"}]},
    "build_context": {},
    "patch_agent": {"iteration": 1},
    "compress_session": {"mode": "sync"},
    "create_snapshot": {"name": "theirs"},
    "put_state": {"state": {"x": 1}},
    "put_documents": {"put": [{"key": "theirs", "data": ""}]},
    "get_documents": {"prefix": ""},
    "patch_state": {"x": 1},
    "decide_pending": {"decision": "reject"},
    "lease_session": {"holder": "theirs"},
    "send_to_run": {"messages": [{"role": "user", "content": "x"}]},
    "record_history": {"action": "theirs"},
    "update_session": {"title": "theirs"},
    "rewind_session": {"to": 1},
    "restore_snapshot": {"as": "rewind"},
    "export_session": {},
    "import_session": {"head": 1, "hash": "0" * 32, "commits": ["{}"]},
}


QUERIES: dict[str, Any] = {"recall": {"ref": "2.0"}, "search_session": {"q": CANARY}, "diff_session": {"from": "1"}}


SESSION_ROUTES = [route for route in ROUTES if "{session_id}" in route.path]
