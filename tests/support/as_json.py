"""Windows as text."""

from __future__ import annotations

import json

from turnlog.sessions.context_models import WindowAnswer


def as_json(window: WindowAnswer) -> str:
    return json.dumps(window.model_dump(mode="json"))
