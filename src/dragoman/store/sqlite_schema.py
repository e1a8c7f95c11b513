"""A SQLite file that holds sessions: its tables by numbered migrations, its settings, its permissions, its errors.

The number of a database is that of its newest migration, and is in the header (`user_version`). A file with a
number that this version does not know is refused before anything of it is touched.
"""

import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ErrorCode, StoreError
from ..files import make_private_folder
from .sqlite_files import is_open_here

if TYPE_CHECKING:
    import sqlite3

    from .sqlite_database import SQLiteDatabase

__all__ = ["MIGRATIONS", "connect", "migrate", "prepare_file", "store_error", "translated"]

APPLICATION_ID = 0x44_52_47_4E  # "DRGN", in the file's header, where `file` finds it
EARLIER_ID = 0x44_52_41_47  # of files that were written before the numbers began again at 1

# The statements from each number to the next; the first tuple makes number 1. A published one is never changed: what
# shall be different is a new tuple at the end.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        f"PRAGMA application_id = {APPLICATION_ID}",
        # `record` is a checksum of the other columns. A fork shares the entries of `parent` up to `base`.
        """CREATE TABLE sessions (
            key INTEGER PRIMARY KEY AUTOINCREMENT,
            session_id TEXT NOT NULL UNIQUE,
            created_at TEXT NOT NULL,
            metadata BLOB NOT NULL,
            parent INTEGER REFERENCES sessions (key),
            base INTEGER NOT NULL,
            record BLOB NOT NULL
        ) STRICT""",
        "CREATE INDEX sessions_by_parent ON sessions (parent) WHERE parent IS NOT NULL",
        # In the order in which they came, of all sessions: a transaction of many sessions fills few pages. An index by
        # session and serial would cost a page for each of them. Instead each entry has the position of the one before
        # it, each head that of the newest, and every 64th entry a mark with its own.
        """CREATE TABLE entries (
            position INTEGER PRIMARY KEY,
            session INTEGER NOT NULL,
            serial INTEGER NOT NULL,
            previous INTEGER NOT NULL,
            checksum BLOB NOT NULL,
            entry BLOB NOT NULL
        ) STRICT""",
        # Where each session ends. With it, losing the newest entries is noticed too.
        """CREATE TABLE heads (
            session INTEGER PRIMARY KEY REFERENCES sessions (key), serial INTEGER NOT NULL, checksum BLOB NOT NULL,
            position INTEGER NOT NULL DEFAULT 0
        ) STRICT""",
        """CREATE TABLE marks (
            session INTEGER NOT NULL, serial INTEGER NOT NULL, position INTEGER NOT NULL,
            PRIMARY KEY (session, serial)
        ) STRICT, WITHOUT ROWID""",
        "CREATE TABLE blobs (key INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, data BLOB NOT NULL) STRICT",
        # What was cut out of an entry, and where in it it belongs.
        """CREATE TABLE pieces (
            session INTEGER NOT NULL,
            serial INTEGER NOT NULL,
            at INTEGER NOT NULL,
            blob INTEGER NOT NULL REFERENCES blobs (key),
            is_base64 INTEGER NOT NULL,
            PRIMARY KEY (session, serial, at)
        ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX pieces_by_blob ON pieces (blob)",
        # Valid while `checksum` is that of the session's entry of that serial.
        """CREATE TABLE snapshots (
            session INTEGER NOT NULL REFERENCES sessions (key), serial INTEGER NOT NULL, checksum BLOB NOT NULL,
            data BLOB NOT NULL, PRIMARY KEY (session, serial)
        ) STRICT""",
        # Who works on a session now. `expires` is by the wall clock, `expires_uptime` by that of the boot.
        """CREATE TABLE leases (
            session INTEGER PRIMARY KEY, token TEXT NOT NULL, owner TEXT NOT NULL, acquired REAL NOT NULL,
            seconds REAL NOT NULL, expires REAL NOT NULL, boot TEXT NOT NULL, expires_uptime REAL NOT NULL
        ) STRICT""",
        # Sessions that are about to be erased, within the transaction that erases them: for these alone the triggers
        # let a DELETE pass.
        "CREATE TABLE erasing (session INTEGER PRIMARY KEY) STRICT",
        """CREATE TABLE tombstones (
            session_id TEXT PRIMARY KEY, erased_at TEXT NOT NULL, entries INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID""",
        # A row while deleted content may still lie in the log or in free pages.
        "CREATE TABLE cleanings (key INTEGER PRIMARY KEY) STRICT",
        # Keeps INSERT OR REPLACE from replacing.
        """CREATE TRIGGER entries_are_new BEFORE INSERT ON entries
        WHEN EXISTS (SELECT 1 FROM entries WHERE position = NEW.position) BEGIN
            SELECT RAISE(ABORT, 'entries are never replaced');
        END""",
        # The database itself moves the head, so that no entry is ever without it.
        """CREATE TRIGGER entries_follow AFTER INSERT ON entries BEGIN
            UPDATE heads SET serial = NEW.serial, checksum = NEW.checksum, position = NEW.position
            WHERE session = NEW.session AND serial = NEW.serial - 1 AND position = NEW.previous;
            SELECT RAISE(ABORT, 'entries are only added, one after the other') WHERE changes() = 0;
            INSERT INTO marks SELECT NEW.session, NEW.serial, NEW.position WHERE NEW.serial % 64 = 63;
        END""",
        """CREATE TRIGGER sessions_are_new BEFORE INSERT ON sessions
        WHEN EXISTS (SELECT 1 FROM sessions WHERE session_id = NEW.session_id OR key = NEW.key)
          OR EXISTS (SELECT 1 FROM tombstones WHERE session_id = NEW.session_id) BEGIN
            SELECT RAISE(ABORT, 'sessions are never replaced');
        END""",
        *(
            f"""CREATE TRIGGER {table}_stay_as_they_are BEFORE UPDATE ON {table} BEGIN
                SELECT RAISE(ABORT, '{table} are never changed');
            END"""
            for table in ("entries", "sessions", "blobs", "pieces")
        ),
        *(
            f"""CREATE TRIGGER {table}_stay BEFORE DELETE ON {table}
            WHEN NOT EXISTS (SELECT 1 FROM erasing WHERE session = OLD.{key}) BEGIN
                SELECT RAISE(ABORT, '{table} are never deleted');
            END"""  # noqa: S608  # names of ours alone
            for table, key in (("entries", "session"), ("sessions", "key"), ("pieces", "session"))
        ),
        """CREATE TRIGGER blobs_stay BEFORE DELETE ON blobs
        WHEN EXISTS (SELECT 1 FROM pieces WHERE blob = OLD.key) BEGIN
            SELECT RAISE(ABORT, 'blobs are never deleted while an entry needs them');
        END""",
        """CREATE TRIGGER marks_go_with_their_session AFTER DELETE ON sessions BEGIN
            DELETE FROM marks WHERE session = OLD.key;
        END""",
    ),
    (
        # Runs that were requested, and how far they are: what the entries say, so that no session has to be read.
        # `wakes` grows when something is said that a waiting run must read.
        """CREATE TABLE requests (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            session INTEGER NOT NULL,
            serial INTEGER NOT NULL,
            agent TEXT NOT NULL,
            run_id TEXT NOT NULL,
            request_key TEXT UNIQUE,
            status TEXT NOT NULL,
            wakes INTEGER NOT NULL DEFAULT 0
        ) STRICT""",
        "CREATE INDEX requests_by_session ON requests (session, serial)",
        "CREATE INDEX requests_open ON requests (number) WHERE status IN ('queued', 'running')",
    ),
    (
        # Deltas of the answer under way, for followers: those from `first` to before `past`, as lines of JSON.
        """CREATE TABLE tails (
            session INTEGER NOT NULL, token TEXT NOT NULL, stream TEXT NOT NULL, serial INTEGER NOT NULL,
            first INTEGER NOT NULL, past INTEGER NOT NULL, deltas BLOB NOT NULL,
            PRIMARY KEY (session, stream, past)
        ) STRICT, WITHOUT ROWID""",
    ),
    (
        # The words by which entries are found, as SHA-256: what the entries say, so that no session has to be read.
        """CREATE TABLE entry_marks (
            number INTEGER PRIMARY KEY, hash BLOB NOT NULL, session INTEGER NOT NULL, serial INTEGER NOT NULL
        ) STRICT""",
        "CREATE INDEX entry_marks_by_hash ON entry_marks (hash, number)",
    ),
)


_SCHEMA = "SELECT type, name, sql FROM sqlite_master"


def prepare_file(path: Path, *, busy_seconds: float) -> None:
    """Create the file, for its owner alone, or bring it to the newest number; raise StoreError if that cannot be."""
    try:
        make_private_folder(path.parent)
        _create_empty(path)
        if _size_of_plain(path) and not is_open_here(path):
            _require_known(path, busy_seconds)
        with translated(path):
            connection = connect(path, busy_seconds=busy_seconds)
            try:
                if _number(connection) < len(MIGRATIONS):
                    migrate(connection, path)
                _require_own_schema(connection, path)
            finally:
                connection.close()
    except OSError as error:
        raise StoreError(f"{path} cannot be opened or created: {error.strerror}", code=_os_code(error)) from error


def connect(path: Path, *, busy_seconds: float, read_only: bool = False, synchronous: str = "FULL") -> "SQLiteDatabase":
    """Return a connection with the settings that durability and privacy need."""
    import sqlite3

    from .sqlite_database import SQLiteDatabase

    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rw'}",
        uri=True,
        timeout=busy_seconds,
        isolation_level=None,
        check_same_thread=False,
        factory=SQLiteDatabase,
    )
    connection.text_factory = _text
    try:
        if not read_only:
            mode = _with_log(connection, busy_seconds)
            if mode != "wal":
                raise StoreError(f"{path}: the file system cannot share a log (journal mode {mode!r})")
        for setting in (
            f"synchronous = {synchronous}",
            "fullfsync = ON",
            "checkpoint_fullfsync = ON",
            "secure_delete = ON",
            "foreign_keys = ON",
            "trusted_schema = OFF",
            "cell_size_check = ON",
        ):
            connection.execute(f"PRAGMA {setting}")
    except BaseException:
        connection.close()
        raise
    return connection


def _with_log(connection: "sqlite3.Connection", busy_seconds: float) -> str:
    """Turn the log on and return the mode. Here SQLite does not wait for others by itself."""
    import sqlite3

    deadline = time.monotonic() + busy_seconds
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            return str(mode)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() >= deadline:
                raise
            time.sleep(0.002)


def migrate(connection: "sqlite3.Connection", path: Path, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> None:
    """Apply the migrations that are missing, each in its transaction, then put them into the file itself."""
    for number, statements in enumerate(migrations, 1):
        connection.execute("BEGIN IMMEDIATE")
        try:
            if _number(connection) == number - 1:  # else another process was faster
                for statement in (*statements, f"PRAGMA user_version = {number}"):
                    connection.execute(statement)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:  # SQLite itself rolls back when the disk is full
                connection.execute("ROLLBACK")
            raise
    # So that a later open sees the number in the header, without reading the log.
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
    _sync_folder(path)


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise StoreError for what SQLite raises."""
    import sqlite3

    try:
        yield
    except (sqlite3.Error, UnicodeError) as error:
        raise store_error(error, path) from error


def store_error(error: "sqlite3.Error | UnicodeError", path: Path) -> StoreError:
    """Return what an error of SQLite means to a user of the store; text that is no UTF-8 comes from damage alone."""
    name: str = getattr(error, "sqlite_errorname", "SQLITE_CORRUPT")
    for prefix, (code, words) in _MEANINGS.items():
        if name.startswith(prefix):
            return StoreError(f"{path.name}: {words} ({name}: {error})", code=code)
    return StoreError(f"{path.name}: {name}: {error}", code=ErrorCode.INTERNAL)


_MEANINGS: dict[str, tuple[ErrorCode, str]] = {
    "SQLITE_FULL": (ErrorCode.QUOTA_EXCEEDED, "the disk is full, nothing was kept"),
    "SQLITE_READONLY": (ErrorCode.PERMISSION, "the database may not be written, nothing was kept"),
    "SQLITE_PERM": (ErrorCode.PERMISSION, "the database may not be opened"),
    "SQLITE_CANTOPEN": (ErrorCode.PERMISSION, "the database cannot be opened"),
    "SQLITE_BUSY": (ErrorCode.TIMEOUT, "others kept the database locked for too long"),
    "SQLITE_LOCKED": (ErrorCode.TIMEOUT, "others kept the database locked for too long"),
    "SQLITE_CORRUPT": (ErrorCode.CORRUPT, "the database is damaged"),
    "SQLITE_NOTADB": (ErrorCode.CORRUPT, "this is not a database, or its header is damaged"),
    "SQLITE_IOERR": (ErrorCode.SERVER_ERROR, "the disk failed, or is full; what was asked may or may not be kept"),
    "SQLITE_TOOBIG": (ErrorCode.INVALID_REQUEST, "an entry is larger than the database can hold"),
    "SQLITE_PROTOCOL": (ErrorCode.TIMEOUT, "others kept the database locked for too long"),
    # Our statements are right for an unchanged schema: an error means damage.
    "SQLITE_CONSTRAINT": (ErrorCode.CORRUPT, "the database does not agree with itself"),
    "SQLITE_ERROR": (ErrorCode.CORRUPT, "the database is not as it was made"),
}


def _text(data: bytes) -> str:
    """Text as it is. Bytes that are no UTF-8 become halves of surrogate pairs, which no value of ours has."""
    return data.decode("utf-8", "surrogateescape")


def _number(connection: "sqlite3.Connection") -> int:
    number: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return number


def _require_known(path: Path, busy_seconds: float) -> None:
    """Refuse a foreign or newer database without a connection that could write, even on closing."""
    with path.open("rb") as file:
        header = file.read(100)
    _require_ours(path, int.from_bytes(header[60:64]), int.from_bytes(header[68:72]), is_empty=True)
    with translated(path):  # the log may know a later number
        _undo_unfinished(path, busy_seconds)
        connection = connect(path, busy_seconds=busy_seconds, read_only=True)
        try:
            connection.execute("BEGIN")  # one state for all three: another process may be making the file just now
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            _require_ours(path, _number(connection), application, is_empty=not tables)
        finally:
            connection.close()


def _require_own_schema(connection: "sqlite3.Connection", path: Path) -> None:
    """Raise StoreError if the tables are not ours, or if there are views or triggers of others.

    A view in the place of a table can go on for ever, and a trigger can change what is written. Tables and indexes that
    others have added are never used. A trigger that is missing is met when an entry is appended.
    """
    ours = _own_schema()
    found = {(kind, name): " ".join((sql or "").split()) for kind, name, sql in connection.execute(_SCHEMA)}
    for (kind, name), sql in ours.items():
        if kind == "table" and found.get((kind, name)) != sql:
            raise _changed_schema(path, f"the table {name!r} is not as it was made")
    for (kind, name), sql in found.items():
        if kind in ("view", "trigger") and ours.get((kind, name)) != sql:
            raise _changed_schema(path, f"the {kind} {name!r} is not one of a store")


def _changed_schema(path: Path, seen: str) -> StoreError:
    reason = f"{path.name}: {seen}; another program has changed the file: open a copy from before"
    return StoreError(reason, code=ErrorCode.CORRUPT)


@lru_cache(maxsize=1)
def _own_schema() -> dict[tuple[str, str], str]:
    """The statement that made each table, index and trigger of ours, by kind and name."""
    import sqlite3

    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        for statement in (statement for statements in MIGRATIONS for statement in statements):
            connection.execute(statement)
        return {(kind, name): " ".join((sql or "").split()) for kind, name, sql in connection.execute(_SCHEMA)}
    finally:
        connection.close()


def _undo_unfinished(path: Path, busy_seconds: float) -> None:
    """Roll back what a process that was killed while it made the file had begun: a reader alone may not."""
    import sqlite3

    if path.with_name(f"{path.name}-journal").exists():
        connection = sqlite3.connect(path, timeout=busy_seconds)
        try:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        finally:
            connection.close()


def _require_ours(path: Path, number: int, application: int, *, is_empty: bool) -> None:
    if application == EARLIER_ID:
        raise StoreError(
            f"{path.name} was written by an earlier dragoman, in a format that this one does not read: export its "
            "sessions with that version and import them here, or name another file",
            code=ErrorCode.UNSUPPORTED,
        )
    if application != APPLICATION_ID and (application or number or not is_empty):
        raise StoreError(f"{path.name} is not a database of sessions", code=ErrorCode.CORRUPT)
    if number > len(MIGRATIONS):
        raise StoreError(
            f"{path.name} has number {number}, this dragoman reads up to {len(MIGRATIONS)}: update it",
            code=ErrorCode.TOO_NEW,
        )


def _create_empty(path: Path) -> None:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return
    _sync_folder(path)


def _size_of_plain(path: Path) -> int:
    """Return the size of the file; raise StoreError for what is no file: reading a pipe could wait for ever."""
    try:
        status = path.stat()
    except FileNotFoundError:
        reason = f"{path} is a link to a file that is not there: remove the link, or make the file"
        raise StoreError(reason, code=ErrorCode.NOT_FOUND) from None
    if stat.S_ISREG(status.st_mode):
        return status.st_size
    kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a device, a pipe or a socket"
    raise StoreError(f"{path} is {kind}: a store is one file", code=ErrorCode.INVALID_REQUEST)


def _sync_folder(path: Path) -> None:
    """Make the file's name as durable as its content."""
    if os.name == "nt":  # there a folder cannot be opened, and need not be
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _os_code(error: OSError) -> ErrorCode:
    return ErrorCode.PERMISSION if isinstance(error, PermissionError) else ErrorCode.SERVER_ERROR
