"""Long work of the endpoints, in threads: the same work is done once for all readers, at most two at a time.

Work that no reader waits for any more is given up, and so is all work when the server ends. The threads are daemons:
the process does not wait for them.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, TypeAlias, TypeVar

from aiohttp import web

__all__ = ["Abandoned", "Check", "Jobs", "ReaderGone", "ServerStops", "never_abandon"]

T = TypeVar("T")
# Called by long loops now and then; raises Abandoned where the work should end.
Check: TypeAlias = Callable[[], None]

MOST_AT_ONCE = 2
LOOK_SECONDS = 0.25  # after so long it is asked again whether the reader is still there


class Abandoned(Exception):
    """Ends work for which no reader waits."""


class ReaderGone(web.HTTPException):
    """The browser closed the connection before the answer was there; no client gets this status."""

    status_code = 499


class ServerStops(web.HTTPException):
    """The server ends before the answer is there."""

    status_code = 503


def never_abandon() -> None:
    """Never abandon the work: for callers outside of a job."""


class _Job:
    """One piece of work, and how many wait for it."""

    def __init__(self, key: Hashable, work: Callable[[Check], Any]) -> None:
        self.key = key
        self.work = work
        self.done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.waiting = 0
        self.is_abandoned = False

    def check(self) -> None:
        """Raise Abandoned if the work should end."""
        if self.is_abandoned:
            raise Abandoned


class Jobs:
    """The work of one server. Used from one event loop."""

    def __init__(self, most: int = MOST_AT_ONCE) -> None:
        self._most = most
        self._jobs: dict[Hashable, _Job] = {}
        self._queue: deque[_Job] = deque()
        self._running: set[_Job] = set()
        self._is_stopped = False

    @property
    def count(self) -> int:
        """How many pieces of work run or wait."""
        return len(self._running) + len(self._queue)

    async def do(self, key: Hashable, work: Callable[[Check], T], request: web.Request | None = None) -> T:
        """Return what `work` returns; it runs in a thread. Work of the same key that is under way is shared.

        `work` is given a function that it calls in its loops. That function raises Abandoned once no caller waits, or
        once the server ends. A caller that is cancelled waits no more; nor does one whose `request` lost its reader.
        """
        if self._is_stopped:
            raise ServerStops(reason="the server is ending")
        job = self._jobs.get(key)
        if job is None:
            job = self._jobs[key] = _Job(key, work)
            self._queue.append(job)
            self._start()
        job.waiting += 1
        try:
            while not job.done.done():
                await asyncio.wait((job.done,), timeout=LOOK_SECONDS)
                if not job.done.done() and request is not None and request.transport is None:
                    raise ReaderGone(reason="the reader has gone")
            result: T = job.done.result()
            return result
        finally:
            job.waiting -= 1
            if not job.waiting and not job.done.done():
                self._abandon(job)

    def stop(self) -> None:
        """Give up all work, and take no more."""
        self._is_stopped = True
        for job in (*self._running, *self._queue):
            self._abandon(job)
            if not job.done.done():
                job.done.set_exception(ServerStops(reason="the server is ending"))
                job.done.exception()  # it is told to those who wait, if any
        self._queue.clear()

    def _abandon(self, job: _Job) -> None:
        job.is_abandoned = True
        if self._jobs.get(job.key) is job:
            del self._jobs[job.key]

    def _start(self) -> None:
        while self._queue and len(self._running) < self._most:
            job = self._queue.popleft()
            if not job.is_abandoned:
                self._running.add(job)
                loop = asyncio.get_running_loop()
                threading.Thread(target=self._run, args=(job, loop), name="inspector job", daemon=True).start()

    def _run(self, job: _Job, loop: asyncio.AbstractEventLoop) -> None:
        """Do the work, in a thread of its own."""
        result, error = None, None
        try:
            job.check()
            result = job.work(job.check)
        except BaseException as raised:  # noqa: BLE001  # those that wait for the work get it
            error = raised
        try:
            loop.call_soon_threadsafe(self._finish, job, result, error)
        except RuntimeError:
            pass  # the loop was closed meanwhile: the server has ended

    def _finish(self, job: _Job, result: Any, error: BaseException | None) -> None:
        self._running.discard(job)
        if self._jobs.get(job.key) is job:
            del self._jobs[job.key]
        if not job.done.done():
            if error is None:
                job.done.set_result(result)
            else:
                job.done.set_exception(error)
                job.done.exception()
        if not self._is_stopped:
            self._start()
