"""A lock for each session that somebody works on."""

import asyncio
from weakref import WeakValueDictionary

__all__ = ["SessionLocks"]


class SessionLocks:
    """Locks by session. One that is neither held nor waited for is forgotten: ids come from addresses."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __getitem__(self, session_id: str) -> asyncio.Lock:
        lock = self._locks.get(session_id)
        if lock is None:
            lock = self._locks[session_id] = asyncio.Lock()
        return lock

    def __len__(self) -> int:
        return len(self._locks)
