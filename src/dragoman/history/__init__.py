"""The record of a conversation, what follows from it, and how it is handed to a model that did not make it.

The record is loaded on first use: a program that only calls models needs the handoff alone.
"""

from typing import TYPE_CHECKING

from .._lazynames import lazy_names
from .handoff import HandedOff, hand_off

if TYPE_CHECKING:
    from .contextmessages import (
        ContextMessage,
        DetailPolicy,
        InterruptedOutput,
        ModelInputAtDetail,
        ModelInputMessage,
        ModelOutputMessage,
        SystemInstructionMessage,
        SystemMessage,
        TokenUsageCarrier,
        ToolCallCarrier,
        ToolCallResult,
        ToolResultsAtDetail,
        ToolResultsMessage,
        context_messages,
        live_screen_of,
        newest_live,
        to_messages,
    )
    from .derived import AgentStatus, DerivedState, LastError, OpenCall
    from .entries import (
        AbortRequestedEntry,
        ApprovalAnsweredEntry,
        ApprovalAskedEntry,
        CompactionEntry,
        ContextMessageRole,
        ContextualHistoryEntry,
        EpochEntry,
        HistoryEntry,
        HistoryEntryKind,
        InterruptionEntry,
        ModelInputEntry,
        ModelOutputEntry,
        NotebookEntry,
        NotebookOperation,
        ResetEntry,
        RunFinishedEntry,
        RunRequestedEntry,
        RunStartedEntry,
        RunStatus,
        SteeringEntry,
        SystemInstructionEntry,
        TakeoverEntry,
        ToolFinishedEntry,
        ToolResultsEntry,
        ToolStartedEntry,
        UnknownEntry,
    )
    from .entryform import entry_from_json, entry_to_json
    from .metadata import Metadata
    from .rules import RULES
    from .sections import (
        LIVE_SCREEN,
        LevelOfDetail,
        LevelOfDetailSections,
        Section,
        Sections,
        to_plain_text,
        without_live_screen,
    )
    from .state import AgentState, Clock, Sink
    from .toolresults import Attachment, HistoryToolCallResult, ToolExecutionStatus
    from .widgets import MemoryNotebookWidget, Widget, WidgetRegistry, WidgetRenderContext, WidgetResult

__all__ = [
    "LIVE_SCREEN",
    "RULES",
    "AbortRequestedEntry",
    "AgentState",
    "AgentStatus",
    "ApprovalAnsweredEntry",
    "ApprovalAskedEntry",
    "Attachment",
    "Clock",
    "CompactionEntry",
    "ContextMessage",
    "ContextMessageRole",
    "ContextualHistoryEntry",
    "DerivedState",
    "DetailPolicy",
    "EpochEntry",
    "HandedOff",
    "HistoryEntry",
    "HistoryEntryKind",
    "HistoryToolCallResult",
    "InterruptedOutput",
    "InterruptionEntry",
    "LastError",
    "LevelOfDetail",
    "LevelOfDetailSections",
    "MemoryNotebookWidget",
    "Metadata",
    "ModelInputAtDetail",
    "ModelInputEntry",
    "ModelInputMessage",
    "ModelOutputEntry",
    "ModelOutputMessage",
    "NotebookEntry",
    "NotebookOperation",
    "OpenCall",
    "ResetEntry",
    "RunFinishedEntry",
    "RunRequestedEntry",
    "RunStartedEntry",
    "RunStatus",
    "Section",
    "Sections",
    "Sink",
    "SteeringEntry",
    "SystemInstructionEntry",
    "SystemInstructionMessage",
    "SystemMessage",
    "TakeoverEntry",
    "TokenUsageCarrier",
    "ToolCallCarrier",
    "ToolCallResult",
    "ToolExecutionStatus",
    "ToolFinishedEntry",
    "ToolResultsAtDetail",
    "ToolResultsEntry",
    "ToolResultsMessage",
    "ToolStartedEntry",
    "UnknownEntry",
    "Widget",
    "WidgetRegistry",
    "WidgetRenderContext",
    "WidgetResult",
    "context_messages",
    "entry_from_json",
    "entry_to_json",
    "hand_off",
    "live_screen_of",
    "newest_live",
    "to_messages",
    "to_plain_text",
    "without_live_screen",
]

if not TYPE_CHECKING:
    # In the order in which they build on each other, so that asking for a section loads no more than sections.
    __getattr__, __dir__ = lazy_names(
        __name__,
        __all__,
        modules=(
            "sections",
            "toolresults",
            "metadata",
            "entrybase",
            "entries",
            "entryform",
            "contextmessages",
            "derived",
            "rules",
            "widgets",
            "state",
        ),
    )
