"""Fixtures that several modules of tests share: a PostgreSQL server, a place in it for each test, recorders, stores."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.durable_cases import Use, runner
from tests.postgres_server import Place, Server, missing, running_server
from tests.web_recording import Run, recorder_runner

# The machines that run the tests are noisy: how long an example takes says nothing about it.
settings.register_profile("dragoman", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("dragoman")

_numbers = count(1)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """A server for all tests that want one."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    with running_server() as server:
        yield server


@pytest.fixture
def empty_postgres(postgres_server: Server) -> Iterator[Place]:
    """A place for a schema of the test's own, which is not there yet."""
    place = Place(postgres_server, f"test_{next(_numbers)}")
    place.drop()
    yield place
    place.drop()


@pytest.fixture
def postgres(empty_postgres: Place) -> Place:
    """A schema of the test's own, ready for use."""
    empty_postgres.migrate()
    return empty_postgres


@pytest.fixture
def run_recorder(request: pytest.FixtureRequest) -> Run:
    """What runs a test of the gateway's recorder over a store, and checks what is left in it."""
    return recorder_runner(request)


@pytest.fixture(params=["memory", "sqlite"])
def use(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Use], None]:
    """Run a test of durable runs with a store of each kind and an engine."""
    return runner(request.param, tmp_path)
