"""The final message as a value of the type that was asked for, and how a model is brought to give one."""

import pickle
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest

from dragoman import AgentStatus, ErrorCode, InvalidValue, Message, ModelError, Role
from dragoman.agent import Agent, RunFailed, RunResult
from dragoman.history import ModelInputEntry, ModelOutputEntry, RunStartedEntry
from dragoman.request import ModelInfo
from dragoman.store import MemoryStore, start_session
from dragoman.testing.scripted import ACTOR, Call, ScriptedModel
from dragoman.tools import tool
from tests.agent_cases import ROME, Gate, asks, kept, kinds, require_sound, run, weather

UNHELD = ModelInfo(provider=ACTOR.provider, model_id=ACTOR.model, abilities=frozenset({"streaming", "tools"}))


@dataclass
class Day:
    sky: str
    degrees: int


class Place(TypedDict):
    name: str
    tags: list[str]


class Mood(Enum):
    CALM = "calm"
    WILD = "wild"


class Trip(pydantic.BaseModel):
    to: str
    days: Annotated[int, pydantic.Field(ge=1)]


class Point(msgspec.Struct):
    x: float
    y: float = 0.0


@pytest.mark.parametrize(
    ("kind", "said", "expected"),
    [
        (Day, '{"sky": "grey", "degrees": 9}', Day("grey", 9)),
        (Place, '{"name": "Rome", "tags": ["old"]}', {"name": "Rome", "tags": ["old"]}),
        (Trip, '{"to": "Rome", "days": 2}', Trip(to="Rome", days=2)),
        (Point, '{"x": 1.5}', Point(1.5)),
        (list[int], '{"value": [1, 2, 3]}', [1, 2, 3]),
        (list[Day], '{"value": [{"sky": "blue", "degrees": 20}]}', [Day("blue", 20)]),
        (int, '{"value": 5}', 5),
        (bool, '{"value": true}', True),
        (Mood, '{"value": "wild"}', Mood.WILD),
        (Literal["yes", "no"], '{"value": "no"}', "no"),
        (Day | None, '{"value": null}', None),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (Day, 'Here it is:\n```json\n{"sky": "grey", "degrees": 9}\n```\n', Day("grey", 9)),
    ],
)
def test_the_output_is_a_value_of_the_type(kind: Any, said: str, expected: Any) -> None:
    agent: Agent[Any, Any] = Agent(ScriptedModel(said), output_type=kind)
    result = agent.run_sync("Tell me.")
    assert (result.status, result.error) == (AgentStatus.COMPLETED, None)
    assert (result.output, type(result.output)) == (expected, type(expected))


def test_the_type_of_the_result_follows_from_that_of_the_output() -> None:
    result = Agent(ScriptedModel('{"sky": "grey", "degrees": 9}'), output_type=Day).run_sync("Tell me.")
    assert result.output is not None
    assert result.output.degrees + 1 == 10  # this line is also checked by mypy


def test_without_a_type_the_output_is_the_text() -> None:
    assert Agent(ScriptedModel('{"sky": 1}')).run_sync("Hi.").output == '{"sky": 1}'


def test_a_model_that_can_be_held_to_the_schema_is() -> None:
    model = ScriptedModel('{"sky": "grey", "degrees": 9}')
    Agent(model, output_type=Day, instructions="Be brief.").run_sync("Tell me.")
    schema = model.requests[0].params["output_schema"]
    assert (schema["type"], set(schema["properties"])) == ("object", {"sky", "degrees"})
    assert model.requests[0].system == "Be brief."


def test_what_is_no_object_stands_in_the_field_of_one() -> None:
    model = ScriptedModel('{"value": [{"sky": "grey", "degrees": 9}]}')
    Agent(model, output_type=list[Day]).run_sync("Tell me.")
    schema = model.requests[0].params["output_schema"]
    assert (schema["type"], schema["required"]) == ("object", ["value"])
    assert schema["properties"]["value"]["type"] == "array"


def test_a_model_that_cannot_be_held_to_it_is_told_the_schema() -> None:
    model = ScriptedModel('{"sky": "grey", "degrees": 9}', info=UNHELD)
    agent = Agent(model, output_type=Day, instructions="Be brief.")
    assert agent.run_sync("Tell me.").output == Day("grey", 9)
    (request,) = model.requests
    assert "output_schema" not in request.params
    assert request.system is not None
    assert request.system.startswith("Be brief.\n\n")
    assert '"degrees"' in request.system
    assert kept(agent).state.system_instruction == "Be brief."  # what is recorded is what the caller said


def test_tools_come_before_the_output() -> None:
    model = ScriptedModel(ROME, '{"sky": "grey", "degrees": 9}')
    agent = Agent(model, output_type=Day, tools=[weather])
    assert agent.run_sync("The weather in Rome?").output == Day("grey", 9)


def test_a_wrong_answer_goes_back_until_it_is_right() -> None:
    model = ScriptedModel("Grey, I think.", '{"sky": "grey", "degrees": "cold"}', '{"sky": "grey", "degrees": 9}')
    agent = Agent(model, output_type=Day)
    assert agent.run_sync("Tell me.").output == Day("grey", 9)
    first, second = (request.messages[-1] for request in model.requests[1:])
    assert (first.role, second.role) == (Role.USER, Role.USER)
    assert "must be JSON" in first.text
    assert "degrees" in second.text
    require_sound(kept(agent))


def test_an_answer_that_is_never_right_fails_the_run() -> None:
    model = ScriptedModel("I would rather not.", repeats=True)
    agent = Agent(model, output_type=Day)
    result = agent.run_sync("Tell me.")
    assert (result.status, result.output, len(model.requests)) == (AgentStatus.FAILED, None, 3)
    assert result.error is not None
    assert result.error.code is ErrorCode.INVALID_OUTPUT
    assert result.message is not None
    assert result.message.text == "I would rather not."
    require_sound(kept(agent))


def test_a_value_that_only_the_type_itself_refuses_goes_back_too() -> None:
    class Even(pydantic.BaseModel):
        number: int

        @pydantic.field_validator("number")
        @classmethod
        def require_even(cls, number: int) -> int:
            if number % 2:
                raise ValueError("the number must be even")
            return number

    model = ScriptedModel('{"number": 3}', '{"number": 4}')
    assert Agent(model, output_type=Even).run_sync("An even number?").output == Even(number=4)
    assert "must be even" in model.requests[1].messages[-1].text


def test_what_the_loop_says_of_a_wrong_answer_is_marked_as_its_own() -> None:
    agent = Agent(ScriptedModel("Hm.", '{"sky": "grey", "degrees": 9}'), output_type=Day)
    agent.run_sync("Tell me.")
    inputs = [entry for entry in kept(agent).entries if entry.kind == "model_input"]
    assert [bool(entry.metadata) for entry in inputs] == [False, True]


def test_a_message_in_the_last_moment_is_answered_before_the_output_is_read() -> None:
    async def use() -> None:
        model = ScriptedModel("not JSON", '{"sky": "blue", "degrees": 21}', between=lambda number: say(number))

        async def say(number: int) -> None:
            if number == 1 and len(model.requests) == 1:
                await agent.steer("I meant tomorrow.")

        agent = Agent(model, output_type=Day)
        assert (await agent.run("Tell me.")).output == Day("blue", 21)
        assert model.requests[1].messages[-1].text == "I meant tomorrow."

    run(use())


def test_a_type_that_json_cannot_say_is_refused() -> None:
    with pytest.raises(InvalidValue):
        Agent(ScriptedModel(), output_type=complex)


def test_the_output_of_a_failed_run_is_none() -> None:
    model = ScriptedModel(asks(Call("none")), ModelError("no such key", code=ErrorCode.AUTHENTICATION))
    result = Agent(model, output_type=Day).run_sync("Tell me.")
    assert (result.output, result.status) == (None, AgentStatus.FAILED)


def test_a_recorded_output_is_read_again_when_nothing_else_is_left_to_do() -> None:
    async def use() -> None:
        session = await start_session(MemoryStore(), "s")
        answer = Message.assistant('{"sky": "grey", "degrees": 9}')
        await session.append(RunStartedEntry(run_id="r"), ModelInputEntry.of("Tell me."), ModelOutputEntry(answer))
        agent = Agent(ScriptedModel(), session=session, output_type=Day)
        assert (await agent.run()).output == Day("grey", 9)
        assert kinds(agent)[-1] == "run_finished"

    run(use())


# ---------------------------------------------------------------- unwrap


def test_unwrap_returns_the_output_of_a_run_that_completed() -> None:
    assert run(Agent(ScriptedModel('{"value": 5}'), output_type=int).run("x")).unwrap() == 5


def test_an_output_that_may_be_none_is_unwrapped() -> None:
    assert run(Agent(ScriptedModel('{"value": null}'), output_type=int | None).run("x")).unwrap() is None


@pytest.mark.parametrize(("said", "output"), [('{"value": 5}', 5), ('{"value": "five"}', "five")])
def test_a_union_is_a_type_of_output(said: str, output: int | str) -> None:
    assert run(Agent(ScriptedModel(said), output_type=int | str).run("x")).unwrap() == output


def test_unwrap_raises_why_a_run_failed_with_the_providers_words_and_the_result() -> None:
    failure = ModelError("the key is wrong", code=ErrorCode.AUTHENTICATION, provider_message="bad key, see the console")
    result = run(Agent(ScriptedModel(failure)).run("x"))
    with pytest.raises(RunFailed) as raised:
        result.unwrap()
    error = raised.value
    assert str(error) == "the run failed: the key is wrong; provider_message has the provider's words"
    assert (error.code, error.provider_message) == (ErrorCode.AUTHENTICATION, "bad key, see the console")
    assert error.result is result
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.code) == (str(error), error.code)


def test_unwrap_of_a_run_that_waits_names_the_calls_and_what_to_do() -> None:
    @tool(requires_approval=True)
    def pay() -> None:
        """Pay."""

    result = run(Agent(ScriptedModel(asks(Call("pay", {}, "c1"))), tools=[pay]).run("x"))
    with pytest.raises(RunFailed, match=r"decision about c1 \(pay\): call approve"):
        result.unwrap()


def test_unwrap_of_an_aborted_run_says_so() -> None:
    async def aborted() -> RunResult[str]:
        agent = Agent(ScriptedModel("It rains.", between=Gate(2)))
        return await agent.stream("x").abort()

    with pytest.raises(RunFailed, match="aborted") as raised:
        run(aborted()).unwrap()
    assert raised.value.code is ErrorCode.CANCELLED
