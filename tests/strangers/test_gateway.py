"""A gateway whose clients vanish, that is killed, and that is asked often: `gateway` has the programs, this runs them
small."""

import asyncio
import random
from pathlib import Path

import pytest

from tests.strangers.gateway import hostile, kill, many, vanish

SEED = random.randrange(1 << 30)


@pytest.mark.slow
def test_clients_that_vanish_leave_nothing_open(tmp_path: Path) -> None:
    found = asyncio.run(vanish(40, SEED, tmp_path))
    assert found["upstreams"] > 0


@pytest.mark.slow
def test_a_gateway_that_is_killed_has_recorded_what_it_acknowledged(tmp_path: Path) -> None:
    found = asyncio.run(kill(3, SEED, tmp_path))
    assert found["answers read"] >= found["conversations"]


@pytest.mark.slow
def test_a_hostile_client_costs_little_and_keeps_no_other_waiting(tmp_path: Path) -> None:
    found = asyncio.run(hostile(96, 300, tmp_path))
    assert found["answers to another client"] >= 20


@pytest.mark.slow
def test_memory_is_flat_over_many_requests(tmp_path: Path) -> None:
    found = asyncio.run(many(2_000, tmp_path))
    assert found["requests"] == 2_000
