"""Two hundred agents in one process, each with a stream of its own from a real server that takes its time.

`python bench/agents.py` prints three things: whether all of them finish, and the slowest soon after the median; what an
agent takes in memory while it waits for the first byte of its answer; and whether those that are stopped, before the
first byte or in the middle of a stream, close their connections. The server is a process of its own on the loopback
interface; it writes the answers piece by piece, with pauses, and counts who has left.
"""

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import IO

from dragoman import AgentStatus, Model, model
from dragoman.agent import Agent, AgentRun, DeltaEvent
from dragoman.transport import AiohttpTransport

AGENTS = 200
PIECES = 40
PAUSE = 0.05  # seconds between pieces
SLOWEST_GOAL = 2.0  # times the median
MEMORY_GOAL = 100.0  # KB of a run that waits

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
WORD = "some words and "


# ---------------------------------------------------------------- the server


class Server:
    """Answers in the manner that the path begins with: /slow with pauses, /idle never, /endless without an end."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(length)
            manner = head.split(b" ")[1].split(b"/")[1].decode()
            self.counts[f"{manner} asked"] += 1
            gone = asyncio.ensure_future(reader.read())  # ends when the client closes
            finished = await self._answer(manner, writer, gone)
            self.counts[f"{manner} {'finished' if finished else 'left'}"] += 1
            gone.cancel()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, manner: str, writer: asyncio.StreamWriter, gone: "asyncio.Future[bytes]") -> bool:
        """Return whether the whole answer was written before the client left."""
        if manner == "idle":
            await gone
            return False
        writer.write(HEAD)
        number = 0
        while manner == "endless" or number < PIECES:
            writer.write(event({"index": 0, "delta": {"content": WORD}}))
            await asyncio.wait((gone,), timeout=PAUSE)
            if gone.done():
                return False
            number += 1
        writer.write(event({"index": 0, "delta": {}, "finish_reason": "stop"}) + b"data: [DONE]\n\n")
        await writer.drain()
        return True


def event(choice: dict[str, object]) -> bytes:
    """Return an event of the Chat Completions API."""
    return f"data: {json.dumps({'id': 'c', 'model': 'm', 'choices': [choice]})}\n\n".encode()


async def run_server() -> None:
    """Serve; print the port, and what was counted for each line of the standard input."""
    server = Server()
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, backlog=4 * AGENTS)
    print(listener.sockets[0].getsockname()[1], flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(server.counts), flush=True)
    os._exit(0)


class ServerProcess:
    """The server, in a process of its own."""

    def __init__(self) -> None:
        command = [sys.executable, __file__, "--server"]
        self.popen = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self._in: IO[str] = self.popen.stdin
        self._out: IO[str] = self.popen.stdout
        self.address = f"http://127.0.0.1:{int(self._out.readline())}"

    def counts(self) -> dict[str, int]:
        """Return what the server has counted so far."""
        self._in.write("\n")
        self._in.flush()
        counts: dict[str, int] = json.loads(self._out.readline())
        return counts

    async def until(self, what: str, number: int) -> int:
        """Wait, a few seconds at most, until the server has counted so many; return how many it has."""
        for _ in range(100):
            if self.counts().get(what, 0) >= number:
                break
            await asyncio.sleep(0.05)
        return self.counts().get(what, 0)

    def close(self) -> None:
        """End the process."""
        self.popen.kill()
        self.popen.communicate()


# ---------------------------------------------------------------- the agents


def asked(server: ServerProcess, manner: str) -> Model:
    """Return a model of the server that answers in this manner."""
    base = f"{server.address}/{manner}/v1"
    return model("openai-chat:gpt-4o", api_key="sk-fake", base_url=base, transport=TRANSPORT)


TRANSPORT = AiohttpTransport(trust_env=False)


async def first_words(run: AgentRun[str]) -> None:
    """Read until the answer has begun."""
    async for each in run:
        if isinstance(each, DeltaEvent) and each.delta.kind == "text":
            return


async def stop_all(runs: list[AgentRun[str]]) -> bool:
    """Abort all of them; return whether each says that it was."""
    results = await asyncio.gather(*(run.abort() for run in runs))
    return all(result.status is AgentStatus.ABORTED for result in results)


def resident() -> float:
    """Return the KB of memory that this process has in use, 0 where the system does not say."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1_000 if status.exists() else 0.0


def say(label: str, figure: str, met: bool | None = None) -> bool:
    """Print one line; return whether its goal is met, if it has one."""
    print(f"  {label:<58} {figure}{'' if met is None else '   met' if met else '   MISSED'}", flush=True)
    return met is not False


# ---------------------------------------------------------------- what is measured


async def measure_streams(server: ServerProcess, count: int) -> bool:
    """All agents stream at the same time."""

    async def one() -> float:
        agent = Agent(asked(server, "slow"))
        begin = time.perf_counter()
        run = agent.stream("Tell me something.")
        async for _ in run:
            pass
        result = await run.result()
        assert result.output == WORD * PIECES, result
        return time.perf_counter() - begin

    await one()  # warms up
    spent = time.process_time()
    seconds = await asyncio.gather(*(one() for _ in range(count)))
    spent = time.process_time() - spent
    ratio = max(seconds) / median(seconds)
    print(f"{count} agents, each with a stream of {PIECES} pieces in {PIECES * PAUSE:g} seconds")
    say("finished", f"{len(seconds)}")
    say("median", f"{median(seconds):.2f} s, slowest {max(seconds):.2f} s; {spent / count * 1e3:.1f} ms of CPU each")
    return say("slowest, of the median", f"{ratio:.2f}   goal ≤ {SLOWEST_GOAL:g}", ratio <= SLOWEST_GOAL)


async def measure_memory(server: ServerProcess, count: int) -> bool:
    """All agents wait for their first byte."""
    known = server.counts().get("idle asked", 0)
    warm = Agent(asked(server, "idle")).stream("Tell me something.")
    await server.until("idle asked", known + 1)
    before_resident = resident()
    tracemalloc.start()
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    agents = [Agent(asked(server, "idle")) for _ in range(count)]
    runs = [agent.stream("Tell me something.") for agent in agents]
    waiting = await server.until("idle asked", known + 1 + count)
    gc.collect()
    each = (tracemalloc.get_traced_memory()[0] - before) / count / 1_000
    tracemalloc.stop()
    grown = (resident() - before_resident) / count  # with what tracemalloc itself takes
    print(f"{count} agents that wait for the first byte ({waiting - known - 1} have asked)")
    met = say("memory of a run, as Python counts it", f"{each:.1f} KB   goal < {MEMORY_GOAL:g}", each < MEMORY_GOAL)
    say("growth of the process, with what the counting takes", f"{grown:.1f} KB each")
    await stop_all([warm, *runs])
    return met


async def measure_stopping(server: ServerProcess, count: int) -> bool:
    """All agents are stopped: half before the first byte, half in the middle of a stream."""
    met = True
    for manner, ready in (("idle", None), ("endless", first_words)):
        met = await stopped(server, manner, ready, count) and met
    return met


async def stopped(
    server: ServerProcess, manner: str, ready: Callable[[AgentRun[str]], Awaitable[None]] | None, count: int
) -> bool:
    """Stop agents in one manner, and say whether the server saw it."""
    before = server.counts()
    runs = [Agent(asked(server, manner)).stream("Tell me something.") for _ in range(count)]
    await server.until(f"{manner} asked", before.get(f"{manner} asked", 0) + count)
    if ready is not None:
        await asyncio.gather(*(ready(run) for run in runs))
    begin = time.perf_counter()
    was_aborted = await stop_all(runs)
    took = time.perf_counter() - begin
    left = await server.until(f"{manner} left", before.get(f"{manner} left", 0) + count)
    left -= before.get(f"{manner} left", 0)
    where = "before the first byte" if ready is None else "in the middle of a stream"
    figure = f"{left} of {count} connections closed, in {took:.2f} s"
    return say(f"stopped {where}", figure, left == count and was_aborted)


async def measure(count: int) -> bool:
    """Measure everything; return whether every goal is met."""
    server = ServerProcess()
    try:
        met = [
            await measure_streams(server, count),
            await measure_memory(server, count),
            await measure_stopping(server, count),
        ]
    finally:
        await TRANSPORT.close()
        server.close()
    return all(met)


def main() -> None:
    """Be the server, or measure."""
    parser = argparse.ArgumentParser(description="Many agents at once in one process")
    parser.add_argument("--agents", type=int, default=AGENTS)
    parser.add_argument("--server", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.server:
        asyncio.run(run_server())
    else:
        print(f"Python {sys.version.split()[0]}")
        sys.exit(not asyncio.run(measure(chosen.agents)))


if __name__ == "__main__":
    main()
