"""The chain of checksums: each is made of the one before it and the bytes of its entry. The same in every store."""

from collections.abc import Iterable, Iterator
from hashlib import sha256

from ..errors import ErrorCode, StoreError, UnreadableData
from ..history import HistoryEntry, entry_from_json

__all__ = ["chained", "checked", "decode_entry", "digest_of", "is_end_of", "require_readable"]

_EMPTY = sha256()


def chained(previous: bytes, entry: bytes) -> bytes:
    """Return the checksum of an entry that stands after `previous`."""
    checksum = _EMPTY.copy()  # a new one would be looked up by its name
    checksum.update(previous)
    checksum.update(entry)
    return checksum.digest()


def is_end_of(checksum: bytes, entries: Iterable[bytes], previous: bytes) -> bool:
    """Return whether `entries` after `previous` lead to `checksum`: whether they are the ones that stand there."""
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


def require_readable(entries: Iterable[bytes], serial: int) -> None:
    """Raise StoreError at the first that cannot be read: sound bytes alone are no use to whoever opens the session."""
    for place, data in enumerate(entries, serial):
        decode_entry(data, place)


def digest_of(*fields: object) -> bytes:
    """Return one checksum over several fields, None and each of any length told apart."""
    return sha256(repr(fields).encode()).digest()
