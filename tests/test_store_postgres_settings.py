"""Settings of a server, a database or a role that a store must stand, or refuse; and what an error leaves behind."""

import asyncio

import pytest

from dragoman import ErrorCode, StoreError, start_session
from dragoman.store import PostgresStore
from tests.postgres_server import Place

psycopg = pytest.importorskip("psycopg")


@pytest.mark.parametrize(
    "setting",
    [
        "standard_conforming_strings=off",
        "bytea_output=escape",
        "default_transaction_isolation=serializable",
        "search_path=pg_catalog",
        "TimeZone=Asia/Kathmandu",
        "DateStyle=German",
    ],
)
def test_what_is_appended_is_read_again_whatever_a_role_has_set(postgres: Place, setting: str) -> None:
    async def append(store: PostgresStore) -> None:
        session = await start_session(store, "s", system_instruction="Be brief.")
        for _ in range(8):  # psycopg prepares what it sends often
            await session.append_model_input("Where is O'Hare? \\ ' é")
        assert (await store.verify("s")).is_sound
        assert await store.load("s") == session.entries

    async def run() -> None:
        async with PostgresStore(postgres.conninfo(options=f"-c {setting}"), schema=postgres.schema) as store:
            await append(store)

    asyncio.run(run())
    assert postgres.run(lambda store: store.verify("s")).is_sound


def test_a_database_that_cannot_hold_every_text_is_refused_before_anything_is_made(empty_postgres: Place) -> None:
    name = empty_postgres.schema
    with empty_postgres.raw() as connection:
        locale = "ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        connection.execute(f"CREATE DATABASE {name} {locale}".encode())
    try:

        async def migrate() -> None:
            async with PostgresStore(empty_postgres.conninfo(dbname=name)) as store:
                await store.migrate()

        with pytest.raises(StoreError, match="encoding LATIN1") as caught:
            asyncio.run(migrate())
        assert caught.value.code is ErrorCode.UNSUPPORTED
        with psycopg.connect(empty_postgres.conninfo(dbname=name)) as connection:
            assert connection.execute("SELECT to_regnamespace('dragoman')").fetchone() == (None,)
    finally:
        with empty_postgres.raw() as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.mark.parametrize("before", range(7))
def test_appends_work_again_after_errors_of_the_server(postgres: Place, before: int) -> None:
    """psycopg notes statements as prepared that the server skipped after a failed one."""
    table = f"{postgres.schema}.entries"

    async def run(store: PostgresStore) -> None:
        session = await start_session(store, "s")
        for _ in range(before):
            await session.append_model_input("Before")
        with psycopg.connect(postgres.conninfo()) as connection:
            connection.execute(f"LOCK TABLE {table} IN SHARE MODE".encode())
            for _ in range(3):
                with pytest.raises(StoreError) as caught:
                    await session.append_model_input("Locked out")
                assert caught.value.code is ErrorCode.TIMEOUT
        for _ in range(8):
            await session.append_model_input("After")
        assert (await store.verify("s")).is_sound

    postgres.run(run, connections=1, lock_seconds=0.02)
