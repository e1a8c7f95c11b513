"""What MCP servers ask of their client: a person's answers, a model's answers, and what is refused."""

import asyncio
import base64
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dragoman import Agent, AgentConfig, InvalidValue, LoopConfig, MemoryStore, Message, ToolsConfig, open_session
from dragoman.agent import AgentRun, QuestionAskedEvent, QuestionRequest, StatusEvent
from dragoman.history import (
    HistoryEntry,
    QuestionAction,
    QuestionAnsweredEntry,
    QuestionAskedEntry,
    SamplingEntry,
    ToolResultsEntry,
)
from dragoman.message import FinishReason
from dragoman.store import start_session
from dragoman.testing import Call, ScriptedModel, Turn
from dragoman.tools import McpServer, QuestionAnswer
from tests.mcp_cases import OFFICIAL, Reports, call, official_over_http, plain, run, text_of

pytestmark = pytest.mark.slow  # each starts programs

FORM = {
    "message": "Who comes?",
    "requestedSchema": {
        "type": "object",
        "properties": {"name": {"type": "string", "minLength": 2}, "nights": {"type": "integer", "default": 1}},
        "required": ["name"],
    },
}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def words(text: str, **more: Any) -> dict[str, Any]:
    """Return what a server sends to have one message answered."""
    return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}], "maxTokens": 50, **more}


def official(**options: Any) -> McpServer:
    """Return the server of the official package, which may ask for everything unless `options` say otherwise."""
    allowed = {"allow_elicitation": True, "allow_sampling": True, **options}
    return McpServer.stdio(sys.executable, OFFICIAL, name="inn", **allowed)


def asking(*arguments: str, **options: Any) -> McpServer:
    """Return the plain server of 2025, which may ask for everything."""
    return plain(*arguments, name="inn", allow_elicitation=True, allow_sampling=True, **options)


def script(tool: str, arguments: dict[str, Any] | None = None, *sampled: Turn | str) -> ScriptedModel:
    """Return a model that calls a tool, answers what is sampled, and ends."""
    return ScriptedModel(Turn(calls=(Call(tool, arguments or {}, "call-1"),)), *sampled, "Done.")


def entries(agent: Agent[Any, Any], kind: type[Any]) -> list[Any]:
    """Return the entries of a kind in the agent's session."""
    assert agent.session is not None
    return [entry for entry in agent.session.entries if isinstance(entry, kind)]


def result(agent: Agent[Any, Any]) -> str:
    """Return what the model was told of the call."""
    (found,) = entries(agent, ToolResultsEntry)[-1].results
    return str(found.text())


def errors(agent: Agent[Any, Any]) -> list[str]:
    """Return what the plain server was told for each of its requests."""
    return [each.get("message", "") for each in json.loads(result(agent))]


async def asked(started: AgentRun[Any]) -> QuestionAskedEvent:
    """Return the next question of a run."""
    async for event in started:
        if isinstance(event, QuestionAskedEvent):
            return event
    raise AssertionError("nothing was asked")


@asynccontextmanager
async def waiting(server: McpServer, tool: str, **options: Any) -> AsyncIterator[tuple[Agent, AgentRun[str], str]]:
    """Give an agent whose run waits for a person, and the id of the question."""
    arguments = {"params": FORM} if tool == "ask" else {}
    async with server:
        agent = Agent(script(tool, arguments), tools=[*server.tools], **options)
        async with agent.stream("Book a room.") as started:
            yield agent, started, (await asked(started)).question_id


# ---------------------------------------------------------------- nothing unless it is allowed


def test_a_client_declares_only_what_is_allowed() -> None:
    async def declared(**options: bool) -> set[str]:
        async with plain(**options) as server:
            return set(json.loads(text_of(await call(server, "capabilities")))) & {"elicitation", "sampling"}

    assert run(declared()) == set()
    assert run(declared(allow_elicitation=True)) == {"elicitation"}
    assert run(declared(allow_sampling=True)) == {"sampling"}


@pytest.mark.parametrize(
    ("tool", "params", "says"),
    [("ask", FORM, "Elicitation not supported"), ("sample", words("Hi."), "Sampling not supported")],
)
def test_a_server_that_asks_without_leave_is_answered_with_an_error(tool: str, params: Any, says: str) -> None:
    async def use() -> None:
        async with plain() as server:
            agent = Agent(script(tool, {"params": params}), tools=[*server.tools])
            assert (await agent.run("Go.")).output == "Done."
            assert errors(agent) == [says]
            assert not entries(agent, QuestionAskedEntry)
            assert not entries(agent, SamplingEntry)

    run(use())


@pytest.mark.parametrize(("tool", "option"), [("book", "allow_elicitation"), ("rhyme", "allow_sampling")])
def test_the_model_is_told_which_option_a_server_lacks(tool: str, option: str) -> None:
    async def use() -> None:
        async with official(allow_elicitation=False, allow_sampling=False) as server:
            agent = Agent(script(tool, {"word": "cat"} if tool == "rhyme" else {}), tools=[*server.tools])
            await agent.run("Go.")
            assert option in result(agent) or "capability" in result(agent)

    run(use())


def test_options_that_are_no_bools_are_refused() -> None:
    with pytest.raises(InvalidValue, match="allow_sampling"):
        plain(allow_sampling="yes")


# ---------------------------------------------------------------- a person's answers


@pytest.mark.parametrize(("make", "tool"), [(official, "book"), (asking, "ask")], ids=["2026", "2025"])
def test_a_run_awaits_a_person_and_goes_on_with_the_answer(make: Callable[[], McpServer], tool: str) -> None:
    async def use() -> None:
        async with waiting(make(), tool) as (agent, started, question_id):
            assert agent.session is not None
            assert started.status == agent.session.state.status == "awaiting_human"
            await agent.answer(question_id, {"name": "Ada", "nights": 2})
            assert (await started.result()).output == "Done."
            statuses = [event.status.value async for event in started if isinstance(event, StatusEvent)]
            assert statuses[2:5] == ["tool_running", "awaiting_human", "tool_running"]
        assert "Ada" in result(agent)
        (question,) = entries(agent, QuestionAskedEntry)
        assert question.origin == "inn"
        (answer,) = entries(agent, QuestionAnsweredEntry)
        assert (answer.action, answer.content, answer.by) == ("accept", {"name": "Ada", "nights": 2}, "person")

    run(use())


def test_a_server_over_http_asks_too() -> None:
    async def use() -> None:
        with official_over_http() as (url, _):
            server = McpServer.http(url, allow_elicitation=True)
            async with waiting(server, "book") as (agent, started, question_id):
                await agent.answer(question_id, {"name": "Ada"})
                await started.result()
            assert result(agent) == "A room for Ada, 1 nights."

    run(use())


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_server_is_told_that_a_person_says_no(action: Any) -> None:
    async def use() -> None:
        async with waiting(official(), "book") as (agent, started, question_id):
            await agent.answer(question_id, action=action)
            await started.result()
        assert result(agent) == f"No room: {action}."

    run(use())


@pytest.mark.parametrize(
    "content", [{"name": "A"}, {"nights": 2}, {"name": "Ada", "nights": "two"}, {"name": "Ada", "dog": True}, None]
)
def test_an_answer_that_does_not_fit_is_refused_and_the_question_stays(content: Any) -> None:
    async def use() -> None:
        async with waiting(asking(), "ask") as (agent, started, question_id):
            with pytest.raises(InvalidValue, match="does not fit"):
                await agent.answer(question_id, content)
            with pytest.raises(InvalidValue, match="no question 'other'"):
                await agent.answer("other", {"name": "Ada"})
            await agent.answer(question_id, {"name": "Ada"})
            await started.result()
            with pytest.raises(InvalidValue, match="no question"):
                await agent.answer(question_id, {"name": "Eve"})
        assert json.loads(result(agent)) == [{"action": "accept", "content": {"name": "Ada"}}]

    run(use())


def test_an_address_is_shown_and_a_person_agrees_to_it() -> None:
    params = {"mode": "url", "message": "Sign in.", "url": "https://example.org/in", "elicitationId": "e1"}

    async def use() -> None:
        async with asking() as server:
            agent = Agent(script("ask", {"params": params}), tools=[*server.tools])
            async with agent.stream("Go.") as started:
                event = await asked(started)
                assert (event.question.url, event.question.schema) == ("https://example.org/in", None)
                await agent.answer(event.question_id)
                await started.result()
            assert json.loads(result(agent)) == [{"action": "accept"}]

    run(use())


def test_another_process_answers_by_the_record() -> None:
    async def use() -> None:
        store = MemoryStore()
        session = await start_session(store, "s")
        short = AgentConfig(loop=LoopConfig(lease_seconds=0.1))
        async with waiting(asking(), "ask", session=session, config=short) as (agent, started, question_id):
            other = Agent(ScriptedModel(), session=await open_session(store, "s"))
            await other.answer(question_id, {"name": "Ada"})
            assert (await started.result()).output == "Done."
        assert "Ada" in result(agent)

    run(use())


def test_a_policy_answers_before_a_person_is_asked() -> None:
    seen: list[QuestionRequest] = []

    async def policy(request: QuestionRequest) -> QuestionAnswer | None:
        seen.append(request)
        return QuestionAnswer(QuestionAction.ACCEPT, {"name": "Grace"})

    async def use() -> None:
        async with official() as server:
            agent = Agent(script("book"), tools=[*server.tools], questions=policy)
            assert (await agent.run("Go.")).output == "Done."
            assert "Grace" in result(agent)
            assert entries(agent, QuestionAnsweredEntry)[0].by == "policy"
            assert seen[0].call.tool_name == "book"

    run(use())


@pytest.mark.parametrize(
    "answer", [QuestionAnswer(QuestionAction.ACCEPT, {"name": "A"}), {"name": "Ada"}, None, OSError()]
)
def test_a_policy_that_cannot_tell_leaves_the_question_to_a_person(answer: Any) -> None:
    def policy(_request: QuestionRequest) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def use() -> None:
        async with waiting(asking(), "ask", questions=policy) as (agent, started, question_id):
            await agent.answer(question_id, action="decline")
            await started.result()
        assert json.loads(result(agent)) == [{"action": "decline"}]

    run(use())


def test_a_question_that_no_person_answers_in_time_is_cancelled() -> None:
    async def use() -> None:
        async with asking() as server:
            soon = AgentConfig(tools=ToolsConfig(question_timeout_ms=1))
            agent = Agent(script("ask", {"params": FORM}), tools=[*server.tools], config=soon)
            assert (await agent.run("Go.")).output == "Done."
            assert json.loads(result(agent)) == [{"action": "cancel"}]
            assert entries(agent, QuestionAnsweredEntry)[0].action == "cancel"

    run(use())


def test_the_time_of_a_person_counts_neither_for_the_tool_nor_for_the_run() -> None:
    async def use() -> None:
        limits = AgentConfig(loop=LoopConfig(max_seconds=2.0), tools=ToolsConfig(question_timeout_ms=2_500))
        async with asking(timeout_ms=2_000) as server:
            agent = Agent(script("ask", {"params": FORM}), tools=[*server.tools], config=limits)
            assert (await agent.run("Go.")).output == "Done."
            assert json.loads(result(agent)) == [{"action": "cancel"}]

    run(use())


def test_a_run_that_is_aborted_asks_no_more() -> None:
    async def use() -> None:
        async with waiting(asking(), "ask") as (agent, started, question_id):
            assert (await started.abort()).status == "aborted"
            assert agent.session is not None
            assert not agent.session.state.derived.questions
            with pytest.raises(InvalidValue, match="no question"):
                await agent.answer(question_id, {"name": "Ada"})

    run(use())


def test_after_a_crash_the_call_is_interrupted_and_the_question_ends_with_it() -> None:
    async def use() -> None:
        store = MemoryStore()
        async with waiting(asking(), "ask", session=await start_session(store, "s")) as (agent, _, _):
            assert agent.session is not None
            copy = await agent.session.fork(agent.session.state.next_serial - 1, new_session_id="crashed")
            assert copy.state.status == "awaiting_human"
            again = Agent(ScriptedModel("Sorry."), session=copy)
            assert (await again.run("What now?")).output == "Sorry."
            (told,) = entries(again, ToolResultsEntry)[0].results
            assert told.error_code == "tool_interrupted"
            assert not copy.state.derived.questions

    run(use())


def test_an_agent_inside_a_run_has_no_person_to_ask() -> None:
    async def use() -> None:
        async with asking() as server:
            clerk = Agent(script("ask", {"params": FORM}), tools=[*server.tools])
            chief = Agent(script("clerk", {"task": "Book."}), tools=[clerk.as_tool("clerk", "Books rooms.")])
            assert (await chief.run("Go.")).output == "Done."

    run(use())


def test_a_call_without_an_agent_asks_no_one() -> None:
    async def use() -> None:
        async with asking() as server:
            told = await call(server, "ask", params=FORM)
            assert "not made by an agent" in text_of(told)

    run(use())


def test_of_two_calls_at_once_none_is_guessed() -> None:
    async def use() -> None:
        async with Reports.listening() as reports, asking(*reports.option) as server:
            hanging = asyncio.create_task(call(server, "hang"))
            assert await reports.next() == "hanging"
            told = await call(server, "ask", params=FORM)
            assert "does not say which of them" in text_of(told)
            hanging.cancel()
            with pytest.raises(asyncio.CancelledError):
                await hanging

    run(use())


# ---------------------------------------------------------------- forms that no person is shown


def form(**schema: Any) -> dict[str, Any]:
    """Return a question with this schema."""
    return {"message": "?", "requestedSchema": {"type": "object", **schema}}


HOSTILE_FORMS: dict[str, tuple[dict[str, Any], str]] = {
    "a long question": ({**FORM, "message": "x" * 9_000}, "9000 characters"),
    "many fields": (form(properties={f"f{n}": {"type": "string"} for n in range(51)}), "51 fields"),
    "a large form": (form(properties={"a": {"type": "string", "description": "x" * 60_000}}), "bytes"),
    "an address that runs code": (
        {"mode": "url", "message": "?", "url": "javascript:alert(1)", "elicitationId": "e"},
        "must begin with https",
    ),
    "a nested field": (form(properties={"a": {"type": "object", "properties": {}}}), ""),
    "a field without a type": (form(properties={"a": {}}), ""),
    "more values than are read": (form(properties={"a": {"type": "string", "enum": ["x"] * 15_000}}), ""),
}


@pytest.mark.parametrize("case", HOSTILE_FORMS)
def test_a_form_that_no_person_should_see_is_refused(case: str) -> None:
    params, says = HOSTILE_FORMS[case]

    async def use() -> None:
        async with asking() as server:
            agent = Agent(script("ask", {"params": params}), tools=[*server.tools])
            assert (await agent.run("Go.")).output == "Done."
            (error,) = errors(agent)
            assert error
            assert says in error
            assert not entries(agent, QuestionAskedEntry)

    run(use())


def test_a_question_that_is_too_deep_to_be_read_is_refused() -> None:
    async def use() -> None:
        async with asking() as server:
            agent = Agent(script("ask_deeply"), tools=[*server.tools])
            assert (await agent.run("Go.")).output == "Done."
            assert len(errors(agent)) == 1
            assert not entries(agent, QuestionAskedEntry)

    run(use())


def test_a_server_asks_no_more_than_fifty_times_in_a_call() -> None:
    async def use() -> None:
        def decline(_request: QuestionRequest) -> QuestionAnswer:
            return QuestionAnswer(QuestionAction.DECLINE)

        async with asking() as server:
            agent = Agent(script("ask", {"params": FORM, "times": 60}), tools=[*server.tools], questions=decline)
            await agent.run("Go.")
            answers = json.loads(result(agent))
            assert sum("action" in each for each in answers) == 50
            assert sum("50 times" in each.get("message", "") for each in answers) == 10

    run(use())


# ---------------------------------------------------------------- a model's answers


@pytest.mark.parametrize("make", [official, asking], ids=["2026", "2025"])
def test_the_model_of_the_agent_answers_and_its_usage_counts(make: Callable[[], McpServer]) -> None:
    async def use() -> None:
        async with make() as server:
            params = words("A rhyme for cat?", systemPrompt="You rhyme.", temperature=0.5, stopSequences=["END"])
            is_official = make is official
            arguments = {"word": "cat"} if is_official else {"params": params}
            model = script("rhyme" if is_official else "sample", arguments, "bat")
            agent = Agent(model, tools=[*server.tools], instructions="You are a poet.")
            ended = await agent.run("Go.")
            assert ended.output == "Done."
            request = model.requests[1]
            assert [message.text for message in request.messages] == ["A rhyme for cat?"]
            assert (request.system, request.tools) == ("You rhyme.", ())
            assert (request.params["max_tokens"], request.params["temperature"]) == (50, 0.5)
            assert request.params["stop_sequences"] == ("END",)
            assert ended.usage.total_tokens == 45
            assert agent.session is not None
            assert agent.session.state.derived.token_usage.total_tokens == 45
            (sampling,) = entries(agent, SamplingEntry)
            assert (sampling.answer.text, sampling.system, sampling.origin) == ("bat", "You rhyme.", "inn")
            assert "bat" in result(agent)

    run(use())


@pytest.mark.parametrize(
    ("turn", "says", "code"),
    [
        (Turn(text="It beg", finish_reason=FinishReason.LENGTH), "cut after 50 tokens", "output_cut"),
        (Turn(text="It beg", breaks_after=1), "did not answer", "stream_truncated"),
        (Turn(text="", finish_reason=FinishReason.CONTENT_FILTER), "content_filtered", "content_filtered"),
        (Turn(text=""), "no text", None),
    ],
)
def test_an_answer_that_is_not_whole_is_an_error_for_the_server(turn: Turn, says: str, code: str | None) -> None:
    async def use() -> None:
        async with asking() as server:
            agent = Agent(script("sample", {"params": words("Hi.")}, turn), tools=[*server.tools])
            assert (await agent.run("Go.")).output == "Done."
            (error,) = errors(agent)
            assert says in error
            assert entries(agent, SamplingEntry)[0].error_code == code

    run(use())


@pytest.mark.parametrize(
    ("limits", "answered", "says"),
    [
        (LoopConfig(max_sampling_calls=3), 3, "3 times in a run"),
        (LoopConfig(max_iterations=4), 3, "4 model calls"),
        (LoopConfig(max_tokens=40), 2, "40 tokens"),
    ],
)
def test_endless_sampling_ends_at_a_limit_of_the_run(limits: LoopConfig, answered: int, says: str) -> None:
    async def use() -> None:
        async with asking() as server:
            first = Turn(calls=(Call("sample", {"params": words("Hi."), "times": 6}),))
            config = AgentConfig(loop=limits)
            agent = Agent(ScriptedModel(first, "Hello.", repeats=True), tools=[*server.tools], config=config)
            await agent.run("Go.")
            answers = json.loads(result(agent))
            assert sum("content" in each for each in answers) == answered
            assert all(says in each["message"] for each in answers if "message" in each)

    run(use())


def test_a_server_gets_no_more_tokens_than_the_settings_allow() -> None:
    async def use() -> None:
        async with asking() as server:
            model = script("sample", {"params": words("Hi.", maxTokens=10**6)}, "Hello.")
            await Agent(model, tools=[*server.tools]).run("Go.")
            assert model.requests[1].params["max_tokens"] == 4_096

    run(use())


def picture(mime_type: str, data: str) -> dict[str, Any]:
    """Return what a server sends to have a picture looked at."""
    content = {"type": "image", "mimeType": mime_type, "data": data}
    return {"messages": [{"role": "user", "content": content}], "maxTokens": 50}


PDF = base64.b64encode(b"%PDF-1.7 and more").decode()
HOSTILE_SAMPLINGS: dict[str, tuple[dict[str, Any], str]] = {
    "tools": (words("Hi.", tools=[{"name": "t", "inputSchema": {"type": "object"}}]), "sampling with tools"),
    "no tokens": (words("Hi.", maxTokens=0), "at least 1"),
    "a long text": (words("x" * 600_000), "600000 characters"),
    "a long system prompt": (words("Hi.", systemPrompt="x" * 600_000), "characters"),
    "many messages": ({**words("Hi."), "messages": words("Hi.")["messages"] * 101}, "from 1 to 100 messages"),
    "no messages": ({"messages": [], "maxTokens": 5}, "from 1 to 100 messages"),
    "many stop sequences": (words("Hi.", stopSequences=["x"] * 17), "16 stop sequences"),
    "a temperature of its own": (words("Hi.", temperature=9), "from 0 to 2"),
    "a picture that is none": (picture("image/png", PDF), "its bytes are application/pdf"),
    "a picture of another type": (picture("image/jpeg", PNG), "its bytes are image/png"),
    "a picture that is no base64": (picture("image/png", "@@@"), "no base64"),
    "a huge picture": (picture("image/png", "A" * 15_000_000), "more than"),
    "sound": ({"messages": [{"role": "user", "content": {"type": "audio", "mimeType": "audio/wav", "data": "AAAA"}}],
               "maxTokens": 5}, "audio content"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE_SAMPLINGS)
def test_messages_that_no_model_should_get_are_refused(case: str) -> None:
    params, says = HOSTILE_SAMPLINGS[case]

    async def use() -> None:
        async with asking() as server:
            model = script("sample", {"params": params})
            agent = Agent(model, tools=[*server.tools])
            assert (await agent.run("Go.")).output == "Done."
            (error,) = errors(agent)
            assert says in error
            assert len(model.requests) == 2
            assert not entries(agent, SamplingEntry)

    run(use())


def test_a_picture_that_is_what_it_says_reaches_the_model() -> None:
    async def use() -> None:
        async with asking() as server:
            model = script("sample", {"params": picture("image/png", PNG)}, "A pixel.")
            await Agent(model, tools=[*server.tools]).run("Go.")
            (message,) = model.requests[1].messages
            assert isinstance(message, Message)
            assert message.parts[0].kind == "image"

    run(use())


def test_a_resumed_run_counts_the_model_calls_of_its_tools() -> None:
    async def use() -> None:
        async with asking() as server:
            agent = Agent(script("sample", {"params": words("Hi.")}, "Hello."), tools=[*server.tools])
            await agent.run("Go.")
            assert agent.session is not None
            sampled: list[HistoryEntry] = entries(agent, SamplingEntry)
            copy = await agent.session.fork(sampled[0].serial, new_session_id="crashed")
            config = AgentConfig(loop=LoopConfig(max_iterations=2))
            again = Agent(ScriptedModel("More."), session=copy, tools=[*server.tools], config=config)
            ended = await again.run()
            assert ended.error is not None
            assert ended.error.message == "a run may make 2 model calls"

    run(use())


def test_what_a_person_types_is_in_no_log_and_no_repr(caplog: pytest.LogCaptureFixture) -> None:
    async def use() -> None:
        async with waiting(official(), "book") as (agent, started, question_id):
            await agent.answer(question_id, {"name": "hush-hush"})
            await started.result()
        assert "hush-hush" in result(agent)

    caplog.set_level("DEBUG")
    run(use())
    assert "hush-hush" not in "".join(
        record.getMessage() for record in caplog.records if record.name.startswith("drag")
    )
    assert "hush-hush" not in repr(QuestionAnswer(QuestionAction.ACCEPT, {"name": "hush-hush"}))
