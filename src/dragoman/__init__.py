"""One append-only conversation record that any language model can read and carry on.

Here are the names that most programs need. All others are in their packages: `dragoman.history` has the entries,
`dragoman.delta` the deltas, `dragoman.stream` what reads streams. What needs more than values is loaded when it is
first asked for.
"""

from typing import TYPE_CHECKING

from ._lazynames import lazy_names
from .delta import MessageDelta, TextDelta
from .errors import (
    DragomanError,
    ErrorCode,
    InvalidValue,
    MissingExtra,
    ModelError,
    RetryTool,
    StoreError,
    ToolError,
    UnreadableData,
    redact,
)
from .jsonform import from_json, to_json
from .message import (
    FileRef,
    FinishReason,
    Image,
    Message,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from .request import (
    AgentConfig,
    CacheConfig,
    ContextConfig,
    HostedTool,
    LoopConfig,
    ModelConfig,
    ObservabilityConfig,
    Reasoning,
    RuntimeConfig,
    ToolsConfig,
)
from .toolspec import OneTool, ToolSpec
from .usage import TokenUsage

if TYPE_CHECKING:
    from .agent import Agent, AgentRun, ApprovalDecision, Hooks, RunFailed, RunResult
    from .history import AgentStatus
    from .models import Model, ModelStream, model, render_request
    from .router import ProviderRouter
    from .store import (
        MemoryStore,
        PostgresStore,
        Session,
        SessionBusy,
        SessionStore,
        SQLiteStore,
        open_session,
        start_session,
    )
    from .tools import ToolContext, ToolDefinition, tool

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "AgentConfig",
    "AgentRun",
    "AgentStatus",
    "ApprovalDecision",
    "CacheConfig",
    "ContextConfig",
    "DragomanError",
    "ErrorCode",
    "FileRef",
    "FinishReason",
    "Hooks",
    "HostedTool",
    "Image",
    "InvalidValue",
    "LoopConfig",
    "MemoryStore",
    "Message",
    "MessageDelta",
    "MissingExtra",
    "Model",
    "ModelConfig",
    "ModelError",
    "ModelStream",
    "ObservabilityConfig",
    "OneTool",
    "PostgresStore",
    "ProviderRouter",
    "Reasoning",
    "RetryTool",
    "Role",
    "RunFailed",
    "RunResult",
    "RuntimeConfig",
    "SQLiteStore",
    "Session",
    "SessionBusy",
    "SessionStore",
    "StoreError",
    "Text",
    "TextDelta",
    "Thinking",
    "TokenUsage",
    "ToolCall",
    "ToolContext",
    "ToolDefinition",
    "ToolError",
    "ToolResult",
    "ToolSpec",
    "ToolsConfig",
    "UnreadableData",
    "from_json",
    "model",
    "open_session",
    "redact",
    "render_request",
    "start_session",
    "to_json",
    "tool",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        __all__,
        found_in={
            "Agent": "agent",
            "AgentRun": "agent",
            "ApprovalDecision": "agent",
            "Hooks": "agent",
            "MemoryStore": "store",
            "Model": "models",
            "ModelStream": "models",
            "PostgresStore": "store",
            "ProviderRouter": "router",
            "RunFailed": "agent",
            "RunResult": "agent",
            "SQLiteStore": "store",
            "Session": "store",
            "SessionBusy": "store",
            "SessionStore": "store",
            "ToolContext": "tools",
            "ToolDefinition": "tools",
            "model": "models",
            "open_session": "store",
            "render_request": "models",
            "start_session": "store",
            "tool": "tools",
        },
        modules=("history",),
    )
