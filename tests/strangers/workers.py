"""Eight workers that are killed and stopped while a stream of runs goes on; and many runs, and a long one.

    python -m tests.strangers.workers kill STORE [--engine postgres|temporal] --rounds 1000
    python -m tests.strangers.workers stop STORE [--engine postgres|temporal] --rounds 200
    python -m tests.strangers.workers many STORE [--engine postgres|temporal] --sessions 1000
    python -m tests.strangers.workers long STORE [--engine postgres|temporal]

`kill` and `stop`: at random moments a worker that has work under way is killed, and a new one started; or it is
stopped, and goes on after others have taken its sessions. At the end every run must have ended, every session must be
sound, every entry that was acknowledged must be there, no tool that must not be repeated may have run twice for one
call. With `--timed`, 99 of 100 sessions must have gone on elsewhere within `--dead` + 2 s. `--at-once` workers (3)
are taken away together, the next when others have all that these had. With `--overlap` workers are killed before that:
some sessions lose two, and wait twice. `many`: sessions that are submitted at once; prints what the engine costs
beside bare runs on the same store, in seconds of CPU. `long`: a run of 400 steps and some 500,000 tokens; no word of it
may be in the engine's database.

STORE is the URI of a PostgreSQL database, with `#` and the name of a new schema after it; `-` starts a server. The
server of Temporal is started; `--server HOST:PORT` names one that runs.
"""

import argparse
import asyncio
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec

from dragoman import AgentStatus, ErrorCode, open_session, start_session
from dragoman.durable import Engine, EngineError, RunHandle, submit
from dragoman.durable.requested import is_due
from dragoman.history import HistoryEntry, RunRequestedEntry, RunStartedEntry, ToolFinishedEntry
from dragoman.store import Head, LeaseOwner
from tests.postgres_server import Place, Server, running_server
from tests.strangers.fleet import PLANTED, Fleet, NotingStore, Setting, make_agents, uptime

WORKERS = 8
OPEN_RUNS = 24  # that are under way, or wait, at any time
LONG = "long-conversation"  # the session of the long run
SESSIONS = 400  # among which runs are spread
LOOK_SECONDS = 0.02  # between two looks at the database
PATIENCE = 120.0  # seconds in which all runs end that are open at the end

# Who has which session, and how far it is.
_HELD = """
    SELECT s.session_id, s.key, l.owner, h.serial FROM leases AS l
    JOIN sessions AS s ON s.key = l.session JOIN heads AS h ON h.session = l.session
"""
# The sessions that another owner has taken since a serial.
_TAKEN = """
    SELECT e.session FROM entries AS e JOIN unnest(%s::bigint[], %s::bigint[]) AS w (session, serial)
    ON e.session = w.session AND e.serial > w.serial
    WHERE position('"kind":"takeover"'::bytea IN e.entry) > 0
"""


class Lost(NamedTuple):
    """A session whose worker was taken away, and when."""

    session_id: str
    key: int
    serial: int
    pid: int
    since: float


class Campaign:
    """A stream of runs, workers that are taken away, and what came of it."""

    def __init__(
        self,
        place: Place,
        setting: Setting,
        store: NotingStore,
        engine: Engine,
        *,
        seed: int,
        overlaps: bool,
        at_once: int,
    ) -> None:
        self.place = place
        self.store = store
        self.engine = engine
        self.fleet = Fleet(setting)
        self.chance = random.Random(seed)
        self.ends: Counter[str] = Counter()
        self.lost: list[Lost] = []
        self.waits: list[float] = []
        self.not_due = 0
        self.refused = 0  # what the engine could not be told when it was said
        self.stopped: set[int] = set()
        self._overlaps = overlaps
        self._at_once = at_once
        self._setting = setting
        self._is_over = False

    # ------------------------------------------------------------ the stream of runs

    async def stream_runs(self) -> None:
        """Keep runs under way until it is over, then wait until all have ended."""
        open_runs: set[asyncio.Task[None]] = set()
        while not self._is_over:
            while len(open_runs) < OPEN_RUNS:
                open_runs.add(asyncio.ensure_future(self._see_through()))
            done, open_runs = await asyncio.wait(open_runs, timeout=0.2, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        if open_runs:
            done, left = await asyncio.wait(open_runs, timeout=PATIENCE)
            for task in done:
                task.result()
            for task in left:
                self.ends["never ended"] += 1
                task.cancel()

    async def _see_through(self) -> None:
        """Submit a run, decide what it asks, and count how it ended."""
        agent, session = self.chance.choice(("clerk", "asker")), f"s{self.chance.randrange(SESSIONS)}"
        run = await self._submit(agent, session, key=uuid4().hex)
        while (result := await run.result()).status is AgentStatus.AWAITING_HUMAN:
            await asyncio.sleep(self.chance.uniform(0, 0.3))
            for call in result.approvals:
                await self._decide(run, call.tool_call_id)
        self.ends[result.status.value] += 1
        if result.error is not None:
            print(f"{run.session_id}:{run.serial}: {result.error.code}: {result.error.message}", file=sys.stderr)

    async def _submit(self, agent: str, session: str, key: str) -> RunHandle:
        """Submit a run, once more if the engine could not be told of it: the key keeps it one run."""
        while True:
            try:
                return await submit(self.store, self.engine, agent=agent, session=session, prompt=PLANTED, key=key)
            except EngineError as error:
                self._note_refused(error)
                await asyncio.sleep(LOOK_SECONDS)

    async def _decide(self, run: RunHandle, call: str) -> None:
        try:
            if self.chance.random() < 0.8:
                await run.approve(call)
            else:
                await run.deny(call, reason=PLANTED)
        except EngineError as error:  # the decision is recorded, and a sweep of the workers finds it
            self._note_refused(error)

    def _note_refused(self, error: EngineError) -> None:
        self.refused += 1
        print(f"the engine could not be told: {error.code}: {error}", file=sys.stderr)

    # ------------------------------------------------------------ what happens to workers

    async def take_away(self, rounds: int, number: signal.Signals) -> None:
        """Take workers away, as often as that."""
        try:
            for _ in range(WORKERS):
                self.fleet.start()
            while len(self.fleet.ready()) < WORKERS:  # noqa: ASYNC110  # files do not tell
                await asyncio.sleep(0.05)
            async with asyncio.TaskGroup() as group:  # if looking fails, nothing waits for what it would find
                looking = group.create_task(self._look_for_takeovers())
                if number == signal.SIGKILL:
                    await self._kill(rounds)
                else:
                    await self._stop(rounds)
                await self._all_taken()
                looking.cancel()
        finally:
            self._is_over = True

    async def _kill(self, rounds: int) -> None:
        for number in range(1, rounds + 1):
            pid = await self._busy_worker()
            self.fleet.kill(pid)
            self._note_lost(pid)
            self.fleet.start()
            # Most workers are there, and have work, when the next one dies.
            while len(self.fleet.ready()) < WORKERS - 2 or len(self.lost) > OPEN_RUNS // 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            if not self._overlaps and not number % self._at_once:
                await self._all_taken()
            await asyncio.sleep(self.chance.uniform(0, 0.2))

    async def _stop(self, rounds: int) -> None:
        """Stop workers, and let them go on when others have all that they had."""
        while rounds:
            begin = uptime()
            for _ in range(min(rounds, self._at_once)):
                pid = await self._busy_worker()
                os.kill(pid, signal.SIGSTOP)
                self._note_lost(pid)
                self.stopped.add(pid)
                rounds -= 1
            while uptime() < begin + self._setting.dead:  # noqa: ASYNC110
                await asyncio.sleep(LOOK_SECONDS)
            await self._all_taken()
            for pid in tuple(self.stopped):
                await asyncio.sleep(self.chance.uniform(0, 0.3))
                os.kill(pid, signal.SIGCONT)
                self.stopped.discard(pid)
            await asyncio.sleep(self.chance.uniform(0, 0.5))

    async def _all_taken(self) -> None:
        """Return when others have all sessions. One that loses two workers, one after the other, waits twice."""
        while self.lost:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_SECONDS)

    async def _busy_worker(self) -> int:
        """Return a worker that has a session, at a random moment."""
        while True:
            await asyncio.sleep(self.chance.uniform(0, 0.05))
            there = set(self.fleet.pids) - self.stopped
            busy = sorted({pid for _, _, pid, _ in self._held() if pid in there})
            if busy:
                return self.chance.choice(busy)

    def _held(self) -> list[tuple[str, int, int, int]]:
        with self.place.raw() as connection:
            rows = connection.execute(_HELD.encode()).fetchall()
        return [(name, key, msgspec.json.decode(by, type=LeaseOwner).pid, at) for name, key, by, at in rows]

    def _note_lost(self, pid: int) -> None:
        since = uptime()
        waiting = {lost.key for lost in self.lost}
        self.lost += [
            Lost(name, key, serial, pid, since)
            for name, key, by, serial in self._held()
            if by == pid and key not in waiting
        ]

    async def _look_for_takeovers(self) -> None:
        """Note when a session that lost its worker goes on."""
        with self.place.raw() as connection:
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                watched = [lost.key for lost in self.lost], [lost.serial for lost in self.lost]
                taken = {key for (key,) in connection.execute(_TAKEN.encode(), watched)} if self.lost else set()
                now = uptime()
                for lost in tuple(self.lost):
                    if lost.key in taken:
                        self.waits.append(now - lost.since)
                        self.lost.remove(lost)
                    elif now > lost.since + self._setting.dead + 1 and not await self._is_due(lost):
                        self.not_due += 1
                        self.lost.remove(lost)
                    elif now > lost.since + PATIENCE:
                        print(f"session {lost.session_id} was never taken over", file=sys.stderr)
                        self.ends["never taken over"] += 1
                        self.waits.append(now - lost.since)
                        self.lost.remove(lost)

    async def _is_due(self, lost: Lost) -> bool:
        """Whether there is something to take over: the run may have ended, or wait, in the last append of its owner."""
        return is_due((await open_session(self.store, lost.session_id)).state.derived)

    # ------------------------------------------------------------ what came of it

    async def judge(self) -> list[str]:
        """Return what is wrong."""
        wrong = [f"{number} runs {how}" for how, number in self.ends.items() if how != "completed"]
        executed = Counter(tuple(line.split()[:3]) for line in self.fleet.lines("executed"))
        twice = [call for call, times in executed.items() if times > 1 and call[0] in ("send", "ask")]
        wrong += [f"ran twice: {call}" for call in twice]
        acknowledged: dict[str, dict[int, str]] = {}
        for line in self.fleet.lines("acknowledged"):
            name, serial, checksum = line.split()
            acknowledged.setdefault(name, {})[int(serial)] = checksum
        interrupted = lost = entries = 0
        for name, heads in acknowledged.items():
            newest = max(heads)
            report = await self.store.verify(name, kept=Head(newest, heads[newest]))
            if not report.is_sound:
                wrong.append(f"session {name}: {report.problem}")
            kept = self._checksums(name)
            lost += sum(kept.get(serial) != checksum for serial, checksum in heads.items())
            loaded = await self.store.load(name)
            entries += len(loaded)
            wrong += _wrong_order(name, loaded)
            for entry in loaded:
                if isinstance(entry, ToolFinishedEntry):
                    interrupted += entry.result.error_code is ErrorCode.TOOL_INTERRUPTED
                    call = entry.result.tool_name, name, entry.result.tool_call_id
                    if entry.result.error_code is None and call not in executed:
                        wrong.append(f"has a result and never ran: {call}")
        if lost:
            wrong.append(f"{lost} acknowledged heads are not in the store")
        repeated = sum(times - 1 for call, times in executed.items() if call[0] == "look")
        print(
            f"{sum(self.ends.values())} runs {dict(self.ends)} in {len(acknowledged)} sessions, {entries} entries;"
            f" {sum(map(len, acknowledged.values()))} acknowledged heads, {lost} lost; {sum(executed.values())} tools"
            f" ran: {len(twice)} twice that may not, {repeated} again that may, {interrupted} interrupted;"
            f" {self.refused} calls of the engine failed"
        )
        return wrong

    def _checksums(self, name: str) -> dict[int, str]:
        with self.place.raw() as connection:
            select = (
                b"SELECT serial, encode(checksum, 'hex') FROM entries"
                b" WHERE session = (SELECT key FROM sessions WHERE session_id = %s)"
            )
            return dict(connection.execute(select, (name,)).fetchall())


def _wrong_order(name: str, entries: Iterable[HistoryEntry]) -> list[str]:
    """Every requested run must have begun once, in the order of the requests, and no other run."""
    requested = [entry.run_id for entry in entries if isinstance(entry, RunRequestedEntry)]
    started = [entry.run_id for entry in entries if isinstance(entry, RunStartedEntry)]
    return [] if started == requested else [f"session {name}: requested were {requested}, begun {started}"]


async def judge_takeovers(
    place: Place, setting: Setting, rounds: int, number: signal.Signals, *, is_timed: bool, **how: Any
) -> bool:
    """Take workers away; return whether all was well, and quick enough if that is asked for."""
    begin = time.monotonic()
    async with setting.open_store() as store:
        await store.migrate()
        engine = setting.open_engine()
        await engine.prepare()
        campaign = Campaign(place, setting, store, engine, **how)
        try:
            await asyncio.gather(campaign.stream_runs(), campaign.take_away(rounds, number))
            await stop_all(campaign.fleet)
            wrong = await campaign.judge()
        finally:
            campaign.fleet.close()
            await engine.close()
    waits = sorted(campaign.waits)
    if not waits:
        print("no session was taken over: nothing was shown")
        return False
    slow = waits[min(len(waits) - 1, int(len(waits) * 0.99))]
    print(
        f"{rounds} of {WORKERS} workers {'killed' if number == signal.SIGKILL else 'stopped'} on {setting.engine}:"
        f" {len(waits)} sessions went on elsewhere after {waits[len(waits) // 2]:.2f} s (median), {slow:.2f} (99 %),"
        f" {waits[-1]:.2f} (slowest), {campaign.not_due} had nothing left to do; dead after {setting.dead:g} s,"
        f" lease {setting.lease:g} s ({time.monotonic() - begin:.0f} s)"
    )
    for words in wrong:
        print(f"wrong: {words}")
    return not wrong and (not is_timed or slow <= setting.dead + 2)


async def stop_all(fleet: Fleet) -> None:
    """Let all workers end as an operator does."""
    for pid in fleet.pids:
        os.kill(pid, signal.SIGTERM)
    while not all(map(fleet.is_gone, fleet.pids)):  # noqa: ASYNC110  # they are no children of this process
        await asyncio.sleep(0.02)


# ---------------------------------------------------------------- many runs


async def judge_many(place: Place, setting: Setting, sessions: int, *, is_timed: bool) -> bool:
    """Submit many sessions at once, and bare runs before; return whether all ended and the engine cost little."""
    async with setting.open_store() as store:
        await store.migrate()
        engine = setting.open_engine()
        await engine.prepare()
        bare = await measured(place, lambda: run_bare(store, setting, sessions))
        fleet = Fleet(setting)
        try:
            for _ in range(WORKERS):
                fleet.start()
            while len(fleet.ready()) < WORKERS:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            used = await measured(place, lambda: run_by_workers(place, store, engine, fleet, sessions))
        finally:
            fleet.close()
            await engine.close()
    workers = sum(float(line.split()[1]) for line in fleet.lines("cpu"))
    ends = Counter(value for (value,) in rows(place, "SELECT status FROM requests"))
    overhead = (workers - bare.own) / sessions
    print(
        f"{sessions} sessions at once on {WORKERS} workers, {setting.engine}: {dict(ends)} in {used.wall:.1f} s;"
        f" CPU per run: workers {1e3 * workers / sessions:.1f} ms, bare Agent.run {1e3 * bare.own / sessions:.1f} ms,"
        f" overhead {1e3 * overhead:.1f} ms; submitting {1e3 * used.own / sessions:.1f} ms; PostgreSQL"
        f" {1e3 * used.server / sessions:.1f} ms, for bare runs {1e3 * bare.server / sessions:.1f} ms"
    )
    is_cheap = setting.engine != "postgres" or overhead <= 0.03
    return ends == Counter(completed=sessions) and (not is_timed or is_cheap)


class Cost(NamedTuple):
    """Seconds: of the clock, of this process, of PostgreSQL's processes (0 if they cannot be looked at)."""

    wall: float
    own: float
    server: float


async def measured(place: Place, do: Callable[[], Awaitable[None]]) -> Cost:
    """Return what it costs."""
    before = Cost(time.monotonic(), time.process_time(), server_cpu(place))
    await do()
    after = Cost(time.monotonic(), time.process_time(), server_cpu(place))
    return Cost(*(later - earlier for earlier, later in zip(before, after, strict=True)))


def server_cpu(place: Place) -> float:
    """Seconds of CPU that the server took, with all of its processes that have ended."""
    if place.server.data is None:
        return 0.0
    postmaster = int((place.server.data / "postmaster.pid").read_text().split()[0])
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[1]) == postmaster:
                ticks += int(fields[11]) + int(fields[12])
            elif path.parent.name == str(postmaster):
                ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


async def run_bare(store: NotingStore, setting: Setting, sessions: int) -> None:
    """Run the agent without an engine, as many at a time as workers do."""
    agents, free = make_agents(setting), asyncio.Semaphore(WORKERS)

    async def run(number: int) -> None:
        async with free:
            session = await start_session(store, f"bare-{number}")
            result = await (await agents.make("short", session)).run(PLANTED)
            assert result.status is AgentStatus.COMPLETED

    await asyncio.gather(*map(run, range(sessions)))


async def run_by_workers(place: Place, store: NotingStore, engine: Engine, fleet: Fleet, sessions: int) -> None:
    """Submit runs at once, wait until all have ended, and stop the workers."""

    async def request(number: int) -> None:
        await submit(store, engine, agent="short", session=f"many-{number}", prompt=PLANTED)

    await asyncio.gather(*map(request, range(sessions)))
    is_open = "SELECT count(*) FROM requests WHERE status IN ('queued', 'running')"
    while await asyncio.to_thread(place.scalar, is_open):  # noqa: ASYNC110
        await asyncio.sleep(0.2)
    await stop_all(fleet)


def rows(place: Place, query: str) -> list[tuple[Any, ...]]:
    """Return what a query finds."""
    with place.raw() as connection:
        return connection.execute(query.encode()).fetchall()


# ---------------------------------------------------------------- a long run


async def judge_long(place: Place, setting: Setting, folder: Path) -> bool:
    """Carry on a conversation of 400 steps and some 500,000 tokens; return whether the engine saw nothing of it."""
    found = most = known = 0
    begin = time.monotonic()
    async with setting.open_store() as store:
        await store.migrate()
        engine = setting.open_engine()
        await engine.prepare()
        fleet = Fleet(setting)
        try:
            fleet.start()
            fleet.start()
            run = await submit(store, engine, agent="long", session=LONG, prompt=PLANTED)
            ending = asyncio.ensure_future(run.result())
            while not ending.done():
                texts = await asyncio.to_thread(engine_texts, place, folder)
                found += sum(text.count(PLANTED.encode()) for text in texts)
                known += sum(text.count(LONG.encode()) for text in texts)
                most = max(most, sum(map(len, texts)))
                await asyncio.wait((ending,), timeout=1.0)
            result = await ending
            await stop_all(fleet)
        finally:
            fleet.close()
        found += sum(text.count(PLANTED.encode()) for text in engine_texts(place, folder))
        session = await open_session(store, LONG)
        tokens = sum(len(message.text) for message in session.messages) // 4
        tokens += sum(len(str(each.content)) for message in session.messages for each in message.tool_results) // 4
        steps = sum(isinstance(entry, ToolFinishedEntry) for entry in session.entries)
        is_sound = (await store.verify(LONG)).is_sound
        history = await history_size(engine, setting, run)
        await engine.close()
    assert known, "the search does not find what the engine must know"
    per_step = (most if history is None else history) / max(1, steps)
    print(
        f"{steps} steps, {tokens} tokens on {setting.engine}: {result.status} after {time.monotonic() - begin:.0f} s,"
        f" {'sound' if is_sound else 'damaged'}; {found} planted words in the engine's database; at most"
        f" {most if history is None else history} bytes of {'rows' if history is None else 'history'},"
        f" {per_step:.1f} a step"
    )
    return result.status is AgentStatus.COMPLETED and is_sound and not found and steps >= 400 and per_step <= 1024


def engine_texts(place: Place, folder: Path) -> list[bytes]:
    """All that the engine keeps: the rows of its tables as text, and the files of Temporal's server."""
    schema = f"{place.schema}_engine"
    tables = [name for (name,) in rows(place, f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'")]
    texts = [row.encode() for name in tables for (row,) in rows(place, f"SELECT t::text FROM {schema}.{name} AS t")]
    return texts + [path.read_bytes() for path in folder.glob("temporal.db*")]


async def history_size(engine: Engine, setting: Setting, run: RunHandle) -> int | None:
    """The bytes of the workflow's history; None if the engine is another one."""
    if setting.engine != "temporal":
        return None
    client = await engine._connect()  # type: ignore[attr-defined]  # that of TemporalEngine
    schema = setting.store.partition("#")[2]
    history = await client.get_workflow_handle(f"{schema}:{run.order}").fetch_history()
    return sum(int(event.ByteSize()) for event in history.events)


# ---------------------------------------------------------------- the command line


@contextmanager
def settled(chosen: argparse.Namespace) -> Iterator[tuple[Place, Setting, Path]]:
    """Yield where the store is, how workers work, and the folder of Temporal's files; start what is not there."""
    with TemporaryDirectory() as name, started_store(chosen.store) as place:
        folder = Path(name)
        (folder / "notes").mkdir()
        with started_temporal(chosen, folder) as server:
            pace = 0.0 if chosen.task in ("many", "long") else 0.15
            setting = Setting(
                place.address, f"{name}/notes", chosen.engine, server, chosen.slots, chosen.heartbeat, chosen.dead,
                chosen.dead, pace,
            )  # fmt: skip
            yield place, setting, folder


@contextmanager
def started_store(address: str) -> Iterator[Place]:
    """Yield a place of a server, which is started if there is none."""
    if address != "-":
        dsn, _, schema = address.partition("#")
        yield Place(Server(dsn), schema)
        return
    with running_server() as server:
        yield Place(server, "workers")


@contextmanager
def started_temporal(chosen: argparse.Namespace, folder: Path) -> Iterator[str]:
    """Yield the address of Temporal's server, which is started with its files in that folder; empty without one."""
    if chosen.engine != "temporal" or chosen.server:
        yield chosen.server
        return
    from tests.temporal_server import TemporalServer

    server = TemporalServer(folder, has_files=True)
    server.start()
    try:
        yield server.address
    finally:
        server.stop()


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=("kill", "stop", "many", "long"))
    parser.add_argument("store")
    parser.add_argument("--engine", choices=("postgres", "temporal"), default="postgres")
    parser.add_argument("--server", default="")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--heartbeat", type=float, default=0.5)
    parser.add_argument("--dead", type=float, default=6.0)
    parser.add_argument("--at-once", type=int, default=3)
    parser.add_argument("--overlap", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timed", action="store_true", help="fail also where it takes too long")
    chosen = parser.parse_args()
    with settled(chosen) as (place, setting, folder):
        match chosen.task:
            case "many":
                is_well = asyncio.run(judge_many(place, setting, chosen.sessions, is_timed=chosen.timed))
            case "long":
                is_well = asyncio.run(judge_long(place, setting, folder))
            case _:
                number = signal.SIGKILL if chosen.task == "kill" else signal.SIGSTOP
                how = {"seed": chosen.seed, "overlaps": chosen.overlap, "at_once": chosen.at_once}
                judging = judge_takeovers(place, setting, chosen.rounds, number, is_timed=chosen.timed, **how)
                is_well = asyncio.run(judging)
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
