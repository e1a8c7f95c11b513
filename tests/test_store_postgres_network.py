"""The PostgreSQL store and what lies between it and its files: other processes, lost lines, crashes, passwords."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from dragoman import ErrorCode, InvalidValue, StoreError, Text
from dragoman.history import HistoryEntry
from dragoman.store import PostgresStore, Snapshot, open_session
from dragoman.store.postgres_database import store_error
from dragoman.testing.stores import append_all, sample_entries
from tests.postgres_server import Place
from tests.test_store_postgres import said

psycopg = pytest.importorskip("psycopg")

ROOT = Path(__file__).parents[1]
NEVER = 1e6  # seconds
PASSWORD = "planted-5e1c not-to-be/shown"


# ---------------------------------------------------------------- followers


FOLLOW = """
import asyncio, sys
from dragoman.store import PostgresStore, Snapshot

async def run(conninfo, schema, count):
    async with PostgresStore(conninfo, schema=schema, poll_seconds=1e6) as store:
        entries = store.follow("told", 1)
        print((await anext(entries)).entry_id, flush=True)
        for _ in range(int(count)):
            print((await anext(entries)).entry_id, flush=True)

asyncio.run(run(*sys.argv[1:]))
"""


def test_an_append_wakes_a_follower_in_another_process_without_polling(postgres: Place) -> None:
    entries = sample_entries("told", 6)

    async def append(store: PostgresStore, *some: HistoryEntry) -> None:
        await store.append("told", some, some[0].serial)

    postgres.run(lambda store: store.create("told"))
    postgres.run(lambda store: append(store, *entries[:2]))
    command = [sys.executable, "-W", "error", "-c", FOLLOW, postgres.server.dsn, postgres.schema, "4"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout
        heard = [follower.stdout.readline()]  # now it waits for more, or is about to
        for entry in entries[2:]:
            postgres.run(lambda store, entry=entry: append(store, entry))  # type: ignore[misc]  # a bound default
            heard.append(follower.stdout.readline())
    assert (follower.returncode, heard) == (0, [f"told:{serial}\n" for serial in range(1, 6)])


def test_an_entry_that_somebody_adds_by_hand_wakes_a_follower_too(postgres: Place) -> None:
    (entry,) = sample_entries("told", 1)

    async def use(store: PostgresStore) -> None:
        await store.create("told")
        await store.create("copied")
        await store.append("copied", [entry], 0)
        waiting = asyncio.ensure_future(anext(aiter(store.follow("told"))))
        await until_listening(postgres)
        with postgres.raw() as connection:
            connection.execute("INSERT INTO entries SELECT 1, serial, checksum, entry FROM entries")
        assert await waiting == entry

    postgres.run(use, poll_seconds=NEVER)


async def until_listening(place: Place) -> int:
    """Return the id of the server's process that a follower listens to, once there is one."""
    query = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND state = 'idle' AND query LIKE '%{}\"'"
    while True:
        found = await asyncio.to_thread(place.scalar, query.format(place.schema))
        if found is not None:
            return int(found)


def test_a_follower_survives_the_loss_of_the_connection_that_listens(postgres: Place) -> None:
    entries = sample_entries("told", 4)

    async def use(store: PostgresStore) -> None:
        await store.create("told")
        followed = store.follow("told")
        waiting = asyncio.ensure_future(anext(aiter(followed)))
        listening = await until_listening(postgres)
        for entry in entries:
            with postgres.raw() as connection:
                connection.execute("SELECT pg_terminate_backend(%s, 5000)", (listening,))
            # Another store appends: no store in this process can tell the follower.
            async with postgres.store() as other:
                await other.append("told", [entry], entry.serial)
            assert await waiting == entry
            waiting = asyncio.ensure_future(anext(aiter(followed)))
            listening = await until_listening(postgres)
        waiting.cancel()

    postgres.run(use, poll_seconds=NEVER)


def test_a_follower_of_a_server_that_is_not_there_hears_so() -> None:
    async def run() -> None:
        async with PostgresStore("host=127.0.0.1 port=1") as store:
            with pytest.raises(StoreError) as raised:
                await anext(aiter(store.follow("a")))
            assert raised.value.code is ErrorCode.CONNECTION

    asyncio.run(run())


# ---------------------------------------------------------------- lost connections


def test_connections_that_were_lost_while_nobody_used_them_are_replaced(postgres: Place) -> None:
    entries = sample_entries("a")
    ours = f"WHERE application_name = '{postgres.schema}'"
    others = f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity {ours}".encode()

    async def use(store: PostgresStore) -> None:
        await asyncio.gather(store.create("a"), *(store.create() for _ in range(20)))
        for entry in entries:
            with postgres.raw() as connection:
                assert connection.execute(others).rowcount
            await store.append("a", [entry], entry.serial)
            with postgres.raw() as connection:
                connection.execute(others)
            assert (await store.head("a")).serial == entry.serial
        assert await store.load("a") == entries

    postgres.run(use, connections=3)


class Proxy:
    """Stands between a store and its server on the loopback interface, and cuts the line at a commit if it is told.

    Or it falls silent at a commit: the line stays open, and nothing more comes through it.
    """

    def __init__(self, place: Place) -> None:
        with place.raw() as connection:
            self._host, self._port = connection.info.host, connection.info.port
            details = {"user": connection.info.user, "dbname": connection.info.dbname}
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.conninfo = psycopg.conninfo.make_conninfo(
            place.server.dsn, **details, host="127.0.0.1", port=self.port, sslmode="disable", gssencmode="disable"
        )
        self.cut: str | None = None  # "before" or "after" the commit reaches the server
        self.silence: str | None = None  # the same
        self._silent: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        if self._host.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{self._host}/.s.PGSQL.{self._port}")
        else:
            server = socket.create_connection((self._host, self._port))
        answers = threading.Thread(target=self._carry_answers, args=(server, client), daemon=True)
        answers.start()
        with client, server, contextlib.suppress(OSError):
            while data := client.recv(1 << 20):
                is_commit = b"COMMIT\0" in data
                if self.silence and is_commit:
                    self._fall_silent(client, server, data)
                    break
                if self.cut and is_commit:
                    self._silent.add(client)
                    data, self.cut = b"" if self.cut == "before" else data, None
                    server.sendall(data)
                    break
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)
            answers.join()  # the server has done what it got, and ended
            client.shutdown(socket.SHUT_RDWR)

    def _fall_silent(self, client: socket.socket, server: socket.socket, data: bytes) -> None:
        """Pass nothing more on to the client, until that one goes."""
        is_before, self.silence = self.silence == "before", None
        self._silent.add(client)
        if not is_before:
            server.sendall(data)
        while client.recv(1 << 20):
            pass

    def _carry_answers(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 20):
                with contextlib.suppress(OSError):
                    if client not in self._silent:
                        client.sendall(data)


@pytest.fixture
def proxy(postgres: Place) -> Iterator[Proxy]:
    found = Proxy(postgres)
    yield found
    found.close()


@pytest.mark.parametrize("cut", ["before", "after"])
def test_an_append_whose_answer_was_lost_is_told_and_recognised_when_it_is_repeated(
    cut: str, proxy: Proxy, postgres: Place
) -> None:
    entries = sample_entries("a", 6)

    async def run() -> None:
        async with PostgresStore(proxy.conninfo, schema=postgres.schema) as store:
            await store.create("a")
            await store.append("a", entries[:2], 0)
            proxy.cut = cut
            with pytest.raises(StoreError, match="lost during a commit") as raised:
                await store.append("a", entries[2:4], 2)
            assert (raised.value.code, raised.value.retryable) == (ErrorCode.CONNECTION, True)
            arrived = (await store.head("a")).serial
            assert arrived == (3 if cut == "after" else 1)
            assert (await store.append("a", entries[2:4], 2)).serial == 3
            await append_all(store, "a", entries[4:])
            assert await store.load("a") == entries
            assert (await store.verify("a")).is_sound

    asyncio.run(run())


@pytest.mark.parametrize("silence", ["before", "after"])
def test_a_server_that_stays_silent_is_given_up_and_the_append_is_recognised(
    silence: str, proxy: Proxy, postgres: Place
) -> None:
    entries = sample_entries("a", 6)

    async def run() -> None:
        async with PostgresStore(proxy.conninfo, schema=postgres.schema, statement_seconds=1.0) as store:
            await store.create("a")
            await store.append("a", entries[:2], 0)
            proxy.silence = silence
            with pytest.raises(StoreError, match="lost during a commit") as raised:
                await store.append("a", entries[2:4], 2)
            assert (raised.value.code, raised.value.retryable) == (ErrorCode.CONNECTION, True)
            assert (await store.append("a", entries[2:4], 2)).serial == 3
            assert await store.load("a") == entries[:4]
        async with PostgresStore(proxy.conninfo, schema=postgres.schema, statement_seconds=1.0) as store:
            session = await open_session(store, "a")
            proxy.silence = silence
            await session.set_system_instruction("A session retries by itself.")
            assert len(await store.load("a")) == 5

    asyncio.run(run())


def sockets_to(port: int) -> Iterator[socket.socket]:
    """Yield each socket of this process that is connected to the port."""
    for path in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(OSError):
            if str(path.readlink()).startswith("socket:"):
                with socket.socket(fileno=os.dup(int(path.name))) as found:
                    if found.family == socket.AF_INET and found.getpeername()[1] == port:
                        yield found


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux limits unanswered bytes of a socket")
def test_bytes_that_no_server_confirms_end_a_connection_in_time(proxy: Proxy, postgres: Place) -> None:
    async def run() -> list[int]:
        async with PostgresStore(proxy.conninfo, schema=postgres.schema) as store:
            await store.create("a")
            return [each.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) for each in sockets_to(proxy.port)]

    milliseconds = asyncio.run(run())
    assert milliseconds
    assert all(0 < each <= 60_000 for each in milliseconds)


# ---------------------------------------------------------------- crashes and damaged pages


async def persistently(call: Callable[[], Awaitable[Any]]) -> Any:
    """Return what a call gives in the end, repeated as long as its errors say that this may help."""
    while True:
        try:
            return await call()
        except StoreError as error:
            if not error.retryable:
                raise


def crash(place: Place) -> None:
    """Kill a process of the server, as a result of which it ends all others and recovers from its log."""
    if place.server.data is None:
        pytest.skip("a server that PG_DSN names is not to be killed")
    with place.raw() as connection:
        os.kill(connection.info.backend_pid, signal.SIGKILL)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT pg_sleep(60)")  # it will not live to see the end


def test_a_server_that_crashes_loses_nothing_that_was_acknowledged(postgres: Place) -> None:
    entries = sample_entries("a", 40)

    async def use(store: PostgresStore) -> None:
        await store.create("a")
        for entry in entries:
            if entry.serial in (13, 27):
                crash(postgres)
            await persistently(lambda entry=entry: store.append("a", [entry], entry.serial))  # type: ignore[misc]
        assert await store.load("a") == entries
        assert (await store.verify("a")).is_sound

    postgres.run(use)


def test_a_damaged_page_is_told_and_the_rest_can_be_read(postgres: Place) -> None:
    entries = [said("a", serial, Text(f"<{serial}>" * 300)) for serial in range(60)]

    async def write(store: PostgresStore) -> None:
        for name in ("a", "b"):
            await store.create(name)
        await store.append("a", entries, 0)
        await store.append("b", sample_entries("b", 3), 0)

    postgres.run(write)
    path = postgres.scalar("SELECT pg_relation_filepath('entries')")
    first = int(postgres.scalar("SELECT min(serial) FROM entries WHERE session = 1 AND ctid >= '(1,0)'"))
    if postgres.server.data is None:
        pytest.skip("the files of the server that PG_DSN names cannot be changed")
    with postgres.raw() as connection:
        connection.execute("CHECKPOINT")
    with (postgres.server.data / path).open("r+b") as file:
        file.seek(8192 + 4000)
        file.write(bytes(600))
    crash(postgres)  # so that it reads the page anew

    async def look(store: PostgresStore) -> None:
        report = await persistently(lambda: store.verify("a"))
        assert (report.bad_serial, report.head.serial) == (first, first - 1)
        with pytest.raises(StoreError) as raised:
            await store.load("a")
        assert raised.value.code is ErrorCode.CORRUPT
        assert await store.load("a", until_serial=first) == tuple(entries[:first])
        page = await store.list()
        assert {info.session_id for info in page.sessions} | set(page.damaged) == {"a", "b"}

    postgres.run(look)


# ---------------------------------------------------------------- errors


def role(place: Place, name: str, *grants: str) -> str:
    """Create a role with a password and these rights, and return its address over TCP."""
    if place.server.port is None:
        pytest.skip("roles are not created on the server that PG_DSN names")
    with place.raw() as connection:
        connection.execute(f"DROP ROLE IF EXISTS {name}".encode())
        connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}'".encode())
        for grant in grants:
            connection.execute(f"GRANT {grant} TO {name}".replace("{schema}", place.schema).encode())
    return f"postgresql://{name}:{quote(PASSWORD, safe='')}@127.0.0.1:{place.server.port}/postgres"


def unpacked(error: BaseException) -> str:
    """Return everything that any reporter shows of an error."""
    return "".join(traceback.format_exception(error)) + repr(error) + str(getattr(error, "provider_message", ""))


def failure(conninfo: str, use: Callable[[PostgresStore], Awaitable[Any]], **options: Any) -> StoreError:
    async def run() -> None:
        async with PostgresStore(conninfo, **options) as store:
            assert PASSWORD not in repr(store)
            await use(store)

    with pytest.raises(StoreError) as raised:
        asyncio.run(run())
    assert PASSWORD not in unpacked(raised.value)
    assert quote(PASSWORD, safe="") not in unpacked(raised.value)
    return raised.value


def test_a_wrong_password_is_told_and_not_shown(postgres: Place) -> None:
    conninfo = role(postgres, "wrong_password")
    with postgres.raw() as connection:
        connection.execute("ALTER ROLE wrong_password PASSWORD 'another'")
    error = failure(conninfo, lambda store: store.head("a"), schema=postgres.schema)
    assert error.code is ErrorCode.AUTHENTICATION
    without = conninfo.replace(f":{quote(PASSWORD, safe='')}", "")
    assert failure(without, lambda store: store.head("a")).code is ErrorCode.AUTHENTICATION


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere.invalid"])
def test_a_server_that_is_not_there_is_told_without_the_password(address: str) -> None:
    error = failure(f"postgresql://me:{quote(PASSWORD, safe='')}@{address}/x", lambda store: store.head("a"))
    assert (error.code, error.retryable) == (ErrorCode.CONNECTION, True)


@pytest.mark.parametrize(
    "conninfo",
    [f"password={PASSWORD}", f"postgresql://me:{PASSWORD}@[::1/x", f"host=x password='{PASSWORD}", f"{PASSWORD}=1"],
)
def test_an_address_that_cannot_be_read_is_told_and_not_shown(conninfo: str) -> None:
    async def run() -> None:
        async with PostgresStore(conninfo) as store:
            await store.head("a")

    with pytest.raises(InvalidValue, match="conninfo") as raised:
        asyncio.run(run())
    shown = "".join(traceback.format_exception(raised.value))
    assert not any(part in shown for part in ("5e1c", "not-to-be"))


USES: dict[str, Callable[[PostgresStore], Awaitable[Any]]] = {
    "create": lambda store: store.create("new"),
    "append": lambda store: store.append("a", sample_entries("a", 4)[3:], 3),
}


@pytest.mark.parametrize("use", USES)
def test_a_role_that_may_only_read_reads_and_is_told_that_it_may_not_write(use: str, postgres: Place) -> None:
    entries = sample_entries("a", 3)
    postgres.run(lambda store: store.create("a"))
    postgres.run(lambda store: store.append("a", entries, 0))
    conninfo = role(postgres, "reading", "USAGE ON SCHEMA {schema}", "SELECT ON ALL TABLES IN SCHEMA {schema}")
    error = failure(conninfo, USES[use], schema=postgres.schema)
    assert (error.code, error.retryable) == (ErrorCode.PERMISSION, False)

    async def read() -> None:
        async with PostgresStore(conninfo, schema=postgres.schema) as store:
            assert await store.load("a") == entries

    asyncio.run(read())


def test_a_role_without_any_rights_is_told(postgres: Place) -> None:
    error = failure(role(postgres, "stranger"), lambda store: store.head("a"), schema=postgres.schema)
    assert error.code is ErrorCode.PERMISSION


def grants_of_the_document() -> list[str]:
    """Return what docs/sessions.md says that a role needs which only adds."""
    lines = (ROOT / "docs" / "sessions.md").read_text(encoding="utf-8").splitlines()
    found = [line.removeprefix("GRANT ").removesuffix(" TO agents;") for line in lines if line.startswith("GRANT ")]
    return [line.replace("dragoman", "{schema}") for line in found]


def test_a_role_with_the_rights_that_the_document_names_can_add_and_nothing_else(postgres: Place) -> None:
    conninfo = role(postgres, "appending", *grants_of_the_document())
    entries = sample_entries("a")

    async def run() -> None:
        async with PostgresStore(conninfo, schema=postgres.schema) as store:
            await store.create("a")
            await append_all(store, "a", entries)
            await store.fork("a", 3, new_session_id="b")
            for serial in (2, 5):
                await store.keep_snapshot("a", Snapshot(serial, b"a snapshot"))
            assert await store.load("a") == entries
            assert await anext(aiter(store.follow("a"))) == entries[0]
            with pytest.raises(StoreError) as raised:
                await store.erase("a")
            assert raised.value.code is ErrorCode.PERMISSION

    asyncio.run(run())
    for statement in ("ALTER TABLE entries DISABLE TRIGGER ALL", "UPDATE heads SET serial = 0", "DELETE FROM entries"):
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute(f"SET search_path = {postgres.schema}".encode())
            with pytest.raises(psycopg.Error):
                connection.execute(statement.encode())


def test_a_lock_that_others_keep_is_a_timeout_and_the_append_works_later(postgres: Place) -> None:
    (entry,) = sample_entries("a", 1)

    async def use(store: PostgresStore) -> None:
        await store.create("a")
        with postgres.raw() as other:
            other.execute("BEGIN")
            other.execute("SELECT 1 FROM heads FOR UPDATE")
            with pytest.raises(StoreError) as raised:
                await store.append("a", [entry], 0)
            assert (raised.value.code, raised.value.retryable) == (ErrorCode.TIMEOUT, True)
            other.execute("ROLLBACK")
        assert (await store.append("a", [entry], 0)).serial == 0

    postgres.run(use, lock_seconds=0.1)


@pytest.mark.parametrize("use", USES)
def test_a_database_that_may_not_be_written_is_told(use: str, postgres: Place) -> None:
    postgres.run(lambda store: store.create("a"))
    conninfo = postgres.conninfo(options="-cdefault_transaction_read_only=on")
    error = failure(conninfo, USES[use], schema=postgres.schema)
    assert error.code is ErrorCode.PERMISSION


def test_a_server_without_room_for_more_connections_is_told(postgres: Place) -> None:
    conninfo = role(postgres, "crowded", "USAGE ON SCHEMA {schema}", "SELECT ON ALL TABLES IN SCHEMA {schema}")
    with postgres.raw() as connection:
        connection.execute("ALTER ROLE crowded CONNECTION LIMIT 0")
    error = failure(conninfo, lambda store: store.head("a"), schema=postgres.schema)
    assert (error.code, error.retryable) == (ErrorCode.CONNECTION, True)


def test_a_table_that_somebody_took_away_is_damage(postgres: Place) -> None:
    with postgres.raw() as connection:
        connection.execute("DROP TABLE snapshots")
    error = failure(postgres.server.dsn, lambda store: store.drop_snapshots("a"), schema=postgres.schema)
    assert error.code is ErrorCode.NOT_FOUND
    postgres.run(lambda store: store.create("a"))
    error = failure(postgres.server.dsn, lambda store: store.drop_snapshots("a"), schema=postgres.schema)
    assert error.code is ErrorCode.CORRUPT


@pytest.mark.parametrize(
    ("statements", "code"),
    [
        (("EXECUTE gone",), ErrorCode.UNSUPPORTED),
        (("PREPARE taken AS SELECT 1", "PREPARE taken AS SELECT 1"), ErrorCode.UNSUPPORTED),
        (("SET search_path = nowhere", "SELECT 1 FROM heads"), ErrorCode.CORRUPT),
    ],
    ids=["a prepared statement is gone", "another has prepared it", "the search path is gone"],
)
def test_what_a_pooler_in_transaction_mode_causes_names_it(
    statements: tuple[str, ...], code: ErrorCode, postgres: Place
) -> None:
    with postgres.raw() as connection:
        for statement in statements[:-1]:
            connection.execute(statement.encode())
        with pytest.raises(psycopg.Error) as caught:
            connection.execute(statements[-1].encode())
    error = store_error(caught.value)
    assert error.code is code
    assert "pooler in transaction mode" in str(error)
