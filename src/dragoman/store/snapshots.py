"""Derived state as bytes that a store can keep. It only saves time: a store may drop it at any time.

A snapshot is taken only while no call is open and nothing said to the run waits, so that it need not hold these.

Anyone who can write to the database can change a snapshot. So the entry after it names its SHA-256 in its metadata,
and the chain of checksums covers that entry. A snapshot that the entry after it does not name counts as none.
"""

from collections.abc import Sequence
from hashlib import sha256

import msgspec
from msgspec.structs import replace

from .._jsontext import encode_json
from ..errors import IllegalAppend, UnreadableData
from ..history import (
    DerivedState,
    HistoryEntry,
    LastError,
    RunStatus,
    SystemInstructionEntry,
    entry_from_json,
    entry_to_json,
)
from ..history.derived import AnswerEnd
from ..history.growing import GrowingIds
from ..usage import TokenUsage
from .protocol import Snapshot

__all__ = ["describe_mismatch", "is_named_by", "name_snapshot", "read_snapshot", "take_snapshot"]

DIGEST_KEY = "state_digest"  # in the metadata of the entry after a snapshot

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
    """Return the state to keep; None while calls are open or something waits, or without entries."""
    if derived.open_calls or derived.steering or derived.requests or derived.abort_request or not derived.next_serial:
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
    return Snapshot(derived.next_serial - 1, data)


def name_snapshot(snapshot: Snapshot, entry: HistoryEntry) -> HistoryEntry | None:
    """Return the entry after the snapshot, with the snapshot's digest; None if its metadata have no room for it."""
    digest = sha256(snapshot.data).hexdigest()
    try:
        return replace(entry, metadata={**entry.metadata, DIGEST_KEY: digest})
    except IllegalAppend:
        return None


def is_named_by(snapshot: Snapshot, entry: HistoryEntry) -> bool:
    """Return whether `entry`, the one after the snapshot, names exactly these bytes."""
    return type(snapshot.data) is bytes and entry.metadata.get(DIGEST_KEY) == sha256(snapshot.data).hexdigest()


def read_snapshot(snapshot: Snapshot | None, entries: Sequence[HistoryEntry]) -> DerivedState:
    """Return the state that was kept; the one before all entries if there is none, or none that can be used.

    `entries` are those of the session. Only the one after the snapshot is read: it must name the snapshot.
    """
    if snapshot is None or not 0 <= snapshot.serial < len(entries) - 1:
        return DerivedState()
    if not is_named_by(snapshot, entries[snapshot.serial + 1]):
        return DerivedState()
    return _decoded(snapshot) or DerivedState()


def describe_mismatch(snapshot: Snapshot, entry: HistoryEntry, state: DerivedState) -> str:
    """Return how a snapshot differs from what the entries say, empty if it does not or if no session uses it.

    `entry` is the one after it, `state` what the entries up to the snapshot lead to.
    """
    if DIGEST_KEY not in entry.metadata:
        return ""
    if not is_named_by(snapshot, entry):
        said = "is not the one that was kept"
    elif (kept := _decoded(snapshot)) is not None and kept != state:
        said = "is not what the entries lead to"
    else:
        return ""
    return f"the snapshot of serial {snapshot.serial} {said}: drop_snapshots removes it, the entries are sound"


def _decoded(snapshot: Snapshot) -> DerivedState | None:
    """The state in the bytes of a snapshot, None if this version cannot read them."""
    try:
        kept = msgspec.json.decode(snapshot.data, type=_Derived)
        instruction = None if kept.instruction is None else entry_from_json(kept.instruction)
    except (msgspec.MsgspecError, UnreadableData, RecursionError):
        return None
    usable = (kept.version, kept.fields, kept.next_serial) == (VERSION, _FIELDS, snapshot.serial + 1)
    if not usable or not isinstance(instruction, SystemInstructionEntry | None):
        return None
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
