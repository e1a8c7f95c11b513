"""An engine inside one process: orders are tasks of its event loop. For one machine, and for tests.

Nothing survives the process but the record. A worker that starts again finds what was requested by `sweep`.
"""

import asyncio
from collections.abc import Iterable
from weakref import WeakValueDictionary

from .._finishing import finish
from .engine import Perform
from .orders import Order

__all__ = ["LocalEngine"]


class LocalEngine:
    """Gives orders to the worker of this process."""

    def __init__(self) -> None:
        self._known: set[tuple[str, int]] = set()  # orders that wait, or are under way
        self._queue: asyncio.Queue[Order] = asyncio.Queue()  # due now
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

        def enqueue() -> None:
            self._timers.discard(timer)
            self._queue.put_nowait(order)

        timer = asyncio.get_running_loop().call_later(seconds, enqueue)
        self._timers.add(timer)

    async def find_unscheduled(self, orders: Iterable[Order]) -> list[Order]:
        """Return those that neither wait nor are under way."""
        return [order for order in orders if (order.session, order.serial) not in self._known]

    async def work(self, perform: Perform, *, slots: int, stop: asyncio.Event) -> None:
        """Give orders to `perform` until `stop` is set. Cancelling `work` cancels what is under way."""
        free, sessions = asyncio.Semaphore(slots), WeakValueDictionary[str, asyncio.Lock]()
        tasks: set[asyncio.Task[None]] = set()

        async def carry_out(order: Order) -> None:
            try:
                async with sessions.setdefault(order.session, asyncio.Lock()), free:
                    progress = None if stop.is_set() else await perform(order)
            except BaseException:  # a sweep finds it
                self._known.discard((order.session, order.serial))
                raise
            if progress is None:
                self._queue.put_nowait(order)
                return
            self._known.discard((order.session, order.serial))
            if progress.next is not None:
                await self.schedule(progress.next, seconds=progress.seconds)

        async def take_orders() -> None:
            while True:
                task = asyncio.ensure_future(carry_out(await self._queue.get()))
                tasks.add(task)
                task.add_done_callback(tasks.discard)

        def cancel() -> None:
            for task in tasks:
                task.cancel()

        taking, stopped = asyncio.ensure_future(take_orders()), asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait((taking, stopped), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            cancel()
            raise
        finally:
            taking.cancel()
            stopped.cancel()
            await finish(asyncio.wait((taking, *tasks)), cancel)

    async def close(self) -> None:
        """Drop the orders that wait for their time."""
        for timer in self._timers:
            timer.cancel()
