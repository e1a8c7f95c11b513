"""From deltas to a message: the contract every stream is held to, the guard that closes it, the assembler."""

from .assembler import Assembler, Assembly, assemble
from .contract import TERMINAL_STATES, TRANSITIONS, StreamContract
from .guard import Guard, guard_deltas

__all__ = [
    "TERMINAL_STATES",
    "TRANSITIONS",
    "Assembler",
    "Assembly",
    "Guard",
    "StreamContract",
    "assemble",
    "guard_deltas",
]
