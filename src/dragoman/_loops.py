"""A lock and a signal for tasks of any event loop, in any thread. Those of asyncio belong to one event loop."""

import asyncio
import threading
from collections import deque
from types import TracebackType

__all__ = ["SharedLock", "Signal"]

CLOSED_POLL_SECONDS = 0.25  # between two checks whether an event loop was closed: it tells nobody


class _Waiter:
    """A task that waits: the future that wakes it, and whether the lock is its own already."""

    __slots__ = ("future", "is_owner")

    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_owner = False

    def wake(self) -> bool:
        """Wake the task, from any thread; return False if its event loop is closed."""
        try:
            self.future.get_loop().call_soon_threadsafe(_set, self.future)
        except RuntimeError:
            return False
        return True


class SharedLock:
    """A lock for tasks of any event loop. It is given in the order in which they asked."""

    __slots__ = ("_guard", "_is_taken", "_waiting")

    def __init__(self) -> None:
        # The same thread may take it again: what waited in a closed event loop is cleaned up by the garbage collector.
        self._guard = threading.RLock()
        self._is_taken = False
        self._waiting: deque[_Waiter] = deque()

    def take(self) -> bool:
        """Take the lock if it is free; return whether it was."""
        with self._guard:
            was_free, self._is_taken = not self._is_taken, True
        return was_free

    async def wait(self, seconds: float | None = None) -> bool:
        """Take the lock once those who asked before have given it back; return False if that takes longer."""
        waiter = _Waiter()
        with self._guard:
            if not self._is_taken:
                self._is_taken = True
                return True
            self._waiting.append(waiter)
        try:
            async with asyncio.timeout(seconds):
                await waiter.future
        except BaseException as error:
            with self._guard:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)
                if waiter.is_owner:
                    self.give()
            if isinstance(error, TimeoutError):
                return False
            raise
        return True

    def give(self) -> None:
        """Give the lock to the next task that waits; if none does, it is free. Any thread may."""
        with self._guard:
            while self._waiting:
                waiter = self._waiting.popleft()
                waiter.is_owner = waiter.wake()
                if waiter.is_owner:
                    return
            self._is_taken = False

    async def __aenter__(self) -> None:
        if not self.take():
            await self.wait()

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.give()


class Signal:
    """Something that happens once. Tasks of any event loop may wait for it."""

    __slots__ = ("_guard", "_waiting", "is_set")

    def __init__(self) -> None:
        self._guard = threading.RLock()
        self._waiting: list[_Waiter] = []
        self.is_set = False

    def set(self) -> None:
        """Wake all that wait; a task that asks later does not wait. Any thread may."""
        with self._guard:
            self.is_set = True
            waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.wake()

    async def wait(self, setter: asyncio.AbstractEventLoop | None = None) -> None:
        """Return once it is set, or once `setter`, the event loop whose task sets it, is closed."""
        waiter = _Waiter()
        with self._guard:
            if self.is_set:
                return
            self._waiting.append(waiter)
        try:
            if setter is None or setter is waiter.future.get_loop():
                await waiter.future
            while not (waiter.future.done() or setter is None or setter.is_closed()):
                await asyncio.wait((waiter.future,), timeout=CLOSED_POLL_SECONDS)
        finally:
            with self._guard:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
