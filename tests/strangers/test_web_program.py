"""A small web program: it streams runs to people who leave in mid-answer, click twice and come back.

The server, its clients and the stores are real; the model plays a script.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientConnectionError, ClientSession, web

from dragoman import Agent, Session, SessionStore, SQLiteStore, StoreError, TextDelta, open_session, start_session, tool
from dragoman.agent import DeltaEvent
from dragoman.testing import Call, ScriptedModel, Turn
from dragoman.tools import FunctionTool
from tests.postgres_server import Place

pytestmark = pytest.mark.slow

WORDS = " ".join(f"word-{number}" for number in range(80))
PATIENCE = 60.0  # seconds that a request waits for its session: far more than a run takes
SESSIONS, TURNS = 8, 6


class Program:
    """Its handler opens the session that the address names, runs an agent on it and streams what the model says."""

    def __init__(self, store: SessionStore) -> None:
        self.store = store
        self.looked_up: Counter[str] = Counter()

    async def chat(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        session = await self._session(request.match_info["session"])
        agent = Agent(scripted(asked["word"]), tools=[self._tool()], session=session)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        try:
            async with agent.stream(asked["text"], wait_seconds=asked["patience"]) as run:
                async for event in run:
                    if isinstance(event, DeltaEvent) and isinstance(event.delta, TextDelta):
                        await response.write(line(event.delta.text_delta))
            ended = [str((await run.result()).status)]
        except StoreError as error:
            ended = [str(error.code)]
        await response.write(line(ended))
        return response

    async def _session(self, session_id: str) -> Session:
        try:
            return await open_session(self.store, session_id)
        except StoreError as error:
            if error.code != "not_found":
                raise
            return await start_session(self.store, session_id, system_instruction="Be brief.")

    def _tool(self) -> FunctionTool[..., Any]:
        @tool
        async def look_up(word: str) -> str:
            """Look a word up."""
            self.looked_up[word] += 1
            return f"{word} means something."

        return look_up


def scripted(word: str) -> ScriptedModel:
    async def let_others_run(_: int) -> None:
        await asyncio.sleep(0)

    return ScriptedModel(Turn(calls=(Call("look_up", {"word": word}),)), WORDS, between=let_others_run)


def line(value: Any) -> bytes:
    return b"data: %s\n" % json.dumps(value).encode()


@asynccontextmanager
async def serving(program: Program) -> AsyncIterator[str]:
    application = web.Application()
    application.router.add_post("/chat/{session}", program.chat)
    runner = web.AppRunner(application, handler_cancellation=True)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def say(address: str, session: str, word: str, *, leaves: bool = False, patience: float = PATIENCE) -> str:
    """Say something; return how the run ended. Who leaves has read one line of the answer."""
    asked = {"text": f"What is {word}?", "word": word, "patience": patience}
    said = ""
    async with ClientSession() as client, client.post(f"{address}/chat/{session}", json=asked) as answer:
        assert answer.status == 200, await answer.text()
        async for raw in answer.content:
            value = json.loads(raw.removeprefix(b"data: "))
            if isinstance(value, list):
                assert value != ["completed"] or said == WORDS
                return str(value[0])
            said += value
            if leaves:
                return "left"
    raise ClientConnectionError("the answer broke off")


Opened = Callable[[Callable[[SessionStore], Awaitable[None]]], None]


@pytest.fixture(params=["sqlite", "postgres"])
def use_store(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    """Run a program with a store that is open for it."""
    place: Place | None = request.getfixturevalue("postgres") if request.param == "postgres" else None

    def run(work: Callable[[SessionStore], Awaitable[None]]) -> None:
        async def limited() -> None:
            async with asyncio.timeout(120):
                if place is not None:
                    async with place.store() as store:
                        await work(store)
                else:
                    async with SQLiteStore(tmp_path / "sessions.db") as store:
                        await work(store)

        asyncio.run(limited())

    return run


def test_people_who_leave_in_mid_answer_and_come_back_at_once_are_answered(use_store: Opened) -> None:
    async def work(store: SessionStore) -> None:
        program = Program(store)
        async with serving(program) as address:

            async def person(number: int) -> Counter[str]:
                ends = [
                    await say(address, f"session-{number}", f"{number}-{turn}", leaves=turn % 2 == number % 2)
                    for turn in range(TURNS)
                ]
                return Counter(ends)

            ends = sum(await asyncio.gather(*map(person, range(SESSIONS))), Counter())
            assert ends == Counter({"left": SESSIONS * TURNS // 2, "completed": SESSIONS * TURNS // 2})
        assert set(program.looked_up.values()) == {1}
        for number in range(SESSIONS):
            assert (await store.verify(f"session-{number}")).is_sound

    use_store(work)


def test_whoever_clicks_twice_is_answered_twice_or_told_that_it_is_busy(use_store: Opened) -> None:
    async def work(store: SessionStore) -> None:
        program = Program(store)
        async with serving(program) as address:
            assert await say(address, "shared", "first") == "completed"
            waiting = [say(address, "shared", f"patient-{number}") for number in range(4)]
            assert Counter(await asyncio.gather(*waiting)) == Counter({"completed": 4})
            at_once = [say(address, "shared", f"hasty-{number}", patience=0) for number in range(4)]
            ends = Counter(await asyncio.gather(*at_once))
            assert set(ends) <= {"completed", "busy"}
            assert ends["completed"] >= 1
        assert set(program.looked_up.values()) == {1}
        assert (await store.verify("shared")).is_sound

    use_store(work)
