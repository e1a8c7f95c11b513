"""Two programs use one session at the same moment: a second click, two decisions, clocks that show the same time."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dragoman import (
    Agent,
    DragomanError,
    MemoryStore,
    Message,
    SessionStore,
    SQLiteStore,
    ToolCall,
    open_session,
    start_session,
    tool,
)
from dragoman.history import (
    ApprovalAnsweredEntry,
    ApprovalAskedEntry,
    ModelInputEntry,
    ModelOutputEntry,
    RunStartedEntry,
    ToolStartedEntry,
)
from dragoman.testing import Call, ScriptedModel, Turn
from tests.postgres_server import Place

Use = Callable[[SessionStore], Awaitable[None]]


def standing_clock() -> datetime:
    """Return the same moment at every call, as two clocks of whole seconds do."""
    return datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def use_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Use], None]:
    """Return a function that lends a new store to a program."""
    place: Place | None = request.getfixturevalue("postgres") if request.param == "postgres" else None

    async def lend(work: Use) -> None:
        if place is not None:
            async with place.store() as postgres:
                await work(postgres)
        elif request.param == "sqlite":
            async with SQLiteStore(tmp_path / "s.db") as sqlite:
                await work(sqlite)
        else:
            await work(MemoryStore())

    return lambda work: asyncio.run(lend(work))


async def asked_to_pay(store: SessionStore) -> None:
    """Record a run whose call waits for a person."""
    session = await start_session(store, "s")
    call = ToolCall("c", "pay", {})
    await session.append(RunStartedEntry(run_id="r"), ModelInputEntry.of("Pay."))
    await session.append(ModelOutputEntry(Message.assistant(call)), ApprovalAskedEntry("c", "pay"))


def test_a_second_click_leaves_the_run_that_works_alone(use_store: Callable[[Use], None]) -> None:
    async def work(store: SessionStore) -> None:
        began, ends = asyncio.Event(), asyncio.Event()
        runs: list[str] = []

        @tool(idempotent=True)
        async def look() -> str:
            """Look."""
            runs.append("look")
            began.set()
            await ends.wait()
            return "seen"

        async def click(*script: Turn | str) -> str:
            session = await open_session(store, "s")
            return str((await Agent(ScriptedModel(*script), tools=[look], session=session).run("Go.")).output)

        await start_session(store, "s")
        first = asyncio.ensure_future(click(Turn(calls=(Call("look", {}),)), "Done."))
        await began.wait()
        second = asyncio.ensure_future(click("Never said."))
        await asyncio.wait((second,), timeout=1)  # it ends at once; the limit is for a library that lets it wait
        ends.set()
        with pytest.raises(DragomanError) as refused:
            await second
        assert refused.value.code == "busy"
        assert (await first, runs) == ("Done.", ["look"])

    use_store(work)


@pytest.mark.parametrize("kind", ["input", "start of a tool", "decision"])
def test_of_two_writers_of_the_same_entry_at_the_same_moment_one_is_told_that_it_was_too_late(
    use_store: Callable[[Use], None], kind: str
) -> None:
    async def work(store: SessionStore) -> None:
        if kind == "input":
            await start_session(store, "s")
            entry: ModelInputEntry | ToolStartedEntry | ApprovalAnsweredEntry = ModelInputEntry.of("yes")
        else:
            await asked_to_pay(store)
            entry = ApprovalAnsweredEntry("c", True)
            if kind == "start of a tool":
                await (await open_session(store, "s")).append(entry)
                entry = ToolStartedEntry("c", "pay", False)
        writers = [await open_session(store, "s", clock=standing_clock) for _ in range(3)]
        before = len(await store.load("s"))
        said = await asyncio.gather(*(writer.append(entry) for writer in writers), return_exceptions=True)
        late = [error for error in said if isinstance(error, DragomanError)]
        assert (len(said) - len(late), len(await store.load("s")) - before) == (1, 1)

    use_store(work)
