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
    """The engine cannot be reached, or refuses; what is recorded stays recorded, and is scheduled later.

    An engine that refuses one order alone says so with a code in `REFUSALS`: a sweep then goes on with others.
    """

    default_code = ErrorCode.CONNECTION


class Engine(Protocol):
    """Decides which worker performs an order, and when to try again. What was done is in the record alone.

    It delivers each order at least once, also if the worker that had it died or was stopped. Nothing of a conversation
    passes through it. All methods raise EngineError alone, if the engine cannot be reached or refuses.
    """

    @property
    def follows_record(self) -> bool:
        """Whether the engine itself schedules what is recorded, in the transaction that records it."""

    async def prepare(self) -> None:
        """Make what the engine needs, such as tables, unless it is there; several processes may do so at once."""

    async def schedule(self, order: Order, *, seconds: float = 0.0) -> None:
        """Let a worker perform the order, not before `seconds` from now. It may be scheduled already."""

    async def find_unscheduled(self, orders: Iterable[Order]) -> list[Order]:
        """Return those of the orders that neither wait in the engine nor are under way; `failures` do not matter."""

    async def work(self, perform: Perform, *, slots: int, stop: asyncio.Event) -> None:
        """Give orders to `perform`, at most `slots` at a time, until `stop` is set; then return when all have returned.

        `perform` raises nothing but CancelledError. Where it returns a `next` order, the engine schedules that. The
        engine gives an order to another worker if `perform` did not return: its process died or stands still.
        """

    async def close(self) -> None:
        """Free all resources; closing twice is fine."""
