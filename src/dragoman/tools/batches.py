"""Runs several calls at once: up to the limit, and one at a time where tools share a concurrency class.

Each call is a task. Callbacks never overlap. When the batch ends, no task is left running. A call and its callbacks
share one context (`contextvars`), so that the tool sees what `on_started` sets.
"""

import asyncio
import contextvars
import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import msgspec

from .._finishing import finish
from .._loops import SharedLock
from ..errors import ErrorCode
from ..history.toolresults import HistoryToolCallResult
from ..message import ToolCall
from .definition import Start, ToolDefinition
from .toolcontext import ToolContext

__all__ = ["Batch", "ClassLocks", "MakeContext", "OnFinished", "OnStarted", "ReadyCall", "Release"]


class ReadyCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call whose arguments fit its schema, after coercion. `start` is the tool with its arguments bound.

    `ToolExecutor.bind` sets `start` once the call may run: binding calls the user's types.
    """

    call: ToolCall
    definition: ToolDefinition
    arguments: dict[str, Any]
    warnings: tuple[str, ...] = ()
    start: Start | None = None


MakeContext: TypeAlias = Callable[[ReadyCall], ToolContext[Any]]
OnStarted: TypeAlias = Callable[[ReadyCall], Coroutine[Any, Any, None]]
OnFinished: TypeAlias = Callable[[ReadyCall, HistoryToolCallResult], Coroutine[Any, Any, None]]
# Gives the concurrency class of a call back, from any thread.
Release: TypeAlias = Callable[[], None]
# Returns None for a call that was cancelled before it had a result. It calls `Release` once the tool has really ended.
_Run: TypeAlias = Callable[[ReadyCall, ToolContext[Any], Release], Coroutine[Any, Any, HistoryToolCallResult | None]]


class ClassLocks:
    """A lock for each concurrency class, shared by all runs of one agent.

    A call holds the lock of its class until its tool has really ended: a cancelled tool may go on in its thread.
    """

    def __init__(self) -> None:
        self._locks: dict[str, SharedLock] = {}
        self._stranded: dict[str, Callable[[], bool]] = {}  # by class: whether its newest tool will never give it back

    def of(self, name: str) -> SharedLock:
        """Return the lock of a class. A tool that can never give it back does not hold it any more."""
        lock = self._locks.setdefault(name, SharedLock())
        is_stranded = self._stranded.pop(name, None)
        if is_stranded is not None:
            if is_stranded():
                lock.give()
            else:
                self._stranded.setdefault(name, is_stranded)
        return lock

    def note_tool(self, name: str, is_stranded: Callable[[], bool]) -> None:
        """Remember how to ask whether the event loop of the tool that holds this class was closed before it ended."""
        if name:
            self._stranded[name] = is_stranded


class Batch:
    """The calls of one answer."""

    def __init__(
        self,
        calls: Sequence[ReadyCall],
        *,
        run: _Run,
        locks: ClassLocks,
        seconds: Callable[[ToolDefinition], float | None],
        limit: int,
        make_context: MakeContext,
        on_started: OnStarted | None,
        on_finished: OnFinished | None,
    ) -> None:
        self._calls = tuple(calls)
        self._run = run
        self._locks = locks
        self._seconds = seconds
        self._limit = limit
        self._make_context = make_context
        self._on_started = on_started
        self._on_finished = on_finished
        self._calling_back = asyncio.Lock()
        self._context = contextvars.copy_context()
        self._results: dict[int, HistoryToolCallResult] = {}
        self._running: dict[asyncio.Task[None], int] = {}
        self._in_tools: set[int] = set()  # which of them may be cancelled
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._error: BaseException | None = None  # what a callback has raised
        self._is_stopped = False
        self._ready: list[int] = []  # a heap: what may start, first call first
        self._waiting: dict[str, deque[int]] = {}  # by class: the calls behind the first of their class
        for index, ready in enumerate(self._calls):
            shared = ready.definition.concurrency
            if shared and shared in self._waiting:
                self._waiting[shared].append(index)
                continue
            if shared:
                self._waiting[shared] = deque()
            self._ready.append(index)

    async def finish(self) -> list[HistoryToolCallResult]:
        """Return the results in call order. If cancelled, stop the running tools and report the results so far."""
        self._begin_next()
        try:
            if self._running:
                await self._ended
        except asyncio.CancelledError as cancelled:
            with suppress(asyncio.CancelledError):  # a second one adds nothing
                await self._stop()
            raise cancelled from self._error  # the caller that cancelled waits for this one
        if self._error is not None:
            await self._stop()
            raise self._error
        return [self._results[index] for index in range(len(self._calls))]

    def _begin_next(self) -> None:
        """Begin the next call if the limit allows. It begins the one after it as soon as its own start is told."""
        if self._ready and len(self._running) < self._limit and not self._is_stopped:
            index = heapq.heappop(self._ready)
            task = asyncio.create_task(self._call(index), context=self._context.copy())
            self._running[task] = index
            task.add_done_callback(self._note_end)

    async def _call(self, index: int) -> None:
        """Call `on_started`, the tool, `on_finished`. Only the tool is ever cancelled, never a callback."""
        ready = self._calls[index]
        entered = await self._enter_class(index, ready)
        result: HistoryToolCallResult | None
        if isinstance(entered, HistoryToolCallResult):
            result = entered
        elif await self._tell_start(ready, entered):
            self._begin_next()
            self._in_tools.add(index)
            try:
                context = self._make_context(ready)
            except BaseException:
                entered()
                raise
            result = await self._run(ready, context, entered)
            self._in_tools.remove(index)
        else:
            return
        if result is None:
            raise asyncio.CancelledError
        self._results[index] = result
        if self._on_finished is not None:
            async with self._calling_back:
                if self._error is None:
                    await self._on_finished(ready, result)

    async def _enter_class(self, index: int, ready: ReadyCall) -> Release | HistoryToolCallResult:
        """Take the lock of the call's class and return what gives it back; a result if it is not free in time."""
        name = ready.definition.concurrency
        if not name:
            return _nothing
        lock = self._locks.of(name)
        if not lock.take():  # a tool of another run has it, or one that was cancelled and has not ended yet
            self._begin_next()
            self._in_tools.add(index)
            try:
                is_free = await lock.wait(self._seconds(ready.definition))
            finally:
                self._in_tools.remove(index)
            if not is_free:
                return _blocked(ready, self._seconds(ready.definition))
        return lock.give

    async def _tell_start(self, ready: ReadyCall, release: Release) -> bool:
        """Call `on_started` and return whether the tool may begin; if not, give its class back."""
        may_begin = False
        try:
            if self._on_started is not None:
                async with self._calling_back:
                    if not self._is_stopped:
                        await self._on_started(ready)
            may_begin = not self._is_stopped
        finally:
            if not may_begin:
                release()
        return may_begin

    def _note_end(self, task: asyncio.Task[None]) -> None:
        index = self._running.pop(task)
        if task.cancelled():  # by the batch, or by code that cancels every task of the loop, this batch too
            self._ended.cancel()
            return
        if error := task.exception():
            self._error, self._is_stopped = self._error or error, True
        shared = self._calls[index].definition.concurrency
        if self._waiting.get(shared):
            heapq.heappush(self._ready, self._waiting[shared].popleft())
        else:
            self._waiting.pop(shared, None)
        self._begin_next()
        if (self._is_stopped or not self._running) and not self._ended.done():
            self._ended.set_result(None)

    async def _stop(self) -> None:
        """Cancel the tools that run, and wait until all calls have ended, also if the batch is cancelled meanwhile."""
        self._is_stopped = True
        for task, index in self._running.items():
            if index in self._in_tools:
                task.cancel()
        if self._running:
            await finish(asyncio.wait(set(self._running)))  # as it is now: a task that ends takes itself out


def _nothing() -> None:
    """Give back no class."""


def _blocked(ready: ReadyCall, seconds: float | None) -> HistoryToolCallResult:
    text = (
        f"{ready.call.tool_name} was not run: another tool of its concurrency class {ready.definition.concurrency!r} "
        f"has not ended for {seconds:g} seconds and may still be running. Call it again later."
    )
    return HistoryToolCallResult.of_text(ready.call, text, error_code=ErrorCode.TOOL_INTERRUPTED)
