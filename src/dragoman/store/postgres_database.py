"""A connection to PostgreSQL as the `Database` that the statements want: settings, transactions, errors.

psycopg is imported inside the functions: it belongs to the extra `postgres`.
"""

import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import ErrorCode, InvalidValue, MissingExtra, StoreError, forget_arguments
from .leases import StoreTime

if TYPE_CHECKING:
    import psycopg

__all__ = [
    "CLEANING_SECONDS",
    "READING",
    "WRITING",
    "Address",
    "PostgresDatabase",
    "connect",
    "is_contention",
    "lost_answer",
    "read_address",
    "require_psycopg",
    "store_error",
    "translated",
]

# Defaults where the address says nothing. A peer that vanished silently is noticed within a minute.
DEFAULTS: Mapping[str, str] = {
    "connect_timeout": "10",
    "fallback_application_name": "dragoman",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
CLEANING_SECONDS = 86_400.0  # a table that is written anew takes as long as it is large
WRITING = "BEGIN ISOLATION LEVEL READ COMMITTED"
READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

IDLE_SECONDS = 5.0  # that a transaction may wait for its client, with locks
LOCK_STEP_SECONDS = 1.0  # that a change waits for a lock before it looks who has it
LARGE_SECONDS = 120.0  # that a client may take to send a large statement, with locks
LARGE_BYTES = 1_000_000
LONGEST_LIMIT = 2**31 - 1  # milliseconds that a setting of PostgreSQL holds

_MARKS = """
    SELECT m.number, m.hash, s.session_id, m.serial
    FROM unnest(?::bytea[]) AS w (hash) CROSS JOIN LATERAL (
        SELECT * FROM entry_marks AS each WHERE each.hash = w.hash ORDER BY each.number DESC LIMIT ?
    ) AS m JOIN sessions AS s ON s.key = m.session
"""
# Counts until the end of a transaction. A client that is stopped in the middle must not keep its locks.
_WRITING_SETTINGS = """
    SELECT set_config('idle_in_transaction_session_timeout', ?, true), set_config('lock_timeout', ?, true)
"""
# Comes before a large statement, so that others see that a client is not stopped, but sends for long.
_LARGE = "SELECT 'dragoman: a large statement follows'"
# Ends those of this role that have a session locked and stand still inside of a batch of statements. The server's own
# limit does not count there.
_END_STALLED = """
    SELECT count(pg_terminate_backend(a.pid)) FROM pg_stat_activity AS a
    WHERE a.datname = current_database() AND a.usename = current_user AND a.pid <> pg_backend_pid()
    AND a.state = 'active' AND a.wait_event = 'ClientRead'
    AND a.state_change < clock_timestamp() - make_interval(secs => CASE a.query WHEN %s THEN %s ELSE %s END::float8)
    AND EXISTS (
        SELECT 1 FROM pg_locks AS l WHERE l.pid = a.pid AND l.granted
        AND l.relation = to_regclass('heads') AND l.mode IN ('RowShareLock', 'RowExclusiveLock')
    )
"""

_SIZED = (bytes, str, list)

_SETTINGS = """
    SELECT set_config('search_path', %s, false),
        set_config('lock_timeout', %s, false),
        set_config('default_transaction_isolation', 'read committed', false),
        set_config('standard_conforming_strings', 'on', false),
        CASE WHEN current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')
            THEN set_config('synchronous_commit', 'on', false) END
"""


class Address(Mapping[str, Any]):
    """Where a server is and who asks, as libpq wants it. Its repr shows nothing: a password may be in there."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = {**DEFAULTS, **values}

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return "Address(…)"

    def without_password(self, text: str) -> str:
        """Return the text with the password blanked out."""
        password = self._values.get("password")
        return text.replace(str(password), "[redacted]") if password else text


def require_psycopg() -> None:
    """Raise MissingExtra unless psycopg is installed."""
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise MissingExtra("PostgresStore", "postgres") from None


@forget_arguments
def read_address(conninfo: str) -> Address:
    """Return the parts of a connection string or URI; raise InvalidValue, which shows nothing of it."""
    require_psycopg()
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    values = None
    with suppress(psycopg.Error, ValueError):
        values = conninfo_to_dict(conninfo)
    if values is None:
        # Raised here, so that libpq's error is not its context: it quotes what it cannot read, perhaps the password.
        raise InvalidValue("conninfo must be a connection string or a URI that PostgreSQL can read")
    return Address(values)


class PostgresDatabase:
    """A connection in a transaction. It sends statements together where it can."""

    newest: ClassVar[str] = "e.session = h.session AND e.serial = h.serial"

    def __init__(self, connection: "psycopg.Connection") -> None:
        self.connection = connection
        self.is_committing = False  # whether the transaction may be committed after a failure
        self._pipeline: psycopg.Pipeline | None = None

    @contextmanager
    def transaction(self, begin: str) -> Iterator[None]:
        """Begin, and commit at the end; a caller that raises within must `roll_back`. Nothing waits before it must."""
        with self.connection.pipeline() as self._pipeline:
            self.execute(begin)
            if begin == WRITING:
                limits = (round(1000 * seconds) for seconds in (IDLE_SECONDS, LOCK_STEP_SECONDS))
                self.execute(_WRITING_SETTINGS, [f"{limit}ms" for limit in limits])
            yield
            self.is_committing = begin == WRITING
            ended = self.connection.execute("COMMIT")
        self._pipeline = None
        self.is_committing = False
        if ended.statusmessage != "COMMIT":  # that is how PostgreSQL says that it has rolled back
            raise StoreError("PostgreSQL did not commit, nothing was kept", code=ErrorCode.INTERNAL)

    def roll_back(self) -> bool:
        """Undo what was begun, and return whether the server says that it is undone.

        After an error of the server the connection is closed: psycopg may take statements for prepared that were sent
        after the failed one, and that the server skipped.
        """
        import psycopg

        self._pipeline = None
        if self.connection.closed:
            return False
        status = self.connection.info.transaction_status
        try:
            if status != psycopg.pq.TransactionStatus.IDLE:
                self.connection.execute("ROLLBACK")
        except psycopg.Error:
            self.connection.close()
            return False
        if status == psycopg.pq.TransactionStatus.INERROR:
            self.connection.close()
        self.is_committing = False
        return True

    def end_stalled(self) -> None:
        """Take the locks from clients that stand still. Outside of a transaction."""
        import psycopg

        with suppress(psycopg.Error):  # this role may not look at others, or the connection is lost
            self.connection.execute(_END_STALLED, (_LARGE, LARGE_SECONDS, IDLE_SECONDS))

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    @contextmanager
    def patient(self, seconds: float) -> Iterator[None]:
        """Let statements take that many seconds inside this block."""
        connection: Any = self.connection
        usual, connection.statement_seconds = connection.statement_seconds, seconds
        try:
            yield
        finally:
            connection.statement_seconds = usual

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> "_Found":
        """Carry out one statement."""
        if _size(parameters) > LARGE_BYTES:
            self.connection.execute(_LARGE)
        return _Found(self.connection.execute(_in_their_form(sql), parameters, binary=True), self._pipeline)

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> None:
        """Carry out one statement for each of the rows."""
        self.connection.cursor().executemany(_in_their_form(sql), parameters)

    def entries_between(self, session: int, first: int, last: int) -> list[tuple[int, bytes, bytes]]:
        """Ask the index."""
        select = "SELECT serial, entry, checksum FROM entries WHERE session = ? AND serial BETWEEN ? AND ?"
        return self.execute(f"{select} ORDER BY serial", (session, first, last)).fetchall()

    def has_entries_after(self, session: int, serial: int) -> bool:
        """Ask the index."""
        select = "SELECT 1 FROM entries WHERE session = ? AND serial > ?"
        return self.execute(select, (session, serial)).fetchone() is not None

    def newest_marks(self, hashes: Sequence[bytes], limit: int) -> list[tuple[int, bytes, str, int]]:
        """Ask the index for each word, in one statement."""
        return self.execute(_MARKS, (hashes, limit)).fetchall()

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Raise StoreError for what PostgreSQL cannot read; the transaction goes on from before."""
        import psycopg

        self.execute("SAVEPOINT attempt")
        try:
            yield
        except psycopg.Error as error:
            if self.connection.closed or _meaning(error)[0] is not ErrorCode.CORRUPT:
                raise
            if self._pipeline is not None:
                self._pipeline.sync()
            self.execute("ROLLBACK TO SAVEPOINT attempt")
            raise store_error(error) from None

    def hold(self, session_id: str) -> None:
        """Lock the head of the session. Later reads of the transaction see the state after the lock."""
        select = "SELECT 1 FROM heads WHERE session = (SELECT key FROM sessions WHERE session_id = ?) FOR UPDATE"
        self.execute(select, (session_id,))

    def now(self) -> StoreTime:
        """Return the server's time."""
        (wall,) = self.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone() or (0.0,)
        return StoreTime(wall)

    def next_key(self) -> int:
        """Return the next number of the sequence."""
        (key,) = self.execute("SELECT nextval('session_keys')").fetchone() or (0,)
        assert key  # the sequence begins at 1
        return int(key)

    def find_unindexed(self, session_id: str) -> int | None:  # noqa: ARG002
        """Return None: to look at every row of a database of many machines costs too much."""
        return None

    def repair_index(self) -> None:
        """Do nothing: PostgreSQL deletes a row without asking its indexes, and cleaning makes them anew."""


def _size(values: Sequence[Any]) -> int:
    """The bytes of all texts and binary values, also those in lists."""
    sizes = (_size(value) if isinstance(value, list) else len(value) for value in values if isinstance(value, _SIZED))
    return sum(sizes)


class _Found:
    """What a statement found. Asking for it ends the batch of statements that are sent together.

    The server counts a transaction as idle only between two batches, and ends it then if its client stands still.
    """

    def __init__(self, cursor: "psycopg.Cursor[Any]", pipeline: "psycopg.Pipeline | None") -> None:
        self._cursor = cursor
        self._pipeline = pipeline

    def fetchone(self) -> Any:
        self._end_batch()
        return self._cursor.fetchone()

    def fetchall(self) -> list[Any]:
        self._end_batch()
        return self._cursor.fetchall()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.fetchall())

    def _end_batch(self) -> None:
        if self._pipeline is None or self._cursor.pgresult is not None:
            return
        if self._cursor.connection.pgconn.flush() == 0:  # psycopg waits for ever for the end of what is not sent yet
            self._pipeline.sync()


def connect(address: Address, schema: str, *, lock_seconds: float, statement_seconds: float) -> "psycopg.Connection":
    """Return a connection with the settings that durability needs; raise StoreError.

    A statement that the server has not answered within `statement_seconds` closes it.
    """
    require_psycopg()
    import psycopg

    try:
        patient = _patient_connection().connect(autocommit=True, client_encoding="UTF8", **address)
        patient.statement_seconds = statement_seconds
        connection: psycopg.Connection = patient
    except psycopg.Error as error:
        # No cause: what is chained to an error is shown with it.
        raise _connection_error(error, address) from None
    try:
        with translated():
            limit = min(max(1, round(lock_seconds * 1000)), LONGEST_LIMIT)
            connection.execute(_SETTINGS, (f'"{schema}", pg_temp', f"{limit}ms"))
    except BaseException:
        connection.close()
        raise
    return connection


@lru_cache(maxsize=1)
def _patient_connection() -> Any:
    """The class of connections that wait for a server no longer than a statement may take."""
    import psycopg

    class PatientConnection(psycopg.Connection[Any]):
        statement_seconds = float("inf")

        def wait(self, gen: Any, *arguments: Any, **named: Any) -> Any:
            return super().wait(self._until(gen, time.monotonic() + self.statement_seconds), *arguments, **named)

        def _until(self, steps: Generator[Any, Any, Any], deadline: float) -> Generator[Any, Any, Any]:
            """The steps of a statement. psycopg takes one every tenth of a second, also while the server is silent."""
            try:
                wanted = next(steps)
                while True:
                    ready = yield wanted
                    if time.monotonic() > deadline:
                        self.close()
                        raise psycopg.OperationalError(f"no answer within {self.statement_seconds:g} seconds")
                    wanted = steps.send(ready)
            except StopIteration as stop:
                return stop.value

    return PatientConnection


@contextmanager
def translated() -> Iterator[None]:
    """Raise StoreError for what PostgreSQL raises."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        raise store_error(error) from None


def is_locked_out(error: BaseException) -> bool:
    """Return whether others kept what is needed locked."""
    return getattr(error, "sqlstate", None) == "55P03"


def is_contention(error: BaseException) -> bool:
    """Return whether the transaction conflicted with another, so that it should be tried again."""
    state = getattr(error, "sqlstate", None) or ""
    return state.startswith("23") or state in ("40001", "40P01")


def store_error(error: "psycopg.Error") -> StoreError:
    """Return what an error of PostgreSQL means to a user of the store.

    Its own words are kept apart, and the details not at all: they quote rows.
    """
    code, words = _meaning(error)
    name = f"{error.sqlstate} {type(error).__name__}" if error.sqlstate else type(error).__name__
    said = error.diag.message_primary or str(error)
    return StoreError(f"PostgreSQL: {words} ({name})", code=code, provider_message=said)


def lost_answer() -> StoreError:
    """Return the error for a connection that was lost while a transaction was committed."""
    return StoreError(
        "PostgreSQL: the connection was lost during a commit, it may or may not be kept: repeat it, or look",
        code=ErrorCode.CONNECTION,
    )


# It gives each transaction another connection of the server, without the settings and prepared statements of ours.
_POOLER = "a pooler in transaction mode (PgBouncer: pool_mode = transaction) does that: let it pool sessions"

# The longest beginning of an SQLSTATE that is here says what it means.
_MEANINGS: dict[str, tuple[ErrorCode, str]] = {
    "": (ErrorCode.INTERNAL, "it refused a statement"),
    "08": (ErrorCode.CONNECTION, "the connection was lost"),
    "08P01": (ErrorCode.CONNECTION, f"statements of others came between ours; {_POOLER}"),
    "0A": (ErrorCode.UNSUPPORTED, "it cannot do what was asked"),
    "22": (ErrorCode.INVALID_REQUEST, "it cannot hold a value"),
    # Our statements are right for a database that is as it was made.
    "23": (ErrorCode.CORRUPT, "the database does not agree with itself"),
    "25006": (ErrorCode.PERMISSION, "the database may not be written, nothing was kept"),
    "25P": (ErrorCode.TIMEOUT, "a transaction took longer than the server allows"),
    "26": (ErrorCode.UNSUPPORTED, f"a statement that we prepared is not there; {_POOLER}"),
    "28": (ErrorCode.AUTHENTICATION, "it does not let us in"),
    "3D": (ErrorCode.NOT_FOUND, "there is no such database"),
    "3F": (ErrorCode.CORRUPT, "the schema is not as it was made"),
    "40": (ErrorCode.TIMEOUT, "others were always faster, nothing was kept"),
    "42": (ErrorCode.CORRUPT, "the schema is not as it was made"),
    "42P01": (
        ErrorCode.CORRUPT,
        f"a table is missing, this role has no USAGE on its schema, or our search path is gone; {_POOLER}",
    ),
    "42P05": (ErrorCode.UNSUPPORTED, f"others have prepared statements on our connection; {_POOLER}"),
    "42883": (ErrorCode.CORRUPT, f"a function is missing, or our search path is gone; {_POOLER}"),
    "42501": (ErrorCode.PERMISSION, "this role may not do that, nothing was kept"),
    "53": (ErrorCode.OVERLOADED, "the server has no room for more"),
    "53100": (ErrorCode.QUOTA_EXCEEDED, "the disk is full, nothing was kept"),
    "54": (ErrorCode.INVALID_REQUEST, "an entry is larger than the database can hold"),
    "55P03": (ErrorCode.TIMEOUT, "others kept what is needed locked for too long"),
    "57": (ErrorCode.CONNECTION, "the server ended the connection"),
    "57014": (ErrorCode.TIMEOUT, "a statement took longer than the server allows"),
    "58": (ErrorCode.SERVER_ERROR, "the server's disk or system failed"),
    "58P01": (ErrorCode.CORRUPT, "a file of the database is missing"),
    "XX": (ErrorCode.CORRUPT, "the database is damaged"),
}


def _meaning(error: "psycopg.Error") -> tuple[ErrorCode, str]:
    import psycopg

    state = error.sqlstate or ""
    if not state and isinstance(error, psycopg.OperationalError):  # it comes from libpq, not from the server
        return ErrorCode.CONNECTION, "the connection was lost, nothing was kept"
    return next(_MEANINGS[state[:size]] for size in (5, 3, 2, 0) if state[:size] in _MEANINGS)


def _connection_error(error: "psycopg.Error", address: Address) -> StoreError:
    words = address.without_password(" ".join(str(error).split()))
    is_refused = bool(error.pgconn and error.pgconn.needs_password) or "authentication failed" in words
    code = ErrorCode.AUTHENTICATION if is_refused else ErrorCode.CONNECTION
    return StoreError(f"PostgreSQL cannot be reached: {words}", code=code)


@lru_cache(maxsize=256)
def _in_their_form(sql: str) -> bytes:
    return sql.replace("%", "%%").replace("?", "%s").encode()
