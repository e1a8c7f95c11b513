"""A run as it is told: events for any number of readers, and what becomes of it when somebody stops it."""

import asyncio
import gc
import tracemalloc
from typing import Any

import pytest

from dragoman import AgentConfig, AgentStatus, ErrorCode, InvalidValue, LoopConfig, ModelError, TextDelta
from dragoman.agent import (
    Agent,
    AgentRun,
    ApprovalAskedEvent,
    DeltaEvent,
    ErrorEvent,
    FinishedEvent,
    MessageEvent,
    RunEvent,
    StatusEvent,
    ToolResultEvent,
    ToolStartedEvent,
)
from dragoman.history import InterruptionEntry
from dragoman.testing.scripted import Call, ScriptedModel, Turn
from dragoman.tools import tool
from tests.agent_cases import (
    ROME,
    Gate,
    asks,
    claude,
    kept,
    kinds,
    read,
    require_sound,
    result_codes,
    result_texts,
    run,
    weather,
)
from tests.loopback import CLOSING, OPENING, STREAM_HEAD, Peer, serving, transport_of


def texts(events: list[RunEvent]) -> str:
    """Return what the deltas say."""
    return "".join(
        event.delta.text_delta
        for event in events
        if isinstance(event, DeltaEvent) and isinstance(event.delta, TextDelta)
    )


# ---------------------------------------------------------------- what is told


def test_a_run_tells_what_happens_in_its_order() -> None:
    async def use() -> None:
        started = Agent(ScriptedModel(ROME, "Rain."), tools=[weather]).stream("The weather in Rome?")
        events = [event async for event in started]
        told = [event for event in events if not isinstance(event, DeltaEvent)]
        assert [type(event) for event in told if not isinstance(event, StatusEvent)] == [
            MessageEvent,
            MessageEvent,
            ToolStartedEvent,
            ToolResultEvent,
            MessageEvent,
            FinishedEvent,
        ]
        assert [event.status for event in told if isinstance(event, StatusEvent)] == [
            AgentStatus.PREPARING,
            AgentStatus.MODEL_RUNNING,
            AgentStatus.TOOL_RUNNING,
            AgentStatus.PREPARING,
            AgentStatus.MODEL_RUNNING,
            AgentStatus.PREPARING,
            AgentStatus.COMPLETED,
        ]
        assert [event.seq for event in events] == list(range(len(events)))
        assert {event.run_id for event in events} == {(await started.result()).run_id}
        assert texts(events) == "Rain."
        assert sorted({event.kind for event in events}) == [
            "delta",
            "finished",
            "message",
            "status",
            "tool_result",
            "tool_started",
        ]

    run(use())


def test_a_question_and_an_error_are_told_too() -> None:
    async def use() -> None:
        @tool(requires_approval=True)
        def send() -> None:
            """Send."""

        busy = ModelError("busy", code=ErrorCode.OVERLOADED)
        config = AgentConfig(loop=LoopConfig(backoff_seconds=0.0))
        events = await read(Agent(ScriptedModel(busy, asks(Call("send"))), tools=[send], config=config).stream("Send."))
        (failed,) = [event for event in events if isinstance(event, ErrorEvent)]
        (asked,) = [event for event in events if isinstance(event, ApprovalAskedEvent)]
        assert (failed.error.code, failed.error.retryable) == (ErrorCode.OVERLOADED, True)
        assert asked.call.tool_name == "send"
        assert isinstance(events[-1], FinishedEvent)
        assert events[-1].status is AgentStatus.AWAITING_HUMAN

    run(use())


def test_a_run_that_fails_says_so_last() -> None:
    async def use() -> None:
        broken = ModelError("no such key", code=ErrorCode.AUTHENTICATION)
        events = await read(Agent(ScriptedModel(broken)).stream("Hi."))
        assert isinstance(events[-1], FinishedEvent)
        assert events[-1].error is not None
        assert (events[-1].status, events[-1].error.code) == (AgentStatus.FAILED, ErrorCode.AUTHENTICATION)

    run(use())


def test_a_message_s_event_belongs_to_the_call_that_its_deltas_belong_to() -> None:
    async def use() -> None:
        events = await read(Agent(ScriptedModel(ROME, "Rain."), tools=[weather]).stream("And?"))
        of_calls: dict[int, list[str]] = {}
        for event in events:
            if not isinstance(event, (StatusEvent, FinishedEvent)):
                seen = of_calls.setdefault(event.call_index, [])
                if event.kind not in seen:
                    seen.append(event.kind)
        assert of_calls == {0: ["message", "delta", "tool_started", "tool_result"], 1: ["delta", "message"]}

    run(use())


def test_run_keeps_no_events() -> None:
    async def use() -> None:
        seen: list[Any] = []

        @tool
        async def look() -> None:
            """Look."""
            assert agent._run is not None
            with pytest.raises(InvalidValue, match=r"use stream\(\)"):
                agent._run.events()
            seen.append(agent._run)

        agent = Agent(ScriptedModel(asks(Call("look")), "Hm."), tools=[look])
        await agent.run("Look.")
        assert len(seen) == 1

    run(use())


# ---------------------------------------------------------------- readers


def test_a_reader_that_was_lost_catches_up_where_it_stopped() -> None:
    async def use() -> None:
        gate = Gate(4)
        started = Agent(ScriptedModel("A long answer in many pieces.", between=gate)).stream("Tell me.")
        before: list[RunEvent] = []
        async for event in started:
            before.append(event)
            if isinstance(event, DeltaEvent) and isinstance(event.delta, TextDelta):
                break  # the connection is lost
        await gate.reached.wait()
        gate.opened.set()
        after = [event async for event in started.events(after=before[-1].seq)]
        assert [event.seq for event in before + after] == list(range(len(before + after)))
        assert texts(before + after) == "A long answer in many pieces."

    run(use())


def test_a_reader_can_come_when_the_run_is_over() -> None:
    async def use() -> None:
        started = Agent(ScriptedModel("Hello.")).stream("Hi.")
        await started.result()
        events = await read(started)
        assert isinstance(events[-1], FinishedEvent)
        assert [event async for event in started.events(after=events[-1].seq)] == []

    run(use())


@pytest.mark.parametrize("after", [-2, "3", None, 1.0])
def test_a_reader_starts_after_an_event(after: Any) -> None:
    async def use() -> None:
        started = Agent(ScriptedModel("Hello.")).stream("Hi.")
        await started.result()
        with pytest.raises(InvalidValue, match="after"):
            await anext(started.events(after=after))

    run(use())


def test_every_reader_gets_every_event() -> None:
    async def use() -> None:
        gate = Gate(2)
        started = Agent(ScriptedModel("A long answer in many pieces.", between=gate)).stream("Tell me.")
        readers = [asyncio.ensure_future(read(started)) for _ in range(5)]
        await gate.reached.wait()
        gone = asyncio.ensure_future(read(started))
        await asyncio.sleep(0)
        gone.cancel()
        gate.opened.set()
        seen = await asyncio.gather(*readers)
        assert all(each == seen[0] for each in seen)
        assert texts(seen[0]) == "A long answer in many pieces."

    run(use())


def test_a_run_goes_on_when_nobody_reads_it() -> None:
    async def use() -> None:
        agent = Agent(ScriptedModel("Hello."))
        assert (await agent.stream("Hi.").result()).output == "Hello."
        events = agent.stream("Hi again.")  # the script is over
        result = await events.result()
        assert result.error is not None

    run(use())


def test_a_mistake_of_the_caller_reaches_who_reads_the_events() -> None:
    async def use() -> None:
        agent = Agent(ScriptedModel("Hello."))
        await agent.run("Hi.")
        started = agent.stream()
        with pytest.raises(InvalidValue, match="nothing to carry on"):
            await read(started)
        with pytest.raises(InvalidValue, match="nothing to carry on"):
            await started.result()

    run(use())


def test_a_mistake_that_a_reader_was_told_is_not_logged_as_told_to_nobody() -> None:
    told: list[dict[str, Any]] = []

    async def use() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        agent = Agent(ScriptedModel("Hello.", repeats=True))
        await agent.run("Hi.")
        with pytest.raises(InvalidValue, match="nothing to carry on"):
            await read(agent.stream())
        await agent.run("Hi.")  # the agent has let the other run go
        gc.collect()

    run(use())
    assert not told


# ---------------------------------------------------------------- stopping


@pytest.mark.parametrize("carrier", ["aiohttp", "httpx"])
def test_an_aborted_stream_closes_its_connection_and_keeps_what_had_arrived(carrier: str) -> None:
    async def use() -> None:
        closed = asyncio.Event()

        async def begin(peer: Peer) -> None:
            await peer.send(STREAM_HEAD, OPENING)
            await peer.until_closed()
            closed.set()

        async with serving(begin) as server, transport_of(carrier) as transport:
            agent = Agent(claude(server.url, transport))
            started = agent.stream("Hi.")
            async for event in started:
                if isinstance(event, DeltaEvent) and isinstance(event.delta, TextDelta):
                    break
            result = await started.abort()
            await closed.wait()
            await server.released.wait()
        assert (result.status, result.error, result.output) == (AgentStatus.ABORTED, None, None)
        (entry,) = [entry for entry in kept(agent).entries if isinstance(entry, InterruptionEntry)]
        assert entry.reason is ErrorCode.CANCELLED
        assert entry.partial is not None
        assert entry.partial.text == "Hello"
        require_sound(kept(agent))

    run(use())


def test_an_aborted_conversation_goes_on() -> None:
    async def use() -> None:
        has_begun = False

        async def stop_first(peer: Peer) -> None:
            nonlocal has_begun
            await peer.send(STREAM_HEAD, OPENING)
            if has_begun:
                await peer.send(CLOSING)
                peer.close()
            else:
                has_begun = True
                await peer.until_closed()

        async with serving(stop_first) as server, transport_of("aiohttp") as transport:
            agent = Agent(claude(server.url, transport))
            async with agent.stream("Hi.") as started:
                async for event in started:
                    if isinstance(event, DeltaEvent) and isinstance(event.delta, TextDelta):
                        break
            assert (await started.result()).status is AgentStatus.ABORTED  # leaving the block did that
            result = await agent.run("Go on.")
        assert result.output == "Hello"
        assert b"cut off" in server.requests[1] or b"interrupted" in server.requests[1]
        require_sound(kept(agent))

    run(use())


def test_who_is_cancelled_while_waiting_aborts_the_run_first() -> None:
    async def use() -> None:
        gate = Gate(2)
        agent = Agent(ScriptedModel("A long answer in pieces.", between=gate))
        waiting = asyncio.ensure_future(agent.run("Hi."))
        await gate.reached.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert kept(agent).state.status is AgentStatus.ABORTED
        require_sound(kept(agent))

    run(use())


def test_an_abort_in_the_middle_of_tools_keeps_the_results_that_are_in() -> None:
    async def use() -> None:
        waits, stopped = asyncio.Event(), asyncio.Event()

        @tool
        async def quick() -> str:
            """Answer."""
            return "Here."

        @tool
        async def slow() -> None:
            """Never answer."""
            waits.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()

        agent = Agent(ScriptedModel(asks(Call("quick"), Call("slow"))), tools=[quick, slow])
        started = agent.stream("Do both.")
        await waits.wait()
        async for event in started:
            if isinstance(event, ToolResultEvent):
                break
        await started.abort()
        assert stopped.is_set()
        assert result_codes(kept(agent)) == [None, ErrorCode.TOOL_INTERRUPTED]
        assert result_texts(kept(agent))[0] == "Here."
        assert "may or may not have taken effect" in result_texts(kept(agent))[1]
        require_sound(kept(agent))

    run(use())


def test_an_abort_ends_the_wait_before_another_attempt() -> None:
    async def use() -> None:
        model = ScriptedModel(ModelError("busy", code=ErrorCode.OVERLOADED, retry_after=20.0))
        agent = Agent(model)
        started = agent.stream("Hi.")
        async for event in started:
            if isinstance(event, ErrorEvent):
                break
        assert (await started.abort()).status is AgentStatus.ABORTED
        assert len(model.requests) == 1
        require_sound(kept(agent))

    run(use())


def test_an_abort_before_the_first_step_leaves_an_aborted_run() -> None:
    async def use() -> None:
        model = ScriptedModel("Hello.")
        agent = Agent(model)
        started = agent.stream("Hi.")
        assert (await started.abort()).status is AgentStatus.ABORTED
        assert kinds(agent) == ["run_started", "model_input", "run_finished"]
        assert (started.is_done, started.status) == (True, AgentStatus.ABORTED)

    run(use())


def test_an_abort_after_the_end_changes_nothing() -> None:
    async def use() -> None:
        agent = Agent(ScriptedModel("Hello."))
        started = agent.stream("Hi.")
        first = await started.result()
        assert await started.abort() == first
        await agent.abort()
        assert kinds(agent).count("run_finished") == 1

    run(use())


def test_an_abort_through_the_agent_ends_the_run_under_way() -> None:
    async def use() -> None:
        gate = Gate(1)
        agent = Agent(ScriptedModel("Hello.", between=gate))
        started = agent.stream("Hi.")
        await gate.reached.wait()
        await agent.abort()
        assert (await started.result()).status is AgentStatus.ABORTED

    run(use())


def test_many_agents_stream_at_once_and_those_that_are_stopped_close_their_connections() -> None:
    async def use() -> None:
        going_on = asyncio.Event()
        closed = 0

        async def wait_in_the_middle(peer: Peer) -> None:
            nonlocal closed
            await peer.send(STREAM_HEAD, OPENING)
            end = asyncio.ensure_future(peer.until_closed())
            may_go_on = asyncio.ensure_future(going_on.wait())
            await asyncio.wait((end, may_go_on), return_when=asyncio.FIRST_COMPLETED)
            closed += end.done()
            may_go_on.cancel()
            end.cancel()
            await peer.send(CLOSING)
            peer.close()

        async with serving(wait_in_the_middle) as server, transport_of("aiohttp") as transport:
            agents = [Agent(claude(server.url, transport)) for _ in range(40)]
            runs = [agent.stream("Hi.") for agent in agents]
            for started in runs:
                async for event in started:
                    if isinstance(event, DeltaEvent) and isinstance(event.delta, TextDelta):
                        break
            await asyncio.gather(*(started.abort() for started in runs[::2]))
            going_on.set()
            results = [await started.result() for started in runs]
            await server.released.wait()
        assert [result.status for result in results] == [AgentStatus.ABORTED, AgentStatus.COMPLETED] * 20
        assert (closed, server.connections) == (20, 40)
        for agent in agents:
            require_sound(kept(agent))

    run(use())


def test_an_agent_that_waits_for_the_first_byte_takes_little_memory() -> None:
    async def use() -> None:
        everybody = asyncio.Semaphore(0)

        async def stay_silent(peer: Peer) -> None:
            everybody.release()
            await peer.until_closed()

        async def wait_for(number: int) -> list[AgentRun[str]]:
            runs = [Agent(claude(server.url, transport)).stream("Hi.") for _ in range(number)]
            for _ in runs:
                await everybody.acquire()
            return runs

        async with serving(stay_silent) as server, transport_of("aiohttp") as transport:
            waiting = await wait_for(2)  # what all of them share is there now
            tracemalloc.start()
            try:
                waiting += await wait_for(20)
                gc.collect()
                size = tracemalloc.get_traced_memory()[0]  # of both ends: the server is here too
            finally:
                tracemalloc.stop()
            await asyncio.gather(*(started.abort() for started in waiting))
            await server.released.wait()
        assert size / 20 < 150_000

    run(use())


def test_a_turn_with_thinking_only_ends_the_run() -> None:
    agent = Agent(ScriptedModel(Turn(thinking="Hm, hm.")))
    assert agent.run_sync("Hi.").output == ""
