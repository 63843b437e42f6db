"""The composition root: the only module that knows services and adapters.

Use cases, engines, counters and their libraries are imported by the function that needs them: a Lambda loads what its
resource takes, and one that counts no tokens never loads the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from turnlog.adapters.system import RandomIds, SystemClock
from turnlog.domain.errors import InvalidInputError
from turnlog.engines import Engine, make_engine
from turnlog.ports import Clock, IdSource, Signals, Summariser, TokenCounter
from turnlog.settings import Settings

if TYPE_CHECKING:
    from turnlog.adapters.summarisers.model import ChatModel
    from turnlog.domain.identity import Owner
    from turnlog.domain.jsonvalue import JsonObject
    from turnlog.domain.session import Settings as SessionSettings
    from turnlog.log.erasure import Erasure
    from turnlog.log.full_snapshots import FullSnapshots
    from turnlog.log.headers import Header
    from turnlog.log.keys import SessionKeys
    from turnlog.log.materialise import Materialiser
    from turnlog.log.payloads import Payloads
    from turnlog.log.reading import Located
    from turnlog.log.search_index import SearchIndexes
    from turnlog.log.segments import Segment, Segments
    from turnlog.log.sessions import SessionLog
    from turnlog.services.agents import GetAgent, PatchAgent
    from turnlog.services.append_messages import AppendMessages
    from turnlog.services.automatic_snapshots import AutomaticSnapshots
    from turnlog.services.build_context import BuildContexts, BuildWindows
    from turnlog.services.compress import CompressSessions
    from turnlog.services.create_session import CreateSessions
    from turnlog.services.decisions import DecidePendingActions
    from turnlog.services.delete_snapshots import DeleteSnapshots, SnapshotCleaner, SweepSnapshots
    from turnlog.services.diff import CompareMoments
    from turnlog.services.end_session import EndSessions, ResetSessions
    from turnlog.services.erase import EraseSessions
    from turnlog.services.erase_user import EraseUsers
    from turnlog.services.export import ExportSessions
    from turnlog.services.history import ReadHistory, RecordEntries
    from turnlog.services.import_sessions import ImportSessions
    from turnlog.services.jobs import GetJob, Later, ListJobs, RunJob, StartJobs, Work
    from turnlog.services.links import Link, Links
    from turnlog.services.lint import LintHistories
    from turnlog.services.read_messages import ReadLoops, ReadMessages
    from turnlog.services.read_session import GetSession, ListSessions
    from turnlog.services.read_snapshots import GetSnapshot, SnapshotLogs
    from turnlog.services.recall import RecallCalls
    from turnlog.services.redact import RedactMessages
    from turnlog.services.redrive import RedriveJobs
    from turnlog.services.restore import RestoreSnapshots
    from turnlog.services.retention import RetainSessions
    from turnlog.services.rewind import RewindSessions
    from turnlog.services.seal import SealSessions
    from turnlog.services.search import SearchSession
    from turnlog.services.snapshots import CreateSnapshots, ListSnapshots
    from turnlog.services.states import GetState, PatchState, PutState
    from turnlog.services.summaries import DiscardSummary, GetSummary
    from turnlog.services.update_session import UpdateSessions


class Application:
    """The use cases over one engine."""

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        *,
        clock: Clock,
        ids: IdSource,
        counter: TokenCounter | None = None,
        signals: Signals | None = None,
    ) -> None:
        self.engine = engine
        self.settings = settings
        self._counter = counter
        self._clock = clock
        self._ids = ids
        self._signals = signals

    @cached_property
    def _payloads(self) -> Payloads:
        from turnlog.log.payloads import Payloads

        return Payloads(self.engine.items, self.engine.blobs)

    @cached_property
    def _log(self) -> SessionLog:
        from turnlog.log.sessions import SessionLog

        return SessionLog(self.engine.items, self._payloads, self._clock, self._ids)

    @cached_property
    def segments(self) -> Segments:
        from turnlog.log.segments import Segments

        def index(keys: SessionKeys, segment: Segment, messages: Iterable[tuple[Located, int]]) -> None:
            self._search_indexes.store(keys, segment, messages)

        return Segments(self.engine.items, self.engine.blobs, self._payloads, self._log.commits, index)

    @cached_property
    def _search_indexes(self) -> SearchIndexes:
        from turnlog.adapters.search.fts5 import Fts5SearchEngine
        from turnlog.log.search_index import SearchIndexes

        return SearchIndexes(self.engine.blobs, Fts5SearchEngine())

    @cached_property
    def counter(self) -> TokenCounter:
        return self._counter if self._counter is not None else make_counter(self.settings.token_counter)

    @cached_property
    def create_session(self) -> CreateSessions:
        from turnlog.services.create_session import CreateSessions

        return CreateSessions(self._log, _Lazily(lambda: self.counter))

    @cached_property
    def update_session(self) -> UpdateSessions:
        from turnlog.services.update_session import UpdateSessions

        return UpdateSessions(self._log, _Lazily(lambda: self.counter))

    @cached_property
    def end_session(self) -> EndSessions:
        from turnlog.services.end_session import EndSessions

        return EndSessions(self._log)

    @cached_property
    def reset_session(self) -> ResetSessions:
        from turnlog.services.end_session import ResetSessions

        return ResetSessions(self._log, self.end_session, self.create_session)

    @cached_property
    def get_session(self) -> GetSession:
        from turnlog.services.read_session import GetSession

        return GetSession(self._log)

    @cached_property
    def list_sessions(self) -> ListSessions:
        from turnlog.services.read_session import ListSessions

        return ListSessions(self._log)

    @cached_property
    def append_messages(self) -> AppendMessages:
        from turnlog.services.append_messages import AppendMessages
        from turnlog.services.asking import AskForSegments, AskForSummaries

        ask = AskForSummaries(self._log, self._start_job, self.settings.models)
        return AppendMessages(
            self._log,
            _Lazily(lambda: self.counter),
            ask,
            AskForSegments(self._start_job),
            self._make_snapshots,
        )

    def _make_snapshots(
        self, owner: Owner, session_id: str, header: Header, before: Header, settings: SessionSettings
    ) -> None:
        """Few sessions do: what it takes is loaded when one does."""
        self._automatic_snapshots(owner, session_id, header, before, settings)

    @cached_property
    def _automatic_snapshots(self) -> AutomaticSnapshots:
        from turnlog.services.automatic_snapshots import AutomaticSnapshots

        return AutomaticSnapshots(self._log, self._snapshot_cleaner)

    @cached_property
    def read_messages(self) -> ReadMessages:
        from turnlog.services.read_messages import ReadMessages

        return ReadMessages(self._log)

    @cached_property
    def read_loops(self) -> ReadLoops:
        from turnlog.services.read_messages import ReadLoops

        return ReadLoops(self._log)

    @cached_property
    def get_state(self) -> GetState:
        from turnlog.services.states import GetState

        return GetState(self._log)

    @cached_property
    def put_state(self) -> PutState:
        from turnlog.services.states import PutState

        return PutState(self._log)

    @cached_property
    def patch_state(self) -> PatchState:
        from turnlog.services.states import PatchState

        return PatchState(self._log)

    @cached_property
    def get_agent(self) -> GetAgent:
        from turnlog.services.agents import GetAgent

        return GetAgent(self._log)

    @cached_property
    def patch_agent(self) -> PatchAgent:
        from turnlog.services.agents import PatchAgent

        return PatchAgent(self._log)

    @cached_property
    def decide_pending(self) -> DecidePendingActions:
        from turnlog.services.decisions import DecidePendingActions

        return DecidePendingActions(self._log, _Lazily(lambda: self.counter))

    @cached_property
    def read_history(self) -> ReadHistory:
        from turnlog.services.history import ReadHistory

        return ReadHistory(self._log)

    @cached_property
    def record_history(self) -> RecordEntries:
        from turnlog.services.history import RecordEntries

        return RecordEntries(self._log)

    @cached_property
    def rewind_session(self) -> RewindSessions:
        from turnlog.services.rewind import RewindSessions

        return RewindSessions(self._log)

    @cached_property
    def compare_moments(self) -> CompareMoments:
        from turnlog.services.diff import CompareMoments

        return CompareMoments(self._log, self.read_messages)

    @cached_property
    def build_context(self) -> BuildContexts:
        from turnlog.services.build_context import BuildContexts

        return BuildContexts(self._log, self.settings.models)

    @cached_property
    def build_window(self) -> BuildWindows:
        from turnlog.services.build_context import BuildWindows

        return BuildWindows(_Lazily(lambda: self.counter), self.settings.models)

    @cached_property
    def lint_messages(self) -> LintHistories:
        from turnlog.services.lint import LintHistories

        return LintHistories()

    @cached_property
    def recall(self) -> RecallCalls:
        from turnlog.services.recall import RecallCalls

        return RecallCalls(self._log)

    @cached_property
    def search_session(self) -> SearchSession:
        from turnlog.services.search import SearchSession

        return SearchSession(self._log, self.segments, self._search_indexes)

    @cached_property
    def compress_session(self) -> CompressSessions:
        from turnlog.adapters.summarisers.extractive import ExtractiveSummariser
        from turnlog.services.compress import CompressSessions

        counter = _Lazily(lambda: self.counter)
        outliner, longest_ms = ExtractiveSummariser(counter), self.longest_summary_ms
        return CompressSessions(
            self._log,
            counter,
            self.summariser,
            outliner,
            self._start_job,
            longest_summary_ms=longest_ms,
            models=self.settings.models,
            signals=self._signals,
        )

    @cached_property
    def summariser(self) -> Summariser:
        """Extractive; with a model in the settings that one, and extracts where it may not or does not do it."""
        from turnlog.adapters.summarisers.extractive import ExtractiveSummariser

        counter = _Lazily(lambda: self.counter)
        extractive = ExtractiveSummariser(counter)
        if not self.settings.summary_model:
            return extractive
        from turnlog.adapters.summarisers.model import ModelSummariser
        from turnlog.log.spending import Spending
        from turnlog.services.summarise import SummariseWithinBudget

        clock, ids = self._log.clock, self._log.ids
        chat = make_chat_model(self.settings, clock)
        model = ModelSummariser(chat, counter, clock, ids, timeout_seconds=self.settings.summary_timeout_seconds)
        spending = Spending(self.engine.items, clock, ids)
        limit = self.settings.summary_tokens_per_day
        return SummariseWithinBudget(model, extractive, spending, counter, tokens_per_day=limit)

    @property
    def longest_summary_ms(self) -> int:
        """What all tries of a model take together at most; 0 without a model."""
        return self.settings.summary_timeout_seconds * 1250 if self.settings.summary_model else 0

    @cached_property
    def get_summary(self) -> GetSummary:
        from turnlog.services.summaries import GetSummary

        return GetSummary(self._log)

    @cached_property
    def discard_summary(self) -> DiscardSummary:
        from turnlog.services.summaries import DiscardSummary

        return DiscardSummary(self._log, self._start_job)

    @cached_property
    def create_snapshot(self) -> CreateSnapshots:
        from turnlog.services.snapshots import CreateSnapshots

        return CreateSnapshots(self._log, self._full_snapshots, self._start_job, self._snapshot_cleaner)

    @cached_property
    def _full_snapshots(self) -> FullSnapshots:
        from turnlog.log.full_snapshots import FullSnapshots

        return FullSnapshots(self.engine.blobs, self.segments, self._log.records, self._clock)

    @cached_property
    def _snapshot_cleaner(self) -> SnapshotCleaner:
        from turnlog.services.delete_snapshots import SnapshotCleaner

        return SnapshotCleaner(self._log, self._start_job)

    @cached_property
    def _snapshot_logs(self) -> SnapshotLogs:
        from turnlog.services.read_snapshots import SnapshotLogs

        return SnapshotLogs(self._log, self.engine.blobs, self._full_snapshots)

    @cached_property
    def _materialiser(self) -> Materialiser:
        from turnlog.log.materialise import Materialiser

        return Materialiser(self._log, self.engine.blobs)

    @cached_property
    def restore_snapshot(self) -> RestoreSnapshots:
        from turnlog.services.restore import RestoreSnapshots

        return RestoreSnapshots(
            self._log,
            self._payloads,
            self._snapshot_logs,
            self._full_snapshots,
            self._materialiser,
            self.rewind_session,
            self.create_session,
            self.erase_session,
            self._start_job,
        )

    @cached_property
    def export_sessions(self) -> ExportSessions:
        from turnlog.services.export import ExportSessions

        return ExportSessions(self._log, self._payloads, self.engine.blobs, self.links, self._start_job)

    @cached_property
    def import_session(self) -> ImportSessions:
        from turnlog.services.import_sessions import ImportSessions

        return ImportSessions(self._log, self._materialiser)

    @cached_property
    def links(self) -> Links:
        from turnlog.services.links import Links

        return Links(self.engine.blobs, self._clock, self._log.cursor_secret)

    @cached_property
    def delete_snapshot(self) -> DeleteSnapshots:
        from turnlog.services.delete_snapshots import DeleteSnapshots

        return DeleteSnapshots(self._log, self._snapshot_cleaner)

    @cached_property
    def sweep_snapshots(self) -> SweepSnapshots:
        from turnlog.services.delete_snapshots import SweepSnapshots

        return SweepSnapshots(self._log, self.engine.blobs, self._full_snapshots)

    @cached_property
    def list_snapshots(self) -> ListSnapshots:
        from turnlog.services.snapshots import ListSnapshots

        return ListSnapshots(self._log)

    @cached_property
    def get_snapshot(self) -> GetSnapshot:
        from turnlog.services.read_snapshots import GetSnapshot

        return GetSnapshot(self._log, self._snapshot_logs, self.links)

    @cached_property
    def seal_session(self) -> SealSessions:
        from turnlog.services.seal import SealSessions

        return SealSessions(self._log, self.segments)

    @cached_property
    def _erasure(self) -> Erasure:
        from turnlog.log.erasure import Erasure

        return Erasure(self.engine.items, self.engine.blobs, self._log.forks, self._clock)

    @cached_property
    def erase_session(self) -> EraseSessions:
        from turnlog.services.erase import EraseSessions

        return EraseSessions(self._log, self.engine.blobs, self._erasure, self._start_job)

    @cached_property
    def erase_user(self) -> EraseUsers:
        from turnlog.services.erase_user import EraseUsers

        return EraseUsers(self._log, self.engine.blobs, self._erasure, self._start_job)

    @cached_property
    def redact_message(self) -> RedactMessages:
        from turnlog.log.redacted_parts import RedactedParts
        from turnlog.log.redaction import Redaction
        from turnlog.services.redact import RedactMessages

        parts = RedactedParts(self.engine.blobs, self.segments, self._log.records)
        redaction = Redaction(self._log, self.engine.blobs, self._log.forks, parts)
        return RedactMessages(self._log, redaction, self._erasure, self._start_job)

    @cached_property
    def retain_sessions(self) -> RetainSessions:
        """What a schedule calls, or who serves on one machine."""
        from turnlog.services.retention import RetainSessions

        return RetainSessions(self._log, self._erasure, self._start_job)

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

        work: dict[str, Work] = {
            "compress": self._compress,
            "snapshot": self._snapshot,
            "seal": self._seal,
            "sweep": self._sweep,
            "restore": self._restore,
            "export": self._export,
            "erase": self._erase,
            "erase_user": self._erase_user,
            "redact": self._redact,
        }
        return RunJob(self._log, work, self.engine.queue_of)

    def _compress(self, owner: Owner, session_id: str, options: JsonObject) -> JsonObject:
        return self.compress_session.run(owner, session_id, options)

    def _snapshot(self, owner: Owner, session_id: str, options: JsonObject) -> JsonObject:
        return self.create_snapshot.run(owner, session_id, options)

    def _seal(self, owner: Owner, session_id: str, options: JsonObject) -> JsonObject:
        return self.seal_session.run(owner, session_id, options)

    def _erase(self, owner: Owner, session_id: str, options: JsonObject) -> JsonObject | Later:
        return self.erase_session.run(owner, session_id, options)

    def _erase_user(self, owner: Owner, _session_id: str, options: JsonObject) -> JsonObject | Later:
        return self.erase_user.run(owner, options)

    def _redact(self, owner: Owner, session_id: str, options: JsonObject) -> JsonObject | Later:
        return self.redact_message.run(owner, session_id, options)

    def _sweep(self, owner: Owner, session_id: str, options: JsonObject) -> JsonObject:
        return self.sweep_snapshots.run(owner, session_id, options)

    def _export(self, owner: Owner, session_id: str, options: JsonObject) -> JsonObject:
        return self.export_sessions.run(owner, session_id, options)

    def _restore(self, owner: Owner, session_id: str, options: JsonObject) -> JsonObject:
        return self.restore_snapshot.run(owner, session_id, options)

    @cached_property
    def _start_job(self) -> StartJobs:
        from turnlog.services.jobs import StartJobs

        return StartJobs(self._log, self.engine.queue_of)

    def close(self) -> None:
        self.engine.close()


class _Lazily:
    """A token counter that is made at its first use."""

    def __init__(self, make: Callable[[], TokenCounter]) -> None:
        self._make = make

    @property
    def name(self) -> str:
        return self._make().name

    def count(self, text: str) -> int:
        return self._make().count(text)


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


def make_counter(name: str) -> TokenCounter:
    """The token counter of that name."""
    if name == "estimate":
        from turnlog.adapters.tokens.estimate_counter import EstimateCounter

        return EstimateCounter()
    from turnlog.adapters.tokens.tiktoken_counter import TiktokenCounter

    return TiktokenCounter()


def make_chat_model(settings: Settings, clock: Clock) -> ChatModel:
    """The model that the settings name: behind their endpoint, else Bedrock's in the engine's region."""
    timeout_seconds = settings.summary_timeout_seconds
    if settings.summary_url:
        from turnlog.adapters.summarisers.openai_compatible import OpenAiCompatibleModel

        key = settings.summary_api_key.get_secret_value()
        return OpenAiCompatibleModel(
            settings.summary_url, settings.summary_model, api_key=key, timeout_seconds=timeout_seconds, clock=clock
        )
    from turnlog.adapters.aws.bedrock import BedrockConverseModel
    from turnlog.adapters.aws.clients import make_clients

    region = parse_qs(urlsplit(settings.engine).query).get("region", [None])[0]
    # ModelSummariser counts the tries.
    clients = make_clients(region, settings.endpoint_url, max_attempts=1)
    return BedrockConverseModel(clients, settings.summary_model, timeout_seconds=timeout_seconds)
