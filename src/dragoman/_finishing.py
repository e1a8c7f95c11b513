"""Cleanup that ends although its caller is cancelled. Knows asyncio alone.

One `Task.cancel` ends one `await`. But `anyio` cancels at every `await` until its scope is left, and an impatient
caller cancels twice: a cleanup that awaits twice is then left half done.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

__all__ = ["finish"]

_Result = TypeVar("_Result")


async def finish(work: Awaitable[_Result], on_cancelled: Callable[[], object] | None = None) -> _Result:
    """Return what the work returns. A caller that is cancelled meanwhile, once or often, waits for its end first.

    The work runs in a task of its own, which is not cancelled here. The first cancellation calls `on_cancelled`; it is
    raised after the work, in place of what the work returned or raised.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            if cancelled is None:
                cancelled = error
                if on_cancelled is not None:
                    on_cancelled()
    if cancelled is None:
        return task.result()
    if not task.cancelled():
        task.exception()  # seen, so that asyncio does not report it as lost
    raise cancelled
