"""Sessions that are carried on: after a crash at any place, a full disk, another writer, in another process."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from dragoman import AgentStatus, ErrorCode, InvalidValue, Message, Role, StoreError, ToolCall
from dragoman.agent import Agent, ErrorEvent, FinishedEvent
from dragoman.history import (
    HistoryEntry,
    HistoryToolCallResult,
    ModelInputEntry,
    ModelOutputEntry,
    RunFinishedEntry,
    RunStartedEntry,
    ToolFinishedEntry,
    ToolStartedEntry,
)
from dragoman.store import Lease, MemoryStore, Session, SessionBusy, SQLiteStore, open_session, start_session
from dragoman.testing.scripted import Call, ScriptedModel
from dragoman.tools import FunctionTool, tool
from tests.agent_cases import FailingStore, asks, kept, read, require_sound, result_codes, run

CALL = ToolCall("c", "work", arguments={}, raw_args_text="{}")
STARTED = RunStartedEntry(run_id="r")
SAID = ModelInputEntry.of("Work.")
CALLED = ModelOutputEntry(Message(Role.ASSISTANT, (CALL,)))
BEGUN = ToolStartedEntry("c", "work", False)
BEGUN_HARMLESSLY = ToolStartedEntry("c", "work", True)


class Works:
    """A tool that notes how often it ran."""

    def __init__(self, *, idempotent: bool = False) -> None:
        self.runs = 0
        self._idempotent = idempotent

    @property
    def tool(self) -> FunctionTool[Any, Any]:
        @tool(idempotent=self._idempotent)
        def work() -> str:
            """Work."""
            self.runs += 1
            return "Worked."

        return work


async def left(*entries: HistoryEntry) -> Session:
    """Return a session as a process left it that stopped after these entries."""
    store = MemoryStore()
    session = await start_session(store, "s")
    await session.append(*entries)
    return await open_session(store, "s")


# ---------------------------------------------------------------- where a process may stop


@pytest.mark.parametrize(
    ("entries", "answers", "runs", "code"),
    [
        ((STARTED, SAID), [asks(Call("work")), "Done."], 1, None),
        ((STARTED, SAID, CALLED), ["Done."], 1, None),
        ((STARTED, SAID, CALLED, BEGUN), ["Done."], 0, ErrorCode.TOOL_INTERRUPTED),
        ((STARTED, SAID, CALLED, BEGUN_HARMLESSLY), ["Done."], 0, ErrorCode.TOOL_INTERRUPTED),
        ((SAID,), [asks(Call("work")), "Done."], 1, None),
    ],
    ids=["in the first call", "before the tool", "in the tool", "in a tool that was harmless then", "without a run"],
)
def test_a_session_goes_on_where_it_stopped(
    entries: Sequence[HistoryEntry], answers: list[Any], runs: int, code: ErrorCode | None
) -> None:
    async def use() -> None:
        works = Works()
        agent = Agent(ScriptedModel(*answers), tools=[works.tool], session=await left(*entries))
        result = await agent.run()
        assert (result.output, works.runs, result_codes(kept(agent))) == ("Done.", runs, [code])
        if STARTED in entries:
            assert result.run_id == "r"
        require_sound(kept(agent))

    run(use())


def test_a_tool_that_does_no_harm_runs_again() -> None:
    async def use() -> None:
        works = Works(idempotent=True)
        session = await left(STARTED, SAID, CALLED, BEGUN_HARMLESSLY)
        agent = Agent(ScriptedModel("Done."), tools=[works.tool], session=session)
        assert (await agent.run()).output == "Done."
        assert (works.runs, result_codes(session)) == (1, [None])
        require_sound(session)

    run(use())


def test_a_result_that_is_in_is_never_made_again() -> None:
    async def use() -> None:
        works = Works(idempotent=True)
        finished = ToolFinishedEntry(
            HistoryToolCallResult.of_text(CALLED.tool_calls[0], "It was done before the crash.")
        )
        session = await left(STARTED, SAID, CALLED, BEGUN_HARMLESSLY, finished)
        model = ScriptedModel("Done.")
        await Agent(model, tools=[works.tool], session=session).run()
        assert works.runs == 0
        assert "before the crash" in str(model.requests[0].messages[-1].parts)
        require_sound(session)

    run(use())


def test_a_prompt_on_an_unfinished_run_is_taken_up_after_its_calls() -> None:
    async def use() -> None:
        works = Works()
        model = ScriptedModel("Both done.")
        agent = Agent(model, tools=[works.tool], session=await left(STARTED, SAID, CALLED))
        result = await agent.run("And sweep the floor.")
        assert (result.output, result.run_id, works.runs) == ("Both done.", "r", 1)
        assert [message.role for message in model.requests[0].messages][-2:] == [Role.TOOL, Role.USER]
        require_sound(kept(agent))

    run(use())


def test_there_must_be_something_to_carry_on() -> None:
    async def use() -> None:
        with pytest.raises(InvalidValue, match="give a prompt"):
            await Agent(ScriptedModel("Hi.")).run()
        agent = Agent(ScriptedModel("Hello."))
        await agent.run("Hi.")
        with pytest.raises(InvalidValue, match="give a prompt"):
            await agent.run()

    run(use())


def test_a_failed_run_can_be_tried_again_without_a_prompt() -> None:
    agent = Agent(ScriptedModel())  # it has nothing to say
    assert agent.run_sync("Hi.").status is AgentStatus.FAILED
    agent.use(ScriptedModel("Hello."))
    assert agent.run_sync().output == "Hello."


def test_a_run_that_was_left_can_be_aborted() -> None:
    async def use() -> None:
        works = Works()
        agent = Agent(ScriptedModel("Hm."), tools=[works.tool], session=await left(STARTED, SAID, CALLED, BEGUN))
        await agent.abort()
        assert (works.runs, result_codes(kept(agent))) == (0, [ErrorCode.TOOL_INTERRUPTED])
        assert kept(agent).state.status is AgentStatus.ABORTED
        require_sound(kept(agent))
        assert (await agent.run("Never mind.")).output == "Hm."

    run(use())


def test_another_model_carries_on_in_another_process(tmp_path: Path) -> None:
    async def begin() -> None:
        async with SQLiteStore(tmp_path / "s.db") as store:
            session = await start_session(store, "s")
            await session.append(STARTED, SAID, CALLED)

    async def go_on() -> None:
        async with SQLiteStore(tmp_path / "s.db") as store:
            works = Works()
            agent = Agent(ScriptedModel("Done."), tools=[works.tool], session=await open_session(store, "s"))
            assert ((await agent.run()).output, works.runs) == ("Done.", 1)
            assert (await store.verify("s")).is_sound
            require_sound(kept(agent))

    run(begin())
    run(go_on())


def test_run_sync_goes_on_a_file_from_event_loop_to_event_loop(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "s.db")
    agent = Agent(ScriptedModel("One.", "Two."), session=asyncio.run(start_session(store, "s")))
    assert [agent.run_sync("Hi.").output, agent.run_sync("Hi.").output] == ["One.", "Two."]
    asyncio.run(store.close())


# ---------------------------------------------------------------- a store that fails


def is_of(*kinds_of_entries: type) -> Callable[[Sequence[HistoryEntry]], bool]:
    return lambda entries: any(isinstance(entry, kinds_of_entries) for entry in entries)


@pytest.mark.parametrize(
    ("refused", "runs"),
    [
        (RunStartedEntry, 0),
        (ModelOutputEntry, 0),
        (ToolStartedEntry, 0),
        (ToolFinishedEntry, 1),
        (RunFinishedEntry, 1),
    ],
)
def test_a_store_that_fails_ends_the_run_and_it_goes_on_when_there_is_room(
    refused: type[HistoryEntry], runs: int
) -> None:
    async def use() -> None:
        store = FailingStore()
        works = Works()
        session = await start_session(store, "s")
        model = ScriptedModel(asks(Call("work")), "Done.", "Done.", "Done.")
        agent = Agent(model, tools=[works.tool], session=session)
        store.refuses = is_of(refused)
        result = await agent.run("Work.")
        assert (result.status, works.runs) == (AgentStatus.FAILED, runs)
        assert result.error is not None
        assert result.error.code is ErrorCode.QUOTA_EXCEEDED
        store.refuses = lambda entries: False

        if refused is RunStartedEntry:  # nothing was kept: nothing goes on
            agent.use(ScriptedModel(asks(Call("work")), "Done."))
            again = await agent.run("Work.")
        else:
            if refused is ModelOutputEntry:
                agent.use(ScriptedModel(asks(Call("work")), "Done."))
            again = await agent.run()
        assert (again.status, again.output) == (AgentStatus.COMPLETED, "Done.")
        assert works.runs == 1
        expected = ErrorCode.TOOL_INTERRUPTED if refused is ToolFinishedEntry else None
        assert result_codes(session) == [expected]
        require_sound(session)

    run(use())


def test_a_store_that_cannot_be_read_is_told_of_in_the_result_and_in_the_events() -> None:
    class Unreadable(MemoryStore):
        is_gone = False

        async def _acquire_lease(self, session_id: str, token: str, seconds: float) -> Lease:
            if self.is_gone:
                raise StoreError("the file is damaged", code=ErrorCode.CORRUPT)
            return await super()._acquire_lease(session_id, token, seconds)

    async def use() -> None:
        store = Unreadable()
        agent = Agent(ScriptedModel("Hello."), session=await start_session(store, "s"))
        store.is_gone = True
        started = agent.stream("Hi.")
        events = await read(started)
        result = await started.result()
        assert result.error is not None
        assert (result.status, result.session_id, result.error.code) == (AgentStatus.FAILED, "s", ErrorCode.CORRUPT)
        assert [type(event) for event in events if event.kind != "status"] == [ErrorEvent, FinishedEvent]
        store.is_gone = False
        assert (await agent.run("Hi.")).output == "Hello."

    run(use())


# ---------------------------------------------------------------- two writers


def test_what_another_writer_has_appended_is_taken_in_first() -> None:
    async def use() -> None:
        store = MemoryStore()
        ours = await start_session(store, "s")
        theirs = await open_session(store, "s")
        agent = Agent(ScriptedModel("Hello."), session=ours)
        assert (await Agent(ScriptedModel("Hi."), session=theirs).run("I am Ada.")).output == "Hi."
        assert (await agent.run("I am Bob.")).output == "Hello."
        assert [message.text for message in ours.messages] == ["I am Ada.", "Hi.", "I am Bob.", "Hello."]
        require_sound(ours)

    run(use())


def test_a_run_that_another_agent_left_open_keeps_its_id() -> None:
    async def use() -> None:
        store = MemoryStore()
        ours = await start_session(store, "s")
        theirs = await open_session(store, "s")
        agent = Agent(ScriptedModel("Hello."), session=ours)  # opened before the other one began
        await theirs.append(STARTED, SAID)
        result = await agent.run()
        assert (result.status, result.output, result.run_id) == (AgentStatus.COMPLETED, "Hello.", "r")
        require_sound(ours)

    run(use())


def test_a_run_that_another_agent_has_ended_gives_its_id_to_no_other() -> None:
    async def use() -> None:
        store = MemoryStore()
        theirs = await start_session(store, "s")
        await theirs.append(STARTED, SAID)
        ours = await open_session(store, "s")  # with that run open
        await Agent(ScriptedModel("Hi."), session=theirs).run()
        result = await Agent(ScriptedModel("Hello."), session=ours).run("Hello?")
        assert result.output == "Hello."
        assert result.run_id != "r"
        require_sound(ours)

    run(use())


def test_an_answer_reaches_a_question_that_another_agent_asked() -> None:
    async def use() -> None:
        @tool(requires_approval=True)
        def send() -> str:
            """Send."""
            return "Sent."

        store = MemoryStore()
        ours = await start_session(store, "s")
        theirs = await open_session(store, "s")
        asked = await Agent(ScriptedModel(asks(Call("send"))), tools=[send], session=theirs).run("Send it.")
        agent = Agent(ScriptedModel("Done."), tools=[send], session=ours)
        await agent.approve(asked.approvals[0].tool_call_id)
        assert (await agent.run()).output == "Done."
        require_sound(ours)

    run(use())


def test_a_writer_in_the_middle_of_a_run_is_refused() -> None:
    async def use() -> None:
        store = MemoryStore()
        ours = await start_session(store, "s")
        theirs = await open_session(store, "s")

        @tool
        async def meddle() -> str:
            """Let the other one write."""
            await theirs.refresh()
            with pytest.raises(SessionBusy):
                await theirs.set_system_instruction("Be loud.")
            return "Meddled."

        agent = Agent(ScriptedModel(asks(Call("meddle")), "Hm."), tools=[meddle], session=ours)
        result = await agent.run("Go.")
        assert result.output == "Hm."
        assert result_codes(ours) == [None]
        require_sound(ours)

    run(use())
