"""Runs one call of a tool, in a task or in a thread, until it ends, takes too long or is stopped.

Never raises what the tool raises. A thread cannot be stopped, so it is a daemon: one that hangs never keeps the
interpreter from exiting.
"""

import asyncio
import contextvars
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeAlias

from .._finishing import finish
from .containing import current_task, must_pass
from .definition import ToolDefinition
from .results import ResultContent, is_large, read_returned

__all__ = ["Abandoned", "TimeLimit", "ToolEnd", "ToolRun"]

# Tasks of tools that did not end when they were cancelled; held, because asyncio itself holds them only weakly.
Abandoned: TypeAlias = set[asyncio.Task[Any]]


class _Awaitable(NamedTuple):
    """An awaitable that a function returned in a thread, to be awaited in the event loop."""

    value: Awaitable[Any]


_LEAST_WAIT = 0.05  # seconds between two looks at a limit that is paused


class TimeLimit:
    """How long a call may take from now on; None is no limit. Time in which it waits for an answer does not count."""

    def __init__(self, seconds: float | None) -> None:
        self._ends = None if seconds is None else time.monotonic() + seconds
        self._pauses = 0
        self._paused_at = 0.0

    @property
    def seconds_left(self) -> float | None:
        """How much longer the call may take; while it is paused, that of the moment when the pause began."""
        if self._ends is None:
            return None
        return max(0.0, self._ends - (self._paused_at if self._pauses else time.monotonic()))

    @property
    def has_passed(self) -> bool:
        """Whether the call has taken too long."""
        return not self._pauses and self.seconds_left == 0.0

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count the time of this block."""
        if not self._pauses:
            self._paused_at = time.monotonic()
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            if self._ends is not None and not self._pauses:
                self._ends += time.monotonic() - self._paused_at


# What a tool returned, or what it raised.
ToolEnd: TypeAlias = ResultContent | BaseException


class ToolRun:
    """A call under way; it begins when it is made, inside a running event loop.

    `on_end` is called once nothing of the tool runs any more, also long after it was abandoned; from any thread.
    """

    def __init__(
        self,
        definition: ToolDefinition,
        start: Callable[[], Any | Awaitable[Any]],
        *,
        abandoned: Abandoned,
        before_start: Callable[[], None] | None = None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._definition = definition
        self._start = start
        self._abandoned = abandoned
        self._before_start = before_start
        self._on_end = on_end
        self._parts = 1  # the task, and the thread while it runs
        self._counting = threading.Lock()
        self._task = asyncio.create_task(self._call(), name=f"tool {definition.name}")
        self._task.add_done_callback(self._end_part)

    async def wait(self, limit: TimeLimit) -> ToolEnd | None:
        """Return how the tool ended, or None if it did not within that time."""
        seconds = limit.seconds_left
        while not self._task.done():
            await asyncio.wait({self._task}, timeout=seconds)
            if limit.has_passed:
                break
            seconds = None if limit.seconds_left is None else max(_LEAST_WAIT, limit.seconds_left)
        return self.end

    @property
    def end(self) -> ToolEnd | None:
        """How the tool ended, or None while it has not."""
        if not self._task.done():
            return None
        if self._task.cancelled():  # before its first step, or by code that cancels every task
            return asyncio.CancelledError()
        return self._task.result()

    @property
    def is_stranded(self) -> bool:
        """Whether its event loop was closed before it ended, and no thread of it runs: it never calls `on_end`."""
        with self._counting:
            return self._parts == 1 and not self._task.done() and self._task.get_loop().is_closed()

    async def stop(self, grace: float) -> bool:
        """Cancel the tool and give it that many seconds to end; return whether it did."""
        self._task.cancel()
        try:
            await asyncio.wait({self._task}, timeout=grace)
        finally:
            if not self._task.done():
                self._abandoned.add(self._task)
                self._task.add_done_callback(self._abandoned.discard)
        return self._task.done()

    async def _call(self) -> ToolEnd:
        task = current_task()
        if self._before_start is not None:
            self._before_start()  # an exception here is not the tool's: it has not started
        try:
            if self._definition.is_async:
                return await _read(await self._start())
            end = await self._start_thread()
            if isinstance(end, _Awaitable):
                return await _read(await end.value)
            return end
        except BaseException as error:  # a tool may raise anything, SystemExit too: the run goes on
            if not isinstance(error, asyncio.CancelledError) and must_pass(error, task):
                raise
            return error

    def _start_thread(self) -> asyncio.Future[ToolEnd | _Awaitable]:
        """Begin the function in a thread of its own; the future has what came of it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[ToolEnd | _Awaitable] = loop.create_future()
        copied = contextvars.copy_context()

        def deliver(end: ToolEnd | _Awaitable) -> None:
            if not future.done():
                future.set_result(end)
            elif isinstance(end, _Awaitable) and inspect.iscoroutine(end.value):
                end.value.close()  # the call has ended meanwhile

        def run() -> None:
            end = copied.run(self._call_plainly)
            self._end_part()
            try:
                loop.call_soon_threadsafe(deliver, end)
            except RuntimeError:  # the loop has ended while the tool was running
                pass

        thread = threading.Thread(target=run, name=f"tool {self._definition.name}", daemon=True)
        with self._counting:
            self._parts += 1
        try:
            thread.start()
        except BaseException:
            self._end_part()
            raise
        return future

    def _end_part(self, _task: object = None) -> None:
        """Note that the task or the thread has ended; call `on_end` after both."""
        with self._counting:
            self._parts -= 1
            has_ended = not self._parts
        if has_ended:
            self._on_end()

    def _call_plainly(self) -> ToolEnd | _Awaitable:
        try:
            value = self._start()
            if inspect.isawaitable(value):
                return _Awaitable(value)
            return read_returned(value)
        except BaseException as error:  # noqa: BLE001  # nothing may be lost in a thread
            return error


async def _read(value: Any) -> ResultContent:
    """What the tool returned, read in a thread where that would keep the event loop busy."""
    if not is_large(value):
        return read_returned(value)
    reading = asyncio.ensure_future(asyncio.to_thread(read_returned, value))
    with suppress(asyncio.CancelledError):  # the tool has done its work: what it said is kept
        await finish(reading)
    return reading.result()
