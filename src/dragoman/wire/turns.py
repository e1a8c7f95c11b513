"""A conversation as codecs write it while it grows: what the next request will begin with too is written once.

`write_conversation` gives the messages to a codec's own `Growing` value, one at a time. Knows no wire API.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeAlias, TypeVar

import msgspec

from ..jsontext import decode_json, encode_json
from ..message import Message
from ..request import ModelRequest
from ..target import Dialect

__all__ = ["Growing", "Turns", "as_json", "read_back", "write_conversation"]

Block: TypeAlias = dict[str, Any]


class Growing(msgspec.Struct):
    """The messages so far, as one codec writes them. Its lists, dicts and sets are its own; what they hold is not."""

    def add(self, message: Message) -> None:
        """Write the next message."""
        raise NotImplementedError

    def copy(self) -> Self:
        """Return a twin that can be added to while this one stays as it is."""
        fields = msgspec.structs.astuple(self)
        return type(self)(*(field.copy() if isinstance(field, (list, dict, set)) else field for field in fields))


_Growing = TypeVar("_Growing", bound=Growing)


def write_conversation(request: ModelRequest, begin: Callable[[], _Growing]) -> _Growing:
    """Return what `begin` gives with all messages of the request added; what is settled is kept for the next one.

    Dialect and model alone may decide how a message is written: they are what the next request shares with this one.
    """
    growth, messages = request.growth, request.messages
    if growth is None or not growth.settled:
        written = begin()
    else:
        written = growth.written or begin()
        for message in messages[growth.size : growth.settled]:
            written.add(message)
        growth.written, growth.size = written, growth.settled
        messages = messages[growth.settled :]
        written = written.copy()
    for message in messages:
        written.add(message)
    return written


def as_json(value: Any) -> msgspec.Raw:
    """Return the value as JSON that goes into a larger value as it is."""
    return msgspec.Raw(encode_json(value))


def read_back(written: msgspec.Raw) -> Any:
    """Return the value that `as_json` was given."""
    return decode_json(bytes(written))


class Turns(Growing):
    """Turns of a role and its blocks, for APIs that want messages of one role in a row together.

    Turns that are over are JSON; the last one is open, and its blocks are values. `starts` has the number of each
    turn's first message; `ends` says for each message how many blocks its turn has up to it, or -1 if it is left out.
    """

    dialect: Dialect
    over: list[msgspec.Raw] = []
    role: str = ""
    blocks: list[Block] = []
    starts: list[int] = []
    ends: list[int] = []

    def begin(self, role: str) -> None:
        """Begin a turn; the one before it is over."""
        if self.role:
            self.close()
            self.over.append(as_json({"role": self.role, "content": self.blocks}))
        self.role, self.blocks = role, []
        self.starts.append(len(self.ends))

    def close(self) -> None:
        """Make the open turn one that the API takes."""
        raise NotImplementedError

    def written(self) -> list[Any]:
        """Return all turns as a request holds them."""
        return [*self.over, {"role": self.role, "content": self.blocks}] if self.role else []

    def change(self, turn: int, change: Callable[[list[Block]], None]) -> None:
        """Let `change` have the blocks of a turn."""
        if turn == len(self.over):
            change(self.blocks)
        else:
            read = read_back(self.over[turn])
            change(read["content"])
            self.over[turn] = as_json(read)

    def anchored(self, anchors: Sequence[int]) -> list[tuple[int, int]]:
        """Return for each anchor its turn and how many blocks that has up to it; without any, the whole last turn."""
        known: list[int] = []
        if anchors:
            known = [place for place in sorted(set(anchors)) if 0 <= place < len(self.ends) and self.ends[place] >= 0]
        if known or not self.role:
            return [(bisect_right(self.starts, anchor) - 1, self.ends[anchor]) for anchor in known]
        return [(len(self.over), len(self.blocks))]
