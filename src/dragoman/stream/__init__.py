"""From bytes to a message: framings, the decoder protocol, the contract, the guard and the assembler."""

from .assembler import Assembler, Assembly, assemble
from .contract import TERMINAL_STATES, TRANSITIONS, StreamContract
from .encoder import ConversationEncoder
from .events import EventParser, WireEvent
from .eventstream import EventStreamParser
from .guard import Guard, guard_deltas
from .reader import Codec, EventDecoder, ResponseReader, TypedJson
from .sse import SseParser
from .writer import DeltaWriter

__all__ = [
    "TERMINAL_STATES",
    "TRANSITIONS",
    "Assembler",
    "Assembly",
    "Codec",
    "ConversationEncoder",
    "DeltaWriter",
    "EventDecoder",
    "EventParser",
    "EventStreamParser",
    "Guard",
    "ResponseReader",
    "SseParser",
    "StreamContract",
    "TypedJson",
    "WireEvent",
    "assemble",
    "guard_deltas",
]
