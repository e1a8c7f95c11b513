"""Checks whether an answer arrived whole, the same for every wire API. Pure; knows no events.

A finish word alone is not enough: a provider may finish with a call still open, or announce a call and send none.
"""

from collections.abc import Callable, Sized
from typing import Any

from .._jsontext import parse_arguments
from ..errors import ErrorCode, ModelError
from ..message import FinishReason

__all__ = [
    "NOT_CLOSED",
    "PIECE_LOST",
    "WHOLE_FINISHES",
    "Damage",
    "call_problem",
    "contradicted",
    "finish_of",
    "input_of",
    "lost",
    "require_unfinished",
    "says_the_same",
    "worst_word",
]

# After these the provider had nothing more to say; the others cut an answer, or are not known to be good.
WHOLE_FINISHES = frozenset({FinishReason.STOP, FinishReason.TOOL_CALLS, FinishReason.PAUSE})

# The `parse_error` of a call that the provider has not closed. Its text may be an object and still not be all of it.
NOT_CLOSED = "the answer ended before the call was closed"
# The `parse_error` of a call for which something came that the decoder does not know: it may be a piece of arguments.
PIECE_LOST = "something unknown came for the call, so its arguments may lack a piece"

# The reasons from good to bad: of two in one answer the worse one counts.
_BADNESS = {
    reason: badness
    for badness, reason in enumerate(
        [
            FinishReason.STOP,
            FinishReason.TOOL_CALLS,
            FinishReason.PAUSE,
            FinishReason.REFUSAL,
            FinishReason.LENGTH,
            FinishReason.CONTENT_FILTER,
            FinishReason.OTHER,
        ]
    )
}


def lost(what: str) -> ModelError:
    """Return the error for an answer that lacks a part; sent again, the request may get all of it."""
    return ModelError(f"part of the answer did not arrive: {what}", code=ErrorCode.STREAM_TRUNCATED)


def contradicted(what: str) -> ModelError:
    """Return the error for an answer that says two different things where it repeats one."""
    return ModelError(f"the answer contradicts itself: {what}", code=ErrorCode.PROTOCOL_VIOLATION)


def require_unfinished(word: str | None) -> None:
    """Raise ModelError where a tool call begins after the word with which the provider finished the answer."""
    if word:
        raise contradicted(f"a tool call came after the answer had finished with {word[:40]!r}")


class Damage:
    """Which calls of an answer something unknown came for: that of an index, or without one all that were open.

    It counts the calls and keeps a number for each index, so that many events do not look through many calls.
    """

    __slots__ = ("_before", "_opened")

    def __init__(self) -> None:
        self._opened = 0
        self._before: dict[int | None, int] = {}  # by index, how many calls had opened when it came

    def open(self) -> int:
        """Count a call that opens; return its number."""
        self._opened += 1
        return self._opened

    def add(self, index: int | None) -> None:
        """Note something unknown that came for the index, or without one."""
        self._before[index] = self._opened

    def is_on(self, index: int | None, number: int) -> bool:
        """Whether something unknown came for the call of this index and number while it was open."""
        return number <= self._before.get(index, 0) or number <= self._before.get(None, 0)


def call_problem(*, is_closed: bool, is_damaged: bool) -> str | None:
    """Return the `parse_error` of a call that may lack a piece; None for a whole one."""
    return NOT_CLOSED if not is_closed else PIECE_LOST if is_damaged else None


def finish_of(reason: FinishReason, calls: Sized, *, is_input_cut: bool = False) -> FinishReason:
    """Return why the answer finished; raise ModelError where it lacks what that promises.

    Several vendors say `stop` beside a call. `is_input_cut`: the input of a server tool does not parse.
    """
    if calls and reason is FinishReason.STOP:
        reason = FinishReason.TOOL_CALLS
    if reason in WHOLE_FINISHES and is_input_cut:
        raise lost("the input of a server tool does not parse")
    if reason is FinishReason.TOOL_CALLS and not calls:
        raise lost("the provider finished for a tool call, and none came")
    return reason


def worst_word(before: str | None, word: str | None, reason_of: Callable[[str], FinishReason]) -> str | None:
    """Return the finish word that counts where an answer has two: a later word does not take back that it was cut."""
    if not before or not word:
        return before or word or None
    return before if _BADNESS[reason_of(before)] > _BADNESS[reason_of(word)] else word


def input_of(written: str) -> tuple[dict[str, Any], bool]:
    """Return the input of a server tool, and whether it is whole; text that does not parse is kept as text."""
    arguments = parse_arguments(written).arguments
    return ({"unparsed_arguments": written}, False) if arguments is None else (arguments, True)


def says_the_same(one: str, other: str) -> bool:
    """Return whether two texts of arguments say the same: the order of keys and the white space do not count."""
    if one.strip() == other.strip():
        return True
    parsed = parse_arguments(one).arguments
    return parsed is not None and parsed == parse_arguments(other).arguments
