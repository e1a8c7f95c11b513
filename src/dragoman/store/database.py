"""What the SQL stores need of a database: statements with `?` for each value, and the few things that differ.

Every function gets a database that is in a transaction.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol

from .leases import StoreTime

__all__ = ["Database", "Rows"]


class Rows(Protocol):
    """What a statement has found."""

    def fetchone(self) -> Any:
        """Return the next row, None after the last."""

    def fetchall(self) -> list[Any]:
        """Return all rows that are left."""

    def __iter__(self) -> Iterator[Any]: ...


class Database(Protocol):
    """A connection, as the statements of `sql_rows` and `sql_changes` use it.

    `newest` is the condition under which an entry `e` is the one that the head `h` is of.
    """

    newest: ClassVar[str]

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Rows:
        """Carry out one statement."""

    def close(self) -> None:
        """Close the connection; may be called again."""

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> object:
        """Carry out one statement for each of the rows."""

    def entries_between(self, session: int, first: int, last: int) -> list[tuple[int, bytes, bytes]]:
        """Return the serial, entry and checksum of each entry of these serials that is there, in their order."""

    def has_entries_after(self, session: int, serial: int) -> bool:
        """Return whether the session has entries after the one that its head is of."""

    def newest_marks(self, hashes: Sequence[bytes], limit: int) -> list[tuple[int, bytes, str, int]]:
        """Return the number, hash, session's id and serial of each word's newest marks, at most `limit` each."""

    def attempt(self) -> AbstractContextManager[None]:
        """Raise StoreError (`corrupt`) for what the database itself cannot read, and stay usable after that."""

    def hold(self, session_id: str) -> None:
        """Keep others from appending to the session, and from erasing it, until the transaction ends."""

    def now(self) -> StoreTime:
        """Return the moment by the clock that leases are judged by, the same for every client of the database."""

    def next_key(self) -> int:
        """Return the key of the next session: larger than that of any before it."""

    def find_unindexed(self, session_id: str) -> int | None:
        """Return the key of a session that is there, but not in the index of sessions."""

    def repair_index(self) -> None:
        """Rebuild the index of sessions where it is damaged, so that sessions can be deleted."""
