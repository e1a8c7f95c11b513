"""A random walk of faults: agents that are failed, stopped, aborted, refused and carried on, and what they leave.

    python -m tests.agent_walk --runs 10000 --seed 0

A run is one session with several lives. In each a new agent, with a model of another provider, goes on where the last
one was stopped, and does so once or a few times, while models, tools, people and the store misbehave. After every one
the history must obey the rules and every call of a turn that is over must have its one result; after every life some
providers must take the conversation, in the end all, and a last agent, whom nothing happens to, must be able to answer.
"""

import argparse
import asyncio
import contextlib
import logging
import os
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

from dragoman import AgentConfig, ContextConfig, InvalidValue, LoopConfig, ObservabilityConfig, StoreError, ToolsConfig
from dragoman.agent import Agent, AgentRun, RunResult
from dragoman.context import ModelCompactor
from dragoman.history import AgentStatus, HistoryEntry, RunStatus, ToolResultsEntry, ToolStartedEntry
from dragoman.history.rules import RULES
from dragoman.router import ProviderRouter
from dragoman.store import AppendConflict, Session, SessionBusy, open_session, start_session
from dragoman.testing.scripted import ScriptedModel
from tests.agent_checks import find_problems, find_refusals
from tests.agent_faults import Noise, ShakyStore, Troublesome, Troupe, Whims
from tests.conversations import TARGETS

SESSION = "walk"
LONGEST = 1_000  # turns of the event loop that a run may take before somebody loses patience
QUIET = ObservabilityConfig(log_level="off")
ENDED = frozenset(map(str, RunStatus))


class Tally(NamedTuple):
    """What happened, and what was wrong."""

    counts: Counter[str]
    wrong: list[str]


class Walk:
    """One session and all that is done to it."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._store = ShakyStore(self._chance)
        self._troupe = Troupe(self._chance, with_threads=self._chance.random() < 0.05)
        self._tools = self._troupe.tools()
        self._models = Troublesome(self._chance, [tool.name for tool in self._tools])
        self._whims = Whims(self._chance)
        self.tally = Tally(Counter(), [])

    async def go(self) -> Tally:
        """Live all lives, and then one in peace."""
        await start_session(self._store, SESSION)
        try:
            for _ in range(self._chance.randrange(1, 4)):
                await self._live()
                await self._crash()
            await self._end_in_peace()
        finally:
            self._troupe.free()
        entries = await self._store.load(SESSION)
        self.tally.counts["entries"] += len(entries)
        results = [result for entry in entries if isinstance(entry, ToolResultsEntry) for result in entry.results]
        self.tally.counts.update(f"result {result.error_code or 'success'}" for result in results)
        return self.tally

    # ------------------------------------------------------------ lives

    async def _live(self) -> None:
        """Open the session as a new process does, and work with it."""
        chance = self._chance
        session = await open_session(self._store, SESSION)
        agent = self._agent(session)
        self._store.appends_left = chance.randrange(25) if chance.random() < 0.3 else None
        self._store.loses_answer = chance.random() < 0.3
        if session.run_id and chance.random() < 0.1:
            await self._abandon(agent)
        for _ in range(chance.randrange(1, 4)):
            await session.refresh()
            if chance.random() < 0.03 and self._store.appends_left is None and not session.run_id:
                await session.reset()
                self.tally.counts["resets"] += 1
            if session.state.status is AgentStatus.AWAITING_HUMAN:
                await self._answer(agent, session)
            await self._run(agent, session)
            if chance.random() < 0.2:
                agent.use(self._model())
        self._store.appends_left = None
        self._render(await self._store.load(SESSION), self._chance.sample(tuple(TARGETS), 2))

    def _agent(self, session: Session) -> Agent[Any, Any]:
        chance = self._chance
        limits = LoopConfig(
            max_iterations=chance.choice((1, 3, 8)),
            max_tool_rounds=chance.choice((None, None, 2)),
            max_tokens=chance.choice((None, None, 100)),
            max_seconds=0.002 if chance.random() < 0.05 else None,
            attempts=3,
            backoff_seconds=0,
            backoff_limit_seconds=0.01,
        )
        child: Agent[Any, Any] = Agent(self._models.model(), tools=self._tools, config=AgentConfig(observability=QUIET))
        return Agent(
            self._model(),
            output_type=int if chance.random() < 0.1 else str,
            tools=[*self._tools, child.as_tool("helper", "Helps.")],
            session=session,
            instructions=chance.choice((None, "Be brief.", "Be kind.")),
            config=AgentConfig(
                loop=limits,
                observability=QUIET,
                tools=ToolsConfig(
                    notebook=True,
                    approval=chance.choice(("as_declared", "as_declared", "never", "always")),
                    parallel_limit=chance.choice((1, 2, 8)),
                ),
                context=ContextConfig(budget_tokens=chance.choice((None, 2_500))),
            ),
            approval=self._whims.decide if chance.random() < 0.5 else None,
            hooks=[Noise(chance)] if chance.random() < 0.3 else (),
            compactor=ModelCompactor() if chance.random() < 0.3 else None,
        )

    def _model(self) -> ScriptedModel | ProviderRouter:
        if self._chance.random() < 0.7:
            return self._models.model()
        several = [self._models.model() for _ in range(3)]
        return ProviderRouter(default=several, falls_back_after_start=self._chance.random() < 0.5)

    async def _abandon(self, agent: Agent[Any, Any]) -> None:
        """End the run that the session was left with."""
        try:
            await agent.abort()
        except StoreError as error:
            if self._store.appends_left != 0:
                self._complain(f"a run could not be abandoned: {error}")
        self.tally.counts["abandoned"] += 1

    async def _answer(self, agent: Agent[Any, Any], session: Session) -> None:
        """Be the person that was asked: answer all, some or none, or give up."""
        if self._chance.random() < 0.15:
            await self._abandon(agent)
            return
        for asked in session.state.derived.approvals_asked:
            if self._chance.random() < 0.3:
                continue
            decision = self._whims.decision()
            try:
                if decision.approved:
                    await agent.approve(asked.tool_call_id, arguments=decision.arguments, reason=decision.reason)
                else:
                    await agent.deny(asked.tool_call_id, reason=decision.reason)
            except InvalidValue as error:
                if "do not fit" not in str(error):
                    self._complain(f"an answer was refused: {error}")
                continue
            except StoreError as error:
                if self._store.appends_left != 0:
                    self._complain(f"an answer was not kept: {error}")
                return
            self.tally.counts["answers of a person"] += 1
            with contextlib.suppress(InvalidValue):
                await agent.approve(asked.tool_call_id)
                self._complain("a call was answered twice")

    async def _run(self, agent: Agent[Any, Any], session: Session) -> None:
        """Say something, or carry on, and disturb it."""
        await session.refresh()
        state, chance = session.state, self._chance
        can_carry_on = bool(state.current_run_id) or state.derived.owes_answer
        prompt = None if can_carry_on and chance.random() < 0.6 else "What now?"
        is_to_end = state.derived.abort_request is not None
        if prompt is not None and state.status is AgentStatus.AWAITING_HUMAN and not is_to_end:
            with contextlib.suppress(InvalidValue):
                refused = await agent.run(prompt)
                if self._store.appends_left != 0:  # else the store was the first to refuse
                    self._complain(f"no one has decided, and yet it goes on: {refused}")
            return
        self._whims.has_failed = False
        run = agent.stream(prompt)
        reader = asyncio.ensure_future(_read(run)) if chance.random() < 0.3 else None
        waiting = asyncio.ensure_future(run.result())
        was_disturbed = await self._attend(run, waiting)
        try:
            result = await waiting
        except asyncio.CancelledError:
            self.tally.counts["cancelled"] += 1
            result = None
        if reader is not None:
            await reader
        if result is not None:
            self._note_result(result, session, was_disturbed)
        self._find_wrongs(session)

    async def _attend(self, run: AgentRun[Any], waiting: "asyncio.Future[RunResult[Any]]") -> bool:
        """Interfere with a run that is under way, and stop it if it takes too long; return whether a rival wrote.

        A usurper carries the run on himself, as soon as its lease has expired. Another process may steer the run, or
        ask it to end.
        """
        chance = self._chance
        ours = ("nothing", "nothing", "abort", "abort", "cancel", "steer")
        what = chance.choice((*ours, "rival", "usurper", "advice", "request"))
        when = chance.randrange(chance.choice((20, 100, 400)))
        has_rival = False
        for turn in range(LONGEST):
            await asyncio.sleep(0)
            if waiting.done():
                return has_rival
            if turn != when:
                continue
            match what:
                case "abort":
                    await run.abort()
                case "cancel":
                    waiting.cancel()
                case "steer":
                    with contextlib.suppress(InvalidValue, StoreError):  # the run has ended, or the store fails
                        await run.steer("And hurry.")
                case "rival" if self._store.appends_left is None:
                    has_rival = True
                    rival = await open_session(self._store, SESSION)
                    with contextlib.suppress(AppendConflict, SessionBusy):  # the agent was faster, or works
                        await rival.update_memory_notebook("A rival was here.")
                case "usurper" if self._store.appends_left is None:
                    has_rival = True
                    self._store.expire(SESSION)
                    other = self._calm_agent(await open_session(self._store, SESSION))
                    # There was nothing to carry on, a person is asked, or the agent takes the session just then.
                    with contextlib.suppress(InvalidValue, SessionBusy):
                        await other.run()
                case "advice" if self._store.appends_left is None:
                    await (await open_session(self._store, SESSION)).steer("And hurry, they say.")
                case "request" if self._store.appends_left is None:
                    with contextlib.suppress(InvalidValue):  # the run has ended
                        await (await open_session(self._store, SESSION)).request_abort()
        self.tally.counts["lost patience"] += 1
        await run.abort()
        return has_rival

    async def _crash(self) -> None:
        """Lose what was appended last, as a process that was killed does; what is left is what some append ended with.

        A call whose start is lost has not run.
        """
        ends = self._store.ends
        if not ends or self._chance.random() < 0.4:
            return
        end = self._chance.choice(ends[-12:])
        entries = (await self._store.load(SESSION))[:end]
        self._store = ShakyStore(self._chance)
        await self._store.create(SESSION)
        await self._store.append(SESSION, entries, 0)
        started = {entry.tool_call_id for entry in entries if isinstance(entry, ToolStartedEntry)}
        for name in set(self._troupe.marks) - started:
            del self._troupe.marks[name]
        self.tally.counts["crashes"] += 1

    async def _end_in_peace(self) -> None:
        """Open the session once more: whatever was left of it, an agent carries it on and answers."""
        session = await open_session(self._store, SESSION)
        agent = self._calm_agent(session)
        if session.state.status is AgentStatus.AWAITING_HUMAN:
            if self._chance.random() < 0.5:
                await agent.abort()
            else:
                for asked in session.state.derived.approvals_asked:
                    await agent.approve(asked.tool_call_id)
        for _ in range(3):
            result = await agent.run("And now?")
            if result.status is not AgentStatus.AWAITING_HUMAN:
                break
            for asked in session.state.derived.approvals_asked:
                await agent.deny(asked.tool_call_id)
        if (result.status, result.output) != (AgentStatus.COMPLETED, "All is well."):
            self._complain(f"the last agent ended {result.status}: {result.error}")
        self._find_wrongs(session)
        self._render(session.entries, tuple(TARGETS))

    def _calm_agent(self, session: Session) -> Agent:
        calm = Troupe(self._chance, is_calm=True)
        calm.marks = self._troupe.marks
        return Agent(
            ScriptedModel("All is well.", repeats=True),
            tools=calm.tools(),
            session=session,
            config=AgentConfig(observability=QUIET),
        )

    # ------------------------------------------------------------ what must hold

    def _note_result(self, result: RunResult[Any], session: Session, was_disturbed: bool) -> None:
        state = session.state
        self.tally.counts[f"run {result.status}"] += 1
        self.tally.counts[f"error {result.error.code}" if result.error else "no error"] += 1
        if result.error is not None and any(f"{rule}:" in result.error.message for rule in RULES):
            self._complain(f"an entry was refused: {result.error}")
        if was_disturbed or self._whims.has_failed or self._store.appends_left == 0:
            return
        if result.status is not state.status:
            self._complain(f"the run is {result.status} ({result.error}), its session {state.status}")
        if result.status in ENDED and state.current_run_id:
            self._complain(f"the run is {result.status} and still open")
        if (result.status is AgentStatus.AWAITING_HUMAN) is not bool(result.approvals):
            self._complain(f"the run is {result.status} and asks for {result.approvals}")

    def _find_wrongs(self, session: Session) -> None:
        for problem in find_problems(session.entries):
            self._complain(problem)
        for name, count in self._troupe.marks.items():
            if count > 1:
                self._complain(f"{name} has run {count} times")

    def _render(self, entries: Sequence[HistoryEntry], targets: Sequence[str]) -> None:
        for refusal in find_refusals(entries, [tool.spec for tool in self._tools], targets=targets):
            self._complain(refusal)
        self.tally.counts["requests rendered"] += len(targets)

    def _complain(self, problem: str) -> None:
        self.tally.wrong.append(problem)


async def _read(run: AgentRun[Any]) -> None:
    seqs = [event.seq async for event in run]
    assert seqs == list(range(len(seqs)))


# ---------------------------------------------------------------- many


class _Bugs(logging.Handler):
    """Hears of unwanted exceptions, from the library and from asyncio.

    Those of tools, hooks and policies are wanted, and meant to be logged.
    """

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Note what was logged, unless it was wanted."""
        said = record.getMessage()
        if not said.startswith(("the tool ", "the hook ", "the approval policy ", "requires_approval of ")):
            self.found.append(said)


@contextlib.contextmanager
def listening() -> Iterator[list[str]]:
    """Hear what the library logs meanwhile, and let no other handler hear it."""
    bugs, loggers = _Bugs(), [logging.getLogger(name) for name in ("dragoman", "asyncio")]
    were_told = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.addHandler(bugs)
        logger.propagate = False
    try:
        yield bugs.found
    finally:
        for logger, was_told in zip(loggers, were_told, strict=True):
            logger.removeHandler(bugs)
            logger.propagate = was_told


def walk(seed: int) -> Tally:
    """Walk once; return what happened, and what was wrong, with the seed that shows it."""

    async def limited() -> Tally:
        async with asyncio.timeout(60):
            return await Walk(seed).go()

    with listening() as bugs:
        try:
            tally = asyncio.run(limited())
        except Exception as error:  # noqa: BLE001  # whatever it is, the others go on
            return Tally(Counter(), [f"seed {seed}: {type(error).__name__}: {error}"])
    return Tally(tally.counts, [f"seed {seed}: {problem}" for problem in (*tally.wrong, *bugs)])


def walk_all(runs: int, seed: int, *, processes: int | None = None) -> Tally:
    """Walk so many times."""
    find_refusals(())  # loads the vendors' types once, for all processes
    total = Tally(Counter(), [])
    seeds = range(seed, seed + runs)
    with ProcessPoolExecutor(processes) as pool:
        for tally in pool.map(walk, seeds, chunksize=20):
            total.counts.update(tally.counts)
            total.wrong.extend(tally.wrong)
    return total


def main() -> None:
    """Walk and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.agent_walk", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    started = time.monotonic()
    total = walk_all(options.runs, options.seed, processes=os.cpu_count())
    for name, count in sorted(total.counts.items()):
        print(f"{count:>9,} {name}")
    for problem in total.wrong[:20]:
        print(problem[:1_500])
    seconds = time.monotonic() - started
    print(f"{options.runs} runs from seed {options.seed}: {len(total.wrong)} wrong ({seconds:.0f} s)")
    raise SystemExit(bool(total.wrong))


if __name__ == "__main__":
    main()
