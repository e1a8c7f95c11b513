"""Where sessions are kept: the `SessionStore` protocol, stores in memory, in a SQLite file and in PostgreSQL, and
`Session`.

Everything is loaded when it is first asked for, SQLite, psycopg and asyncio when they are first used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .lazy import LazyEntries
    from .memory import MemoryStore
    from .postgres import PostgresStore
    from .protocol import (
        AppendConflict,
        ForkPoint,
        Head,
        OpenedSession,
        SessionInfo,
        SessionPage,
        SessionStore,
        Snapshot,
        Tombstone,
        VerifyReport,
    )
    from .session import BranchComparison, Session, compare_branches, open_session, start_session
    from .sqlite import SQLiteStore

__all__ = [
    "AppendConflict",
    "BranchComparison",
    "ForkPoint",
    "Head",
    "LazyEntries",
    "MemoryStore",
    "OpenedSession",
    "PostgresStore",
    "SQLiteStore",
    "Session",
    "SessionInfo",
    "SessionPage",
    "SessionStore",
    "Snapshot",
    "Tombstone",
    "VerifyReport",
    "compare_branches",
    "open_session",
    "start_session",
]

if not TYPE_CHECKING:
    _MODULES = ("protocol", "lazy", "memory", "session", "sqlite", "postgres")

    def __getattr__(name: str) -> object:
        """Load a name when it is first asked for."""
        if name in __all__:
            import importlib

            for module in _MODULES:
                found = importlib.import_module(f".{module}", __name__)
                if name in found.__all__:
                    globals()[name] = getattr(found, name)
                    return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        """Return what is there, loaded or not."""
        return sorted({*globals(), *__all__})
