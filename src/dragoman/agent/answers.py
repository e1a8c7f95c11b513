"""A model's last answer in the record: whether it is whole, and its pieces joined. Pure."""

from collections.abc import Sequence

import msgspec

from ..errors import ErrorCode, redact
from ..history import ContextualHistoryEntry, HistoryEntry, ModelOutputEntry, RunStartedEntry, ToolResultsEntry
from ..history.derived import AnswerEnd
from ..message import FinishReason, Message, ToolCall
from .actions import RunError

__all__ = [
    "CONTINUES_KEY",
    "CONTINUE_PROMPT",
    "find_shortfall",
    "finish_of",
    "last_message",
]

# Marks the input with which the loop asks a model to go on; the answers before and after it are one.
CONTINUES_KEY = "continues"
CONTINUE_PROMPT = "Your answer was cut off: it reached its length limit. Go on exactly where it stops. Repeat nothing."

_WORD_LIMIT = 100  # characters of a provider's word that an error quotes
_DOUBTFUL = frozenset({FinishReason.CONTENT_FILTER, FinishReason.TOOL_CALLS, FinishReason.OTHER})


def finish_of(message: Message | None) -> FinishReason | None:
    """Return why the message ended; None if the provider did not say so."""
    return message.meta.finish_reason if message is not None and message.meta is not None else None


def find_shortfall(end: AnswerEnd) -> RunError | None:
    """Return why the answer cannot end a run; None for one that is whole, or that only pauses.

    A message without a finish reason comes from the host, which says nothing against it.
    """
    reason = end.reason
    if reason is FinishReason.LENGTH:
        return RunError(
            ErrorCode.OUTPUT_CUT,
            "the answer reached its length limit before it was whole: raise max_tokens, or set loop.continue_cut",
        )
    if reason not in _DOUBTFUL:
        return None
    word = redact(end.word)[:_WORD_LIMIT]
    said = f"{word!r}" if word else "no word of its own"
    if reason is FinishReason.CONTENT_FILTER:
        return RunError(ErrorCode.CONTENT_FILTERED, f"a filter of the provider stopped the answer, with {said}")
    if reason is FinishReason.TOOL_CALLS and not end.has_calls:
        return RunError(ErrorCode.OUTPUT_UNFINISHED, f"the answer ended with {said} to call tools, but calls none")
    if reason is FinishReason.OTHER:
        return RunError(
            ErrorCode.OUTPUT_UNFINISHED,
            f"the provider ended the answer with {said}, which does not say that it is whole",
        )
    return None


def last_message(entries: Sequence[HistoryEntry], run_id: str) -> Message | None:
    """Return the last thing that a model said in a run; an answer that was cut and went on is one message.

    The calls of a piece that was cut are not part of it: they did not run.
    """
    pieces: list[Message] = []
    is_continued = True
    for index in range(len(entries) - 1, -1, -1):
        entry = entries[index]
        if isinstance(entry, RunStartedEntry) and entry.run_id == run_id:
            break
        if isinstance(entry, ModelOutputEntry) and is_continued:
            pieces.append(entry.message)
            is_continued = False
        elif pieces and isinstance(entry, ContextualHistoryEntry):
            if entry.metadata.get(CONTINUES_KEY):
                is_continued = True
            elif not (is_continued and isinstance(entry, ToolResultsEntry)):  # of calls that were cut off too
                break
    if len(pieces) < 2:
        return pieces[0] if pieces else None
    last, *earlier = pieces
    parts = [part for piece in reversed(earlier) for part in piece.parts if not isinstance(part, ToolCall)]
    return msgspec.structs.replace(last, parts=(*parts, *last.parts))
