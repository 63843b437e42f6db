"""A plugin of pytest for the frameworks' own tests: the framework's own stores are Turnlog's, and each test tells how many it made.

With ``FRAMEWORK_SUITE_OWN`` set nothing is replaced: what fails then is no matter of the store.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from turnlog import Turnlog

MADE = "turnlog_stores"
"""The property of a test's report: how many stores it made, in its fixtures too."""
_OWN = bool(os.environ.get("FRAMEWORK_SUITE_OWN"))
_made = [0]


def _counted(make: Callable[..., Any]) -> Callable[..., Any]:
    def counted(*args: Any, **more: Any) -> Any:
        _made[0] += 1
        return make(*args, **more)

    return counted


def _in_memory() -> Turnlog:
    return Turnlog.open("memory://")


def _on_disk(folder: Any) -> Turnlog:
    return Turnlog.open(f"sqlite:///{Path(folder).resolve()}/turnlog.db")


def _of_file(path: Any) -> Turnlog:
    return _in_memory() if str(path) == ":memory:" else Turnlog.open(f"sqlite:///{Path(path).resolve()}.turnlog")


def _replace(module: str, name: str, value: Any) -> None:
    """Replace a name in a module, and wherever a package gives it out."""
    place = module
    while place:
        loaded = importlib.import_module(place)
        if hasattr(loaded, name):
            setattr(loaded, name, value)
        place = place.rpartition(".")[0]


def _langgraph() -> None:
    """Replace the savers of SQLite, which the suite runs its graphs on, plain and encrypted."""
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    from turnlog.integrations.langgraph import TurnlogSaver

    _opened_by_address(SqliteSaver, AsyncSqliteSaver, TurnlogSaver)


def _langgraph_sqlite() -> None:
    """Replace the savers and the stores of SQLite, in the tests of their own package."""
    from langgraph.store.sqlite import AsyncSqliteStore, SqliteStore

    from turnlog.integrations.langgraph import TurnlogStore

    class Store(TurnlogStore):
        def setup(self) -> Any:
            return contextlib.nullcontext()

    class AsyncStore(TurnlogStore):
        async def setup(self) -> None:
            pass

    _langgraph()
    _opened_by_address(SqliteStore, None, Store)
    _opened_by_address(None, AsyncSqliteStore, AsyncStore)


def _langgraph_store() -> None:
    """Replace the store in memory."""
    from langgraph.store.memory import InMemoryStore

    from turnlog.integrations.langgraph import TurnlogStore

    class Store(TurnlogStore):
        def __init__(self, *, index: Any = None, ttl: Any = None) -> None:
            super().__init__(_in_memory(), index=index, ttl=ttl)

    result: Any = InMemoryStore if _OWN else Store
    result.__init__ = _counted(result.__init__)
    _replace("langgraph.store.memory", "InMemoryStore", result)


def _opened_by_address(plain: Any, asynchronous: Any, ours: Callable[..., Any]) -> None:
    """Let a class of SQLite and its asynchronous twin, which tests open by an address, be one of Turnlog's on a file."""

    @contextlib.contextmanager
    def made(where: str, **more: Any) -> Iterator[Any]:
        with tempfile.TemporaryDirectory() as folder, _on_disk(folder) as log:
            yield ours(log, **more)

    @contextlib.asynccontextmanager
    async def made_async(where: str, **more: Any) -> AsyncIterator[Any]:
        with made(where, **more) as store:
            yield store

    for theirs, opened in ((plain, made), (asynchronous, made_async)):
        if theirs is not None:
            theirs.from_conn_string = staticmethod(_counted(theirs.from_conn_string if _OWN else opened))


def _strands() -> None:
    """Replace the repository that the suite has for its tests, the file session manager, and the storages."""
    from strands.session.repository_session_manager import RepositorySessionManager

    from turnlog.integrations.strands import TurnlogRepository, TurnlogStorage

    class Repository(TurnlogRepository):
        def __init__(self) -> None:
            super().__init__(_in_memory())

    class Manager(RepositorySessionManager, TurnlogRepository):
        def __init__(self, session_id: str, storage_dir: Any = None, **more: Any) -> None:
            TurnlogRepository.__init__(self, _on_disk(storage_dir or tempfile.mkdtemp()))
            RepositorySessionManager.__init__(self, session_id=session_id, session_repository=self, **more)

    class InMemory(TurnlogStorage):
        def __init__(self, *, search_strategy: Any = None) -> None:
            super().__init__(_in_memory(), "storage", search_strategy=search_strategy)

    class InFolder(TurnlogStorage):
        def __init__(self, base_dir: Any, *, search_strategy: Any = None) -> None:
            super().__init__(_on_disk(base_dir), "storage", search_strategy=search_strategy)

    fixtures = "tests.fixtures.mock_session_repository"
    replaced = (
        (fixtures, "MockedSessionRepository", Repository),
        ("strands.session.file_session_manager", "FileSessionManager", Manager),
        ("strands.storage.in_memory_storage", "InMemoryStorage", InMemory),
        ("strands.storage.local_file_storage", "LocalFileStorage", InFolder),
    )
    sys.path.insert(0, str(Path.cwd()))
    # What the SDK makes for itself stays its own: it has read these names before.
    for module in (
        "strands",
        "strands.session",
        "strands._context_manager",
        "strands.vended_plugins.context_offloader",
    ):
        importlib.import_module(module)
    for module, name, ours in replaced:
        result = ours if not _OWN else getattr(importlib.import_module(module), name)
        result.__init__ = _counted(result.__init__)
        result.__name__ = name  # the SDK keeps it in what it stores
        _replace(module, name, result)


def _openai_agents() -> None:
    """Replace `SQLiteSession` and `AdvancedSQLiteSession`, by the names that the SDK gives them out under."""
    from agents import SQLiteSession
    from agents.extensions.memory import AdvancedSQLiteSession

    from turnlog.integrations.openai_agents import TurnlogSession
    from turnlog.integrations.openai_agents_advanced import TurnlogAdvancedSession

    class InTurnlog(TurnlogSession):
        def __init__(
            self, session_id: str, db_path: Any = ":memory:", *tables: str, session_settings: Any = None, **more: Any
        ) -> None:
            super().__init__(_of_file(db_path), session_id, session_settings=session_settings)

        def close(self) -> None:
            self._log.close()

    class Advanced(TurnlogAdvancedSession):
        def __init__(
            self, *, session_id: str, db_path: Any = ":memory:", session_settings: Any = None, **more: Any
        ) -> None:
            super().__init__(_of_file(db_path), session_id, session_settings=session_settings)

        @property
        def _current_branch_id(self) -> str:
            """The branch that the SDK's tests look at in place of `list_branches`."""
            return self._find(None)[0]

        def close(self) -> None:
            self._log.close()

    for module, theirs, ours in (
        ("agents.memory", SQLiteSession, InTurnlog),
        ("agents.extensions.memory.advanced_sqlite_session", AdvancedSQLiteSession, Advanced),
    ):
        result: Any = theirs if _OWN else ours
        result.__init__ = _counted(result.__init__)
        _replace(module, theirs.__name__, result)


_SUITES = {
    "langgraph": _langgraph,
    "langgraph_sqlite": _langgraph_sqlite,
    "langgraph_store": _langgraph_store,
    "strands": _strands,
    "openai_agents": _openai_agents,
}


def pytest_configure(config: pytest.Config) -> None:
    _SUITES[os.environ["FRAMEWORK_SUITE"]]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep LangGraph's tests on the saver of SQLite, whose graphs run on several, and the SDK's tests that can end: some wait for
    private functions of `AdvancedSQLiteSession` by their names, for ever.
    """
    kept = [item for item in items if _KEPT.get(os.environ["FRAMEWORK_SUITE"], lambda _: True)(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept


def _saver_of(item: pytest.Item) -> str:
    params = item.callspec.params if hasattr(item, "callspec") else {}
    return str(params.get("sync_checkpointer") or params.get("async_checkpointer") or "")


def _waits_for_private(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and "_gate_worker" in item.function.__code__.co_names


_KEPT: Mapping[str, Callable[[pytest.Item], bool]] = {
    "langgraph": lambda item: _saver_of(item).startswith("sqlite"),
    "openai_agents": lambda item: not _waits_for_private(item),
}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Any:
    _made[0] = 0
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Any:
    item.user_properties.append((MADE, _made[0]))
    return (yield)
