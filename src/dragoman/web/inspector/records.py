"""The entries of sessions, read once and kept while there is room; of a damaged session, all before the damage."""

import asyncio
from collections import OrderedDict

from ...errors import ErrorCode, StoreError
from ...history import HistoryEntry, entry_to_json
from ...store import SessionStore
from ...store.chain import chained
from ...store.protocol import START, Head
from .outlines import Outline

__all__ = ["Record", "Records"]

CHUNK = 500  # entries that are read at once
MOST_ENTRIES = 300_000  # of all records that are kept


class Record:
    """What was read of a session. `broken_at` is the first serial that cannot be read, `problem` says why."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.entries: list[HistoryEntry] = []
        self.outline = Outline()
        self.broken_at: int | None = None
        self.problem = ""
        self._checksums: list[bytes] = []

    def take(self, entries: tuple[HistoryEntry, ...]) -> None:
        """Take in what comes next."""
        self.entries += entries
        self.outline.extend(entries)

    def checksum_of(self, serial: int) -> bytes:
        """Return the checksum after an entry, counted here from the bytes of all entries up to it."""
        sums = self._checksums
        for entry in self.entries[len(sums) : serial + 1]:
            sums.append(chained(sums[-1] if sums else START, entry_to_json(entry)))
        return sums[serial] if serial >= 0 else START


class Records:
    """Records by their sessions. The least recently used ones are dropped where they get too long together."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._kept: OrderedDict[str, Record] = OrderedDict()
        self._locks: dict[str, asyncio.Lock] = {}

    async def read(self, session_id: str) -> Record:
        """Return the record with all entries that are there now; raise StoreError if there is no such session."""
        head = await self._head(session_id)
        async with self._locks.setdefault(session_id, asyncio.Lock()):
            record = self._kept.get(session_id)
            if record is None:
                record = Record(session_id)
            await self._extend(record, head)
            self._keep(record)
        return record

    def kept(self, session_id: str, first: int, count: int) -> list[HistoryEntry] | None:
        """Return a range of entries that were read before; None unless all of it was. Entries never change."""
        record = self._kept.get(session_id)
        found = [] if record is None else record.entries[first : first + count]
        return found if len(found) == count else None

    def forget(self, session_id: str) -> None:
        """Drop the record of a session that was erased."""
        self._kept.pop(session_id, None)

    async def _head(self, session_id: str) -> Head | None:
        try:
            return await self._store.head(session_id)
        except StoreError as error:
            if error.code is not ErrorCode.CORRUPT:
                raise
            return None  # its entries may still be there

    async def _extend(self, record: Record, head: Head | None) -> None:
        while record.broken_at is None and (head is None or len(record.entries) < head.next_serial):
            first = len(record.entries)
            try:
                entries = await self._store.load(record.session_id, first, until_serial=first + CHUNK)
            except StoreError as error:
                if error.code not in (ErrorCode.CORRUPT, ErrorCode.TOO_NEW):
                    raise
                await self._read_to_damage(record, first, error)
                return
            record.take(entries)
            if not entries:
                return

    async def _read_to_damage(self, record: Record, first: int, error: StoreError) -> None:
        """Read one entry after the other up to the one that cannot be read."""
        for serial in range(first, first + CHUNK):
            try:
                entries = await self._store.load(record.session_id, serial, until_serial=serial + 1)
            except StoreError as found:
                error = found
                break
            record.take(entries)
        record.broken_at, record.problem = len(record.entries), str(error)

    def _keep(self, record: Record) -> None:
        self._kept[record.session_id] = record
        self._kept.move_to_end(record.session_id)
        while len(self._kept) > 1 and sum(len(each.entries) for each in self._kept.values()) > MOST_ENTRIES:
            self._kept.popitem(last=False)
