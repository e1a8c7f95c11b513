"""The tool with which a model gets a folded entry back, whole. Reads the record; knows no projection."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import ErrorCode, ToolError
from ..history import (
    CompactionEntry,
    ContextualHistoryEntry,
    HistoryEntry,
    InterruptionEntry,
    ModelInputEntry,
    ResetEntry,
)
from ..message import FileRef, Image, Part, ProviderItem, Text, ToolCall, ToolResult
from ..toolspec import ToolSpec
from .ledger import MARKER
from .lines import argument_lines, file_text

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
    """Return the text of the entry that the arguments name; raise ToolError if there is none that a model may see.

    A text file is its text; other pictures and files are described.
    """
    serial = arguments.get("entry")
    if type(serial) is not int:
        raise ToolError("entry must be a whole number", code=ErrorCode.INVALID_ARGUMENTS)
    later = entries[serial:] if 0 <= serial < len(entries) else ()
    said = None if not later or any(isinstance(entry, ResetEntry) for entry in later) else _parts(later)
    if said is None:
        raise ToolError(f"there is no entry #{serial} in this conversation", code=ErrorCode.INVALID_ARGUMENTS)
    return _joined(said)


def _parts(entries: Sequence[HistoryEntry]) -> list[Part] | None:
    """What a model saw of the first of the entries, None if that is nothing."""
    entry = entries[0]
    if isinstance(entry, ContextualHistoryEntry):
        return [part for message in entry.messages() for part in message.parts]
    if isinstance(entry, InterruptionEntry) and entry.partial is not None and _is_shown(entries[1:]):
        return [part for part in entry.partial.parts if isinstance(part, Text)]
    return [Text(entry.summary)] if isinstance(entry, CompactionEntry) else None


def _is_shown(later: Sequence[HistoryEntry]) -> bool:
    """Whether an answer that broke off is part of the conversation: somebody spoke next. Else it was tried again."""
    spoken = (entry for entry in later if isinstance(entry, (ContextualHistoryEntry, InterruptionEntry)))
    return isinstance(next(spoken, None), ModelInputEntry)


def _joined(parts: Iterable[object]) -> str:
    return "\n".join(text for text in map(_said, parts) if text)


def _said(part: object) -> str:
    if isinstance(part, (Text, ProviderItem)):
        return part.text or ""
    if isinstance(part, ToolCall):
        return "\n".join((part.tool_name, *argument_lines(part)))
    if isinstance(part, ToolResult):
        return part.content if isinstance(part.content, str) else _joined(part.content)
    if isinstance(part, (Image, FileRef)):
        text = file_text(part)
        return _described(part) if text is None else text
    return ""


def _described(part: Image | FileRef) -> str:
    name, size = (None, None) if isinstance(part, Image) else (part.name, part.size)
    if part.data is not None:
        size = len(part.data)
    known = (name, part.mime_type or part.kind.partition("_")[0], None if size is None else f"{size} bytes")
    return f"[{', '.join(word for word in known if word)}]"
