"""Applications of an environment."""

from __future__ import annotations

from turnlog.app import Application, make_application
from turnlog.settings import Settings
from turnlog.testing.fixed import FixedClock, SequentialIds


def application(**environment: object) -> Application:
    named = {f"TURNLOG_{name.upper()}": str(value) for name, value in environment.items()}
    return make_application(Settings.from_environment(named), clock=FixedClock(), ids=SequentialIds())
