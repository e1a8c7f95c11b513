"""Several calls side by side: as many as the limit allows, one at a time where they share a class, in call order.

One coroutine decides and calls back, so that callbacks never overlap; the calls are tasks of their own. None of them
is left running when it ends, however it ends. A call and its callbacks share one context (`contextvars`): what is set
when it starts, the tool sees.
"""

import contextvars
import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from ..history.toolresults import HistoryToolCallResult, ToolCallRequest
from .definition import ToolDefinition
from .toolcontext import ToolContext

if TYPE_CHECKING:
    import asyncio

__all__ = ["Batch", "MakeContext", "OnFinished", "OnStarted", "ReadyCall"]


class ReadyCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that can be run: its tool, and the arguments after what was unambiguous in them has been put right."""

    call: ToolCallRequest
    definition: ToolDefinition
    arguments: dict[str, Any]
    warnings: tuple[str, ...] = ()


MakeContext: TypeAlias = Callable[[ReadyCall], ToolContext[Any]]
OnStarted: TypeAlias = Callable[[ReadyCall], Coroutine[Any, Any, None]]
OnFinished: TypeAlias = Callable[[ReadyCall, HistoryToolCallResult], Coroutine[Any, Any, None]]
# Returns None for a call that was cancelled before it had a result.
_Run: TypeAlias = Callable[[ReadyCall, ToolContext[Any]], Coroutine[Any, Any, HistoryToolCallResult | None]]


class Batch:
    """The calls of one turn."""

    def __init__(
        self,
        calls: Sequence[ReadyCall],
        *,
        run: _Run,
        limit: int,
        make_context: MakeContext,
        on_started: OnStarted | None,
        on_finished: OnFinished | None,
    ) -> None:
        self._calls = tuple(calls)
        self._run = run
        self._limit = limit
        self._make_context = make_context
        self._on_started = on_started
        self._on_finished = on_finished
        self._results: dict[int, HistoryToolCallResult] = {}
        self._running: dict[asyncio.Task[HistoryToolCallResult | None], int] = {}
        self._contexts: dict[int, contextvars.Context] = {}
        self._ready: list[int] = []  # a heap: what may start, first call first
        self._waiting: dict[str, deque[int]] = {}  # by class, behind the one that is ready or runs
        for place, ready in enumerate(self._calls):
            shared = ready.definition.concurrency
            if shared and shared in self._waiting:
                self._waiting[shared].append(place)
                continue
            if shared:
                self._waiting[shared] = deque()
            self._ready.append(place)

    async def finish(self) -> list[HistoryToolCallResult]:
        """Return the results in call order. Cancelled, it stops what runs and tells what has come in."""
        import asyncio

        try:
            while self._ready or self._running:
                finished = [task for task in self._running if task.done()]
                if finished:
                    await self._take(min(finished, key=self._running.__getitem__))
                elif self._ready and len(self._running) < self._limit:
                    await self._start(heapq.heappop(self._ready))
                else:
                    await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError as cancelled:
            await self._stop()
            try:
                for task in sorted(self._running, key=self._running.__getitem__):
                    if not task.cancelled() and task.exception() is None and task.result() is not None:
                        await self._take(task)
            except Exception as error:  # who cancelled waits for just that
                raise cancelled from error
            raise
        except BaseException:
            await self._stop()
            raise
        return [self._results[place] for place in range(len(self._calls))]

    async def _start(self, place: int) -> None:
        import asyncio

        ready = self._calls[place]
        context = self._contexts[place] = contextvars.copy_context()
        if self._on_started is not None:
            await _perform(self._on_started(ready), context)
        running = self._run(ready, self._make_context(ready))
        self._running[asyncio.create_task(running, context=context)] = place

    async def _take(self, task: "asyncio.Task[HistoryToolCallResult | None]") -> None:
        place = self._running.pop(task)
        result = task.result()
        if result is None:  # somebody cancels every task, and will cancel this one too
            import asyncio

            raise asyncio.CancelledError
        self._results[place] = result
        ready = self._calls[place]
        waiting = self._waiting.get(ready.definition.concurrency)
        if waiting:
            heapq.heappush(self._ready, waiting.popleft())
        elif waiting is not None:
            del self._waiting[ready.definition.concurrency]
        if self._on_finished is not None:
            await _perform(self._on_finished(ready, result), self._contexts[place])

    async def _stop(self) -> None:
        """Cancel every call that has no result yet, and wait until all have ended."""
        import asyncio

        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)


async def _perform(callback: Coroutine[Any, Any, None], context: contextvars.Context) -> None:
    """Await a callback to its end, even if this is cancelled meanwhile; cancelled twice, the callback is too."""
    import asyncio

    task = asyncio.create_task(callback, context=context)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            try:
                await asyncio.wait({task})
            finally:
                task.cancel()
        if not task.cancelled():
            task.exception()  # looked at, so that asyncio does not complain; the cancellation is what counts
        raise
