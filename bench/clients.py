"""The processes of the streaming benchmarks: a fake provider, and clients that are told in lines what to read.

The floor (`aiohttp+msgspec+gen`), the provider and its payloads belong to the peers benchmark, which is no part of this
project: `../shared/bench/peers`, or the folder that BENCH_PEERS names. Ours is the public way: `dragoman.model(…)`,
`async with model.stream(…)`, every delta read, `stream.assembly` at the end; contract, guard and assembly included.
Each answer is compared with what the server sent, outside the timed part.
"""

import asyncio
import gc
import importlib
import json
import os
import resource
import runpy
import subprocess
import sys
import tempfile
import time
import types
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

import msgspec

import dragoman
from dragoman.stream import Assembly

__all__ = [
    "MODELS",
    "PEERS",
    "VERSIONED",
    "Client",
    "Process",
    "Server",
    "events_of",
    "missing_peers",
    "pin",
    "stand_in",
]

ROOT = Path(__file__).parents[1]
PEERS = Path(os.environ.get("BENCH_PEERS", ROOT.parent / "shared" / "bench" / "peers"))
MODELS = {"chat": "openai-chat:gpt-4o", "responses": "openai:gpt-4o", "anthropic": "anthropic:claude-sonnet-4-5"}
VERSIONED = {"chat", "responses"}  # APIs whose base URL ends in the version

# Text of the answer, and name and argument text of each call.
Answer = tuple[str, list[tuple[str, str]]]


def missing_peers() -> str | None:
    """Return why there is nothing to measure beside, None if there is; make the peers' files importable."""
    if not (PEERS / "clients_raw.py").is_file():
        return f"the peers benchmark is not in {PEERS} (BENCH_PEERS names another folder)"
    if str(PEERS) not in sys.path:
        sys.path.insert(0, str(PEERS))
    stand_in("orjson", dumps=msgspec.json.encode, loads=msgspec.json.decode)
    return None


def events_of(api: str, shape: str, deltas: int) -> int:
    """Return how many events such an answer has."""
    return len(importlib.import_module("payloads").render(api, shape, deltas)[0])


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


# ---------------------------------------------------------------- who is spoken to


class Process:
    """A copy of this module in another role, spoken to in lines of JSON."""

    def __init__(self, *role: str) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "bench.clients", *role],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")},
        )
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self._in: IO[str] = self.popen.stdin
        self._out: IO[str] = self.popen.stdout

    def hear(self) -> Any:
        """Return what the process says next."""
        line = self._out.readline()
        if not line:
            raise SystemExit(f"{self.popen.args!r} ended early")
        return json.loads(line)

    def tell(self, *command: Any) -> Any:
        """Say a command and return what answers it."""
        self._in.write(json.dumps(command) + "\n")
        self._in.flush()
        return self.hear()

    def end(self) -> None:
        """End the process."""
        self.popen.kill()
        self.popen.communicate()


class Server(Process):
    """The fake provider."""

    def __init__(self) -> None:
        super().__init__("server")
        self.address = f"http://127.0.0.1:{self.hear()}"

    def answers(self, shape: str, deltas: int, events_a_write: int = 0, pause: str = "0") -> str:
        """Return the base URL under which it answers so: all events in writes of 64 KiB, or so many in each."""
        return f"{self.address}/{shape}_{deltas}_k{events_a_write}_p{pause}"

    def log(self) -> list[dict[str, Any]]:
        """Return what it noted of each request since it was last asked: times of the monotonic clock."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{self.address}/_log", timeout=10) as answer:
            log: list[dict[str, Any]] = json.loads(answer.read())
        return log


class Client(Process):
    """One client in a process of its own: `floor`, `dragoman`, `agent`, or `dragoman/uvloop`."""

    def __init__(self, kind: str) -> None:
        super().__init__("client", kind)

    def burst(self, base: str, api: str, shape: str, deltas: int) -> float:
        """Return the µs of CPU of one answer."""
        return float(self.tell("burst", base, api, shape, deltas))

    def first(self, base: str, api: str) -> tuple[int, int]:
        """Return when it called and when it had the first piece of text, in ns of the monotonic clock."""
        called, had = self.tell("first", base, api, "text", 12)
        return called, had

    def many(self, base: str, api: str, deltas: int, streams: int) -> tuple[float, float]:
        """Return the seconds of CPU of so many answers at once, and the MB by which the process grew at its peak."""
        spent, grown = self.tell("many", base, api, "text", deltas, streams)
        return spent, grown


@contextmanager
def running(kinds: Sequence[str]) -> Iterator[tuple[Server, list[Client]]]:
    """The provider and clients of these kinds, ended afterwards."""
    processes: list[Process] = []
    try:
        server = Server()
        processes.append(server)
        clients = []
        for kind in kinds:
            clients.append(Client(kind))
            processes.append(clients[-1])
        yield server, clients
    finally:
        for process in processes:
            process.end()


# ---------------------------------------------------------------- who they are


class Asker(Protocol):
    """What a client process holds for one base URL and API."""

    async def open(self) -> None:
        """Make it ready for the next answer, outside the timed part."""

    async def ask(self, first: Callable[[], None] | None = None) -> Any:
        """Read one answer to its end; say when its first piece of text was there."""

    async def close(self) -> None:
        """Give back what was opened."""

    def said(self, answer: Any) -> Answer:
        """Return the answer as text and calls."""


class Floor:
    """The peers benchmark's own lower bound."""

    def __init__(self, base: str, api: str) -> None:
        self._client = importlib.import_module("clients_raw").AiohttpMsgspecGen()
        self._place: tuple[str, str] | None = (base, api)

    async def open(self) -> None:
        """Open the session."""
        if self._place is not None:
            await self._client.open(*self._place)
            self._place = None

    async def ask(self, first: Callable[[], None] | None = None) -> Answer:
        """Read one answer to its end."""
        answer: Answer = await self._client.once(first)
        return answer

    async def close(self) -> None:
        """Close the session."""
        await self._client.close()

    def said(self, answer: Answer) -> Answer:
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

    async def ask(self, first: Callable[[], None] | None = None) -> Assembly:
        """Read one answer to its end."""
        async with self._model.stream(self._messages) as stream:
            if first is not None:
                async for delta in stream:
                    if delta.kind == "text":
                        first()
                        break
            async for _ in stream:
                pass
            return stream.assembly

    async def close(self) -> None:
        """Nothing: the session is shared, and closes with the event loop."""

    def said(self, assembly: Assembly) -> Answer:
        """Return the answer as text and calls."""
        message = assembly.message
        assert message is not None, assembly.error
        return message.text, [(call.tool_name, call.raw_args_text) for call in message.tool_calls]


class OurAgent(Ours):
    """An agent with a session in SQLite, a new one for each answer, and all events of its run read."""

    def __init__(self, base: str, api: str) -> None:
        from dragoman.store import SQLiteStore

        super().__init__(base, api)
        self._folder = tempfile.TemporaryDirectory()
        self._store = SQLiteStore(Path(self._folder.name) / "sessions.db")
        self._sessions = 0

    async def open(self) -> None:
        """Start a session."""
        from dragoman.store import start_session

        self._sessions += 1
        session = await start_session(self._store, f"session-{self._sessions}")
        self._agent = dragoman.Agent(self._model, session=session)

    async def ask(self, _first: Callable[[], None] | None = None) -> Any:
        """Read one run to its end."""
        run = self._agent.stream("hi")
        async for _ in run:
            pass
        return await run.result()

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()
        self._folder.cleanup()

    def said(self, result: Any) -> Answer:
        """Return the answer as text and calls."""
        assert result.message is not None, result
        return result.message.text, []


KINDS: dict[str, Callable[[str, str], Asker]] = {"floor": Floor, "dragoman": Ours, "agent": OurAgent}


class ClientRole:
    """What a client process does: one command line after the other."""

    def __init__(self, kind: str) -> None:
        self._kind = kind.partition("/")[0]
        self._asker: Asker | None = None
        self._place: tuple[str, str] | None = None

    async def run(self) -> None:
        """Answer every command with a line."""
        for line in sys.stdin:
            what, base, api, shape, deltas, *rest = json.loads(line)
            print(
                json.dumps(await getattr(self, what)(await self._at(base, api), api, shape, deltas, *rest)), flush=True
            )
        if self._asker is not None:
            await self._asker.close()

    async def burst(self, asker: Asker, api: str, shape: str, deltas: int) -> float:
        """Return the µs of CPU of one answer."""
        await asker.open()
        gc.collect()
        begin = time.process_time_ns()
        answer = await asker.ask()
        spent = time.process_time_ns() - begin
        _require_same(asker.said(answer), api, shape, deltas)
        return spent / 1_000

    async def first(self, asker: Asker, *_: object) -> tuple[int, int]:
        """Return when it was called and when the first piece of text was there."""
        await asker.open()
        seen: list[int] = []
        gc.collect()
        begin = time.monotonic_ns()
        await asker.ask(lambda: seen.append(time.monotonic_ns()))
        return begin, seen[0]

    async def many(self, asker: Asker, api: str, shape: str, deltas: int, streams: int) -> tuple[float, float]:
        """Return the seconds of CPU and the MB of growth of many answers at once."""
        await self.burst(asker, api, shape, deltas)
        gc.collect()
        before, begin = resident(), time.process_time_ns()
        answers = await asyncio.gather(*(asker.ask() for _ in range(streams)))
        spent = time.process_time_ns() - begin
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024 / 1e6 - before
        for answer in answers:
            _require_same(asker.said(answer), api, shape, deltas)
        return spent / 1e9, grown

    async def _at(self, base: str, api: str) -> Asker:
        if self._asker is None or self._place != (base, api):
            if self._asker is not None:
                await self._asker.close()
            self._asker, self._place = KINDS[self._kind](base, api), (base, api)
        return self._asker


def resident() -> float:
    """Return the MB of memory that this process has in use, 0 where the system does not say."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6 if status.exists() else 0.0


def _require_same(said: Answer, api: str, shape: str, deltas: int) -> None:
    expected = importlib.import_module("payloads").render(api, shape, deltas)[1]
    assert said == (expected["text"], [tuple(call) for call in expected["tools"]])


def _serve() -> None:
    """Be the fake provider. It prints its port."""
    pin(0)
    stand_in("uvloop", run=asyncio.run)
    gc.disable()
    sys.argv[1:] = []
    runpy.run_path(str(PEERS / "server.py"), run_name="__main__")


def main() -> None:
    """Play the role that the arguments name."""
    role, *kind = sys.argv[1:]
    if problem := missing_peers():
        raise SystemExit(problem)
    if role.endswith("server"):
        _serve()
    else:
        pin(1)
        run = importlib.import_module("uvloop").run if kind[0].endswith("/uvloop") else asyncio.run
        run(ClientRole(*kind).run())


if __name__ == "__main__":
    main()
