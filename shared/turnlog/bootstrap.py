"""The composition root: with `turnlog.composition` the only place that knows services and adapters.

Use cases, engines, counters and their libraries are imported by the function that needs them: a Lambda loads what its
resource takes, and one that counts no tokens never loads the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING

from turnlog.adapters.system import RandomIds, SystemClock
from turnlog.composition.copies import Copies
from turnlog.composition.lifetime import Lifetime
from turnlog.composition.windows import Windows
from turnlog.domain.errors import InvalidInputError
from turnlog.engines import make_engine
from turnlog.ports import Clock, IdSource, Signals
from turnlog.settings import Settings

if TYPE_CHECKING:
    from turnlog.composition.upkeep import Upkeep
    from turnlog.domain.identity import Owner
    from turnlog.services.jobs import GetJob, ListJobs, RunJob, Work
    from turnlog.services.links import Link
    from turnlog.services.redrive import RedriveJobs


class Application(Copies, Windows, Lifetime):
    """The use cases over one engine, and the jobs that do the longer ones."""

    @cached_property
    def get_job(self) -> GetJob:
        from turnlog.services.jobs import GetJob

        return GetJob(self._log, self._link_of)

    def _link_of(self, owner: Owner, session_id: str) -> Link:
        return self.export_sessions.link(owner, session_id)

    @cached_property
    def list_jobs(self) -> ListJobs:
        from turnlog.services.jobs import ListJobs

        return ListJobs(self._log)

    @cached_property
    def redrive_jobs(self) -> RedriveJobs:
        from turnlog.services.redrive import RedriveJobs

        return RedriveJobs(self._log, self.engine.queue_of)

    @cached_property
    def run_job(self) -> RunJob:
        """What the workers call with a message of their queue."""
        from turnlog.services.jobs import RunJob

        work: dict[str, Callable[[], Work]] = {
            "compress": lambda: self.compress_session.run,
            "snapshot": lambda: self.create_snapshot.run,
            "seal": lambda: self.seal_session.run,
            "index": lambda: self.index_sessions.run,
            "sweep": lambda: self.sweep_snapshots.run,
            "restore": lambda: self.restore_snapshot.run,
            "export": lambda: self.export_sessions.run,
            "erase": lambda: self.erase_session.run,
            "erase_user": lambda: self.erase_user.run,
            "redact": lambda: self.redact_message.run,
            "offload": lambda: self.offload_session.run,
        }
        return RunJob(self._log, work, self.engine.queue_of)

    @cached_property
    def upkeep(self) -> Upkeep:
        """Checks and backups of the engine's files."""
        from turnlog.composition.upkeep import Upkeep

        return Upkeep(self.engine, self._clock, self._ids)

    def close(self) -> None:
        self.engine.close()


def make_application(
    settings: Settings | None = None,
    *,
    clock: Clock | None = None,
    ids: IdSource | None = None,
    signals: Signals | None = None,
) -> Application:
    """The application for settings (by default the environment's). Without ``signals``, what they would count is logged only."""
    settings = settings if settings is not None else Settings.from_environment()
    load_steps(settings)
    clock, ids = clock or SystemClock(), ids or RandomIds()
    return Application(make_engine(settings, clock=clock, ids=ids), settings, clock=clock, ids=ids, signals=signals)


def load_steps(settings: Settings) -> None:
    """Imports the modules that register steps of policies, or `InvalidInputError` naming the one that can't be imported."""
    for module in settings.steps:
        try:
            import_module(module)
        except Exception as error:
            raise InvalidInputError(
                f"TURNLOG_STEPS: {module!r} can't be imported: {type(error).__name__}: {error}", code="invalid_settings"
            ) from error
