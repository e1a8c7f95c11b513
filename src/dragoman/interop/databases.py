"""SQLite files of other programs, opened for reading alone. Every error names the file.

Nothing of what such a file defines is run: only plain tables are read, never a view or a virtual table.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InvalidValue, UnreadableData
from ..files import LARGEST_FILE, require_path
from ..wire.reading import Node

if TYPE_CHECKING:
    import sqlite3

__all__ = ["Database", "open_database"]

_ROWS = 1_000_000


class Database:
    """An open file of another program."""

    def __init__(self, connection: "sqlite3.Connection", name: str) -> None:
        self.name = name
        self._connection = connection
        listed = "select name, sql from sqlite_master where type = 'table'"
        made = {str(table): str(sql) for table, sql in connection.execute(listed)}
        self.tables = frozenset(table for table, sql in made.items() if not sql.upper().startswith("CREATE VIRTUAL"))

    def require(self, *tables: str) -> None:
        """Raise UnreadableData where a table is missing."""
        for table in tables:
            if table not in self.tables:
                raise UnreadableData(f"{self.name} has no table {table!r}")

    def rows(self, table: str, rest: str = "", values: Sequence[Any] = ()) -> list[Node]:
        """Return the rows of a table as objects, with the row's number as their path; none where it is missing."""
        if table not in self.tables:
            return []
        cursor = self._connection.execute(f'select rowid as "rowid", * from "{table}" {rest} limit {_ROWS}', values)  # noqa: S608  # `table` and `rest` are ours
        names = [column[0] for column in cursor.description]
        return [Node(dict(zip(names, row, strict=True)), f"{self.name} {table} row {row[0]}") for row in cursor]


@contextmanager
def open_database(path: str | os.PathLike[str], *tables: str) -> Iterator[Database]:
    """Open a file that must have these tables; raise UnreadableData where it is none or cannot be read."""
    import sqlite3  # most imports need none

    name = require_path("path", path)
    shown = Path(name).name
    try:
        if Path(name).stat().st_size > LARGEST_FILE:
            raise UnreadableData(f"{shown} is larger than {LARGEST_FILE} bytes: it is not read")
        with closing(sqlite3.connect(f"{Path(name).absolute().as_uri()}?mode=ro", uri=True)) as connection:
            connection.execute("pragma query_only = on")
            connection.execute("pragma trusted_schema = off")
            database = Database(connection, shown)
            database.require(*tables)
            yield database
    except OSError as error:
        raise UnreadableData(f"{shown} cannot be read: {error.strerror}") from error
    except (sqlite3.Error, OverflowError) as error:
        raise UnreadableData(f"{shown} is no readable SQLite database: {error}") from error


def choose(known: Sequence[str], wanted: str | None, what: str, name: str) -> str:
    """Return the wanted id, or the newest one, which is the last; raise InvalidValue where there is no such id."""
    if not known:
        raise UnreadableData(f"{name} holds no {what}")
    if wanted is not None and wanted not in known:
        raise InvalidValue(f"{name} holds no {what} with this id (it has {len(known)})")
    return wanted if wanted is not None else known[-1]
