"""Where sessions are kept: the `SessionStore` protocol, stores in memory, in a SQLite file and in PostgreSQL, and
`Session`.

Everything is loaded when it is first asked for, SQLite and psycopg when they are first used.
"""

from typing import TYPE_CHECKING

from .._lazynames import lazy_names

if TYPE_CHECKING:
    from .answers import AnswerDeltas, AnswerText, deltas_after
    from .holding import SessionHold
    from .lazy import LazyEntries
    from .memory import MemoryStore
    from .positions import Followed, FollowedDelta, FollowedEntry, Position
    from .postgres import PostgresStore
    from .protocol import (
        AppendConflict,
        ForkPoint,
        Head,
        Lease,
        LeaseLost,
        LeaseOwner,
        Mark,
        OpenedSession,
        RequestPage,
        RunRequest,
        SessionBusy,
        SessionInfo,
        SessionPage,
        SessionStore,
        Snapshot,
        Tombstone,
        VerifyReport,
    )
    from .requests import RequestKeyTaken
    from .session import BranchComparison, Session, compare_branches, open_session, start_session
    from .sqlite import SQLiteStore
    from .tails import AnswerTail

__all__ = [
    "AnswerDeltas",
    "AnswerTail",
    "AnswerText",
    "AppendConflict",
    "BranchComparison",
    "Followed",
    "FollowedDelta",
    "FollowedEntry",
    "ForkPoint",
    "Head",
    "LazyEntries",
    "Lease",
    "LeaseLost",
    "LeaseOwner",
    "Mark",
    "MemoryStore",
    "OpenedSession",
    "Position",
    "PostgresStore",
    "RequestKeyTaken",
    "RequestPage",
    "RunRequest",
    "SQLiteStore",
    "Session",
    "SessionBusy",
    "SessionHold",
    "SessionInfo",
    "SessionPage",
    "SessionStore",
    "Snapshot",
    "Tombstone",
    "VerifyReport",
    "compare_branches",
    "deltas_after",
    "open_session",
    "start_session",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        __all__,
        modules=(
            "protocol",
            "requests",
            "lazy",
            "memory",
            "session",
            "holding",
            "sqlite",
            "postgres",
            "positions",
            "answers",
            "tails",
        ),
    )
