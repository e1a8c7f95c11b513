"""Sharing and reading the deltas of an answer when the store fails: who is told, what is logged, and what goes on."""

import asyncio
import gc
import logging
from collections.abc import Sequence
from contextlib import aclosing

import pytest

from dragoman import ErrorCode, MemoryStore, StoreError, start_session
from dragoman.history import ModelOutputEntry
from dragoman.message import Message
from dragoman.store import Session
from dragoman.store.tails import TailPiece, TailQuery, TailReader
from dragoman.testing.tails import WORDS, answer_of, deltas_in, is_kind, read, says, share
from tests.agent_cases import run

SECRET = "what the model said"
REFUSED = StoreError(SECRET, code=ErrorCode.PERMISSION)


class Failing(MemoryStore):
    """Raises these errors, one for each batch of deltas that it is to keep, or to read."""

    def __init__(self, writing: Sequence[Exception] = (), reading: Sequence[Exception] = ()) -> None:
        super().__init__()
        self.writing, self.reading = list(writing), list(reading)
        self.asked = asyncio.Event()  # whether it was asked to keep deltas

    async def _write_tails(self, pieces: Sequence[TailPiece]) -> None:
        self.asked.set()
        if self.writing:
            raise self.writing.pop(0)
        await super()._write_tails(pieces)

    async def _read_tails(self, queries: Sequence[TailQuery]) -> Sequence[TailPiece]:
        if self.reading:
            raise self.reading.pop(0)
        return await super()._read_tails(queries)


@pytest.mark.parametrize("error", [REFUSED, ValueError(SECRET)])
def test_a_read_that_fails_is_raised_to_each_follower_and_the_next_one_works(error: Exception) -> None:
    async def use() -> None:
        store = Failing(reading=[error])
        session = await start_session(store, "s", live=True)
        async with session.hold():
            share(session, answer_of(*WORDS))
            followers = [store.follow_live("s") for _ in range(3)]
            found = await asyncio.gather(*(anext(each) for each in followers), return_exceptions=True)
            assert found == [error] * 3
            async with aclosing(store.follow_live("s")) as followed:
                assert deltas_in(await read(followed, says(WORDS[-1]))) == answer_of(*WORDS)[:-1]

    run(use())


def test_reads_end_with_the_task_that_was_cancelled_and_the_next_one_works() -> None:
    async def use() -> None:
        begun, ends = asyncio.Event(), asyncio.Event()

        async def look(_queries: Sequence[TailQuery]) -> Sequence[TailPiece]:
            begun.set()
            await ends.wait()
            return ()

        reader = TailReader(look)
        first = asyncio.ensure_future(reader.read(TailQuery("s", "", 0)))
        await begun.wait()
        second = asyncio.ensure_future(reader.read(TailQuery("s", "", 0)))  # comes while the first batch is read
        await asyncio.sleep(0)
        (task,) = reader._tasks.values()
        task.cancel()
        assert [type(each) for each in await asyncio.gather(first, second, return_exceptions=True)] == [
            asyncio.CancelledError,
            asyncio.CancelledError,
        ]
        ends.set()
        assert await reader.read(TailQuery("s", "", 0)) == []

    run(use())


async def shared(session: Session, store: Failing) -> None:
    """Share an answer, record it, and check that its entry comes although its deltas could not be shared."""
    end = session.state.next_serial
    store.asked.clear()
    share(session, answer_of(*WORDS))
    await store.asked.wait()
    await session.append(ModelOutputEntry(Message.assistant("Fish.")))
    async with aclosing(store.follow_live("s", end)) as followed:
        assert deltas_in(await read(followed, is_kind("model_output"))) == []


def test_each_cause_for_which_deltas_are_not_shared_is_logged_once_without_content(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def use() -> None:
        store = Failing(writing=[REFUSED, ValueError(SECRET), REFUSED, ValueError(SECRET)])
        session = await start_session(store, "s", live=True)
        async with session.hold():
            for _ in range(4):
                await shared(session, store)
            share(session, answer_of(*WORDS))
            async with aclosing(store.follow_live("s", 4)) as followed:
                assert deltas_in(await read(followed, says(WORDS[-1]))) == answer_of(*WORDS)[:-1]

    with caplog.at_level(logging.WARNING):
        run(use())
        gc.collect()  # asyncio logs a task whose exception was not retrieved
    records = [(record.name, record.levelname, record.__dict__["dragoman"]["error"]) for record in caplog.records]
    assert records == [
        ("dragoman.store", "WARNING", "dragoman.errors.StoreError (permission)"),
        ("dragoman.store", "WARNING", "ValueError"),
    ]
    assert SECRET not in caplog.text


def test_deltas_that_come_when_the_store_is_closed_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def use() -> None:
        store = Failing(writing=[REFUSED])
        session = await start_session(store, "s", live=True)
        lease = await store.acquire_lease("s")
        tail = store.begin_tail(lease, session.state.next_serial)
        tail.add(answer_of()[0])
        await store.close()
        await store.asked.wait()
        await store._tail_writer.settle("s")

    with caplog.at_level(logging.WARNING):
        run(use())
    assert caplog.records == []
