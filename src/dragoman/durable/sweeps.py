"""Finds requested runs that are due and that no engine knows, and schedules them."""

import logging

from ..errors import DragomanError
from ..store import Head, SessionStore, open_session
from .engine import REFUSALS, Engine, EngineError
from .orders import Order
from .performer import PASSING
from .requested import ENDED, is_due, status_of

__all__ = ["Sweeper", "sweep"]

LOGGER = logging.getLogger("dragoman.durable")


async def sweep(store: SessionStore, engine: Engine) -> int:
    """Schedule the requested runs that are due and that the engine does not know; return how many there were.

    A worker does this when it starts and again and again. It finds what was recorded while the engine was away. An
    order that the engine refuses is logged, and the others are scheduled.
    """
    return await Sweeper(store, engine).sweep()


class Sweeper:
    """Sweeps again and again. It does not read a session again that waits for a person, until an entry is added."""

    def __init__(self, store: SessionStore, engine: Engine) -> None:
        self._store = store
        self._engine = engine
        self._waiting: dict[Order, Head] = {}  # orders that were not due, and the heads of their sessions at that time

    async def sweep(self) -> int:
        """Do what `sweep` does."""
        count, page, before = 0, None, self._waiting
        self._waiting = {}
        while True:
            found = await self._store.list_requests(open_only=True, page=page)
            orders = [Order(each.session_id, each.agent, each.serial) for each in found.requests]
            for order in await _find_unscheduled(self._engine, orders):
                if await self._is_due(order, before.get(order)) and await _is_taken(self._engine, order):
                    count += 1
            page = found.next_page
            if page is None:
                return count

    async def _is_due(self, order: Order, head_before: Head | None) -> bool:
        """Whether the order's run waits for a worker; False if its session is damaged or was erased: others go on."""
        try:
            head = await self._store.head(order.session)
            if head != head_before:
                session = await open_session(self._store, order.session)
                if is_due(session.state.derived) and status_of(session, order) not in ENDED:
                    return True
            self._waiting[order] = head
        except DragomanError as error:
            if error.code in PASSING:
                raise
            LOGGER.warning("order %s is left out: %s", order, error)
        return False


async def _find_unscheduled(engine: Engine, orders: list[Order]) -> list[Order]:
    """Return the orders that the engine does not know. Leave out those that it refuses to look for."""
    try:
        return await engine.find_unscheduled(orders)
    except EngineError as error:
        if error.code not in REFUSALS:
            raise
        if len(orders) < 2:
            _log_refused(orders, error)
            return []
    half = len(orders) // 2
    return [*await _find_unscheduled(engine, orders[:half]), *await _find_unscheduled(engine, orders[half:])]


async def _is_taken(engine: Engine, order: Order) -> bool:
    """Schedule the order; return whether the engine takes it."""
    try:
        await engine.schedule(order)
    except EngineError as error:
        if error.code not in REFUSALS:
            raise
        _log_refused([order], error)
        return False
    return True


def _log_refused(orders: list[Order], error: EngineError) -> None:
    for order in orders:
        LOGGER.warning("order %s is left out: %s", order, error)
