"""Answers that are followed while they come: of agents, across processes, with readers and writers that go away."""

import asyncio
import random
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

import pytest
from msgspec.structs import replace

from dragoman import Agent, MemoryStore, SessionStore, SQLiteStore, StoreError, open_session, start_session
from dragoman.delta import StartDelta, TextDelta
from dragoman.history import ModelInputEntry, ModelOutputEntry
from dragoman.message import FinishReason, Message
from dragoman.request import AgentConfig, LoopConfig
from dragoman.store import (
    AnswerDeltas,
    AnswerText,
    Followed,
    FollowedDelta,
    FollowedEntry,
    PostgresStore,
    Session,
)
from dragoman.store.postgres_schema import MIGRATIONS, migrate
from dragoman.testing import ScriptedModel, Turn
from dragoman.testing.scripted import Call
from dragoman.testing.tails import (
    NOW,
    TEXT,
    WORDS,
    answer_of,
    check_an_expired_lease_leaves_no_tail,
    deltas_in,
    is_kind,
    read,
    says,
    share,
    text_of,
)
from tests.postgres_server import Place
from tests.store_programs import open_store as open_by_address

ROOT = Path(__file__).parents[1]
LONG = " ".join(f"word {number} and then," for number in range(200))
KINDS = ("memory", "sqlite", "postgres")


@pytest.fixture
def address(request: pytest.FixtureRequest) -> str:
    """Return where stores of one new place are, of the kind that the test is run for."""
    if request.param == "sqlite":
        return str(request.getfixturevalue("tmp_path") / "sessions.db")
    place: Place = request.getfixturevalue("postgres")
    return place.address


@pytest.fixture
def open_store(request: pytest.FixtureRequest) -> Callable[[], SessionStore]:
    """Return what opens stores of one new place; in memory there is only one."""
    if request.param == "memory":
        store = MemoryStore()
        return lambda: store
    if request.param == "sqlite":
        path = request.getfixturevalue("tmp_path") / "sessions.db"
        return lambda: SQLiteStore(path)
    place: Place = request.getfixturevalue("postgres")
    return lambda: place.store(poll_seconds=1e6)


def run(*, stores: Callable[[], SessionStore], use: Callable[[SessionStore, SessionStore], object]) -> None:
    """Use a store of the worker and one of the reader."""

    async def both() -> None:
        worker, reader = stores(), stores()
        try:
            await use(worker, reader)  # type: ignore[misc]  # a coroutine function
        finally:
            await worker.close()
            await reader.close()

    asyncio.run(both())


class Meeting:
    """Lets a model go on only when its reader has got what was said before."""

    def __init__(self) -> None:
        self.got = asyncio.Semaphore(0)

    async def between(self, number: int) -> None:
        """Wait before each delta but the first; at the sixth the reader need not have the fifth."""
        if 0 < number < 5:
            await asyncio.wait_for(self.got.acquire(), 60)


@pytest.mark.parametrize("open_store", KINDS, indirect=True)
def test_a_reader_has_each_delta_before_the_model_says_the_next(open_store: Callable[[], SessionStore]) -> None:
    async def use(worker: SessionStore, reader: SessionStore) -> None:
        meeting = Meeting()
        session = await start_session(worker, "s", live=True)
        agent = Agent(
            ScriptedModel("Hello to all who read this while it comes.", between=meeting.between), session=session
        )
        running = asyncio.ensure_future(agent.run("Go."))
        found: list[Followed] = []
        async with aclosing(reader.follow_live("s")) as followed:
            async for item in followed:
                found.append(item)
                if isinstance(item, FollowedDelta):
                    meeting.got.release()
                if is_kind("run_finished")(item):
                    break
        assert (await running).output == text_of(found) == "Hello to all who read this while it comes."
        assert len(deltas_in(found)) >= 4

    run(stores=open_store, use=use)


@pytest.mark.parametrize("open_store", KINDS, indirect=True)
def test_a_reader_that_comes_back_a_hundred_times_has_the_text_of_one_that_stays(
    open_store: Callable[[], SessionStore],
) -> None:
    script = (
        Turn(text="Let me see. " + LONG, calls=(Call("look", {"deep": True}),)),
        Turn(text="Well, " + LONG, breaks_after=40),
        Turn(text="So: " + LONG),
    )
    chance = random.Random(11)

    visits, answers_begun = 0, 0
    ahead = asyncio.Semaphore(8)  # so many deltas may the first answer be ahead of the reader that comes and goes

    async def between(number: int) -> None:
        nonlocal answers_begun
        answers_begun += number == 0
        if answers_begun == 1:
            await asyncio.wait_for(ahead.acquire(), 60)

    async def stays(reader: SessionStore) -> str:
        async with aclosing(reader.follow_live("s")) as followed:
            return text_of(await read(followed, is_kind("run_finished")))

    async def comes_back(reader: SessionStore) -> str:
        nonlocal visits
        text, position = AnswerText(), "0"
        while True:
            visits += 1
            answers, left = AnswerDeltas(position), chance.randrange(1, 4)
            async with aclosing(reader.follow_live("s", position)) as followed:
                async for item in followed:
                    for each in answers.feed(item):
                        if left:
                            text.feed(each.delta)
                            position = str(each.position)
                            left -= 1
                            ahead.release()
                    if not left:
                        break
                    position = str(item.position)
                    if is_kind("run_finished")(item):
                        return text.text

    async def use(worker: SessionStore, reader: SessionStore) -> None:
        session = await start_session(worker, "s", live=True)
        config = AgentConfig(loop=LoopConfig(backoff_seconds=0.01))

        def look(deep: bool) -> str:
            """Look."""
            return f"seen {deep}"

        agent = Agent(ScriptedModel(*script, between=between), session=session, tools=[look], config=config)
        staying, returning = asyncio.ensure_future(stays(reader)), asyncio.ensure_future(comes_back(reader))
        result = await agent.run("Go.")
        assert result.output == "So: " + LONG
        expected = f"Let me see. {LONG}\n\nSo: {LONG}"
        assert await staying == expected
        assert await returning == expected
        assert visits >= 100

    run(stores=open_store, use=use)


@pytest.mark.parametrize("open_store", ["memory", "sqlite"], indirect=True)
def test_a_reader_that_came_while_the_lease_was_expired_gets_the_answer_once_it_is_renewed(
    open_store: Callable[[], SessionStore],
) -> None:
    async def use(worker: SessionStore, reader: SessionStore) -> None:
        session = await start_session(worker, "s", live=True)
        async with session.hold(seconds=600) as lease:
            share(session, answer_of(*WORDS))
            await read(reader.follow_live("s"), says(WORDS[-1]))
            await worker.renew_lease(replace(lease, seconds=1e-6))
            await session.steer("Are you there?")
            async with aclosing(reader.follow_live("s")) as followed:
                assert deltas_in(await read(followed, is_kind("steering"))) == []
                await worker.renew_lease(lease)
                assert deltas_in(await read(followed, says(WORDS[-1]))) == answer_of(*WORDS)[:-1]

    run(stores=open_store, use=use)


def test_the_text_of_an_answer_that_is_continued_is_the_output_of_its_run() -> None:
    async def use() -> None:
        session = await start_session(MemoryStore(), "s", live=True)
        reading = asyncio.ensure_future(read(session.follow(deltas=True), is_kind("run_finished")))
        turns = Turn(text="The rep", finish_reason=FinishReason.LENGTH), "ort is done."
        config = AgentConfig(loop=LoopConfig(continue_cut=1))
        result = await Agent(ScriptedModel(*turns), session=session, config=config).run("Go.")
        assert text_of(await reading) == result.output == "The report is done."
        assert text_of(await read(session.follow(deltas=True), is_kind("run_finished"))) == result.output

    asyncio.run(use())


def test_an_agent_shares_only_the_answers_of_a_live_session() -> None:
    async def use() -> None:
        store = MemoryStore()
        session = await start_session(store, "s")
        await Agent(ScriptedModel("Hello."), session=session).run("Go.")
        async with aclosing(session.follow(deltas=True)) as followed:
            found = await read(followed, is_kind("run_finished"))
        assert deltas_in(found) == []
        assert text_of(found) == "Hello."
        fork = await (await open_session(store, "s", live=True)).fork(1)
        async with fork.hold():
            assert fork.begin_tail() is not None

    asyncio.run(use())


# ---------------------------------------------------------------- processes

WORKER = """
import asyncio, sys
from dragoman.store import open_session
from dragoman.testing.tails import WORDS, answer_of
from tests.store_programs import open_store

async def run(address):
    store = open_store(address)
    session = await open_session(store, "s", live=True)
    async with session.hold(seconds=600):
        tail = session.begin_tail()
        for delta in answer_of(*WORDS)[:4]:
            tail.add(delta)
        await asyncio.Event().wait()

asyncio.run(run(sys.argv[1]))
"""


@pytest.mark.parametrize("address", ["sqlite", "postgres"], indirect=True)
def test_a_worker_that_is_killed_in_the_middle_of_an_answer_leaves_a_reader_that_goes_on(address: str) -> None:
    async def use(store: SQLiteStore | PostgresStore) -> None:
        session = await start_session(store, "s", live=True)
        await session.append(ModelInputEntry.of("Go."))
        followed = store.follow_live("s")
        worker = await asyncio.create_subprocess_exec(sys.executable, "-W", "error", "-c", WORKER, address, cwd=ROOT)
        found = await read(followed, says(WORDS[2]))
        worker.kill()
        await worker.wait()
        async with session.hold(seconds=600, wait_seconds=60):  # it sees that the process is gone
            late = session.follow(deltas=True)
            share(session, answer_of("Whales."))
            found += await read(followed, says("Whales."))
            assert deltas_in(await read(late, says("Whales."))) == answer_of("Whales.")[:-1]
            await session.append(ModelOutputEntry(Message.assistant("Whales.")))
            found += await read(followed, is_kind("model_output"))
        assert [item.entry.kind for item in found if isinstance(item, FollowedEntry)] == [
            "model_input",
            "takeover",
            "model_output",
        ]
        assert text_of(found) == "Whales."
        # A reader that was away, with the position it had in the dead worker's answer.
        back = store.follow_live("s", str(found[2].position))
        assert text_of(await read(back, is_kind("model_output")), str(found[2].position)) == "Whales."

    async def opened() -> None:
        async with open_by_address(address) as store:
            await use(store)

    asyncio.run(opened())


# ---------------------------------------------------------------- PostgreSQL

BEFORE_EXPIRY = 4  # the number of the last schema that gives deltas of an expired lease to readers


def test_an_older_schema_gives_no_delta_of_an_expired_lease_once_it_is_migrated(empty_postgres: Place) -> None:
    with empty_postgres.raw() as connection:
        migrate(connection, empty_postgres.schema, MIGRATIONS[:BEFORE_EXPIRY])
    with pytest.raises(StoreError, match=f"has number {BEFORE_EXPIRY}.*dragoman sessions migrate"):
        empty_postgres.run(lambda store: store.create("s"))
    empty_postgres.migrate()
    empty_postgres.run(check_an_expired_lease_leaves_no_tail)


def in_place(place: Place, use: Callable[[PostgresStore, PostgresStore], object]) -> None:
    run(stores=lambda: place.store(poll_seconds=1e6), use=use)  # type: ignore[arg-type]  # both are of PostgreSQL


def test_the_tail_is_in_no_log_of_the_server_and_empty_when_the_run_is_over(postgres: Place) -> None:
    async def use(worker: PostgresStore, _reader: PostgresStore) -> None:
        session = await start_session(worker, "s", live=True)
        async with session.hold():
            share(session, answer_of(*WORDS))
            await read(session.follow(deltas=True), says(WORDS[-1]))
            assert postgres.scalar("SELECT count(*) FROM tails") > 0
            await session.append(ModelOutputEntry(Message.assistant(TEXT)))
            assert postgres.scalar("SELECT count(*) FROM tails") == 0

    in_place(postgres, use)
    assert postgres.scalar("SELECT relpersistence = 'u' FROM pg_class WHERE oid = 'tails'::regclass")


def test_followers_of_deltas_survive_the_loss_of_every_connection(postgres: Place) -> None:
    ours = f"WHERE application_name = '{postgres.schema}' AND pid <> pg_backend_pid()"

    async def use(worker: PostgresStore, reader: PostgresStore) -> None:
        session = await start_session(worker, "s", live=True)
        async with session.hold():
            followed = reader.follow_live("s")
            tail, deltas = session.begin_tail(), answer_of(*(f"{number} " for number in range(12)))
            assert tail is not None
            tail.add(deltas[0])
            found = [await asyncio.wait_for(anext(followed), 60)]
            for delta in deltas[1:-1]:
                waiting = asyncio.ensure_future(anext(followed))
                with postgres.raw() as connection:
                    connection.execute(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity {ours}".encode())
                tail.add(delta)
                found.append(await asyncio.wait_for(waiting, 60))
        assert deltas_in(found) == deltas[:-1]

    in_place(postgres, use)


def test_a_batch_of_more_sessions_than_a_notification_holds_wakes_all(postgres: Place) -> None:
    names = [f"{'long' * 50}-{number}" for number in range(60)]

    async def use(worker: PostgresStore, reader: PostgresStore) -> None:
        async with AsyncExitStack() as stack:
            sessions: list[Session] = []
            for name in names:
                sessions.append(await start_session(worker, name, live=True))
                await stack.enter_async_context(sessions[-1].hold(seconds=600))
            reading = [asyncio.ensure_future(read(reader.follow_live(name), says("Hello."))) for name in names]
            await asyncio.sleep(0)
            for session in sessions:
                share(session, answer_of("Hello."))
            found = await asyncio.wait_for(asyncio.gather(*reading), 60)
            assert [deltas_in(each) for each in found] == [answer_of("Hello.")[:-1]] * len(names)

    in_place(postgres, use)


def test_an_erased_session_leaves_no_delta(postgres: Place) -> None:
    async def use(worker: PostgresStore, _reader: PostgresStore) -> None:
        session = await start_session(worker, "s", live=True)
        async with session.hold():
            share(session, answer_of(*WORDS))
            await read(session.follow(deltas=True), says(WORDS[-1]))
            await worker.erase("s", force=True)
            share(session, answer_of(*WORDS))
            await asyncio.wait_for(worker._tail_writer.settle("s"), 60)

    in_place(postgres, use)
    assert postgres.scalar("SELECT count(*) FROM tails") == 0


def test_rows_that_no_store_wrote_end_the_deltas_and_not_the_entries(postgres: Place) -> None:
    async def use(worker: PostgresStore, reader: PostgresStore) -> None:
        session = await start_session(worker, "s", live=True)
        async with session.hold():
            share(session, [StartDelta("run", 0, NOW), TextDelta("run", 1, NOW, "Fish ")])
            followed = reader.follow_live("s")
            await read(followed, says("Fish "))
            postgres.damage("UPDATE tails SET deltas = 'x', first = 2, past = 900")
            assert await worker._read_tails([]) == []
            await session.append(ModelInputEntry.of("And?"))
            found = await read(followed, is_kind("model_input"))
            assert deltas_in(found) == []

    in_place(postgres, use)
