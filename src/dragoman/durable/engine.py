"""What a workflow engine or a queue must do for durable runs. Knows no engine."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeAlias

from ..errors import DragomanError, ErrorCode
from .orders import Order, Progress

__all__ = ["REFUSALS", "Engine", "EngineError", "Perform"]

# Codes by which an engine may refuse one order, and take others.
REFUSALS = frozenset({ErrorCode.INVALID_REQUEST, ErrorCode.SERVER_ERROR, ErrorCode.INTERNAL})

Perform: TypeAlias = Callable[[Order], Awaitable[Progress]]


class EngineError(DragomanError):
    """The engine cannot be reached, or refuses an order. The record keeps the request, and a later sweep schedules it.

    A code in `REFUSALS` says that the engine refuses this order alone: a sweep then goes on with the others.
    """

    default_code = ErrorCode.CONNECTION


class Engine(Protocol):
    """Decides which worker performs an order, and when it is tried again. What was done is in the record alone.

    The engine delivers each order at least once, also if the worker that had it died or was stopped. It never sees the
    conversation. Its methods raise EngineError alone: the engine cannot be reached, or refuses.
    """

    @property
    def follows_record(self) -> bool:
        """Whether the engine itself schedules a request, in the transaction that records it."""

    async def prepare(self) -> None:
        """Make what the engine needs, such as tables, unless it is there; several processes may do so at once."""

    async def schedule(self, order: Order, *, seconds: float = 0.0) -> None:
        """Let a worker perform the order, not before `seconds` from now. It may be scheduled already."""

    async def find_unscheduled(self, orders: Iterable[Order]) -> list[Order]:
        """Return the orders that neither wait in the engine nor are under way; `failures` do not matter."""

    async def work(self, perform: Perform, *, slots: int, stop: asyncio.Event) -> None:
        """Give orders to `perform`, at most `slots` at a time, until `stop` is set; then return when all have returned.

        `perform` raises nothing but CancelledError. If it returns a `next` order, the engine schedules that. If its
        process dies or is suspended, the engine gives the order to another worker.
        """

    async def close(self) -> None:
        """Free all resources; closing twice is fine."""
