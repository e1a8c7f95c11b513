"""Units to the same units in less room: calls stay calls, results keep chosen lines, in their own place.

A model goes on from its own turns, so what is reduced stays a turn. A text or an argument of more than `cap` characters
keeps its beginning and end. A result keeps its first lines and those that were picked. Thinking is left out, and with
it the mark of the model that sent it: a handoff takes a reduced message for one of another model. Knows no budget.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ..history import HistoryEntry, ToolResultsEntry
from ..history.entries import with_text_in_result
from ..message import Message, Role, Thinking, ToolCall, ToolResult
from .cutting import cut_message, cut_text
from .index import Block, HistoryIndex
from .ledger import MARKER, Pick, picked_block, picked_lines
from .timeline import Unit
from .tokens import Overhead, TokenCounter, count_message

__all__ = ["Picks", "Turns", "head_of", "reduce_unit"]

# The picks of results, by the entry's serial and the result's place in it.
Picks = Mapping[tuple[int, int], Pick]

# A result keeps its first lines of so many characters, whatever is chosen of it: how a call went stands there. Read by
# a real model, names that were seen far back lose a quarter less than without (docs/context.md).
HEAD = 100

_NO_OVERHEAD = Overhead(0, 0, 0, 0, 0)


class Turns(msgspec.Struct, frozen=True):
    """Messages as they are shown, the tokens of what they say, and how often a target writes something around that."""

    messages: tuple[Message, ...] = ()
    said: int = 0
    around: Overhead = _NO_OVERHEAD

    @classmethod
    def of(cls, messages: Sequence[Message], counter: TokenCounter) -> "Turns":
        """Return messages with what they count."""
        said = sum(count_message(message, counter, overhead=_NO_OVERHEAD) for message in messages)
        parts = [part for message in messages for part in message.parts]
        calls = sum(isinstance(part, ToolCall) for part in parts)
        results = [part for part in parts if isinstance(part, ToolResult)]
        inside = sum(len(result.content) for result in results if isinstance(result.content, tuple))
        around = Overhead(len(messages), len(parts) - calls - len(results) + inside, calls, len(results), 0)
        return cls(tuple(messages), said, around)

    @classmethod
    def joined(cls, turns: Iterable["Turns"]) -> "Turns":
        """Return several after one another."""
        messages: list[Message] = []
        said = 0
        around = [0, 0, 0, 0, 0]
        for turn in turns:
            messages += turn.messages
            said += turn.said
            around = [a + b for a, b in zip(around, msgspec.structs.astuple(turn.around), strict=True)]
        return cls(tuple(messages), said, Overhead(*around))

    def tokens(self, overhead: Overhead) -> int:
        """Return what the messages count for a target that writes `overhead` around them."""
        around = self.around
        size = around.message * overhead.message + around.part * overhead.part
        return self.said + size + around.call * overhead.call + around.result * overhead.result


def reduce_unit(unit: Unit, picks: Picks, index: HistoryIndex, cap: int) -> list[Message]:
    """Return the unit's messages with texts of at most `cap` characters, and results reduced to the picked lines."""
    messages: list[Message] = []
    for entry, whole in unit.by_entry():
        if isinstance(entry, ToolResultsEntry):
            for place, message in enumerate(whole):
                messages.append(_reduced_result(message, entry.serial, place, picks, index))
            if entry.tells_error:
                messages[-1] = with_text_in_result(messages[-1], cut_text(entry.execute_error or "", entry.serial, cap))
        else:
            messages += (_reduced_words(message, entry, cap) for message in whole)
    return messages


def _reduced_words(message: Message, entry: HistoryEntry, cap: int) -> Message:
    cut = cut_message(message, entry.serial, cap)
    if cut.role is not Role.ASSISTANT:
        return cut
    parts = tuple(part for part in cut.parts if not isinstance(part, Thinking))
    meta = cut.meta
    if meta is not None and meta.invocation is not None:
        meta = msgspec.structs.replace(meta, invocation=None)
    return msgspec.structs.replace(cut, parts=parts, meta=meta)


def _reduced_result(message: Message, serial: int, place: int, picks: Picks, index: HistoryIndex) -> Message:
    """The message with the first and the picked lines in its result; with no picks the gist that its tool gave."""
    (result,) = message.parts
    assert isinstance(result, ToolResult)
    pick = picks.get((serial, place))
    block = picked_block(index, pick or Pick(serial, place, ()))
    shown = Pick.of(block, {*head_of(block), *(pick.lines if pick else ())})
    lines = [f"{MARKER}#{serial}"]
    if not shown.ranges:
        lines += [] if block.gist is None else [block.gist]
    elif shown.ranges == ((0, len(block.lines) - 1),) and result.content == "\n".join(block.lines):
        lines = block.lines
    else:
        lines += picked_lines(block, shown)
    return msgspec.structs.replace(message, parts=(msgspec.structs.replace(result, content="\n".join(lines)),))


def head_of(block: Block) -> range:
    """Return the first lines of a result, which stay whatever is chosen: of HEAD characters, but at least one.

    None where the tool gave a gist: that says how the call went.
    """
    if block.gist is not None:
        return range(0)
    size = 0
    for number, line in enumerate(block.lines):
        size += len(line)
        if size > HEAD:
            return range(max(number, 1))
    return range(len(block.lines))
