"""What the gateway costs for each event of a streamed answer, beside the floor: a bare client of the same answer.

Provider, gateway and client are processes of their own. The client is the floor itself: it reads the same answer from
the provider and through the gateway, and compares it. What counts is the CPU of the gateway's process, all of its
threads, its record in SQLite included. In a burst, events come together; paced, each comes by itself. LiteLLM's proxy
is measured in the same rounds where it is installed in an environment of its own.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
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
LITELLM = Path(os.environ.get("BENCH_VENVS", "/tmp/bench-venvs")) / "litellm_proxy" / "bin" / "litellm"


def measure_serve(quick: bool, _peers: Sequence[str]) -> Iterator[Figure | Skipped]:
    """CPU per event of the gateway, in a burst and paced; 200 streams at once; memory over many requests."""
    if not Path("/proc/self/schedstat").exists():
        yield Skipped("the gateway", "this system does not tell the CPU time of another process in nanoseconds")
        return
    with running(("floor",)) as (server, (client,)):
        yield from _measure_burst(server, client, quick)
        yield from _measure_paced(server, client, quick)
        yield from _measure_many(server, client, quick)
    if not quick and missing_litellm() is not None:
        yield Skipped("LiteLLM's proxy", str(missing_litellm()))


def _measure_burst(server: Server, client: Client, quick: bool) -> Iterator[Figure]:
    """A whole exchange, with its request and its record, and what each further event adds to it."""
    lengths = (2_000, 8_000)
    bases = [server.answers("text", deltas) for deltas in lengths]
    events = [events_of("chat", "text", deltas) for deltas in lengths]
    # Who is measured -> the CPU of an answer of each length, a pair for every round.
    spent: dict[str, list[tuple[float, float]]] = {}
    floors: dict[str, list[tuple[float, float]]] = {}
    with ExitStack() as stack:
        opened = {
            way: [stack.enter_context(gateway(base, model)) for base in bases] for way, (model, _) in WAYS.items()
        }
        if not quick and missing_litellm() is None:
            for way, (model, _) in WAYS.items():
                opened[f"LiteLLM, {way}"] = [stack.enter_context(litellm_proxy(base, model)) for base in bases]
        for number in range(4 if quick else 21):
            short, long = (
                client.burst(base, "chat", "text", deltas) for base, deltas in zip(bases, lengths, strict=True)
            )
            for way, gateways in opened.items():
                if way not in WAYS and number > 5:
                    continue
                costs = [_cpu_of(each, client, deltas) for each, deltas in zip(gateways, lengths, strict=True)]
                if number:  # the first round warms up
                    spent.setdefault(way, []).append((costs[0], costs[1]))
                    floors.setdefault(way, []).append((short, long))
    further = events[1] - events[0]
    unit = "µs of CPU per event"
    for way in opened:
        ours, floor = ([(b - a) / further for a, b in pairs[way]] for pairs in (spent, floors))
        must = WAYS[way][1] if way in WAYS else None
        yield Figure("gateway, burst, each further event", way, unit, FLOOR, ours, floor, must=must)
    for way in opened:
        ours, floor = ([a / events[0] for a, _ in pairs[way]] for pairs in (spent, floors))
        row = f"gateway, burst, an exchange of {lengths[0]:,} events with its request and record"
        yield Figure(row, way, unit, FLOOR, ours, floor)


def _measure_paced(server: Server, client: Client, quick: bool) -> Iterator[Figure]:
    """Each event by itself."""
    deltas = 100
    base, events = server.answers("text", deltas, 1, "1000"), events_of("chat", "text", deltas)
    floors: list[float] = []
    spent: dict[str, list[float]] = {way: [] for way in WAYS}
    with ExitStack() as stack:
        opened = {way: stack.enter_context(gateway(base, model)) for way, (model, _) in WAYS.items()}
        for number in range(3 if quick else 9):
            direct = client.burst(base, "chat", "text", deltas) / events
            costs = {way: _cpu_of(each, client, deltas) / events for way, each in opened.items()}
            if number:
                floors.append(direct)
                for way, cost in costs.items():
                    spent[way].append(cost)
    for way, ours in spent.items():
        yield Figure("gateway, paced", way, "µs of CPU per event", FLOOR, ours, floors)


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


def _cpu_of(each: Gateway, client: Client, deltas: int) -> float:
    before = each.cpu()
    client.burst(each.address, "chat", "text", deltas)
    return each.cpu() - before


def missing_litellm() -> str | None:
    """Return why LiteLLM's proxy is not measured beside ours, None if it can be."""
    if LITELLM.exists():
        return None
    return f"it is not in {LITELLM.parents[1]}: python -m venv there, and pip install 'litellm[proxy]' in it"


@contextmanager
def litellm_proxy(base: str, model: str) -> Iterator[Gateway]:
    """LiteLLM's proxy, which keeps no record, with the same model behind it."""
    provider, _, name = model.partition(":")
    behind = {
        "openai-chat": ("openai/", "/v1"),
        "openai": ("openai/responses/", "/v1"),
        "anthropic": ("anthropic/", ""),
    }
    prefix, version = behind[provider]
    parameters = {"model": prefix + name, "api_base": base + version, "api_key": "sk-fake"}
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as free:
        settings = Path(folder) / "config.yaml"  # JSON is YAML
        settings.write_text(json.dumps({"model_list": [{"model_name": "gpt-4o", "litellm_params": parameters}]}))
        port = free.getsockname()[1]
        free.close()
        # Without these it fetches prices from the network, and refuses to start without a key of its own.
        own = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}
        process = subprocess.Popen(
            [LITELLM, "--config", settings, "--host", "127.0.0.1", "--port", str(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **own},
        )
        try:
            _wait_for(process, f"http://127.0.0.1:{port}/health/liveliness")
            yield Gateway(process, f"http://127.0.0.1:{port}")
        finally:
            process.kill()
            process.wait()


def _wait_for(process: "subprocess.Popen[str]", url: str) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while process.poll() is None:
        try:
            opener.open(url, timeout=5).close()
        except OSError:
            time.sleep(0.5)
        else:
            return
    raise RuntimeError(f"LiteLLM's proxy ended with {process.returncode} before it answered")


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
