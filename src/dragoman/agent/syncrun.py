"""A run for programs that do not await: it has a thread and an event loop of its own. Readers wait in theirs."""

import asyncio
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextvars import copy_context
from typing import Generic, TypeVar

from ..errors import InvalidValue
from .agentrun import INSIDE, AgentRun
from .events import RunEvent
from .following import Follower, OutputFollower, TextFollower
from .output import OutputReader
from .results import OutputT, RunResult

__all__ = ["SyncRun"]

_Told = TypeVar("_Told")


class SyncRun(Generic[OutputT]):
    """A run under way: iterate it for its events, call `result()` for its end. It goes on without a reader.

    Leaving a `with` block aborts it if it has not ended. An exception while a caller waits, such as KeyboardInterrupt,
    aborts it too: the agent's next run waits for its end. At the end of the program it stops as in a crash: the session
    can be carried on.
    """

    def __init__(self, start: Callable[[], AgentRun[OutputT]], output: OutputReader[OutputT]) -> None:
        self._start = start
        self._output = output
        self._news = threading.Condition()
        self._events: list[RunEvent] = []
        self._run: AgentRun[OutputT] | None = None
        self._is_stopped = False  # perhaps before there is a run
        self._result: RunResult[OutputT] | None = None
        self._error: BaseException | None = None
        context = copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._work,), name="dragoman-run", daemon=True)
        try:
            self._thread.start()  # waits for the thread, so that an interrupt may come here too
            self._wait_for(lambda: self._run is not None or self.is_done)
        except BaseException:
            self._stop()
            raise
        if self._run is None:
            self.result()  # raises why

    def __repr__(self) -> str:
        return f"<SyncRun of {self._run!r}>"

    @property
    def is_done(self) -> bool:
        """Whether it has ended, or waits for a person."""
        return self._result is not None or self._error is not None

    def result(self) -> RunResult[OutputT]:
        """Return how it ended; raise what `Agent.run` raises."""
        if self._run in INSIDE.get() or threading.current_thread() is self._thread:
            raise InvalidValue("a tool or hook of a run cannot wait for the end of that run")
        self._wait_for(lambda: self.is_done)
        if self._result is None:
            assert self._error is not None
            raise self._error
        return self._result

    def abort(self) -> RunResult[OutputT]:
        """End the run now; what has arrived is recorded, and every call has its result."""
        self._stop()
        return self.result()

    def events(self, after: int = -1) -> Iterator[RunEvent]:
        """Yield the events after that `seq`, those that are there and then those that come, to the last."""
        if type(after) is not int or after < -1:
            raise InvalidValue.of("after", after, "the seq of an event, or -1 for all")
        return self._follow_events(after + 1)

    def text(self) -> Generator[str, None, None]:
        """Yield the text of the answers as it comes; at the end, raise RunFailed if the run did not complete.

        An empty line separates the text before tool calls, or before another attempt, from the text after them.
        Closing the iterator, or leaving its loop early, aborts the run.
        """
        return self._followed(TextFollower())

    def partial(self) -> Generator[OutputT, None, None]:
        """Yield the output as far as it has come, each time a value of its type; the last one is the output.

        What does not fit the type yet is left out: an item of a list, a field that has a default. It ends and is
        closed as `text` does and is.
        """
        return self._followed(OutputFollower(self._output))

    def __iter__(self) -> Iterator[RunEvent]:
        return self.events()

    def __enter__(self) -> "SyncRun[OutputT]":
        return self

    def __exit__(self, *_raised: object) -> None:
        if not self.is_done:
            self.abort()

    def _follow_events(self, told: int) -> Generator[RunEvent, None, None]:
        def has_news() -> bool:
            return len(self._events) > told or self.is_done

        while True:
            self._wait_for(has_news)
            new = self._events[told:]
            if not new:
                break
            told += len(new)
            yield from new
        self.result()

    def _followed(self, follower: Follower[_Told]) -> Generator[_Told, None, None]:
        reader = threading.current_thread()
        try:
            for event in self._follow_events(0):
                yield from follower.feed(event)
            yield from follower.end(self.result())
        finally:
            # At the end of the program the run's thread is stopped, and would never say that the run has ended.
            if not self.is_done and not sys.is_finalizing():
                self._stop()
                # The garbage collector closes an iterator in any thread, also in one that the run waits for.
                if threading.current_thread() is reader and self._run not in INSIDE.get():
                    self._wait_for(lambda: self.is_done)

    def _wait_for(self, condition: Callable[[], bool]) -> None:
        try:
            with self._news:
                self._news.wait_for(condition)
        except BaseException:  # such as KeyboardInterrupt
            self._stop()
            raise

    def _stop(self) -> None:
        self._is_stopped = True
        if self._run is not None:
            self._run._leave()

    def _work(self) -> None:
        try:
            asyncio.run(self._carry_out())
        except BaseException as error:  # noqa: BLE001  # raised where the caller waits
            with self._news:
                self._error = error if self._result is None else None
                self._news.notify_all()

    async def _carry_out(self) -> None:
        run = self._start()
        with self._news:
            self._run = run
            self._news.notify_all()
        if self._is_stopped:
            run._leave()
        async for event in run:
            with self._news:
                self._events.append(event)
                self._news.notify_all()
        result = await run.result()
        with self._news:
            self._result = result
            self._news.notify_all()
