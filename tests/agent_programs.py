"""A program that treats agents badly: they work on stored sessions in a process that is killed at random moments.

    python -m tests.agent_programs kill STORE --rounds 500 --render

STORE is the path of a SQLite file, or anything else that tests.store_programs takes. After a kill another process goes
on, on another model, and may be killed as well. The program prints what it found, and fails if a session is damaged or
cannot be carried on, if a call has no result or two, if a tool that is not idempotent ran twice, or if a result that
was recorded before the kill is another one afterwards; with --render also if any provider would refuse what is left.
"""

import argparse
import asyncio
import json
import os
import random
import select
import signal
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dragoman import AgentConfig, ErrorCode, LoopConfig, ModelError, ObservabilityConfig, ToolsConfig
from dragoman.agent import Agent, Hooks
from dragoman.history import (
    AgentState,
    AgentStatus,
    HistoryEntry,
    HistoryToolCallResult,
    NotebookEntry,
    ToolFinishedEntry,
    ToolResultsEntry,
    ToolStartedEntry,
)
from dragoman.store import Session, SessionStore, open_session, start_session
from dragoman.testing.scripted import Call, Script, ScriptedModel, ScriptedRequest, Turn
from dragoman.tools import ToolContext, ToolDefinition
from dragoman.wire import find_dialect
from tests.agent_checks import find_problems, find_refusals
from tests.conversations import TARGETS
from tests.store_programs import has, in_child, open_store, prepare

AT_ONCE = 2  # sessions that one process works on
ROUNDS_EACH = 20  # kills after which new sessions are begun
LONGEST_LIFE = 0.06  # seconds a process may live after its first result
SAFE = "look"  # the one tool that may run again
NOTE = "memory_notebook_append"
CONFIG = AgentConfig(
    loop=LoopConfig(backoff_seconds=0),
    tools=ToolsConfig(notebook=True),
    observability=ObservabilityConfig(log_level="off"),
)


class Told(Hooks):
    """Says which results are recorded, the moment they are."""

    def __init__(self, pipe: int, session_id: str) -> None:
        self._pipe = pipe
        self._session_id = session_id

    async def after_tool(self, call: Any, context: Any, result: HistoryToolCallResult) -> None:  # as hooks have them
        """Write the call and its result to the process that kills this one."""
        line = json.dumps([self._session_id, result.tool_call_id, result.text()])
        os.write(self._pipe, f"{line}\n".encode())


class Workshop:
    """Tools that leave a mark outside: a line with the name of the session and the call for each time that one ran."""

    def __init__(self, marks: Path, session_id: str, chance: random.Random) -> None:
        self._marks = marks
        self._session_id = session_id
        self._chance = chance

    def tools(self) -> list[ToolDefinition]:
        """Return them: quick and slow, in the event loop and in a thread, with the mark first and last."""
        return [
            _tool("pay", self._mark_first),
            _tool("send", self._mark_last),
            _tool("build", self._mark_in_thread),
            _tool("count", self._mark_first, concurrency="one at a time"),
            _tool("sign", self._mark_last, requires_approval=True),
            _tool(SAFE, self._mark_last, idempotent=True),
        ]

    async def _mark_first(self, _arguments: dict[str, Any], context: ToolContext[Any]) -> str:
        self._mark(context)
        await self._work()
        return f"{context.tool_name} is done"

    async def _mark_last(self, _arguments: dict[str, Any], context: ToolContext[Any]) -> str:
        await self._work()
        self._mark(context)
        return f"{context.tool_name} is done"

    def _mark_in_thread(self, _arguments: dict[str, Any], context: ToolContext[Any]) -> str:
        self._mark(context)
        return "built"

    async def _work(self) -> None:
        await asyncio.sleep(self._chance.choice((0, 0.001, 0.005, 0.02)))

    def _mark(self, context: ToolContext[Any]) -> None:
        line = f"{self._session_id} {context.tool_call_id} {context.tool_name}\n"
        file = os.open(self._marks, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)


def _tool(name: str, execute: Any, **more: Any) -> ToolDefinition:
    return ToolDefinition(name=name, description=f"Does {name}.", execute=execute, **more)


class Player:
    """Models that call several tools at once, and now and then fail or break off."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def model(self) -> ScriptedModel:
        """Return a model of some provider."""
        target = self._chance.choice(tuple(TARGETS.values()))
        rules = find_dialect(target.provider, target.model).rules
        return ScriptedModel(self._turn, repeats=True, between=self._between, invocation=target.invocation, rules=rules)

    async def _between(self, _number: int) -> None:
        await asyncio.sleep(0.001 if self._chance.random() < 0.1 else 0)

    def _turn(self, _request: ScriptedRequest) -> Script:
        chance = self._chance
        if chance.random() < 0.1:
            return ModelError("busy", code=ErrorCode.OVERLOADED)
        if chance.random() < 0.3:
            return "That is all for now; tell me what to do next."
        calls = tuple(self._call() for _ in range(chance.randint(1, 6)))
        return Turn(text="I do several things at once.", calls=calls, breaks_after=3 if chance.random() < 0.1 else None)

    def _call(self) -> Call:
        names = ("pay", "send", "build", "count", "sign", SAFE, NOTE, "gone")
        name = self._chance.choice(names)
        return Call(name, {"text": "A line."} if name == NOTE else {})


# ---------------------------------------------------------------- in the process that is killed, and in the one after


async def work(address: str, marks: Path, session_ids: Sequence[str], pipe: int, seed: int, *, for_ever: bool) -> None:
    """Carry the sessions on; for ever, or until each is at rest."""
    store = open_store(address)
    for session_id in session_ids:
        if not await has(store, session_id):
            await store.create(session_id)
    await asyncio.gather(
        *(
            _carry_on(store, marks, session_id, pipe, random.Random(f"{seed} {session_id}"), for_ever=for_ever)
            for session_id in session_ids
        )
    )
    await store.close()


async def _carry_on(
    store: SessionStore, marks: Path, session_id: str, pipe: int, chance: random.Random, *, for_ever: bool
) -> None:
    session = await open_session(store, session_id)
    player = Player(chance)
    agent = Agent(
        player.model() if for_ever else ScriptedModel("All is done.", repeats=True),
        tools=Workshop(marks, session_id, chance).tools(),
        session=session,
        config=CONFIG,
        hooks=[Told(pipe, session_id)],
    )
    while for_ever or _has_work(session):
        for asked in session.state.derived.approvals_asked:
            if chance.random() < 0.7:
                await agent.approve(asked.tool_call_id)
            else:
                await agent.deny(asked.tool_call_id, reason="Not today.")
        await agent.run(None if _has_work(session) else "Go on with your work.")
        if for_ever and chance.random() < 0.3:
            agent.use(player.model())


def _has_work(session: Session) -> bool:
    return bool(session.run_id) or session.state.derived.owes_answer


# ---------------------------------------------------------------- outside of them


class Killing:
    """One store, its sessions, and what was heard of the processes that worked on them."""

    def __init__(self, address: str, marks: Path, seed: int, *, renders: bool = False) -> None:
        self._address = address
        self._renders = renders
        self._marks = marks
        self._chance = random.Random(seed)
        self._sessions: tuple[str, ...] = ()
        self._told: dict[str, dict[str, str]] = {}  # by session: call and result
        self.counts: Counter[str] = Counter()

    def run(self, rounds: int) -> str:
        """Kill so many times; return a line that says what was found."""
        asyncio.run(self._warm_up())
        for number in range(rounds):
            if number % ROUNDS_EACH == 0:
                self._sessions = tuple(f"s{number}-{place}" for place in range(AT_ONCE))
                self._told = {session_id: {} for session_id in self._sessions}
            self._kill_one()
            is_last = number == rounds - 1 or number % ROUNDS_EACH == ROUNDS_EACH - 1
            if is_last or self._chance.random() < 0.4:  # else the next process finds what this one has left, and dies
                self._finish_one()
            asyncio.run(self._check(is_last=is_last))
        self._count_marks()
        counts = self.counts
        found = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()) if not name.startswith("_"))
        return f"{rounds} kills: {found}; none lost, none doubled, nothing run twice"

    async def _warm_up(self) -> None:
        """Make the file, and load what a process loads when it first works: else each child spends its life on that.

        What befalls a file that is being made is the store's matter.
        """
        store = open_store(self._address)
        try:
            session = await start_session(store)
            tools = Workshop(self._marks, session.session_id, self._chance).tools()
            calls = Turn(calls=(Call("build"), Call(SAFE), Call(NOTE, {"text": "Warm."})))
            for target in TARGETS.values():
                model = ScriptedModel(calls, "Warm.", invocation=target.invocation)
                agent = Agent(model, tools=tools, session=session, config=CONFIG)
                assert (await agent.run("Warm up.")).output == "Warm."
        finally:
            await store.close()

    def _kill_one(self) -> None:
        """Let a process work until it is killed: some time after its birth, or after it has told the first result."""
        source, target = os.pipe()
        seed, chance = self._chance.randrange(2**32), self._chance
        child = in_child(work(self._address, self._marks, self._sessions, target, seed, for_ever=True))
        os.close(target)
        data = b""
        if chance.random() < 0.7:
            assert select.select([source], [], [], 60)[0], "the agents do nothing"
        deadline = time.monotonic() + chance.uniform(0, LONGEST_LIFE)
        while (left := deadline - time.monotonic()) > 0:
            if select.select([source], [], [], left)[0]:
                data += os.read(source, 65_536)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), "the process ended by itself"
        self._hear(source, data)

    def _finish_one(self) -> None:
        """Let a process carry on what was left, until it is at rest."""
        asyncio.run(self._look())
        source, target = os.pipe()
        seed = self._chance.randrange(2**32)
        child = in_child(work(self._address, self._marks, self._sessions, target, seed, for_ever=False))
        os.close(target)
        self._hear(source)
        _, status = os.waitpid(child, 0)
        assert status == 0, f"the sessions could not be carried on: {status}"
        self.counts["resumed to the end"] += AT_ONCE

    def _hear(self, source: int, data: bytes = b"") -> None:
        """Read what the process has told, to its last whole line."""
        while chunk := os.read(source, 65_536):
            data += chunk
        os.close(source)
        for line in data.decode().split("\n")[:-1]:
            session_id, call, text = json.loads(line)
            self._told[session_id][call] = text
            self.counts["results told"] += 1

    async def _look(self) -> None:
        """Count in which state the sessions were left."""
        store = open_store(self._address)
        try:
            for session_id in self._sessions:
                if await has(store, session_id):
                    state = AgentState.from_entries(await store.load(session_id), session_id=session_id)
                    started = len(state.derived.started_tool_calls)
                    self.counts[f"left {state.status}" + (" with started tools" if started else "")] += 1
        finally:
            await store.close()

    async def _check(self, *, is_last: bool) -> None:
        """Raise AssertionError unless the sessions are what they must be."""
        store = open_store(self._address)
        try:
            for session_id in self._sessions:
                if not await has(store, session_id):
                    assert not self._told[session_id]
                    continue
                report = await store.verify(session_id)
                assert report.is_sound, report
                entries = await store.load(session_id)
                problems = find_problems(entries)
                assert not problems, f"{session_id}: {problems}"
                self._require_told(session_id, entries)
                if is_last:
                    self._count(entries)
                    refusals = find_refusals(entries) if self._renders else ()
                    assert not refusals, f"{session_id}: {refusals}"
        finally:
            await store.close()

    def _require_told(self, session_id: str, entries: Sequence[HistoryEntry]) -> None:
        """What was told is in the record, as it was told, and nothing else took its place."""
        finished = {
            entry.result.tool_call_id: entry.result.text() for entry in entries if isinstance(entry, ToolFinishedEntry)
        }
        for call, text in self._told[session_id].items():
            assert finished.get(call) == text, f"{session_id}: {call} was {text!r} and is {finished.get(call)!r}"

    def _count(self, entries: Sequence[HistoryEntry]) -> None:
        """Every call has its one result now: say what became of them."""
        starts = Counter(entry.tool_call_id for entry in entries if isinstance(entry, ToolStartedEntry))
        self.counts["idempotent calls started again"] += sum(count > 1 for count in starts.values())
        notes = [entry for entry in entries if isinstance(entry, NotebookEntry)]
        results = [result for entry in entries if isinstance(entry, ToolResultsEntry) for result in entry.results]
        self.counts["calls"] += len(results)
        self.counts["calls interrupted"] += sum(result.error_code is ErrorCode.TOOL_INTERRUPTED for result in results)
        noted = [result for result in results if result.tool_name == NOTE and not result.error_code]
        assert len(notes) == len(noted), "a note was made without its result, or the other way round"
        state = AgentState.from_entries(entries)
        assert state.status is AgentStatus.COMPLETED
        assert not state.current_run_id
        assert not state.derived.owes_answer

    def _count_marks(self) -> None:
        """No tool that is not idempotent has left two marks for one call."""
        marks = Counter(self._marks.read_text().splitlines())
        twice = [mark for mark, count in marks.items() if count > 1 and not mark.endswith(f" {SAFE}")]
        assert not twice, f"run twice: {twice}"
        self.counts["marks"] = sum(marks.values())


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description="Kill processes in which agents work.")
    parser.add_argument("program", choices=("kill",))
    parser.add_argument("store", help="where it is; it need not be there yet")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--render", action="store_true", help="hold what is left to the rules of every provider")
    parser.add_argument("--marks", type=Path, help="where tools leave their marks; beside the store if not given")
    chosen = parser.parse_args()
    started = time.monotonic()
    prepare(chosen.store)
    marks = chosen.marks or Path(f"{chosen.store}.marks")
    marks.touch()
    found = Killing(chosen.store, marks, chosen.seed, renders=chosen.render).run(chosen.rounds)
    print(f"{found} ({time.monotonic() - started:.0f} s)")


if __name__ == "__main__":
    main()
