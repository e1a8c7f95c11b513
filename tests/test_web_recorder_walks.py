"""Any sequence of what clients do: nothing raises, nothing that was recorded is lost, and every session can go on."""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any

import pytest
from hypothesis import given as examples
from hypothesis import settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman import Message, Role, Text, Thinking, ToolCall, ToolResult
from dragoman.errors import ErrorCode, ModelError
from dragoman.history import ClientAnswerEntry, ClientRequestEntry, HistoryEntry
from dragoman.store import Head, MemoryStore, SessionStore
from dragoman.web.gateway.asked import Asked, Given
from dragoman.web.gateway.recorder import Recorder, Turn
from dragoman.web.gateway.responses import conversation_of
from tests.web_cases import (
    LOOK,
    PATHS,
    StoreOpener,
    all_sessions,
    answer,
    asked,
    failed,
    given,
    require_accepted,
    require_sound,
    store_opener,
)

APIS = tuple(PATHS)
FRAMES: tuple[dict[str, Any], ...] = (
    {},
    {"system": "Now be long."},
    {"tools": (LOOK,)},
    {"system": "Write a title.", "tools": ()},
    {"system": "You search.", "tools": (LOOK,)},
)
WHOSE: tuple[dict[str, Any], ...] = (
    {"client": "pi"},
    {"client": "claude-code", "conversation": "abc"},
    {"client": "codex", "session_id": "work"},
    {"client": "claude-code", "session_id": "work"},
)


class Walk:
    """Clients of one store. Each choice is a number, so that a failing walk can be made shorter."""

    def __init__(self, store: SessionStore, numbers: Iterator[int]) -> None:
        self.store = store
        self.recorder = Recorder(store)
        self.numbers = numbers
        self.talks: list[list[Message]] = [[] for _ in WHOSE]
        self.whose = 0
        self.last: Asked | None = None
        self.open: list[tuple[Turn, int]] = []  # requests under way, and whose they are
        self.begun = self.ended = self.made = 0
        self.heads: dict[str, Head] = {}

    @property
    def talk(self) -> list[Message]:
        return self.talks[self.whose]

    def pick(self, options: Sequence[Any]) -> Any:
        return options[next(self.numbers) % len(options)]

    async def step(self) -> None:
        await self.pick(
            [
                *([self.say] * 4),
                *([self.finish] * 4),
                *(self.ask_again, self.edit, self.rewind, self.compact, self.ask_beside, self.kill, self.switch),
                *(self.say_two_at_once, self.drop_a_message),
            ]
        )()

    # ------------------------------------------------------------ what a client does

    async def say(self) -> None:
        """Answer the calls of the last answer, some or none of them, and say something."""
        self.made += 1
        last = self.talk[-1] if self.talk else None
        calls = last.tool_calls if last is not None else ()
        answered = [call for call in calls if self.pick([True, True, False])]
        self.talk.extend(Message.tool(ToolResult(call.tool_call_id, f"result {self.made}")) for call in answered)
        if not answered or self.pick([True, False]):
            self.talk.append(Message.user(f"words {self.made}"))
        await self.begin(self.talk)

    async def say_two_at_once(self) -> None:
        await self.say()
        self.made += 1
        await self.begin([*self.talk[:-1], Message.user(f"other words {self.made}")])

    async def ask_again(self) -> None:
        if self.last is not None:
            await self.begin_asked(self.last)

    async def ask_beside(self) -> None:
        self.made += 1
        about = self.pick([self.talk, []])
        await self.begin([*about, Message.user(f"title {self.made}")], **FRAMES[3])

    async def edit(self) -> None:
        if self.talk:
            index = next(self.numbers) % len(self.talk)
            if self.talk[index].role is not Role.TOOL:
                self.made += 1
                self.talk[index] = Message(self.talk[index].role, (Text(f"edited {self.made}"),))

    async def rewind(self) -> None:
        if self.talk:
            del self.talk[next(self.numbers) % len(self.talk) :]

    async def drop_a_message(self) -> None:
        if self.talk:
            del self.talk[next(self.numbers) % len(self.talk)]

    async def compact(self) -> None:
        self.made += 1
        self.talk[:] = [Message.user(f"summary {self.made}")]

    async def switch(self) -> None:
        self.whose = next(self.numbers) % len(WHOSE)

    async def kill(self) -> None:
        """The server is killed, with all requests that are under way."""
        self.open.clear()
        self.recorder = Recorder(self.store)

    # ------------------------------------------------------------ exchanges

    async def begin(self, messages: Sequence[Message], **fields: Any) -> None:
        frame = {**FRAMES[0], **(self.pick(FRAMES) if next(self.numbers) % 8 == 0 else {}), **fields}
        shown = [message for message in messages if message.parts]
        api = self.pick(APIS)
        try:
            request = asked(*shown, api=api, **frame, **WHOSE[self.whose])
        except ModelError:  # Gemini's requests cannot say a result without its call
            request = asked(*shown, **frame, **WHOSE[self.whose])
        await self.begin_asked(request)

    async def begin_asked(self, request: Asked) -> None:
        self.last = request
        turn = await self.recorder.begin(request)
        assert not turn.fault, turn.fault
        self.begun += 1
        self.open.append((turn, self.whose))
        assert turn.kept is not None
        recorded = conversation_of(turn.kept.entries[: turn.serial + 1])
        if not turn.is_joined:
            assert spoken(recorded) == spoken(turn.said.messages)
            assert len(turn.messages) == len(turn.said.messages)
        require_accepted(turn.messages)

    async def finish(self) -> None:
        """End one of the requests under way, in any order; the client takes what it was given."""
        if not self.open:
            return
        turn, whose = self.open.pop(next(self.numbers) % len(self.open))
        told, taken = self.outcome()
        await turn.end(told)
        assert not turn.fault, turn.fault
        self.ended += 1
        assert turn.kept is not None
        self.heads[turn.session_id] = await self.store.head(turn.session_id)
        if taken is not None and not turn.is_side:
            self.talks[whose] = [*self.client_messages(turn), taken]

    def client_messages(self, turn: Turn) -> list[Message]:
        return list(turn.said.messages)

    def outcome(self) -> tuple[Given, Message | None]:
        """What a client is given, and what it takes of it into its conversation."""
        self.made += 1
        number = self.made
        calls = [ToolCall(f"call_{index}", "look", {"at": number % 2}) for index in range(next(self.numbers) % 3)]
        message = answer(Thinking("Hm.", provider_data={"signature": "s"}), self.pick([f"told {number}", "OK"]), *calls)
        seen = replace(message, parts=message.parts[1:], meta=None)
        kind = next(self.numbers) % 8
        if kind == 0:
            return failed(), None
        if kind == 1:
            return failed(ErrorCode.STREAM_TRUNCATED, message), self.pick([None, seen])
        if kind == 2:
            broken = ToolCall.parse("cut", "look", '{"at": "ha')
            return failed(ErrorCode.STREAM_TRUNCATED, replace(message, parts=(*message.parts, broken))), seen
        if kind == 3:
            return given(message, is_whole=False), self.pick([None, seen])
        return given(message), seen

    # ------------------------------------------------------------ what must hold at the end

    async def check(self) -> None:
        await self.recorder.settle()
        assert self.recorder.faults == 0
        await require_sound(self.store)
        for session_id, head in self.heads.items():
            report = await self.store.verify(session_id, kept=head)
            assert report.is_sound, report.problem
        entries = [entry async for entry in own_entries(self.store)]
        assert sum(isinstance(entry, ClientRequestEntry) for entry in entries) >= self.begun
        assert sum(isinstance(entry, ClientAnswerEntry) for entry in entries) == self.ended


async def own_entries(store: SessionStore) -> Any:
    """Every entry of every session, once: a fork has its parent's too."""
    for session in await all_sessions(store):
        fork = session.info.forked_from
        entries: Sequence[HistoryEntry] = session.entries
        for serial in range(0 if fork is None else fork.serial + 1, len(entries)):
            yield entries[serial]


def spoken(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """The words of a conversation, without results: those that answer no call are not recorded as such."""
    words: list[tuple[str, str]] = []
    for message in messages:
        role = "assistant" if message.role is Role.ASSISTANT else "user"
        text = "".join(message.text.split()) if message.role is not Role.TOOL else ""
        if text and words and words[-1][0] == role:
            words[-1] = (role, words[-1][1] + text)
        elif text:
            words.append((role, text))
    return words


async def walk(store: SessionStore, numbers: Iterator[int], steps: int) -> None:
    walking = Walk(store, numbers)
    try:
        for _ in range(steps):
            await walking.step()
        await walking.check()
    finally:
        await store.close()


@settings(max_examples=60)
@examples(st.lists(st.integers(0, 1 << 16), min_size=10, max_size=160))
def test_whatever_clients_do_nothing_is_lost(numbers: list[int]) -> None:
    asyncio.run(walk(MemoryStore(), chain(numbers, repeat(0)), len(numbers) // 6 + 2))


@pytest.fixture
def open_store(request: pytest.FixtureRequest) -> StoreOpener:
    """Return what opens stores of one new place."""
    return store_opener(request)


@pytest.mark.slow  # many seconds
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("open_store", ["memory", "sqlite", "postgres"], indirect=True)
def test_a_long_walk_loses_nothing(open_store: Callable[[], SessionStore], seed: int) -> None:
    rng = random.Random(seed)  # the same walk each time
    asyncio.run(walk(open_store(), iter(lambda: rng.getrandbits(16), -1), 60))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 300))
def test_many_walks_lose_nothing(seed: int) -> None:
    rng = random.Random(seed)  # the same walk each time
    asyncio.run(walk(MemoryStore(), iter(lambda: rng.getrandbits(16), -1), 80))
