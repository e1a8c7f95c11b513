"""SQLite files of other programs, opened for reading alone. Every error names the file, and quotes nothing of it.

Nothing of what such a file defines is run: no view, no virtual table, no column that is computed.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InvalidValue, UnreadableData
from ..files import LARGEST_FILE, require_path, require_regular_file
from ..wire.reading import Node

if TYPE_CHECKING:
    import sqlite3

__all__ = ["Database", "open_database"]

_ROWS = 1_000_000
# Steps of SQLite's machine in one reading. Pages that name each other make endless rows of a small file.
_STEPS = 100_000_000
_STEPS_AT_ONCE = 1_000_000
_WAL_FORMAT = b"\2\2"
_NO_TEXT = object()  # stands for text that is no UTF-8


class Database:
    """An open file of another program."""

    def __init__(self, connection: "sqlite3.Connection", name: str) -> None:
        self.name = name
        self._connection = connection
        connection.text_factory = _decoded
        for setting in ("query_only = on", "trusted_schema = off"):
            list(self._read(f"pragma {setting}"))
        listed = "select name, sql from sqlite_master where type = 'table'"
        made = {str(table): str(sql) for table, sql in self._read(listed)}
        self.tables = frozenset(table for table, sql in made.items() if not sql.upper().startswith("CREATE VIRTUAL"))

    def require(self, *tables: str) -> None:
        """Raise UnreadableData where a table is missing."""
        for table in tables:
            if table not in self.tables:
                raise UnreadableData(f"{self.name} has no table {table!r}")

    def find_table(self, usual: str, *columns: str) -> str:
        """Return the table with the usual name, or else the only one with these columns: some programs let one choose.

        Raises UnreadableData where there is none, or several.
        """
        found = [usual] if usual in self.tables else []
        if not found:
            found = [table for table in sorted(self.tables) if {*columns} <= {*self._columns(table)}]
        if len(found) != 1:
            raise UnreadableData(f"{self.name} has no table {usual!r}")
        return found[0]

    def rows(self, table: str, rest: str = "", values: Sequence[Any] = ()) -> list[Node]:
        """Return the rows of a table as objects, with the row's number as their path; none where it is missing."""
        if table not in self.tables:
            return []
        names = ["rowid", *self._columns(table)]
        found: list[Node] = []
        size = 0
        for row in self._read(f'select rowid as "rowid", * from {_quoted(table)} {rest} limit {_ROWS}', values):  # noqa: S608  # `rest` is ours
            where = f"{self.name} {table} row {row[0]}"
            if _NO_TEXT in row:
                raise UnreadableData(f"{where}.{names[row.index(_NO_TEXT)][:40]} must be UTF-8 text")
            size += sum(len(value) for value in row if isinstance(value, (str, bytes)))
            if size > LARGEST_FILE:
                raise UnreadableData(f"{where}: the table holds more than {LARGEST_FILE} bytes: it is not read")
            found.append(Node(dict(zip(names, row, strict=True)), where))
        return found

    def _columns(self, table: str) -> list[str]:
        names: list[str] = []
        for _, name, _, _, _, _, hidden in self._read(f"pragma table_xinfo({_quoted(table)})"):
            if hidden or not isinstance(name, str):
                raise UnreadableData(f"{self.name} {table} has a column that is computed or has no name: not read")
            names.append(name)
        return names

    def _read(self, statement: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield rows. SQLite's own words may quote a value, so an error has only the name of what went wrong."""
        import sqlite3

        left = iter(range(_STEPS // _STEPS_AT_ONCE))
        self._connection.set_progress_handler(lambda: next(left, None) is None, _STEPS_AT_ONCE)
        try:
            yield from self._connection.execute(statement, values)
        except (sqlite3.Error, UnicodeError) as error:
            raise _unreadable(self.name, error) from None


def _quoted(table: str) -> str:
    return '"' + table.replace('"', '""') + '"'


def _decoded(text: bytes) -> object:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return _NO_TEXT


def _unreadable(shown: str, error: Exception) -> UnreadableData:
    code = getattr(error, "sqlite_errorname", "SQLITE_CORRUPT")
    if code == "SQLITE_INTERRUPT":
        return UnreadableData(f"{shown} takes more steps to read than {_STEPS}: it is damaged, and not read")
    return UnreadableData(f"{shown} is no readable SQLite database ({code})")


@contextmanager
def open_database(path: str | os.PathLike[str], *tables: str) -> Iterator[Database]:
    """Open a file that must have these tables; raise UnreadableData where it is none or cannot be read."""
    import sqlite3  # most imports need none

    name = require_path("path", path)
    shown = Path(name).name
    try:
        if require_regular_file(name).st_size > LARGEST_FILE:
            raise UnreadableData(f"{shown} is larger than {LARGEST_FILE} bytes: it is not read")
        address = _address(Path(name).resolve())
    except OSError as error:
        raise UnreadableData(f"{shown} cannot be read: {error.strerror}") from error
    try:
        connection = sqlite3.connect(address, uri=True)
    except sqlite3.Error as error:
        raise _unreadable(shown, error) from None
    with closing(connection):
        database = Database(connection, shown)
        database.require(*tables)
        yield database


def _address(path: Path) -> str:
    """Return how SQLite is told to open a file.

    For a file with a write-ahead log SQLite makes two files beside it, unless it is told that the file never changes.
    That holds while no program has it open: then there is no log.
    """
    with path.open("rb") as file:
        in_wal_format = file.read(20)[18:] == _WAL_FORMAT
    at_rest = in_wal_format and not path.with_name(f"{path.name}-wal").exists()
    return f"{path.as_uri()}?mode=ro{'&immutable=1' if at_rest else ''}"


def choose(known: Sequence[str], wanted: str | None, what: str, name: str) -> str:
    """Return the wanted id, or the newest one, which is the last; raise InvalidValue where there is no such id."""
    if not known:
        raise UnreadableData(f"{name} holds no {what}")
    if wanted is not None and wanted not in known:
        raise InvalidValue(f"{name} holds no {what} with this id (it has {len(known)})")
    return wanted if wanted is not None else known[-1]
