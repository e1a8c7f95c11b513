"""One append-only conversation record that any language model can read and carry on.

What the record consists of, and what builds contexts of it, is loaded when it is first asked for; all names of these
are in `dragoman.history` and `dragoman.context`.
"""

from typing import TYPE_CHECKING

from .delta import (
    DoneDelta,
    ErrorDelta,
    ImageDelta,
    MessageDelta,
    ProviderItemDelta,
    StartDelta,
    TextDelta,
    ThinkingDelta,
    ToolCallArgsDelta,
    ToolCallEndDelta,
    ToolCallStartDelta,
    UnknownDelta,
    UsageDelta,
)
from .errors import (
    ContractViolation,
    DragomanError,
    ErrorCode,
    IllegalAppend,
    InvalidValue,
    MissingExtra,
    ModelError,
    StoreError,
    ToolError,
    UnreadableData,
    redact,
)
from .jsonform import SCHEMA_VERSION, from_json, to_json
from .message import (
    FileRef,
    FinishReason,
    Image,
    Message,
    MessageMeta,
    ModelInvocationDescriptor,
    Part,
    ProviderItem,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPart,
)
from .models import ErrorMapper, Model, ModelStream, ProviderClient, guard_stream, model, render_request
from .request import (
    AgentConfig,
    CacheConfig,
    ContextConfig,
    HostedTool,
    LoopConfig,
    ModelConfig,
    ModelInfo,
    ObservabilityConfig,
    Reasoning,
    RuntimeConfig,
    ToolsConfig,
    WireRequest,
)
from .stream import Assembler, Assembly, Guard, StreamContract, assemble, guard_deltas
from .toolspec import OneTool, ToolChoice, ToolSpec
from .usage import Prices, TokenUsage

if TYPE_CHECKING:
    from .context import (
        ContextBuildInput,
        ContextBuildResult,
        ContextManager,
        ContextStats,
        ContextUpdateResult,
    )
    from .history import (
        AgentState,
        AgentStatus,
        ApprovalAnsweredEntry,
        ApprovalAskedEntry,
        CompactionEntry,
        EpochEntry,
        HistoryEntry,
        HistoryToolCallResult,
        InterruptionEntry,
        LevelOfDetail,
        LevelOfDetailSections,
        MemoryNotebookWidget,
        ModelInputEntry,
        ModelOutputEntry,
        NotebookEntry,
        ResetEntry,
        RunFinishedEntry,
        RunStartedEntry,
        RunStatus,
        Section,
        SystemInstructionEntry,
        ToolCallRequest,
        ToolExecutionStatus,
        ToolFinishedEntry,
        ToolResultsEntry,
        ToolStartedEntry,
        UnknownEntry,
        Widget,
        WidgetRenderContext,
        WidgetResult,
        entry_from_json,
        entry_to_json,
        to_messages,
    )
    from .schema import json_schema

__version__ = "0.1.0"

__all__ = [
    "SCHEMA_VERSION",
    "AgentConfig",
    "AgentState",
    "AgentStatus",
    "ApprovalAnsweredEntry",
    "ApprovalAskedEntry",
    "Assembler",
    "Assembly",
    "CacheConfig",
    "CompactionEntry",
    "ContextBuildInput",
    "ContextBuildResult",
    "ContextConfig",
    "ContextManager",
    "ContextStats",
    "ContextUpdateResult",
    "ContractViolation",
    "DoneDelta",
    "DragomanError",
    "EpochEntry",
    "ErrorCode",
    "ErrorDelta",
    "ErrorMapper",
    "FileRef",
    "FinishReason",
    "Guard",
    "HistoryEntry",
    "HistoryToolCallResult",
    "HostedTool",
    "IllegalAppend",
    "Image",
    "ImageDelta",
    "InterruptionEntry",
    "InvalidValue",
    "LevelOfDetail",
    "LevelOfDetailSections",
    "LoopConfig",
    "MemoryNotebookWidget",
    "Message",
    "MessageDelta",
    "MessageMeta",
    "MissingExtra",
    "Model",
    "ModelConfig",
    "ModelError",
    "ModelInfo",
    "ModelInputEntry",
    "ModelInvocationDescriptor",
    "ModelOutputEntry",
    "ModelStream",
    "NotebookEntry",
    "ObservabilityConfig",
    "OneTool",
    "Part",
    "Prices",
    "ProviderClient",
    "ProviderItem",
    "ProviderItemDelta",
    "Reasoning",
    "ResetEntry",
    "Role",
    "RunFinishedEntry",
    "RunStartedEntry",
    "RunStatus",
    "RuntimeConfig",
    "Section",
    "StartDelta",
    "StoreError",
    "StreamContract",
    "SystemInstructionEntry",
    "Text",
    "TextDelta",
    "Thinking",
    "ThinkingDelta",
    "TokenUsage",
    "ToolCall",
    "ToolCallArgsDelta",
    "ToolCallEndDelta",
    "ToolCallRequest",
    "ToolCallStartDelta",
    "ToolChoice",
    "ToolError",
    "ToolExecutionStatus",
    "ToolFinishedEntry",
    "ToolResult",
    "ToolResultsEntry",
    "ToolSpec",
    "ToolStartedEntry",
    "ToolsConfig",
    "UnknownDelta",
    "UnknownEntry",
    "UnknownPart",
    "UnreadableData",
    "UsageDelta",
    "Widget",
    "WidgetRenderContext",
    "WidgetResult",
    "WireRequest",
    "assemble",
    "entry_from_json",
    "entry_to_json",
    "from_json",
    "guard_deltas",
    "guard_stream",
    "json_schema",
    "model",
    "redact",
    "render_request",
    "to_json",
    "to_messages",
]

if not TYPE_CHECKING:
    _HOMES = {
        "ContextBuildInput": ".context",
        "ContextBuildResult": ".context",
        "ContextManager": ".context",
        "ContextStats": ".context",
        "ContextUpdateResult": ".context",
        "json_schema": ".schema",
    }

    def __getattr__(name: str) -> object:
        """Load the record, a context, or the schema, when it is first asked for."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib

        home = importlib.import_module(_HOMES.get(name, ".history"), __name__)
        globals()[name] = getattr(home, name)
        return globals()[name]

    def __dir__() -> list[str]:
        """Return what is there, loaded or not."""
        return sorted({*globals(), *__all__})
