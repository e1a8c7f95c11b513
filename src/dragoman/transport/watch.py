"""Time limits of a call: one timer per stage and per stream, none per chunk. Knows asyncio, and no HTTP library."""

import asyncio
from types import TracebackType

from ..errors import ErrorCode, ModelError
from .protocol import Timeouts

__all__ = ["BodyWatch", "HeadWatch"]

_STAGES = {
    "connect": "no connection to {host} stood within {seconds:g} s (timeout connect)",
    "first_byte": "{host} sent no first byte within {seconds:g} s (timeout first_byte)",
    "silence": "{host} was silent for {seconds:g} s in the middle of its answer (timeout silence)",
    "total": "the answer of {host} was not complete after {seconds:g} s (timeout total)",
}


class HeadWatch:
    """Limits the wait for a response's head: first `connect`, then `first_byte`, `total` above both.

    Use it as the context manager around the wait, in the task that waits; a TimeoutError out of it is `failure` if it
    has `expired`. It is `asyncio.timeout_at` but for its one timer, which is not moved with every stage: when it goes
    off, it looks what is due by then.
    """

    __slots__ = (
        "_cancelling", "_due", "_entered", "_host", "_loop", "_stage", "_started", "_task", "_timeouts", "_timer",
        "expired",
    )  # fmt: skip

    def __init__(self, host: str, timeouts: Timeouts, stage: str = "connect") -> None:
        self._loop = asyncio.get_running_loop()
        self._host = host
        self._timeouts = timeouts
        self._started = now = self._loop.time()
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._timer: asyncio.TimerHandle | None = None
        self.expired = False  # whether the limit is what ended the wait
        self._enter(stage, now)

    async def __aenter__(self) -> None:
        self._task = asyncio.current_task()
        assert self._task is not None, "awaited outside a task"
        self._cancelling = self._task.cancelling()
        self._timer = self._loop.call_at(self._due, self._look)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if self._timer is not None:
            self._timer.cancel()
        if not self.expired or task is None or task.uncancel() > self._cancelling:
            return
        if kind is asyncio.CancelledError:
            raise TimeoutError from error

    def connecting(self) -> None:
        """Start the time for the connection."""
        self._move_to("connect")

    def connected(self) -> None:
        """Start the time for the first byte: the connection stands."""
        self._move_to("first_byte")

    def failure(self) -> ModelError:
        """Return the error that says which limit was reached."""
        return _timeout_error(self._stage, self._host, self._timeouts)

    def body(self) -> "BodyWatch":
        """Return the watch over the body; the wait for the head counts as part of the wait for the first byte."""
        waited = self._loop.time() - self._entered
        return BodyWatch(self._host, self._timeouts, started=self._started, waited=waited)

    def _move_to(self, stage: str) -> None:
        if self.expired:
            return
        self._enter(stage, self._loop.time())
        if self._timer is not None and self._due < self._timer.when():
            self._timer.cancel()
            self._timer = self._loop.call_at(self._due, self._look)

    def _enter(self, stage: str, now: float) -> None:
        self._entered = now
        self._stage = stage
        self._due: float = now + getattr(self._timeouts, stage)
        total = self._timeouts.total
        if total is not None and self._started + total < self._due:
            self._stage, self._due = "total", self._started + total

    def _look(self) -> None:
        if self._loop.time() < self._due:
            self._timer = self._loop.call_at(self._due, self._look)
        elif self._task is not None:
            self.expired = True
            self._task.cancel()


class BodyWatch:
    """Ends a wait for bytes that lasts too long, by cancelling the task that waits.

    The reader calls `wait` before each read and `got` after it. The one timer looks at when the current wait began
    and sleeps again for what is left, so that a chunk costs two assignments and a glance at the clock.
    """

    __slots__ = (
        "_cancelled",
        "_cancelling",
        "_ends",
        "_host",
        "_limit",
        "_loop",
        "_since",
        "_stage",
        "_task",
        "_time",
        "_timeouts",
        "_timer",
        "reached",
    )

    def __init__(self, host: str, timeouts: Timeouts, *, started: float, waited: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._time = self._loop.time
        self._host = host
        self._timeouts = timeouts
        self._limit = max(timeouts.first_byte - waited, 0.0)
        self._stage = "first_byte"
        self._ends = None if timeouts.total is None else started + timeouts.total
        self._since: float | None = None
        self._task: asyncio.Task[object] | None = None
        self._cancelled = False
        self._cancelling = 0
        self._timer: asyncio.TimerHandle | None = None
        self.reached: str | None = None  # the stage whose time is over

    def wait(self) -> None:
        """A wait for bytes begins, in this task."""
        self._task = asyncio.current_task()
        self._since = self._time()
        if self._timer is None:
            self._sleep(self._due(self._since))

    def got(self) -> None:
        """Bytes arrived: from now on it is silence that counts."""
        self._since = None
        if self._stage != "silence":
            self._stage = "silence"
            self._limit = self._timeouts.silence

    def stop(self) -> None:
        """No more waits: the body has ended or was given up."""
        self._since = None
        self._task = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def ended_by_limit(self) -> bool:
        """Whether the CancelledError just caught is this watch's alone. Asked once, in the task that was cancelled."""
        task = self._task
        return self._cancelled and task is not None and task.uncancel() <= self._cancelling

    def failure(self) -> ModelError:
        """Return the error that says which limit was reached."""
        return _timeout_error(self.reached or self._stage, self._host, self._timeouts)

    def _due(self, since: float) -> float:
        due = since + self._limit
        return due if self._ends is None or due < self._ends else self._ends

    def _sleep(self, until: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # The first byte's time may be the longer one: the timer must not oversleep the first silence.
        self._timer = self._loop.call_at(min(until, self._time() + self._timeouts.silence), self._look)

    def _look(self) -> None:
        now = self._time()
        over = self._ends is not None and now >= self._ends
        if self._since is None:
            if over:
                self.reached = "total"  # the reader sees it when it comes for more
            else:
                self._sleep(self._due(now))
        elif now < self._due(self._since):
            self._sleep(self._due(self._since))
        else:
            # One round of the loop later: bytes or a cancellation that came in this very round go first.
            self._loop.call_soon(self._end_wait, self._since, "total" if over else self._stage)

    def _end_wait(self, since: float, stage: str) -> None:
        if self._since is None or self._task is None:
            if self._timer is not None:
                self._sleep(self._due(self._time()))
        elif self._since != since:
            self._sleep(self._due(self._since))
        else:
            self.reached = stage
            self._cancelled = True
            self._cancelling = self._task.cancelling()
            self._task.cancel()


def _timeout_error(stage: str, host: str, timeouts: Timeouts) -> ModelError:
    text = _STAGES[stage].format(host=host, seconds=getattr(timeouts, stage))
    return ModelError(text, code=ErrorCode.TIMEOUT)
