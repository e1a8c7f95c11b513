"""A real model on a real server, through the three wire APIs that it speaks. What the model says is its own affair: the
tests ask for structure, never for words.
"""

import asyncio
import http.client
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import httpx
import jsonschema
import msgspec
import pytest

import dragoman
from dragoman import (
    AgentConfig,
    AgentStatus,
    ContextConfig,
    ErrorCode,
    FinishReason,
    Message,
    MessageDelta,
    Model,
    Role,
    TextDelta,
    ToolResult,
    ToolSpec,
)
from dragoman.agent import Agent, DeltaEvent, Hooks, ModelCall, RunResult
from dragoman.delta import ToolCallArgsDelta
from dragoman.history import ModelOutputEntry, ToolResultsEntry
from dragoman.store import MemoryStore, Session, SQLiteStore, start_session
from dragoman.stream import Assembly, ResponseReader, StreamContract
from dragoman.testing.transports import RecordingTransport, ReplayTransport, read_recording
from dragoman.tools import ToolContext, tool
from dragoman.transport import AiohttpTransport, HttpxTransport, Transport
from dragoman.wire import find_codec, find_dialect

from .live_server import CONTEXT_TOKENS, MODEL, live_server, missing_parts

pytestmark = pytest.mark.slow

# Where each API is on the server.
APIS = {"llamacpp": "/v1", "llamacpp-responses": "/v1", "llamacpp-anthropic": ""}
each_api = pytest.mark.parametrize("api", APIS)

QUESTION = Message.user("What is the weather in Paris in Celsius?")
CAPITAL = Message.user("What is the capital of France?")
WEATHER = ToolSpec(
    "get_weather",
    "Return the weather of a city.",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"type": "string", "enum": ["c", "f"]}},
        "required": ["city", "unit"],
    },
)
ENDED = {FinishReason.STOP, FinishReason.LENGTH}


class Answer(NamedTuple):
    """The deltas of one answer, which kept the contract, and what they came to."""

    deltas: list[MessageDelta]
    assembly: Assembly

    @property
    def message(self) -> Message:
        assert self.assembly.error is None, self.assembly.error
        assert self.assembly.message is not None
        return self.assembly.message


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of the server. Where its parts are not installed, the tests are skipped, or fail if CI needs them."""
    missing = missing_parts()
    if missing and os.environ.get("DRAGOMAN_LIVE") == "required":
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)
    with live_server() as address:
        yield address


@pytest.fixture(scope="module")
def calls(server: str) -> dict[str, Answer]:
    """The same question with a required call, asked once through each API."""
    return {api: ask(local(server, api), [QUESTION], [WEATHER], tool_choice="required") for api in APIS}


def local(server: str, api: str, transport: Transport | None = None) -> Model:
    return dragoman.model(
        f"{api}:{MODEL}",
        base_url=server + APIS[api],
        transport=transport or AiohttpTransport(trust_env=False),
        temperature=0,
        max_tokens=64,
    )


def ask(model: Model, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), **params: Any) -> Answer:
    """Return the answer to one request on an event loop of its own."""
    return asyncio.run(stream(model, messages, tools, **params))


async def stream(model: Model, messages: Sequence[Message], tools: Sequence[ToolSpec] = (), **params: Any) -> Answer:
    contract = StreamContract(repr(model))
    deltas: list[MessageDelta] = []
    async with model.stream(messages, tools, **params) as answer:
        async for delta in answer:
            contract.check(delta)
            deltas.append(delta)
    assert contract.finished
    assert [delta.kind for delta in deltas if delta.kind in {"done", "error"}] == [deltas[-1].kind]
    return Answer(deltas, answer.assembly)


def with_result(call: Message) -> list[Message]:
    """The conversation up to the result of the call."""
    result = ToolResult(call.tool_calls[0].tool_call_id, "21 degrees Celsius, clear sky")
    return [QUESTION, call, Message.tool(result)]


def require_usage(answer: Answer) -> None:
    usage = answer.assembly.usage
    assert usage is not None
    assert usage.input_tokens
    assert usage.output_tokens
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens


def require_weather_call(answer: Answer) -> None:
    (call,) = answer.message.tool_calls
    assert call.tool_name == WEATHER.name
    jsonschema.validate(call.arguments, WEATHER.parameter_schema)


def predicted_tokens(server: str) -> int:
    """How many tokens the server has made since it started."""
    connection = http.client.HTTPConnection(server.removeprefix("http://"))
    connection.request("GET", "/metrics")
    found = re.search(rb"^llamacpp:tokens_predicted_total (\d+)", connection.getresponse().read(), re.MULTILINE)
    connection.close()
    assert found
    return int(found[1])


@each_api
def test_text_is_streamed(server: str, api: str) -> None:
    answer = ask(local(server, api), [CAPITAL])
    assert len([delta for delta in answer.deltas if isinstance(delta, TextDelta)]) > 1
    assert answer.message.text.strip()
    assert not answer.message.tool_calls
    assert answer.assembly.finish_reason in ENDED
    require_usage(answer)


@each_api
def test_an_answer_that_is_cut_says_so(server: str, api: str) -> None:
    answer = ask(local(server, api), [Message.user("Tell me a very long story about a fox.")], max_tokens=4)
    assert answer.assembly.finish_reason is FinishReason.LENGTH


@each_api
def test_a_tool_call_is_streamed(calls: Mapping[str, Answer], api: str) -> None:
    answer = calls[api]
    assert len([delta for delta in answer.deltas if isinstance(delta, ToolCallArgsDelta)]) > 1
    assert answer.assembly.finish_reason is FinishReason.TOOL_CALLS
    require_weather_call(answer)
    require_usage(answer)


@each_api
@pytest.mark.parametrize("origin", APIS)
def test_any_api_finishes_what_any_other_began(server: str, calls: Mapping[str, Answer], origin: str, api: str) -> None:
    answer = ask(local(server, api), with_result(calls[origin].message), [WEATHER], tool_choice="none")
    assert answer.message.text.strip()
    assert answer.assembly.finish_reason in ENDED
    require_usage(answer)


@pytest.mark.parametrize("origin", APIS)
def test_the_model_reads_the_same_prompt_through_every_api(
    server: str, calls: Mapping[str, Answer], origin: str
) -> None:
    conversation = with_result(calls[origin].message)
    sizes = set()
    for api in APIS:
        usage = ask(local(server, api), conversation, [WEATHER], tool_choice="none", max_tokens=1).assembly.usage
        assert usage is not None
        sizes.add(usage.input_tokens)
    assert len(sizes) == 1


@pytest.mark.parametrize("first", range(3))
def test_a_conversation_goes_round_all_three_apis(server: str, calls: Mapping[str, Answer], first: int) -> None:
    apis = [*APIS, *APIS][first : first + 3]
    conversation = with_result(calls[apis[0]].message)
    conversation.append(ask(local(server, apis[1]), conversation, [WEATHER], tool_choice="none").message)
    conversation.append(Message.user("And in Oslo?"))
    require_weather_call(ask(local(server, apis[2]), conversation, [WEATHER], tool_choice="required"))


@each_api
def test_a_call_cut_by_the_length_limit_has_no_arguments(server: str, api: str) -> None:
    answer = ask(local(server, api), [QUESTION], [WEATHER], tool_choice="required", max_tokens=20)
    assert [call.arguments for call in answer.message.tool_calls if call.arguments is not None] == []
    if api != "llamacpp-responses":  # where llama.cpp calls every answer completed
        assert answer.assembly.finish_reason is FinishReason.LENGTH


@each_api
def test_a_prompt_beyond_the_context_is_a_context_overflow(server: str, api: str) -> None:
    answer = ask(local(server, api), [Message.user("word " * (CONTEXT_TOKENS + 500))])
    assert answer.assembly.error is not None
    assert answer.assembly.error.error_code == ErrorCode.CONTEXT_OVERFLOW
    assert not answer.assembly.error.retryable
    assert answer.assembly.message is None


@each_api
def test_leaving_a_stream_stops_the_server_too(server: str, api: str) -> None:
    limit = CONTEXT_TOKENS - 500
    model = local(server, api)

    async def leave_then_ask() -> Answer:
        question = Message.user("Write a very long story about a ship.")
        async with model.stream([question], max_tokens=limit, extensions={"ignore_eos": True}) as answer:
            async for delta in answer:
                if delta.kind == "text":
                    break
        return await stream(model, [CAPITAL])

    before = predicted_tokens(server)
    # There is one slot: the second answer comes only when the first is given up, or has reached its limit.
    assert asyncio.run(leave_then_ask()).message.text.strip()
    assert predicted_tokens(server) - before < limit


@each_api
@pytest.mark.parametrize("carrier", ["aiohttp", "httpx"])
def test_requests_in_a_row_are_all_answered(server: str, api: str, carrier: str) -> None:
    # llama.cpp closes the connection after each stream and says that it keeps it.
    async def row() -> list[Answer]:
        async with httpx.AsyncClient(trust_env=False) as client:
            transport = HttpxTransport(client) if carrier == "httpx" else AiohttpTransport(trust_env=False)
            model = local(server, api, transport)
            return [await stream(model, [CAPITAL], max_tokens=4) for _ in range(4)]

    assert [answer.assembly.error for answer in asyncio.run(row())] == [None] * 4


def test_structured_output_is_json_of_the_schema(server: str) -> None:
    schema = {
        "type": "object",
        "properties": {"sky": {"type": "string", "enum": ["clear", "cloudy"]}, "degrees": {"type": "integer"}},
        "required": ["sky", "degrees"],
        "additionalProperties": False,
    }
    answer = ask(local(server, "llamacpp"), [Message.user("Invent the weather of a day.")], output_schema=schema)
    jsonschema.validate(json.loads(answer.message.text), schema)


# What the model is made to write, as llama.cpp's grammars have it.
WRITTEN_CALLS = {
    "json": r'''"{\"name\": \"get_weather\", \"arguments\": {\"city\": \"" city "\", \"unit\": \"c\"}}"''',
    "xml": r'''"<function=get_weather>\n<parameter=city>\n" city "\n</parameter>\n" unit "\n</function>"''',
}


@pytest.mark.parametrize("form", ["json", "xml"])
def test_calls_in_the_text_of_a_server_that_reads_none_are_found(server: str, form: Literal["json", "xml"]) -> None:
    """The grammar makes the model write two calls; without a field for tools the server leaves them in the text."""
    written = dragoman.model(
        f"llamacpp:{MODEL}",
        base_url=f"{server}/v1",
        transport=AiohttpTransport(trust_env=False),
        temperature=0,
        max_tokens=200,
        text_calls=form,
    )
    call = f'"<tool_call>\\n" {WRITTEN_CALLS[form]} "\\n</tool_call>"'
    grammar = f'root ::= "So: " call "\\n" call\ncall ::= {call}\ncity ::= [a-zA-Z] [a-z]{{2,9}}'
    grammar += '\nunit ::= "<parameter=unit>\\nc\\n</parameter>"'
    answer = ask(written, [QUESTION], [WEATHER], extensions={"grammar": grammar})
    assert answer.assembly.finish_reason is FinishReason.TOOL_CALLS
    assert [part.kind for part in answer.message.parts] == ["text", "tool_call", "tool_call"]
    for found in answer.message.tool_calls:
        jsonschema.validate(found.arguments, WEATHER.parameter_schema)
    cut = ask(written, [QUESTION], [WEATHER], extensions={"grammar": grammar}, max_tokens=12)
    assert cut.message.text.startswith("So: <tool_call>\n")
    assert not cut.message.tool_calls
    results = [Message.tool(ToolResult(found.tool_call_id, "21 degrees")) for found in answer.message.tool_calls]
    assert ask(written, [QUESTION, answer.message, *results], [WEATHER]).assembly.error is None


@each_api
def test_every_event_of_the_server_is_known(server: str, api: str, tmp_path: Path) -> None:
    recording = tmp_path / "exchanges.jsonl"
    model = local(server, api, RecordingTransport(AiohttpTransport(trust_env=False), recording, protocol=api))
    text = ask(model, [CAPITAL])
    call = ask(model, [QUESTION], [WEATHER], tool_choice="required")

    dialect = find_dialect(api, MODEL)
    for exchange in read_recording(recording):
        reader = ResponseReader(find_codec(dialect.specification), dialect, headers=exchange.headers)
        deltas = [delta for chunk in exchange.chunks for delta in reader.feed(chunk)]
        assert [*deltas, *reader.end()][-1].kind == "done"
        assert reader.unknown_events == 0

    again = local(server, api, ReplayTransport.from_recording(recording))
    assert ask(again, [CAPITAL]).message.parts == text.message.parts
    assert ask(again, [QUESTION], [WEATHER]).message.parts == call.message.parts


# ---------------------------------------------------------------- an agent


class OneCall(Hooks):
    """Has the model call the tool when it is spoken to, and answer with its result: it is too small to choose."""

    async def before_model(self, call: ModelCall) -> ModelCall:
        choice = "none" if call.messages[-1].role is Role.TOOL else "required"
        return msgspec.structs.replace(call, params={**call.params, "tool_choice": choice})


class Sky:
    """What the tool looked at."""

    def __init__(self) -> None:
        self.seen: list[str] = []


@tool(name=WEATHER.name, requires_runtime=True)
async def look(city: str, unit: Literal["c", "f"], context: ToolContext[Sky]) -> str:
    """Return the weather of a city."""
    context.runtime.seen.append(city)
    return f"21 degrees {unit}, clear sky"


def make_agent(model: Model, sky: Sky, session: Session) -> Agent:
    config = AgentConfig(context=ContextConfig(recall=False))  # two tools would be one too many for this model
    return Agent(model, tools=[look], session=session, config=config, runtime=sky, hooks=[OneCall()])


def require_loop(result: RunResult[str], session: Session, provider: str) -> None:
    """A call, its result and an answer, all in this run and all by this provider."""
    assert (result.status, result.error) == (AgentStatus.COMPLETED, None)
    assert result.output
    assert result.output.strip()
    said = [entry for entry in session.entries if entry.run_id == result.run_id]
    (call, answer) = [entry.message for entry in said if isinstance(entry, ModelOutputEntry)]
    (results,) = [entry for entry in said if isinstance(entry, ToolResultsEntry)]
    assert [
        message.meta.invocation.provider for message in (call, answer) if message.meta and message.meta.invocation
    ] == [
        provider,
        provider,
    ]
    assert [part.tool_call_id for part in call.tool_calls] == [each.tool_call_id for each in results.results]
    assert "clear sky" in results.results[0].text()
    assert not answer.tool_calls


@each_api
def test_an_agent_completes_a_tool_loop(server: str, api: str) -> None:
    async def use() -> None:
        sky = Sky()
        session = await start_session(MemoryStore(), widgets=())
        result = await make_agent(local(server, api), sky, session).run("What is the weather in Paris in Celsius?")
        require_loop(result, session, api)
        assert len(sky.seen) == 1
        assert result.usage.input_tokens

    asyncio.run(use())


def test_an_agent_changes_the_api_in_mid_conversation_and_goes_on(server: str, tmp_path: Path) -> None:
    async def use() -> None:
        sky = Sky()
        async with SQLiteStore(tmp_path / "sessions.db") as store:
            session = await start_session(store, "weather", widgets=())
            transport = AiohttpTransport(trust_env=False)
            agent = make_agent(local(server, "llamacpp", transport), sky, session)
            questions = {
                "llamacpp": "What is the weather in Paris in Celsius?",
                "llamacpp-anthropic": "And in Oslo?",
                "llamacpp-responses": "And in Rome?",
            }
            for api, question in questions.items():
                agent.use(local(server, api, transport))
                require_loop(await agent.run(question), session, api)
            assert len(sky.seen) == 3
            assert [message.role for message in session.messages] == [
                Role.USER,
                Role.ASSISTANT,
                Role.TOOL,
                Role.ASSISTANT,
            ] * 3
            assert (await store.verify("weather")).is_sound

    asyncio.run(use())


def test_an_agent_that_is_stopped_in_a_stream_goes_on_through_another_api(server: str) -> None:
    async def use() -> None:
        sky, transport = Sky(), AiohttpTransport(trust_env=False)
        session = await start_session(MemoryStore(), widgets=())
        agent = make_agent(local(server, "llamacpp-anthropic", transport), sky, session)
        async with agent.stream("What is the weather in Paris in Celsius?") as started:
            async for event in started:
                if isinstance(event, DeltaEvent) and isinstance(event.delta, ToolCallArgsDelta):
                    break
        assert (await started.result()).status is AgentStatus.ABORTED
        assert not sky.seen
        agent.use(local(server, "llamacpp-responses", transport))
        require_loop(await agent.run("Then in Oslo, please."), session, "llamacpp-responses")
        assert len(sky.seen) == 1

    asyncio.run(use())
