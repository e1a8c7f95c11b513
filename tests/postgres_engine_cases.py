"""What the tests of the PostgreSQL engine share: engines of a place, and work that ends when it is enough."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from dragoman.durable.orders import Order, Progress
from dragoman.durable.postgres import PostgresEngine
from tests.durable_programs import PATIENCE
from tests.postgres_server import Place

DONE = Progress("completed", 0)


def engine_of(place: Place, **settings: Any) -> PostgresEngine:
    return PostgresEngine(place.conninfo(), schema=place.schema, **settings)


def quick_engine(place: Place) -> PostgresEngine:
    return engine_of(place, heartbeat_seconds=0.05, dead_seconds=0.4)


def count(place: Place, table: str, where: str = "true") -> int:
    return int(place.scalar(f"SELECT count(*) FROM {place.schema}_engine.procrastinate_{table} WHERE {where}"))


def work(
    engine: PostgresEngine,
    perform: Callable[[Order], Awaitable[Progress]],
    *,
    slots: int = 4,
    is_enough: Callable[[], bool],
) -> None:
    """Work until that is so."""

    async def run() -> None:
        stop = asyncio.Event()

        async def perform_and_look(order: Order) -> Progress:
            progress = await perform(order)
            if is_enough():
                stop.set()
            return progress

        async with asyncio.timeout(PATIENCE):
            await engine.work(perform_and_look, slots=slots, stop=stop)
        await engine.close()

    asyncio.run(run())


def performed(engine: PostgresEngine, number: int, *, slots: int = 4) -> list[Order]:
    """Work until so many orders were performed, and return them."""
    orders: list[Order] = []

    async def perform(order: Order) -> Progress:
        orders.append(order)
        return DONE

    work(engine, perform, slots=slots, is_enough=lambda: len(orders) >= number)
    return orders
