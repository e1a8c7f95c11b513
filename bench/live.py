"""What it costs to follow answers under way through PostgreSQL: a worker, readers and the server, each a process.

The worker shares 50 answers of 50 deltas a second. A reader follows all of them. Another one follows the first of them
and comes back 100 times, at random moments, with the position that it had. Each delta says when it was made, by a clock
that all processes of a machine share. The CPU of the worker is what sharing adds to making the deltas.
"""

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, aclosing
from datetime import UTC, datetime
from pathlib import Path
from statistics import quantiles
from typing import Any

from bench.measuring import Figure, Part, Skipped
from dragoman.delta import DoneDelta, KnownDelta, StartDelta, TextDelta
from dragoman.history import ModelOutputEntry
from dragoman.message import FinishReason, Message
from dragoman.store import (
    AnswerDeltas,
    AnswerTail,
    AnswerText,
    FollowedDelta,
    FollowedEntry,
    Position,
    PostgresStore,
    open_session,
    start_session,
)

__all__ = ["PARTS"]

ROOT = Path(__file__).parents[1]
STREAMS = 50
RATE = 50  # deltas a second of each stream
RETURNS = 100
WHOLE = "readers with the whole text"


def measure_live(quick: bool, _peers: Sequence[str]) -> Iterator[Figure | Skipped]:
    """Delay, CPU and texts of 50 streams."""
    from tests.postgres_server import missing, running_server

    row = f"answers under way, PostgreSQL, {STREAMS} streams of {RATE} deltas/s"
    problem = missing()
    if problem is not None:
        yield Skipped(row, problem)
        return
    with running_server() as server:
        rounds = [_round(server.dsn, server.data, number, 3 if quick else 12) for number in range(1 if quick else 5)]
    for name in rounds[0]:
        samples, must, unit = [each[name] for each in rounds], None, "µs of CPU per delta"
        if name.startswith("delay"):
            unit, must = "ms", 20.0 if "median" in name else None
        elif name == WHOLE:
            unit, must = f"of {STREAMS + 1}", STREAMS + 1
        elif name == "worker and reader":
            must = 100.0
        yield Figure(f"{row}: {unit}", name, unit, "", samples, must=must, at_least=name == WHOLE)


PARTS = [Part("live", measure_live)]


def _round(dsn: str, data: Path | None, number: int, seconds: int) -> dict[str, float]:
    """Run a worker and two readers over new sessions, and return what they measured."""
    schema = f"live_{os.getpid()}_{number}"
    asyncio.run(_prepare(dsn, schema))
    programs: list[subprocess.Popen[str]] = []
    try:
        for task in ("read", "return", "work"):
            command = [sys.executable, "-m", "bench.live", task, dsn, schema, str(seconds)]
            programs.append(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True))
            assert programs[-1].stdout is not None
            assert programs[-1].stdout.readline() == "ready\n"
        before = _server_cpu(data)
        read, returned, written = (json.loads(program.communicate(timeout=300)[0]) for program in programs)
        spent = _server_cpu(data) - before
    finally:
        for program in programs:
            program.kill()
    wrong = sum(read["texts"][name] != text for name, text in written["texts"].items())
    wrong += returned["texts"]["s0"] != written["texts"]["s0"]
    deltas = STREAMS * RATE * seconds
    return {
        "delay, median": read["delays"][49],
        "delay, 99th percentile": read["delays"][98],
        "worker and reader": (written["cpu"] + read["cpu"]) / deltas * 1e6,
        "worker": written["cpu"] / deltas * 1e6,
        "the same worker, not sharing": written["floor"] / deltas * 1e6,
        "reader": read["cpu"] / deltas * 1e6,
        "PostgreSQL": spent / deltas * 1e6,
        WHOLE: float(len(written["texts"]) + 1 - wrong),
    }


def _server_cpu(data: Path | None) -> float:
    """The seconds that the server and its processes have taken; nothing is known of a server elsewhere."""
    if data is None:
        return float("nan")
    parent = (data / "postmaster.pid").read_text(encoding="ascii").split("\n", 1)[0]
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if stat.parent.name == parent:
            ticks += sum(int(field) for field in fields[11:15])  # those of its children that have ended, too
        elif fields[1] == parent:
            ticks += sum(int(field) for field in fields[11:13])
    return ticks / os.sysconf("SC_CLK_TCK")


# ---------------------------------------------------------------- the programs


async def _prepare(dsn: str, schema: str) -> None:
    async with PostgresStore(dsn, schema=schema) as store:
        await store.migrate()
        for number in range(STREAMS):
            await start_session(store, f"s{number}")


async def _work(store: PostgresStore, seconds: int) -> dict[str, Any]:
    sessions = [await open_session(store, f"s{number}", live=True) for number in range(STREAMS)]
    async with AsyncExitStack() as stack:
        for session in sessions:
            await stack.enter_async_context(session.hold(seconds=60))
        _say("ready")
        begin = time.process_time()
        texts = await asyncio.gather(*(_share(session.begin_tail(), seconds) for session in sessions))
        cpu = time.process_time() - begin
        for session, text in zip(sessions, texts, strict=True):
            await session.append(ModelOutputEntry(Message.assistant(text)))
    begin = time.process_time()
    await asyncio.gather(*(_share(None, seconds) for _ in sessions))
    floor = time.process_time() - begin
    return {
        "cpu": cpu - floor,
        "floor": floor,
        "texts": dict(zip((session.session_id for session in sessions), texts, strict=True)),
    }


async def _share(tail: AnswerTail | None, seconds: int) -> str:
    """Make the deltas of an answer at the rate of a model, and share them. Each word says when it was made."""
    count, pieces = seconds * RATE, list[str]()
    loop = asyncio.get_running_loop()
    begin = loop.time() + random.random() / RATE
    for number in range(count):
        await asyncio.sleep(max(0.0, begin + number / RATE - loop.time()))
        now, delta = datetime.now(UTC), None
        if number in (0, count - 1):
            end: KnownDelta = DoneDelta("run", number, now, FinishReason.STOP)
            delta = end if number else StartDelta("run", 0, now)
        else:
            pieces.append(f"{time.monotonic_ns()} ")
            delta = TextDelta("run", number, now, pieces[-1])
        if tail is not None:
            tail.add(delta)
    return "".join(pieces)


async def _read(store: PostgresStore, _seconds: int) -> dict[str, Any]:
    delays: list[float] = []
    texts: dict[str, str] = {}
    begin = 0.0

    async def follow(session_id: str) -> None:
        nonlocal begin
        answers, text = AnswerDeltas(), AnswerText()
        async with aclosing(store.follow_live(session_id)) as followed:
            async for item in followed:
                if isinstance(item, FollowedDelta) and isinstance(item.delta, TextDelta):
                    begin = begin or time.process_time()
                    delays.append((time.monotonic_ns() - int(item.delta.text_delta)) / 1e6)
                for each in answers.feed(item):
                    text.feed(each.delta)
                if isinstance(item, FollowedEntry):
                    break
        texts[session_id] = text.text

    followers = [asyncio.ensure_future(follow(f"s{number}")) for number in range(STREAMS)]
    await asyncio.sleep(1)
    _say("ready")
    await asyncio.gather(*followers)
    cpu = time.process_time() - begin
    return {"cpu": cpu, "delays": quantiles(delays, n=100), "texts": texts}


async def _return(store: PostgresStore, seconds: int) -> dict[str, Any]:
    text, position, is_over = AnswerText(), str(Position()), False
    chance = random.Random(7)
    _say("ready")
    while not is_over:
        answers = AnswerDeltas(position)
        deadline = asyncio.get_running_loop().time() + chance.random() * 2 * seconds / RETURNS
        async with aclosing(store.follow_live("s0", position)) as followed:
            try:
                async with asyncio.timeout_at(deadline):
                    async for item in followed:
                        for each in answers.feed(item):
                            text.feed(each.delta)
                            position = str(each.position)
                        is_over = isinstance(item, FollowedEntry)
                        if is_over:
                            break
            except TimeoutError:
                pass
    return {"texts": {"s0": text.text}}


def _say(line: str) -> None:
    print(line, flush=True)


def main() -> None:
    """Be one of the programs, and print what it measured."""
    task, dsn, schema, seconds = sys.argv[1:]

    async def run() -> None:
        async with PostgresStore(dsn, schema=schema) as store:
            program = {"work": _work, "read": _read, "return": _return}[task]
            _say(json.dumps(await program(store, int(seconds))))

    asyncio.run(run())


if __name__ == "__main__":
    main()
