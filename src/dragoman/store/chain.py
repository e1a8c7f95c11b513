"""The chain of checksums: each is made of the one before it and the bytes of its entry. The same in every store."""

from collections.abc import Iterable, Iterator
from hashlib import sha256

from ..errors import ErrorCode, IllegalAppend, StoreError, UnreadableData
from ..history import DerivedState, HistoryEntry, entry_from_json
from ..history.derived import advance
from ..history.rules import require_legal

__all__ = ["chained", "checked", "decode_entry", "digest_of", "follow", "is_end_of"]

_EMPTY = sha256()


def chained(previous: bytes, entry: bytes) -> bytes:
    """Return the checksum of an entry that stands after `previous`."""
    checksum = _EMPTY.copy()  # a new one would be looked up by its name
    checksum.update(previous)
    checksum.update(entry)
    return checksum.digest()


def is_end_of(checksum: bytes, entries: Iterable[bytes], previous: bytes) -> bool:
    """Return whether `entries` after `previous` lead to `checksum`: whether these entries are the recorded ones."""
    for entry in entries:
        previous = chained(previous, entry)
    return previous == checksum


def checked(rows: Iterable[tuple[int, bytes, bytes]], serial: int, previous: bytes) -> Iterator[bytes]:
    """Yield the bytes of each row of serial, entry and checksum; raise StoreError at the first that is not what it was.

    `serial` is that of the first row, `previous` the checksum before it.
    """
    for found, entry, checksum in rows:
        if found != serial:
            raise StoreError(f"the entry of serial {serial} is missing", code=ErrorCode.CORRUPT)
        if type(entry) is not bytes or chained(previous, entry) != checksum:
            raise StoreError(f"the entry of serial {serial} is not what was appended", code=ErrorCode.CORRUPT)
        previous = checksum
        serial += 1
        yield entry


def decode_entry(data: bytes, serial: int) -> HistoryEntry:
    """Return the entry; raise StoreError, `too_new` if a later version wrote it."""
    try:
        return entry_from_json(data)
    except UnreadableData as error:
        raise StoreError(f"the entry of serial {serial} cannot be read: {error}", code=error.code) from error


def follow(state: DerivedState, entries: Iterable[HistoryEntry]) -> DerivedState:
    """Return the state that recorded entries lead to; raise StoreError at the first that breaks a rule of the history.

    A store does not check rules: only a writer that skipped `AgentState` can have appended such an entry.
    """
    for entry in entries:
        try:
            require_legal(state, entry)
        except IllegalAppend as error:
            told = f"the entry of serial {state.next_serial} breaks a rule of the history, {error}"
            raise StoreError(told, code=ErrorCode.CORRUPT) from None
        state = advance(state, entry)
    return state


def digest_of(*fields: object) -> bytes:
    """Return one checksum over several fields, None and each of any length told apart."""
    return sha256(repr(fields).encode()).digest()
