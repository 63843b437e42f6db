"""Names in AgentCore Memory: of owners, of sessions, and of the namespaces where records stand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from turnlog.adapters.aws.agentcore_calls import readable
from turnlog.domain.errors import InvalidInputError
from turnlog.domain.identity import Owner

_PLACEHOLDER = re.compile(r"\{([^}]*)\}")
_NAMESPACE = re.compile(r"/[a-zA-Z0-9-_/{}]*")
_SESSION = "s-"


class Namespaces:
    """Where the records of people and sessions stand."""

    def __init__(self, template: str) -> None:
        names = _PLACEHOLDER.findall(template)
        is_whole = names == ["actorId", "sessionId"] and template.endswith("/")
        if (
            not is_whole
            or not _NAMESPACE.fullmatch(template)
            or "}" in template.replace("{actorId}/", "").replace("{sessionId}/", "")
        ):
            message = "TURNLOG_MEMORY_NAMESPACE is no template such as /turnlog/{actorId}/{sessionId}/"
            raise InvalidInputError(message, code="invalid_settings")
        self._actor_path, rest = template.split("{actorId}/")
        self._between = rest.split("{sessionId}/")[0]

    def of_person(self, owner: Owner) -> str:
        return f"{self._actor_path}{actor_id(owner)}/"

    def of_session(self, owner: Owner, session_id: str) -> str:
        return f"{self.of_person(owner)}{self._between}{session_name(session_id)}/"

    def session_in(self, namespaces: Sequence[str]) -> str | None:
        """The session whose records stand in a namespace."""
        for namespace in namespaces:
            _, _, below = namespace.removeprefix(self._actor_path).partition("/")
            session = below.removeprefix(self._between).split("/")[0]
            if below.startswith(self._between) and session.startswith(_SESSION):
                return session.removeprefix(_SESSION)
        return None


def actor_id(owner: Owner) -> str:
    """Tenant and user, neither of which has a colon in its id: no two owners share one."""
    return f"t-{owner.tenant_id}:u-{owner.user_id}"


def session_name(session_id: str) -> str:
    """AgentCore's ids begin with a letter or a digit; ours need not."""
    return _SESSION + session_id


def below(path: str, records: Iterable[Any]) -> list[Any]:
    """Those that stand below a path, whatever else was answered: nobody is told of another."""
    with readable():
        return [record for record in records if any(name.startswith(path) for name in namespaces_of(record))]


def namespaces_of(record: Any) -> list[str]:
    return [str(name) if str(name).endswith("/") else f"{name}/" for name in record.get("namespaces", ())]
