"""Cache of encoded conversation prefixes, one per provider: a request costs what is new in it.

The cache only saves time: the same messages, tools and settings give the same bytes with an empty one.
"""

from collections.abc import Sequence
from threading import Lock

import msgspec

from ..history.handoff import HandedOff, Handoff
from ..message import Message, ModelInvocationDescriptor
from ..stream import Codec, ConversationEncoder
from ..target import Dialect, TargetRules
from ..toolspec import ToolSpec

__all__ = ["Prefix", "PrefixCache"]

# How many conversations are kept, and how large their requests may be together; the newest one is always kept.
KEPT = 32
KEPT_BYTES = 64 * 1024 * 1024


class Prefix(msgspec.Struct, eq=False):
    """The settled messages of one conversation, handed off to one target and encoded for it."""

    handoff: Handoff
    encoder: ConversationEncoder
    encoded: int = 0  # how many messages the encoder has
    size: int = 0  # bytes of the last request

    def encode(self, handed: HandedOff) -> ConversationEncoder:
        """Return an encoder that has the whole conversation; what is settled stays encoded for the next request."""
        for message in handed.messages[self.encoded : handed.settled]:
            self.encoder.add(message)
        self.encoded = handed.settled
        whole = self.encoder.copy() if self.encoded else self.encoder  # nothing of it is kept then
        for message in handed.messages[handed.settled :]:
            whole.add(message)
        return whole


class PrefixCache:
    """The newest conversations of all callers. A conversation is found by the identity of its messages.

    A prefix is taken out while it is in use, so that threads do not share it. The caller puts it back when its request
    is made.
    """

    def __init__(self, codec: Codec, dialect: Dialect) -> None:
        self._codec = codec
        self._dialect = dialect
        self._kept: list[Prefix] = []
        self._lock = Lock()

    def take(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        target: ModelInvocationDescriptor,
        rules: TargetRules,
    ) -> tuple[Prefix, HandedOff]:
        """Return the prefix that these messages extend, or a new one, and the messages as the target accepts them."""
        with self._lock:
            for index, kept in enumerate(self._kept):
                if kept.handoff.target != target or kept.handoff.rules != rules:
                    continue
                del self._kept[index]  # and it stays out if the handoff fails
                handed = kept.handoff.extended(messages, tools)
                if handed is not None:
                    return kept, handed
                self._kept.insert(index, kept)
        handoff = Handoff.to(target, rules, tools)
        handed = handoff.extended(messages, tools)
        assert handed is not None  # an empty handoff can be extended by any conversation
        return Prefix(handoff, self._codec.open_encoder(self._dialect, target.model)), handed

    def keep(self, prefix: Prefix, size: int) -> None:
        """Put a prefix back with the size of its request, unless nothing of it is settled; forget the oldest."""
        if not prefix.encoded:
            return
        prefix.size = size
        with self._lock:
            self._kept.insert(0, prefix)
            del self._kept[KEPT:]
            while len(self._kept) > 1 and sum(kept.size for kept in self._kept) > KEPT_BYTES:
                del self._kept[-1:]
