"""What one turn costs against the length of its conversation, beside the floor: encode everything anew, and send it.

`python -m bench.growth` prints two tables. In the first a conversation grows by an answer and a question per round, and
its request goes to the peers benchmark's fake provider: CPU from the call to the first delta, by when all of it is
sent. The floor is that benchmark's client (`aiohttp+msgspec+gen`), which is given the same body as plain dicts and
encodes it in one piece; that both send the same bytes is checked outside the timed part. The second table is the
building alone, `Model.render`, for all five APIs: what a message that is there already costs.

`bench/stream.py` says where the peers benchmark is; without it the first table is left out.
"""

import argparse
import asyncio
import gc
import importlib
import os
import sys
import time
from itertools import zip_longest
from statistics import median
from typing import Any

import msgspec

import dragoman
from bench.stream import MODELS, PEERS, VERSIONED, Process, pin, spread, stand_in
from dragoman import Message, Model, ToolCall, ToolResult

SIZES = (10, 100, 1_000, 10_000)
ROUNDS = 21
MUST, GOAL = 2.3, 1.5  # times the floor, at the largest size
MUST_MICROSECONDS, GOAL_MICROSECONDS = 1.0, 0.3  # per message that is there already
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


def verdict(figure: float, goal: float, must: float) -> str:
    """Say which of the two is met."""
    return f"{'met' if figure <= goal else 'MISSED'} (must: {'met' if figure <= must else 'MISSED'})"


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


async def measure_turns(address: str, apis: list[str], sizes: list[int], rounds: int) -> bool:
    """Print a line per API and size; return whether the largest size meets what must be met."""
    met = True
    print(f"\nOne turn, CPU ms to the first delta: median [quartiles]   (must ≤ {MUST:g} x F, goal ≤ {GOAL:g} x F)")
    print(f"{'messages':<18} {'floor F':<21} {'dragoman':<21} ratio to F")
    for api in apis:
        for size in sizes:
            async with Turns(api, size, f"{address}/text_5_k0_p0") as turns:
                for _ in range(2):
                    await turns.next()  # the first ones warm up and are not counted
                spent = [await turns.next() for _ in range(rounds)]
            ratios = [ours / floor for floor, ours in spent]
            columns = [spread([figure / 1e6 for figure in figures]) for figures in zip(*spent, strict=True)]
            judged = verdict(median(ratios), GOAL, MUST) if size == max(sizes) else ""
            met = met and (size < max(sizes) or median(ratios) <= MUST)
            print(f"{api:<10} {size:>7,} {'   '.join((*columns, spread(ratios)))}  {judged}", flush=True)
    return met


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


def measure_building(sizes: list[int], rounds: int) -> bool:
    """Print a line per API: what building costs, and what each message more adds to it."""
    met = True
    print(
        f"\nBuilding alone, CPU ms: median at each size, and µs per message from {sizes[0]:,} to {sizes[-1]:,}"
        f"   (must ≤ {MUST_MICROSECONDS:g}, goal ≤ {GOAL_MICROSECONDS:g})"
    )
    print(f"{'messages':<12} {' '.join(f'{size:>8,}' for size in sizes)}   µs per message")
    for api, name in BUILT.items():
        buildings = [Building(name, size) for size in sizes]
        spent = [[building.next() for building in buildings] for _ in range(rounds)]
        more = [(figures[-1] - figures[0]) / (sizes[-1] - sizes[0]) for figures in spent]
        columns = " ".join(f"{median(figures) / 1_000:>8.3f}" for figures in zip(*spent, strict=True))
        met = met and median(more) <= MUST_MICROSECONDS
        judged = verdict(median(more), GOAL_MICROSECONDS, MUST_MICROSECONDS)
        print(f"{api:<12} {columns}   {spread(more)}  {judged}", flush=True)
    return met


def main() -> None:
    """Run the benchmark."""
    arguments = argparse.ArgumentParser(description="CPU of one turn against the length of its conversation")
    arguments.add_argument("--rounds", type=int, default=ROUNDS)
    arguments.add_argument("--size", type=int, action="append", help=f"instead of {SIZES}")
    arguments.add_argument("--api", action="append", choices=list(MODELS))
    chosen = arguments.parse_args()
    sizes = sorted(chosen.size or SIZES)
    pin(1)
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        del os.environ[name]  # the fake provider is on this machine
    print(f"Python {sys.version.split()[0]}, {chosen.rounds} rounds")
    met = measure_building(sizes, chosen.rounds) if len(sizes) > 1 else True
    if (PEERS / "clients_raw.py").is_file():
        sys.path.insert(0, str(PEERS))
        stand_in("orjson", dumps=msgspec.json.encode, loads=msgspec.json.decode)
        server = Process("--server")
        try:
            address = f"http://127.0.0.1:{server.hear()}"
            met = asyncio.run(measure_turns(address, chosen.api or list(MODELS), sizes, chosen.rounds)) and met
        finally:
            server.popen.kill()
            server.popen.communicate()
    else:
        print(f"no turns are sent: the peers benchmark is not in {PEERS} (BENCH_PEERS names another folder)")
    sys.exit(not met)


if __name__ == "__main__":
    main()
