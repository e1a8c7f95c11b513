"""A worker: performs the orders of an engine until it is told to stop, and sweeps for those that no engine knows."""

import asyncio
import logging

from .._finishing import finish
from ..errors import DragomanError, InvalidValue
from ..store import SessionStore
from ..store.refusals import require_seconds
from .agents import Agents
from .engine import Engine
from .performer import Performer, Retries
from .sweeps import Sweeper

__all__ = ["Worker"]

LOGGER = logging.getLogger("dragoman.durable")


class Worker:
    """Performs orders, `slots` at a time. Every `sweep_seconds` it looks for requests that the engine does not have.

    After `stop`, runs have `stop_seconds` to reach their next entry.
    """

    def __init__(
        self,
        store: SessionStore,
        engine: Engine,
        agents: Agents,
        *,
        slots: int = 8,
        retries: Retries | None = None,
        sweep_seconds: float = 60.0,
        stop_seconds: float = 20.0,
    ) -> None:
        if type(slots) is not int or slots < 1:
            raise InvalidValue.of("slots", slots, "a whole number from 1 up")
        if not isinstance(retries, Retries | None):
            raise InvalidValue.of("retries", retries, "a Retries")
        require_seconds(sweep_seconds, "sweep_seconds", 0.001)
        require_seconds(stop_seconds, "stop_seconds", 0.0)
        self._engine = engine
        self._performer = Performer(store, agents, retries=retries)
        self._sweeper = Sweeper(store, engine)
        self._slots = slots
        self._sweep_seconds = sweep_seconds
        self._stop_seconds = stop_seconds
        self._stop = asyncio.Event()
        self._is_ready = self._is_cancelled = False
        self._has_begun = asyncio.Event()  # or it has failed to

    @property
    def count(self) -> int:
        """How many runs are under way."""
        return self._performer.count

    @property
    def is_ready(self) -> bool:
        """Whether it takes orders."""
        return self._is_ready

    async def ready(self) -> None:
        """Return when it takes orders, or when `run` has ended before that."""
        await self._has_begun.wait()

    def stop(self) -> None:
        """Take no more orders, and let the runs under way stop at their next entry."""
        self._stop.set()
        self._performer.stop()

    async def run(self) -> bool:
        """Work until `stop`; return whether every run reached its next entry in time.

        If it returns False, runs are still under way, their leases are given back, and the process must end now.
        Cancelling it does the same as `stop`, and raises after that: runs that take longer keep their leases until they
        reach their next entry. Raises EngineError or StoreError if the engine or the store cannot be used at the start.
        """
        try:
            await self._engine.prepare()
            await self._sweeper.sweep()
            return await finish(self._work(), on_cancelled=self._cancel)
        finally:
            self._is_ready = False
            self._has_begun.set()

    def _cancel(self) -> None:
        self._is_cancelled = True
        self.stop()

    async def _work(self) -> bool:
        sweeping = asyncio.ensure_future(self._sweep_again())
        working = asyncio.ensure_future(self._engine.work(self._performer.perform, slots=self._slots, stop=self._stop))
        stopping = asyncio.ensure_future(self._stop.wait())
        self._is_ready = True
        self._has_begun.set()
        try:
            await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
            self._is_ready = False
            done, _ = await asyncio.wait((working,), timeout=self._stop_seconds if self._stop.is_set() else None)
            if done:
                await working
                return True
            if not self._is_cancelled:  # else the process goes on, and so do their tools
                await self._performer.give_back()
            return False
        finally:
            stopping.cancel()
            sweeping.cancel()

    async def _sweep_again(self) -> None:
        while True:
            await asyncio.sleep(self._sweep_seconds)
            try:
                await self._sweeper.sweep()
            except DragomanError as error:  # the engine or the store is away: the next sweep finds the same
                LOGGER.warning("sweep: %s", error)
