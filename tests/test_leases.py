"""Who runs a session: one owner at a time, what others may say to it, and what becomes of an owner that was lost."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dragoman import (
    Agent,
    AgentConfig,
    AgentStatus,
    ErrorCode,
    LoopConfig,
    MemoryStore,
    SessionBusy,
    SQLiteStore,
    StoreError,
    open_session,
    start_session,
    tool,
)
from dragoman.history import HistoryToolCallResult, ModelInputEntry, ModelOutputEntry, RunStartedEntry, ToolStartedEntry
from dragoman.message import Message, ToolCall
from dragoman.store import Lease, LeaseLost, LeaseOwner, Session
from dragoman.store.leases import HeldLease, StoreTime, is_gone, machine_time, this_process
from dragoman.testing.scripted import Call, ScriptedModel, Turn
from tests.agent_cases import Gate as StreamGate
from tests.agent_cases import run

QUICK = AgentConfig(loop=LoopConfig(lease_seconds=0.5))
BRIEF = AgentConfig(loop=LoopConfig(lease_seconds=0.1))


class Gate:
    """A tool that says when it began and ends when it is let."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.ends = asyncio.Event()
        self.runs = 0

    @property
    def tool(self) -> Any:
        @tool(name="gate", idempotent=True)
        async def gate() -> str:
            """Wait."""
            self.runs += 1
            self.began.set()
            await self.ends.wait()
            return "open"

        return gate


def called(name: str = "gate") -> Turn:
    return Turn(calls=(Call(name, {}),))


async def begun(session: Session, gate: Gate, *answers: Any, config: AgentConfig = QUICK) -> Any:
    """Return a run of the session that waits at the gate."""
    stream = Agent(ScriptedModel(called(), *answers), tools=[gate.tool], session=session, config=config).stream("Go.")
    await gate.began.wait()
    return stream


def kinds(session: Session) -> list[str]:
    return [entry.kind for entry in session.entries]


# ---------------------------------------------------------------- one owner


def test_a_second_run_on_a_session_is_told_who_has_it() -> None:
    async def use() -> None:
        store, gate = MemoryStore(), Gate()
        session = await start_session(store, "s")
        first = await begun(session, gate, "Done.")
        for other in (session, await open_session(store, "s")):
            agent = Agent(ScriptedModel("Never said."), tools=[gate.tool], session=other)
            with pytest.raises(SessionBusy) as busy:
                await agent.run("And me?")
            assert busy.value.code is ErrorCode.BUSY
            assert f"process {os.getpid()}" in str(busy.value)
            with pytest.raises(SessionBusy):
                async for _ in agent.stream("And me?"):
                    pass
        gate.ends.set()
        assert (await first.result()).output == "Done."
        assert gate.runs == 1
        assert "takeover" not in kinds(session)
        assert await store.find_lease("s") is None

    run(use())


def test_a_second_run_that_waits_goes_on_after_the_first() -> None:
    async def use() -> None:
        store, gate = MemoryStore(), Gate()
        first = await begun(await start_session(store, "s"), gate, "Done.")
        later = await open_session(store, "s")
        second = Agent(ScriptedModel("Here I am."), session=later).stream("And me?", wait_seconds=60)
        gate.ends.set()
        assert (await first.result()).output == "Done."
        assert (await second.result()).output == "Here I am."
        assert kinds(later).count("run_finished") == 2

    run(use())


def test_a_run_that_waits_can_be_aborted() -> None:
    async def use() -> None:
        store, gate = MemoryStore(), Gate()
        first = await begun(await start_session(store, "s"), gate, "Done.")
        waiting = Agent(ScriptedModel("x"), session=await open_session(store, "s")).stream("Me?", wait_seconds=3600)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (await waiting.abort()).status is AgentStatus.ABORTED
        cancelled = asyncio.ensure_future(
            Agent(ScriptedModel("x"), session=await open_session(store, "s")).run("Me?", wait_seconds=3600)
        )
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        gate.ends.set()
        assert (await first.result()).status is AgentStatus.COMPLETED

    run(use())


def test_a_living_run_is_renewed_for_longer_than_its_lease_lasts() -> None:
    async def use() -> None:
        store, gate = MemoryStore(), Gate()
        session = await start_session(store, "s")
        first = await begun(session, gate, "Done.", config=BRIEF)
        with pytest.raises(SessionBusy):
            await store.acquire_lease("s", wait_seconds=0.5)
        gate.ends.set()
        assert (await first.result()).status is AgentStatus.COMPLETED

    run(use())


def test_a_cancelled_acquisition_gives_the_lease_back(tmp_path: Path) -> None:
    async def use() -> None:
        async with SQLiteStore(tmp_path / "s.db") as store:
            await store.create("s")
            for turns in range(6):
                waiting = asyncio.ensure_future(store.acquire_lease("s"))
                for _ in range(turns):
                    await asyncio.sleep(0)
                waiting.cancel()
                await asyncio.wait((waiting,))
                if not waiting.cancelled():
                    await store.release_lease(waiting.result())
                assert await store.find_lease("s") is None

    run(use())


# ---------------------------------------------------------------- an owner that was lost


def test_taking_over_is_an_entry_and_the_slow_owner_starts_no_tool(tmp_path: Path) -> None:
    async def use() -> None:
        async with SQLiteStore(tmp_path / "s.db") as store:
            session, gate = await start_session(store, "s"), Gate()
            ran = []

            @tool
            def work() -> str:
                """Work."""
                ran.append(1)
                return "Worked."

            model = ScriptedModel(called(), called("work"), "Done.")
            agent = Agent(model, tools=[gate.tool, work], session=session, config=QUICK)
            slow = agent.stream("Go.")
            await gate.began.wait()
            hold = session.held
            assert hold is not None
            assert hold._timer is not None
            hold._timer.cancel()  # as if the process were stopped: nothing is renewed
            later = await open_session(store, "s")
            again = Gate()
            again.ends.set()
            taken = Agent(ScriptedModel("Mine now."), tools=[again.tool, work], session=later)
            result = await taken.run(wait_seconds=60)
            gate.ends.set()
            assert result.output == "Mine now."
            assert kinds(later)[5:7] == ["takeover", "tool_started"]
            lost = await slow.result()
            assert lost.status is AgentStatus.FAILED
            assert lost.error is not None
            assert lost.error.code is ErrorCode.CONFLICT
            assert (again.runs, ran) == (1, [])  # the tool that is idempotent ran again
            assert await store.load("s") == tuple(later.entries)

    run(use())


def test_an_owner_whose_lease_may_have_expired_does_not_start_a_tool() -> None:
    async def use() -> None:
        store = MemoryStore()
        session = await start_session(store, "s")
        ran = []

        @tool
        async def work() -> str:
            """Work."""
            ran.append(1)
            return "Worked."

        agent = Agent(ScriptedModel(called("work"), "Done."), tools=[work], session=session, config=BRIEF)
        append = session.append

        async def slow_append(*entries: Any, expected_serial: int | None = None) -> Any:
            recorded = await append(*entries, expected_serial=expected_serial)
            if entries and isinstance(entries[0], ToolStartedEntry):
                time.sleep(0.15)  # noqa: ASYNC251  # the whole process, not this task alone
            return recorded

        session.append = slow_append  # type: ignore[method-assign]  # nothing of it is replaced but its speed
        result = await agent.run("Go.")
        assert result.status is AgentStatus.FAILED
        assert result.error is not None
        assert result.error.code is ErrorCode.CONFLICT
        assert ran == []

    run(use())


SLEEPER = """
import asyncio, sys
from dragoman import SQLiteStore, open_session

async def main():
    async with SQLiteStore(sys.argv[1]) as store:
        session = await open_session(store, "s")
        async with session.hold(seconds=3600):
            print("held", flush=True)
            await asyncio.sleep(3600)

asyncio.run(main())
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux says when a process began")
def test_an_owner_that_was_stopped_while_it_waited_does_not_believe_in_its_lease() -> None:
    class Slow(MemoryStore):
        """The answer to who may run a session comes after the lease has expired and another owner has taken it."""

        async def acquire_lease(self, session_id: str, *, seconds: float = 1.0, wait_seconds: float = 0.0) -> Lease:
            lease = await super().acquire_lease(session_id, seconds=seconds, wait_seconds=wait_seconds)
            while machine_time().is_before(self.first_expiry):  # noqa: ASYNC110  # nothing tells that a lease expires
                await asyncio.sleep(seconds)
            await super().acquire_lease(session_id, seconds=60)
            return lease

        @property
        def first_expiry(self) -> StoreTime:
            return self._sessions["s"].held.expires  # type: ignore[union-attr]

    async def scene() -> None:
        session = await start_session(Slow(), "s")
        with pytest.raises(LeaseLost):
            async with session.hold(seconds=0.05, wait_seconds=1):
                pass

    run(scene())


def test_the_lease_of_a_killed_process_is_free_at_once(tmp_path: Path) -> None:
    async def use() -> None:
        async with SQLiteStore(tmp_path / "s.db") as store:
            session = await start_session(store, "s")
            with subprocess.Popen(  # noqa: ASYNC220  # nothing else runs here
                [sys.executable, "-c", SLEEPER, str(tmp_path / "s.db")], stdout=subprocess.PIPE, text=True
            ) as child:
                assert child.stdout is not None
                assert child.stdout.readline() == "held\n"
                with pytest.raises(SessionBusy, match=f"process {child.pid} "):
                    await store.acquire_lease("s")
                child.kill()
                os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222  # it is dead, and no one has reaped it
                async with session.hold() as lease:
                    assert lease.previous is not None
                    assert lease.previous.pid == child.pid
            assert kinds(session) == ["takeover"]

    run(use())


def test_only_a_process_that_is_known_not_to_exist_is_gone() -> None:
    here = this_process()
    assert not is_gone(here)
    if not here.machine:
        pytest.skip("this system does not say when a process began")
    recycled = LeaseOwner(here.host, here.pid, here.machine, "1")
    assert is_gone(recycled), "another process has its id now"
    elsewhere = LeaseOwner(here.host, here.pid, "another boot", "1")
    assert not is_gone(elsewhere), "a container or a host with the same name"
    assert not is_gone(LeaseOwner(here.host, 2**22 + 1, "", "1"))
    assert is_gone(LeaseOwner(here.host, 2**22 + 1, here.machine, "1"))


def test_a_clock_that_is_set_does_not_end_a_lease() -> None:
    lease: Any = None
    held = HeldLease(lease, StoreTime(100.0, "boot", 50.0))
    assert StoreTime(5_000.0, "boot", 49.0).is_before(held.expires)
    assert not StoreTime(5.0, "boot", 50.0).is_before(held.expires)
    assert StoreTime(99.0, "another boot", 1_000.0).is_before(held.expires)
    assert not StoreTime(101.0).is_before(held.expires)
    first, second = machine_time(), machine_time()
    assert not second.is_before(first)


# ---------------------------------------------------------------- what others say to a run


def test_a_run_takes_up_what_another_process_steers(tmp_path: Path) -> None:
    async def use() -> None:
        async with SQLiteStore(tmp_path / "s.db") as store, SQLiteStore(tmp_path / "s.db") as elsewhere:
            session, gate = await start_session(store, "s"), Gate()
            first = await begun(session, gate, "In French: oui.")
            other = await open_session(elsewhere, "s")
            await other.steer("In French, please.")
            gate.ends.set()
            assert (await first.result()).output == "In French: oui."
            said = [entry for entry in session.entries if isinstance(entry, ModelInputEntry)]
            assert [entry.messages()[0].text for entry in said] == ["Go.", "In French, please."]
            assert said[1].steering_serial == session.entries[kinds(session).index("steering")].serial
            assert session.state.derived.steering == ()
            assert kinds(session).index("tool_result") < session.entries.index(said[1])

    run(use())


def test_what_is_said_too_late_is_taken_up_by_the_next_run() -> None:
    async def use() -> None:
        session = await start_session(MemoryStore(), "s")
        agent = Agent(ScriptedModel("Yes.", "Also that."), session=session)
        await agent.run("Do it.")
        await session.steer("And that.")
        assert (await agent.run()).output == "Also that."
        assert session.state.derived.steering == ()

    run(use())


def test_what_was_said_earlier_comes_before_a_later_prompt() -> None:
    async def use() -> None:
        session = await start_session(MemoryStore(), "s")
        model = ScriptedModel("Yes.", "Oslo.")
        agent = Agent(model, session=session)
        await agent.run("Go.")
        await session.steer("Book Rome.")
        await agent.run("No, book Oslo.")
        said = [message.text for message in model.requests[-1].messages if message.role == "user"]
        assert said == ["Go.", "Book Rome.", "No, book Oslo."]
        assert session.state.derived.steering == ()

    run(use())


def test_a_request_to_abort_ends_a_run_of_another_process(tmp_path: Path) -> None:
    async def use() -> None:
        async with SQLiteStore(tmp_path / "s.db") as store, SQLiteStore(tmp_path / "s.db") as elsewhere:
            session, gate = await start_session(store, "s"), Gate()
            first = await begun(session, gate, "Never said.", config=BRIEF)
            other = await open_session(elsewhere, "s")
            await Agent(ScriptedModel("x"), session=other).abort()
            assert (await first.result()).status is AgentStatus.ABORTED
            assert kinds(session)[-1] == "run_finished"

    run(use())


def test_a_decision_from_elsewhere_is_taken_up_by_the_run_that_works() -> None:
    async def use() -> None:
        store, gate = MemoryStore(), Gate()
        session = await start_session(store, "s")

        @tool(requires_approval=True)
        def pay() -> str:
            """Pay."""
            return "Paid."

        model = ScriptedModel(Turn(calls=(Call("gate", {}), Call("pay", {}))), "Paid.")
        first = Agent(model, tools=[gate.tool, pay], session=session).stream("Pay.")
        await gate.began.wait()
        other = await open_session(store, "s")
        (waiting,) = [call for call in other.state.derived.open_calls if call.awaits_answer]
        await Agent(ScriptedModel("x"), tools=[gate.tool, pay], session=other).approve(waiting.tool_call_id)
        gate.ends.set()
        assert (await first.result()).output == "Paid."

    run(use())


# ---------------------------------------------------------------- forks


async def half_done(store: Any, *, idempotent: bool) -> Session:
    """Return a session whose call was started."""
    session = await start_session(store, "parent")
    call = ToolCall("c", "work", {})
    await session.append(RunStartedEntry(run_id="r"), ModelInputEntry.of("Work."))
    await session.append(ModelOutputEntry(Message.assistant(call)))
    await session.append(ToolStartedEntry("c", "work", idempotent))
    return session


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize(("idempotent", "rerun", "runs"), [(False, False, 0), (True, False, 1), (False, True, 1)])
def test_a_fork_does_not_run_a_call_again_that_its_parent_has_started(
    by_hand: bool, idempotent: bool, rerun: bool, runs: int
) -> None:
    if by_hand and rerun:
        pytest.skip("rerun is said to Session.fork")
    ran = []

    @tool(idempotent=idempotent)
    def work() -> str:
        """Work."""
        ran.append(1)
        return "Worked."

    async def use() -> None:
        store = MemoryStore()
        session = await half_done(store, idempotent=idempotent)
        if by_hand:
            await store.fork("parent", 2, new_session_id="child")
            await store.fork("child", 2, new_session_id="grandchild")
            fork = await open_session(store, "grandchild")
        else:
            fork = await session.fork(2, rerun=rerun)
        model = ScriptedModel("Done.")
        assert (await Agent(model, tools=[work], session=fork).run()).output == "Done."
        assert len(ran) == runs
        results = [entry.result for entry in fork.entries if entry.kind == "tool_finished"]  # type: ignore[attr-defined]  # that kind has one
        assert len(results) == 1
        result = results[0]
        assert isinstance(result, HistoryToolCallResult)
        if not runs:
            assert result.error_code is ErrorCode.TOOL_INTERRUPTED
            assert "forked from" in result.text()

    run(use())


def test_a_hold_keeps_the_session_for_a_block() -> None:
    async def use() -> None:
        store = MemoryStore()
        session = await start_session(store, "s")
        async with session.hold() as lease:
            assert lease.owner == this_process()
            await session.append_model_input("mine")
            with pytest.raises(SessionBusy):
                async with (await open_session(store, "s")).hold():
                    pass
            await store.release_lease(lease)
            with pytest.raises(LeaseLost):
                await session.append_model_input("not mine any more")
        await session.append_model_input("anyone's")

    run(use())


class Unreachable(MemoryStore):
    """A store that cannot be reached while `is_down`; it has written what it was asked to acquire."""

    is_down = False

    async def _acquire_lease(self, session_id: str, token: str, seconds: float) -> Lease:
        lease = await super()._acquire_lease(session_id, token, seconds)
        self._require_up()
        return lease

    async def release_lease(self, lease: Lease) -> None:
        self._require_up()
        await super().release_lease(lease)

    def _require_up(self) -> None:
        if self.is_down:
            raise StoreError("the store is down", code=ErrorCode.CONNECTION)


def test_a_lease_that_could_not_be_given_back_does_not_keep_its_own_process_out() -> None:
    async def use() -> None:
        store = Unreachable()
        session = await start_session(store, "s")
        async with session.hold():
            store.is_down = True
        store.is_down = False
        result = await Agent(ScriptedModel("Back."), session=session).run("Go.")
        assert result.status is AgentStatus.COMPLETED
        assert "takeover" not in kinds(session)

    run(use())


def test_a_lease_that_was_written_for_a_caller_that_heard_of_a_failure_is_free_for_it() -> None:
    async def use() -> None:
        store = Unreachable()
        session = await start_session(store, "s")
        store.is_down = True
        with pytest.raises(StoreError):
            await store.acquire_lease("s")
        store.is_down = False
        assert await store.find_lease("s") is None
        await session.append_model_input("nobody keeps it")

    run(use())


def test_what_another_process_says_during_the_last_answer_is_answered_in_the_same_run() -> None:
    async def scene() -> None:
        store = MemoryStore()
        gate = StreamGate(1)
        session = await start_session(store, "s")
        under_way = Agent(ScriptedModel("One.", "Two.", between=gate), session=session).stream("Count.")
        await gate.reached.wait()
        await (await open_session(store, "s")).steer("Go on.")
        gate.opened.set()
        assert (await under_way.result()).output == "Two."
        assert kinds(session).count("run_finished") == 1
        assert session.state.derived.steering == ()

    run(scene())
