"""The composition root: an engine and every use case over it, in one table.

Each use case and each library is imported at its first use. So a Lambda function loads only what its own routes need, and one
that counts no tokens never loads the vocabulary.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

from turnlog.core.errors import InvalidInputError
from turnlog.engines import (
    AtFirstUse,
    Engine,
    RandomIds,
    SystemClock,
    make_chat_model,
    make_counter,
    make_embedder,
    make_engine,
)
from turnlog.ports import (
    ChatModel,
    Clock,
    Embedder,
    IdSource,
    ItemTable,
    MemoryEngine,
    MemoryReader,
    SearchEngine,
    SignalName,
    Signals,
    Summariser,
    TokenCounter,
)
from turnlog.settings import Settings

if TYPE_CHECKING:
    from turnlog.core.identity import Owner
    from turnlog.core.memory import Memory
    from turnlog.core.session_settings import SessionSettings
    from turnlog.jobs.redrive import RedriveJobs
    from turnlog.jobs.worker import GetJob, ListJobs, RunJob, StartJobs, Work
    from turnlog.linter.lint_messages import LintHistories
    from turnlog.log.commit import Commit
    from turnlog.log.commit_items import Forks
    from turnlog.log.headers import Header
    from turnlog.log.keys import SessionKeys
    from turnlog.log.links import Link, Links
    from turnlog.log.payloads import Payloads
    from turnlog.log.reading import Located
    from turnlog.memory.bootstrap import BootstrapMessage
    from turnlog.memory.embedded import EmbeddedMemory
    from turnlog.memory.facts import MakeFacts
    from turnlog.memory.hand_over import AskForOffloads, OffloadCopies, Offloads, OffloadSessions
    from turnlog.memory.read import ForgetMemories, ListMemories
    from turnlog.privacy.erase import EraseSessions, EraseUsers
    from turnlog.privacy.fence_and_delete import Erasure
    from turnlog.privacy.redact import Redaction, RedactMessages
    from turnlog.privacy.redacted_archives import RedactedParts
    from turnlog.privacy.retention import RetainSessions
    from turnlog.search.corpus import SessionReader
    from turnlog.search.index import SearchIndexes
    from turnlog.search.over_sessions import FindElsewhere, SearchSessions
    from turnlog.search.recall import RecallCalls
    from turnlog.search.session import FindMessages, RecalledOrders, Reranker, SearchSession
    from turnlog.search.session_words import IndexSessions, OwnerSessions, SessionWords
    from turnlog.sessions.append import AppendToSession
    from turnlog.sessions.context import BuildContexts, BuildWindows
    from turnlog.sessions.decisions import DecidePendingActions
    from turnlog.sessions.documents import DocumentStore, GetDocuments, PutDocuments
    from turnlog.sessions.history import CompareMoments, ReadHistory, RecordEntries
    from turnlog.sessions.lifecycle import CreateSessions, EndSessions, ResetSessions
    from turnlog.sessions.messages import ReadLoops, ReadMessages
    from turnlog.sessions.models import Bootstrap
    from turnlog.sessions.read import GetSession, ListSessions
    from turnlog.sessions.rewind_and_fork import RewindSessions
    from turnlog.sessions.runs import LeaseSession, SendToRuns
    from turnlog.sessions.session_log import SessionLog
    from turnlog.sessions.state import GetAgent, GetState, PatchAgent, PatchState, PutState
    from turnlog.sessions.update import UpdateSessions
    from turnlog.snapshots.exports import ExportSessions, ImportSessions
    from turnlog.snapshots.full import FullSnapshots
    from turnlog.snapshots.lifecycle import (
        AutomaticSnapshots,
        CreateSnapshots,
        DeleteSnapshots,
        ListSnapshots,
        SnapshotCleaner,
        SweepSnapshots,
    )
    from turnlog.snapshots.materialise import Materialiser
    from turnlog.snapshots.read import GetSnapshot, SnapshotLogs
    from turnlog.snapshots.restore import RestoreSnapshots
    from turnlog.snapshots.segments import SealSessions, Segment, Segments
    from turnlog.summaries.budget import Spending
    from turnlog.summaries.compress import CompressSessions, DiscardSummary, GetSummary
    from turnlog.summaries.store import Summaries
    from turnlog.summaries.trigger import AskForSegments, AskForSummaries
    from turnlog.upkeep.backup import Upkeep
    from turnlog.windows.recalled import RecallHit, RecallSearch


def use_case(path: str, *parts: str, **named: str) -> Any:
    """Return a property that creates an instance of the class ``turnlog.<path>`` at its first use.

    ``parts`` name the application's attributes to pass as arguments; ``named`` does so for keyword arguments. A dotted part
    is an attribute of a part. The module is imported at the first use, so a Lambda function loads only what its own routes
    use.
    """
    module, _, name = path.rpartition(".")

    def make(app: Application) -> Any:
        keywords = {keyword: attrgetter(part)(app) for keyword, part in named.items()}
        instance = getattr(import_module(f"turnlog.{module}"), name)(
            *(attrgetter(part)(app) for part in parts), **keywords
        )
        # Imported by whoever turns it on: off, it costs no import. Another thread may be importing it now.
        traced = getattr(sys.modules.get("turnlog.telemetry"), "traced", None)
        return traced(path, instance) if traced is not None else instance

    return cached_property(make)


_log = logging.getLogger("turnlog")


class LoggedSignals:
    """Implements `Signals`: a line of the log for each count."""

    def count(self, name: SignalName, value: int = 1) -> None:
        _log.info("counted %s: %d", name, value)


class Application:
    """All use cases over an engine, and the parts that they share.

    Each line of the table names the class of a use case or part, and the parts that its constructor takes.
    """

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        *,
        clock: Clock,
        ids: IdSource,
        counter: TokenCounter | None = None,
        signals: Signals | None = None,
        memory: MemoryEngine | None = None,
        summary_model: ChatModel | None = None,
    ) -> None:
        """Create an application. ``counter``, ``memory`` and ``summary_model`` replace those that the settings name."""
        self.engine = engine
        self.settings = settings
        self.clock = clock
        self.ids = ids
        self.signals: Signals = signals or LoggedSignals()
        self._counter = counter
        self._memory = memory
        self._summary_model = summary_model

    # the log
    items: ItemTable = use_case("log.packing.CheckedItems", "engine.items")
    payloads: Payloads = use_case("log.payloads.Payloads", "items", "engine.blobs")
    log: SessionLog = use_case("sessions.session_log.SessionLog", "items", "payloads", "clock", "ids")
    forks: Forks = use_case("log.commit_items.Forks", "items", "payloads")
    links: Links = use_case("log.links.Links", "engine.blobs", "clock", "log.cursor_secret")

    # jobs
    start_job: StartJobs = use_case("jobs.worker.StartJobs", "log", "engine.queue_of")
    get_job: GetJob = use_case("jobs.worker.GetJob", "log", "link_of_export")
    list_jobs: ListJobs = use_case("jobs.worker.ListJobs", "log")
    run_job: RunJob = use_case("jobs.worker.RunJob", "log", "work", "engine.queue_of")
    redrive_jobs: RedriveJobs = use_case("jobs.redrive.RedriveJobs", "log", "engine.queue_of")

    # sessions
    create_session: CreateSessions = use_case(
        "sessions.lifecycle.CreateSessions", "log", "summaries", "lazy_counter", "bring_memories"
    )
    update_session: UpdateSessions = use_case("sessions.update.UpdateSessions", "log", "lazy_counter")
    end_session: EndSessions = use_case("sessions.lifecycle.EndSessions", "log", "ask_offload")
    reset_session: ResetSessions = use_case("sessions.lifecycle.ResetSessions", "log", "end_session", "create_session")
    get_session: GetSession = use_case("sessions.read.GetSession", "log")
    list_sessions: ListSessions = use_case("sessions.read.ListSessions", "log")
    append_messages: AppendToSession = use_case(
        "sessions.append.AppendToSession", "log", "lazy_counter", "ask_summaries", "ask_segments", "make_snapshots"
    )
    ask_summaries: AskForSummaries = use_case("summaries.trigger.AskForSummaries", "start_job", "settings.models")
    ask_segments: AskForSegments = use_case("summaries.trigger.AskForSegments", "start_job")
    read_messages: ReadMessages = use_case("sessions.messages.ReadMessages", "log")
    read_loops: ReadLoops = use_case("sessions.messages.ReadLoops", "log")
    get_state: GetState = use_case("sessions.state.GetState", "log")
    put_state: PutState = use_case("sessions.state.PutState", "log")
    patch_state: PatchState = use_case("sessions.state.PatchState", "log")
    get_agent: GetAgent = use_case("sessions.state.GetAgent", "log")
    patch_agent: PatchAgent = use_case("sessions.state.PatchAgent", "log")
    decide_pending: DecidePendingActions = use_case("sessions.decisions.DecidePendingActions", "log", "lazy_counter")
    lease_session: LeaseSession = use_case("sessions.runs.LeaseSession", "log")
    send_to_run: SendToRuns = use_case("sessions.runs.SendToRuns", "log", "lazy_counter")
    read_history: ReadHistory = use_case("sessions.history.ReadHistory", "log")
    record_history: RecordEntries = use_case("sessions.history.RecordEntries", "log")
    compare_moments: CompareMoments = use_case("sessions.history.CompareMoments", "log", "read_messages")
    rewind_session: RewindSessions = use_case("sessions.rewind_and_fork.RewindSessions", "log", "summaries")
    documents: DocumentStore = use_case("sessions.documents.DocumentStore", "items", "engine.blobs", "clock")
    get_documents: GetDocuments = use_case("sessions.documents.GetDocuments", "log", "documents")
    put_documents: PutDocuments = use_case("sessions.documents.PutDocuments", "log", "documents")

    # windows
    build_context: BuildContexts = use_case(
        "sessions.context.BuildContexts", "log", "summaries", "settings.models", "find_in_session"
    )
    build_window: BuildWindows = use_case(
        "sessions.context.BuildWindows", "lazy_counter", "settings.models", "find_in_list"
    )
    lint_messages: LintHistories = use_case("linter.lint_messages.LintHistories")

    # summaries
    extracts: Summariser = use_case("summaries.summarisers.ExtractiveSummariser", "lazy_counter")
    spending: Spending = use_case("summaries.budget.Spending", "items", "clock", "ids", "signals")
    compress_session: CompressSessions = use_case(
        *("summaries.compress.CompressSessions", "log", "lazy_counter", "summariser", "extracts", "start_job"),
        longest_summary_ms="longest_summary_ms",
        models="settings.models",
        signals="signals",
    )
    summaries: Summaries = use_case("summaries.store.Summaries", "log")
    get_summary: GetSummary = use_case("summaries.compress.GetSummary", "log")
    discard_summary: DiscardSummary = use_case("summaries.compress.DiscardSummary", "log", "start_job")

    # search
    words: SearchEngine = use_case("search.fts5.Fts5SearchEngine")
    search_indexes: SearchIndexes = use_case("search.index.SearchIndexes", "engine.blobs", "words")
    corpus: SessionReader = use_case("search.corpus.SessionReader", "log", "segments", "search_indexes")
    reranker: Reranker = use_case("search.session.Reranker", "embedder")
    recall: RecallCalls = use_case("search.recall.RecallCalls", "log")
    recalled_orders: RecalledOrders = use_case("search.session.RecalledOrders", "items", "corpus", "reranker")
    find_messages: FindMessages = use_case("search.session.FindMessages", "corpus", "words", "recalled_orders")
    search_session: SearchSession = use_case("search.session.SearchSession", "corpus", "words", "reranker")
    session_words: SessionWords = use_case("search.session_words.SessionWords", "items", "words")
    owner_sessions: OwnerSessions = use_case("search.session_words.OwnerSessions", "log", "session_words")
    index_sessions: IndexSessions = use_case(
        "search.session_words.IndexSessions", "log", "owner_sessions", "corpus", "session_words", "words"
    )
    search_sessions: SearchSessions = use_case(
        *("search.over_sessions.SearchSessions", "log", "owner_sessions", "corpus", "words", "short_texts"),
        *("reranker", "start_job"),
    )
    find_elsewhere: FindElsewhere = use_case(
        "search.over_sessions.FindElsewhere", "search_sessions", "get_visible_memory", "engine.release"
    )

    # snapshots, exports
    segments: Segments = use_case(
        *("snapshots.segments.Segments", "items", "engine.blobs", "payloads", "log.commits"), "index_segment"
    )
    seal_session: SealSessions = use_case("snapshots.segments.SealSessions", "log", "segments")
    full_snapshots: FullSnapshots = use_case("snapshots.full.FullSnapshots", "engine.blobs", "segments", "clock")
    snapshot_cleaner: SnapshotCleaner = use_case("snapshots.lifecycle.SnapshotCleaner", "log", "start_job")
    create_snapshot: CreateSnapshots = use_case(
        "snapshots.lifecycle.CreateSnapshots", "log", "full_snapshots", "start_job", "snapshot_cleaner"
    )
    automatic_snapshots: AutomaticSnapshots = use_case(
        "snapshots.lifecycle.AutomaticSnapshots", "log", "snapshot_cleaner"
    )
    list_snapshots: ListSnapshots = use_case("snapshots.lifecycle.ListSnapshots", "log")
    snapshot_logs: SnapshotLogs = use_case("snapshots.read.SnapshotLogs", "log", "engine.blobs", "full_snapshots")
    get_snapshot: GetSnapshot = use_case("snapshots.read.GetSnapshot", "log", "snapshot_logs", "links")
    delete_snapshot: DeleteSnapshots = use_case("snapshots.lifecycle.DeleteSnapshots", "log", "snapshot_cleaner")
    sweep_snapshots: SweepSnapshots = use_case("snapshots.lifecycle.SweepSnapshots", "log", "engine.blobs")
    materialiser: Materialiser = use_case("snapshots.materialise.Materialiser", "log", "engine.blobs")
    restore_snapshot: RestoreSnapshots = use_case(
        *("snapshots.restore.RestoreSnapshots", "log", "payloads", "snapshot_logs", "full_snapshots", "materialiser"),
        *("rewind_session", "create_session", "erase_session", "start_job"),
    )
    export_session: ExportSessions = use_case(
        *("snapshots.exports.ExportSessions", "log", "payloads", "engine.blobs", "links", "start_job"),
        *("get_visible_memory", "documents", "snapshot_logs"),
    )
    import_session: ImportSessions = use_case(
        "snapshots.exports.ImportSessions", "log", "materialiser", "documents", "get_embedded_memory"
    )

    # long-term memory
    offloads: Offloads = use_case("memory.hand_over.Offloads", "items")
    ask_offload: AskForOffloads = use_case(
        "memory.hand_over.AskForOffloads", "log", "offloads", "start_job", is_on="has_memory"
    )
    offload_copies: OffloadCopies = use_case("memory.hand_over.OffloadCopies", "log", "engine.blobs", "offloads")
    offload_session: OffloadSessions = use_case(
        "memory.hand_over.OffloadSessions", "log", "offloads", "offload_copies", "memory"
    )
    embedded_memory: EmbeddedMemory = use_case("memory.embedded.EmbeddedMemory", "items", "make_facts", "short_texts")
    list_memories: ListMemories = use_case("memory.read.ListMemories", "log", "get_visible_memory")
    forget_memory: ForgetMemories = use_case("memory.read.ForgetMemories", "memory")

    # checks and backups of the engine's files
    upkeep: Upkeep = use_case("upkeep.backup.Upkeep", "engine", "clock", "ids")

    # privacy
    erasure: Erasure = use_case("privacy.fence_and_delete.Erasure", "engine.items", "engine.blobs", "forks", "clock")
    erase_session: EraseSessions = use_case(
        *("privacy.erase.EraseSessions", "log", "engine.blobs", "erasure", "redaction", "start_job"),
        *("all_memories", "signals"),
    )
    erase_user: EraseUsers = use_case(
        "privacy.erase.EraseUsers", "log", "engine.blobs", "erasure", "start_job", "all_memories"
    )
    redacted_archives: RedactedParts = use_case(
        "privacy.redacted_archives.RedactedParts", "engine.blobs", "segments", "log.records"
    )
    redaction: Redaction = use_case("privacy.redact.Redaction", "log", "engine.blobs", "forks", "redacted_archives")
    redact_message: RedactMessages = use_case(
        *("privacy.redact.RedactMessages", "log", "redaction", "erasure", "start_job", "offload_copies"),
        *("all_memories", "embedded_memory", "segments"),
    )
    retain_sessions: RetainSessions = use_case(
        "privacy.retention.RetainSessions", "log", "erasure", "start_job", "ask_offload"
    )

    def signal(self, name: SignalName, value: int = 1) -> None:
        """Increment a counter for the operator."""
        self.signals.count(name, value)

    def close(self) -> None:
        """Free the resources of the engine."""
        self.engine.close()

    @property
    def work(self) -> dict[str, Callable[[], Work]]:
        """Functions that return the worker of each kind of job."""
        return {
            "compress": lambda: self.compress_session.run,
            "snapshot": lambda: self.create_snapshot.run,
            "seal": lambda: self.seal_session.run,
            "index": lambda: self.index_sessions.run,
            "sweep": lambda: self.sweep_snapshots.run,
            "restore": lambda: self.restore_snapshot.run,
            "export": lambda: self.export_session.run,
            "erase": lambda: self.erase_session.run,
            "erase_user": lambda: self.erase_user.run,
            "redact": lambda: self.redact_message.run,
            "offload": lambda: self.offload_session.run,
        }

    def prepare(self, names: Iterable[str]) -> None:
        """Make the use cases of these names and what they share, as their first requests would. Without requests of its own."""
        for name in names:
            getattr(self, name, None)
        if "lazy_counter" in vars(self):
            self.counter.count("a text")
        self.engine.prepare()

    # parts that depend on the settings

    @cached_property
    def counter(self) -> TokenCounter:
        """The token counter that the settings name."""
        return self._counter if self._counter is not None else make_counter(self.settings.token_counter)

    @cached_property
    def lazy_counter(self) -> TokenCounter:
        """The token counter, created at its first count, for use cases that do not always count."""
        return cast("TokenCounter", AtFirstUse(lambda: self.counter))

    @cached_property
    def embedder(self) -> Embedder | None:
        """The embedder that the settings name, or None."""
        return make_embedder(self.settings)

    @cached_property
    def summariser(self) -> Summariser:
        """The summariser: the model that the settings name, or extracts without a model.

        Extracts also replace the model when the budget is spent or the model fails.
        """
        if not self._has_summary_model:
            return self.extracts
        from turnlog.summaries.budget import SummariseWithinBudget
        from turnlog.summaries.summarisers import ModelSummariser

        seconds, limit = self.settings.summary_timeout_seconds, self.settings.summary_tokens_per_day
        chat = self._summary_model or make_chat_model(self.settings)
        model = ModelSummariser(chat, self.lazy_counter, self.clock, self.ids, timeout_seconds=seconds)
        return SummariseWithinBudget(model, self.extracts, self.spending, self.lazy_counter, tokens_per_day=limit)

    @property
    def longest_summary_ms(self) -> int:
        """The longest time in milliseconds that all tries of a model take together; 0 without a model."""
        return self.settings.summary_timeout_seconds * 1250 if self._has_summary_model else 0

    @property
    def _has_summary_model(self) -> bool:
        return self._summary_model is not None or bool(self.settings.summary_model)

    @cached_property
    def short_texts(self) -> SearchEngine:
        """The search engine for independent texts: titles, summaries and facts."""
        from turnlog.search.fts5 import Fts5SearchEngine

        return Fts5SearchEngine(is_conversation=False)

    @cached_property
    def memory(self) -> MemoryEngine | None:
        """The long-term memory that the settings name, or None."""
        if self._memory is not None:
            return self._memory
        return self.get_embedded_memory() or make_memory(self.settings, self.clock, self.ids)

    def get_embedded_memory(self) -> EmbeddedMemory | None:
        """Return the embedded memory engine if it is the one in use."""
        return self.embedded_memory if self._memory is None and self.settings.memory == "facts" else None

    @property
    def has_memory(self) -> bool:
        """Whether there is a long-term memory. Does not create it."""
        return self._memory is not None or self.settings.memory != "none"

    def get_visible_memory(self) -> MemoryReader | None:
        """Return long-term memory without what is under erasure; None without one."""
        from turnlog.memory.read import VisibleMemories

        return VisibleMemories(self.memory, self.items) if self.memory is not None else None

    @property
    def all_memories(self) -> tuple[MemoryEngine, ...]:
        """All engines that may hold memories, for erasure. The embedded one is included after another replaced it."""
        engine, embedded = self.memory, self.embedded_memory
        return (embedded,) if engine is None or engine is embedded else (engine, embedded)

    @cached_property
    def make_facts(self) -> MakeFacts:
        """The extractor of facts: rules, or the model of summaries if the settings name one."""
        from turnlog.memory.facts import FactsWithinBudget, ModelFacts, SentenceFacts, without_cost

        rules = SentenceFacts()
        if not self.settings.summary_model:
            return without_cost(rules)
        model = ModelFacts(make_chat_model(self.settings), self.lazy_counter)
        limit = self.settings.summary_tokens_per_day
        return FactsWithinBudget(model, rules, self.spending, self.lazy_counter, tokens_per_day=limit)

    # parts that few requests need, loaded on demand

    def bring_memories(self, owner: Owner, ask: Bootstrap) -> BootstrapMessage:
        """Return the message with the owner's long-term memories that begins a new session."""
        from turnlog.memory.bootstrap import bring_memories
        from turnlog.memory.read import visible_memories

        def visible(memories: Sequence[Memory]) -> list[Memory]:
            return visible_memories(self.items, owner, memories)

        return bring_memories(
            owner, ask, self.lazy_counter, memory=lambda: self.memory, release=self.engine.release, visible=visible
        )

    def find_in_session(
        self, keys: SessionKeys, header: Header, commits: Sequence[Commit], search: RecallSearch
    ) -> Sequence[Sequence[RecallHit]] | None:
        """Return what a window recalls of its session, and of the user's other sessions where it asks for them."""
        hits = self.find_messages.in_session(keys, header, commits, search)
        return hits if hits is None or not search.of_user else self.find_elsewhere(keys, search, hits)

    def find_in_list(self, messages: Sequence[Located], search: RecallSearch) -> Sequence[Sequence[RecallHit]]:
        """Return the messages of a list that a window recalls."""
        from turnlog.search.session import ListSearch

        return ListSearch(self.words, messages)(search)

    def make_snapshots(
        self, owner: Owner, session_id: str, header: Header, before: Header, settings: SessionSettings
    ) -> None:
        """Create the automatic snapshots that a session's settings require after an append."""
        self.automatic_snapshots(owner, session_id, header, before, settings)

    def index_segment(self, keys: SessionKeys, segment: Segment, messages: Iterable[tuple[Located, int]]) -> str:
        """Store the search index of a new segment; return its SHA-256."""
        return self.search_indexes.store(keys, segment, messages)

    def link_of_export(self, owner: Owner, session_id: str) -> Link:
        """Return a short-lived address of a session's export file."""
        return self.export_session.link(owner, session_id)


def make_application(
    settings: Settings | None = None,
    *,
    clock: Clock | None = None,
    ids: IdSource | None = None,
    signals: Signals | None = None,
    summary_model: ChatModel | None = None,
) -> Application:
    """Return the application for settings, by default those of the environment.

    Without ``signals``, the operator's counters are lines of the log.
    """
    settings = settings if settings is not None else Settings.from_environment()
    load_steps(settings)
    if settings.telemetry == "opentelemetry":
        from turnlog.telemetry import turn_on

        turn_on()
    clock, ids = clock or SystemClock(), ids or RandomIds()
    engine = make_engine(settings, clock=clock, ids=ids)
    return Application(engine, settings, clock=clock, ids=ids, signals=signals, summary_model=summary_model)


def load_steps(settings: Settings) -> None:
    """Import the modules that register custom steps of policies.

    Raises an `InvalidInputError` that names a module which can't be imported.
    """
    for module in settings.steps:
        try:
            import_module(module)
        except Exception as error:
            raise InvalidInputError(
                f"TURNLOG_STEPS: {module!r} can't be imported: {type(error).__name__}: {error}", code="invalid_settings"
            ) from error


def make_memory(settings: Settings, clock: Clock, ids: IdSource) -> MemoryEngine | None:
    """Return the external memory engine that ``settings.memory`` names, or None.

    Raises `InvalidInputError` when the engine's settings are wrong.
    """
    if settings.memory == "webhook":
        from turnlog.memory.webhook import WebhookMemoryEngine

        return WebhookMemoryEngine.from_settings(settings, clock=clock, ids=ids)
    if settings.memory == "agentcore":
        from turnlog.memory.agentcore import AgentCoreMemoryEngine

        return AgentCoreMemoryEngine.from_settings(settings)
    return None
