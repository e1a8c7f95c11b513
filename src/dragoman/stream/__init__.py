"""From bytes to a message and back: framings, decoder and writer protocols, contract, guard and assembler."""

from .answer_writer import AnswerForm, AnswerPart, AnswerWriter, ErrorAnswer, frame_events
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
    "AnswerForm",
    "AnswerPart",
    "AnswerWriter",
    "Assembler",
    "Assembly",
    "Codec",
    "ConversationEncoder",
    "DeltaWriter",
    "ErrorAnswer",
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
    "frame_events",
    "guard_deltas",
]
