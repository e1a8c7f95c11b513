"""Changes to a SQLite file, one transaction at a time: whatever waits is written together, so one sync serves all.

A job is an append, or a function of the connection that refuses by StoreError or InvalidValue before it writes. Jobs
are done by one thread. But the way to a thread and back takes as long as the sync of a fast disk, so appends are
written by the event loop itself while that is usually quick and nothing else is under way: single entries of one
session as they come, all others at the end of the loop's turn, together.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import DragomanError
from .protocol import Head
from .refusals import store_closed
from .sql_leases import Claim
from .sqlite_appending import Appender
from .sqlite_files import FileWatch

if TYPE_CHECKING:
    import asyncio

    from .sqlite_database import SQLiteDatabase

__all__ = ["Writer"]

LOOP_SECONDS = 0.002  # how long a transaction may usually keep the event loop from its other work
TURN_SECONDS = 0.005  # how long those of one session may together
NEWEST_SHARE = 0.2  # of the newest transaction in what is usual

_Result = TypeVar("_Result")


class _Job:
    """Who waits for something, and what came of it."""

    __slots__ = ("error", "future", "result")

    def __init__(self, future: "asyncio.Future[Any]") -> None:
        self.future = future
        self.result: Any = None
        self.error: BaseException | None = None

    def settle(self) -> None:
        """Tell who waits; in the loop's own thread."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class _Append(_Job):
    """Entries for a session."""

    __slots__ = ("claim", "entries", "serial", "session_id")

    def __init__(
        self, future: "asyncio.Future[Head]", session_id: str, entries: Sequence[bytes], serial: int, claim: Claim
    ) -> None:
        super().__init__(future)
        self.session_id, self.entries, self.serial, self.claim = session_id, entries, serial, claim


class _Change(_Job):
    """Anything else; outside of a transaction if it is to be done alone."""

    __slots__ = ("is_alone", "work")

    def __init__(
        self, future: "asyncio.Future[Any]", work: "Callable[[SQLiteDatabase], Any]", *, is_alone: bool
    ) -> None:
        super().__init__(future)
        self.work = work
        self.is_alone = is_alone


class _Turn:
    """What an event loop asks for before it does anything else."""

    __slots__ = ("jobs", "session_id", "until")

    def __init__(self) -> None:
        self.jobs: list[_Job] = []
        self.session_id: str | None = None  # whose appends were written at once
        self.until = time.perf_counter() + TURN_SECONDS


class Writer:
    """The one who writes. `connect` and `translate` are called in its thread. `connect` also gives the watch over the
    files: nothing is acknowledged that is written to files which no one will open.

    The connection waits for other processes' locks only there: `busy_seconds` long.
    """

    def __init__(
        self,
        connect: "Callable[[], tuple[SQLiteDatabase, FileWatch]]",
        translate: Callable[[Exception], Exception],
        *,
        busy_seconds: float,
    ) -> None:
        import asyncio

        self._running_loop = asyncio.get_running_loop
        self._connect = connect
        self._translate = translate
        self._busy_seconds = busy_seconds
        self._queue: queue.SimpleQueue[list[_Job] | None] = queue.SimpleQueue()
        self._turns: dict[asyncio.AbstractEventLoop, _Turn] = {}
        self._thread: threading.Thread | None = None
        self._connection: SQLiteDatabase | None = None
        self._watch: FileWatch | None = None
        self._appender: Appender | None = None
        self._lock = threading.Lock()
        self._handed_over = 0  # batches that the thread has not finished
        self._usual_seconds = 0.0
        self._are_several = False  # whether sessions append at the same time
        self._is_closed = False

    def append(
        self, session_id: str, entries: Sequence[bytes], serial: int, claim: Claim
    ) -> "Head | asyncio.Future[Head]":
        """Return the head that the entries lead to if they are on the disk already; else a future of it."""
        loop = self._running_loop()
        turn = self._turns.get(loop)
        if turn is None:
            turn = self._begin_turn(loop)
        if not (turn.jobs or self._are_several) and len(entries) == 1 and turn.session_id in (None, session_id):
            head = self._append_at_once(turn, session_id, entries[0], serial, claim)
            if head is not None:
                return head
        future: asyncio.Future[Head] = loop.create_future()
        turn.jobs.append(_Append(future, session_id, entries, serial, claim))
        return future

    async def run(self, work: "Callable[[SQLiteDatabase], _Result]", *, alone: bool = False) -> _Result:
        """Return what `work` returns, when it is on the disk."""
        loop = self._running_loop()
        turn = self._turns.get(loop) or self._begin_turn(loop)
        future: asyncio.Future[_Result] = loop.create_future()
        turn.jobs.append(_Change(future, work, is_alone=alone))
        return await future

    def close(self) -> None:
        """Finish what was handed over, close the connection and end the thread. Blocks."""
        with self._lock:
            self._is_closed = True
            thread = self._thread
        if thread is not None:
            self._queue.put(None)
            thread.join()

    def _begin_turn(self, loop: "asyncio.AbstractEventLoop") -> _Turn:
        turn = self._turns[loop] = _Turn()
        loop.call_soon(self._end_turn, loop)
        return turn

    def _append_at_once(self, turn: _Turn, session_id: str, entry: bytes, serial: int, claim: Claim) -> Head | None:
        """Write one session's next entry, which nobody else's should wait for; None if that is not to be done here."""
        begin, appender, watch = time.perf_counter(), self._appender, self._watch
        with self._lock:
            if begin > turn.until or appender is None or watch is None or not self._is_quick:
                return None
            if not watch.is_log_whole:
                return None
            try:
                head = appender.append_one(session_id, entry, serial, claim)
                is_kept = watch.is_as_before()
            except Exception:  # noqa: BLE001  # the thread tries again and finds out what it is
                self._undo()
                return None
            if not is_kept:
                self._undo()
                return None
            if head is not None:
                turn.session_id = session_id
                self._note_seconds(time.perf_counter() - begin)
            return head

    def _end_turn(self, loop: "asyncio.AbstractEventLoop") -> None:
        """Hand over all that was asked for in one turn of the event loop together, so that one sync serves it."""
        jobs = [job for job in self._turns.pop(loop).jobs if not job.future.cancelled()]
        if not jobs:
            return
        self._are_several = len(jobs) > 1
        with self._lock:
            if self._is_closed:
                self._settle(jobs, store_closed())
                return
            if all(isinstance(job, _Append) for job in jobs) and self._wrote_here(jobs):
                _settle_all(jobs)
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="dragoman-store", daemon=True)
                self._thread.start()
            self._handed_over += 1
            self._queue.put(jobs)

    @property
    def _is_quick(self) -> bool:
        """Whether the event loop may write by itself: that is usually quick, and the thread is idle. Needs the lock."""
        if self._is_closed or self._handed_over or self._connection is None:
            return False
        return self._usual_seconds <= LOOP_SECONDS

    def _wrote_here(self, jobs: Sequence[_Job]) -> bool:
        """Write appends in the event loop, if that is quick; whatever fails is left to the thread."""
        watch = self._watch
        if watch is None or not (self._is_quick and watch.is_log_whole):
            return False
        try:
            self._write(jobs)
            is_kept = watch.is_as_before()
        except Exception:  # noqa: BLE001  # the thread tries again and finds out what it is
            is_kept = False
        if not is_kept:
            self._undo()
        return is_kept

    # ------------------------------------------------------------ in the thread

    def _work(self) -> None:
        is_open = True
        while is_open:
            taken = self._queue.get()
            jobs: list[_Job] = []
            batches = 0
            while True:
                if taken is None:
                    is_open = False
                else:
                    jobs += taken
                    batches += 1
                try:
                    taken = self._queue.get_nowait()
                except queue.Empty:
                    break
            try:
                self._perform([job for job in jobs if not job.future.cancelled()])
            except Exception as error:  # noqa: BLE001  # a mistake of ours must not leave anybody waiting
                self._settle(jobs, self._translate(error))
            with self._lock:
                self._handed_over -= batches
        if self._connection is not None:
            self._connection.close()
        if self._watch is not None:
            self._watch.close()

    def _perform(self, jobs: list[_Job]) -> None:
        try:
            if self._connection is None:
                self._connection, self._watch = self._connect()
                self._appender = Appender(self._connection)
        except Exception as error:  # noqa: BLE001  # whoever waits must hear of it, whatever it is
            self._settle(jobs, self._translate(error))
            return
        self._connection.execute(f"PRAGMA busy_timeout = {int(self._busy_seconds * 1000)}")
        together: list[_Job] = []
        for job in jobs:
            if isinstance(job, _Change) and job.is_alone:
                self._commit(together)
                together = []
                self._do_alone(job)
            else:
                together.append(job)
        self._commit(together)
        self._connection.execute("PRAGMA busy_timeout = 0")  # the event loop never waits for others

    def _commit(self, jobs: list[_Job], *, is_second_try: bool = False) -> None:
        """Do the jobs in one transaction; if that fails, each in its own, so that none fails for another's sake."""
        import sqlite3

        if not jobs:
            return
        watch = self._watch
        assert watch is not None
        try:
            if not watch.is_log_whole:
                watch.require_sound()
            self._write(jobs)
            watch.require_sound()
        except Exception as error:  # noqa: BLE001  # whoever waits must hear of it, whatever it is
            self._undo()
            if isinstance(error, sqlite3.IntegrityError) and not is_second_try:
                self._commit(jobs, is_second_try=True)  # another process has appended: look anew
            elif len(jobs) > 1:
                for job in jobs:
                    self._commit([job])
            else:
                self._settle(jobs, watch.find_loss() or self._translate(error))
            return
        self._settle(jobs)

    def _write(self, jobs: Sequence[_Job]) -> None:
        """Do the jobs in one transaction, and note how long that took."""
        connection, appender = self._tools()
        begin = time.perf_counter()
        connection.execute("BEGIN IMMEDIATE")
        for job in jobs:
            if isinstance(job, _Append):
                _append(appender, job)
            else:
                self._change(connection, appender, job)
        appender.flush()
        connection.execute("COMMIT")
        self._note_seconds(time.perf_counter() - begin)

    def _note_seconds(self, seconds: float) -> None:
        self._usual_seconds += (seconds - self._usual_seconds) * NEWEST_SHARE

    def _undo(self) -> None:
        connection, appender = self._tools()
        appender.forget()
        if connection.in_transaction:
            connection.execute("ROLLBACK")

    def _change(self, connection: "SQLiteDatabase", appender: Appender, job: _Job) -> None:
        """Do one change of several; a refusal that has written nothing is its own affair."""
        assert isinstance(job, _Change)
        appender.flush()
        before = connection.total_changes
        try:
            job.result, job.error = job.work(connection), None
        except DragomanError as error:
            if connection.total_changes != before:
                raise
            job.error = error

    def _do_alone(self, job: _Change) -> None:
        connection, appender = self._tools()
        appender.forget()
        try:
            job.result = job.work(connection)
        except Exception as error:  # noqa: BLE001  # whoever waits must hear of it, whatever it is
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            job.error = self._translate(error)
        self._settle([job])

    def _tools(self) -> "tuple[SQLiteDatabase, Appender]":
        assert self._connection is not None
        assert self._appender is not None
        return self._connection, self._appender

    def _settle(self, jobs: list[_Job], error: BaseException | None = None) -> None:
        loops: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
        for job in jobs:
            job.error = error or job.error
            loops.setdefault(job.future.get_loop(), []).append(job)
        for loop, settled in loops.items():
            try:
                loop.call_soon_threadsafe(_settle_all, settled)
            except RuntimeError:  # the loop is closed: nobody waits there
                pass


def _append(appender: Appender, job: _Append) -> None:
    try:
        job.result, job.error = appender.append(job.session_id, job.entries, job.serial, job.claim), None
    except DragomanError as error:
        job.error = error


def _settle_all(jobs: Iterable[_Job]) -> None:
    for job in jobs:
        job.settle()
