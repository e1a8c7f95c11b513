"""What the tests of agents share: tools, gates in a stream, a store that fails when it is told to, sound histories."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import dragoman
from dragoman import ErrorCode, Message, Model, StoreError
from dragoman.agent import Agent, AgentRun, RunEvent
from dragoman.history import HistoryEntry, ModelOutputEntry, ToolResultsEntry
from dragoman.store import Head, Lease, MemoryStore, Session
from dragoman.testing import require_valid_request
from dragoman.testing.scripted import Call, Turn
from dragoman.tools import tool
from dragoman.transport import Transport
from tests.loopback import KEY

_Result = TypeVar("_Result")

# One model of each wire API: what any of them may be sent must be sendable to all of them.
TARGETS = (
    "openai:gpt-4o",
    "openai-chat:gpt-4o",
    "anthropic:claude-sonnet-4-5",
    "google:gemini-2.5-pro",
    "mistral:mistral-large-latest",
)


def run(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Return what the work comes to. What hangs is a failure, not a wait."""

    async def limited() -> _Result:
        async with asyncio.timeout(60):
            return await work

    return asyncio.run(limited())


@tool
def weather(city: str) -> str:
    """Return the weather of a city."""
    return f"Rain in {city}."


def asks(*calls: Call, text: str = "") -> Turn:
    """Return a turn with these calls."""
    return Turn(text=text, calls=calls)


ROME = asks(Call("weather", {"city": "Rome"}))


class Gate:
    """Given to a scripted model as `between`: it stops before the deltas of these numbers until it is opened."""

    def __init__(self, *numbers: int) -> None:
        self._numbers = frozenset(numbers)
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def __call__(self, number: int) -> None:
        if number in self._numbers:
            self.reached.set()
            await self.opened.wait()


class FailingStore(MemoryStore):
    """A store in memory that refuses the appends for which `refuses` says so."""

    def __init__(self, refuses: Callable[[Sequence[HistoryEntry]], bool] = lambda entries: False) -> None:
        super().__init__()
        self.refuses = refuses

    async def append(
        self, session_id: str, entries: Sequence[HistoryEntry], expected_serial: int, *, lease: Lease | None = None
    ) -> Head:
        if self.refuses(entries):
            raise StoreError("the disk is full", code=ErrorCode.QUOTA_EXCEEDED)
        return await super().append(session_id, entries, expected_serial, lease=lease)


def kept(agent: Agent[Any, Any]) -> Session:
    """Return the agent's session, which is there after the first run."""
    assert agent.session is not None
    return agent.session


def kinds(agent: Agent[Any, Any]) -> list[str]:
    """Return what was recorded, in short."""
    return [entry.kind for entry in kept(agent).entries]


def result_texts(session: Session) -> list[str]:
    """Return the texts of all results, in order."""
    entries = [entry for entry in session.entries if isinstance(entry, ToolResultsEntry)]
    return [result.text() for entry in entries for result in entry.results]


def result_codes(session: Session) -> list[ErrorCode | None]:
    """Return the codes of all results, in order; None is a success."""
    entries = [entry for entry in session.entries if isinstance(entry, ToolResultsEntry)]
    return [result.error_code for entry in entries for result in entry.results]


def require_sound(session: Session) -> None:
    """No run is open, every call has one result, and every provider can be sent the conversation."""
    assert session.state.current_run_id == ""
    assert session.state.derived.open_calls == ()
    called = [
        call.tool_call_id
        for entry in session.entries
        if isinstance(entry, ModelOutputEntry)
        for call in entry.tool_calls
    ]
    answered = [
        result.tool_call_id
        for entry in session.entries
        if isinstance(entry, ToolResultsEntry)
        for result in entry.results
    ]
    assert answered == called
    for name in TARGETS:
        asked = dragoman.model(name, api_key=KEY)
        rendered = asked.render([*session.messages, Message.user("Go on.")], [weather.spec])
        require_valid_request(name.partition(":")[0], rendered.body, path=rendered.path)


async def read(events: AgentRun[Any]) -> list[RunEvent]:
    """Return all events of a run."""
    return [event async for event in events]


def claude(url: str, transport: Transport) -> Model:
    """Return a model of the server on this machine."""
    base = url.removesuffix("/v1/messages")
    return dragoman.model("anthropic:claude-sonnet-4-5", api_key=KEY, base_url=base, transport=transport)
