"""The Temporal engine without a server: what it refuses, what its errors say, and old histories that it can replay."""

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from dragoman import ErrorCode
from dragoman.durable.engine import Engine, EngineError
from dragoman.durable.orders import Order, Progress
from dragoman.durable.temporal import TemporalEngine
from dragoman.durable.temporal_worker import CallersLoop, LoopThread, make_activities
from dragoman.durable.temporal_workflow import _as_seconds, define_workflow
from dragoman.errors import InvalidValue, MissingExtra, StoreError
from tests.temporal_histories import FOLDER

KEY = "key-of-nobody-0123456789"
HISTORIES = sorted(FOLDER.glob("*.json"))


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port of this machine where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def test_it_is_an_engine_that_does_not_follow_the_record() -> None:
    pytest.importorskip("temporalio")
    engine: Engine = TemporalEngine("127.0.0.1:7233")
    assert not engine.follows_record


def test_without_temporalio_it_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "temporalio", None)
    with pytest.raises(MissingExtra, match=r"dragoman\[temporal\]"):
        TemporalEngine("127.0.0.1:7233")


@pytest.mark.parametrize("address", ["https://temporal.example:7233", "temporal.example"])
def test_an_address_is_a_host_and_a_port(address: str) -> None:
    pytest.importorskip("temporalio")
    with pytest.raises(InvalidValue, match="address must be host:port"):
        TemporalEngine(address)


def test_a_heartbeat_comes_in_less_than_a_third_of_dead_seconds() -> None:
    pytest.importorskip("temporalio")
    with pytest.raises(InvalidValue, match="heartbeat_seconds"):
        TemporalEngine("127.0.0.1:7233", dead_seconds=3.0, heartbeat_seconds=1.0)
    assert TemporalEngine("127.0.0.1:7233", dead_seconds=3.1, heartbeat_seconds=1.0).address == "127.0.0.1:7233"


@pytest.mark.parametrize("does", ["prepare", "schedule", "find_unscheduled", "work"])
def test_a_server_that_does_not_answer_is_an_error_with_advice(closed_port: int, does: str) -> None:
    pytest.importorskip("temporalio")
    engine, order = TemporalEngine(f"127.0.0.1:{closed_port}", api_key=KEY), Order("s", "a", 1)

    async def perform(order: Order) -> Progress:
        raise AssertionError(order)

    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "prepare": engine.prepare,
        "schedule": lambda: engine.schedule(order),
        "find_unscheduled": lambda: engine.find_unscheduled([order]),
        "work": lambda: engine.work(perform, slots=1, stop=asyncio.Event()),
    }

    async def call() -> None:
        await calls[does]()

    with pytest.raises(EngineError, match="no server answers there: start it, or give its address") as raised:
        asyncio.run(call())
    assert raised.value.code is ErrorCode.CONNECTION
    assert raised.value.retryable
    assert raised.value.__context__ is None  # the frames of temporalio's own error hold the key
    assert KEY not in f"{raised.value!r} {raised.value} {raised.value.provider_message} {engine!r}"


def test_a_port_that_is_none_is_an_error_of_the_engine() -> None:
    pytest.importorskip("temporalio")
    with pytest.raises(EngineError) as raised:
        asyncio.run(TemporalEngine("127.0.0.1:port").prepare())
    assert raised.value.code is ErrorCode.INVALID_REQUEST


def test_a_caller_that_is_cancelled_waits_until_perform_has_ended_in_its_own_loop() -> None:
    async def facts() -> list[str]:
        began, cleans, said = asyncio.Event(), asyncio.Event(), []

        async def perform(order: Order) -> Progress:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                said.append("cancelled")
                await cleans.wait()
                said.append("cleaned up")
            raise AssertionError

        async def cancel_soon() -> None:
            task = asyncio.create_task(here.perform(Order("s", "a", 1)))
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(began.wait(), loop))
            task.cancel()
            loop.call_soon_threadsafe(cleans.set)
            await asyncio.wait((task,))
            said.append("returned" if task.cancelled() else "not cancelled")

        here, loop, thread = CallersLoop(perform), asyncio.get_running_loop(), LoopThread("test")
        await thread.start(cancel_soon())
        thread.close()
        return said

    assert asyncio.run(facts()) == ["cancelled", "cleaned up", "returned"]


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(90_000, 90_000.0), (1e300, 0.0), (-1, 0.0), (float("nan"), 0.0), ("5", 0.0), (None, 0.0), (True, 0.0)],
)
def test_a_long_pause_stays_long_and_what_is_no_number_is_no_pause(given: object, seconds: float) -> None:
    assert _as_seconds(given) == seconds


def test_two_orders_of_two_prefixes_never_have_one_workflow() -> None:
    pytest.importorskip("temporalio")
    names = [("shop", "eu:1"), ("shop:eu", "1"), ("shop%3Aeu", "1"), ("shop", "eu%3A1")]
    ids = {TemporalEngine("127.0.0.1:7233", prefix=prefix)._workflow_id(Order(name, "a", 0)) for prefix, name in names}
    assert len(ids) == len(names)


@pytest.mark.parametrize(("code", "is_final"), [(ErrorCode.CONNECTION, False), (ErrorCode.CORRUPT, True)])
def test_an_abort_is_tried_again_where_the_store_is_away(code: ErrorCode, is_final: bool) -> None:
    pytest.importorskip("temporalio")
    from temporalio.exceptions import ApplicationError
    from temporalio.testing import ActivityEnvironment

    async def perform(order: Order) -> Progress:
        raise AssertionError(order)

    async def abort(order: Order) -> None:
        raise StoreError(f"the database is away, {order}", code=code)

    _, abort_order = make_activities(perform, abort, 0.01)

    async def run() -> None:
        await ActivityEnvironment().run(abort_order, {"session": "s", "agent": "a", "serial": 1})

    with pytest.raises(ApplicationError) as raised:
        asyncio.run(run())
    assert (raised.value.non_retryable, raised.value.next_retry_delay) == (is_final, timedelta(seconds=1))
    assert "away" not in str(raised.value)


def test_there_are_histories_to_replay() -> None:
    assert [path.stem for path in HISTORIES] == ["cancelled", "woken"]


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_a_history_of_an_older_version_can_be_replayed(path: Path) -> None:
    pytest.importorskip("temporalio")
    from temporalio.client import WorkflowHistory
    from temporalio.worker import Replayer

    history = WorkflowHistory.from_json("an order", path.read_text(encoding="utf-8"))
    asyncio.run(Replayer(workflows=[define_workflow()]).replay_workflow(history))
