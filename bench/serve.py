"""What the gateway costs for each event of a streamed answer, beside the floor: a bare client of the same answer.

Provider, gateway and client are processes of their own. The client is the floor itself: it reads the same answer from
the provider and through the gateway, and compares it. What counts is the CPU of the gateway's process, all of its
threads, its record in SQLite included. In a burst, events come together; paced, each comes by itself.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.clients import ROOT, Client, Server, events_of, running
from bench.measuring import Figure, Part, Skipped

__all__ = ["PARTS"]

FLOOR = "aiohttp+msgspec+gen"
# What is measured -> the model behind the gateway, and what must be. The client speaks Chat Completions.
WAYS = {
    "passed": ("openai-chat:gpt-4o", 1.5),
    "translated from Messages": ("anthropic:claude-sonnet-4-5", 3.0),
    "translated from Responses": ("openai:gpt-4o", 3.0),
}
STREAMS = 200


def measure_serve(quick: bool, _peers: Sequence[str]) -> Iterator[Figure | Skipped]:
    """CPU per event of the gateway, in a burst and paced; 200 streams at once; memory over many requests."""
    if not Path("/proc/self/schedstat").exists():
        yield Skipped("the gateway", "this system does not tell the CPU time of another process in nanoseconds")
        return
    unit, rounds = "µs of CPU per event", 4 if quick else 21
    with running(("floor",)) as (server, (client,)):
        for name, shape, deltas, pace in (("burst", "text", 2_000, (0, "0")), ("paced", "text", 100, (1, "1000"))):
            base = server.answers(shape, deltas, *pace)
            events = events_of("chat", shape, deltas)
            spent: dict[str, list[float]] = {way: [] for way in ("floor", *WAYS)}
            with ExitStack() as stack:
                gateways = {way: stack.enter_context(gateway(base, model)) for way, (model, _) in WAYS.items()}
                for number in range(rounds if name == "burst" else 3 if quick else 9):
                    direct = client.burst(base, "chat", shape, deltas) / events
                    through = {way: _cpu_of(each, client, shape, deltas) / events for way, each in gateways.items()}
                    if number:  # the first round warms up
                        spent["floor"].append(direct)
                        for way, cpu in through.items():
                            spent[way].append(cpu)
            for way, (_, must) in WAYS.items():
                row = f"gateway, {name}"
                yield Figure(row, way, unit, FLOOR, spent[way], spent["floor"], must=must if name == "burst" else None)
        yield from _measure_many(server, client, quick)


PARTS = [Part("serve", measure_serve)]


class Gateway:
    """A gateway in a process of its own."""

    def __init__(self, process: "subprocess.Popen[str]", address: str) -> None:
        self.address = address
        self._folder = Path(f"/proc/{process.pid}")

    def cpu(self) -> float:
        """Return the µs of CPU of all its threads so far."""
        nanoseconds = 0
        for thread in (self._folder / "task").iterdir():
            nanoseconds += int((thread / "schedstat").read_text().split()[0])
        return nanoseconds / 1_000

    def memory(self) -> float:
        """Return the MB that it has in use."""
        return int((self._folder / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextmanager
def gateway(base: str, model: str) -> Iterator[Gateway]:
    """A gateway whose models are at this address."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "config.toml"
        addresses = {"openai-chat": f"{base}/v1", "openai": f"{base}/v1", "anthropic": base}
        tables = [f'[providers.{name}]\nbase_url = "{address}"\n' for name, address in addresses.items()]
        settings.write_text("\n".join(tables), encoding="utf-8")
        keys = {"OPENAI_API_KEY": "sk-fake", "ANTHROPIC_API_KEY": "sk-fake", "DRAGOMAN_CONFIG": str(settings)}
        command = [sys.executable, "-m", "dragoman", "serve", "--port", "0", "--store", f"{folder}/sessions.db"]
        process = subprocess.Popen(
            [*command, "--model", f"*={model}", "--log-level", "error", "--max-answers", str(2 * STREAMS)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **keys},
        )
        assert process.stdout is not None
        try:
            yield Gateway(process, process.stdout.readline().split()[-1])
        finally:
            process.terminate()
            process.wait()
            process.stdout.close()


def _cpu_of(each: Gateway, client: Client, shape: str, deltas: int) -> float:
    before = each.cpu()
    client.burst(each.address, "chat", shape, deltas)
    return each.cpu() - before


def _measure_many(server: Server, client: Client, quick: bool) -> Iterator[Figure]:
    """So many streams at once, all of them read and compared; and what stays in memory after many requests."""
    deltas, requests = 100, 10 if quick else 50  # times the streams
    with gateway(server.answers("text", deltas), WAYS["passed"][0]) as each:
        client.many(each.address, "chat", deltas, STREAMS)
        client.many(each.address, "chat", deltas, STREAMS)
        before = each.memory()
        for _ in range(requests):
            client.many(each.address, "chat", deltas, STREAMS)
        grown = each.memory() - before
    row = f"gateway, {STREAMS} streams at once, {requests * STREAMS:,} requests"
    yield Figure(row, "growth", "MB", "", [grown], must=30.0)
