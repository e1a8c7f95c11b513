"""Changes to a SQLite file, one transaction at a time: jobs that wait are written together, so one sync serves all.

A job is an append, or a change that refuses by StoreError or InvalidValue before it writes. What an event loop asks for
in one iteration is one batch. A thread does the batches. But the way to a thread and back takes as long as the sync of
a fast disk, so the event loop writes a batch itself, while that is usually quick and the thread is idle. A job that
needs transactions of its own, such as erasing, always goes to the thread.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import DragomanError, running_loop
from .protocol import Head
from .refusals import store_closed
from .requests import Change
from .sql_leases import Claim
from .sqlite_appending import Appender
from .sqlite_files import FileWatch

if TYPE_CHECKING:
    from .sqlite_database import SQLiteDatabase

__all__ = ["Writer"]

LOOP_SECONDS = 0.002  # seconds that a usual transaction may block the event loop
NEWEST_SHARE = 0.2  # weight of the newest transaction in the average

_Result = TypeVar("_Result")


class _Job:
    """Something to write, and the future of the caller that waits for it.

    A job that is `alone` begins and ends its own transactions.
    """

    __slots__ = ("error", "future", "is_alone", "result", "work")

    def __init__(self, future: asyncio.Future[Any], work: Callable[[Appender], Any], *, is_alone: bool) -> None:
        self.future = future
        self.work = work
        self.is_alone = is_alone
        self.result: Any = None
        self.error: BaseException | None = None

    def settle(self) -> None:
        """Wake the caller; in the thread of its event loop."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class Writer:
    """The only one of a store that writes. It calls `connect` and `translate` in its thread.

    `connect` also returns the watch over the files: the writer acknowledges nothing that went to files which the next
    process will not open. Only the thread waits for other processes' locks, for `busy_seconds`.
    """

    def __init__(
        self,
        connect: "Callable[[], tuple[SQLiteDatabase, FileWatch]]",
        translate: Callable[[Exception], Exception],
        *,
        busy_seconds: float,
    ) -> None:
        self._connect = connect
        self._translate = translate
        self._busy_seconds = busy_seconds
        self._asked: dict[asyncio.AbstractEventLoop, list[_Job]] = {}  # in the current iteration of each event loop
        self._queue: queue.SimpleQueue[list[_Job] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._opened: tuple[Appender, FileWatch] | None = None
        self._lock = threading.Lock()
        self._handed_over = 0  # batches that the thread has not finished
        self._usual_seconds = 0.0
        self._is_closed = False

    def append(
        self, session_id: str, entries: Sequence[bytes], serial: int, claim: Claim, changes: Sequence[Change] = ()
    ) -> asyncio.Future[Head]:
        """Return the head that the entries lead to, when they are on the disk."""
        return self._ask(lambda appender: appender.append(session_id, entries, serial, claim, changes))

    def run(self, work: "Callable[[SQLiteDatabase], _Result]", *, alone: bool = False) -> asyncio.Future[_Result]:
        """Return what `work` returns, when it is on the disk."""
        return self._ask(lambda appender: work(appender.connection), is_alone=alone)

    def close(self) -> None:
        """Finish what was handed over, close the connection and end the thread. Blocks."""
        with self._lock:
            self._is_closed = True
            thread = self._thread
        if thread is not None:
            self._queue.put(None)
            thread.join()

    # ------------------------------------------------------------ in the event loop

    def _ask(self, work: Callable[[Appender], _Result], *, is_alone: bool = False) -> asyncio.Future[_Result]:
        loop = running_loop()
        future: asyncio.Future[_Result] = loop.create_future()
        asked = self._asked.get(loop)
        if asked is None:
            asked = self._asked[loop] = []
            loop.call_soon(self._end_iteration, loop)
        asked.append(_Job(future, work, is_alone=is_alone))
        return future

    def _end_iteration(self, loop: asyncio.AbstractEventLoop) -> None:
        """Write all that was asked for in one iteration of the event loop together, here or in the thread."""
        jobs = [job for job in self._asked.pop(loop) if not job.future.cancelled()]
        if not jobs:
            return
        with self._lock:
            if self._is_closed:
                self._settle(jobs, store_closed())
            elif self._commit_in_loop(jobs):
                _settle_all(jobs)
            else:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._work, name="dragoman-store", daemon=True)
                    self._thread.start()
                self._handed_over += 1
                self._queue.put(jobs)

    def _commit_in_loop(self, jobs: Sequence[_Job]) -> bool:
        """Return whether the jobs are written here, if that is quick. The thread tries again what fails here."""
        if self._opened is None or self._handed_over or self._usual_seconds > LOOP_SECONDS:
            return False
        appender, watch = self._opened
        if not watch.is_log_whole or any(job.is_alone for job in jobs):
            return False
        try:
            self._write(appender, jobs)
            is_kept = watch.is_as_before()
        except Exception:  # noqa: BLE001  # the thread finds out what it is
            is_kept = False
        if not is_kept:
            appender.roll_back()
        return is_kept

    # ------------------------------------------------------------ in the thread

    def _work(self) -> None:
        is_open = True
        while is_open:
            batches = [self._queue.get()]
            while not self._queue.empty():
                batches.append(self._queue.get())
            is_open = None not in batches
            jobs = [job for batch in batches if batch for job in batch if not job.future.cancelled()]
            try:
                self._perform(jobs)
            except Exception as error:  # noqa: BLE001  # every caller must be told, whatever it is
                self._settle(jobs, self._translate(error))
            with self._lock:
                self._handed_over -= sum(batch is not None for batch in batches)
        if self._opened is not None:
            appender, watch = self._opened
            appender.connection.close()
            watch.close()

    def _perform(self, jobs: list[_Job]) -> None:
        if self._opened is None:
            connection, watch = self._connect()
            self._opened = Appender(connection), watch
        appender, watch = self._opened
        appender.connection.execute(f"PRAGMA busy_timeout = {int(self._busy_seconds * 1000)}")
        together: list[_Job] = []
        for job in jobs:
            if job.is_alone:
                self._commit(appender, watch, together)
                together = []
                self._do_alone(appender, job)
            else:
                together.append(job)
        self._commit(appender, watch, together)
        appender.connection.execute("PRAGMA busy_timeout = 0")  # the event loop never waits for others

    def _commit(self, appender: Appender, watch: FileWatch, jobs: list[_Job], *, is_second_try: bool = False) -> None:
        """Do the jobs in one transaction; if that fails, each in its own, so that none fails because of another."""
        import sqlite3

        if not jobs:
            return
        try:
            if not watch.is_log_whole:
                watch.require_sound()
            self._write(appender, jobs)
            watch.require_sound()
        except Exception as error:  # noqa: BLE001  # every caller must be told, whatever it is
            appender.roll_back()
            if isinstance(error, sqlite3.IntegrityError) and not is_second_try:
                self._commit(appender, watch, jobs, is_second_try=True)  # another process has appended: look anew
            elif len(jobs) > 1:
                for job in jobs:
                    self._commit(appender, watch, [job])
            else:
                self._settle(jobs, watch.find_loss() or self._translate(error))
            return
        self._settle(jobs)

    def _write(self, appender: Appender, jobs: Sequence[_Job]) -> None:
        """Do the jobs in one transaction, and note how long that took.

        A refusal that has written nothing concerns its own caller alone.
        """
        connection = appender.connection
        begin = time.perf_counter()
        connection.execute("BEGIN IMMEDIATE")
        for job in jobs:
            before = connection.total_changes
            try:
                job.result, job.error = job.work(appender), None
            except DragomanError as error:
                if connection.total_changes != before:
                    raise
                job.error = error
        connection.execute("COMMIT")
        self._usual_seconds += (time.perf_counter() - begin - self._usual_seconds) * NEWEST_SHARE

    def _do_alone(self, appender: Appender, job: _Job) -> None:
        appender.forget()
        try:
            job.result = job.work(appender)
        except Exception as error:  # noqa: BLE001  # the caller must be told, whatever it is
            appender.roll_back()
            job.error = self._translate(error)
        self._settle([job])

    def _settle(self, jobs: Iterable[_Job], error: BaseException | None = None) -> None:
        loops: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
        for job in jobs:
            job.error = error or job.error
            loops.setdefault(job.future.get_loop(), []).append(job)
        for loop, settled in loops.items():
            try:
                loop.call_soon_threadsafe(_settle_all, settled)
            except RuntimeError:  # the loop is closed, and no caller waits there
                pass


def _settle_all(jobs: Iterable[_Job]) -> None:
    for job in jobs:
        job.settle()
