"""The values that an engine schedules and gets back: orders, and the outcome of an attempt. They hold no content."""

from typing import Annotated

import msgspec

__all__ = ["Order", "Progress"]


class Order(msgspec.Struct, frozen=True):
    """Carry a session on with an agent, until the run that was requested at `serial` has ended or waits for a person.

    An engine may deliver it twice, late, or after that end: the record says what is left to do. `failures` counts the
    attempts in a row that added no entry, and `head` is the serial of the newest entry at the last of them. An attempt
    whose process was killed does not count. `unknown` counts the attempts of workers that do not know the agent.
    """

    session: str
    agent: str
    serial: int
    failures: Annotated[int, msgspec.Meta(ge=0)] = 0
    head: int = -1
    unknown: Annotated[int, msgspec.Meta(ge=0)] = 0

    def __str__(self) -> str:
        return f"{self.session}:{self.serial}"


class Progress(msgspec.Struct, frozen=True):
    """The outcome of an attempt: the status of the requested run, and the serial of the session's newest entry.

    The engine schedules `next`, `seconds` from now; None says that the run has ended, or waits for a person. `problem`
    tells an operator why there is a next attempt.
    """

    status: str
    serial: int
    next: Order | None = None
    seconds: float = 0.0
    problem: str = ""
