"""What the checks of an engine share: agents whose every word is marked, and engines that note what they are given."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import msgspec

from ..agent import Agent
from ..durable import Agents, Engine, EngineError, Order, Perform, Progress, Retries, RunHandle, Worker, submit
from ..errors import ErrorCode
from ..history import HistoryEntry
from ..request import AgentConfig
from ..store import Session, SessionStore
from ..tools import tool
from .scripted import Call, ScriptedModel, ScriptedRequest, Turn

__all__ = [
    "AGENTS",
    "MARK",
    "PATIENCE",
    "QUICK",
    "AwayEngine",
    "NotingEngine",
    "OpenEngine",
    "RefusingEngine",
    "Stage",
    "make_caller",
    "make_echo",
    "make_payer",
]

MARK = "quicksilver"  # in everything that is said: it must not reach an engine
PATIENCE = 60.0  # seconds after which something that must happen has not
QUICK = Retries(attempts=3, seconds=0.01, longest_seconds=0.02)

OpenEngine: TypeAlias = Callable[[], Engine]


@tool(requires_approval=True)
def pay(amount: int, to: str) -> str:
    """Pay."""
    return f"paid {amount} to {to}"


def echo(request: ScriptedRequest) -> str:
    """Answer with what was said."""
    return f"You said: {request.prompt}"


def make_echo(session: Session) -> Agent[Any, Any]:
    """Make an agent that answers with what was said."""
    return Agent(ScriptedModel(echo, repeats=True), session=session)


def make_payer(session: Session) -> Agent[Any, Any]:
    """Make an agent that calls a tool which needs approval."""
    return make_caller(session, pay, {"amount": 5, "to": MARK})


def make_caller(
    session: Session, function: Any, arguments: dict[str, Any], config: AgentConfig | None = None
) -> Agent[Any, Any]:
    """Make an agent that calls a tool once after each prompt, then says the result."""

    def answer(request: ScriptedRequest) -> str | Turn:
        results = request.messages[-1].tool_results
        if results:
            return f"It says: {results[0].content}"
        return Turn(text=MARK, calls=(Call(function.name, arguments),))

    return Agent(ScriptedModel(answer, repeats=True), tools=[function], session=session, config=config)


def make_nothing(_session: Session) -> Agent[Any, Any]:
    """Fail."""
    raise RuntimeError(f"this agent cannot be made: {MARK}")


AGENTS = Agents({"echo": make_echo, "payer": make_payer, "broken": make_nothing})


class NotingEngine:
    """An engine that notes every value which it is given, and gives it to another one."""

    def __init__(self, engine: Engine, given: list[Order | Progress]) -> None:
        self._engine = engine
        self.given = given

    @property
    def follows_record(self) -> bool:
        """What the other one says."""
        return self._engine.follows_record

    async def prepare(self) -> None:
        """Prepare the other one."""
        await self._engine.prepare()

    async def schedule(self, order: Order, *, seconds: float = 0.0) -> None:
        """Note the order and schedule it."""
        self.given.append(order)
        await self._engine.schedule(order, seconds=seconds)

    async def find_unscheduled(self, orders: Iterable[Order]) -> list[Order]:
        """Note the orders and ask for them."""
        asked = list(orders)
        self.given += asked
        return await self._engine.find_unscheduled(asked)

    async def work(self, perform: Perform, *, slots: int, stop: asyncio.Event) -> None:
        """Let the other one work; note what it gave, and what it got."""

        async def noted(order: Order) -> Progress:
            self.given.append(order)
            progress = await perform(order)
            self.given.append(progress)
            return progress

        await self._engine.work(noted, slots=slots, stop=stop)

    async def close(self) -> None:
        """Close the other one."""
        await self._engine.close()


class AwayEngine(NotingEngine):
    """An engine that cannot be reached by those who schedule."""

    async def schedule(self, order: Order, *, seconds: float = 0.0) -> None:  # noqa: ARG002  # as the protocol has it
        """Raise EngineError."""
        raise EngineError("the engine cannot be reached")


class RefusingEngine(NotingEngine):
    """An engine that refuses the orders of one session."""

    def __init__(self, engine: Engine, given: list[Order | Progress], session: str) -> None:
        super().__init__(engine, given)
        self._session = session

    async def schedule(self, order: Order, *, seconds: float = 0.0) -> None:
        """Schedule the order; raise EngineError if it is one of that session."""
        self._require_other([order])
        await super().schedule(order, seconds=seconds)

    async def find_unscheduled(self, orders: Iterable[Order]) -> list[Order]:
        """Ask for the orders; raise EngineError if one of that session is among them."""
        asked = list(orders)
        self._require_other(asked)
        return await super().find_unscheduled(asked)

    def _require_other(self, orders: list[Order]) -> None:
        if any(order.session == self._session for order in orders):
            raise EngineError("the engine refuses it", code=ErrorCode.INVALID_REQUEST)


class Stage:
    """A store, and engines over it, for the time of one check."""

    def __init__(self, store: SessionStore, open_engine: OpenEngine) -> None:
        self.store = store
        self.given: list[Order | Progress] = []
        self._open_engine = open_engine
        self._engines: list[Engine] = []
        self.engine = self.open_engine()

    def open_engine(self) -> NotingEngine:
        """Return an engine as another process has it."""
        engine = NotingEngine(self._open_engine(), self.given)
        self._engines.append(engine)
        return engine

    def open_away_engine(self) -> AwayEngine:
        """Return an engine that cannot be reached."""
        return AwayEngine(self._open_engine(), self.given)

    def open_refusing_engine(self, session: str) -> RefusingEngine:
        """Return an engine that refuses the orders of a session."""
        engine = RefusingEngine(self._open_engine(), self.given, session)
        self._engines.append(engine)
        return engine

    async def submit(self, agent: str, session: str, prompt: str = "Hello", **options: Any) -> RunHandle:
        """Submit a run; its prompt is marked."""
        return await submit(self.store, self.engine, agent=agent, session=session, prompt=f"{MARK} {prompt}", **options)

    @asynccontextmanager
    async def working(
        self,
        agents: Agents = AGENTS,
        *,
        engine: Engine | None = None,
        retries: Retries = QUICK,
        slots: int = 8,
        sweep_seconds: float = 10 * PATIENCE,
    ) -> AsyncIterator[Worker]:
        """A worker for the time of a block, with an engine of its own if none is given; it stops in time."""
        opened = self.open_engine() if engine is None else engine
        worker = Worker(self.store, opened, agents, slots=slots, retries=retries, sweep_seconds=sweep_seconds)
        task = asyncio.ensure_future(worker.run())
        try:
            await worker.ready()
            yield worker
        finally:
            worker.stop()
            assert await task, "a worker with nothing under way did not stop in time"

    @asynccontextmanager
    async def performing(self, perform: Perform) -> AsyncIterator[None]:
        """Give orders to `perform` for the time of a block."""
        stop = asyncio.Event()
        task = asyncio.ensure_future(self.open_engine().work(perform, slots=4, stop=stop))
        try:
            yield
        finally:
            stop.set()
            await task

    async def forgotten(self, order: Order) -> None:
        """Return when the engine neither has the order nor performs it."""
        while not await self.engine.find_unscheduled([order]):  # noqa: ASYNC110  # no engine tells of it
            await asyncio.sleep(0.01)

    async def attempted(self, order: Order, unknown: int) -> Progress:
        """Return what the attempt came to that was the `unknown`th of a worker that does not know the agent."""
        while True:
            for given in tuple(self.given):
                later = given.next if isinstance(given, Progress) else None
                if later is not None and (str(later), later.unknown) == (str(order), unknown):
                    assert isinstance(given, Progress)
                    return given
            await asyncio.sleep(0.01)

    async def entries(self, session: str, kind: type[HistoryEntry] = HistoryEntry) -> list[Any]:
        """Return the entries of a session, or those of a kind."""
        return [entry for entry in await self.store.load(session) if isinstance(entry, kind)]

    async def end(self, sessions: Iterable[str]) -> None:
        """Raise AssertionError if a session is damaged, or if the engine was given a word of what was said."""
        for engine in self._engines:
            await engine.close()
        for session in sessions:
            assert (await self.store.verify(session)).is_sound
        for value in self.given:
            text = msgspec.json.encode(value).decode()
            assert MARK not in text, f"a word of the conversation was given to the engine: {text}"
