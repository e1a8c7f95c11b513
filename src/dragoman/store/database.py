"""What the stores of rows ask of a database: statements with `?` for each value, and the few things that differ.

Every database that is given away is in a transaction.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

__all__ = ["Database", "Rows"]


class Rows(Protocol):
    """What a statement has found."""

    def fetchone(self) -> Any:
        """Return the next row, None after the last."""
        ...

    def fetchall(self) -> list[Any]:
        """Return all rows that are left."""
        ...

    def __iter__(self) -> Iterator[Any]: ...


class Database(Protocol):
    """A connection, as the statements of `sql_rows` and `sql_changes` use it."""

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Rows:
        """Carry out one statement."""
        ...

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> object:
        """Carry out one statement for each of the rows."""
        ...

    def attempt(self) -> AbstractContextManager[None]:
        """Raise StoreError (`corrupt`) for what the database itself cannot read, and stay usable after that."""
        ...

    def hold(self, session_id: str) -> None:
        """Keep others from appending to the session, and from erasing it, until the transaction ends."""
        ...

    def next_key(self) -> int:
        """Return the key of the next session: larger than that of any before it."""
        ...

    def find_unindexed(self, session_id: str) -> int | None:
        """Return the key of a session that is there, but not in the index of sessions."""
        ...

    def mend_index(self) -> None:
        """See to it that sessions can be deleted also if their index does not agree with them any more."""
        ...
