"""The rules of every engine that need processes: workers that are killed and stopped, and what is taken from them.

`WORKER_CHECKS` each take a `Workplace` and start workers as processes of their own. A check kills or stops some of
them, and raises AssertionError if a run does not go on elsewhere. `require_worker_conformance` runs all checks.
`check_runs_go_on` takes something else away: the caller says what. `dragoman.testing.engines` has the rules that one
process can show.

    python -m dragoman.testing.engineworkers WORKPLACE     a worker; WORKPLACE is the JSON of a `Workplace`
"""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial, wraps
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from ..agent import Agent
from ..durable import Agents, Engine, Retries, RunHandle, Worker, submit
from ..errors import ErrorCode
from ..history import AgentStatus, HistoryEntry, RunStartedEntry, ToolFinishedEntry
from ..request import AgentConfig, LoopConfig
from ..store import Session, SessionStore
from ..tools import ToolContext, ToolDefinition, tool
from .enginecases import MARK, PATIENCE, make_caller

__all__ = ["WORKER_CHECKS", "WorkerProcesses", "Workplace", "check_runs_go_on", "require_worker_conformance"]

ATTEMPTS = 3  # after which a run is given up whose attempts record nothing
LOOK_SECONDS = 0.02  # between two looks at the notes of workers
SWEEP_SECONDS = 1.0


class Workplace(msgspec.Struct, frozen=True):
    """Where workers find their store and their engine.

    `opens` names a function as `package.module:function`. Every process calls it with `place`, and it returns a new
    store and a new engine. `folder` is an empty folder for the notes of workers. A lease lasts `lease_seconds`.
    """

    opens: str
    place: str
    folder: str
    lease_seconds: float = 2.0

    def open(self) -> tuple[SessionStore, Engine]:
        """Return a store and an engine."""
        module, _, name = self.opens.partition(":")
        store, engine = getattr(import_module(module), name)(self.place)
        return store, engine


async def require_worker_conformance(place: Workplace) -> int:
    """Run every check and return how many were made. The store may hold sessions, but none of an earlier call."""
    for check in WORKER_CHECKS.values():
        await check(place)
    return len(WORKER_CHECKS)


class WorkerProcesses:
    """Two workers, each in a process of its own, and what they note; for the time of one check."""

    def __init__(self, place: Workplace, store: SessionStore, engine: Engine) -> None:
        self.place = place
        self.store = store
        self.engine = engine
        self.sessions: list[str] = []
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def pids(self) -> list[int]:
        """The processes that were started and not killed."""
        return list(self._processes)

    async def start(self) -> int:
        """Start a worker; return its process id when it takes orders."""
        process = _start_worker(self.place)
        self._processes[process.pid] = process
        await self.until(lambda: str(process.pid) in self._notes("ready"), "a worker takes orders")
        return process.pid

    def send(self, pid: int, number: signal.Signals) -> None:
        """Send a signal to a worker: SIGKILL, SIGSTOP or SIGCONT."""
        self._processes[pid].send_signal(number)
        if number == signal.SIGKILL:
            self._end(pid)

    async def submit(self, agent: str, session: str) -> RunHandle:
        """Submit a run of the agent `look`, whose tool may be repeated, or `send`, whose tool may not.

        The tool waits for `let_tools_end`. `slow` is as `look`, but the first worker that makes it waits for that too.
        """
        self.sessions.append(session)
        return await submit(self.store, self.engine, agent=agent, session=session, prompt=MARK)

    async def holder(self, run: RunHandle, times: int = 1) -> int:
        """Return the process that has begun the tool of the run, when it was begun so often."""
        await self.until(lambda: len(self.executions(run)) >= times, f"the tool was begun {times} times")
        return self.executions(run)[-1]

    def executions(self, run: RunHandle) -> list[int]:
        """Return the processes that began the tool of the run, in their order."""
        noted = (line.split() for line in self._notes("executed"))
        return [int(pid) for session, pid in noted if session == run.session_id]

    async def first_maker(self, run: RunHandle) -> int:
        """Return the process that was the first to make the agent `slow` of the run, when it does."""

        def found() -> list[int]:
            noted = (line.split() for line in self._notes("made first"))
            return [int(pid) for session, pid in noted if session == run.session_id]

        await self.until(found, "an agent is made")
        return found()[0]

    def let_tools_end(self) -> None:
        """Let all tools end that wait, and those that come."""
        Path(self.place.folder, "go").touch()

    async def completed(self, *runs: RunHandle) -> None:
        """Wait until the runs have ended; raise AssertionError if one does not, or has failed."""
        for run in runs:
            async with self.patience(f"run {run.session_id}:{run.serial} ends"):
                result = await run.result()
            assert result.status is AgentStatus.COMPLETED, f"{run!r}: {result.status}, {result.error}"

    async def until(self, is_so: Callable[[], object], what: str) -> None:
        """Wait for a fact that nothing tells; raise AssertionError if it does not come."""
        async with self.patience(what):
            while not is_so():  # noqa: ASYNC110
                await asyncio.sleep(LOOK_SECONDS)

    async def end(self) -> None:
        """Stop the workers as an operator does; raise AssertionError if one fails, or if a session is not sound."""
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        for pid, process in self._processes.items():
            await self.until(lambda process=process: process.poll() is not None, f"worker {pid} ends")  # type: ignore[misc]
            assert process.returncode == 0, f"worker {pid} ended with {process.returncode}: see {self.place.folder}/log"
        for session in self.sessions:
            assert (await self.store.verify(session)).is_sound
            started = Counter(entry.run_id for entry in await self.entries(session, RunStartedEntry))
            assert set(started.values()) <= {1}, f"a run of session {session!r} was started twice"

    async def entries(self, session: str, kind: type[HistoryEntry]) -> list[Any]:
        """Return the entries of a session that are of a kind."""
        return [entry for entry in await self.store.load(session) if isinstance(entry, kind)]

    def close(self) -> None:
        """End all processes."""
        for pid in self.pids:
            self._processes[pid].kill()
            self._end(pid)

    @asynccontextmanager
    async def patience(self, what: str) -> AsyncIterator[None]:
        """Raise AssertionError if the block does not end."""
        try:
            async with asyncio.timeout(PATIENCE):
                yield
        except TimeoutError:
            said = "\n".join(self._notes("log")[-100:])
            raise AssertionError(f"not within {PATIENCE:g} seconds: {what}\n{said}") from None

    def _end(self, pid: int) -> None:
        process = self._processes.pop(pid)
        process.wait()
        assert process.stdin
        process.stdin.close()

    def _notes(self, name: str) -> list[str]:
        path = Path(self.place.folder, name)
        return path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []


def _start_worker(place: Workplace) -> subprocess.Popen[bytes]:
    """Start a worker. It ends when its standard input does: none outlives the process that checks."""
    command = [sys.executable, "-m", __name__, msgspec.json.encode(place).decode()]
    with Path(place.folder, "log").open("ab") as log:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)  # noqa: S603  # our own module


@asynccontextmanager
async def _worker_processes(place: Workplace, name: str) -> AsyncIterator[WorkerProcesses]:
    """Two workers that take orders; they are stopped and judged at the end."""
    folder = Path(place.folder, name)
    folder.mkdir()  # noqa: ASYNC240  # nothing else runs yet
    store, engine = place.open()
    workers = WorkerProcesses(replace(place, folder=str(folder)), store, engine)
    try:
        await engine.prepare()
        await asyncio.gather(workers.start(), workers.start())
        yield workers
        await workers.end()
    finally:
        workers.close()
        await engine.close()
        await store.close()


async def check_runs_go_on(place: Workplace, disturb: Callable[[WorkerProcesses], Awaitable[object]]) -> None:
    """Runs go on after `disturb`, and no worker ends of it.

    `disturb` takes something away for a moment: it restarts the database or the engine's server, cuts connections, or
    keeps notifications back.
    """
    async with _worker_processes(place, "disturbed") as workers:
        before = await workers.submit("send", "disturbed")
        await workers.holder(before)
        await disturb(workers)
        workers.let_tools_end()
        after = await workers.submit("look", "disturbed-after")
        await workers.completed(before, after)
        assert len(workers.executions(before)) == 1


# ---------------------------------------------------------------- checks


_Check: TypeAlias = Callable[[Workplace], Coroutine[Any, Any, None]]


def _with_workers(function: Callable[[WorkerProcesses], Awaitable[None]]) -> _Check:
    """Make a check of a function that takes away workers."""

    @wraps(function)
    async def check(place: Workplace) -> None:
        async with _worker_processes(place, function.__name__.removeprefix("check_")) as workers:
            await function(workers)

    return check


@_with_workers
async def check_a_run_goes_on_whose_worker_was_killed(workers: WorkerProcesses) -> None:
    """Another worker carries the run on, and runs the tool again that may be repeated."""
    run = await workers.submit("look", "killed")
    workers.send(await workers.holder(run), signal.SIGKILL)
    await workers.holder(run, 2)
    workers.let_tools_end()
    await workers.completed(run)
    assert len(set(workers.executions(run))) == 2


@_with_workers
async def check_a_tool_that_may_not_repeat_does_not(workers: WorkerProcesses) -> None:
    """The model is told that the tool of a killed worker may have run, and the run goes on without another call."""
    run = await workers.submit("send", "killed-in-tool")
    workers.send(await workers.holder(run), signal.SIGKILL)
    await workers.completed(run)
    await _require_interrupted(workers, run)


@_with_workers
async def check_a_run_is_not_given_up_because_workers_were_killed(workers: WorkerProcesses) -> None:
    """A run whose workers were killed more often than it may fail still ends well."""
    run = await workers.submit("look", "killed-often")
    for number in range(1, ATTEMPTS + 2):
        workers.send(await workers.holder(run, number), signal.SIGKILL)
        await workers.start()
    workers.let_tools_end()
    await workers.completed(run)


@_with_workers
async def check_a_stopped_worker_does_no_harm(workers: WorkerProcesses) -> None:
    """Another worker takes over from one that is suspended. When that one goes on, it adds nothing to what it lost.

    After that it performs orders again.
    """
    run = await workers.submit("send", "stopped")
    stopped = await workers.holder(run)
    workers.send(stopped, signal.SIGSTOP)
    await workers.completed(run)
    await _require_interrupted(workers, run)
    head = await workers.store.head("stopped")
    workers.let_tools_end()
    (other,) = set(workers.pids) - {stopped}
    workers.send(other, signal.SIGKILL)
    workers.send(stopped, signal.SIGCONT)
    later = await workers.submit("look", "after-stopped")
    await workers.completed(later)
    assert workers.executions(later) == [stopped]
    assert await workers.store.head("stopped") == head


@_with_workers
async def check_a_worker_that_stopped_before_it_began_begins_nothing(workers: WorkerProcesses) -> None:
    """A worker is suspended while it makes the agent. Meanwhile another one begins the run, and a person aborts it."""
    run = await workers.submit("slow", "stopped-early")
    stopped = await workers.first_maker(run)
    workers.send(stopped, signal.SIGSTOP)
    other = await workers.holder(run)
    await run.abort()
    async with workers.patience("the run is aborted"):
        assert (await run.result()).status is AgentStatus.ABORTED
    head = await workers.store.head("stopped-early")
    workers.let_tools_end()
    workers.send(other, signal.SIGKILL)
    workers.send(stopped, signal.SIGCONT)
    later = await workers.submit("look", "after-early")
    await workers.completed(later)
    assert await workers.store.head("stopped-early") == head


async def _require_interrupted(workers: WorkerProcesses, run: RunHandle) -> None:
    assert len(workers.executions(run)) == 1, "a tool that may not be repeated ran twice"
    (finished,) = await workers.entries(run.session_id, ToolFinishedEntry)
    assert finished.result.error_code is ErrorCode.TOOL_INTERRUPTED


WORKER_CHECKS: dict[str, _Check] = {
    check.__name__.removeprefix("check_"): check
    for check in (
        check_a_run_goes_on_whose_worker_was_killed,
        check_a_tool_that_may_not_repeat_does_not,
        check_a_run_is_not_given_up_because_workers_were_killed,
        check_a_stopped_worker_does_no_harm,
        check_a_worker_that_stopped_before_it_began_begins_nothing,
    )
}


# ---------------------------------------------------------------- in the workers


def make_agents(place: Workplace) -> Agents:
    """Return agents that call a tool once; it notes that it was begun, and waits until it may end."""

    async def wait(context: ToolContext) -> str:
        """Wait until it may end."""
        _note(place, "executed", context.session_id, os.getpid())
        while not Path(place.folder, "go").exists():  # noqa: ASYNC110, ASYNC240  # files do not tell
            await asyncio.sleep(LOOK_SECONDS)
        return MARK

    def make(function: ToolDefinition[Any], session: Session) -> Agent[Any, Any]:
        config = AgentConfig(loop=LoopConfig(lease_seconds=place.lease_seconds))
        return make_caller(session, function, {}, config)

    async def make_slowly(session: Session) -> Agent[Any, Any]:
        if _is_first_maker(place, session.session_id):
            while not Path(place.folder, "go").exists():  # noqa: ASYNC110, ASYNC240  # files do not tell
                await asyncio.sleep(LOOK_SECONDS)
        return make(look, session)

    look, send = tool(name="look", idempotent=True)(wait), tool(name="send")(wait)
    return Agents({"look": partial(make, look), "send": partial(make, send), "slow": make_slowly})


def _is_first_maker(place: Workplace, session_id: str) -> bool:
    """Note that this process makes the agent `slow` of a session, if it is the first one."""
    try:
        os.close(os.open(Path(place.folder, f"making-{session_id}"), os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    _note(place, "made first", session_id, os.getpid())
    return True


def _note(place: Workplace, name: str, *words: object) -> None:
    """Add a line to a file, in one write."""
    descriptor = os.open(Path(place.folder, name), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{' '.join(map(str, words))}\n".encode())
    os.close(descriptor)


async def _work(place: Workplace) -> None:
    """Work until SIGTERM."""
    store, engine = place.open()
    retries = Retries(attempts=ATTEMPTS, seconds=0.1)
    worker = Worker(store, engine, make_agents(place), slots=4, retries=retries, sweep_seconds=SWEEP_SECONDS)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    running = asyncio.ensure_future(worker.run())
    try:
        await worker.ready()
        _note(place, "ready", os.getpid())
        await running
    finally:
        await engine.close()
        await store.close()


def _end_with_input() -> None:
    os.read(0, 1)  # nothing is written to it; sys.stdin would keep a lock that the interpreter wants at its end
    os._exit(1)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    threading.Thread(target=_end_with_input, daemon=True).start()
    asyncio.run(_work(msgspec.json.decode(sys.argv[1], type=Workplace)))
