"""Time limits of a call: one timer per stage and per stream, none per chunk. Knows asyncio, and no HTTP library."""

import asyncio
import math
import time
from collections.abc import Callable
from types import TracebackType

from ..errors import ErrorCode, ModelError
from .protocol import Timeouts

__all__ = ["BodyWatch", "HeadWatch", "TaskEnd", "timeout_error"]

_STAGES = {
    "connect": "no connection to {host} stood within {seconds:g} s (timeout connect)",
    "first_byte": "{host} sent no first byte within {seconds:g} s (timeout first_byte)",
    "silence": "{host} was silent for {seconds:g} s in the middle of its answer (timeout silence)",
    "idle": "{host} sent nothing of its answer for {seconds:g} s, only signs of life (timeout idle)",
    "total": "the answer of {host} was not complete after {seconds:g} s (timeout total)",
}


class HeadWatch:
    """Limits the wait for a response's head: first `connect`, then `first_byte`, `total` above both.

    Use it as the context manager around the wait, in the task that waits; a TimeoutError out of it is `failure` if it
    has `expired`. It is `asyncio.timeout_at` but for its one timer, which is not moved with every stage: when it goes
    off, it looks what is due by then.
    """

    __slots__ = (
        "_cancelling", "_clock", "_due", "_entered", "_host", "_loop", "_rings", "_stage", "_started", "_task",
        "_timeouts", "_timer", "expired",
    )  # fmt: skip

    def __init__(self, host: str, timeouts: Timeouts, stage: str = "connect") -> None:
        self._loop = asyncio.get_running_loop()
        self._host = host
        self._timeouts = timeouts
        self._clock = _clock_of(self._loop)
        self._started = self._clock()
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._timer: asyncio.TimerHandle | None = None
        self.expired = False  # whether the limit is what ended the wait
        self._rings = math.inf  # when the timer goes off
        self.enter(stage)

    def __enter__(self) -> None:
        self._task = asyncio.current_task()
        assert self._task is not None, "awaited outside a task"
        self._cancelling = self._task.cancelling()
        self._sleep()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        task, self._task = self._task, None
        if self._timer is not None:
            self._timer.cancel()
        if not self.expired or task is None or task.uncancel() > self._cancelling:
            return
        if kind is asyncio.CancelledError:
            raise TimeoutError from error

    def enter(self, stage: str) -> None:
        """Start the time of a stage."""
        if self.expired:
            return
        self._entered = now = self._clock()
        self._stage = stage
        self._due: float = now + getattr(self._timeouts, stage)
        total = self._timeouts.total
        if total is not None and self._started + total < self._due:
            self._stage, self._due = "total", self._started + total
        if self._timer is not None and self._due < self._rings:
            self._timer.cancel()
            self._sleep()

    def failure(self) -> ModelError:
        """Return the error that says which limit was reached."""
        return timeout_error(self._stage, self._host, self._timeouts)

    def body(self) -> "BodyWatch":
        """Return the watch over the body; the wait for the head counts as part of the wait for the first byte."""
        waited = self._clock() - self._entered
        return BodyWatch(self._host, self._timeouts, self._clock, started=self._started, waited=waited)

    def _sleep(self) -> None:
        self._rings = self._due
        self._timer = self._loop.call_at(self._due, self._look)

    def _look(self) -> None:
        if self._clock() < self._due:
            self._sleep()
        elif self._task is not None:
            self.expired = True
            self._task.cancel()


class BodyWatch:
    """Ends a wait for bytes that lasts too long.

    The reader writes down in `since` when it begins to wait, by `clock`, and None when it has bytes. The one timer
    checks it and sleeps again for the rest: a chunk costs two assignments and one reading of the clock.
    """

    __slots__ = (
        "_end", "_ends", "_host", "_limit", "_loop", "_stage", "_timeouts", "_timer", "clock", "reached", "since",
    )  # fmt: skip

    def __init__(
        self, host: str, timeouts: Timeouts, clock: Callable[[], float], *, started: float, waited: float
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._host = host
        self._timeouts = timeouts
        self._limit = max(timeouts.first_byte - waited, 0.0)
        self._stage = "first_byte"
        self._ends = None if timeouts.total is None else started + timeouts.total
        self._end: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.clock = clock
        self.since: float | None = None
        self.reached: str | None = None  # the stage whose time is over

    def start(self, end: Callable[[], None]) -> None:
        """Watch from now on; `end` is called, once, to end a wait whose time is over."""
        self._end = end
        self._sleep(self._due(self.clock()))

    def begun(self) -> None:
        """The first bytes are there: from now on the limit is `silence`."""
        self._stage = "silence"
        self._limit = self._timeouts.silence

    async def pause(self) -> None:
        """Let other tasks run during long work on received bytes; raise ModelError if time is over."""
        await asyncio.sleep(0)
        if self.reached:
            raise self.failure()

    def stop(self) -> None:
        """No more waits: the body has ended or was given up."""
        self.since = self._end = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def failure(self) -> ModelError:
        """Return the error that says which limit was reached."""
        return timeout_error(self.reached or self._stage, self._host, self._timeouts)

    def _due(self, since: float) -> float:
        due = since + self._limit
        return due if self._ends is None or due < self._ends else self._ends

    def _sleep(self, until: float) -> None:
        # `first_byte` may be longer than `silence`: the timer must fire in time for the first silence.
        self._timer = self._loop.call_at(min(until, self.clock() + self._timeouts.silence), self._look)

    def _look(self) -> None:
        now = self.clock()
        over = self._ends is not None and now >= self._ends
        if self.since is None:
            if over:
                self.reached = "total"  # the reader sees it when it comes for more
            else:
                self._sleep(self._due(now))
        elif now < self._due(self.since):
            self._sleep(self._due(self.since))
        else:
            # One round of the loop later: bytes or a cancellation that came in this very round go first.
            self._loop.call_soon(self._end_wait, self.since, "total" if over else self._stage)

    def _end_wait(self, since: float, stage: str) -> None:
        if self._end is None:
            return
        if stage == "total" or self.since == since:
            self.reached = stage  # bytes that came meanwhile end a silence, not the total time
            if self.since is not None:
                self._end()
        else:
            self._sleep(self._due(self.clock() if self.since is None else self.since))


class TaskEnd:
    """Ends what a task waits for by cancelling it, and tells that from other cancellations."""

    __slots__ = ("_cancelling", "_is_ended", "_task")

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0  # how often others had cancelled the task when it began to wait
        self._is_ended = False

    def note(self) -> None:
        """It is this task that begins to wait."""
        self._task = asyncio.current_task()
        assert self._task is not None, "awaited outside a task"
        self._cancelling = self._task.cancelling()

    def end(self) -> None:
        """End the wait."""
        if self._task is not None:
            self._is_ended = True
            self._task.cancel()

    def was_ours(self) -> bool:
        """Whether the CancelledError just caught is this one's alone. Asked once, in the task that was cancelled."""
        return self._is_ended and self._task is not None and self._task.uncancel() <= self._cancelling


def _clock_of(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """The loop's clock. asyncio's own loop uses the monotonic clock, through a slower method."""
    is_plain = getattr(loop.time, "__func__", None) is asyncio.BaseEventLoop.time
    return time.monotonic if is_plain else loop.time


def timeout_error(stage: str, host: str, timeouts: Timeouts) -> ModelError:
    """Return the error that says which limit was reached."""
    text = _STAGES[stage].format(host=host, seconds=getattr(timeouts, stage))
    return ModelError(text, code=ErrorCode.TIMEOUT)
