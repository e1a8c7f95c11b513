"""What a streamed answer costs beside the floor: aiohttp, typed msgspec and one generator, no checks.

Server and clients are processes of their own (`bench/clients.py`), clients take turns in every round, and a ratio is
formed within its round. The main scenario is the peers benchmark's: 2,000 deltas of text and 1,000 of tool arguments,
written in pieces of 64 KiB, each event its own HTTP chunk.
"""

import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.clients import MODELS, Client, events_of, running
from bench.measuring import Figure, Part, Skipped

__all__ = ["PARTS"]

FLOOR = "aiohttp+msgspec+gen"
SHAPES = {"text": 2_000, "tools": 1_000}
# Deltas before the first piece of text, as the fake provider writes them.
FIRST_TEXT = {"chat": 1, "responses": 4, "anthropic": 3}
# Peer -> what must be and what is hoped for: how many times cheaper ours is, on the API that it is asked through.
PEER_GOALS = {
    "openai": ("chat", 20, 25),
    "strands.model": ("chat", 20, 25),
    "openai-agents.model": ("chat", 20, 25),
    "langchain": ("chat", 20, 25),
    "pydantic-ai.direct": ("chat", 20, 25),
    "anthropic": ("anthropic", 5, 8),
    "litellm": ("chat", 80, 100),
}


def measure_burst(quick: bool, peers: Sequence[str]) -> Iterator[Figure | Skipped]:
    """CPU per event of answers that come as fast as the socket gives them, through a model and through an agent."""
    rounds = 5 if quick else 31
    cells = [(shape, deltas, api) for shape, deltas in SHAPES.items() for api in MODELS]
    with running(("floor", "dragoman", "agent")) as (server, (floor, ours, agent)):
        workers = _workers(peers)
        spent: dict[tuple[str, str, str], list[float]] = {}

        def ask(name: str, client: Any, shape: str, deltas: int, api: str, *, counts: bool) -> None:
            cpu = client.burst(server.answers(shape, deltas), api, shape, deltas) / events_of(api, shape, deltas)
            if counts:
                spent.setdefault((name, shape, api), []).append(cpu)

        for number in range(rounds + 1):  # the first round warms up
            for shape, deltas, api in cells:
                ask("floor", floor, shape, deltas, api, counts=number > 0)
                ask("dragoman", ours, shape, deltas, api, counts=number > 0)
                if shape == "text":
                    ask("agent", agent, shape, deltas, api, counts=number > 0)
                    for peer, worker in workers.items():
                        if PEER_GOALS[peer][0] == api and number < 10:
                            ask(peer, worker, shape, deltas, api, counts=number > 0)
        for worker in workers.values():
            worker.end()
    unit = "µs of CPU per event"
    for shape, _, api in cells:
        figures = spent["dragoman", shape, api], spent["floor", shape, api]
        yield Figure(f"burst, {shape}", api, unit, FLOOR, *figures, must=1.5, goal=1.2)
    for api in MODELS:
        figures = spent["agent", "text", api], spent["floor", "text", api]
        yield Figure("burst through Agent.stream, SQLite session", api, unit, FLOOR, *figures, must=2.5, goal=1.8)
    yield from _peer_figures(peers, spent)


def measure_paced(quick: bool, _peers: Sequence[str]) -> Iterator[Figure | Skipped]:
    """CPU per event where each event wakes the client up."""
    deltas = 150 if quick else 400
    kinds = ["floor", "dragoman"]
    has_uvloop = importlib.util.find_spec("uvloop") is not None
    if has_uvloop:
        kinds.append("dragoman/uvloop")
    with running(kinds) as (server, clients):
        base, events = server.answers("text", deltas, 1, "1000"), events_of("chat", "text", deltas)
        rounds = [
            [client.burst(base, "chat", "text", deltas) / events for client in clients] for _ in _rounds(quick, 25)
        ]
    floors, ours, *on_uvloop = zip(*rounds[1:], strict=True)
    unit = "µs of CPU per event"
    yield Figure("paced, one event per wake-up", "chat", unit, FLOOR, ours, floors, must=1.15)
    for figures in on_uvloop:
        yield Figure("paced, one event per wake-up", "chat, uvloop", unit, FLOOR, figures, floors, goal=0.7)
    if not has_uvloop:
        yield Skipped("paced, on uvloop", "uvloop is not installed")


def measure_first(quick: bool, _peers: Sequence[str]) -> Iterator[Figure]:
    """Time of a warm client from its call to the request on the wire, and from the first piece of text to its delta."""
    with running(("floor", "dragoman")) as (server, clients):
        base = server.answers("text", 12, 1, "3000")
        for api, place in FIRST_TEXT.items():
            rounds = []
            for _ in _rounds(quick, 75):
                row = []
                for client in clients:
                    server.log()
                    called, had = client.first(base, api)
                    noted = server.log()[-1]
                    row.append((noted["t_body"] - called + had - noted["t_w"][place]) / 1_000)
                rounds.append(row)
            floors, ours = zip(*rounds[1:], strict=True)
            yield Figure("warm time to first delta", api, "µs", FLOOR, ours, floors, must=1.3, goal=1.1)


def measure_many(quick: bool, _peers: Sequence[str]) -> Iterator[Figure]:
    """CPU and growth of 200 answers at once, each round in fresh processes: what they have grown by stays."""
    streams, deltas = (50, 200) if quick else (200, 500)
    rounds = []
    for _ in range(2 if quick else 5):
        row = []
        for kind in ("floor", "dragoman"):
            with running((kind,)) as (server, (client,)):
                row.append(client.many(server.answers("text", deltas, 1, "y"), "chat", deltas, streams))
        rounds.append(row)
    title = f"{streams} streams at once, {deltas} deltas each"
    (floor_cpu, floor_growth), (cpu, growth) = (zip(*side, strict=True) for side in zip(*rounds, strict=True))
    yield Figure(title, "seconds of CPU", "s, MB", FLOOR, cpu, floor_cpu, must=1.5, goal=1.2)
    yield Figure(title, "MB of growth", "s, MB", FLOOR, growth, floor_growth, must=2.0, goal=1.2)


def measure_long(quick: bool, _peers: Sequence[str]) -> Iterator[Figure]:
    """CPU per event of an answer ten times as long."""
    with running(("dragoman",)) as (server, (client,)):
        for api in ("chat", "anthropic"):
            rounds = [
                [_per_event(client, server.answers("text", deltas), api, deltas) for deltas in (20_000, 2_000)]
                for _ in _rounds(quick, 11)
            ]
            long, short = zip(*rounds[1:], strict=True)
            unit = "µs of CPU per event"
            yield Figure("20,000 deltas", api, unit, "2,000 deltas", long, short, must=1.1, goal=1.0)


PARTS = [
    Part("burst", measure_burst),
    Part("paced", measure_paced),
    Part("first", measure_first),
    Part("many", measure_many),
    Part("long", measure_long),
]


def _rounds(quick: bool, full: int) -> range:
    """The rounds, and one before them to warm up, which the caller leaves out."""
    return range((3 if quick else full) + 1)


def _per_event(client: Client, base: str, api: str, deltas: int) -> float:
    return client.burst(base, api, "text", deltas) / events_of(api, "text", deltas)


# ---------------------------------------------------------------- the peers, each in an environment of its own


class PeerWorker:
    """A client of the peers benchmark, in its own process and environment."""

    def __init__(self, name: str) -> None:
        self._worker = importlib.import_module("harness").Worker(name)
        self.problem: str | None = None if self._worker.ready.get("ok") else self._worker.ready.get("err", "unknown")

    def burst(self, base: str, api: str, shape: str, deltas: int) -> float:
        """Return the µs of CPU of one answer."""
        answer = self._worker.ask(op="stream", base=base, api=api, shape=shape, n=deltas)
        if not answer.get("ok"):
            raise SystemExit(f"{self._worker.name}: {answer.get('err')}")
        return float(answer["runs"][0][1]) * 1e6

    def end(self) -> None:
        """End the process."""
        self._worker.close()


def installed_peers() -> list[str]:
    """Return those of the peers whose environments stand (the peers benchmark's `setup_venvs.sh` makes them)."""
    harness = importlib.import_module("harness")
    return [peer for peer in PEER_GOALS if Path(harness.py(harness.CLIENTS[peer][0])).exists()]


def _workers(peers: Sequence[str]) -> dict[str, PeerWorker]:
    workers = {peer: PeerWorker(peer) for peer in installed_peers() if peer in peers} if peers else {}
    return {peer: worker for peer, worker in workers.items() if worker.problem is None}


def _peer_figures(peers: Sequence[str], spent: dict[tuple[str, str, str], list[float]]) -> Iterator[Figure | Skipped]:
    row = "against the peers, burst of text"
    for peer in peers:
        api, must, goal = PEER_GOALS[peer]
        theirs = spent.get((peer, "text", api))
        if theirs is None:
            yield Skipped(f"{row}: {peer}", "its environment does not stand, or does not start")
        else:
            ours = spent["dragoman", "text", api][: len(theirs)]
            unit = "µs of CPU per event; ratio of theirs to ours"
            yield Figure(row, f"{peer}, {api}", unit, peer, ours, theirs, must=must, goal=goal, at_least=True)
