"""The mirror of a decoder: a conversation to requests of one wire API, message by message. Knows no wire API itself."""

from typing import Any, Self

import msgspec

from ..message import Message
from ..request import ModelRequest, WireRequest
from ..target import Dialect

__all__ = ["ConversationEncoder"]


class ConversationEncoder(msgspec.Struct):
    """Encodes a conversation for one model of one vendor: takes messages as they come, and writes requests.

    Dialect and model alone decide how a message is encoded: the other settings may change from request to request.
    An encoder's lists, dicts and sets are its own; what they hold is shared with its copies and must not be changed.
    """

    dialect: Dialect
    model: str

    def add(self, message: Message) -> None:
        """Encode the next message, which handoff has fitted to the target."""
        raise NotImplementedError

    def copy(self) -> Self:
        """Return a copy that can be added to while this encoder stays as it is."""
        fields: dict[str, Any] = msgspec.structs.asdict(self)
        own = {name: field.copy() for name, field in fields.items() if isinstance(field, (list, dict, set))}
        return msgspec.structs.replace(self, **own)

    def write(self, request: ModelRequest) -> WireRequest:
        """Return the request for the messages that were added, which are those of `request`; add nothing afterwards."""
        raise NotImplementedError
