"""What encoders of several wire APIs share: values that are JSON already, and turns of a role and its blocks."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from .._jsontext import decode_json, encode_json
from ..stream import ConversationEncoder

__all__ = ["Turns", "as_json", "read_back"]

Block: TypeAlias = dict[str, Any]


def as_json(value: Any) -> msgspec.Raw:
    """Return the value as JSON that goes into a larger value as it is."""
    return msgspec.Raw(encode_json(value))


def read_back(written: msgspec.Raw) -> Any:
    """Return the value that `as_json` was given."""
    return decode_json(bytes(written))


class Turns(ConversationEncoder):
    """Turns of a role and its blocks, for APIs that want messages of one role in a row together.

    Turns that are over are JSON; the last one is open, and its blocks are values. `starts` has the number of each
    turn's first message; `ends` says for each message how many blocks its turn has up to it, or -1 if it is left out.
    """

    over: list[msgspec.Raw] = msgspec.field(default_factory=list)
    role: str = ""
    blocks: list[Block] = msgspec.field(default_factory=list)
    starts: list[int] = msgspec.field(default_factory=list)
    ends: list[int] = msgspec.field(default_factory=list)

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
        """Call `change` with the blocks of a turn, and keep what it did to them."""
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
            known = [each for each in sorted(set(anchors)) if 0 <= each < len(self.ends) and self.ends[each] >= 0]
        if known or not self.role:
            return [(bisect_right(self.starts, anchor) - 1, self.ends[anchor]) for anchor in known]
        return [(len(self.over), len(self.blocks))]
