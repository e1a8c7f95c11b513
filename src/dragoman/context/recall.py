"""The tool with which a model gets a folded entry back, whole. Reads the record; knows no projection."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import ErrorCode, ToolError
from ..history import CompactionEntry, ContextualHistoryEntry, HistoryEntry, InterruptionEntry, ResetEntry
from ..message import Message, ProviderItem, Text, ToolCall, ToolResult
from ..toolspec import ToolSpec
from .ledger import MARKER
from .lines import argument_lines

__all__ = ["RECALL_TOOL", "recall"]

RECALL_TOOL = ToolSpec(
    "recall",
    f"Return an earlier entry of this conversation whole. Old entries are shown shortened: a line such as "
    f"'{MARKER}#12 read_file' stands before what is left of entry 12.",
    {
        "type": "object",
        "properties": {"entry": {"type": "integer", "description": "The number after the #"}},
        "required": ["entry"],
    },
)


def recall(entries: Sequence[HistoryEntry], arguments: Mapping[str, Any]) -> str:
    """Return the text of the entry that the arguments name; raise ToolError if there is none that a model may see."""
    serial = arguments.get("entry")
    if type(serial) is not int:
        raise ToolError("entry must be a whole number", code=ErrorCode.INVALID_ARGUMENTS)
    later = entries[serial:] if 0 <= serial < len(entries) else ()
    said = None if not later or any(isinstance(entry, ResetEntry) for entry in later) else _messages(later[0])
    if said is None:
        raise ToolError(f"there is no entry #{serial} in this conversation", code=ErrorCode.INVALID_ARGUMENTS)
    texts = [_said(part) for message in said for part in message.parts]
    return "\n".join(text for text in texts if text)


def _messages(entry: HistoryEntry) -> tuple[Message, ...] | None:
    """What a model saw of an entry, None if that is nothing."""
    if isinstance(entry, ContextualHistoryEntry):
        return entry.messages()
    if isinstance(entry, InterruptionEntry) and entry.partial is not None:
        return (entry.partial,)
    return (Message.user(entry.summary),) if isinstance(entry, CompactionEntry) else None


def _said(part: object) -> str:
    if isinstance(part, (Text, ProviderItem)):
        return part.text or ""
    if isinstance(part, ToolCall):
        return "\n".join((part.tool_name, *argument_lines(part)))
    if isinstance(part, ToolResult):
        return part.content if isinstance(part.content, str) else "\n".join(map(_said, part.content))
    return ""
