"""How a run ended, as a value (`RunResult`) and as an exception (`RunFailed`)."""

import reprlib
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from ..errors import DragomanError, ErrorCode, Raised, redact
from ..history import AgentStatus
from ..message import FinishReason, Message, ToolCall
from ..usage import TokenUsage
from .actions import RunError
from .answers import finish_of

if TYPE_CHECKING:
    import typing_extensions

__all__ = ["OutputT", "RunFailed", "RunResult"]

if TYPE_CHECKING:
    OutputT = typing_extensions.TypeVar("OutputT", default=str)
else:  # only checkers need the default; typing has it from Python 3.13 on
    OutputT = TypeVar("OutputT")


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80


class RunResult(msgspec.Struct, Generic[OutputT], frozen=True, kw_only=True):
    """How a run ended. `message` is the model's last one, `output` what it says, as the type that was asked for.

    An answer that was cut and went on is one message. A refusal completes a run: `finish_reason` tells it, and an
    output of another type than text is None.

    `raised` is what code of yours raised: tools, hooks, widgets, policies, types. The log has the tracebacks, and
    `error` of each is the exception. `cause` is the one of them that ended the run, or left a call to a person.
    With the status `awaiting_human`, `approvals` are the calls that a person must decide about before the run goes on.
    """

    session_id: str
    run_id: str
    status: AgentStatus
    message: Message | None = None
    output: OutputT | None = None
    usage: TokenUsage = TokenUsage()
    error: RunError | None = None
    approvals: tuple[ToolCall, ...] = ()
    raised: tuple[Raised, ...] = ()
    cause: Raised | None = None

    def __repr__(self) -> str:
        said = [f"output {redact(_SHORT.repr(self.output))}"] if self.output is not None else []
        if self.error is not None:
            said.append(f"error {self.error.code.value}")
        if self.approvals:
            said.append(f"waits for {len(self.approvals)} decisions")
        where = f"run {self.run_id!r} of session {self.session_id!r}"
        return f"<RunResult {', '.join([self.status.value, *said, f'{self.usage.total_tokens or 0} tokens', where])}>"

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the message ended; None where there is no message or no reason was given."""
        return finish_of(self.message)

    def unwrap(self) -> OutputT:
        """Return the output; raise RunFailed if the run did not complete, or if the model refused to give one."""
        is_refused = self.output is None and self.finish_reason is FinishReason.REFUSAL
        if self.status is not AgentStatus.COMPLETED or is_refused:
            raise RunFailed(self)
        return self.output  # type: ignore[return-value]  # a completed run has one, which may be None


class RunFailed(DragomanError):
    """A run has no output: `code` and the message say why, `provider_message` is what the provider said of it.

    `result` is the whole result: usage, the calls that wait for a decision, what code of yours raised. If code of
    yours ended the run, its exception is the `__cause__`: tracebacks show it.
    """

    def __init__(self, result: RunResult[Any]) -> None:
        why = _why(result)
        super().__init__(
            why.message,
            code=why.code,
            retryable=why.retryable,
            retry_after=why.retry_after,
            provider_message=why.provider_message,
        )
        self.result = result
        self.__cause__ = result.cause.error if result.cause is not None else None

    def __reduce__(self) -> tuple[type["RunFailed"], tuple[RunResult[Any]]]:
        return type(self), (self.result,)


def _why(result: RunResult[Any]) -> RunError:
    if result.error is not None:
        words = f"the run {result.status}: {result.error.message or result.error.code}"
        if result.error.provider_message:  # it may quote the prompt: `str` only names it
            words += "; provider_message has the provider's words"
        return msgspec.structs.replace(result.error, message=words)
    match result.status:
        case AgentStatus.ABORTED:
            return RunError(ErrorCode.CANCELLED, "the run was aborted")
        case AgentStatus.AWAITING_HUMAN:
            calls = ", ".join(f"{call.tool_call_id} ({call.tool_name})" for call in result.approvals)
            words = f"the run waits for a decision about {calls}: call approve() or deny(), then run()"
            return RunError(ErrorCode.OUTPUT_UNFINISHED, words)
        case _:
            return RunError(ErrorCode.INVALID_OUTPUT, "the model refused to answer: result.message has its words")
