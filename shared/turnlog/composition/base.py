"""What every use case is made of: the engine, the log over it, the token counter, and who starts jobs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from turnlog.engines import Engine
from turnlog.models import LazyCounter, make_chat_model, make_counter
from turnlog.ports import Clock, IdSource, ItemTable, MemoryEngine, SignalName, Signals, TokenCounter
from turnlog.settings import Settings

if TYPE_CHECKING:
    from turnlog.log.erasure import Erasure
    from turnlog.log.keys import SessionKeys
    from turnlog.log.payloads import Payloads
    from turnlog.log.reading import Located
    from turnlog.log.search_index import SearchIndexes
    from turnlog.log.segments import Segment, Segments
    from turnlog.log.sessions import SessionLog
    from turnlog.services.delete_snapshots import SnapshotCleaner
    from turnlog.services.erase import EraseSessions
    from turnlog.services.jobs import StartJobs
    from turnlog.services.remember import EmbeddedMemory, MakeFacts


class Parts:
    """The parts of an application."""

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
    ) -> None:
        """``counter`` and ``memory``: in place of those that the settings name."""
        self.engine = engine
        self.settings = settings
        self._given_counter = counter
        self._clock = clock
        self._ids = ids
        self._signals = signals
        self._given_memory = memory

    def signal(self, name: SignalName, value: int = 1) -> None:
        """Tells an operator, where there is one to be told."""
        if self._signals is not None:
            self._signals.count(name, value)

    @cached_property
    def _items(self) -> ItemTable:
        from turnlog.log.checked_items import CheckedItems

        return CheckedItems(self.engine.items)

    @cached_property
    def _payloads(self) -> Payloads:
        from turnlog.log.payloads import Payloads

        return Payloads(self._items, self.engine.blobs)

    @cached_property
    def _log(self) -> SessionLog:
        from turnlog.log.sessions import SessionLog

        return SessionLog(self._items, self._payloads, self._clock, self._ids)

    @cached_property
    def segments(self) -> Segments:
        from turnlog.log.segments import Segments

        def index(keys: SessionKeys, segment: Segment, messages: Iterable[tuple[Located, int]]) -> None:
            self._search_indexes.store(keys, segment, messages)

        return Segments(self._items, self.engine.blobs, self._payloads, self._log.commits, index)

    @cached_property
    def _search_indexes(self) -> SearchIndexes:
        from turnlog.adapters.search.fts5 import Fts5SearchEngine
        from turnlog.log.search_index import SearchIndexes

        return SearchIndexes(self.engine.blobs, Fts5SearchEngine())

    @cached_property
    def counter(self) -> TokenCounter:
        return self._given_counter if self._given_counter is not None else make_counter(self.settings.token_counter)

    @cached_property
    def _counter(self) -> TokenCounter:
        """The counter for use cases that may not count: made at its first use."""
        return LazyCounter(lambda: self.counter)

    @cached_property
    def memory(self) -> MemoryEngine | None:
        """The long-term memory that the settings name; None where they name none."""
        if self._given_memory is not None:
            return self._given_memory
        if self.settings.memory == "facts":
            return self._embedded_memory
        from turnlog.memories import make_memory

        return make_memory(self.settings, self._clock, self._ids)

    @property
    def _told_memory(self) -> MemoryEngine | None:
        """The same, without what is being erased: for whoever tells of it."""
        from turnlog.services.memories import LivingMemories

        engine = self.memory
        return LivingMemories(engine, self._items) if engine is not None else None

    @property
    def _has_memory(self) -> bool:
        """As `memory` says; nothing is made."""
        return self._given_memory is not None or self.settings.memory != "none"

    @cached_property
    def _embedded_memory(self) -> EmbeddedMemory:
        from turnlog.adapters.search.fts5 import Fts5SearchEngine
        from turnlog.log.memories import Memories
        from turnlog.services.remember import EmbeddedMemory

        search = Fts5SearchEngine(before_weight=0.0)
        return EmbeddedMemory(Memories(self._items), self._make_facts, search)

    @cached_property
    def _make_facts(self) -> MakeFacts:
        """By rules; with a model of summaries in the settings by that one."""
        from turnlog.adapters.memories.sentences import SentenceFacts
        from turnlog.services.remember import by

        rules = SentenceFacts()
        if not self.settings.summary_model:
            return by(rules)
        from turnlog.adapters.memories.model import ModelFacts
        from turnlog.log.spending import Spending
        from turnlog.services.facts import FactsWithinBudget

        model = ModelFacts(make_chat_model(self.settings, self._clock), self._counter)
        spending = Spending(self._items, self._clock, self._ids)
        return FactsWithinBudget(
            model, rules, spending, self._counter, tokens_per_day=self.settings.summary_tokens_per_day
        )

    @property
    def _all_memories(self) -> tuple[MemoryEngine, ...]:
        """Wherever something may be known: whoever erases asks the embedded engine too, though it be used no more."""
        engine, own = self.memory, self._embedded_memory
        return (own,) if engine is None or engine is own else (engine, own)

    @cached_property
    def _start_job(self) -> StartJobs:
        from turnlog.services.jobs import StartJobs

        return StartJobs(self._log, self.engine.queue_of)

    @cached_property
    def _erasure(self) -> Erasure:
        from turnlog.log.erasure import Erasure

        return Erasure(self.engine.items, self.engine.blobs, self._log.forks, self._clock)

    @cached_property
    def erase_session(self) -> EraseSessions:
        from turnlog.services.erase import EraseSessions

        return EraseSessions(
            self._log, self.engine.blobs, self._erasure, self._start_job, self._all_memories, self._signals
        )

    @cached_property
    def _snapshot_cleaner(self) -> SnapshotCleaner:
        from turnlog.services.delete_snapshots import SnapshotCleaner

        return SnapshotCleaner(self._log, self._start_job)
