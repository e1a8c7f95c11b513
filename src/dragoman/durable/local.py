"""An engine inside one process: orders are tasks of its event loop. For one machine, and for tests.

Nothing survives the process but the record. A worker that starts again finds what was requested by `sweep`.
"""

import asyncio
from collections.abc import Iterable
from weakref import WeakValueDictionary

from .engine import Perform
from .orders import Order

__all__ = ["LocalEngine"]


class LocalEngine:
    """Gives orders to the worker of this process."""

    def __init__(self) -> None:
        self._known: set[tuple[str, int]] = set()  # orders that wait, or are under way
        self._queue: asyncio.Queue[Order] = asyncio.Queue()
        self._timers: set[asyncio.TimerHandle] = set()

    def __repr__(self) -> str:
        return f"<LocalEngine, {len(self._known)} orders>"

    @property
    def follows_record(self) -> bool:
        """It does not: `submit` schedules."""
        return False

    async def prepare(self) -> None:
        """Do nothing."""

    async def schedule(self, order: Order, *, seconds: float = 0.0) -> None:
        """Let the worker perform the order."""
        self._known.add((order.session, order.serial))
        if seconds <= 0:
            self._queue.put_nowait(order)
            return

        def come() -> None:
            self._timers.discard(timer)
            self._queue.put_nowait(order)

        timer = asyncio.get_running_loop().call_later(seconds, come)
        self._timers.add(timer)

    async def find_unscheduled(self, orders: Iterable[Order]) -> list[Order]:
        """Return those that neither wait nor are under way."""
        return [order for order in orders if (order.session, order.serial) not in self._known]

    async def work(self, perform: Perform, *, slots: int, stop: asyncio.Event) -> None:
        """Give orders to `perform` until `stop` is set."""
        free, sessions = asyncio.Semaphore(slots), WeakValueDictionary[str, asyncio.Lock]()
        stopped = asyncio.ensure_future(stop.wait())
        tasks: set[asyncio.Task[None]] = set()

        async def carry_out(order: Order) -> None:
            async with sessions.setdefault(order.session, asyncio.Lock()), free:
                progress = await perform(order)
            self._known.discard((order.session, order.serial))
            if progress.next is not None:
                await self.schedule(progress.next, seconds=progress.seconds)

        try:
            while not stop.is_set():
                coming = asyncio.ensure_future(self._queue.get())
                await asyncio.wait((coming, stopped), return_when=asyncio.FIRST_COMPLETED)
                if not coming.done():
                    coming.cancel()
                    break
                task = asyncio.ensure_future(carry_out(coming.result()))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        finally:
            stopped.cancel()
            if tasks:
                await asyncio.wait(tasks)

    async def close(self) -> None:
        """Drop the orders that wait for their time."""
        for timer in self._timers:
            timer.cancel()
