"""The loop that turns the record into work, and `Agent`, which a user holds."""

from ..errors import Raised
from .actions import Ending, RunError
from .agent import Agent
from .agentrun import AgentRun
from .approval import ApprovalDecision, ApprovalPolicy, ApprovalRequest
from .asking import QuestionPolicy, QuestionRequest
from .budget import Budget
from .eventform import event_to_json
from .events import (
    ApprovalAskedEvent,
    DeltaEvent,
    ErrorEvent,
    FinishedEvent,
    MediaNotShownEvent,
    MessageEvent,
    QuestionAskedEvent,
    RunEvent,
    StatusEvent,
    ToolResultEvent,
    ToolStartedEvent,
)
from .hooks import Hooks, ModelCall
from .loop import TRANSITIONS, AgentLoop
from .observing import TelemetryHooks
from .results import RunFailed, RunResult
from .syncrun import SyncRun

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
    "QuestionAskedEvent",
    "QuestionPolicy",
    "QuestionRequest",
    "Raised",
    "RunError",
    "RunEvent",
    "RunFailed",
    "RunResult",
    "StatusEvent",
    "SyncRun",
    "TelemetryHooks",
    "ToolResultEvent",
    "ToolStartedEvent",
    "event_to_json",
]
