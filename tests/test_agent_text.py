"""The text of a run as it comes, with and without an event loop, and what becomes of a run whose text is not read."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import aclosing
from contextvars import Context, ContextVar
from pathlib import Path
from typing import Any

import pytest

from dragoman import (
    Agent,
    AgentConfig,
    AgentStatus,
    ErrorCode,
    FinishReason,
    InvalidValue,
    LoopConfig,
    ModelError,
    RunFailed,
    SessionBusy,
    tool,
)
from dragoman.agent import DeltaEvent, SyncRun
from dragoman.testing import Call, ScriptedModel, Turn
from tests.agent_cases import ROME, Gate, asks, kept, require_sound, run, weather

ANSWER = "It rains in Rome, as it did yesterday."
PATIENCE = 60.0  # seconds: far more than a run takes
SLOW = AgentConfig(loop=LoopConfig(attempts=1))


def forecaster(*script: Any) -> Agent:
    return Agent(ScriptedModel(*(script or (ROME, ANSWER))), tools=[weather])


def said(agent: Agent, *, in_loop: bool) -> list[str]:
    """Return the pieces of text of a run without `await`; with `in_loop`, inside an event loop that runs."""
    if not in_loop:
        return list(agent.stream_sync("What is the weather?").text())

    async def in_a_cell() -> list[str]:
        return list(agent.stream_sync("What is the weather?").text())

    return run(in_a_cell())


async def awaited(agent: Agent) -> list[str]:
    return [piece async for piece in agent.stream("What is the weather?").text()]


@pytest.fixture(params=["async", "sync", "sync in a loop"])
def pieces(request: pytest.FixtureRequest) -> Any:
    """Read the text of a run in one of the three ways."""
    if request.param == "async":
        return lambda agent: run(awaited(agent))
    return lambda agent: said(agent, in_loop=request.param == "sync in a loop")


def test_the_text_comes_in_pieces_that_are_the_answer(pieces: Any) -> None:
    arrived = pieces(forecaster())
    assert len(arrived) > 1
    assert "".join(arrived) == ANSWER


def test_an_empty_line_parts_the_text_before_a_call_from_the_text_after_it(pieces: Any) -> None:
    agent = forecaster(asks(Call("weather", {"city": "Rome"}), text="I look."), ANSWER)
    assert "".join(pieces(agent)) == f"I look.\n\n{ANSWER}"


def test_nothing_parts_the_pieces_of_an_answer_that_was_cut_and_goes_on(pieces: Any) -> None:
    cut = Turn(text="It rains in ", finish_reason=FinishReason.LENGTH)
    agent = Agent(ScriptedModel(cut, "Rome."), config=AgentConfig(loop=LoopConfig(continue_cut=1)))
    assert "".join(pieces(agent)) == "It rains in Rome."


def test_halves_of_a_character_are_joined(pieces: Any) -> None:
    text = "twelve chars".ljust(11, ".")[:11] + "\ud83d\ude80 and on"
    assert "".join(pieces(forecaster(text))) == "twelve char\N{ROCKET} and on"


def test_half_a_character_at_the_end_of_an_answer_is_told_as_it_is_recorded(pieces: Any) -> None:
    agent = forecaster(asks(Call("weather", {"city": "Rome"}), text="I look.\ud83d"), "\ude80 It rains.\ud83d")
    assert "".join(pieces(agent)) == "I look.\N{REPLACEMENT CHARACTER}\n\n" + kept(agent).messages[-1].text
    assert kept(agent).messages[-1].text.endswith("rains.\N{REPLACEMENT CHARACTER}")


def test_a_run_that_fails_raises_why_after_its_text(pieces: Any) -> None:
    error = ModelError("no more", code=ErrorCode.QUOTA_EXCEEDED, provider_message="pay first")
    with pytest.raises(RunFailed, match="no more") as raised:
        pieces(forecaster(Turn(text="It", error=error)))
    assert (raised.value.code, raised.value.provider_message) == (ErrorCode.QUOTA_EXCEEDED, "pay first")
    assert raised.value.result.status is AgentStatus.FAILED


def test_text_comes_while_the_model_still_answers() -> None:
    async def first() -> str:
        gate = Gate(3)
        agent = Agent(ScriptedModel(ANSWER, between=gate))
        async with aclosing(agent.stream("x").text()) as text:
            piece = await anext(text)
            assert not gate.opened.is_set()
            gate.opened.set()
            return piece + "".join([piece async for piece in text])

    assert run(first()) == ANSWER


def test_closing_the_text_aborts_the_run_before_the_next_line() -> None:
    async def close_early() -> None:
        agent = Agent(ScriptedModel(ANSWER, "Again.", between=Gate(3)))
        text = agent.stream("x").text()
        await anext(text)
        await text.aclose()
        require_sound(kept(agent))
        assert kept(agent).state.status is AgentStatus.ABORTED

    run(close_early())


def test_after_a_loop_that_was_left_the_next_run_waits_for_the_end_of_the_first() -> None:
    async def leave() -> str:
        agent = Agent(ScriptedModel(ANSWER, "Again.", between=Gate(3)))
        async for _piece in agent.stream("x").text():
            break
        model = ScriptedModel("Again.")
        with agent.override(model=model):
            again = await agent.run("y")
        assert sum(entry.kind == "run_finished" for entry in kept(agent).entries) == 2
        require_sound(kept(agent))
        return again.unwrap()

    assert run(leave()) == "Again."


def test_a_reader_that_is_cancelled_aborts_the_run() -> None:
    async def cancel() -> None:
        gate = Gate(3)
        agent = Agent(ScriptedModel(ANSWER, between=gate))
        reader = asyncio.ensure_future(awaited(agent))
        await gate.reached.wait()
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        require_sound(kept(agent))

    run(cancel())


def test_the_text_of_a_run_of_another_event_loop_is_refused_and_the_run_goes_on() -> None:
    async def read_elsewhere() -> str | None:
        gate = Gate(3)
        agent = Agent(ScriptedModel(ANSWER, between=gate))
        stream = agent.stream("x")
        await gate.reached.wait()

        async def elsewhere() -> None:
            with pytest.raises(InvalidValue, match="event loop"):
                stream.text()

        await asyncio.to_thread(asyncio.run, elsewhere())
        gate.opened.set()
        return (await stream.result()).output

    assert run(read_elsewhere()) == ANSWER


# ---------------------------------------------------------------- without await


class Pause:
    """Given to a scripted model as `between`: it waits before one delta until any thread lets it go on."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.opened = threading.Event()

    async def __call__(self, number: int) -> None:
        if number == self._number:
            await asyncio.to_thread(self.opened.wait, PATIENCE)


def hanging(*script: Any) -> Agent:
    """An agent whose model says nothing more after the first pieces of its first answer."""
    stops = [3]

    async def between(number: int) -> None:
        if number in stops:
            stops.clear()
            await asyncio.Event().wait()

    return Agent(ScriptedModel(*script, between=between))


def test_leaving_the_loop_over_the_text_aborts_the_run_and_frees_the_agent() -> None:
    agent = hanging(ANSWER, Turn(text="On"))
    for _piece in agent.stream_sync("x").text():
        break
    require_sound(kept(agent))
    assert agent.run_sync("y").output == "On"


def test_leaving_a_with_block_aborts_the_run() -> None:
    agent = hanging(ANSWER)
    with agent.stream_sync("x") as stream:
        next(stream.text())
    assert stream.result().status is AgentStatus.ABORTED


def test_events_and_result_are_there_without_await() -> None:
    stream = forecaster().stream_sync("x")
    events = list(stream)
    assert [event.seq for event in events] == list(range(len(events)))
    assert list(stream.events(after=2)) == events[3:]
    assert stream.result().output == ANSWER
    assert stream.is_done
    with pytest.raises(InvalidValue, match="after"):
        stream.events(after=-2)


def test_events_come_while_the_model_still_answers() -> None:
    pause = Pause(3)
    agent = Agent(ScriptedModel(ANSWER, between=pause))
    stream = agent.stream_sync("x")
    first = next(event for event in stream if isinstance(event, DeltaEvent))
    assert not stream.is_done
    pause.opened.set()
    assert first in list(stream)


def test_a_mistake_of_the_caller_is_raised_at_once() -> None:
    with pytest.raises(InvalidValue, match="nothing to carry on"):
        forecaster().stream_sync()


def test_a_second_run_at_once_is_told_that_the_session_is_busy() -> None:
    agent = hanging(ANSWER)
    with agent.stream_sync("x"), pytest.raises(SessionBusy):
        agent.stream_sync("y")


def test_the_run_sees_the_context_variables_of_its_caller() -> None:
    user: ContextVar[str] = ContextVar("user", default="nobody")
    seen = []

    @tool
    def who() -> str:
        """Say who asks."""
        seen.append(user.get())
        return user.get()

    user.set("Ada")
    agent = Agent(ScriptedModel(asks(Call("who")), "Ada."), tools=[who])
    assert "".join(agent.stream_sync("Who am I?").text()) == "Ada."
    assert seen == ["Ada"]


def test_a_tool_that_waits_for_its_own_run_is_refused() -> None:
    streams: list[SyncRun[str]] = []
    begun = threading.Event()

    @tool
    def wait() -> str:
        """Wait for the end."""
        begun.wait(PATIENCE)
        return str(streams[0].result().output)

    agent = Agent(ScriptedModel(asks(Call("wait")), "Done."), tools=[wait])
    streams.append(agent.stream_sync("x"))
    begun.set()
    result = streams[0].result()
    assert result.output == "Done."
    assert any("cannot wait" in str(entry) for entry in kept(agent).entries)


@pytest.mark.parametrize("in_task", [True, False])
def test_an_iterator_that_the_garbage_collector_closes_in_the_thread_of_the_run_aborts_it(in_task: bool) -> None:
    forgotten = threading.Event()

    async def between(number: int) -> None:
        if number == 3:
            await asyncio.to_thread(forgotten.wait, PATIENCE)
            if in_task:
                gc.collect()
            else:
                asyncio.get_running_loop().call_soon(gc.collect, context=Context())
            await asyncio.Event().wait()

    class Cycle:
        def __init__(self, text: Iterator[str]) -> None:
            self.text, self.itself = text, self
            next(text)

    agent = Agent(ScriptedModel(ANSWER, between=between))
    stream = agent.stream_sync("x")
    gc.disable()
    try:
        Cycle(stream.text())
        forgotten.set()
        assert stream.result().status is AgentStatus.ABORTED
    finally:
        gc.enable()


def test_after_an_interrupted_wait_the_next_run_waits_for_the_end_of_the_first() -> None:
    agent = hanging(ANSWER)
    stream = agent.stream_sync("x")

    def interrupt() -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stream._wait_for(interrupt)
    with agent.override(model=ScriptedModel("Again.")):
        assert agent.run_sync("y").output == "Again."
    assert stream.result().status is AgentStatus.ABORTED


PROGRAM = """
import asyncio, signal, sys, threading
from dragoman import Agent
from dragoman.testing import ScriptedModel

what = sys.argv[1]
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores it
reached = threading.Event()  # by the main thread: where it shall be interrupted, or what it does after that

def interrupt():
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

async def between(number):
    if number == 3:
        if what == "interrupt":
            await asyncio.to_thread(reached.wait)
            interrupt()
        await asyncio.Event().wait()

class Prompt(list):
    def __iter__(self):  # the thread of the run reads it, before there is a run
        if what == "interrupt the start":
            interrupt()
            reached.wait()
        return super().__iter__()

agent = Agent(ScriptedModel("It rains in Rome, as it did yesterday.", between=between))
try:
    text = agent.stream_sync(Prompt(["x"])).text()
    if what == "forget":
        print(next(text))
    else:
        for piece in text:
            reached.set()
except KeyboardInterrupt:
    reached.set()
    for thread in threading.enumerate():
        if thread.name == "dragoman-run":
            thread.join()
    print("interrupted", agent.session.state.status)
"""


@pytest.mark.parametrize(
    ("what", "printed"),
    [
        ("forget", "It rains in "),
        ("interrupt", "interrupted aborted"),
        ("interrupt the start", "interrupted aborted"),
    ],
)
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_program_ends_although_a_run_hangs(what: str, printed: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program), what], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{printed}\n", "")
