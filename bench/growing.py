"""What a long conversation adds to a turn, as figures: `bench/growth.py` measures, here is what it is held against."""

import asyncio
import importlib
import json
import subprocess
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from bench.clients import MODELS, PEERS, missing_peers, running
from bench.growth import BUILT, Building, Turns
from bench.measuring import Figure, Part, Skipped

__all__ = ["PARTS"]

SHORT, LONG = 10, 10_000
TURN, MESSAGE = "one turn at {:,} messages", "building a request, per message already there"


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
