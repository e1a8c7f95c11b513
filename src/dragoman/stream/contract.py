"""The stream protocol: which delta may come when. Pure; one call per delta; an illegal delta raises with the reason.

Every stream of every model passes through `StreamContract`, in production, always.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TypeAlias

from ..delta import DELTA_CLASSES, MessageDelta, ToolCallArgsDelta, ToolCallEndDelta, ToolCallStartDelta, UnknownDelta
from ..errors import ContractViolation

__all__ = ["TERMINAL_STATES", "TRANSITIONS", "StreamContract"]

# state -> {kind: next state}. A kind that is missing in a state's row is a violation.
TRANSITIONS: dict[str, dict[str, str]] = {
    "idle": {"start": "open", "error": "error"},
    "open": {
        "text": "open",
        "thinking": "open",
        "image": "open",
        "tool_call_start": "open",
        "tool_call_args": "open",
        "tool_call_end": "open",
        "provider_item": "open",
        "usage": "open",
        "done": "done",
        "error": "error",
    },
    "done": {},
    "error": {},
}
TERMINAL_STATES = frozenset(state for state, row in TRANSITIONS.items() if not row)

# The same by class: an object that only looks like a delta has no row.
_ROWS: dict[str, dict[type, str]] = {
    state: {DELTA_CLASSES[kind]: next_state for kind, next_state in row.items()} for state, row in TRANSITIONS.items()
}

# The rules that the table cannot say:
#   1. `seq` is strictly increasing.
#   2. A call id opens once in a stream.
#   3. Argument text comes only for an open call.
#   4. Only an open call ends.
#   5. Every call has ended before `done`.


class StreamContract:
    """Follows one stream and raises ContractViolation at the first delta that the protocol does not allow.

    A delta that was refused leaves the state as it was. `source` names the stream in violations.
    """

    __slots__ = ("_ended_calls", "_open_calls", "_row", "finished", "last_seq", "source", "state")

    def __init__(self, source: str = "stream") -> None:
        self.source = source
        self.state = "idle"
        self.finished = False  # whether a terminal delta has been seen
        self._row = _ROWS["idle"]
        self.last_seq = -1
        self._open_calls: dict[str, None] = {}
        self._ended_calls: set[str] = set()

    def check(self, delta: MessageDelta) -> None:
        """Take the next delta; raise ContractViolation if it is not legal here."""
        next_state = self._row.get(type(delta))
        if next_state is None:
            raise self._violation(f"{_what(delta)} in state {self.state}: {_legal_kinds(TRANSITIONS[self.state])}")
        if delta.seq <= self.last_seq:
            raise self._violation(f"{delta.kind} with seq {delta.seq}: seq must be above {self.last_seq}")
        rule = _RULES.get(delta.kind)
        if rule is not None:
            rule(self, delta)
        self.last_seq = delta.seq
        if next_state != self.state:
            self.state = next_state
            self._row = _ROWS[next_state]
            if next_state in TERMINAL_STATES:
                self.finished = True
                self._open_calls.clear()  # an error leaves none of them open

    def take(self, deltas: Sequence[MessageDelta]) -> int:
        """Take the deltas up to the first that is not legal and return how many; `check` tells what is wrong with it.

        The same as `check` for each, and several times faster for pieces of text and arguments.
        """
        plain, last_seq, open_calls = _PLAIN[self.state], self.last_seq, self._open_calls
        for taken, delta in enumerate(deltas):
            if (
                type(delta) in plain or (type(delta) is ToolCallArgsDelta and delta.tool_call_id in open_calls)
            ) and delta.seq > last_seq:
                last_seq = delta.seq
                continue
            self.last_seq = last_seq
            try:
                self.check(delta)
            except ContractViolation:
                return taken
            plain, last_seq = _PLAIN[self.state], self.last_seq
        self.last_seq = last_seq
        return len(deltas)

    def _open_call(self, delta: ToolCallStartDelta) -> None:
        call = delta.tool_call_id
        if call in self._open_calls or call in self._ended_calls:
            raise self._violation(f"tool_call_start for {_short(call)}: that call was opened before in this stream")
        self._open_calls[call] = None

    def _require_open_call(self, delta: ToolCallArgsDelta | ToolCallEndDelta) -> None:
        call = delta.tool_call_id
        if call not in self._open_calls:
            seen = f"{delta.kind} for {_short(call)} in state {self.state}"
            raise self._violation(f"{seen}: that call is not open ({self._open_names()})")

    def _end_call(self, delta: ToolCallEndDelta) -> None:
        self._require_open_call(delta)
        del self._open_calls[delta.tool_call_id]
        self._ended_calls.add(delta.tool_call_id)

    def _require_no_open_call(self, _: MessageDelta) -> None:
        if self._open_calls:
            raise self._violation(f"done in state {self.state}: every call must have ended ({self._open_names()})")

    def _open_names(self) -> str:
        if not self._open_calls:
            return "open: none"
        shown = ", ".join(_short(call) for call in islice(self._open_calls, 5))
        more = len(self._open_calls) - 5
        return f"open: {shown}" + (f" and {more} more" if more > 0 else "")

    def _violation(self, what: str) -> ContractViolation:
        return ContractViolation(f"{self.source}: {what}")


_Rule: TypeAlias = Callable[[StreamContract, MessageDelta], None]
_RULES: dict[str, _Rule] = {
    "tool_call_start": StreamContract._open_call,  # type: ignore[dict-item]  # the kind decides the class
    "tool_call_args": StreamContract._require_open_call,  # type: ignore[dict-item]
    "tool_call_end": StreamContract._end_call,  # type: ignore[dict-item]
    "done": StreamContract._require_no_open_call,
}
# By state, the kinds that change only `seq`: the state stays, and no numbered rule applies to them.
_PLAIN: dict[str, frozenset[type]] = {
    state: frozenset(
        DELTA_CLASSES[kind] for kind, next_state in row.items() if next_state == state and kind not in _RULES
    )
    for state, row in TRANSITIONS.items()
}


def _what(delta: MessageDelta) -> str:
    if type(delta) in {UnknownDelta, *DELTA_CLASSES.values()}:
        return _short(delta.kind)[1:-1]
    return f"a {type(delta).__name__}, which is no delta,"


def _legal_kinds(row: dict[str, str]) -> str:
    return f"legal are {', '.join(row)}" if row else "nothing may follow a terminal delta"


def _short(name: str) -> str:
    return repr(name if len(name) <= 40 else name[:40] + "…")
