"""The tool with which a model gets a folded entry back, a long one in pieces. Reads the record; knows no projection."""

from collections.abc import Mapping, Sequence
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
from ..message import Part, Text
from ..toolspec import ToolSpec
from .ledger import MARKER
from .limiting import first_bytes
from .lines import said_in

__all__ = ["RECALL_TOOL", "recall"]

RECALL_TOOL = ToolSpec(
    "recall",
    f"Return an earlier entry of this conversation whole. Old entries are shown shortened: a line such as "
    f"'{MARKER}#12 read_file' stands before what is left of entry 12. A long entry comes in pieces: the last line of a "
    "piece says where the next one starts.",
    {
        "type": "object",
        "properties": {
            "entry": {"type": "integer", "description": "The number after the #"},
            "start": {"type": "integer", "description": "The character to start at, 0 if not given"},
        },
        "required": ["entry"],
    },
)
# What the line at the end of a piece may take of its bytes.
_GOES_ON_BYTES = 100


def recall(
    entries: Sequence[HistoryEntry], arguments: Mapping[str, Any], *, result_limit_bytes: int | None = None
) -> str:
    """Return the text of the entry that the arguments name; raise ToolError if there is none that a model may see.

    A text file is its text; other pictures and files are described. With a limit a longer text comes in pieces of so
    many bytes at most; the last line of each then names the `start` of the next one.
    """
    serial, start = arguments.get("entry"), arguments.get("start", 0)
    if type(serial) is not int or type(start) is not int or start < 0:
        raise ToolError("entry and start must be whole numbers from 0 up", code=ErrorCode.INVALID_ARGUMENTS)
    later = entries[serial:] if 0 <= serial < len(entries) else ()
    said = None if not later or any(isinstance(entry, ResetEntry) for entry in later) else _parts(later)
    if said is None:
        raise ToolError(f"there is no entry #{serial} in this conversation", code=ErrorCode.INVALID_ARGUMENTS)
    text = said_in(said)[start:]
    if result_limit_bytes is None or len(text.encode()) <= result_limit_bytes:
        return text
    piece = first_bytes(text, max(result_limit_bytes - _GOES_ON_BYTES, 4))
    goes_on = f"{len(text) - len(piece):,} more characters: recall entry {serial}, start {start + len(piece)}"
    return f"{piece}\n{MARKER} {goes_on}"


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
