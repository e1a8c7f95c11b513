"""The engine in the database of the sessions: what is recorded is scheduled, and no order is lost with its worker."""

import asyncio
import json
import logging
import sys
import traceback
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dragoman import ErrorCode, InvalidValue, MissingExtra
from dragoman.durable.engine import Engine, EngineError
from dragoman.durable.orders import Order, Progress
from dragoman.durable.postgres import PostgresEngine
from dragoman.durable.postgres_tables import Version
from tests.durable_programs import PATIENCE, REQUEST, REQUESTS, holder, prepare, request, until, workers
from tests.postgres_engine_cases import DONE, count, engine_of, performed, quick_engine, work
from tests.postgres_server import Place, restart

pytestmark = pytest.mark.slow  # minutes, on a busy machine


# ---------------------------------------------------------------- recorded is scheduled


def test_it_is_an_engine_that_follows_the_record() -> None:
    engine: Engine = PostgresEngine("postgresql://localhost/db")
    assert engine.follows_record


def test_a_request_that_is_recorded_is_scheduled_in_the_same_transaction(postgres: Place) -> None:
    prepare(postgres, "s")
    with postgres.raw() as connection, connection.transaction(force_rollback=True):
        connection.execute(REQUEST, (7, "r", "s"))
    assert count(postgres, "jobs") == 0
    request(postgres, "s", 7)
    assert performed(engine_of(postgres), 1) == [Order("s", "support", 7)]
    assert count(postgres, "jobs") == count(postgres, "events") == count(postgres, "workers") == 0


def test_a_wake_is_performed_although_the_next_attempt_is_far_away(postgres: Place) -> None:
    prepare(postgres, "s")
    request(postgres, "s", 3)
    engine = engine_of(postgres)
    later = Order("s", "support", 3, failures=1, head=9)
    attempts: list[Order] = []

    async def perform(order: Order) -> Progress:
        attempts.append(order)
        if len(attempts) == 1:
            with postgres.raw() as connection:
                connection.execute("UPDATE requests SET wakes = wakes + 1")
        return Progress("running", 9, later, 3600.0) if len(attempts) == 1 else DONE

    work(engine, perform, is_enough=lambda: len(attempts) == 2)
    assert attempts == [Order("s", "support", 3)] * 2
    assert count(postgres, "jobs", "status = 'todo' AND scheduled_at > now() + interval '50 minutes'") == 1


def test_the_next_attempt_comes_before_later_requests_of_its_session(postgres: Place) -> None:
    prepare(postgres, "s")
    request(postgres, "s", 1)
    request(postgres, "s", 2)
    orders: list[Order] = []

    async def perform(order: Order) -> Progress:
        orders.append(order)
        again = order.serial == 1 and order.failures < 2
        return Progress("running", 2, Order("s", "support", 1, order.failures + 1), 0.05) if again else DONE

    work(engine_of(postgres), perform, is_enough=lambda: len(orders) == 4)
    assert [(order.serial, order.failures) for order in orders] == [(1, 0), (1, 1), (1, 2), (2, 0)]


def test_what_is_scheduled_for_now_does_not_wait_for_what_is_scheduled_for_later(postgres: Place) -> None:
    prepare(postgres)
    engine = engine_of(postgres)

    async def schedule() -> None:
        await engine.schedule(Order("s", "support", 1, failures=1), seconds=3600.0)
        await engine.schedule(Order("s", "support", 1))

    asyncio.run(schedule())
    assert performed(engine, 1) == [Order("s", "support", 1)]


def test_an_order_that_is_scheduled_for_later_waits(postgres: Place) -> None:
    prepare(postgres)
    engine = engine_of(postgres)
    asyncio.run(engine.schedule(Order("s", "support", 1), seconds=3600.0))
    asyncio.run(engine.schedule(Order("t", "support", 1)))
    assert [order.session for order in performed(engine, 1)] == ["t"]
    assert count(postgres, "jobs") == 1


@pytest.mark.parametrize("error", [RuntimeError, asyncio.CancelledError])
def test_what_raises_is_tried_again_later_and_is_not_lost(
    postgres: Place, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    prepare(postgres, "s")
    request(postgres, "s")
    request_seen = asyncio.Event()

    async def perform(order: Order) -> Progress:
        request_seen.set()
        raise error

    async def run() -> None:
        stop = asyncio.Event()
        task = asyncio.ensure_future(engine_of(postgres).work(perform, slots=1, stop=stop))
        await request_seen.wait()
        stop.set()
        await task

    asyncio.run(run())
    assert count(postgres, "jobs", "status = 'todo' AND scheduled_at > now()") == 1
    assert "order s:0 was not performed" in caplog.text


@pytest.mark.parametrize(
    "arguments",
    [
        {"session": 3},
        ["s", "support", 0],
        {"session": "s", "agent": "support", "serial": 2**70},
        {"session": "s", "agent": "support", "serial": 0, "head": 2**70},
        '{"session": "s", "agent": "support", "serial": 1e5000}',
        "[" * 2_000 + "]" * 2_000,
    ],
    ids=lambda value: str(value)[:24],
)
def test_a_job_that_is_no_order_is_set_aside(postgres: Place, arguments: object) -> None:
    prepare(postgres, "s")
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    with postgres.raw() as connection:
        connection.execute(f"SET search_path = {postgres.schema}_engine".encode())
        connection.execute(
            "INSERT INTO procrastinate_jobs (queue_name, task_name, args) VALUES (%s, 'other', %s)",
            (postgres.schema, written),
        )
    request(postgres, "s")
    assert len(performed(engine_of(postgres), 1)) == 1
    assert count(postgres, "jobs", "status = 'failed'") == 1


# ---------------------------------------------------------------- databases that are gone


def cut(place: Place, condition: str = "true") -> int:
    """Cut connections of the engine, as a network does."""
    select = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name"
    return int(place.scalar(f"{select} = '{place.schema}' AND {condition}"))


def test_work_goes_on_after_the_database_was_restarted(postgres: Place) -> None:
    if postgres.server.data is None:
        pytest.skip("the server is not ours to restart")
    prepare(postgres, "s", "t")
    with workers(postgres, 2, dead_seconds=5.0) as made:
        order = request(postgres, "s")
        first = holder(made, order)
        until(lambda: count(postgres, "workers") == 2, "both have begun")
        restart(postgres.server)
        other = request(postgres, "t")
        until(lambda: any(worker.has_said(f"begin {other}") for worker in made), "the next order is begun")
        first.say(f"end {order}")
        for worker in made:
            worker.say(f"end {other}")
        until(lambda: count(postgres, "jobs") == 0, "both are done")
        assert len([said for worker in made for _, said in worker.heard if said == f"begin {order}"]) == 1
        assert all(worker.process.poll() is None for worker in made)


def test_no_order_is_lost_where_connections_are_cut_at_any_moment(postgres: Place) -> None:
    names = [f"s{number}" for number in range(60)]
    prepare(postgres, *names)
    seen: set[str] = set()
    engine = quick_engine(postgres)

    async def run() -> None:
        stop = asyncio.Event()

        async def perform(order: Order) -> Progress:
            seen.add(order.session)
            return DONE if order.failures else Progress("running", 0, Order(order.session, "support", 0, 1))

        async def disturb() -> None:
            listens = f"SELECT count(*) FROM pg_stat_activity WHERE application_name = '{postgres.schema}' AND query"
            await asyncio.to_thread(until, lambda: postgres.scalar(f"{listens} LIKE 'LISTEN%'"), "the worker listens")
            for name in names:
                await asyncio.to_thread(request, postgres, name)
                await asyncio.to_thread(cut, postgres)
            await asyncio.to_thread(until, lambda: count(postgres, "jobs") == 0, "all are done")
            stop.set()

        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(engine.work(perform, slots=3, stop=stop), disturb())

    asyncio.run(run())
    assert seen == set(names)


def test_a_worker_outlives_a_time_in_which_it_may_write_nothing(
    postgres: Place, caplog: pytest.LogCaptureFixture
) -> None:
    prepare(postgres, "s", "t")
    role, engine_schema = f"{postgres.schema}_role", f"{postgres.schema}_engine"
    refuse, allow = (
        f"{statement} ALL ON ALL TABLES IN SCHEMA {engine_schema} {to} {role}".encode()
        for statement, to in (("REVOKE", "FROM"), ("GRANT", "TO"))
    )
    with postgres.raw() as connection:
        connection.execute(f"CREATE ROLE {role}".encode())
        connection.execute(f"GRANT USAGE ON SCHEMA {engine_schema} TO {role}".encode())
        connection.execute(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {engine_schema} TO {role}".encode())
        connection.execute(allow)
    engine = PostgresEngine(
        postgres.conninfo(options=f"-c role={role}"), schema=postgres.schema, heartbeat_seconds=0.05, dead_seconds=0.4
    )
    performed_by: list[str] = []

    async def run() -> None:
        stop = asyncio.Event()

        async def perform(order: Order) -> Progress:
            performed_by.append(order.session)
            if order.session == "s":
                await change(refuse)
                await asyncio.to_thread(
                    until, lambda: "this role may not do that" in caplog.text, "a statement was refused"
                )
            else:
                stop.set()
            return DONE

        async def change(statement: bytes) -> None:
            def execute() -> None:
                with postgres.raw() as connection:
                    connection.execute(statement)

            await asyncio.to_thread(execute)

        async def go_on() -> None:
            await asyncio.to_thread(request, postgres, "s")
            await asyncio.to_thread(
                until, lambda: "this role may not do that" in caplog.text, "a statement was refused"
            )
            await change(allow)
            await asyncio.to_thread(request, postgres, "t")

        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(engine.work(perform, slots=3, stop=stop), go_on())

    try:
        asyncio.run(run())
    finally:
        with postgres.raw() as connection:
            connection.execute(f"DROP OWNED BY {role}".encode())
            connection.execute(f"DROP ROLE {role}".encode())
    assert performed_by == ["s", "t"]
    assert count(postgres, "jobs") == 0


def test_an_order_is_found_although_no_notice_of_it_came(postgres: Place) -> None:
    prepare(postgres, "s")
    engine = quick_engine(postgres)
    orders: list[Order] = []

    async def run() -> None:
        stop = asyncio.Event()

        async def perform(order: Order) -> Progress:
            orders.append(order)
            stop.set()
            return DONE

        async def lose_the_notice() -> None:
            await asyncio.to_thread(until, lambda: cut(postgres, "query LIKE 'LISTEN%'"), "the worker listens")
            await asyncio.to_thread(request, postgres, "s")

        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(engine.work(perform, slots=3, stop=stop), lose_the_notice())

    asyncio.run(run())
    assert len(orders) == 1


# ---------------------------------------------------------------- tables


def test_many_may_prepare_at_once_and_again(postgres: Place) -> None:
    with postgres.raw() as connection:
        connection.execute(REQUESTS.encode())

    async def run() -> None:
        for _ in range(2):
            await asyncio.gather(*(engine_of(postgres).prepare() for _ in range(6)))

    asyncio.run(run())
    find_none(postgres)


def find_none(place: Place) -> None:
    """Ask the engine for something, if its tables are as it needs them."""

    async def run() -> None:
        engine = engine_of(place)
        assert await engine.find_unscheduled([]) == []
        await engine.close()

    asyncio.run(run())


def test_tables_of_an_earlier_procrastinate_are_brought_up_to_date(postgres: Place) -> None:
    from procrastinate.schema import SchemaManager

    prepare(postgres, "s")
    engine = f"{postgres.schema}_engine"
    now = shape(postgres)
    paths = sorted(Path(SchemaManager.get_migrations_path()).glob("*.sql"))
    early, later = paths[:-4], paths[-4:]
    with postgres.raw() as connection:
        connection.execute(f"DROP SCHEMA {engine} CASCADE; CREATE SCHEMA {engine}; SET search_path = {engine}".encode())
        for path in early:
            connection.execute(path.read_bytes())
        mark = Version(0, early[-1].stem)
        connection.execute(f"COMMENT ON TABLE procrastinate_jobs IS '{mark}'".encode())
    assert shape(postgres) != now
    assert len(later) == 4
    with pytest.raises(EngineError, match="earlier version: run `dragoman sessions migrate`"):
        find_none(postgres)
    asyncio.run(engine_of(postgres).prepare())
    assert shape(postgres) == now
    request(postgres, "s")
    assert len(performed(engine_of(postgres), 1)) == 1


def shape(place: Place) -> list[tuple[str, ...]]:
    """The functions and triggers of the engine."""
    with place.raw() as connection:
        select = """
            SELECT 'function', proname::text FROM pg_proc WHERE pronamespace = to_regnamespace(%s)
            UNION ALL SELECT 'trigger', tgname::text FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
            WHERE NOT tgisinternal AND (c.relnamespace = to_regnamespace(%s) OR tgname LIKE 'dragoman%%')
            ORDER BY 1, 2
        """
        name = f"{place.schema}_engine"
        return connection.execute(select, (name, name)).fetchall()


def test_the_engines_tables_can_be_dropped_and_made_again(postgres: Place) -> None:
    prepare(postgres, "s")
    request(postgres, "s")
    with postgres.raw() as connection:
        connection.execute(f"DROP SCHEMA {postgres.schema}_engine CASCADE".encode())
    order = Order("s", "support", 0)
    engine = engine_of(postgres)

    async def run() -> list[Order]:
        await engine.prepare()
        (missing,) = await engine.find_unscheduled([order])
        await engine.schedule(missing)
        return await engine.find_unscheduled([order])

    assert asyncio.run(run()) == []
    assert performed(engine, 1) == [order]


# ---------------------------------------------------------------- errors


def refusal(engine: PostgresEngine, code: ErrorCode, *, prepares: bool = False) -> str:
    """What the engine says, whichever method is asked."""

    async def perform(order: Order) -> Progress:
        raise AssertionError

    async def run() -> set[str]:
        calls: list[Callable[[], Awaitable[object]]] = [engine.prepare] if prepares else []
        calls += [
            partial(engine.schedule, Order("s", "a", 0)),
            partial(engine.find_unscheduled, []),
            partial(engine.work, perform, slots=1, stop=asyncio.Event()),
        ]
        said = set()
        for call in calls:
            with pytest.raises(EngineError) as caught:
                await call()
            assert caught.value.code is code
            said.add(str(caught.value))
        await engine.close()
        await engine.close()
        return said

    (words,) = asyncio.run(run())
    return words


def test_missing_tables_are_told_with_the_command_that_makes_them(postgres: Place) -> None:
    words = refusal(engine_of(postgres), ErrorCode.UNSUPPORTED)
    assert words == (
        f"the engine's tables in the schema '{postgres.schema}_engine' are not there: run `dragoman sessions migrate`,"
        " or await the engine's prepare()"
    )


def test_the_engine_needs_the_tables_of_the_sessions(empty_postgres: Place) -> None:
    with pytest.raises(EngineError, match="has no table of requests: run `dragoman sessions migrate`"):
        asyncio.run(engine_of(empty_postgres).prepare())
    assert empty_postgres.scalar(f"SELECT to_regnamespace('{empty_postgres.schema}_engine')") is None


@pytest.mark.parametrize(
    ("mark", "package"),
    [
        (Version(99, "00.00.00"), "dragoman"),
        (Version(1, "99.00.00_01_pre_something"), "procrastinate"),
    ],
)
def test_tables_of_a_later_version_are_refused(postgres: Place, mark: Version, package: str) -> None:
    prepare(postgres)
    with postgres.raw() as connection:
        name = f"{postgres.schema}_engine"
        connection.execute(f"COMMENT ON TABLE {name}.procrastinate_jobs IS '{mark}'".encode())
    words = refusal(engine_of(postgres), ErrorCode.TOO_NEW, prepares=True)
    assert words == f"a later {package} made the engine's tables in the schema '{name}': update {package} here"


def test_other_tables_in_place_of_the_engines_are_refused(postgres: Place) -> None:
    with postgres.raw() as connection:
        name = f"{postgres.schema}_engine"
        connection.execute(f"CREATE SCHEMA {name}; CREATE TABLE {name}.mine ()".encode())
    words = refusal(engine_of(postgres), ErrorCode.CORRUPT, prepares=True)
    assert "holds other tables than those of the engine: rename it" in words


def test_a_worker_whose_tables_are_replaced_by_later_ones_says_so(postgres: Place) -> None:
    prepare(postgres)
    engine = quick_engine(postgres)

    async def perform(order: Order) -> Progress:
        raise AssertionError

    async def replace() -> None:
        await asyncio.to_thread(until, lambda: count(postgres, "workers"), "the worker works")
        name = f"{postgres.schema}_engine"
        with postgres.raw() as connection:
            mark = Version(2, "99")
            connection.execute(f"COMMENT ON TABLE {name}.procrastinate_jobs IS '{mark}'".encode())
        await asyncio.to_thread(cut, postgres)

    async def run() -> None:
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(engine.work(perform, slots=1, stop=asyncio.Event()), replace())

    with pytest.raises(EngineError, match="update dragoman here"):
        asyncio.run(run())


SECRET = "pa55w0rd-of-the-engine"


@pytest.mark.parametrize("place", ["127.0.0.1:1", "localhost:port", "127.0.0.1:{port}"])
def test_a_password_is_shown_nowhere(postgres: Place, caplog: pytest.LogCaptureFixture, place: str) -> None:
    caplog.set_level(logging.DEBUG)
    engine = PostgresEngine(f"postgresql://me:{SECRET}@{place.format(port=postgres.server.port or 1)}/db")
    error = None
    try:
        asyncio.run(engine.prepare())
    except (EngineError, InvalidValue) as caught:
        error = caught
    assert error
    found = traceback.TracebackException.from_exception(error, capture_locals=True)
    assert SECRET not in f"{engine!r} {error.provider_message} {''.join(found.format())} {caplog.text}"


def test_an_unreachable_database_is_a_connection_error() -> None:
    words = refusal(PostgresEngine("postgresql://me@127.0.0.1:1/db"), ErrorCode.CONNECTION, prepares=True)
    assert words.startswith("PostgreSQL cannot be reached: ")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"schema": "Upper"}, "schema must be"),
        ({"heartbeat_seconds": 0}, "heartbeat_seconds must be"),
        ({"heartbeat_seconds": 2.0, "dead_seconds": 3.0}, "dead_seconds must be"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidValue, match=words):
        PostgresEngine("postgresql://localhost/db", **settings)


def test_a_missing_package_is_told_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "procrastinate", None)
    with pytest.raises(MissingExtra, match=r"pip install 'dragoman\[durable\]'"):
        asyncio.run(PostgresEngine("postgresql://localhost/db").prepare())
