"""Long-term memory, by what the settings say. Its libraries are imported by the function that needs them."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from turnlog.ports import Clock, IdSource, MemoryEngine
from turnlog.settings import Settings


def make_memory(settings: Settings, clock: Clock, ids: IdSource) -> MemoryEngine | None:
    """The engine apart from ours that ``settings.memory`` names, or None. `InvalidInputError` when its own settings are no good."""
    seconds = settings.memory_timeout_seconds
    if settings.memory == "webhook":
        from turnlog.adapters.memories.webhook import WebhookMemoryEngine

        secret = settings.memory_webhook_secret.get_secret_value()
        return WebhookMemoryEngine(settings.memory_webhook_url, secret, timeout_seconds=seconds, clock=clock, ids=ids)
    if settings.memory == "agentcore":
        from turnlog.adapters.aws.agentcore import AgentCoreMemoryEngine
        from turnlog.adapters.aws.clients import make_clients

        of_engine = parse_qs(urlsplit(settings.engine).query).get("region", [None])[0]
        region = settings.memory_region or _region_in(settings.memory_id) or of_engine
        # Who asks may wait a short time only, and a job comes again by itself.
        clients = make_clients(region, settings.endpoint_url, max_attempts=2)
        return AgentCoreMemoryEngine(
            clients, settings.memory_id, namespace=settings.memory_namespace, timeout_seconds=seconds
        )
    return None


def _region_in(memory_id: str) -> str | None:
    """The region that an ARN names."""
    parts = memory_id.split(":")
    return parts[3] if parts[0] == "arn" and len(parts) > 3 else None
