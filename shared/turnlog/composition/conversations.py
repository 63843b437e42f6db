"""What is said and done in a session: its settings, messages, state and history."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from turnlog.composition.memories import Memories

if TYPE_CHECKING:
    from turnlog.contracts.sessions import Bootstrap
    from turnlog.domain.identity import Owner
    from turnlog.domain.memory import Memory
    from turnlog.domain.session import Settings as SessionSettings
    from turnlog.log.documents import Documents
    from turnlog.log.headers import Header
    from turnlog.services.agents import GetAgent, PatchAgent
    from turnlog.services.append_messages import AppendMessages
    from turnlog.services.automatic_snapshots import AutomaticSnapshots
    from turnlog.services.bring_memories import Known
    from turnlog.services.create_session import CreateSessions
    from turnlog.services.decisions import DecidePendingActions
    from turnlog.services.diff import CompareMoments
    from turnlog.services.documents import GetDocuments, PutDocuments
    from turnlog.services.end_session import EndSessions, ResetSessions
    from turnlog.services.history import ReadHistory, RecordEntries
    from turnlog.services.read_messages import ReadLoops, ReadMessages
    from turnlog.services.read_session import GetSession, ListSessions
    from turnlog.services.rewind import RewindSessions
    from turnlog.services.states import GetState, PatchState, PutState
    from turnlog.services.update_session import UpdateSessions


class Conversations(Memories):
    """The use cases of a session's course."""

    @cached_property
    def create_session(self) -> CreateSessions:
        from turnlog.services.create_session import CreateSessions

        return CreateSessions(self._log, self._counter, self._bring_memories)

    def _bring_memories(self, owner: Owner, ask: Bootstrap) -> Known:
        """Few sessions ask for it: what it takes is loaded when one does."""
        from turnlog.services.bring_memories import BringMemories
        from turnlog.services.memories import living

        def of_the_living(found: Sequence[Memory]) -> list[Memory]:
            return living(self._items, owner, found)

        return BringMemories(lambda: self.memory, self._counter, self.engine.release, of_the_living)(owner, ask)

    @cached_property
    def update_session(self) -> UpdateSessions:
        from turnlog.services.update_session import UpdateSessions

        return UpdateSessions(self._log, self._counter)

    @cached_property
    def end_session(self) -> EndSessions:
        from turnlog.services.end_session import EndSessions

        return EndSessions(self._log, self._ask_offload)

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
            self._counter,
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

        return DecidePendingActions(self._log, self._counter)

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
    def get_documents(self) -> GetDocuments:
        from turnlog.services.documents import GetDocuments

        return GetDocuments(self._log, self._documents)

    @cached_property
    def put_documents(self) -> PutDocuments:
        from turnlog.services.documents import PutDocuments

        return PutDocuments(self._log, self._documents)

    @cached_property
    def _documents(self) -> Documents:
        from turnlog.log.documents import Documents

        return Documents(self._items, self.engine.blobs, self._clock)
