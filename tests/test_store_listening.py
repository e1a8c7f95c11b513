"""The thread of the PostgreSQL store that listens: it survives lost connections and a lack of file descriptors."""

import asyncio
import errno
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman import ErrorCode, StoreError
from dragoman.store import PostgresStore
from dragoman.store.following import Notices
from dragoman.store.postgres_listening import Listener
from dragoman.store.postgres_schema import channel_of
from dragoman.testing.stores import sample_entries
from tests.postgres_server import Place
from tests.test_store_postgres_network import until_listening

psycopg = pytest.importorskip("psycopg")

ROOT = Path(__file__).parents[1]
SECONDS = 60.0  # to wait for what must happen


def full() -> OSError:
    return OSError(errno.EMFILE, "Too many open files")


def end(place: Place, process: int) -> None:
    """End a process of the server, and wait until it is gone."""
    with place.raw() as connection:
        connection.execute("SELECT pg_terminate_backend(%s, 5000)", (process,))


def listening(place: Place, connect: Callable[[], object], use: Callable[[Listener, Notices], object]) -> None:
    """Use a listener of the place that connects in this way."""

    async def run() -> None:
        notices = Notices()
        listener = Listener(connect, channel_of(place.schema), notices)  # type: ignore[arg-type]  # connections
        try:
            await use(listener, notices)  # type: ignore[misc]  # a coroutine function
        finally:
            notices.close()
            await asyncio.to_thread(listener.close)

    asyncio.run(run())


def test_a_listener_connects_again_once_a_descriptor_is_left(postgres: Place) -> None:
    refusals = [full(), full(), full()]
    is_first = True

    def connect() -> object:
        nonlocal is_first
        if not is_first and refusals:
            raise refusals.pop()
        is_first = False
        return psycopg.connect(postgres.conninfo(), autocommit=True)

    async def use(listener: Listener, notices: Notices) -> None:
        await asyncio.to_thread(listener.listen)
        told = notices.expect("s")
        end(postgres, await until_listening(postgres))
        await asyncio.wait_for(told, SECONDS)
        assert refusals == []
        assert listener.is_listening

    listening(postgres, connect, use)


def test_a_listener_that_finds_no_descriptor_at_its_start_raises_and_can_start_later(
    postgres: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []

    def connect() -> object:
        opened.append(psycopg.connect(postgres.conninfo(), autocommit=True))
        return opened[-1]

    def refuse() -> object:
        raise full()

    async def use(listener: Listener, notices: Notices) -> None:
        with monkeypatch.context() as patched:
            patched.setattr("socket.socketpair", refuse)
            with pytest.raises(StoreError, match="Too many open files") as raised:
                listener.listen()
        assert raised.value.code is ErrorCode.CONNECTION
        assert [each.closed for each in opened] == [True]
        assert not listener.is_listening
        listener.listen()
        assert listener.is_listening
        told = notices.expect("s")
        with postgres.raw() as connection:
            connection.execute("SELECT pg_notify(%s, 's')", (channel_of(postgres.schema),))
        await asyncio.wait_for(told, SECONDS)

    listening(postgres, connect, use)


# Follows a session; uses up all descriptors, and frees them when its connection was tried again in that time.
FOLLOW = """
import asyncio, os, resource, sys
from dragoman.store import PostgresStore

async def run(conninfo, schema):
    async with PostgresStore(conninfo, schema=schema, poll_seconds=1e6) as store:
        loop, tried = asyncio.get_running_loop(), asyncio.Event()
        entries = store.follow("told")
        print((await anext(entries)).entry_id, flush=True)
        coming = asyncio.ensure_future(anext(entries))
        connect = store._listener._connect

        def connect_and_tell():
            try:
                return connect()
            except Exception:
                loop.call_soon_threadsafe(tried.set)
                raise

        store._listener._connect = connect_and_tell
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
        taken = []
        try:
            while True:
                taken.append(os.dup(0))
        except OSError:
            print("full", flush=True)
        try:
            await asyncio.wait_for(tried.wait(), 60)
        finally:
            for each in taken:
                os.close(each)
        print("free", flush=True)
        print((await asyncio.wait_for(coming, 60)).entry_id, flush=True)

asyncio.run(run(*sys.argv[1:]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="only POSIX limits descriptors")
def test_a_follower_survives_a_connection_that_was_lost_while_no_descriptor_was_left(postgres: Place) -> None:
    first, second = sample_entries("told", 2)

    async def append(store: PostgresStore) -> None:
        await store.append("told", [second], 1)

    async def create(store: PostgresStore) -> None:
        await store.create("told")
        await store.append("told", [first], 0)

    postgres.run(create)
    command = [sys.executable, "-W", "error", "-c", FOLLOW, postgres.conninfo(), postgres.schema]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as follower:
        assert follower.stdout
        heard = [follower.stdout.readline(), follower.stdout.readline()]
        end(postgres, asyncio.run(until_listening(postgres)))
        heard.append(follower.stdout.readline())
        postgres.run(append)
        heard.append(follower.stdout.readline())
    assert (follower.returncode, heard) == (0, ["told:0\n", "full\n", "free\n", "told:1\n"])
