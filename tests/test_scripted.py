"""The model that plays a script, and the switch that keeps tests from the network."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given

import dragoman
from dragoman import ErrorCode, FinishReason, InvalidValue, Message, MessageDelta, ModelError, TextDelta
from dragoman.agent import Agent
from dragoman.delta import DoneDelta
from dragoman.router import AnyModel
from dragoman.stream import Assembly, StreamContract
from dragoman.testing import (
    Call,
    ReplayedResponse,
    ReplayTransport,
    ScriptedModel,
    ScriptedRequest,
    Turn,
    forbid_network,
)
from dragoman.testing.strategies import legal_streams
from dragoman.toolspec import ToolSpec
from dragoman.transport.protocol import NETWORK
from dragoman.usage import TokenUsage
from tests.agent_cases import Gate, claude, run
from tests.loopback import CLOSING, OPENING, STREAM_HEAD, Peer, serving, transport_of

HELLO = [Message.user("Hi.")]


async def ask(model: ScriptedModel, **params: Any) -> tuple[list[MessageDelta], Assembly]:
    contract = StreamContract("script")
    deltas: list[MessageDelta] = []
    async with model.stream(HELLO, **params) as stream:
        async for delta in stream:
            contract.check(delta)
            deltas.append(delta)
    assert contract.finished
    return deltas, stream.assembly


def played(*script: Any, **options: Any) -> tuple[list[MessageDelta], Assembly]:
    return asyncio.run(ask(ScriptedModel(*script, **options)))


def test_text_is_streamed_in_pieces() -> None:
    deltas, assembly = played("A sentence of some length.")
    assert len([delta for delta in deltas if isinstance(delta, TextDelta)]) == 3
    assert assembly.message is not None
    assert (assembly.message.text, assembly.finish_reason) == ("A sentence of some length.", FinishReason.STOP)
    assert assembly.usage == TokenUsage(input_tokens=10, output_tokens=5, total_tokens=15)


def test_a_turn_has_thinking_text_and_calls() -> None:
    _, assembly = played(
        Turn(thinking="Hm.", text="Look.", calls=(Call("look", {"at": "sky"}), Call("look", "{broken", "mine")))
    )
    message = assembly.message
    assert message is not None
    assert [part.kind for part in message.parts] == ["thinking", "text", "tool_call", "tool_call"]
    first, second = message.tool_calls
    assert (first.arguments, second.arguments, second.tool_call_id) == ({"at": "sky"}, None, "mine")
    assert second.raw_args_text == "{broken"
    assert assembly.finish_reason is FinishReason.TOOL_CALLS


def test_the_turns_are_played_in_their_order_and_the_requests_kept() -> None:
    async def use() -> None:
        model = ScriptedModel("One.", "Two.")
        spec = ToolSpec("look")
        _, first = await ask(model, tool_specs=[spec], system_prompt="Be brief.", temperature=0.5)
        _, second = await ask(model)
        assert [each.message and each.message.text for each in (first, second)] == ["One.", "Two."]
        request = model.requests[0]
        assert (request.messages, request.tools, request.system) == (tuple(HELLO), (spec,), "Be brief.")
        assert request.params["temperature"] == 0.5
        with pytest.raises(InvalidValue, match="no turn for request 3"):
            model.stream(HELLO)

    run(use())


def test_the_last_turn_may_be_repeated() -> None:
    async def use() -> None:
        model = ScriptedModel("One.", "Two.", repeats=True)
        said = [(await ask(model))[1].message for _ in range(4)]
        assert [message and message.text for message in said] == ["One.", "Two.", "Two.", "Two."]

    run(use())


def test_a_function_makes_the_turn_of_the_request() -> None:
    def echo(request: ScriptedRequest) -> Turn:
        return Turn(text=f"You said: {request.messages[-1].text}")

    _, assembly = played(echo)
    assert assembly.message is not None
    assert assembly.message.text == "You said: Hi."


def test_an_error_comes_before_anything_or_in_the_middle() -> None:
    busy = ModelError("busy", code=ErrorCode.OVERLOADED, retry_after=2.0)
    deltas, assembly = played(busy)
    assert ([delta.kind for delta in deltas], assembly.message) == (["error"], None)
    assert assembly.error is not None
    assert (assembly.error.error_code, assembly.error.retryable, assembly.error.retry_after) == (
        ErrorCode.OVERLOADED,
        True,
        2.0,
    )
    deltas, assembly = played(Turn(text="A sentence of some length.", error=busy, breaks_after=2))
    assert [delta.kind for delta in deltas] == ["start", "text", "error"]
    assert assembly.partial is not None
    assert assembly.partial.text == "A sentence o"


@pytest.mark.parametrize("place", range(7))
def test_a_stream_that_breaks_off_is_truncated_wherever_it_does(place: int) -> None:
    turn = Turn(text="A sentence of some length.", calls=(Call("look", {}),), breaks_after=place)
    deltas, assembly = played(turn)
    assert len(deltas) == place + 1
    assert assembly.error is not None
    assert (assembly.error.error_code, assembly.message) == (ErrorCode.STREAM_TRUNCATED, None)


def test_what_stands_in_between_is_awaited_before_each_delta() -> None:
    async def use() -> None:
        gate = Gate(1)
        model = ScriptedModel("Hello.", between=gate)
        asked = asyncio.ensure_future(ask(model))
        await gate.reached.wait()
        assert not asked.done()
        gate.opened.set()
        assert (await asked)[1].message is not None

    run(use())


@given(legal_streams())
def test_any_legal_stream_can_be_played(deltas: list[MessageDelta]) -> None:
    heard, _ = played(deltas)
    assert heard == deltas


def test_an_illegal_stream_ends_in_an_error_and_not_in_its_done() -> None:
    now = datetime.now(UTC)
    deltas, _ = played([DoneDelta(run_id="", seq=0, timestamp=now, finish_reason=FinishReason.STOP)])
    assert [delta.kind for delta in deltas] == ["error"]


def test_a_scripted_model_does_what_a_model_does() -> None:
    model = ScriptedModel("Hello.")
    assert isinstance(model, AnyModel)
    assert model.supports("tools")
    assert not model.supports("reasoning")
    assert model.model_info().model_id == model.invocation.model


# ---------------------------------------------------------------- no network


@pytest.mark.parametrize("carrier", ["aiohttp", "httpx"])
def test_forbidden_requests_reach_nobody(carrier: str) -> None:
    async def greet(peer: Peer) -> None:
        await peer.send(STREAM_HEAD, OPENING, CLOSING)
        peer.close()

    async def use() -> None:
        async with serving(greet) as server, transport_of(carrier) as transport:
            agent = Agent(claude(server.url, transport))
            with forbid_network():
                result = await agent.run("Hi.")
                with forbid_network():
                    pass
                again = await agent.run("Hi.")  # leaving the inner block allows nothing
            assert result.error is not None
            assert again.error is not None
            assert result.error.code is ErrorCode.PERMISSION
            assert "forbidden" in result.error.message
            assert server.connections == 0
            assert (await agent.run("Hi.")).output == "Hello"

    run(use())


def test_forbidden_requests_leave_replayed_ones_alone() -> None:
    transport = ReplayTransport([ReplayedResponse(chunks=(OPENING, CLOSING))])
    model = dragoman.model("anthropic:claude-sonnet-4-5", api_key="not-a-key", transport=transport)
    with forbid_network():
        assert Agent(model).run_sync("Hi.").output == "Hello"


def test_requests_are_allowed_again_after_a_failure() -> None:
    with pytest.raises(RuntimeError), forbid_network():
        raise RuntimeError
    assert not NETWORK.is_forbidden


@pytest.mark.parametrize("given", [3, None, b"a", ["a", "b"]])
def test_a_script_that_cannot_be_played_is_refused_where_it_is_made(given: Any) -> None:
    with pytest.raises(InvalidValue, match="turn 2 of the script must be text, a Turn, a ModelError, a list of deltas"):
        ScriptedModel("a", given)


def test_a_list_of_texts_is_refused_with_what_to_write() -> None:
    with pytest.raises(InvalidValue, match=r'several turns are arguments: ScriptedModel\("a", "b"\)'):
        ScriptedModel(["a", "b"])  # type: ignore[list-item]  # what is tested


def test_a_function_of_the_script_that_returns_no_turn_is_refused() -> None:
    with pytest.raises(InvalidValue, match="what a function of the script returns must be text"):
        ScriptedModel(lambda _request: 3).stream(HELLO)  # type: ignore[arg-type,return-value]  # what is tested


def test_a_script_that_is_too_short_says_why_it_was_asked_again() -> None:
    result = Agent(ScriptedModel("9"), output_type=int).run_sync("How many?")
    assert result.error is not None
    assert "no turn for request 2; its last message (user) is: The answer must be a JSON object" in result.error.message
    model = ScriptedModel("One.")
    run(ask(model))
    with pytest.raises(InvalidValue) as caught:
        model.stream([Message.user("long " * 500)])
    assert len(str(caught.value)) < 400


def test_an_output_that_stays_wrong_fails_without_the_words_for_the_model() -> None:
    model = ScriptedModel('{"value": "nine"}', repeats=True)
    result = Agent(model, output_type=int).run_sync("How many?")
    assert result.error is not None
    assert result.error.message.startswith("The answer is not a valid int:")
    assert "Answer again" not in result.error.message
    assert model.requests[1].prompt.endswith("\nAnswer again, with JSON alone.")
