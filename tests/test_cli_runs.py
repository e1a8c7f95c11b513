"""`dragoman runs`: runs are listed, followed and decided about, whatever models and damage put into a store."""

import asyncio
import io
from typing import Any

from dragoman import Agent, MemoryStore, Session
from dragoman.cli.output import Output
from dragoman.cli.runs import follow_text
from dragoman.durable import Agents, LocalEngine, submit
from dragoman.testing import ScriptedModel
from tests.durable_cases import working

# Lines of two lengths, so that the end of some delta cuts a line break, whatever the length of a delta is.
SAID = "abc\r\n" * 24 + "abcde\r\n" * 24 + "END"


class WatchedStream(io.StringIO):
    """A stream that tells when something is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = asyncio.Event()

    def write(self, text: str) -> int:
        self.written.set()
        return super().write(text)


def test_a_followed_text_is_whole_wherever_its_deltas_are_cut() -> None:
    async def follow() -> str:
        stream = WatchedStream()

        async def until_printed(number: int) -> None:
            if 1 < number <= len(SAID) // 12:  # delta 0 has no text; each of the others is printed before the next
                await stream.written.wait()
                stream.written.clear()

        def make(session: Session) -> Agent[Any, Any]:
            return Agent(ScriptedModel(SAID, between=until_printed), session=session)

        async with MemoryStore() as store, asyncio.timeout(60):
            engine = LocalEngine()
            run = await submit(store, engine, agent="writer", session="s", prompt="Write.")
            following = asyncio.ensure_future(follow_text(run, Output(stream)))
            async with working(store, engine, Agents({"writer": make})):
                await following
        return stream.getvalue()

    assert asyncio.run(follow()) == SAID.replace("\r\n", "\n") + "\n"
