"""What one turn costs against the length of its conversation, beside the floor: encode everything anew, and send it.

`python -m bench --part growth`. A conversation grows by an answer and a question per round, and its request goes to the
peers benchmark's fake provider: CPU from the call to the first delta, by when all of it is sent. The floor is that
benchmark's client (`aiohttp+msgspec+gen`), which is given the same body as plain dicts and encodes it in one piece;
that both send the same bytes is checked outside the timed part. Building alone is `Model.render`, for all five APIs:
what a message that is there already costs.
"""

import asyncio
import gc
import importlib
import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from statistics import median
from typing import Any

import msgspec

import dragoman
from bench.clients import MODELS, PEERS, VERSIONED, missing_peers, running
from bench.measuring import Figure, Part, Skipped
from dragoman import Message, Model, ToolCall, ToolResult

__all__ = ["PARTS"]

SHORT, LONG = 10, 10_000
TURN, MESSAGE = "one turn at {:,} messages", "building a request, per message already there"
BUILT = {**MODELS, "gemini": "google:gemini-2.5-pro", "bedrock": "bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0"}
TEXT = ('The quick brown fox jumps over the lazy dog; line of plain text with a "quote" and café. ' * 3)[:200]


class Conversation:
    """A history as the peers benchmark has it, in cycles of four: question, call, result, answer."""

    def __init__(self, size: int, model: Model) -> None:
        self._invocation = model.invocation
        self.messages = [self._message(place) for place in range(size - size % 4)]
        self.messages.append(Message.user("Go on."))

    def _message(self, place: int) -> Message:
        match place % 4:
            case 0:
                return Message.user(TEXT)
            case 1:
                arguments = {"path": f"src/mod{place}", "opts": {"depth": 3, "q": TEXT[:80]}}
                return Message.assistant(
                    ToolCall(f"call_{place:08d}", "tool_00", arguments), invocation=self._invocation
                )
            case 2:
                return Message.tool(ToolResult(f"call_{place - 1:08d}", TEXT))
            case _:
                return Message.assistant(TEXT, invocation=self._invocation)

    def grow(self) -> None:
        """Add an answer and the next question."""
        self.messages += [Message.assistant(TEXT, invocation=self._invocation), Message.user("Go on.")]


def new_model(name: str, base: str | None = None) -> Model:
    """Return the model, at the fake provider where that is given."""
    return dragoman.model(name, api_key="sk-fake", base_url=base, region="us-east-1")


# ---------------------------------------------------------------- a turn, sent


class Turns:
    """One conversation with both clients, on connections of their own."""

    def __init__(self, api: str, size: int, address: str) -> None:
        self._api, self._address = api, address
        base = f"{address}/v1" if api in VERSIONED else address
        self._model, self._twin = new_model(MODELS[api], base), new_model(MODELS[api], base)
        self._conversation = Conversation(size, self._model)
        self._body: dict[str, Any] = {}  # what the floor sends, kept as dicts from turn to turn
        self._floor = importlib.import_module("clients_raw").AiohttpMsgspecGen()
        self._dumps = importlib.import_module("orjson").dumps

    async def __aenter__(self) -> "Turns":
        await self._floor.open(self._address, self._api)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._floor.close()

    async def next(self) -> tuple[int, int]:
        """Let the conversation grow by a turn; return the nanoseconds of CPU of floor and ours."""
        self._conversation.grow()
        self._renew_body()
        gc.collect()
        begin = time.process_time_ns()
        self._floor.body = self._dumps(self._body)
        deltas = self._floor.stream(([], {}))
        await anext(deltas)
        spent = time.process_time_ns() - begin
        async for _ in deltas:
            pass
        gc.collect()
        begin = time.process_time_ns()
        stream = self._model.stream(self._conversation.messages)
        await anext(stream)
        ours = time.process_time_ns() - begin
        assert (await stream.collect()).message is not None
        assert stream.request.body == self._floor.body
        return spent, ours

    def _renew_body(self) -> None:
        """Give the floor what is new in the request; what is old stays the same dicts."""
        turns = "input" if self._api == "responses" else "messages"
        body = msgspec.json.decode(self._twin.render(self._conversation.messages).body)
        known = self._body.get(turns, [])
        body[turns] = [old if old == new else new for old, new in zip_longest(known, body[turns])]
        self._body = body


# ---------------------------------------------------------------- building alone


class Building:
    """One conversation whose requests are built and not sent."""

    def __init__(self, name: str, size: int) -> None:
        self._model = new_model(name)
        self._conversation = Conversation(size, self._model)
        self._model.render(self._conversation.messages)

    def next(self) -> float:
        """Let the conversation grow by a turn; return the microseconds of CPU that building its request takes."""
        self._conversation.grow()
        gc.collect()
        begin = time.process_time_ns()
        self._model.render(self._conversation.messages)
        return (time.process_time_ns() - begin) / 1_000


# ---------------------------------------------------------------- the figures


def measure_growth(quick: bool, peers: Sequence[str]) -> Iterator[Figure | Skipped]:
    """Building a request for a long history, and sending it."""
    long, rounds = (LONG // 10, 3) if quick else (LONG, 11)
    per_message = {}
    for api, name in BUILT.items():
        buildings = [Building(name, size) for size in (SHORT, long)]
        spent = [[building.next() for building in buildings] for _ in range(rounds + 1)][1:]
        per_message[api] = [(more - few) / (long - SHORT) for few, more in spent]
        yield Figure(MESSAGE, api, "µs of CPU", "nothing", per_message[api], must=1.0, goal=0.3)
    if problem := missing_peers():
        yield Skipped(TURN.format(long), problem)
        return
    with running(()) as (server, _):
        base, turns = server.answers("text", 5), {}
        for api in MODELS:
            turns[api] = asyncio.run(_turns(api, long, base, rounds))
            floors, ours = zip(*turns[api], strict=True)
            unit, floor = "ms of CPU to the first delta", "encoding all of it and sending it"
            yield Figure(TURN.format(long), api, unit, floor, ours, floors, must=2.3, goal=1.5)
        if "openai" in peers:
            yield from _beside_openai(base, long, per_message["chat"], [ours for _, ours in turns["chat"]])


PARTS = [Part("growth", measure_growth)]


async def _turns(api: str, size: int, base: str, rounds: int) -> list[tuple[float, float]]:
    async with Turns(api, size, base) as turns:
        for _ in range(2):
            await turns.next()  # the first ones warm up
        return [(floor / 1e6, ours / 1e6) for floor, ours in [await turns.next() for _ in range(rounds)]]


def _beside_openai(
    base: str, long: int, per_message: Sequence[float], turns: Sequence[float]
) -> Iterator[Figure | Skipped]:
    """The same of the openai SDK, in its own environment."""
    harness = importlib.import_module("harness")
    command = [harness.py("openai"), str(PEERS / "growth.py"), "openai", base, f"{SHORT},{long}", "4"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=harness.ENV, timeout=300, check=True)
        said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        few, more = ([seconds * 1e3 for seconds in said[str(size)]["cpu"]] for size in (SHORT, long))
    except (OSError, subprocess.SubprocessError, KeyError, IndexError, ValueError) as error:
        yield Skipped(
            "a long history against openai", f"its environment does not stand, or fails: {type(error).__name__}"
        )
        return
    each = [(turn - median(few)) * 1e3 / (long - SHORT) for turn in more]
    rounds = min(len(more), len(turns))
    ours, theirs = per_message[:rounds], each[:rounds]
    unit = "µs of CPU; ratio of theirs to ours"
    yield Figure(f"{MESSAGE}, against openai", "chat", unit, "openai", ours, theirs, must=100, at_least=True)
    unit = "ms of CPU; ratio of theirs to ours"
    row, must = f"{TURN.format(long)}, against openai", 300 if long == LONG else None
    yield Figure(row, "chat", unit, "openai", turns[:rounds], more[:rounds], must=must, at_least=True)
