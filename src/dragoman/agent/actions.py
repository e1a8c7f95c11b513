"""What the loop asks for and what it is told: actions and outcomes, as values. Knows nothing of how they are done."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeAlias

import msgspec

from ..errors import DragomanError, ErrorCode
from ..history import AgentStatus, DerivedState, HistoryEntry, HistoryToolCallResult, OpenCall
from ..history.metadata import NO_METADATA
from ..message import Message
from ..usage import TokenUsage

__all__ = [
    "Aborted",
    "Action",
    "Answered",
    "Append",
    "Approve",
    "CallModel",
    "CheckOutput",
    "Checked",
    "Compact",
    "Compacted",
    "Done",
    "Ending",
    "Failed",
    "Outcome",
    "RunError",
    "RunTools",
    "Shrink",
    "Shrunk",
    "Step",
    "Verdict",
    "Wait",
]


class RunError(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """Why something failed: a code, words for people, and whether trying again may help, and when.

    `provider_message` is what the provider said of it, without secrets and capped.
    """

    code: ErrorCode
    message: str = ""
    retryable: bool = False
    retry_after: float | None = None
    provider_message: str = ""

    @classmethod
    def of(cls, error: DragomanError) -> "RunError":
        """Return the error as a value."""
        return cls(error.code, str(error), error.retryable, error.retry_after, error.provider_message or "")


# ---------------------------------------------------------------- what the loop asks for


class Append(msgspec.Struct, frozen=True):
    """Record these entries, all or none, before anything else happens.

    With `expected_serial`, record nothing if the first entry would get another serial: something came before it.
    """

    entries: tuple[HistoryEntry, ...]
    expected_serial: int | None = None


class Compact(msgspec.Struct, frozen=True):
    """Fit the context into its budget by a model's summary, if the settings want one now. A failure changes nothing."""


class CallModel(msgspec.Struct, frozen=True):
    """Call a model with the context of now. `choice` counts through the models that may be asked, `attempt` retries."""

    call_index: int
    attempt: int = 0
    choice: int = 0


class Shrink(msgspec.Struct, frozen=True):
    """Make the context smaller: the last request was refused as too long."""


class Wait(msgspec.Struct, frozen=True):
    """Wait before the next attempt."""

    seconds: float


class Approve(msgspec.Struct, frozen=True):
    """Let the policy decide about these calls, and ask a person where it does not decide."""

    calls: tuple[OpenCall, ...]


class RunTools(msgspec.Struct, frozen=True):
    """Run these calls; each start and each result is recorded as it comes."""

    calls: tuple[OpenCall, ...]


class CheckOutput(msgspec.Struct, frozen=True):
    """Read the run's last message as the type that was asked for."""


Action: TypeAlias = Append | Compact | CallModel | Shrink | Wait | Approve | RunTools | CheckOutput


# ---------------------------------------------------------------- what it is told


class Done(msgspec.Struct, frozen=True):
    """The action is done. Every outcome has `state`, which follows from the entries so far."""

    state: DerivedState


class Answered(Done, frozen=True):
    """The model's whole answer, and what shall be noted beside it."""

    message: Message
    metadata: Mapping[str, Any] = NO_METADATA


class Failed(Done, frozen=True):
    """The call failed: why, what had arrived, and how many other models may be asked for this answer.

    `is_adapted`: the next request to the same model leaves out what the provider refused.
    """

    error: RunError
    partial: Message | None
    others_left: int
    is_adapted: bool = False


class Compacted(Done, frozen=True):
    """What the summary cost, if one was asked for."""

    usage: TokenUsage | None = None


class Shrunk(Done, frozen=True):
    """Whether the context is smaller now."""

    is_smaller: bool


class Checked(Done, frozen=True):
    """What is wrong with the output, in words for the model; None if it is right."""

    problem: str | None = None


class Aborted(Done, frozen=True):
    """The run must end now: a person asked for it, or `error` says why. `partial` is what had arrived of an answer."""

    partial: Message | None = None
    error: RunError | None = None


Outcome: TypeAlias = Done


class Ending(msgspec.Struct, frozen=True):
    """How the run ended: completed, failed, aborted; or it awaits a person and can be resumed."""

    status: AgentStatus
    error: RunError | None = None


# ---------------------------------------------------------------- what becomes of a call


class Step(StrEnum):
    """What a call without a result needs next."""

    RUN = "run"
    ASK = "ask"  # the policy, or a person
    WAIT = "wait"  # for the person who was asked


# A result: the call does not run, and ends with it.
Verdict: TypeAlias = Step | HistoryToolCallResult
