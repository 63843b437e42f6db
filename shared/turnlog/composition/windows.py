"""What is made of a session for a model: windows, summaries, recall and search."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from turnlog.composition.base import Parts
from turnlog.models import make_chat_model, make_embedder
from turnlog.ports import Summariser

if TYPE_CHECKING:
    from turnlog.log.words import SessionWords
    from turnlog.services.build_context import BuildContexts, BuildWindows
    from turnlog.services.compress import CompressSessions
    from turnlog.services.index_sessions import IndexSessions
    from turnlog.services.lint import LintHistories
    from turnlog.services.owner_sessions import OwnerSessions
    from turnlog.services.recall import RecallCalls
    from turnlog.services.reranking import Reranker
    from turnlog.services.search import SearchSession
    from turnlog.services.search_sessions import SearchSessions
    from turnlog.services.searched import SearchedSessions
    from turnlog.services.summaries import DiscardSummary, GetSummary


class Windows(Parts):
    """The use cases of what a model reads."""

    @cached_property
    def build_context(self) -> BuildContexts:
        from turnlog.services.build_context import BuildContexts

        return BuildContexts(self._log, self.settings.models)

    @cached_property
    def build_window(self) -> BuildWindows:
        from turnlog.services.build_context import BuildWindows

        return BuildWindows(self._counter, self.settings.models)

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

        return SearchSession(self.searched_sessions, self._search_indexes.engine, self._reranker)

    @cached_property
    def _reranker(self) -> Reranker:
        from turnlog.services.reranking import Reranker

        return Reranker(make_embedder(self.settings))

    @cached_property
    def searched_sessions(self) -> SearchedSessions:
        from turnlog.services.searched import SearchedSessions

        return SearchedSessions(self._log, self.segments, self._search_indexes)

    @cached_property
    def search_sessions(self) -> SearchSessions:
        from turnlog.adapters.search.fts5 import Fts5SearchEngine
        from turnlog.services.search_sessions import SearchSessions

        engine, alone = self._search_indexes.engine, Fts5SearchEngine(before_weight=0.0)
        owners, sessions = self._owner_sessions, self.searched_sessions
        return SearchSessions(self._log, owners, sessions, engine, alone, self._reranker, self._start_job)

    @cached_property
    def index_sessions(self) -> IndexSessions:
        from turnlog.services.index_sessions import IndexSessions

        engine = self._search_indexes.engine
        return IndexSessions(self._log, self._owner_sessions, self.searched_sessions, self._session_words, engine)

    @cached_property
    def _owner_sessions(self) -> OwnerSessions:
        from turnlog.services.owner_sessions import OwnerSessions

        return OwnerSessions(self._log, self._session_words)

    @cached_property
    def _session_words(self) -> SessionWords:
        from turnlog.log.words import SessionWords

        return SessionWords(self._items, self._search_indexes.engine.name)

    @cached_property
    def compress_session(self) -> CompressSessions:
        from turnlog.adapters.summarisers.extractive import ExtractiveSummariser
        from turnlog.services.compress import CompressSessions

        outliner, longest_ms = ExtractiveSummariser(self._counter), self.longest_summary_ms
        return CompressSessions(
            self._log,
            self._counter,
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

        extractive = ExtractiveSummariser(self._counter)
        if not self.settings.summary_model:
            return extractive
        from turnlog.adapters.summarisers.model import ModelSummariser
        from turnlog.log.spending import Spending
        from turnlog.services.summarise import SummariseWithinBudget

        clock, ids = self._log.clock, self._log.ids
        chat = make_chat_model(self.settings, clock)
        model = ModelSummariser(chat, self._counter, clock, ids, timeout_seconds=self.settings.summary_timeout_seconds)
        spending = Spending(self._items, clock, ids)
        limit = self.settings.summary_tokens_per_day
        return SummariseWithinBudget(
            model, extractive, spending, self._counter, tokens_per_day=limit, signals=self._signals
        )

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
