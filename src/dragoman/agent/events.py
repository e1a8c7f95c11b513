"""The events of a run, typed and in order, and the log that lets any reader catch up."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from ..delta import KnownDelta
from ..errors import InvalidValue
from ..history import AgentStatus, HistoryToolCallResult
from ..message import Message, ToolCall
from ..tools import Question
from .actions import RunError

__all__ = [
    "ApprovalAskedEvent",
    "DeltaEvent",
    "ErrorEvent",
    "EventLog",
    "FinishedEvent",
    "MediaNotShownEvent",
    "MessageEvent",
    "QuestionAskedEvent",
    "RunEvent",
    "StatusEvent",
    "ToolResultEvent",
    "ToolStartedEvent",
]


class _Event(msgspec.Struct, frozen=True, gc=False):  # holds frozen values alone: there are no cycles to look for
    """Something that happened in a run. `seq` counts the events of the run, `call_index` its model calls."""

    run_id: str
    call_index: int
    seq: int


class StatusEvent(_Event, frozen=True, gc=False):
    """What the agent is doing now."""

    kind: ClassVar[Literal["status"]] = "status"
    status: AgentStatus


class DeltaEvent(_Event, frozen=True, gc=False):
    """A piece of the model's answer, as it came. An answer that failed and is asked for again starts anew."""

    kind: ClassVar[Literal["delta"]] = "delta"
    delta: KnownDelta


class MessageEvent(_Event, frozen=True, gc=False):
    """A message that is recorded now: what a person said, or a model's whole answer."""

    kind: ClassVar[Literal["message"]] = "message"
    message: Message


class ToolStartedEvent(_Event, frozen=True, gc=False):
    """A tool runs."""

    kind: ClassVar[Literal["tool_started"]] = "tool_started"
    call: ToolCall


class ToolResultEvent(_Event, frozen=True, gc=False):
    """A call has its one result."""

    kind: ClassVar[Literal["tool_result"]] = "tool_result"
    result: HistoryToolCallResult


class ApprovalAskedEvent(_Event, frozen=True, gc=False):
    """A person is asked whether a call may run."""

    kind: ClassVar[Literal["approval_asked"]] = "approval_asked"
    call: ToolCall


class QuestionAskedEvent(_Event, frozen=True, gc=False):
    """A tool that runs asks a person something, and waits: `Agent.answer` answers it."""

    kind: ClassVar[Literal["question_asked"]] = "question_asked"
    question_id: str
    question: Question
    call: ToolCall


class MediaNotShownEvent(_Event, frozen=True, gc=False):
    """A model gets a line of text in place of a picture or file: `what` it is, without its content, and `why`.

    Told once in a run for each medium and reason.
    """

    kind: ClassVar[Literal["media_not_shown"]] = "media_not_shown"
    what: str
    why: str


class ErrorEvent(_Event, frozen=True, gc=False):
    """A model call failed, or the run did. What follows says whether it was tried again."""

    kind: ClassVar[Literal["error"]] = "error"
    error: RunError


class FinishedEvent(_Event, frozen=True, gc=False):
    """The last event: how the run ended."""

    kind: ClassVar[Literal["finished"]] = "finished"
    status: AgentStatus
    error: RunError | None = None


# Something that happened in a run. `event.kind == "delta"`, `match` and `isinstance` narrow it.
RunEvent: TypeAlias = (
    StatusEvent
    | DeltaEvent
    | MessageEvent
    | ToolStartedEvent
    | ToolResultEvent
    | ApprovalAskedEvent
    | QuestionAskedEvent
    | MediaNotShownEvent
    | ErrorEvent
    | FinishedEvent
)


class EventLog:
    """The events of one run, for any number of readers, each from its own `seq`. Written in one event loop."""

    def __init__(self) -> None:
        self._events: list[RunEvent] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._is_closed = False
        self._error: Exception | None = None

    def add(self, event: Callable[..., RunEvent], run_id: str, call_index: int, *fields: Any) -> None:
        """Add an event of that class, which gets the next `seq`, and wake the readers that wait."""
        self._events.append(event(run_id, call_index, len(self._events), *fields))
        if self._waiting:
            self._wake()

    def add_delta(self, run_id: str, call_index: int, delta: KnownDelta) -> None:
        """Add the event of a delta, as most events are."""
        events = self._events
        events.append(DeltaEvent(run_id, call_index, len(events), delta))
        if self._waiting:
            self._wake()

    def close(self, error: Exception | None = None) -> None:
        """Say that no more events come; with an error, that there was no run, and why. Readers are told by raising.

        Only the first call counts.
        """
        if not self._is_closed:
            self._is_closed = True
            self._error = error
            self._wake()

    async def follow(self, after: int, on_error: Callable[[], None]) -> AsyncIterator[RunEvent]:
        """Yield the events after that `seq`, those that are there and then those that come, to the last.

        `on_error` is called before the error is raised that the log was closed with.
        """
        if type(after) is not int or after < -1:
            raise InvalidValue.of("after", after, "the seq of an event, or -1 for all")
        told = after + 1
        while True:
            while new := self._events[told:]:
                told += len(new)
                for event in new:
                    yield event
            if self._error is not None:
                on_error()
                raise self._error
            if self._is_closed:
                return
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            try:
                await future
            finally:
                if future in self._waiting:
                    self._waiting.remove(future)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not (future.done() or future.get_loop().is_closed()):
                future.set_result(None)
