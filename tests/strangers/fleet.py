"""Workers in processes of their own, quick to start: a fork server has loaded everything, and forks one at each line.

    python -m tests.strangers.fleet SETTING      SETTING is the JSON of `Setting`; each line read starts a worker

A worker is a `dragoman.durable.Worker` on PostgreSQL with the agents below. It notes in files what it did: one line for
each time a tool ran, and one for each append that the store acknowledged. A worker ends with its fork server.
"""

import asyncio
import ctypes
import json
import logging
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from dragoman import Agent, AgentConfig, LoopConfig, PostgresStore, Session, ToolContext, tool
from dragoman.durable import Agents, Engine, PostgresEngine, Worker
from dragoman.history import HistoryEntry, ModelInputEntry, ModelOutputEntry
from dragoman.store import Head, Lease
from dragoman.testing import Call, ScriptedModel, ScriptedRequest, Turn

ROOT = Path(__file__).parents[2]
PLANTED = "quicksilver"  # in everything that is said: it must not reach an engine
SCRIPTS = {
    "clerk": ("look", "send", "look"),
    "asker": ("look", "ask", "send"),
    "short": ("look",),
    "long": ("read",) * 400,
}
STEPS_LIMIT = 1000
PR_SET_PDEATHSIG = 1


class Setting(NamedTuple):
    """How workers work. `pace` is how long a model or a tool takes at most, in seconds."""

    store: str
    folder: str
    engine: str = "postgres"
    server: str = ""
    slots: int = 4
    heartbeat: float = 0.5
    dead: float = 2.0
    lease: float = 2.0
    pace: float = 0.15

    def open_store(self) -> "NotingStore":
        """Return the store, which notes what it acknowledged."""
        dsn, _, schema = self.store.partition("#")
        return NotingStore(dsn, schema=schema, folder=self.folder)

    def open_engine(self) -> Engine:
        """Return the engine."""
        dsn, _, schema = self.store.partition("#")
        beats: dict[str, Any] = {"heartbeat_seconds": self.heartbeat, "dead_seconds": self.dead}
        if self.engine == "postgres":
            return PostgresEngine(dsn, schema=schema, **beats)
        from dragoman.durable import TemporalEngine

        return TemporalEngine(self.server, task_queue=schema, prefix=schema, **beats)


class NotingStore(PostgresStore):
    """Notes the head after each append that it acknowledged: these entries must never be lost."""

    def __init__(self, conninfo: str, *, schema: str, folder: str) -> None:
        super().__init__(conninfo, schema=schema)
        self._log = f"{folder}/acknowledged"

    async def append(
        self, session_id: str, entries: Sequence[HistoryEntry], expected_serial: int, *, lease: Lease | None = None
    ) -> Head:
        head = await super().append(session_id, entries, expected_serial, lease=lease)
        note(self._log, session_id, head.serial, head.checksum)
        return head


def note(log: str, *words: object) -> None:
    """Add a line to a file, in one write."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{' '.join(map(str, words))}\n".encode())
    os.close(descriptor)


def uptime() -> float:
    """Seconds by a clock that all processes share, and that goes on while one is stopped."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


# ---------------------------------------------------------------- in the workers


def make_agents(setting: Setting) -> Agents:
    """Return agents that call their tools one after the other, and note each execution."""
    log = f"{setting.folder}/executed"

    async def execute(context: ToolContext) -> str:
        note(log, context.tool_name, context.session_id, context.tool_call_id, os.getpid(), uptime())
        await asyncio.sleep(random.uniform(0, setting.pace))
        return PLANTED

    @tool(idempotent=True)
    async def look(context: ToolContext, words: str) -> str:
        """Look: it may be repeated."""
        return await execute(context)

    @tool
    async def send(context: ToolContext, words: str) -> str:
        """Send: it must not be repeated."""
        return await execute(context)

    @tool(requires_approval=True)
    async def ask(context: ToolContext, words: str) -> str:
        """Pay: a person must allow it, and it must not be repeated."""
        return await execute(context)

    @tool(idempotent=True)
    def read(context: ToolContext, words: str) -> str:
        """Read a page of some 1,250 tokens."""
        return f"{PLANTED} {context.tool_call_id} " + "A line of a page, of no great interest. " * 125

    async def pause(number: int) -> None:
        if not number and setting.pace:
            await asyncio.sleep(random.uniform(0, setting.pace))

    def make(script: tuple[str, ...], session: Session) -> Agent[Any, Any]:
        model = ScriptedModel(partial(play, script, session), repeats=True, between=pause if setting.pace else None)
        loop = LoopConfig(lease_seconds=setting.lease, max_iterations=STEPS_LIMIT)
        return Agent(model, tools=[look, send, ask, read], session=session, config=AgentConfig(loop=loop))

    return Agents({name: partial(make, script) for name, script in SCRIPTS.items()})


def play(script: tuple[str, ...], session: Session, _request: ScriptedRequest) -> str | Turn:
    """The next call of the script since the last prompt, or the answer."""
    calls = 0
    for entry in reversed(session.entries):
        if isinstance(entry, ModelInputEntry):
            break
        calls += isinstance(entry, ModelOutputEntry) and bool(entry.tool_calls)
    if calls == len(script):
        return f"Done: {PLANTED}."
    return Turn(text=PLANTED, calls=(Call(script[calls], {"words": PLANTED}),))


async def work(setting: Setting) -> None:
    """Work until SIGTERM; note when it begins, and the seconds of CPU that it took."""
    logging.basicConfig(filename=f"{setting.folder}/log", level=logging.WARNING)
    async with setting.open_store() as store:
        engine = setting.open_engine()
        worker = Worker(
            store,
            engine,
            make_agents(setting),
            slots=setting.slots,
            sweep_seconds=2.0,
        )
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        running = asyncio.ensure_future(worker.run())
        await worker.ready()
        begin = time.process_time()
        note(f"{setting.folder}/ready", os.getpid())
        await running
        await engine.close()
        note(f"{setting.folder}/cpu", os.getpid(), time.process_time() - begin)


def serve_forks(setting: Setting) -> None:
    """Fork a worker at each line of standard input, and say its process id."""
    if setting.engine == "temporal":
        import temporalio.client
        import temporalio.worker  # noqa: F401
    else:
        import procrastinate.sql  # noqa: F401
    import psycopg  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system then forgets those that have ended
    for _ in sys.stdin:
        pid = os.fork()
        if not pid:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # Temporal's SDK logs to it, and pids come that way
            random.seed()
            status = 1
            try:
                asyncio.run(work(setting))
                status = 0
            finally:
                os._exit(status)
        print(pid, flush=True)


# ---------------------------------------------------------------- what starts them


class Fleet:
    """The workers of one fork server."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.strangers.fleet", json.dumps(setting)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pids: list[int] = []

    def start(self) -> int:
        """Start a worker and return its process id."""
        assert self._server.stdin
        assert self._server.stdout
        self._server.stdin.write("\n")
        self._server.stdin.flush()
        pid = int(self._server.stdout.readline())
        self.pids.append(pid)
        return pid

    def kill(self, pid: int) -> None:
        """Kill a worker of this fleet."""
        self.pids.remove(pid)
        os.kill(pid, signal.SIGKILL)

    def ready(self) -> set[int]:
        """Return the workers that have said so."""
        return {int(line) for line in self.lines("ready")}.intersection(self.pids)

    def lines(self, log: str) -> list[str]:
        """Return what was noted."""
        path = Path(self._setting.folder) / log
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def is_gone(self, pid: int) -> bool:
        """Return whether that process has ended."""
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    def close(self) -> None:
        """End all processes."""
        for pid in self.pids:
            if not self.is_gone(pid):
                os.kill(pid, signal.SIGKILL)
        assert self._server.stdin
        assert self._server.stdout
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()


if __name__ == "__main__":
    serve_forks(Setting(*json.loads(sys.argv[1])))
