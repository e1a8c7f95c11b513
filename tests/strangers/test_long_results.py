"""A tool that returns megabytes: the program around the agent goes on meanwhile, and the model is asked."""

import asyncio
import time

import pytest

from dragoman import Agent, AgentConfig, ContextConfig, ToolsConfig, tool
from dragoman.testing import Call, ScriptedModel, Turn

MEGABYTE = 1_000_000
TEXTS = {
    "one line": "a" * (2 * MEGABYTE),
    "many lines": "a line of some text\n" * (MEGABYTE // 20),
    "line ends": "\n" * MEGABYTE,
}


@pytest.mark.parametrize("kind", TEXTS)
def test_the_event_loop_goes_on_while_a_long_result_is_read(kind: str) -> None:
    pieces: list[float] = []

    @tool
    async def read_log() -> str:
        """Return the log."""
        return TEXTS[kind]

    async def go_on() -> None:
        """Note how much processor time the loop's thread spends between two turns of this task."""
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            pieces.append(now - last)
            last = now

    async def use() -> str:
        agent = Agent(
            ScriptedModel(Turn(calls=(Call("read_log", {}),)), "Read."),
            tools=[read_log],
            config=AgentConfig(
                context=ContextConfig(budget_tokens=8_000), tools=ToolsConfig(result_limit_bytes=8 * MEGABYTE)
            ),
        )
        beside = asyncio.create_task(go_on())
        result = await agent.run("Read the log.")
        beside.cancel()
        return result.status

    begun = time.process_time()
    assert asyncio.run(use()) == "completed"
    spent = time.process_time() - begun
    # Where all of it takes next to nothing, a share of it says nothing.
    assert max(pieces) < max(spent / 3, 0.05), f"{max(pieces):.3f} s of {spent:.3f} s in one piece"
