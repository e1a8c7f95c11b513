"""Contains exceptions of the user's code: they are reported, and the caller goes on.

A cancellation of the task itself, the close of its coroutine and a person's Ctrl-C are not the code's: they propagate.
"""

import asyncio
from types import TracebackType

from ..errors import is_interrupt, report_raised

__all__ = ["Containing", "current_task", "must_pass"]


class Containing:
    """Contains what a block raises: `error` is the exception, and the report says `where` it came from."""

    def __init__(self, where: str) -> None:
        self.error: BaseException | None = None
        self._where = where
        self._task = current_task()

    def __enter__(self) -> "Containing":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None or must_pass(error, self._task):
            return False
        self.error = error
        report_raised(error, self._where)
        return True


def must_pass(error: BaseException, task: asyncio.Task[object] | None) -> bool:
    """Return whether the exception is meant for the task that the code runs in, and not raised by the code itself."""
    if isinstance(error, asyncio.CancelledError):
        return task is not None and task.cancelling() > 0
    if isinstance(error, GeneratorExit):
        return current_task() is not task  # the coroutine is closed from outside, where its task does not run
    return is_interrupt(error)


def current_task() -> asyncio.Task[object] | None:
    """Return the task that runs here; None outside of an event loop."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
