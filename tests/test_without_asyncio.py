"""Without an asyncio event loop, as under trio: the caller is told what to do, and nothing is left unawaited."""

import re
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent, InvalidValue, MemoryStore, Message, SQLiteStore, model
from dragoman.testing import ScriptedModel

WHAT_TO_DO = r"needs asyncio.*use asyncio\.run\(\).*Under trio, run it in a thread: await trio\.to_thread\.run_sync"


def step(work: Coroutine[Any, Any, object]) -> None:
    """Take the first step of the work, as an event loop that is not asyncio's does."""
    with pytest.raises(InvalidValue, match=WHAT_TO_DO):
        work.send(None)


def test_a_run_without_asyncio_says_what_to_do() -> None:
    agent = Agent(ScriptedModel("Hello."))
    step(agent.run("Hi."))
    with pytest.raises(InvalidValue, match=WHAT_TO_DO):
        agent.stream("Hi.")
    assert agent.run_sync("Hi.").output == "Hello."


def test_a_store_without_asyncio_says_what_to_do(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "s.db")
    for work in (store.create("s"), store.info("s"), store.acquire_lease("s"), store.close()):
        step(work)
    step(MemoryStore().acquire_lease("s"))


def test_a_model_without_asyncio_ends_in_an_error_that_says_what_to_do() -> None:
    asked = model("openai-compatible:m", base_url="http://127.0.0.1:9/v1", api_key="not-a-real-key-1")
    with pytest.raises(StopIteration) as ended:
        asked.stream([Message.user("Hi.")]).collect().send(None)
    error = ended.value.value.error
    assert re.search(WHAT_TO_DO, error.message)
