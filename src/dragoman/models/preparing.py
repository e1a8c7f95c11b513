"""Conversations on their way to one vendor, remembered while they grow: a request costs what is new in it.

What is remembered only saves time: the same messages, tools and settings give the same bytes, whoever asked before.
"""

from collections.abc import Sequence

import msgspec

from ..history.handoff import HandedOff, Handoff
from ..message import Message, ModelInvocationDescriptor
from ..request import Growth
from ..target import TargetRules
from ..toolspec import ToolSpec

__all__ = ["Preparation", "Preparations"]

# How many conversations are remembered, and how large their requests may be together; the newest one always is.
KEPT = 32
KEPT_BYTES = 64 * 1024 * 1024


class Preparation(msgspec.Struct, eq=False):
    """One conversation: how it was handed off, and what the codec has written of it."""

    handoff: Handoff
    growth: Growth
    size: int = 0

    def hand_off(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> HandedOff:
        """Return the conversation as the target accepts it."""
        handed = self.handoff.extended(messages, tools)
        self.growth.settled = handed.settled
        return handed


class Preparations:
    """The newest conversations, found by the identity of their messages: nobody gets anything of another's.

    One is taken out while it is in use, so that threads do not share it; it is put back when all went well.
    """

    def __init__(self) -> None:
        self._kept: list[Preparation] = []

    def take(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        target: ModelInvocationDescriptor,
        rules: TargetRules,
    ) -> Preparation:
        """Return the conversation that goes on in these messages, or a new one."""
        for kept in tuple(self._kept):
            if kept.handoff.is_for(target, rules) and kept.handoff.continues_in(messages, tools):
                try:
                    self._kept.remove(kept)
                except ValueError:  # another thread was faster
                    continue
                return kept
        return Preparation(Handoff(tools, target=target, rules=rules), Growth())

    def keep(self, preparation: Preparation, size: int) -> None:
        """Remember the conversation, something of which is settled, with the size of its request; forget the oldest."""
        preparation.size = size
        self._kept.insert(0, preparation)
        del self._kept[KEPT:]
        while len(self._kept) > 1 and sum(kept.size for kept in self._kept) > KEPT_BYTES:
            del self._kept[-1:]
