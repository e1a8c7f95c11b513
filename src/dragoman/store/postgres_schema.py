"""A schema of a PostgreSQL database that holds sessions: its tables by numbered migrations.

The number of a schema is that of its newest migration. One that a later version of this library made is refused before
anything of it is touched. Names of tables are written with the schema's, whatever the search path of a connection is.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import ErrorCode, InvalidValue, StoreError

if TYPE_CHECKING:
    from psycopg import Connection

__all__ = ["MIGRATIONS", "channel_of", "migrate", "require_current", "require_schema_name", "tail_channel_of"]

OLDEST_SERVER = 140_000
ENCODINGS = ("UTF8", "SQL_ASCII")  # of a database; the latter keeps the bytes that it gets
MARK = "dragoman: sessions, from number 1"  # the comment on the table of migrations, by which it is known as ours
EARLIER_MARK = "dragoman: sessions"  # of schemas that were made before the numbers began again at 1

_TABLE = re.compile(r"CREATE (?:UNLOGGED )?TABLE {schema}\.(\w+)")
_NAME = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,39}")


# The statements from each number to the next; the first tuple makes number 1. A published one is never changed: what
# shall be different is a new tuple at the end. `{schema}` and `{channel}` stand for their names. The tables are those
# of the SQLite store, which says more about them.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE {schema}.migrations (
            number integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now()
        )""",
        f"COMMENT ON TABLE {{schema}}.migrations IS '{MARK}'",
        "CREATE SEQUENCE {schema}.session_keys",
        """CREATE TABLE {schema}.sessions (
            key bigint PRIMARY KEY,
            session_id text COLLATE "C" NOT NULL UNIQUE,
            created_at text NOT NULL,
            metadata bytea NOT NULL,
            parent bigint REFERENCES {schema}.sessions (key),
            base bigint NOT NULL,
            record bytea NOT NULL
        )""",
        "CREATE INDEX sessions_by_parent ON {schema}.sessions (parent) WHERE parent IS NOT NULL",
        """CREATE TABLE {schema}.entries (
            session bigint NOT NULL,
            serial bigint NOT NULL,
            checksum bytea NOT NULL,
            entry bytea NOT NULL,
            PRIMARY KEY (session, serial)
        )""",
        # A head is written again at every append: with room in its page, in the same page.
        """CREATE TABLE {schema}.heads (
            session bigint PRIMARY KEY REFERENCES {schema}.sessions (key),
            serial bigint NOT NULL,
            checksum bytea NOT NULL
        ) WITH (fillfactor = 50)""",
        # Counts in the transaction that wrote it alone.
        """CREATE TABLE {schema}.erasing (
            session bigint NOT NULL,
            transaction xid8 NOT NULL DEFAULT pg_current_xact_id(),
            PRIMARY KEY (session, transaction)
        )""",
        """CREATE TABLE {schema}.tombstones (
            session_id text COLLATE "C" PRIMARY KEY, erased_at text NOT NULL, entries bigint NOT NULL
        )""",
        "CREATE TABLE {schema}.cleanings (key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY)",
        "CREATE TABLE {schema}.canaries (key bigint GENERATED ALWAYS AS IDENTITY)",
        # Else ANALYZE would copy samples of what was said into the catalogue, where no erasing finds them.
        "ALTER TABLE {schema}.sessions ALTER COLUMN metadata SET STATISTICS 0",
        "ALTER TABLE {schema}.entries ALTER COLUMN entry SET STATISTICS 0",
        """CREATE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'integrity_constraint_violation';
        END $$""",
        """CREATE FUNCTION {schema}.is_erased_now(key bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
            SELECT EXISTS (
                SELECT 1 FROM {schema}.erasing
                WHERE session = key AND transaction = pg_current_xact_id_if_assigned()
            )
        $$""",
        """CREATE FUNCTION {schema}.sessions_are_new() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF EXISTS (SELECT 1 FROM {schema}.tombstones WHERE session_id = NEW.session_id) THEN
                RAISE EXCEPTION 'sessions are never replaced' USING ERRCODE = 'unique_violation';
            END IF;
            RETURN NEW;
        END $$""",
        # Takes only the next serial, moves the head, and notifies the listeners on every machine.
        """CREATE FUNCTION {schema}.entries_follow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF EXISTS (
                SELECT 1
                FROM (
                    SELECT session, min(serial) AS low, max(serial) AS high, count(*) AS number
                    FROM added GROUP BY session
                ) AS a
                LEFT JOIN {schema}.heads AS h ON h.session = a.session
                WHERE h.serial IS NULL OR a.low <> h.serial + 1 OR a.high - a.low + 1 <> a.number
            ) THEN
                RAISE EXCEPTION 'entries are only added, one after the other'
                    USING ERRCODE = 'integrity_constraint_violation';
            END IF;
            UPDATE {schema}.heads AS h SET serial = a.serial, checksum = a.checksum
            FROM (
                SELECT DISTINCT ON (session) session, serial, checksum FROM added ORDER BY session, serial DESC
            ) AS a
            WHERE h.session = a.session;
            PERFORM pg_notify('{channel}', session_id) FROM {schema}.sessions
            WHERE key IN (SELECT session FROM added);
            RETURN NULL;
        END $$""",
        """CREATE FUNCTION {schema}.tell_of_tombstone() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            PERFORM pg_notify('{channel}', NEW.session_id);
            RETURN NULL;
        END $$""",
        """CREATE TRIGGER entries_follow AFTER INSERT ON {schema}.entries REFERENCING NEW TABLE AS added
        FOR EACH STATEMENT EXECUTE FUNCTION {schema}.entries_follow()""",
        """CREATE TRIGGER entries_stay_as_they_are BEFORE UPDATE OR TRUNCATE ON {schema}.entries
        FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse('entries are never changed')""",
        """CREATE TRIGGER entries_stay BEFORE DELETE ON {schema}.entries
        FOR EACH ROW WHEN (NOT {schema}.is_erased_now(OLD.session))
        EXECUTE FUNCTION {schema}.refuse('entries are never deleted')""",
        """CREATE TRIGGER sessions_are_new BEFORE INSERT ON {schema}.sessions
        FOR EACH ROW EXECUTE FUNCTION {schema}.sessions_are_new()""",
        """CREATE TRIGGER sessions_stay_as_they_are BEFORE UPDATE OR TRUNCATE ON {schema}.sessions
        FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse('sessions are never changed')""",
        """CREATE TRIGGER sessions_stay BEFORE DELETE ON {schema}.sessions
        FOR EACH ROW WHEN (NOT {schema}.is_erased_now(OLD.key))
        EXECUTE FUNCTION {schema}.refuse('sessions are never deleted')""",
        """CREATE TRIGGER heads_are_moved_by_entries BEFORE UPDATE ON {schema}.heads
        FOR EACH ROW WHEN (pg_trigger_depth() = 0)
        EXECUTE FUNCTION {schema}.refuse('heads move by entries alone')""",
        """CREATE TRIGGER heads_stay BEFORE DELETE ON {schema}.heads
        FOR EACH ROW WHEN (NOT {schema}.is_erased_now(OLD.session))
        EXECUTE FUNCTION {schema}.refuse('heads are never deleted')""",
        """CREATE TRIGGER heads_are_kept BEFORE TRUNCATE ON {schema}.heads
        FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse('heads are never deleted')""",
        """CREATE TRIGGER tombstones_stay BEFORE UPDATE OR DELETE OR TRUNCATE ON {schema}.tombstones
        FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse('tombstones stay')""",
        """CREATE TRIGGER tell_of_tombstone AFTER INSERT ON {schema}.tombstones
        FOR EACH ROW EXECUTE FUNCTION {schema}.tell_of_tombstone()""",
        """CREATE TABLE {schema}.blobs (
            key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, hash bytea NOT NULL UNIQUE, data bytea NOT NULL
        )""",
        """CREATE TABLE {schema}.pieces (
            session bigint NOT NULL,
            serial bigint NOT NULL,
            at bigint NOT NULL,
            blob bigint NOT NULL REFERENCES {schema}.blobs (key),
            is_base64 boolean NOT NULL,
            PRIMARY KEY (session, serial, at)
        )""",
        "CREATE INDEX pieces_by_blob ON {schema}.pieces (blob)",
        "ALTER TABLE {schema}.blobs ALTER COLUMN data SET STATISTICS 0",
        """CREATE FUNCTION {schema}.is_used(key bigint) RETURNS boolean LANGUAGE sql STABLE AS $$
            SELECT EXISTS (SELECT 1 FROM {schema}.pieces WHERE blob = key)
        $$""",
        """CREATE TRIGGER blobs_stay_as_they_are BEFORE UPDATE OR TRUNCATE ON {schema}.blobs
        FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse('blobs are never changed')""",
        """CREATE TRIGGER blobs_stay BEFORE DELETE ON {schema}.blobs
        FOR EACH ROW WHEN ({schema}.is_used(OLD.key))
        EXECUTE FUNCTION {schema}.refuse('blobs are never deleted while an entry needs them')""",
        """CREATE TRIGGER pieces_stay_as_they_are BEFORE UPDATE OR TRUNCATE ON {schema}.pieces
        FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse('pieces are never changed')""",
        """CREATE TRIGGER pieces_stay BEFORE DELETE ON {schema}.pieces
        FOR EACH ROW WHEN (NOT {schema}.is_erased_now(OLD.session))
        EXECUTE FUNCTION {schema}.refuse('pieces are never deleted')""",
        """CREATE TABLE {schema}.snapshots (
            session bigint NOT NULL REFERENCES {schema}.sessions (key),
            serial bigint NOT NULL,
            checksum bytea NOT NULL,
            data bytea NOT NULL,
            PRIMARY KEY (session, serial)
        )""",
        "ALTER TABLE {schema}.snapshots ALTER COLUMN data SET STATISTICS 0",
        # Renewed again and again: with room in its page, in the same page.
        """CREATE TABLE {schema}.leases (
            session bigint PRIMARY KEY,
            token text NOT NULL,
            owner text NOT NULL,
            acquired double precision NOT NULL,
            seconds double precision NOT NULL,
            expires double precision NOT NULL,
            boot text NOT NULL,
            expires_uptime double precision NOT NULL
        ) WITH (fillfactor = 50)""",
    ),
    (
        # Runs that were requested, and how far they are: what the entries say, so that no session has to be read.
        # `wakes` grows when something is said that a waiting run must read. An engine may have a trigger here.
        """CREATE TABLE {schema}.requests (
            number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            session bigint NOT NULL,
            serial bigint NOT NULL,
            agent text NOT NULL,
            run_id text NOT NULL,
            request_key text UNIQUE,
            status text NOT NULL,
            wakes bigint NOT NULL DEFAULT 0
        )""",
        "CREATE INDEX requests_by_session ON {schema}.requests (session, serial)",
        "CREATE INDEX requests_open ON {schema}.requests (number) WHERE status IN ('queued', 'running')",
    ),
    (
        # Not written to the log of the server, which empties it after a crash.
        """CREATE UNLOGGED TABLE {schema}.tails (
            session bigint NOT NULL,
            token text NOT NULL,
            stream text COLLATE "C" NOT NULL,
            serial bigint NOT NULL,
            first bigint NOT NULL,
            past bigint NOT NULL,
            deltas text NOT NULL,
            PRIMARY KEY (session, stream, past)
        )""",
        "ALTER TABLE {schema}.tails ALTER COLUMN deltas SET STATISTICS 0",
        # Of a lease that was lost nothing is written, and what was written with it is not read. The table is empty at
        # one moment and long at the next: without these settings a plan from the first moment reads all of it later.
        """CREATE FUNCTION {schema}.write_tails(pieces json) RETURNS void LANGUAGE plpgsql
        SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$ BEGIN
            DELETE FROM {schema}.tails AS t
            USING json_to_recordset(pieces) AS w (session_id text, token text, stream text, first bigint)
            JOIN {schema}.sessions AS s ON s.session_id = w.session_id
            JOIN {schema}.leases AS l ON l.session = s.key AND l.token = w.token
            WHERE w.first = 0 AND t.session = s.key AND t.stream <> w.stream;
            INSERT INTO {schema}.tails
            SELECT s.key, w.token, w.stream, w.serial, w.first, w.past, w.deltas
            FROM json_to_recordset(pieces) AS w (
                session_id text, token text, stream text, serial bigint, first bigint, past bigint, deltas text
            )
            JOIN {schema}.sessions AS s ON s.session_id = w.session_id
            JOIN {schema}.leases AS l ON l.session = s.key AND l.token = w.token
            ON CONFLICT DO NOTHING;
        END $$""",
        """CREATE FUNCTION {schema}.read_tails(queries json) RETURNS TABLE (
            session_id text, token text, stream text, serial bigint, first bigint, past bigint, deltas text
        ) LANGUAGE plpgsql STABLE
        SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
        #variable_conflict use_column
        BEGIN
            RETURN QUERY
            SELECT w.session_id, t.token, t.stream, t.serial, t.first, t.past, t.deltas
            FROM json_to_recordset(queries) AS w (session_id text, stream text, from_index bigint)
            JOIN {schema}.sessions AS s ON s.session_id = w.session_id
            JOIN {schema}.leases AS l ON l.session = s.key
            JOIN LATERAL (
                SELECT * FROM {schema}.tails AS a
                WHERE a.session = s.key AND a.stream = w.stream AND a.past > w.from_index
                UNION ALL SELECT * FROM {schema}.tails AS a WHERE a.session = s.key AND a.stream < w.stream
                UNION ALL SELECT * FROM {schema}.tails AS a WHERE a.session = s.key AND a.stream > w.stream
            ) AS t ON t.token = l.token;
        END $$""",
    ),
    (
        """CREATE TABLE {schema}.entry_marks (
            number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            hash bytea NOT NULL,
            session bigint NOT NULL,
            serial bigint NOT NULL
        )""",
        "CREATE INDEX entry_marks_by_hash ON {schema}.entry_marks (hash, number)",
    ),
    (
        # Deltas are read only while the lease of their owner lasts: a killed owner does not delete its own. No store
        # writes a lease that ends after the year 9999.
        """CREATE OR REPLACE FUNCTION {schema}.read_tails(queries json) RETURNS TABLE (
            session_id text, token text, stream text, serial bigint, first bigint, past bigint, deltas text
        ) LANGUAGE plpgsql STABLE
        SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
        #variable_conflict use_column
        BEGIN
            RETURN QUERY
            SELECT w.session_id, t.token, t.stream, t.serial, t.first, t.past, t.deltas
            FROM json_to_recordset(queries) AS w (session_id text, stream text, from_index bigint)
            JOIN {schema}.sessions AS s ON s.session_id = w.session_id
            JOIN {schema}.leases AS l ON l.session = s.key
                AND l.expires > extract(epoch FROM statement_timestamp())::float8
                AND greatest(l.expires, l.expires_uptime) < 253402300800
            JOIN LATERAL (
                SELECT * FROM {schema}.tails AS a
                WHERE a.session = s.key AND a.stream = w.stream AND a.past > w.from_index
                UNION ALL SELECT * FROM {schema}.tails AS a WHERE a.session = s.key AND a.stream < w.stream
                UNION ALL SELECT * FROM {schema}.tails AS a WHERE a.session = s.key AND a.stream > w.stream
            ) AS t ON t.token = l.token;
        END $$""",
    ),
)


def require_schema_name(schema: object) -> None:
    """Raise InvalidValue unless this can be the name of a schema; it is then also safe inside of a statement."""
    if not isinstance(schema, str) or not _NAME.fullmatch(schema):
        raise InvalidValue.of("schema", schema, "at most 40 of a-z, 0-9 and _, no digit first, and not pg_ first")


def channel_of(schema: str) -> str:
    """Return the name of the channel that notifies followers of the schema's sessions."""
    return f"dragoman_{schema}"


def tail_channel_of(schema: str) -> str:
    """Return the name of the channel that notifies followers of the deltas of answers under way."""
    return f"{channel_of(schema)}_tails"


def require_current(connection: "Connection", schema: str, newest: int = len(MIGRATIONS)) -> None:
    """Raise StoreError unless the schema has the newest number that is known here."""
    number = _number(connection, schema, newest)
    if number < newest:
        seen = f"has number {number}" if number else "is not there"
        raise StoreError(
            f"the schema {schema!r} {seen}, this dragoman needs number {newest}:"
            " run `dragoman sessions migrate`, or await the store's migrate()",
            code=ErrorCode.UNSUPPORTED,
        )


def migrate(connection: "Connection", schema: str, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> None:
    """Apply the migrations that are missing, each in its transaction; one process at a time."""
    if connection.info.server_version < OLDEST_SERVER:
        raise StoreError(f"PostgreSQL {OLDEST_SERVER // 10_000} or later is needed", code=ErrorCode.UNSUPPORTED)
    encoding = connection.info.parameter_status("server_encoding")
    if encoding not in ENCODINGS:
        words = "that cannot hold every text: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
        raise StoreError(f"the database has the encoding {encoding}, {words}", code=ErrorCode.UNSUPPORTED)
    for number, statements in enumerate(migrations, 1):
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (channel_of(schema),))
            if _number(connection, schema, len(migrations)) >= number:
                continue
            connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"'.encode())
            for statement in statements:
                text = statement.replace("{schema}", f'"{schema}"').replace("{channel}", channel_of(schema))
                connection.execute(text.encode())
            connection.execute(f'INSERT INTO "{schema}".migrations VALUES (%s)'.encode(), (number,))  # noqa: S608  # our name


def _number(connection: "Connection", schema: str, newest: int) -> int:
    """The number of the schema, 0 if it is empty or not there; raise StoreError if it is newer, or not ours."""
    select = """
        SELECT count(*), max(obj_description(c.oid, 'pg_class')) FILTER (WHERE c.relname = 'migrations'),
            min(c.relname) FILTER (WHERE c.relname = ANY(%s) AND c.relkind NOT IN ('r', 'p'))
        FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = %s
    """
    tables = [name for statements in MIGRATIONS for each in statements for name in _TABLE.findall(each)]
    everything, mark, other = connection.execute(select, (tables, schema)).fetchone() or (0, None, None)
    if not everything:
        return 0
    if mark == EARLIER_MARK:
        raise StoreError(
            f"the schema {schema!r} was made by an earlier dragoman, in a format that this one does not read: export "
            "its sessions with that version and import them into another schema",
            code=ErrorCode.UNSUPPORTED,
        )
    if mark != MARK:
        raise StoreError(f"the schema {schema!r} is not one of sessions: name another", code=ErrorCode.CORRUPT)
    if other is not None:  # a view can go on for ever
        raise StoreError(f"the schema {schema!r}: {other!r} is not a table of a store", code=ErrorCode.CORRUPT)
    found = connection.execute(f'SELECT max(number) FROM "{schema}".migrations'.encode()).fetchone()  # noqa: S608
    number: int = (found and found[0]) or 0
    if number > newest:
        raise StoreError(
            f"the schema {schema!r} has number {number}, this dragoman reads up to {newest}: update it",
            code=ErrorCode.TOO_NEW,
        )
    return number
