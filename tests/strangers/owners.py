"""Two processes that want the same session: each call runs once, each decision counts once, a lost owner does nothing.

    python -m tests.strangers.owners resume STORE --sessions 3000 [--whole-seconds]
    python -m tests.strangers.owners stop STORE --rounds 200 --timed
    python -m tests.strangers.owners kill STORE --rounds 500 --timed

`resume`: two processes carry on sessions with an open call at the same moment, and decide about another at the same
moment; with `--whole-seconds` by clocks that give whole seconds. `stop` and `kill`: a process runs an agent, is stopped
or killed at a random moment, and another one takes over; one that was stopped then goes on. STORE is the path of a
SQLite file, or the URI of a PostgreSQL database, with `#` and a schema after it. Each prints what it counted, and fails
if a call ran twice, a decision was acknowledged twice, a tool began after its owner had lost the session, an entry is
missing, or, with `--timed`, a takeover took longer than the lease and two seconds (99th percentile). An owner that is
stopped inside a transaction keeps the database's lock until it goes on: such rounds are counted apart.
"""

import argparse
import asyncio
import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dragoman import (
    Agent,
    AgentConfig,
    DragomanError,
    LoopConfig,
    Message,
    PostgresStore,
    SessionBusy,
    SQLiteStore,
    ToolCall,
    open_session,
    start_session,
    tool,
)
from dragoman.history import ApprovalAskedEntry, ModelInputEntry, ModelOutputEntry, RunStartedEntry
from dragoman.testing import Call, ScriptedModel, Turn

LEASE_SECONDS = 0.5
LONGEST_LIFE = 1.2  # seconds after its first tool in which an owner is stopped or killed
STEP_SECONDS = 0.3  # that a tool takes: a run waits for tools and models most of the time
PATIENCE = LEASE_SECONDS + 5  # seconds after which a stopped owner goes on whatever the heir does
STEPS = 100  # tools of an undisturbed run: more than it lives to run


def open_store(address: str) -> Any:
    """Return the store at that address."""
    if not address.startswith("postgresql://"):
        return SQLiteStore(address)
    conninfo, _, schema = address.partition("#")
    return PostgresStore(conninfo, schema=schema or "dragoman")


def whole_seconds() -> datetime:
    """A clock that gives whole seconds."""
    return datetime.now(UTC).replace(microsecond=0)


def uptime() -> float:
    """Seconds by a clock that all processes share, and that goes on while one is stopped."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


# ---------------------------------------------------------------- in the processes


async def resume(address: str, log: str, is_coarse: bool) -> None:
    """For each name that is read: carry that session on, then decide about the open call of another."""
    clock = whole_seconds if is_coarse else None

    @tool
    def work(session: str) -> str:
        """Work once."""
        note(log, session)
        return "Worked."

    @tool(requires_approval=True)
    def pay() -> str:
        """Pay."""
        return "Paid."

    async with open_store(address) as store:
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            name, is_said = line.strip(), "no"
            session = await open_session(store, name, clock=clock)
            asked = await open_session(store, f"{name}-asked", clock=clock)
            agent = Agent(ScriptedModel("Done."), tools=[work], session=session)
            person = Agent(ScriptedModel("Done."), tools=[pay], session=asked)
            try:
                await person.approve("c")
                is_said = "yes"
            except DragomanError:
                pass
            try:
                is_run = str((await agent.run()).status)
            except SessionBusy:
                is_run = "busy"
            except DragomanError:
                is_run = "nothing to do"
            print(json.dumps([is_said, is_run]), flush=True)


async def own(address: str, log: str, name: str) -> None:
    """Run an agent on a session, tool after tool; say so at the first, and how it ended."""
    is_first = True

    @tool
    async def step() -> str:
        """Do one step; what began is noted with the process and the time."""
        nonlocal is_first
        note(log, json.dumps([os.getpid(), uptime()]))
        if is_first:
            is_first = False
            print("begun", flush=True)
        await asyncio.sleep(STEP_SECONDS)
        return "Done."

    config = AgentConfig(loop=LoopConfig(lease_seconds=LEASE_SECONDS, max_iterations=STEPS))
    async with open_store(address) as store:
        session = await open_session(store, name)
        model = ScriptedModel(Turn(calls=(Call("step", {}),)), repeats=True)
        result = await Agent(model, tools=[step], session=session, config=config).run("Go.")
        print(f"ended {result.status} {result.error.code if result.error else ''}", flush=True)


async def take_over(address: str) -> None:
    """For each name that is read: wait for that session, carry it on, and say when it was taken."""

    @tool
    async def step() -> str:
        """Do nothing."""
        return "Done."

    async with open_store(address) as store:
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            session = await open_session(store, line.strip())
            async with session.hold(seconds=60, wait_seconds=60):
                taken = uptime()
            await Agent(ScriptedModel("Taken over."), tools=[step], session=session).run()
            print(json.dumps([taken, session.state.next_serial]), flush=True)


def note(log: str, line: str) -> None:
    """Add a line to a file, in one write."""
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


# ---------------------------------------------------------------- what starts and judges them


class Child:
    """One of the processes above."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "tests.strangers.owners", *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def say(self, line: str) -> None:
        """Write a line to it."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        """Read a line of it."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def hears_within(self, seconds: float) -> bool:
        """Return whether it says something in that time."""
        assert self.process.stdout is not None
        return bool(select.select([self.process.stdout], [], [], seconds)[0])

    def end(self) -> None:
        """Let it end by itself."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@contextmanager
def log_file(address: str) -> Iterator[Path]:
    """A file beside a SQLite store, or in the temporary folder."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        yield Path(folder) / "log"


def judge_resume(address: str, sessions: int, *, is_coarse: bool) -> bool:
    """Have two processes carry on the same sessions; return whether each call ran once, each decision counted once."""
    asyncio.run(prepare_open_calls(address, sessions))
    begin = time.monotonic()
    with log_file(address) as log:
        flags = ["--whole-seconds"] if is_coarse else []
        rivals = [Child("resume-child", address, "--log", str(log), *flags) for _ in range(2)]
        for rival in rivals:
            assert rival.hear() == "ready"
        doubly_said = unsaid = 0
        ends: Counter[str] = Counter()
        for number in range(sessions):
            for rival in rivals:
                rival.say(f"s{number}")
            answers = [json.loads(rival.hear()) for rival in rivals]
            acknowledged = sum(is_said == "yes" for is_said, _ in answers)
            doubly_said += acknowledged > 1
            unsaid += acknowledged == 0
            ends.update(is_run for _, is_run in answers)
        for rival in rivals:
            rival.end()
        ran = Counter(log.read_text().split())
    twice = sum(count > 1 for count in ran.values())
    once = sum(count == 1 for count in ran.values())
    kept = asyncio.run(count_entries(address, sessions))
    clock = "whole seconds" if is_coarse else "the usual clock"
    print(
        f"{sessions} sessions by two processes, {clock}: {once} calls ran once, {twice} twice; "
        f"{doubly_said} decisions acknowledged to both, {unsaid} to none; {dict(ends)}; "
        f"recorded: {kept} ({time.monotonic() - begin:.0f} s)"
    )
    wanted = {"tool_started": sessions, "approval_answered": sessions}
    return (once, twice, doubly_said, unsaid, kept) == (sessions, 0, 0, 0, wanted)


async def prepare_open_calls(address: str, sessions: int) -> None:
    """Leave sessions behind as a crash does: with a call that was not started, and with one that waits for a person."""
    async with open_store(address) as store:
        if isinstance(store, PostgresStore):
            await store.migrate()
        for number in range(sessions):
            name = f"s{number}"
            for session_id, call, asks in (
                (name, ToolCall("c", "work", {"session": name}), False),
                (f"{name}-asked", ToolCall("c", "pay", {}), True),
            ):
                session = await start_session(store, session_id)
                entries = [RunStartedEntry(run_id="r"), ModelInputEntry.of("Go.")]
                entries.append(ModelOutputEntry(Message.assistant(call)))
                if asks:
                    entries.append(ApprovalAskedEntry("c", "pay"))
                await session.append(*entries)


async def count_entries(address: str, sessions: int) -> dict[str, int]:
    """Return how many starts and decisions were recorded."""
    counted: Counter[str] = Counter()
    async with open_store(address) as store:
        for number in range(sessions):
            for name in (f"s{number}", f"s{number}-asked"):
                counted.update(entry.kind for entry in await store.load(name))
    return {kind: counted[kind] for kind in ("tool_started", "approval_answered")}


def judge_takeovers(address: str, rounds: int, *, kills: bool, seed: int, is_timed: bool) -> bool:
    """Stop or kill owners at random moments while another process takes over; return whether all was well."""
    chance = random.Random(seed)
    asyncio.run(make_sessions(address, rounds))
    late = lost = doubled = locked = 0
    waits: list[float] = []
    ends: Counter[str] = Counter()
    heir = Child("heir-child", address)
    assert heir.hear() == "ready"
    begin = time.monotonic()
    for number in range(rounds):
        name = f"r{number}"
        with log_file(address) as log:
            owner = Child("owner-child", address, "--log", str(log), "--name", name)
            assert owner.hear() == "begun"
            time.sleep(chance.uniform(0, LONGEST_LIFE))
            owner.process.send_signal(signal.SIGKILL if kills else signal.SIGSTOP)
            stopped = uptime()
            heir.say(name)
            is_locked = not kills and not heir.hears_within(PATIENCE)  # the owner was stopped with the database locked
            if is_locked:  # it goes on, sees that its lease has expired, and gives it back
                locked += 1
                owner.process.send_signal(signal.SIGCONT)
            taken, _ = json.loads(heir.hear())
            if not is_locked:
                waits.append(taken - stopped)
            if not kills:
                owner.process.send_signal(signal.SIGCONT)
                ends[owner.hear()] += 1
            owner.end()
            starts = [when for _, when in map(json.loads, log.read_text().splitlines())]
        late += sum(when > taken for when in starts)
        doubles, missing = asyncio.run(judge_record(address, name, len(starts), is_taken=not is_locked))
        doubled, lost = doubled + doubles, lost + missing
    heir.end()
    waits = sorted(waits) or [0.0]
    slow = waits[min(len(waits) - 1, int(len(waits) * 0.99))]
    what = "killed" if kills else "stopped"
    print(
        f"{rounds} owners {what}: {late} tools began after their owner had lost the session, {doubled} ran twice,"
        f" {lost} starts without an entry; taken over after {waits[len(waits) // 2]:.2f} s (median), {slow:.2f} (99 %),"
        f" lease {LEASE_SECONDS} s; {locked} stopped with the database locked; {dict(ends)}"
        f" ({time.monotonic() - begin:.0f} s)"
    )
    return not (late or lost or doubled) and (slow <= LEASE_SECONDS + 2 or not is_timed)


async def make_sessions(address: str, rounds: int) -> None:
    """Create a session for each round."""
    async with open_store(address) as store:
        if isinstance(store, PostgresStore):
            await store.migrate()
        for number in range(rounds):
            await start_session(store, f"r{number}")


async def judge_record(address: str, name: str, starts: int, *, is_taken: bool) -> tuple[int, int]:
    """Return how many calls were started twice, and how many starts of tools have no entry."""
    async with open_store(address) as store:
        assert (await store.verify(name)).is_sound
        entries = await store.load(name)
        assert not is_taken or [entry.kind for entry in entries].count("takeover") == 1
        session = await open_session(store, name)
        assert not session.state.pending_tool_calls
    started = Counter(entry.tool_call_id for entry in entries if entry.kind == "tool_started")
    return sum(count > 1 for count in started.values()), max(0, starts - len(started))


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=("resume", "stop", "kill", "resume-child", "owner-child", "heir-child"))
    parser.add_argument("store")
    parser.add_argument("--sessions", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--whole-seconds", action="store_true")
    parser.add_argument("--timed", action="store_true")
    parser.add_argument("--log", default="")
    parser.add_argument("--name", default="")
    chosen = parser.parse_args()
    match chosen.task:
        case "resume":
            return 0 if judge_resume(chosen.store, chosen.sessions, is_coarse=chosen.whole_seconds) else 1
        case "stop" | "kill":
            is_kill = chosen.task == "kill"
            is_well = judge_takeovers(
                chosen.store, chosen.rounds, kills=is_kill, seed=chosen.seed, is_timed=chosen.timed
            )
            return 0 if is_well else 1
        case "resume-child":
            asyncio.run(resume(chosen.store, chosen.log, chosen.whole_seconds))
        case "owner-child":
            asyncio.run(own(chosen.store, chosen.log, chosen.name))
        case "heir-child":
            asyncio.run(take_over(chosen.store))
    return 0


if __name__ == "__main__":
    sys.exit(main())
