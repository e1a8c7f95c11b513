"""What a streamed answer costs in CPU per event, beside the floor: aiohttp, typed msgspec and one generator, no checks.

`python bench/stream.py` prints both in one run, with the ratios. Ours is the public way: `dragoman.model(…)`,
`async with model.stream(…)`, every delta read, `stream.assembly` at the end; contract, guard and assembly included.

The floor (`aiohttp+msgspec+gen`), the fake provider and its payloads belong to the peers benchmark, which is no part of
this project: `../shared/bench/peers`, or the folder that BENCH_PEERS names. The scenario is that benchmark's main one:
2,000 deltas of text and 1,000 of tool arguments (`--deltas` replaces both), written in pieces of 64 KiB (K = 0), each
event its own HTTP chunk. Server and clients are processes of their own. Clients take turns in every round, a ratio is
formed within its round, and each answer is compared with what the server sent, outside the timed part.
"""

import argparse
import asyncio
import gc
import importlib
import json
import os
import runpy
import subprocess
import sys
import time
import types
from pathlib import Path
from statistics import median, quantiles
from typing import IO, Any

import msgspec

import dragoman

PEERS = Path(os.environ.get("BENCH_PEERS", Path(__file__).parents[2] / "shared" / "bench" / "peers"))
GOAL = 2.0  # times the floor
ROUNDS = 31
SHAPES = {"text": 2_000, "tools": 1_000}
MODELS = {"chat": "openai-chat:gpt-4o", "responses": "openai:gpt-4o", "anthropic": "anthropic:claude-sonnet-4-5"}
VERSIONED = {"chat", "responses"}  # APIs whose base URL ends in the version
CLIENTS = ("floor", "dragoman")

# Text of the answer, and name and argument text of each call.
Answer = tuple[str, list[tuple[str, str]]]


class Floor:
    """The peers benchmark's own lower bound."""

    def __init__(self, base: str, api: str) -> None:
        self._client = importlib.import_module("clients_raw").AiohttpMsgspecGen()
        self._place = (base, api)

    async def open(self) -> None:
        """Open the session."""
        await self._client.open(*self._place)

    async def ask(self) -> Answer:
        """Read one answer to its end."""
        answer: Answer = await self._client.once()
        return answer

    async def close(self) -> None:
        """Close the session."""
        await self._client.close()

    @staticmethod
    def said(answer: Answer) -> Answer:
        """Return the answer as text and calls."""
        return answer


class Ours:
    """This library, as its users call it."""

    def __init__(self, base: str, api: str) -> None:
        address = f"{base}/v1" if api in VERSIONED else base
        self._model = dragoman.model(MODELS[api], api_key="sk-fake", base_url=address)
        self._messages = [dragoman.Message.user("hi")]

    async def open(self) -> None:
        """Nothing: the first request opens the session."""

    async def ask(self) -> dragoman.Assembly:
        """Read one answer to its end."""
        async with self._model.stream(self._messages) as stream:
            async for _ in stream:
                pass
            return stream.assembly

    async def close(self) -> None:
        """Nothing: the session is shared, and closes with the event loop."""

    @staticmethod
    def said(assembly: dragoman.Assembly) -> Answer:
        """Return the answer as text and calls."""
        message = assembly.message
        assert message is not None, assembly.error
        return message.text, [(call.tool_name, call.raw_args_text) for call in message.tool_calls]


# ---------------------------------------------------------------- the processes


def stand_in(name: str, **functions: Any) -> None:
    """Provide what the peers' files import and this benchmark does not measure, where it is not installed."""
    try:
        importlib.import_module(name)
    except ImportError:
        module = types.ModuleType(name)
        vars(module).update(functions)
        sys.modules[name] = module


def pin(core: int) -> None:
    """Keep this process on one core where there are two."""
    if hasattr(os, "sched_setaffinity") and {0, 1} <= os.sched_getaffinity(0):
        os.sched_setaffinity(0, {core})


def run_server() -> None:
    """Be the fake provider. It prints its port."""
    pin(0)
    stand_in("uvloop", run=asyncio.run)
    gc.disable()
    sys.argv[1:] = []
    runpy.run_path(str(PEERS / "server.py"), run_name="__main__")


async def run_client(kind: str) -> None:
    """Be one client: answer each command line (base URL, API, shape, deltas) with the ms of CPU of one answer."""
    pin(1)
    stand_in("orjson", dumps=msgspec.json.encode, loads=msgspec.json.decode)
    render = importlib.import_module("payloads").render
    client: Floor | Ours | None = None
    place: list[str] = []
    for line in sys.stdin:
        base, api, shape, deltas = json.loads(line)
        if client is None or place != [base, api]:
            if client is not None:
                await client.close()
            client, place = (Floor if kind == "floor" else Ours)(base, api), [base, api]
            await client.open()
        gc.collect()
        begin = time.process_time_ns()
        answer = await client.ask()
        spent = time.process_time_ns() - begin
        expected = render(api, shape, deltas)[1]
        assert client.said(answer) == (expected["text"], [tuple(call) for call in expected["tools"]])  # type: ignore[arg-type]  # of its own client
        del answer
        print(spent, flush=True)
    if client is not None:
        await client.close()


class Process:
    """A copy of this script in another role, spoken to in lines."""

    def __init__(self, *role: str) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, __file__, *role],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")},
        )
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self._in: IO[str] = self.popen.stdin
        self._out: IO[str] = self.popen.stdout

    def hear(self) -> int:
        """Return the number that the process says next."""
        line = self._out.readline()
        if not line:
            raise SystemExit(f"{self.popen.args!r} ended early")
        return int(line)

    def tell(self, command: list[Any]) -> int:
        """Say a command and return the number that answers it."""
        self._in.write(json.dumps(command) + "\n")
        self._in.flush()
        return self.hear()


# ---------------------------------------------------------------- the run


def spread(figures: list[float]) -> str:
    """Return median and quartiles."""
    low, _, high = quantiles(figures, n=4)
    return f"{median(figures):5.2f} [{low:4.2f} to {high:4.2f}]"


def measure(rounds: int, shapes: dict[str, int], apis: list[str]) -> bool:
    """Print a line per API and shape; return whether all of them meet the goal."""
    render = importlib.import_module("payloads").render
    processes = [Process("--server")]
    try:
        address = f"http://127.0.0.1:{processes[0].hear()}"
        clients = [Process("--client", kind) for kind in CLIENTS]
        processes += clients
        met = True
        print(f"Python {sys.version.split()[0]}, {rounds} rounds; CPU µs per event: median [quartiles]")
        print(f"{'':<16} {'events':>6}   {'floor F':<21} {'dragoman':<21} {'ratio to F':<21} goal ≤ {GOAL:g}")
        for shape, deltas in shapes.items():
            for api in apis:
                events = len(render(api, shape, deltas)[0])
                command = [f"{address}/{shape}_{deltas}_k0_p0", api, shape, deltas]
                for client in clients:
                    client.tell(command)  # the first answer warms up and is not counted
                spent = [[client.tell(command) / 1_000 / events for client in clients] for _ in range(rounds)]
                ratios = [ours / floor for floor, ours in spent]
                met = met and median(ratios) <= GOAL
                columns = (*(spread(list(figures)) for figures in zip(*spent, strict=True)), spread(ratios))
                verdict = "met" if median(ratios) <= GOAL else "MISSED"
                print(f"{api + ' ' + shape:<16} {events:>6}   {'   '.join(columns)}  {verdict}", flush=True)
        return met
    finally:
        for process in processes:
            process.popen.kill()
            process.popen.communicate()


def main() -> None:
    """Play the role that the arguments name; without one, run the benchmark."""
    if not (PEERS / "clients_raw.py").is_file():
        print(f"skipped: the peers benchmark is not in {PEERS} (BENCH_PEERS names another folder)")
        return
    sys.path.insert(0, str(PEERS))
    arguments = argparse.ArgumentParser(description="CPU per streamed event, beside the floor")
    arguments.add_argument("--rounds", type=int, default=ROUNDS)
    arguments.add_argument("--deltas", type=int, help="deltas per answer, a multiple of 50")
    arguments.add_argument("--api", action="append", choices=list(MODELS))
    arguments.add_argument("--server", action="store_true", help=argparse.SUPPRESS)
    arguments.add_argument("--client", choices=CLIENTS, help=argparse.SUPPRESS)
    chosen = arguments.parse_args()
    if chosen.server:
        run_server()
    elif chosen.client:
        asyncio.run(run_client(chosen.client))
    else:
        shapes = dict.fromkeys(SHAPES, chosen.deltas) if chosen.deltas else SHAPES
        sys.exit(not measure(chosen.rounds, shapes, chosen.api or list(MODELS)))


if __name__ == "__main__":
    main()
