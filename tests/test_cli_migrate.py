"""`dragoman sessions migrate`: what it makes, what it prints, and what it does not show."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.store.postgres_schema import MIGRATIONS
from tests.postgres_server import Place

DONE = f"has number {len(MIGRATIONS)}\n"
PASSWORD = "planted-0b7d-not-to-be-shown"


def run(*arguments: str, **environment: str) -> tuple[int, str, str]:
    """Return how a command ended, and what it printed."""
    command = [sys.executable, "-W", "error", "-m", "dragoman", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    return done.returncode, done.stdout, done.stderr


def test_sessions_migrate_creates_the_tables_and_may_be_repeated(empty_postgres: Place) -> None:
    for _ in range(2):
        ended = run("sessions", "migrate", empty_postgres.conninfo(), "--schema", empty_postgres.schema)
        assert ended == (0, f"schema {empty_postgres.schema} {DONE}", "")
    assert empty_postgres.run(lambda store: store.create("a")).session_id == "a"


@pytest.mark.parametrize(("engine", "makes"), [("postgres", True), ("temporal", False), ("local", False)])
def test_only_the_engine_that_needs_tables_gets_them(empty_postgres: Place, engine: str, makes: bool) -> None:
    place = "--schema", empty_postgres.schema, "--engine", engine
    assert run("sessions", "migrate", empty_postgres.conninfo(), *place)[0] == 0
    tables = f"SELECT count(*) > 0 FROM pg_tables WHERE schemaname = '{empty_postgres.schema}_engine'"
    assert empty_postgres.scalar(tables) is makes


def test_the_address_may_come_from_the_environment(empty_postgres: Place) -> None:
    address = empty_postgres.conninfo()
    ended = run("sessions", "migrate", "--schema", empty_postgres.schema, DRAGOMAN_POSTGRES=address)
    assert ended == (0, f"schema {empty_postgres.schema} {DONE}", "")


def test_a_newer_schema_is_one_line_on_standard_error(postgres: Place) -> None:
    with postgres.raw() as connection:
        connection.execute("INSERT INTO migrations VALUES (4711)")
    status, printed, said = run("sessions", "migrate", postgres.conninfo(), "--schema", postgres.schema)
    assert (status, printed) == (1, "")
    assert "4711" in said
    assert said.startswith("dragoman: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "conninfo",
    [f"postgresql://me:{PASSWORD}@127.0.0.1:1/x", f"password={PASSWORD} {PASSWORD}", f"postgresql://{PASSWORD}:@["],
)
def test_a_failure_is_one_line_without_the_password(conninfo: str) -> None:
    status, printed, said = run("sessions", "migrate", DRAGOMAN_POSTGRES=conninfo)
    assert (status, printed, said.count("\n")) == (1, "", 1)
    assert PASSWORD not in said


@pytest.mark.parametrize("schema", ["no-such-name", 'a"; DROP SCHEMA b'])
def test_a_name_that_no_schema_can_have_is_one_line(schema: str) -> None:
    status, _, said = run("sessions", "migrate", "host=127.0.0.1", "--schema", schema)
    assert (status, said.count("\n")) == (1, 1)
    assert "schema must be" in said


def test_without_an_address_the_error_says_where_to_put_one() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "DRAGOMAN_POSTGRES"}
    command = [sys.executable, "-m", "dragoman", "sessions", "migrate"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "DRAGOMAN_POSTGRES" in done.stderr


def test_without_an_address_the_store_of_the_settings_is_taken(empty_postgres: Place) -> None:
    command = [sys.executable, "-m", "dragoman", "sessions", "migrate"]
    environment = {name: value for name, value in os.environ.items() if name != "DRAGOMAN_POSTGRES"}
    environment["DRAGOMAN_STORE"] = empty_postgres.address
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"schema {empty_postgres.schema} {DONE}"


def test_the_address_of_a_store_may_name_its_schema(empty_postgres: Place) -> None:
    status, printed, said = run("sessions", "migrate", empty_postgres.address)
    assert (status, said) == (0, "")
    assert printed == f"schema {empty_postgres.schema} {DONE}"


def test_the_first_submit_makes_all_tables_though_several_processes_come_at_once(empty_postgres: Place) -> None:
    command = [sys.executable, "-m", "dragoman", "runs", "submit", "--store", empty_postgres.address, "--agent", "a"]
    started = [
        subprocess.Popen([*command, "--session", f"s{number}", "Hello"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for number in range(3)
    ]
    said = [process.communicate() for process in started]
    assert [(process.returncode, errors) for process, (_, errors) in zip(started, said, strict=True)] == [(0, b"")] * 3
    jobs = empty_postgres.scalar(f"SELECT count(*) FROM {empty_postgres.schema}_engine.procrastinate_jobs")
    assert jobs == 3


@pytest.mark.parametrize("task", [("runs", "list"), ("sessions", "list")])
def test_a_connection_string_is_no_file_of_that_name(task: tuple[str, ...], tmp_path: Path) -> None:
    environment = {**os.environ, "DRAGOMAN_STORE": f"host=127.0.0.1 password={PASSWORD} dbname=x"}
    command = [sys.executable, "-m", "dragoman", *task]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "postgresql://" in done.stderr
    assert PASSWORD not in done.stderr
    assert not list(tmp_path.iterdir())
