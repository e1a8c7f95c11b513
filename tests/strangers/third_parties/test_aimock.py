"""A mock provider that others wrote, through every name of ours that it can answer."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman import (
    Agent,
    AgentConfig,
    ErrorCode,
    FinishReason,
    LoopConfig,
    Message,
    Model,
    SQLiteStore,
    Text,
    Thinking,
    ToolCall,
    start_session,
    tool,
)
from dragoman.agent import DeltaEvent
from dragoman.stream import Assembly

from .aimock import KEY, NAMES, Aimock, aimock

pytestmark = pytest.mark.slow
each_name = pytest.mark.parametrize("name", NAMES)

STORY = "Grüße aus Köln: 東京, \U0001f600\U0001f680 and \U0001f469\u200d\U0001f4bb."
CITIES = ({"city": "Paris"}, {"city": "Oslo"})
STATUSES = {
    400: ErrorCode.INVALID_REQUEST,
    401: ErrorCode.AUTHENTICATION,
    403: ErrorCode.PERMISSION,
    404: ErrorCode.NOT_FOUND,
    429: ErrorCode.RATE_LIMITED,
    500: ErrorCode.SERVER_ERROR,
    503: ErrorCode.OVERLOADED,
}
BROKEN = {ErrorCode.CONNECTION, ErrorCode.STREAM_TRUNCATED, ErrorCode.PROTOCOL_VIOLATION}


def answers() -> Iterator[dict[str, Any]]:
    calls = [{"name": "weather", "arguments": city, "id": f"call_{city['city']}"} for city in CITIES]
    # First, because an API whose roles alternate sends what failed before in the same message.
    yield {"match": {"userMessage": "think"}, "response": {"content": "It is 42.", "reasoning": "Six times seven."}}
    yield {"match": {"userMessage": "two calls", "hasToolResult": True}, "response": {"content": "Both are sunny."}}
    yield {"match": {"userMessage": "two calls"}, "response": {"content": "I look.", "toolCalls": calls}}
    # Pieces of one UTF-16 unit: what is outside the basic plane arrives as two halves.
    yield {"match": {"userMessage": "tell"}, "response": {"content": STORY}, "chunkSize": 1}
    # The pause between pieces lets some of them arrive before the connection is cut.
    cut = {"latency": 5, "chunkSize": 4, "truncateAfterChunks": 5}
    yield {"match": {"userMessage": "break off"}, "response": {"content": STORY}, **cut}
    arguments = {"city": "A city with a name so long that it comes in many pieces"}
    broken_call = {"toolCalls": [{"name": "weather", "arguments": arguments, "id": "call_cut"}]}
    yield {"match": {"userMessage": "half a call"}, "response": broken_call, **cut}
    yield {"match": {"userMessage": "too long"}, "response": {"content": "Half a sen", "finishReason": "length"}}
    yield {"match": {"userMessage": "slowly"}, "response": {"content": STORY}, "latency": 20, "chunkSize": 1}
    for status in STATUSES:
        error = {"error": {"message": f"no, {status}"}, "status": status, "retryAfter": 7}
        yield {"match": {"userMessage": f"fail with {status}"}, "response": error}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aimock]:
    with aimock(list(answers()), tmp_path_factory.mktemp("aimock")) as started:
        yield started


def ask(model: Model, *questions: str) -> list[Assembly]:
    """Ask one question after the other, in one event loop."""

    async def all_of_them() -> list[Assembly]:
        return [await model.stream([Message.user(question)]).collect() for question in questions]

    return asyncio.run(all_of_them())


def new_agent(model: Model, **options: Any) -> tuple[Agent, list[str]]:
    """An agent that does not try again, and the cities that its tool was asked for."""
    asked: list[str] = []

    @tool
    async def weather(city: str) -> str:
        """Return the weather of a city."""
        asked.append(city)
        return f"Sun in {city}."

    config = AgentConfig(loop=LoopConfig(attempts=1))
    return Agent(model, tools=[weather], config=config, **options), asked


@each_name
def test_text_in_tiny_pieces_arrives_whole_again_and_again(server: Aimock, name: str) -> None:
    for answer in ask(server.model(name), *["Please tell."] * 3):
        assert answer.error is None, answer.error
        assert answer.message is not None
        assert answer.message.text == STORY
        assert [part for part in answer.message.parts if not isinstance(part, Text | Thinking)] == []
        assert answer.finish_reason is FinishReason.STOP


@each_name
def test_thinking_is_apart_from_the_answer(server: Aimock, name: str) -> None:
    (answer,) = ask(server.model(name), "Please think.")
    assert answer.message is not None, answer.error
    kinds = [part for part in answer.message.parts if isinstance(part, Thinking)]
    assert "".join(part.text for part in kinds) == "Six times seven."
    assert answer.message.text == "It is 42."


@each_name
def test_parallel_calls_are_run_once_each_and_answered_in_order(server: Aimock, name: str) -> None:
    agent, asked = new_agent(server.model(name))
    result = agent.run_sync("Make two calls.")
    assert (result.status, result.output, result.error) == ("completed", "Both are sunny.", None)
    assert sorted(asked) == ["Oslo", "Paris"]
    assert agent.session is not None
    said = agent.session.messages[1]
    assert [call.arguments for call in said.tool_calls] == list(CITIES)

    understood = server.last_request()["messages"]
    called = [call for message in understood for call in message.get("tool_calls") or ()]
    results = [message for message in understood if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in results] == [call["id"] for call in called]
    assert ["Sun in Paris." in results[0]["content"], "Sun in Oslo." in results[1]["content"]] == [True, True]


@pytest.mark.parametrize(
    ("name", "question"),
    [
        *((name, "Please break off.") for name in NAMES),
        *((name, "Make half a call.") for name in NAMES if "gemini" not in name),  # Gemini sends a call in one piece
    ],
)
def test_an_answer_that_breaks_off_is_an_error_and_no_call_is_run(server: Aimock, name: str, question: str) -> None:
    agent, asked = new_agent(server.model(name))
    result = agent.run_sync(question)
    assert result.status == "failed"
    assert result.error is not None
    assert result.error.code in BROKEN
    assert asked == []
    assert agent.run_sync("Please think.").output == "It is 42."


@each_name
def test_an_answer_that_was_too_long_does_not_end_as_a_whole_one(server: Aimock, name: str) -> None:
    (answer,) = ask(server.model(name), "This is too long.")
    assert answer.error is not None or answer.finish_reason not in {FinishReason.STOP, FinishReason.TOOL_CALLS}


@each_name
def test_every_refusal_has_its_code_and_the_words_of_the_provider(server: Aimock, name: str) -> None:
    answers = ask(server.model(name), *[f"Please fail with {status}." for status in STATUSES])
    codes = [answer.error and answer.error.error_code for answer in answers]
    assert codes == list(STATUSES.values())
    for status, answer in zip(STATUSES, answers, strict=True):
        assert answer.error is not None
        assert answer.error.provider_message == f"no, {status}"
        assert answer.error.retry_after == (7 if status == 429 else None)
        assert KEY not in repr(answer.error)


@each_name
@pytest.mark.parametrize(
    ("fault", "codes"),
    [
        ("drop", {ErrorCode.SERVER_ERROR}),
        ("malformed", {ErrorCode.PROTOCOL_VIOLATION, ErrorCode.STREAM_TRUNCATED}),
        ("disconnect", {ErrorCode.CONNECTION, ErrorCode.STREAM_TRUNCATED}),
        ("ratelimit", {ErrorCode.RATE_LIMITED}),
    ],
)
def test_every_fault_of_the_server_is_a_documented_error(
    server: Aimock, name: str, fault: str, codes: set[ErrorCode]
) -> None:
    (answer,) = ask(server.model(name, headers={f"x-aimock-chaos-{fault}": "1"}), "Please tell.")
    assert answer.message is None
    assert answer.error is not None
    assert answer.error.error_code in codes


@each_name
def test_runs_on_a_server_that_fails_at_random_fail_or_are_right(server: Aimock, name: str) -> None:
    chaos = {f"x-aimock-chaos-{fault}": "0.2" for fault in ("drop", "malformed", "disconnect", "ratelimit")}

    async def use() -> None:
        agent, asked = new_agent(server.model(name, headers=chaos))
        for _ in range(8):
            before = len(asked)
            result = await agent.run("Make two calls.")
            if result.status == "completed":
                assert result.output == "Both are sunny."
            else:
                assert result.status == "failed"
                assert result.error is not None
                assert result.error.code is not ErrorCode.INTERNAL
            assert sorted(asked[before:]) in ([], ["Oslo", "Paris"])
        agent.use(server.model(name))
        assert (await agent.run("Please think.")).output == "It is 42."
        assert agent.session is not None
        calls = [part for message in agent.session.messages for part in message.parts if isinstance(part, ToolCall)]
        assert len(calls) == len(asked)

    asyncio.run(use())


@each_name
def test_a_reader_who_leaves_stops_the_answer_and_the_next_one_is_whole(server: Aimock, name: str) -> None:
    async def use() -> None:
        agent, _ = new_agent(server.model(name))
        async with agent.stream("Say it slowly.") as run:
            async for event in run:
                if isinstance(event, DeltaEvent) and event.delta.kind == "text":
                    break
        assert (await run.result()).status == "aborted"
        assert (await agent.run("Please tell.")).output == STORY

    asyncio.run(use())


def test_fifty_answers_at_once_are_not_mixed_up(server: Aimock) -> None:
    async def use() -> None:
        models = [server.model(name) for name in NAMES]

        async def one(index: int) -> None:
            model = models[index % len(models)]
            question, wanted = [("Please tell.", STORY), ("Please think.", "It is 42.")][index % 2]
            answer = await model.stream([Message.user(question)]).collect()
            assert answer.message is not None, answer.error
            assert answer.message.text == wanted

        await asyncio.gather(*(one(index) for index in range(50)))

    asyncio.run(use())


def test_one_session_goes_through_every_name(server: Aimock, tmp_path: Path) -> None:
    async def use() -> None:
        async with SQLiteStore(tmp_path / "sessions.db") as store:
            session = await start_session(store, "journey", system_instruction="Be brief.")
            agent, asked = new_agent(server.model(next(iter(NAMES))), session=session)
            for turn, name in enumerate(NAMES, 1):
                agent.use(server.model(name))
                result = await agent.run("Make two calls.")
                assert (result.status, result.output) == ("completed", "Both are sunny."), (name, result.error)
                assert len(asked) == 2 * turn
                assert (await agent.run("Please think.")).output == "It is 42."
            assert (await store.verify("journey")).is_sound

    asyncio.run(use())
