"""The tables of the PostgreSQL engine: those of procrastinate, in a schema beside that of the sessions.

A trigger on the store's table of requests makes an order of each request, in the transaction that records it. So an
order is there exactly if its request is, for requests of all processes. The engine's schema holds nothing that cannot
be made again from the record: it may be dropped, `prepare` makes it anew.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ..errors import ErrorCode, StoreError
from .orders import Order

if TYPE_CHECKING:
    from psycopg import Connection

__all__ = ["SCHEDULE", "channel_of", "encode_order", "engine_schema", "job_values", "prepare", "require_current"]

TASK = "dragoman.order"  # the name of procrastinate's task
NUMBER = 1  # of the statements below; it grows when they change

# Schedules an order, with the values of `job_values`. The session is procrastinate's lock: its orders come one by one,
# by their ids. An order that waits for its time keeps later ones of its session waiting, as its requests must. An order
# of priority 1 does not wait: a decision must not wait for the next attempt.
SCHEDULE = """
    INSERT INTO procrastinate_jobs (queue_name, task_name, priority, lock, args, scheduled_at)
    VALUES (%s, %s, %s, %s, %s, now() + make_interval(secs => %s))
"""

_MARK = re.compile(r"dragoman: orders, number (\d+), procrastinate (\S+)")

# `UPDATE` is a wake.
_STATEMENTS = (
    """CREATE OR REPLACE FUNCTION {engine}.dragoman_schedule() RETURNS trigger LANGUAGE plpgsql
    SET search_path = {engine}, pg_temp AS $$ BEGIN
        INSERT INTO {engine}.procrastinate_jobs (queue_name, task_name, priority, lock, args)
        SELECT '{queue}', '{task}', CASE TG_OP WHEN 'UPDATE' THEN 1 ELSE 0 END, session_id,
            jsonb_build_object('session', session_id, 'agent', NEW.agent, 'serial', NEW.serial)
        FROM {schema}.sessions WHERE key = NEW.session;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'a request needs its session' USING ERRCODE = 'integrity_constraint_violation';
        END IF;
        RETURN NULL;
    END $$""",
    """CREATE OR REPLACE TRIGGER dragoman_schedule_request AFTER INSERT ON {schema}.requests
    FOR EACH ROW WHEN (NEW.status IN ('queued', 'running')) EXECUTE FUNCTION {engine}.dragoman_schedule()""",
    """CREATE OR REPLACE TRIGGER dragoman_schedule_wake AFTER UPDATE OF wakes ON {schema}.requests
    FOR EACH ROW WHEN (NEW.wakes <> OLD.wakes) EXECUTE FUNCTION {engine}.dragoman_schedule()""",
    # procrastinate asks for each order whether others of its session come first, and has no index for that.
    """CREATE INDEX IF NOT EXISTS dragoman_jobs_by_lock ON {engine}.procrastinate_jobs (lock)
    WHERE status IN ('todo', 'doing')""",
)


class Version(NamedTuple):
    """What made the tables: the number of our statements, and the newest migration of procrastinate."""

    number: int
    migration: str

    def __str__(self) -> str:
        return f"dragoman: orders, number {self.number}, procrastinate {self.migration}"


def engine_schema(schema: str) -> str:
    """Return the name of the engine's schema, which belongs to that of the sessions."""
    return f"{schema}_engine"


def channel_of(schema: str) -> str:
    """Return the channel on which procrastinate tells of new orders; the queue has the name of the sessions' schema."""
    return f"procrastinate_queue_v1#{schema}"


def job_values(schema: str, order: Order, seconds: float) -> tuple[Any, ...]:
    """Return the values of `SCHEDULE`."""
    is_now = seconds <= 0
    return schema, TASK, int(is_now), order.session, encode_order(order), None if is_now else seconds


def encode_order(order: Order) -> str:
    """Return the order as the arguments of a job."""
    return msgspec.json.encode(order).decode()


def prepare(connection: "Connection", schema: str) -> None:
    """Make the tables and the trigger, or bring them up to date: step by step, each by one process at a time."""
    engine, wanted = engine_schema(schema), _wanted()
    while _read_version(connection, engine) != wanted:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (engine,))
            found = _read_version(connection, engine)
            _require_known(found, wanted, engine)
            _require_requests(connection, schema)
            made = _create(connection, engine) if found is None else _advance(connection, schema, found)
            connection.execute(f"COMMENT ON TABLE \"{engine}\".procrastinate_jobs IS '{made}'".encode())


def require_current(connection: "Connection", schema: str) -> None:
    """Raise StoreError unless the tables are those that this version makes."""
    engine, wanted = engine_schema(schema), _wanted()
    found = _read_version(connection, engine)
    _require_known(found, wanted, engine)
    if found != wanted:
        seen = "are not there" if found is None else "are those of an earlier version"
        raise StoreError(
            f"the engine's tables in the schema {engine!r} {seen}: run `dragoman sessions migrate`, or await the"
            " engine's prepare()",
            code=ErrorCode.UNSUPPORTED,
        )


def _read_version(connection: "Connection", engine: str) -> Version | None:
    """What made the tables, None if there are none; raise StoreError if there are others in their place."""
    select = """
        SELECT count(*), max(obj_description(c.oid, 'pg_class')) FILTER (WHERE c.relname = 'procrastinate_jobs')
        FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = %s
    """
    count, mark = connection.execute(select, (engine,)).fetchone() or (0, None)
    if not count:
        return None
    known = _MARK.fullmatch(mark or "")
    if known is None:
        raise StoreError(
            f"the schema {engine!r} holds other tables than those of the engine: rename it, or name another schema for"
            " the sessions",
            code=ErrorCode.CORRUPT,
        )
    return Version(int(known[1]), known[2])


def _require_known(found: Version | None, wanted: Version, engine: str) -> None:
    if found is None:
        return
    for is_newer, package in (
        (found.number > wanted.number, "dragoman"),
        (found.migration > wanted.migration, "procrastinate"),
    ):
        if is_newer:
            raise StoreError(
                f"a later {package} made the engine's tables in the schema {engine!r}: update {package} here",
                code=ErrorCode.TOO_NEW,
            )


def _require_requests(connection: "Connection", schema: str) -> None:
    (found,) = connection.execute("SELECT to_regclass(%s)", (f'"{schema}".requests',)).fetchone() or (None,)
    if found is None:
        raise StoreError(
            f"the schema {schema!r} has no table of requests: run `dragoman sessions migrate`, or await the store's"
            " migrate(), before the engine is prepared",
            code=ErrorCode.UNSUPPORTED,
        )


def _create(connection: "Connection", engine: str) -> Version:
    from procrastinate.schema import SchemaManager

    if connection.execute("SELECT to_regnamespace(%s)", (f'"{engine}"',)).fetchone() == (None,):
        connection.execute(f'CREATE SCHEMA "{engine}"'.encode())
    connection.execute(SchemaManager.get_schema().encode())
    return Version(0, _wanted().migration)


def _advance(connection: "Connection", schema: str, found: Version) -> Version:
    """Apply procrastinate's next migration, or else our statements."""
    for path in _migrations():
        if path.stem > found.migration:
            connection.execute(path.read_bytes())
            return Version(found.number, path.stem)
    for statement in _STATEMENTS:
        text = statement.replace("{engine}", f'"{engine_schema(schema)}"').replace("{schema}", f'"{schema}"')
        connection.execute(text.replace("{queue}", schema).replace("{task}", TASK).encode())
    return _wanted()


def _wanted() -> Version:
    return Version(NUMBER, _migrations()[-1].stem)


def _migrations() -> list[Path]:
    """The migrations of the procrastinate that is installed, in their order."""
    from procrastinate.schema import SchemaManager

    return sorted(Path(SchemaManager.get_migrations_path()).glob("*.sql"))
