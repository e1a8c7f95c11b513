"""What of a conversation a model is shown: how much fits a budget, at which level of detail. Pure."""

from .compaction import CompactionRequest, Compactor, ModelCompactor, compaction_entry
from .index import INJECTED_KEY
from .ledger import MARKER
from .manager import ContextBuildInput, ContextBuildResult, ContextManager, ContextStats, ContextUpdateResult
from .recall import RECALL_TOOL, recall
from .sources import MessageSource
from .timeline import ESTIMATE_KEY, Unit
from .tokens import EstimateCounter, TokenCounter, UsageCorrection, count_message, find_counter

__all__ = [
    "ESTIMATE_KEY",
    "INJECTED_KEY",
    "MARKER",
    "RECALL_TOOL",
    "CompactionRequest",
    "Compactor",
    "ContextBuildInput",
    "ContextBuildResult",
    "ContextManager",
    "ContextStats",
    "ContextUpdateResult",
    "EstimateCounter",
    "MessageSource",
    "ModelCompactor",
    "TokenCounter",
    "Unit",
    "UsageCorrection",
    "compaction_entry",
    "count_message",
    "find_counter",
    "recall",
]
