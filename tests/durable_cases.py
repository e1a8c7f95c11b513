"""What tests of durable runs share: agents, a worker for the time of a block, a store of each kind."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dragoman import Agent, MemoryStore, Session, SQLiteStore, tool
from dragoman.durable import (
    Agents,
    LocalEngine,
    Retries,
    Worker,
)
from dragoman.store import SessionStore
from dragoman.testing import Call, ScriptedModel, Turn

QUICK = Retries(attempts=3, seconds=0.001, longest_seconds=0.002)
Use = Callable[[SessionStore, LocalEngine], Awaitable[None]]


@tool(requires_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def make_echo(session: Session) -> Agent[Any, Any]:
    said = [message.text for message in session.messages if message.role == "user"]
    requests = session.state.derived.requests
    waiting = [part.text for request in requests[:1] for part in request.parts if hasattr(part, "text")]
    return Agent(ScriptedModel(f"You said: {[*said, *waiting][-1]}"), session=session)


def make_payer(session: Session) -> Agent[Any, Any]:
    has_called = any(message.tool_calls for message in session.messages)
    turns = ["Done."] if has_called else [Turn(calls=(Call("pay", {"amount": 5}),)), "Done."]
    return Agent(ScriptedModel(*turns, "More."), tools=[pay], session=session)


async def make_late(session: Session) -> Agent[Any, Any]:
    return Agent(ScriptedModel("Late."), session=session)


def make_nothing(_session: Session) -> Agent[Any, Any]:
    raise RuntimeError("this agent cannot be made")


AGENTS = Agents({"echo": make_echo, "payer": make_payer, "late": make_late, "broken": make_nothing})


@asynccontextmanager
async def working(store: SessionStore, engine: LocalEngine, agents: Agents = AGENTS) -> AsyncIterator[Worker]:
    """A worker for the time of a block; it stops in time."""
    worker = Worker(store, engine, agents, retries=QUICK)
    task = asyncio.ensure_future(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        assert await task


def runner(kind: str, folder: Path) -> Callable[[Use], None]:
    """Return what runs a test with a store of that kind and an engine, and checks that each session is sound."""

    async def with_store(test: Use) -> None:
        store: MemoryStore | SQLiteStore
        store = MemoryStore() if kind == "memory" else SQLiteStore(folder / "sessions.db")
        async with store:
            await test(store, LocalEngine())
            for info in (await store.list()).sessions:
                assert (await store.verify(info.session_id)).is_sound

    return lambda test: asyncio.run(with_store(test))
