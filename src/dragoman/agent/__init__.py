"""The loop that turns the record into work, and `Agent`, which a user holds."""

from ..errors import Raised
from .actions import Ending, RunError
from .agent import Agent, AgentRun, RunResult
from .approval import ApprovalDecision, ApprovalPolicy, ApprovalRequest
from .budget import Budget
from .eventform import event_to_json
from .events import (
    ApprovalAskedEvent,
    DeltaEvent,
    ErrorEvent,
    FinishedEvent,
    MediaNotShownEvent,
    MessageEvent,
    RunEvent,
    StatusEvent,
    ToolResultEvent,
    ToolStartedEvent,
)
from .hooks import Hooks, ModelCall
from .loop import TRANSITIONS, AgentLoop
from .observing import TelemetryHooks

__all__ = [
    "TRANSITIONS",
    "Agent",
    "AgentLoop",
    "AgentRun",
    "ApprovalAskedEvent",
    "ApprovalDecision",
    "ApprovalPolicy",
    "ApprovalRequest",
    "Budget",
    "DeltaEvent",
    "Ending",
    "ErrorEvent",
    "FinishedEvent",
    "Hooks",
    "MediaNotShownEvent",
    "MessageEvent",
    "ModelCall",
    "Raised",
    "RunError",
    "RunEvent",
    "RunResult",
    "StatusEvent",
    "TelemetryHooks",
    "ToolResultEvent",
    "ToolStartedEvent",
    "event_to_json",
]
