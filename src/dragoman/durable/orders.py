"""The values that an engine schedules and gets back: orders, and the outcome of an attempt. Orders hold no content."""

from typing import Annotated, TypeAlias

import msgspec

from ..store.refusals import MAX_SERIAL

__all__ = ["Order", "Progress"]

_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MAX_SERIAL)]
_Serial: TypeAlias = Annotated[int, msgspec.Meta(ge=-MAX_SERIAL, le=MAX_SERIAL)]


class Order(msgspec.Struct, frozen=True):
    """Carry a session on with an agent, until the run that was requested at `serial` has ended or waits for a person.

    An engine may deliver it twice, late, or after that end: the record says what is left to do. `failures` counts the
    attempts in a row that added no entry, and `head` is the serial of the newest entry at the last of them. An attempt
    whose process was killed does not count. `unknown` counts the attempts of workers that do not know the agent. Both
    begin anew with each entry that a run adds.
    """

    session: str
    agent: str
    serial: _Serial
    failures: _Count = 0
    head: _Serial = -1
    unknown: _Count = 0

    def __str__(self) -> str:
        return f"{self.session}:{self.serial}"


class Progress(msgspec.Struct, frozen=True):
    """The outcome of an attempt: the status of the requested run, and the serial of the session's newest entry.

    The engine schedules `next`, `seconds` from now; None says that the run has ended, or waits for a person. `problem`
    says why there is a next attempt. It may quote an error: an engine may log it, and does not keep it.
    """

    status: str
    serial: int
    next: Order | None = None
    seconds: float = 0.0
    problem: str = ""
