"""What people do in the inspector and what they see of it: runs that are followed, begun, decided and stopped."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dragoman import Agent, MemoryStore, start_session
from dragoman.errors import InvalidValue
from dragoman.history import ApprovalAnsweredEntry, HistoryEntry, ModelOutputEntry, RunFinishedEntry
from dragoman.message import Message, Role, ToolCall
from dragoman.store import Session
from dragoman.testing import Call, ScriptedModel, Turn

from .inspector_cases import pay, two_turns
from .inspector_stage import TOKEN, Stage, played, staged

# ---------------------------------------------------------------- live

Event = dict[str, Any]


async def events(stage: Stage, path: str, last: str = "", *, until: Callable[[Event], bool]) -> list[Event]:
    """Return the events of a session up to the one that is wanted."""
    headers = {"Last-Event-ID": last} if last else {}
    found: list[dict[str, Any]] = []
    async with stage.client.get(f"{stage.address}{path}", params={"token": TOKEN}, headers=headers) as answer:
        event: dict[str, Any] = {}
        async for raw in answer.content:
            line = raw.decode().rstrip("\n")
            if line.startswith(("id: ", "event: ", "data: ")):
                name, _, value = line.partition(": ")
                event[name] = json.loads(value) if name == "data" else value
            elif not line and "event" in event:
                found.append(event)
                if until(event):
                    return found
                event = {}
    return found


def is_entry(event: Event, kind: str) -> bool:
    return event["event"] == "entry" and bool(event["data"]["entry"]["kind"] == kind)


def is_asked(event: Event) -> bool:
    return is_entry(event, "approval_asked")


def is_end(event: Event) -> bool:
    return is_entry(event, "run_finished")


def test_a_run_is_followed_to_its_end_through_a_lost_connection() -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        halfway, lost = asyncio.Event(), asyncio.Event()

        async def wait(number: int) -> None:
            if number == 6:
                halfway.set()
                await lost.wait()

        model = ScriptedModel("one two three four five six seven eight", between=wait)
        session = await start_session(store, "talk", live=True)
        run = asyncio.ensure_future(Agent(model, session=session).run("count"))
        await halfway.wait()
        first = await events(stage, "/api/s/talk/events", until=lambda event: event["event"] == "delta")
        first += await events(
            stage, "/api/s/talk/events", first[-1]["id"], until=lambda event: event["data"].get("kind") == "text"
        )
        lost.set()
        rest = await events(stage, "/api/s/talk/events", first[-1]["id"], until=is_end)
        serials = [event["data"]["entry"]["serial"] for event in first + rest if event["event"] == "entry"]
        assert serials == list(range(len(session.entries)))
        said = [event["data"]["payload"]["textDelta"] for event in first + rest if event["data"].get("kind") == "text"]
        assert "one two three four five six seven eight".startswith("".join(said))
        await run

    played(test)


@pytest.mark.parametrize("position", ["-1", "NaN", "1.5", "3", "99999", "9" * 30, "0.x"])
@pytest.mark.parametrize("place", ["from", "Last-Event-ID"])
def test_a_position_that_the_session_does_not_have_is_refused(position: str, place: str) -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        session = await start_session(store, "talk")
        await session.append_model_input("one")
        await session.append_model_input("two")
        query = {"token": TOKEN, **({"from": position} if place == "from" else {})}
        headers = {} if place == "from" else {place: position}
        async with stage.client.get(f"{stage.address}/api/s/talk/events", params=query, headers=headers) as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (400, "invalid_request")

    played(test)


def payer(script: list[ScriptedModel]) -> Callable[[Session, str | None], Agent[Any, Any]]:
    return lambda session, _model: Agent(script[0], tools=[pay], session=session)


def test_a_prompt_starts_a_run_that_an_approval_carries_on() -> None:
    script = [ScriptedModel(Turn(calls=(Call("pay", {"euros": 5}, "c1"),)), "Done.")]

    async def test(stage: Stage, store: MemoryStore) -> None:
        await start_session(store, "talk")
        status, _ = await stage.post("/api/s/talk/input", {"text": "pay"})
        assert status == 200
        await events(stage, "/api/s/talk/events", until=is_asked)
        status, body = await stage.post("/api/s/talk/approve", {"call": "c1", "who": "ann", "arguments": {"euros": 4}})
        assert (status, body["isCarriedOn"], body["problem"]) == (200, True, "")
        await events(stage, "/api/s/talk/events", until=is_end)
        entries = await store.load("talk")
        assert any("4 paid" in str(entry) for entry in entries)
        status, body = await stage.post("/api/s/talk/deny", {"call": "c1", "who": "bob"})
        assert status == 409
        decision = body["error"]["decision"]
        assert (decision["approved"], decision["who"]) == (True, "ann")
        assert decision["time"]

    played(test, make_agent=payer(script))


async def waiting(store: MemoryStore) -> Session:
    """A session whose only call waits for a decision."""
    session = await start_session(store, "talk")
    script = ScriptedModel(Turn(calls=(Call("pay", {"euros": 5}, "c1"),)), "Done.")
    await Agent(script, tools=[pay], session=session).run("pay")
    return session


LONG_NUMBER = 9_007_199_254_740_993  # JavaScript rounds it to an even one


def test_edited_arguments_are_read_from_their_text() -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        await waiting(store)
        text = f'{{"euros": {LONG_NUMBER}, "note": "1e2"}}'
        status, body = await stage.post("/api/s/talk/approve", {"call": "c1", "arguments": text})
        assert status == 200, body
        decision = (await store.load("talk", body["serial"]))[0]
        assert isinstance(decision, ApprovalAnsweredEntry)
        assert decision.arguments == {"euros": LONG_NUMBER, "note": "1e2"}

    played(test)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"a": 1} x', '{"euros": 1, "euros": 2}', '{"a": NaN}'])
def test_edited_arguments_that_say_no_one_object_are_refused(text: str) -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        session = await waiting(store)
        status, body = await stage.post("/api/s/talk/approve", {"call": "c1", "arguments": text})
        assert (status, body["error"]["code"]) == (400, "invalid_request")
        assert (await store.head("talk")).next_serial == session.state.next_serial

    played(test)


@pytest.mark.parametrize("arguments", [f'{{"euros": {LONG_NUMBER}, "ids": {[1] * 2_000}}}', '{"euros": 1, "euros": 2}'])
def test_the_text_of_arguments_says_what_will_run(arguments: str) -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        session = await start_session(store, "talk")
        call = ToolCall.parse("c1", "pay", arguments)
        await session.append_model_input("pay")
        await session.append_model_output(Message(Role.ASSISTANT, (call,)))
        place = "/api/s/talk/entries/1/text"
        found = await stage.get(place, at="/payload/message/parts/0/payload/arguments")
        assert len(found["text"]) == found["length"]
        assert json.loads(found["text"]) == call.arguments

    played(test)


def test_an_agent_without_the_tools_of_a_run_only_records_the_decision() -> None:
    script = ScriptedModel(Turn(calls=(Call("pay", {"euros": 5}, "c1"),)), "Done.")

    def toolless(session: Session, _model: str | None) -> Agent[Any, Any]:
        return Agent(ScriptedModel("Never asked."), session=session)

    async def test(stage: Stage, store: MemoryStore) -> None:
        session = await start_session(store, "talk")
        agent = Agent(script, tools=[pay], session=session)
        await agent.run("pay")
        status, body = await stage.post("/api/s/talk/approve", {"call": "c1", "who": "ann"})
        assert (status, body["isCarriedOn"]) == (200, False)
        assert "'pay'" in body["problem"]
        assert (await agent.run()).output == "Done."  # its own process carries it on
        assert any("5 paid" in str(entry) for entry in await store.load("talk"))

    played(test, make_agent=toolless)


def no_model(_session: Session, _model: str | None) -> Agent[Any, Any]:
    raise InvalidValue("choose a model, or set one in the settings")


def broken(_session: Session, _model: str | None) -> Agent[Any, Any]:
    raise KeyError("a secret of the host")


MISTAKES = {"no model": no_model, "broken": broken}
each_mistake = pytest.mark.parametrize("mistake", MISTAKES)


@each_mistake
def test_a_decision_that_nobody_carries_on_is_no_error_and_says_why(mistake: str) -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        await waiting(store)
        status, body = await stage.post("/api/s/talk/approve", {"call": "c1", "who": "ann", "model": "anth"})
        assert (status, body["isCarriedOn"]) == (200, False)
        assert body["problem"]
        assert "secret" not in body["problem"]
        assert isinstance((await store.load("talk", body["serial"]))[0], ApprovalAnsweredEntry)

    played(test, make_agent=MISTAKES[mistake])


@each_mistake
def test_an_end_that_nobody_brings_about_is_no_error_and_says_why(mistake: str) -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        await waiting(store)
        status, body = await stage.post("/api/s/talk/stop", {})
        assert (status, body["stopped"], bool(body["problem"])) == (200, False, True)

    played(test, make_agent=MISTAKES[mistake])


@each_mistake
def test_no_session_is_left_of_a_prompt_that_nobody_answers(mistake: str) -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        status, body = await stage.post("/api/sessions", {"text": "hello", "model": "anth"})
        assert status in (400, 500)
        assert "secret" not in body["error"]["message"]
        assert (await store.list()).sessions == ()

    played(test, make_agent=MISTAKES[mistake])


class SlowStore(MemoryStore):
    """A store that takes up decisions only once it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.let = asyncio.Event(), asyncio.Event()

    async def append(self, session_id: str, entries: Sequence[HistoryEntry], *rest: Any, **options: Any) -> Any:
        if any(isinstance(entry, ApprovalAnsweredEntry) for entry in entries):
            self.reached.set()
            await self.let.wait()
        return await super().append(session_id, entries, *rest, **options)


def test_a_decision_is_carried_on_although_its_browser_leaves() -> None:
    done = ScriptedModel("Done.")

    async def run() -> None:
        store = SlowStore()
        await waiting(store)
        async with staged(store, make_agent=lambda session, _: Agent(done, tools=[pay], session=session)) as stage:
            deciding = asyncio.create_task(stage.post("/api/s/talk/approve", {"call": "c1"}))
            await store.reached.wait()
            deciding.cancel()
            await asyncio.wait([deciding])
            await stage.get("/api/s/talk")  # the server has seen by now that the browser left
            store.let.set()
            await events(stage, "/api/s/talk/events", until=is_end)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_prompts_at_once_begin_one_run_and_speak_to_it() -> None:
    waits = asyncio.Event()

    async def wait(_number: int) -> None:
        await waits.wait()

    def make_agent(session: Session, _model: str | None) -> Agent[Any, Any]:
        return Agent(ScriptedModel("One.", "Two.", between=wait), session=session)

    async def test(stage: Stage, store: MemoryStore) -> None:
        await start_session(store, "talk")
        saying = [stage.post("/api/s/talk/input", {"text": f"say {number}"}) for number in range(4)]
        answers = await asyncio.gather(*saying)
        assert [status for status, _ in answers] == [200] * 4
        assert sorted(body["steers"] for _, body in answers) == [False, True, True, True]
        waits.set()
        await events(stage, "/api/s/talk/events", until=is_end)

    played(test, make_agent=make_agent)


def test_two_decisions_at_once_have_one_winner_whom_the_other_sees() -> None:
    script = [ScriptedModel(Turn(calls=(Call("pay", {"euros": 5}, "c1"),)), "Done.")]

    async def test(stage: Stage, store: MemoryStore) -> None:
        session = await start_session(store, "talk")
        await Agent(script[0], tools=[pay], session=session).run("pay")
        answers = await asyncio.gather(
            *(stage.post("/api/s/talk/deny", {"call": "c1", "who": who}) for who in ("ann", "bob", "eve"))
        )
        statuses = sorted(status for status, _ in answers)
        assert statuses == [200, 409, 409]
        winner = ("ann", "bob", "eve")[next(place for place, (status, _) in enumerate(answers) if status == 200)]
        losers = [body["error"]["decision"]["who"] for status, body in answers if status == 409]
        assert losers == [winner, winner]

    played(test)


def test_a_run_is_stopped_and_a_session_forked_and_erased() -> None:
    held = asyncio.Event()

    async def wait(number: int) -> None:
        if number == 2:
            await held.wait()

    script = [ScriptedModel("a b c d e f", between=wait)]

    async def test(stage: Stage, store: MemoryStore) -> None:
        await start_session(store, "talk")
        await stage.post("/api/s/talk/input", {"text": "go"})
        assert (await stage.post("/api/s/talk/stop", {}))[0] == 200
        end = (await events(stage, "/api/s/talk/events", until=is_end))[-1]["data"]["entry"]
        (finished,) = await store.load("talk", end["serial"], until_serial=end["serial"] + 1)
        assert isinstance(finished, RunFinishedEntry)
        assert finished.status == "aborted"
        assert (await stage.post("/api/s/talk/stop", {}))[0] == 409
        assert (await stage.post("/api/s/talk/fork", {"serial": 1, "id": "branch"}))[1] == {"session": "branch"}
        assert (await stage.post("/api/s/talk/erase", {"confirm": "other"}))[0] == 400
        assert (await stage.post("/api/s/talk/erase", {"confirm": "talk", "forks": ["branch"]}))[0] == 200
        assert (await stage.status("/api/s/talk"))[0] == 404

    played(test, make_agent=lambda session, _model: Agent(script[0], session=session))


@pytest.mark.slow
def test_a_server_that_stops_waits_for_no_answer() -> None:
    async def run() -> None:
        reached = asyncio.Event()

        async def wait(number: int) -> None:
            if number == 2:
                reached.set()
                await asyncio.Event().wait()

        store = MemoryStore()
        model = ScriptedModel("a b c d e f g h i j k l m n o p", between=wait)
        async with staged(store, make_agent=lambda session, _model: Agent(model, session=session)) as stage:
            await start_session(store, "talk")
            await stage.post("/api/s/talk/input", {"text": "go"})
            await reached.wait()
        entries = await store.load("talk")
        assert not any(isinstance(entry, ModelOutputEntry) for entry in entries)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_an_action_with_an_outdated_serial_is_refused() -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        await two_turns(store)
        status, body = await stage.post("/api/s/talk/fork", {"serial": 1, "expectedSerial": 3})
        assert (status, body["error"]["code"]) == (409, "conflict")

    played(test)


def test_it_can_be_mounted_under_a_path_of_another_application() -> None:
    async def test(stage: Stage, store: MemoryStore) -> None:
        await two_turns(store)
        assert stage.address.endswith("/inspect")
        assert (await stage.get("/api/sessions"))["total"] == 1
        async with stage.client.get(f"{stage.address}/s/talk/2", params={"token": TOKEN}) as answer:
            text = await answer.text()
            assert '<base href="/inspect/">' in text
            assert "Path=/inspect" in answer.headers["Set-Cookie"]
        async with stage.client.get(f"{stage.address}/static/app.js") as answer:
            assert answer.status == 200

    played(test, mount="/inspect")
