"""Runs that are requested: what `submit` records, what `carry_on` does, and what a caller sees of it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dragoman import Agent, InvalidValue, MemoryStore, Session, Text, ToolContext, open_session, start_session, tool
from dragoman.delta import UsageDelta
from dragoman.durable import (
    Agents,
    EngineError,
    LocalEngine,
    Progress,
    RunHandle,
    carry_on,
    find_run,
    submit,
    sweep,
)
from dragoman.errors import StoreError
from dragoman.history import (
    AgentStatus,
    ModelInputEntry,
    QuestionAskedEntry,
    RunFinishedEntry,
    RunRequestedEntry,
    RunStartedEntry,
    RunStatus,
    ToolFinishedEntry,
    ToolStartedEntry,
)
from dragoman.store import SessionStore
from dragoman.testing import Call, ScriptedModel, Turn
from dragoman.testing.enginecases import AwayEngine
from dragoman.tools import Question
from tests.durable_cases import AGENTS, Use, working

# ---------------------------------------------------------------- submitting


def test_a_submitted_run_is_recorded_scheduled_and_carried_on(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="echo", session="s", prompt="Hello")
        assert (run.session_id, run.serial, run.agent) == ("s", 0, "echo")
        assert await run.status() == "queued"
        async with working(store, engine):
            result = await run.result()
        assert (result.status, result.unwrap()) == (AgentStatus.COMPLETED, "You said: Hello")
        assert await run.status() == "completed"
        kinds = [type(entry) for entry in await store.load("s")]
        assert kinds[:3] == [RunRequestedEntry, RunStartedEntry, ModelInputEntry]
        assert kinds[-1] is RunFinishedEntry
        assert result.run_id == run.run_id
        assert result.usage.total_tokens

    use(test)


def test_a_key_that_was_used_gives_the_run_there_is(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        first = await submit(store, engine, agent="echo", prompt="Hello", key="order-7")
        again = await submit(store, engine, agent="echo", prompt="Hello", key="order-7")
        assert (again.session_id, again.run_id, again.serial) == (first.session_id, first.run_id, first.serial)
        assert len((await store.list()).sessions) == 1
        both = await asyncio.gather(
            *(submit(store, engine, agent="echo", prompt="Hi", session=f"s{n}", key="order-8") for n in range(4))
        )
        assert len({run.run_id for run in both}) == 1
        assert len((await store.list_requests()).requests) == 2

    use(test)


def test_a_run_without_a_prompt_carries_on_what_is_there(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        session = await start_session(store, "s")
        await session.append_model_input("Unanswered")
        run = await submit(store, engine, agent="echo", session="s")
        async with working(store, engine):
            assert (await run.result()).output == "You said: Unanswered"
        assert sum(isinstance(entry, ModelInputEntry) for entry in await store.load("s")) == 1

    use(test)


@pytest.mark.parametrize(
    "wrong",
    [
        {"agent": ""},
        {"agent": "a\n"},
        {"agent": "a" * 300},
        {"agent": "a\udcff"},
        {"key": "\0"},
        {"key": " "},
        {"key": "a\udcff"},
        {"prompt": b"bytes"},
    ],
)
def test_what_cannot_be_requested_is_refused_and_nothing_is_recorded(wrong: dict[str, Any]) -> None:
    async def run() -> None:
        store = MemoryStore()
        given = {"agent": "echo", "prompt": "Hello", "session": "s", **wrong}
        with pytest.raises(InvalidValue):
            await submit(store, LocalEngine(), **given)
        assert (await store.list()).sessions == ()

    asyncio.run(run())


def test_two_keys_never_give_one_run(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        first = await submit(store, engine, agent="echo", session="s", prompt="One", key="mail-\ufffd")
        for key in ("mail-\udcff", "mail-\udcfe"):  # from names of files that are no UTF-8
            with pytest.raises(InvalidValue, match="key must be at most 200 printable characters"):
                await submit(store, engine, agent="echo", session="t", prompt="Two", key=key)
        assert [request.run_id for request in (await store.list_requests()).requests] == [first.run_id]
        assert [info.session_id for info in (await store.list()).sessions] == ["s"]

    use(test)


def test_a_run_of_another_id_does_not_begin_a_requested_one(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, _engine: LocalEngine) -> None:
        session = await start_session(store, "s")
        await session.append(RunRequestedEntry("echo", (Text("Hello"),), run_id="r\ufffd"))
        await session.append(RunStartedEntry(run_id="r\0"), RunFinishedEntry(RunStatus.COMPLETED, run_id="r\0"))
        assert [request.status for request in (await store.list_requests()).requests] == ["queued"]

    use(test)


def test_a_run_that_could_not_be_scheduled_is_recorded_and_found_by_a_sweep(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        with pytest.raises(EngineError, match="the run is recorded"):
            await submit(store, AwayEngine(LocalEngine(), []), agent="echo", session="s", prompt="Hello", key="k")
        assert await sweep(store, engine) == 1
        assert await sweep(store, engine) == 0  # the engine knows it now
        run = await find_run(store, engine, "s")
        async with working(store, engine):
            assert (await run.result()).output == "You said: Hello"
        assert await sweep(store, LocalEngine()) == 0  # it has ended

    use(test)


# ---------------------------------------------------------------- what is said to a run


def test_a_run_waits_for_a_person_and_goes_on_after_the_decision(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="payer", session="s", prompt="Pay 5")
        after = await submit(store, engine, agent="late", session="s", prompt="And then?")
        async with working(store, engine):
            waiting = await run.result()
            assert waiting.status is AgentStatus.AWAITING_HUMAN
            (call,) = waiting.approvals
            assert await run.status() == "awaiting_human"
            assert await after.waiting_calls() == (call,)  # what it waits for too
            progress = await carry_on(store, AGENTS, after.order)  # its order comes before its time
            assert progress == Progress("queued", progress.serial)
            await run.approve(call.tool_call_id, arguments={"amount": 6}, reason="less")
            assert (await run.result()).output == "Done."
            assert (await after.result()).output == "Late."  # the first order carries the second run on
        (finished,) = [entry for entry in await store.load("s") if isinstance(entry, ToolFinishedEntry)]
        assert finished.result.text() == "paid 6"

    use(test)


def test_a_decision_outlives_every_worker(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="payer", session="s", prompt="Pay 5")
        async with working(store, engine):
            (call,) = (await run.result()).approvals
        # Days later, in another process, no engine is there.
        found = await find_run(store, AwayEngine(LocalEngine(), []), "s")
        with pytest.raises(EngineError):
            await found.deny(call.tool_call_id, reason="No.")
        fresh = LocalEngine()
        async with working(store, fresh):  # its first sweep finds the decision in the record
            assert (await run.result()).output == "Done."
        assert not any(isinstance(entry, ToolStartedEntry) for entry in await store.load("s"))

    use(test)


def test_two_decisions_about_one_call_the_first_counts(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="payer", session="s", prompt="Pay 5")
        async with working(store, engine):
            (call,) = (await run.result()).approvals
            await run.approve(call.tool_call_id)
            with pytest.raises(InvalidValue, match="answered"):
                await run.deny(call.tool_call_id)
            assert (await run.result()).output == "Done."

    use(test)


def test_nothing_can_be_said_to_a_run_that_has_ended(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="payer", session="s", prompt="Pay 5")
        never = await submit(store, engine, agent="echo", session="s", prompt="Never")
        await never.abort()
        async with working(store, engine):
            (call,) = (await run.result()).approvals
            await run.steer("In euros.")
            assert await run.status() == "awaiting_human"
            await run.approve(call.tool_call_id)
            assert (await run.result()).output == "Done."
        before = await store.load("s")
        for ended, status in ((run, "completed"), (never, "aborted")):
            with pytest.raises(InvalidValue, match=f"this run is {status}"):
                await ended.steer("Anybody there?")
        assert await store.load("s") == before

    use(test)


def test_a_run_that_has_not_begun_is_aborted_without_beginning(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        first = await submit(store, engine, agent="echo", session="s", prompt="One")
        second = await submit(store, engine, agent="echo", session="s", prompt="Two")
        await first.abort("not needed")
        assert [await first.status(), await second.status()] == ["aborted", "queued"]
        async with working(store, engine):
            assert (await second.result()).output == "You said: Two"
            result = await first.result()
        assert (result.status, result.message) == (AgentStatus.ABORTED, None)
        assert [entry.run_id for entry in await store.load("s") if isinstance(entry, RunStartedEntry)] == [
            second.run_id
        ]
        await first.abort()  # once more: it stays as it is

    use(test)


def test_a_waiting_run_that_is_aborted_ends_and_its_call_has_a_result(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="payer", session="s", prompt="Pay 5")
        async with working(store, engine):
            assert (await run.result()).status is AgentStatus.AWAITING_HUMAN
            await run.abort()
            assert (await run.result()).status is AgentStatus.ABORTED
        session = await open_session(store, "s")
        assert session.state.pending_tool_calls == ()

    use(test)


# ---------------------------------------------------------------- finding runs


def test_requests_are_listed_newest_first_and_page_by_page(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        for number in range(7):
            await submit(store, engine, agent="echo", session=f"s{number % 2}", prompt="Hi", key=f"k{number}")
        first = await store.list_requests(limit=4)
        rest = await store.list_requests(limit=4, page=first.next_page)
        assert [request.key for request in (*first.requests, *rest.requests)] == [f"k{n}" for n in range(6, -1, -1)]
        assert rest.next_page is None
        assert [request.serial for request in (await store.list_requests(session_id="s0")).requests] == [3, 2, 1, 0]
        (found,) = (await store.list_requests(key="k3")).requests
        assert (found.session_id, found.serial, found.status) == ("s1", 1, "queued")
        for wrong in ({"limit": 0}, {"page": "x"}, {"session_id": ""}, {"serial": -1}, {"key": 1}):
            with pytest.raises(InvalidValue):
                await store.list_requests(**wrong)

    use(test)


def test_a_run_is_found_by_its_session(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        first = await submit(store, engine, agent="echo", session="s", prompt="One")
        second = await submit(store, engine, agent="echo", session="s", prompt="Two")
        assert (await find_run(store, engine, "s")).run_id == first.run_id
        assert (await find_run(store, engine, "s", 1)).run_id == second.run_id
        async with working(store, engine):
            await second.result()
        assert (await find_run(store, engine, "s")).run_id == second.run_id
        with pytest.raises(InvalidValue, match="no run was requested in session 's' at serial 2"):
            await find_run(store, engine, "s", 2)
        with pytest.raises(StoreError, match="nowhere"):
            await find_run(store, engine, "nowhere")
        handle = repr(await find_run(store, engine, "s"))
        assert handle == f"<RunHandle {second.run_id!r} of session 's', agent 'echo'>"
        assert isinstance(first, RunHandle)

    use(test)


# ---------------------------------------------------------------- following


def test_the_text_of_a_run_comes_once_wherever_it_is_read_from(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="payer", session="s", prompt="Pay 5")
        await submit(store, engine, agent="late", session="s", prompt="Other")
        reading = asyncio.ensure_future(_text_of(run))  # before a worker is there
        async with working(store, engine):
            assert await reading == ""  # it waits for a person
            (call,) = await run.waiting_calls()
            await run.approve(call.tool_call_id)
            assert await _text_of(run) == "Done."
            await run.result()
        assert await _text_of(run) == "Done."  # long after it has ended
        kinds = [delta.kind async for delta in run.follow()]
        assert (kinds.count("start"), kinds.count("done")) == (2, 2)

    use(test)


def test_a_run_that_was_aborted_before_it_began_has_no_text(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="echo", session="s", prompt="Hello")
        reading = asyncio.ensure_future(_text_of(run))
        await asyncio.sleep(0)
        await run.abort()
        assert await reading == ""
        assert await _text_of(run) == ""

    use(test)


async def _text_of(run: RunHandle) -> str:
    return "".join([text async for text in run.text()])


@pytest.mark.parametrize("what", ["steering", "another request"])
def test_following_a_waiting_run_ends_whatever_was_said_after_its_question(
    use: Callable[[Use], None], what: str
) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="payer", session="s", prompt="Pay 5")
        async with working(store, engine):
            assert (await run.result()).status is AgentStatus.AWAITING_HUMAN
            if what == "steering":
                await run.steer("Or less.")
            else:
                await submit(store, engine, agent="echo", session="s", prompt="And then?")
            assert [delta async for delta in run.follow()]

    use(test)


def test_a_reader_that_comes_back_to_a_run_gets_the_rest_and_the_end(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        async with working(store, engine):
            await (await submit(store, engine, agent="echo", session="s", prompt="Before")).result()
            run = await submit(store, engine, agent="payer", session="s", prompt="Pay 5")
            (call,) = (await run.result()).approvals
            await run.approve(call.tool_call_id)
            await run.result()
            await (await submit(store, engine, agent="echo", session="s", prompt="After")).result()
        # How much was used may come twice.
        whole = [each async for each in run.follow_from() if not isinstance(each.delta, UsageDelta)]
        assert [each.delta.kind for each in whole] == [each.kind async for each in run.follow() if each.kind != "usage"]
        for index, each in enumerate(whole):
            rest = [later.delta async for later in run.follow_from(str(each.position))]
            left = [delta for delta in rest if not isinstance(delta, UsageDelta)]
            assert left == [later.delta for later in whole[index + 1 :]]

    use(test)


# ---------------------------------------------------------------- questions


@tool
async def book(context: ToolContext) -> str:
    """Book a table."""
    assert context.asking is not None
    schema = {"type": "object", "properties": {"seats": {"type": "integer"}}}
    answer = await context.asking.ask_person(Question(text="How many?", schema=schema))
    return f"booked for {answer.content}"


def make_waiter(session: Session) -> Agent[Any, Any]:
    turns = (Turn(calls=(Call("book", {}),)), "Booked.")
    return Agent(ScriptedModel(*turns), tools=[book], session=session)


def test_a_question_of_a_tool_is_seen_and_answered_through_the_run(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="waiter", session="s", prompt="A table, please")
        assert await run.questions() == ()
        async with working(store, engine, Agents({"waiter": make_waiter})):
            async for entry in store.follow("s"):
                if isinstance(entry, QuestionAskedEntry):
                    break
            (asked,) = await run.questions()
            assert asked.text == "How many?"
            with pytest.raises(InvalidValue, match="no question"):
                await run.answer("another", {"seats": 4})
            with pytest.raises(InvalidValue, match="does not fit"):
                await run.answer(asked.question_id, {"seats": "four"})
            await run.answer(asked.question_id, {"seats": 4})
            assert (await run.result()).output == "Booked."
        assert await run.questions() == ()

    use(test)


def test_a_decision_about_no_call_is_refused_in_words(use: Callable[[Use], None]) -> None:
    async def test(store: SessionStore, engine: LocalEngine) -> None:
        run = await submit(store, engine, agent="payer", session="s", prompt="Pay 5")
        for decide in (run.approve, run.deny):
            with pytest.raises(InvalidValue, match="no call 'other' waits for a decision"):
                await decide("other")

    use(test)
