"""The rules of every engine of durable runs, as functions that raise AssertionError. None of them knows an engine.

`ENGINE_CHECKS` each take a store, and a function that opens an engine for the runs of that store. They call it once for
each worker, as several processes would; one that always returns the same engine is fine. `submit`, `carry_on` and
`Worker` are the real ones. `require_engine_conformance` runs all checks. In pytest: one test, parametrised by their
names. Every check also fails if the engine was given a word of the conversation, or if a session is damaged at its end.
Whether an engine notices workers that were killed needs processes: `dragoman.testing.engineworkers` has those rules.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any, TypeAlias

from msgspec.structs import replace

from ..agent import Agent
from ..durable import Agents, EngineError, Order, Progress, Retries, find_run, submit, sweep
from ..errors import ErrorCode
from ..history import (
    AgentStatus,
    ApprovalAnsweredEntry,
    ModelInputEntry,
    RunFinishedEntry,
    RunRequestedEntry,
    RunStartedEntry,
    ToolFinishedEntry,
    ToolStartedEntry,
)
from ..store import Session, SessionStore, open_session, start_session
from ..tools import tool
from .enginecases import MARK, PATIENCE, QUICK, OpenEngine, Stage, make_caller, make_echo, make_payer
from .storecases import raised
from .stores import OpenStore

__all__ = ["ENGINE_CHECKS", "OpenEngine", "require_engine_conformance"]

_Check: TypeAlias = Callable[[SessionStore, OpenEngine], Coroutine[Any, Any, None]]


async def require_engine_conformance(open_store: OpenStore, open_engine: OpenEngine) -> int:
    """Run every check, each with a store that `open_store` gives, and return how many were made.

    The stores may be over the same data, and the data may hold the sessions of earlier checks.
    """
    for check in ENGINE_CHECKS.values():
        store = open_store()
        try:
            await check(store, open_engine)
        finally:
            await store.close()
    return len(ENGINE_CHECKS)


def _on_stage(*sessions: str) -> Callable[[Callable[[Stage], Awaitable[None]]], _Check]:
    """Make a check of a function that takes a stage and uses these sessions."""

    def decorate(function: Callable[[Stage], Awaitable[None]]) -> _Check:
        @wraps(function)
        async def check(store: SessionStore, open_engine: OpenEngine) -> None:
            stage = Stage(store, open_engine)
            async with asyncio.timeout(PATIENCE):
                await stage.engine.prepare()
                await function(stage)
            await stage.end(sessions)

        return check

    return decorate


class _Gate:
    """A tool that says when it has begun, and ends when it may; `count` is how often it ran."""

    def __init__(self) -> None:
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()
        self.count = 0
        self.agents = Agents({"waiter": self.make})

    def make(self, session: Session) -> Agent[Any, Any]:
        """Make an agent that calls the tool."""

        @tool
        async def wait() -> str:
            """Wait."""
            self.count += 1
            self.begun.set()
            await self.may_end.wait()
            return MARK

        return make_caller(session, wait, {})


# ---------------------------------------------------------------- orders


@_on_stage("performed")
async def check_a_submitted_run_is_performed(stage: Stage) -> None:
    """A worker carries a run on that was submitted before it started, and one that was submitted after that."""
    first = await stage.submit("echo", "performed", "one")
    assert await first.status() == "queued"
    async with stage.working():
        assert (await first.result()).output == f"You said: {MARK} one"
        second = await stage.submit("echo", "performed", "two")
        assert (await second.result()).output == f"You said: {MARK} two"
    assert await second.status() == "completed"
    started = await stage.entries("performed", RunStartedEntry)
    assert [entry.run_id for entry in started] == [first.run_id, second.run_id]


@_on_stage("twice")
async def check_an_order_that_comes_twice_or_late_does_the_work_once(stage: Stage) -> None:
    """However often an order is scheduled, and after the run has ended too, its run runs once."""
    run = await stage.submit("echo", "twice")
    for _ in range(3):
        await stage.engine.schedule(run.order)
    async with stage.working(), stage.working():
        await stage.engine.schedule(run.order)
        assert (await run.result()).status is AgentStatus.COMPLETED
        entries = await stage.entries("twice")
        await stage.engine.schedule(run.order)
        await stage.forgotten(run.order)
    assert await stage.entries("twice") == entries
    assert [type(entry) for entry in entries].count(RunStartedEntry) == 1


@_on_stage("keys")
async def check_a_key_that_was_used_gives_the_run_there_is(stage: Stage) -> None:
    """Callers that submit with one key at the same moment get one run."""
    runs = await asyncio.gather(*(stage.submit("echo", "keys", key="keys-7") for _ in range(4)))
    assert len({run.run_id for run in runs}) == 1
    async with stage.working():
        await runs[0].result()
        again = await stage.submit("echo", "keys", key="keys-7")
        assert (again.run_id, again.serial) == (runs[0].run_id, runs[0].serial)
        await stage.forgotten(again.order)
    assert len(await stage.entries("keys", RunRequestedEntry)) == 1
    assert len(await stage.entries("keys", RunStartedEntry)) == 1


@_on_stage("in-order")
async def check_runs_of_one_session_go_one_after_the_other(stage: Stage) -> None:
    """Runs of one session start in the order in which they were submitted, also on several workers."""
    runs = [await stage.submit("echo", "in-order", str(number)) for number in range(4)]
    async with stage.working(), stage.working():
        runs += [await stage.submit("echo", "in-order", str(number)) for number in range(4, 6)]
        said = [(await run.result()).output for run in runs]
    assert said == [f"You said: {MARK} {number}" for number in range(6)]
    marks = await stage.entries("in-order", RunStartedEntry), await stage.entries("in-order", RunFinishedEntry)
    assert [entry.run_id for entry in marks[0]] == [entry.run_id for entry in marks[1]] == [run.run_id for run in runs]
    ends = [entry.serial for pair in zip(*marks, strict=True) for entry in pair]
    assert ends == sorted(ends)


MANY = tuple(f"many-{number}" for number in range(20))


@_on_stage(*MANY)
async def check_many_runs_by_several_workers(stage: Stage) -> None:
    """Every run of many sessions ends, and each runs once."""
    async with stage.working(), stage.working(slots=1):
        runs = await asyncio.gather(*(stage.submit("echo", name, name) for name in MANY))
        results = await asyncio.gather(*(run.result() for run in runs))
    assert [result.output for result in results] == [f"You said: {MARK} {name}" for name in MANY]
    for name in MANY:
        assert len(await stage.entries(name, RunStartedEntry)) == 1


@_on_stage()
async def check_there_are_never_more_orders_under_way_than_slots(stage: Stage) -> None:
    """An engine gives a worker as many orders as it has slots, and no more."""
    orders = [Order(f"slots-{number}", "echo", 0) for number in range(6)]
    under_way, most, done = 0, 0, 0
    two, stop = asyncio.Event(), asyncio.Event()

    async def perform(_order: Order) -> Progress:
        nonlocal under_way, most, done
        under_way += 1
        most = max(most, under_way)
        if under_way == 2:
            two.set()
        await two.wait()
        await asyncio.sleep(0.02)  # time in which an engine could begin another
        under_way, done = under_way - 1, done + 1
        if done == len(orders):
            stop.set()
        return Progress("completed", 0)

    for order in orders:
        await stage.engine.schedule(order)
    await stage.open_engine().work(perform, slots=2, stop=stop)
    assert most == 2


@_on_stage()
async def check_the_next_attempt_comes_when_it_is_due(stage: Stage) -> None:
    """The order that follows comes with its counts, and not before its seconds have passed."""
    attempts: list[tuple[float, Order]] = []

    async def perform(order: Order) -> Progress:
        attempts.append((time.monotonic(), order))
        if order.failures == 2:
            return Progress("completed", 7)
        following = Order(order.session, order.agent, order.serial, order.failures + 1, head=7)
        return Progress("running", 7, following, 0.3 if not order.failures else 0.0)

    first = Order("next", "echo", 4)
    await stage.engine.schedule(first)
    async with stage.performing(perform):
        await stage.forgotten(first)
    assert [order for _, order in attempts] == [first, Order("next", "echo", 4, 1, 7), Order("next", "echo", 4, 2, 7)]
    assert attempts[1][0] - attempts[0][0] >= 0.3


@_on_stage()
async def check_what_waits_or_is_under_way_is_known(stage: Stage) -> None:
    """`find_unscheduled` returns the orders that no engine has, in the order in which they were asked for."""
    waiting, missing = Order("known", "echo", 1), Order("known", "echo", 2)
    found: list[list[Order]] = []
    assert await stage.engine.find_unscheduled([]) == []
    assert await stage.engine.find_unscheduled([missing, waiting]) == [missing, waiting]

    async def perform(order: Order) -> Progress:
        found.append(await stage.engine.find_unscheduled([missing, order]))
        return Progress("completed", 0)

    await stage.engine.schedule(waiting)
    assert await stage.engine.find_unscheduled([Order("known", "echo", 1, failures=3), missing]) == [missing]
    async with stage.performing(perform):
        await stage.forgotten(waiting)
    assert found == [[missing]]


@_on_stage("unprepared")
async def check_several_may_prepare_at_once(stage: Stage) -> None:
    """Preparing again, and by several at once, changes nothing."""
    run = await stage.submit("echo", "unprepared")
    await asyncio.gather(*(stage.open_engine().prepare() for _ in range(4)))
    async with stage.working(), stage.working():
        assert (await run.result()).status is AgentStatus.COMPLETED


@_on_stage("engine-away")
async def check_a_run_is_found_that_was_recorded_while_the_engine_was_away(stage: Stage) -> None:
    """A request that could not be scheduled stays in the record, and a worker that starts finds it there."""
    away = stage.open_away_engine()
    call = submit(stage.store, away, agent="echo", session="engine-away", prompt=MARK, key="away-1")
    if away.follows_record:
        await call
    else:
        assert "the run is recorded" in str(await raised(EngineError, call))
        assert await sweep(stage.store, stage.engine) >= 1
    run = await find_run(stage.store, stage.engine, "engine-away")
    assert await stage.engine.find_unscheduled([run.order]) == []
    async with stage.working():
        assert (await run.result()).output == f"You said: {MARK}"


@_on_stage("refused", "before-refused", "after-refused")
async def check_an_order_that_the_engine_refuses_keeps_no_other_back(stage: Stage) -> None:
    """A worker starts and carries on all other runs; the caller of the refused one is told what is true."""
    refusing, away = stage.open_refusing_engine("refused"), stage.open_away_engine()
    for session in ("before-refused", "refused", "after-refused"):
        call = submit(stage.store, away, agent="echo", session=session, prompt=MARK)
        if away.follows_record:
            await call
        else:
            await raised(EngineError, call)
    async with stage.working(engine=refusing):
        for session in ("before-refused", "after-refused"):
            run = await find_run(stage.store, refusing, session)
            assert (await run.result()).output == f"You said: {MARK}"
        if refusing.follows_record:
            return
        call = submit(stage.store, refusing, agent="echo", session="refused", prompt=MARK)
        said = str(await raised(EngineError, call))
        assert "the engine refuses it; the run is recorded (session 'refused', serial 1)" in said
        assert "is back" not in said
        first, second = [await find_run(stage.store, refusing, "refused", serial) for serial in (0, 1)]
        assert [await first.status(), await second.status()] == ["queued", "queued"]
        assert "it is recorded" in str(await raised(EngineError, second.abort(MARK)))
        await first.abort(MARK)  # nothing is left to do, so the engine is not asked
        assert [await first.status(), await second.status()] == ["aborted", "aborted"]


LONGEST = tuple("\N{BIRD}" * 254 + end for end in ("\N{FISH}", "\N{FROG FACE}"))


@_on_stage(*LONGEST)
async def check_a_session_may_have_the_longest_id(stage: Stage) -> None:
    """Runs of sessions whose ids have the most bytes, and differ in the last character, each do their own work."""
    runs = [await stage.submit("payer", session, "pay", key=session[-200:]) for session in LONGEST]
    assert await stage.engine.find_unscheduled([run.order for run in runs]) == []
    async with stage.working():
        for run in runs:
            (call,) = (await run.result()).approvals
            await run.approve(call.tool_call_id)
            assert (await run.result()).output == f"It says: paid 5 to {MARK}"
    for session in LONGEST:
        assert len(await stage.entries(session, ToolStartedEntry)) == 1


# ---------------------------------------------------------------- what is said to a run


@_on_stage("decided")
async def check_a_decision_wakes_the_run(stage: Stage) -> None:
    """A run that waits for a person goes on after the decision; later runs of its session wait for it."""
    run = await stage.submit("payer", "decided", "pay")
    later = await stage.submit("echo", "decided", "and then?")
    async with stage.working(), stage.working():
        (call,) = (await run.result()).approvals
        assert await later.status() == "queued"
        await run.approve(call.tool_call_id)
        assert (await run.result()).output == f"It says: paid 5 to {MARK}"
        assert (await later.result()).output == f"You said: {MARK} and then?"
    assert len(await stage.entries("decided", ToolStartedEntry)) == 1


@_on_stage("before", "forked")
async def check_a_decision_before_a_run_begins_wakes_it(stage: Stage) -> None:
    """A run that cannot begin before a person has decided goes on after the decision; so does one of a fork."""
    session = await start_session(stage.store, "before")
    await make_payer(session).run(f"{MARK} pay")
    await session.fork(session.state.next_serial - 1, new_session_id="forked")
    async with stage.working():
        for name in ("before", "forked"):
            run = await stage.submit("payer", name, "and then?")
            await stage.forgotten(run.order)
            (call,) = await run.waiting_calls()
            await run.deny(call.tool_call_id)
            await stage.forgotten(run.order)
            assert (await run.result()).status is AgentStatus.AWAITING_HUMAN
            assert len(await stage.entries(name, RunFinishedEntry)) == 1


@_on_stage("unsignalled")
async def check_a_decision_is_found_in_the_record_though_no_signal_came(stage: Stage) -> None:
    """A decision that only the record has is found by the next sweep."""
    run = await stage.submit("payer", "unsignalled", "pay")
    async with stage.working(sweep_seconds=0.05):
        (call,) = (await run.result()).approvals
        session = await open_session(stage.store, "unsignalled")
        await session.append(ApprovalAnsweredEntry(call.tool_call_id, False, MARK))
        assert (await run.result()).status is AgentStatus.COMPLETED
    assert await stage.entries("unsignalled", ToolStartedEntry) == []


@_on_stage("a-day")
async def check_a_decision_after_a_day(stage: Stage) -> None:
    """A run that waits for a person holds nothing: no order, no lease, no worker. A day later it goes on."""
    run = await stage.submit("payer", "a-day", "pay")
    async with stage.working():
        (call,) = (await run.result()).approvals
        await stage.forgotten(run.order)
    assert await stage.store.find_lease("a-day") is None
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    session = await open_session(stage.store, "a-day", clock=lambda: tomorrow)
    (answer,) = await session.append(ApprovalAnsweredEntry(call.tool_call_id, True))
    assert answer.timestamp == tomorrow
    async with stage.working():
        assert (await run.result()).output == f"It says: paid 5 to {MARK}"


@_on_stage("aborted")
async def check_a_run_can_be_aborted(stage: Stage) -> None:
    """Abort ends a run that has not begun, one that waits for a person, and one whose tool is under way."""
    gate = _Gate()
    agents = Agents({"payer": make_payer, "waiter": gate.make})
    never = await stage.submit("payer", "aborted", "never")
    await never.abort(MARK)
    waiting = await stage.submit("payer", "aborted", "waits")
    async with stage.working(agents):
        assert (await waiting.result()).status is AgentStatus.AWAITING_HUMAN
        await waiting.abort(MARK)
        assert (await waiting.result()).status is AgentStatus.ABORTED
        busy = await stage.submit("waiter", "aborted", "is busy")
        await gate.begun.wait()
        await busy.abort(MARK)
        assert (await busy.result()).status is AgentStatus.ABORTED
        gate.may_end.set()
    assert await never.status() == "aborted"
    started = await stage.entries("aborted", RunStartedEntry)
    assert [entry.run_id for entry in started] == [waiting.run_id, busy.run_id]


# ---------------------------------------------------------------- orders that fail


async def _check_poison(stage: Stage, session: str, agent: str, words: str, *, retries: Retries, attempts: int) -> None:
    run = await stage.submit(agent, session)
    async with stage.working(retries=retries):
        result = await run.result()
        assert result.status is AgentStatus.FAILED
        assert result.error is not None
        assert result.error.code is ErrorCode.GIVEN_UP
        assert words in result.error.message
        assert f"after {attempts} attempts" in result.error.message
        await stage.forgotten(run.order)
        after = await stage.submit("echo", session, "still there?")
        assert (await after.result()).output == f"You said: {MARK} still there?"
    kinds = [type(entry) for entry in await stage.entries(session)]
    assert kinds[:4] == [RunRequestedEntry, RunStartedEntry, ModelInputEntry, RunFinishedEntry]


@_on_stage("unknown-agent")
async def check_an_agent_that_nobody_knows_is_given_up(stage: Stage) -> None:
    """A run of an unknown agent ends after some attempts, with an entry that says so; its session goes on."""
    retries = replace(QUICK, attempts=1)
    await _check_poison(
        stage,
        "unknown-agent",
        "nobody",
        "no agent is called 'nobody'",
        retries=retries,
        attempts=retries.for_unknown().attempts,
    )


@_on_stage("broken-agent")
async def check_an_agent_that_cannot_be_made_is_given_up(stage: Stage) -> None:
    """A run whose agent always raises ends after some attempts, with an entry that says so; its session goes on."""
    await _check_poison(stage, "broken-agent", "broken", "RuntimeError", retries=QUICK, attempts=QUICK.attempts)


@_on_stage("older")
async def check_a_worker_that_does_not_know_the_agent_leaves_the_order_to_another(stage: Stage) -> None:
    """A worker with an older registry leaves an agent alone that it does not know; a newer one gets the order."""
    patient = Retries(attempts=30, seconds=0.05, longest_seconds=0.05)
    async with stage.working(Agents({}), retries=patient):
        run = await stage.submit("new", "older")
        assert "no agent is called 'new'" in (await stage.attempted(run.order, 1)).problem
        await stage.attempted(run.order, 3)
        assert len(await stage.entries("older")) == 1
        async with stage.working(Agents({"new": make_echo}), retries=patient):
            assert (await run.result()).output == f"You said: {MARK} Hello"


# ---------------------------------------------------------------- stopping


@_on_stage("stopped")
async def check_a_worker_that_stops_lets_runs_reach_their_next_entry(stage: Stage) -> None:
    """A worker that is told to stop records the result of the tool under way; another one goes on from there."""
    gate = _Gate()
    run = await stage.submit("waiter", "stopped")
    async with stage.working(gate.agents) as worker:
        await gate.begun.wait()
        worker.stop()
        gate.may_end.set()
    assert await stage.store.find_lease("stopped") is None
    assert len(await stage.entries("stopped", ToolFinishedEntry)) == 1
    assert await run.status() == "preparing"
    async with stage.working(gate.agents):
        assert (await run.result()).output == f"It says: {MARK}"
    assert gate.count == 1


@_on_stage("taken")
async def check_another_worker_takes_over_from_one_that_stops(stage: Stage) -> None:
    """While one worker stops, another one that works already gets its run."""
    gate = _Gate()
    async with stage.working(gate.agents) as first:
        run = await stage.submit("waiter", "taken")
        await gate.begun.wait()
        async with stage.working(gate.agents):
            first.stop()
            gate.may_end.set()
            assert (await run.result()).output == f"It says: {MARK}"
    assert gate.count == 1


ENGINE_CHECKS: dict[str, _Check] = {
    check.__name__.removeprefix("check_"): check
    for check in (
        check_a_submitted_run_is_performed,
        check_an_order_that_comes_twice_or_late_does_the_work_once,
        check_a_key_that_was_used_gives_the_run_there_is,
        check_runs_of_one_session_go_one_after_the_other,
        check_many_runs_by_several_workers,
        check_there_are_never_more_orders_under_way_than_slots,
        check_the_next_attempt_comes_when_it_is_due,
        check_what_waits_or_is_under_way_is_known,
        check_several_may_prepare_at_once,
        check_a_run_is_found_that_was_recorded_while_the_engine_was_away,
        check_an_order_that_the_engine_refuses_keeps_no_other_back,
        check_a_session_may_have_the_longest_id,
        check_a_decision_wakes_the_run,
        check_a_decision_before_a_run_begins_wakes_it,
        check_a_decision_is_found_in_the_record_though_no_signal_came,
        check_a_decision_after_a_day,
        check_a_run_can_be_aborted,
        check_an_agent_that_nobody_knows_is_given_up,
        check_an_agent_that_cannot_be_made_is_given_up,
        check_a_worker_that_does_not_know_the_agent_leaves_the_order_to_another,
        check_a_worker_that_stops_lets_runs_reach_their_next_entry,
        check_another_worker_takes_over_from_one_that_stops,
    )
}
