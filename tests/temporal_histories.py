"""Histories of order workflows as a Temporal server recorded them, which every later version must be able to replay.

python -m tests.temporal_histories      records them again: only for a new workflow name
"""

import asyncio
import tempfile
from pathlib import Path

from dragoman.durable.orders import Order, Progress
from dragoman.durable.temporal import TemporalEngine
from tests.temporal_server import TemporalServer

FOLDER = Path(__file__).parent / "samples" / "temporal"
ORDER = Order("a session", "support", 3)
HOURS = 36_000.0


async def record(server: TemporalServer) -> None:
    """Write what came of one order that went on, slept and was woken, and of one that was cancelled in an attempt."""
    await _record(server, "woken", cancels=False)
    await _record(server, "cancelled", cancels=True)


async def _record(server: TemporalServer, name: str, *, cancels: bool) -> None:
    from temporalio.api.enums.v1 import EventType
    from temporalio.client import Client

    waits, goes_on, stop = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def perform(order: Order) -> Progress:
        if order.failures == 2:
            waits.set()
            await goes_on.wait()
        if goes_on.is_set():
            return Progress("completed", 9)
        next_order = Order(order.session, order.agent, order.serial, failures=order.failures + 1, head=5)
        return Progress("running", 5, next_order, HOURS if order.failures else 0.0)

    async def abort(order: Order) -> None:
        goes_on.set()

    async def sleeps() -> bool:
        events = (await handle.fetch_history()).events
        return any(event.event_type == EventType.EVENT_TYPE_TIMER_STARTED for event in events)

    engine = TemporalEngine(
        server.address, task_queue=name, prefix=name, identity="1@worker", heartbeat_seconds=0.5, abort=abort
    )
    client = await Client.connect(server.address)
    handle = client.get_workflow_handle(f"{name}:{ORDER}")
    await engine.prepare()
    await engine.schedule(ORDER)
    working = asyncio.create_task(engine.work(perform, slots=1, stop=stop))
    while not await sleeps():  # noqa: ASYNC110  # the server decides
        await asyncio.sleep(0.1)
    await engine.schedule(ORDER)
    await waits.wait()
    if cancels:
        await handle.cancel()
    else:
        await engine.schedule(ORDER)
        goes_on.set()
    while not await engine.find_unscheduled([ORDER]):  # noqa: ASYNC110  # the server decides
        await asyncio.sleep(0.1)
    stop.set()
    await working
    (FOLDER / f"{name}.json").write_text((await handle.fetch_history()).to_json(), encoding="utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        found = TemporalServer(Path(folder), has_files=False)
        found.start()
        try:
            asyncio.run(record(found))
        finally:
            found.stop()
