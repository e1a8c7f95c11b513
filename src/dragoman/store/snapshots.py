"""Derived state as bytes that a store can keep. It only saves time: a store may drop it at any time.

A snapshot is taken only while no call is open and nothing said to the run waits, so that it need not hold these.
"""

from hashlib import sha256

import msgspec

from .._jsontext import encode_json
from ..errors import UnreadableData
from ..history import DerivedState, LastError, RunStatus, SystemInstructionEntry, entry_from_json, entry_to_json
from ..history.derived import AnswerEnd
from ..history.growing import GrowingIds
from ..usage import TokenUsage
from .protocol import Snapshot

__all__ = ["read_snapshot", "take_snapshot"]

# A snapshot of another version, or of a state with other fields, counts as none.
VERSION = 1
_FIELDS = DerivedState.__struct_fields__


class _Derived(msgspec.Struct, array_like=True):
    """A derived state without open calls, in the form that is kept."""

    version: int
    fields: tuple[str, ...]
    next_serial: int
    current_run_id: str
    outcome: RunStatus | None
    call_ids: list[str]
    last_error: LastError | None
    token_usage: TokenUsage
    instruction: str | None
    notebook: str
    reset_serial: int
    owes_answer: bool
    answer_end: AnswerEnd | None


def take_snapshot(derived: DerivedState) -> Snapshot | None:
    """Return the state to keep; None while calls are open or steering waits, or without entries."""
    if derived.open_calls or derived.steering or derived.abort_request or not derived.next_serial:
        return None
    instruction = derived.instruction_entry
    data = encode_json(
        _Derived(
            version=VERSION,
            fields=_FIELDS,
            next_serial=derived.next_serial,
            current_run_id=derived.current_run_id,
            outcome=derived.outcome,
            call_ids=list(derived.call_ids),
            last_error=derived.last_error,
            token_usage=derived.token_usage,
            instruction=entry_to_json(instruction).decode() if instruction else None,
            notebook=derived.notebook,
            reset_serial=derived.reset_serial,
            owes_answer=derived.owes_answer,
            answer_end=derived.answer_end,
        )
    )
    return Snapshot(derived.next_serial - 1, sha256(data).digest() + data)


def read_snapshot(snapshot: Snapshot | None) -> DerivedState:
    """Return the state that was kept; the one before all entries if there is none, or none that can be used."""
    if snapshot is None or type(snapshot.data) is not bytes:
        return DerivedState()
    if sha256(snapshot.data[32:]).digest() != snapshot.data[:32]:
        return DerivedState()
    try:
        kept = msgspec.json.decode(snapshot.data[32:], type=_Derived)
        instruction = None if kept.instruction is None else entry_from_json(kept.instruction)
    except (msgspec.MsgspecError, UnreadableData, RecursionError):
        return DerivedState()
    usable = (kept.version, kept.fields, kept.next_serial) == (VERSION, _FIELDS, snapshot.serial + 1)
    if not usable or not isinstance(instruction, SystemInstructionEntry | None):
        return DerivedState()
    return DerivedState(
        next_serial=kept.next_serial,
        current_run_id=kept.current_run_id,
        outcome=kept.outcome,
        call_ids=GrowingIds(kept.call_ids),
        last_error=kept.last_error,
        token_usage=kept.token_usage,
        instruction_entry=instruction,
        notebook=kept.notebook,
        reset_serial=kept.reset_serial,
        owes_answer=kept.owes_answer,
        answer_end=kept.answer_end,
    )
