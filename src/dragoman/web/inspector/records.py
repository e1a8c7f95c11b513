"""The entries of sessions, read once and kept while there is room; of a damaged session, all before the damage."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from ...errors import ErrorCode, StoreError
from ...history import HistoryEntry, entry_to_json
from ...store import SessionStore
from ...store.chain import chained
from ...store.protocol import START, Head
from .cachereview import CacheReview
from .calls import Call
from .jobs import Check, never_abandon
from .locks import SessionLocks
from .outlines import Outline

__all__ = ["Record", "Records"]

CHUNK = 500  # entries that are read at once
MOST_ENTRIES = 300_000  # of all records that are kept
MOST_ANSWERS = 16  # of one record that are kept
LARGEST_ANSWER = 4 << 20  # bytes; a longer one is made again


class Record:
    """What was read of a session. `broken_at` is the first serial that cannot be read, `error` says why."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.entries: list[HistoryEntry] = []
        self.outline = Outline()
        self.head: Head | None = None  # up to which all was read
        self.broken_at: int | None = None
        self.error: StoreError | None = None
        self._checksums: list[bytes] = []
        self._counting = threading.Lock()  # of checksums
        self._answers: OrderedDict[str, tuple[int, bytes]] = OrderedDict()
        self.calls: tuple[int, tuple[list[Call], dict[str, Any]]] = (-1, ([], {}))  # and of how many entries they are
        self.review = CacheReview()

    @property
    def problem(self) -> str:
        """Why the record cannot be read any further; empty where it can."""
        return "" if self.error is None else str(self.error)

    def take(self, entries: Sequence[HistoryEntry]) -> None:
        """Take in what comes next."""
        self.entries += entries
        self.outline.extend(entries)

    def checksum_of(self, serial: int, check: Check = never_abandon) -> bytes:
        """Return the checksum after an entry, counted here from the bytes of all entries up to it."""
        sums = self._checksums
        with self._counting:
            for entry in self.entries[len(sums) : serial + 1]:
                check()
                sums.append(chained(sums[-1] if sums else START, entry_to_json(entry)))
        return sums[serial] if serial >= 0 else START

    def answer_to(self, name: str) -> bytes | None:
        """Return the answer that was kept under a name, if no entry has come since."""
        length, kept = self._answers.get(name, (-1, b""))
        return kept if length == len(self.entries) else None

    def keep_answer(self, name: str, length: int, answer: bytes) -> None:
        """Keep an answer that was made of so many entries; the oldest ones are dropped."""
        if len(answer) <= LARGEST_ANSWER:
            self._answers[name] = (length, answer)
            self._answers.move_to_end(name)
            while len(self._answers) > MOST_ANSWERS:
                self._answers.popitem(last=False)


class Records:
    """Records by their sessions. The least recently used ones are dropped where they get too long together."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._kept: OrderedDict[str, Record] = OrderedDict()
        self._locks = SessionLocks()

    async def read(self, session_id: str) -> Record:
        """Return the record with all entries that are there now; raise StoreError if there is no such session."""
        async with self._locks[session_id]:
            # The head is read here: a reader that waited with an older one would take the newer record for a rewrite.
            head = await self._head(session_id)
            record = self._kept.get(session_id)
            if record is not None and await self._is_current(record, head):
                self._keep(record)
                return record
            record = Record(session_id)
            await self._extend(record, head)
            self._keep(record)
        return record

    async def load(self, session_id: str, first: int, count: int) -> Sequence[HistoryEntry]:
        """Return a range of entries, kept ones where the session is still the one that was read."""
        head = await self._head(session_id)
        record = self._kept.get(session_id)
        if record is not None and head is not None and record.head == head and record.broken_at is None:
            return record.entries[first : first + count]
        try:
            return await self._store.load(session_id, first, until_serial=first + count)
        except StoreError as error:
            if error.code not in (ErrorCode.CORRUPT, ErrorCode.TOO_NEW):
                raise
        return (await self.read(session_id)).entries[first : first + count]  # what is before the damage

    def forget(self, session_id: str) -> None:
        """Drop the record of a session that was erased."""
        self._kept.pop(session_id, None)

    async def _head(self, session_id: str) -> Head | None:
        try:
            return await self._store.head(session_id)
        except StoreError as error:
            if error.code is not ErrorCode.CORRUPT:
                self.forget(session_id)  # it was erased
                raise
            return None  # its entries may still be there

    async def _is_current(self, record: Record, head: Head | None) -> bool:
        """Bring a kept record up to the head; False if the session is another one by now, erased and made anew.

        The checksum of the head is counted on from the one that was known: where it differs, the entries do.
        """
        known = record.head
        if head is None or known is None or known == head:
            return known == head
        if record.broken_at is not None or head.next_serial <= known.next_serial:
            return False
        fresh: list[HistoryEntry] = []
        checksum = bytes.fromhex(known.checksum)
        while len(fresh) < head.serial - known.serial:
            first = known.next_serial + len(fresh)
            try:
                entries = await self._store.load(
                    record.session_id, first, until_serial=min(first + CHUNK, head.next_serial)
                )
            except StoreError:
                return False  # reading it anew finds the damage
            if not entries:
                return False
            for entry in entries:
                checksum = chained(checksum, entry_to_json(entry))
            fresh += entries
        if checksum.hex() != head.checksum:
            return False
        record.take(fresh)
        record.head = head
        return True

    async def _extend(self, record: Record, head: Head | None) -> None:
        while head is None or len(record.entries) < head.next_serial:
            first = len(record.entries)
            until = first + CHUNK if head is None else min(first + CHUNK, head.next_serial)
            try:
                entries = await self._store.load(record.session_id, first, until_serial=until)
            except StoreError as error:
                if error.code not in (ErrorCode.CORRUPT, ErrorCode.TOO_NEW):
                    raise
                await self._read_to_damage(record, first, error)
                break
            record.take(entries)
            if not entries:
                break
        record.head = head

    async def _read_to_damage(self, record: Record, first: int, error: StoreError) -> None:
        """Read one entry after the other up to the one that cannot be read."""
        for serial in range(first, first + CHUNK):
            try:
                entries = await self._store.load(record.session_id, serial, until_serial=serial + 1)
            except StoreError as found:
                error = found
                break
            record.take(entries)
        record.broken_at, record.error = len(record.entries), error

    def _keep(self, record: Record) -> None:
        self._kept[record.session_id] = record
        self._kept.move_to_end(record.session_id)
        while len(self._kept) > 1 and sum(len(each.entries) for each in self._kept.values()) > MOST_ENTRIES:
            self._kept.popitem(last=False)
