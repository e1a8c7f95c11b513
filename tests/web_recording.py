"""A recorder over every store, for tests of what it records."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dragoman import Message
from dragoman.store import (
    Session,
    SessionStore,
)
from dragoman.web.gateway.recorder import Recorder, Turn
from tests.web_cases import (
    all_sessions,
    answer,
    asked,
    given,
    require_sound,
    store_opener,
)

KINDS = ("memory", "sqlite", "postgres")
TITLE: dict[str, Any] = {"system": "Write a title.", "tools": ()}
NAMED: dict[str, Any] = {"client": "claude-code", "conversation": "abc"}


class Clients:
    """A recorder and its store, for one test."""

    def __init__(self, open_store: Callable[[], SessionStore]) -> None:
        self.open_store = open_store
        self.store = open_store()
        self.recorder = Recorder(self.store)

    async def ask(self, *messages: Message, told: Message | str | None = None, **fields: Any) -> Turn:
        """One exchange: a request, and its answer if one is given."""
        turn = await self.recorder.begin(asked(*messages, **fields))
        assert not turn.fault, turn.fault
        if told is not None:
            await turn.end(given(answer(told) if isinstance(told, str) else told))
            assert not turn.fault, turn.fault
        return turn

    async def sessions(self) -> list[Session]:
        return await all_sessions(self.store)

    async def one(self) -> Session:
        """The only session."""
        (session,) = await self.sessions()
        return session

    def restart(self) -> None:
        """Forget everything but the store, as a process that was killed."""
        self.recorder = Recorder(self.store)


Test = Callable[[Clients], Awaitable[None]]


def recorder_runner(request: pytest.FixtureRequest) -> "Run":
    """Return what runs a test over a store of the kind that the test is run for, and checks what is left in it."""
    open_store = store_opener(request)

    def run(test: Test) -> None:
        async def whole() -> None:
            clients = Clients(open_store)
            try:
                await test(clients)
                await clients.recorder.settle()
                await require_sound(clients.store)
                assert clients.recorder.faults == 0
            finally:
                await clients.store.close()

        asyncio.run(whole())

    return run


over_stores = pytest.mark.parametrize("run_recorder", KINDS, indirect=True)
in_memory = pytest.mark.parametrize("run_recorder", ["memory"], indirect=True)
Run = Callable[[Test], None]

A, B, C = Message.user("A"), Message.user("B"), Message.user("C")
X, Y = Message.assistant("X"), Message.assistant("Y")
