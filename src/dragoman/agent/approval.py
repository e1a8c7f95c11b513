"""The policy that decides first whether a call may run, and its decisions. Knows no entries."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec

from .._jsontext import freeze_object
from ..errors import InvalidValue, report_raised
from ..message import ToolCall, require_text
from ..tools import ToolDefinition
from ..tools.containing import Containing

__all__ = ["ApprovalDecision", "ApprovalPolicy", "ApprovalRequest", "decide"]


class ApprovalRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A call that a person or a policy must approve."""

    session_id: str
    run_id: str
    call: ToolCall
    tool: ToolDefinition
    arguments: dict[str, Any]


class ApprovalDecision(msgspec.Struct, frozen=True):
    """The decision: yes, yes with other arguments, or no and why; the reason is for the model."""

    approved: bool
    reason: str = ""
    arguments: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if type(self.approved) is not bool:
            raise InvalidValue.of("approved", self.approved, "true or false")
        require_text("reason", self.reason)
        if self.arguments is not None:
            freeze_object(self, "arguments", "arguments")
            if not self.approved:
                raise InvalidValue("a refusal has no arguments")


_Answer: TypeAlias = ApprovalDecision | bool | None

# What a policy says of a call; None leaves it to a person.
ApprovalPolicy: TypeAlias = Callable[[ApprovalRequest], _Answer | Awaitable[_Answer]]


async def decide(policy: ApprovalPolicy | None, request: ApprovalRequest) -> ApprovalDecision | None:
    """Return the policy's decision; None where it leaves the decision to a person, or raises."""
    if policy is None:
        return None
    answer: object = None
    with Containing("the approval policy"):  # a policy that cannot tell leaves it to a person
        said = policy(request)
        answer = await said if inspect.isawaitable(said) else said
    if isinstance(answer, bool):
        return ApprovalDecision(answer)
    if answer is not None and not isinstance(answer, ApprovalDecision):
        report_raised(InvalidValue.of("the answer", answer, "a decision, a bool or None"), "the approval policy")
        return None
    return answer
