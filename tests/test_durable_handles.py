"""Runs as callers have them: keys, the run of a session, positions, text, another try."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dragoman import Agent, MemoryStore, Session
from dragoman.durable import (
    Agents,
    LocalEngine,
    RunHandle,
    abort_order,
    carry_on,
    find_run,
    submit,
)
from dragoman.errors import ErrorCode, InvalidValue, ModelError
from dragoman.history import ModelInputEntry
from dragoman.message import FinishReason
from dragoman.request import AgentConfig, LoopConfig
from dragoman.store import RequestPage, SessionStore
from dragoman.testing import ScriptedModel, Turn
from tests.durable_cases import AGENTS, Use, working


def test_callers_that_use_a_key_at_once_start_one_session(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        runs = await asyncio.gather(
            *(submit(store, engine, agent="echo", prompt="Hello", key="mail-1") for _ in range(8))
        )
        assert len({run.run_id for run in runs}) == 1
        assert len((await store.list()).sessions) == 1
        await store.erase(runs[0].session_id)
        again = await submit(store, engine, agent="echo", prompt="Hello", key="mail-1")
        assert again.session_id != runs[0].session_id

    use(test)


def test_the_oldest_of_many_open_runs_is_found(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        for number in range(130):
            await submit(store, engine, agent="echo", session="s", prompt=str(number))
        assert (await find_run(store, engine, "s")).serial == 0

    use(test)


def test_a_position_after_the_end_of_a_run_gives_nothing_of_the_next(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        async with working(store, engine):
            first = await submit(store, engine, agent="echo", session="s", prompt="Hello")
            await first.result()
            end = (await store.head("s")).serial
            second = await submit(store, engine, agent="echo", session="s", prompt="And then?")
            await second.result()
        assert [each async for each in first.follow_from(end + 1)] == []
        assert [each async for each in second.follow_from(0)] != []

    use(test)


def test_the_text_of_an_answer_that_was_continued_is_whole(use: Callable[[Use], None]) -> None:
    def make(session: Session) -> Agent[Any, Any]:
        turns = Turn(text="The rep", finish_reason=FinishReason.LENGTH), "ort is done."
        config = AgentConfig(loop=LoopConfig(continue_cut=1))
        return Agent(ScriptedModel(*turns), session=session, config=config)

    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="writer", session="s", prompt="Write")
        async with working(store, engine, Agents({"writer": make})):
            assert (await run.result()).output == "The report is done."
        assert await _text_of(run) == "The report is done."

    use(test)


def test_the_text_of_a_continuation_that_broke_off_is_separated_from_its_repeat(use: Callable[[Use], None]) -> None:
    def make(session: Session) -> Agent[Any, Any]:
        turns = (
            Turn(text="One ", finish_reason=FinishReason.LENGTH),
            Turn(text="tw", error=ModelError("broken", code=ErrorCode.OVERLOADED, retryable=True)),
            "two.",
        )
        config = AgentConfig(loop=LoopConfig(continue_cut=1, backoff_seconds=0.0))
        return Agent(ScriptedModel(*turns), session=session, config=config)

    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="writer", session="s", prompt="Write")
        async with working(store, engine, Agents({"writer": make})):
            assert (await run.result()).output == "One two."
        assert await _text_of(run) == "One tw\n\ntwo."

    use(test)


@pytest.mark.parametrize("position", [50, "50"])
def test_a_position_of_another_session_is_refused(use: Callable[[Use], None], position: int | str) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="echo", session="s", prompt="Hello")
        with pytest.raises(InvalidValue, match="position"):
            await anext(run.follow_from(position))

    use(test)


def test_a_run_that_is_tried_again_keeps_the_metadata_of_its_request(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        said = ModelInputEntry.of("Hello", metadata={"ticket": 7})
        run = await submit(store, engine, agent="broken", session="s", prompt=said)
        async with working(store, engine):
            await run.result()
        again = await run.retry()
        assert (await store.load("s"))[again.serial].metadata == {"ticket": 7}

    use(test)


class EndsMeanwhile(MemoryStore):
    """Lets another worker carry on after its requests were listed."""

    ending: Callable[[], Awaitable[object]] | None = None

    async def list_requests(self, **query: Any) -> RequestPage:
        page = await super().list_requests(**query)
        if self.ending is not None:
            ending, self.ending = self.ending, None
            await ending()
        return page


def test_an_abort_of_an_order_that_has_just_ended_changes_nothing() -> None:
    async def test() -> None:
        async with EndsMeanwhile() as store:
            run = await submit(store, LocalEngine(), agent="echo", session="s", prompt="Hello")
            store.ending = lambda: carry_on(store, AGENTS, run.order)
            await abort_order(store, run.order)
            assert await run.status() == "completed"

    asyncio.run(test())


async def _text_of(run: RunHandle) -> str:
    return "".join([text async for text in run.text()])
