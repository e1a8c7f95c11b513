"""Answers that are not whole: what a run makes of them, what is recorded, and how the loop goes on with a cut one."""

import json
import logging
from dataclasses import dataclass
from typing import Any

import pytest

import dragoman
from dragoman import AgentConfig, ErrorCode, FinishReason, InvalidValue, LoopConfig, Message, ModelError, ProviderRouter
from dragoman.agent import Agent, event_to_json
from dragoman.context.compaction import CompactionRequest, compaction_entry
from dragoman.errors import PROVIDER_MESSAGE_LIMIT
from dragoman.history import AgentStatus, InterruptionEntry, entry_from_json, entry_to_json
from dragoman.message import MessageMeta, ModelInvocationDescriptor, Role, Text
from dragoman.testing import ScriptedModel, Turn
from dragoman.testing.scripted import Call
from dragoman.tools import tool
from tests.agent_cases import kept, kinds, read, require_sound, result_codes, result_texts, run, weather
from tests.agent_stage import S, Stage, resumed_at, says

SHORT = [
    (FinishReason.LENGTH, ErrorCode.OUTPUT_CUT),
    (FinishReason.CONTENT_FILTER, ErrorCode.CONTENT_FILTERED),
    (FinishReason.OTHER, ErrorCode.OUTPUT_UNFINISHED),
]


def continuing(times: int) -> AgentConfig:
    """Return settings under which a cut answer goes on that often."""
    return AgentConfig(loop=LoopConfig(continue_cut=times))


def other(name: str, *script: Any) -> ScriptedModel:
    """Return a scripted model of another name."""
    return ScriptedModel(*script, invocation=ModelInvocationDescriptor("scripted", "script", name))


# ---------------------------------------------------------------- how a run ends


@pytest.mark.parametrize(("reason", "code"), SHORT)
def test_an_answer_that_is_not_whole_fails_the_run_and_is_kept(reason: FinishReason, code: ErrorCode) -> None:
    agent = Agent(ScriptedModel(Turn(text="Once upon", finish_reason=reason)))
    result = agent.run_sync("Tell me a story.")
    assert (result.status, result.output) == (AgentStatus.FAILED, None)
    assert result.error is not None
    assert (result.error.code, result.error.retryable) == (code, False)
    assert result.finish_reason is reason
    assert result.message is not None
    assert result.message.text == "Once upon"
    assert kinds(agent) == ["run_started", "model_input", "model_output", "run_finished"]
    require_sound(kept(agent))


@pytest.mark.parametrize(("reason", "code"), SHORT)
def test_a_run_that_failed_after_an_answer_is_over_and_the_error_names_its_failure(
    reason: FinishReason, code: ErrorCode
) -> None:
    agent = Agent(ScriptedModel(Turn(text="Once upon", finish_reason=reason), "Once upon a time."))
    agent.run_sync("Tell me a story.")
    with pytest.raises(InvalidValue, match=f"nothing to carry on .*{code}.*: give a prompt"):
        agent.run_sync()
    assert agent.run_sync("Tell me a story.").output == "Once upon a time."


@pytest.mark.parametrize("reason", list(FinishReason))
def test_only_words_that_are_known_to_be_good_complete_a_run(reason: FinishReason) -> None:
    played = ScriptedModel(Turn(text="So it is.", finish_reason=reason), "And that is all.")
    result = Agent(played).run_sync("Go.")
    is_good = reason in (FinishReason.STOP, FinishReason.REFUSAL, FinishReason.PAUSE)  # a pause is sent back
    assert (result.status is AgentStatus.COMPLETED) is is_good
    assert result.finish_reason is (FinishReason.STOP if reason is FinishReason.PAUSE else reason)


def test_an_answer_that_calls_tools_and_names_none_fails_the_run() -> None:
    result = Agent(ScriptedModel(Turn(text="I call", finish_reason=FinishReason.TOOL_CALLS))).run_sync("Go.")
    assert result.error is not None
    assert result.error.code is ErrorCode.OUTPUT_UNFINISHED


def test_the_error_names_the_word_of_the_provider_without_secrets() -> None:
    key = "sk-live-0123456789abcdefghij"
    meta = MessageMeta(finish_reason=FinishReason.OTHER, raw_finish_reason=f"MALFORMED {key}")
    ending = Stage(Message(Role.ASSISTANT, (Text("I"),), meta=meta)).play("Go.")
    assert ending.error is not None
    assert "MALFORMED" in ending.error.message
    assert key not in ending.error.message


@pytest.mark.parametrize(("reason", "code"), [*SHORT, (FinishReason.REFUSAL, None)])
def test_no_tool_is_run_for_an_answer_that_is_not_whole(reason: FinishReason, code: ErrorCode | None) -> None:
    ran = []

    @tool
    def delete(name: str) -> str:
        """Delete something."""
        ran.append(name)
        return "gone"

    turn = Turn(text="First I", calls=(Call("delete", {"name": "all"}),), finish_reason=reason)
    agent = Agent(ScriptedModel(turn), tools=[delete])
    result = agent.run_sync("Tidy up.")
    assert ran == []
    assert (result.error.code if result.error else None) is code
    assert result_codes(kept(agent)) == [ErrorCode.TOOL_INTERRUPTED]
    assert "was not run" in result_texts(kept(agent))[0]
    require_sound(kept(agent))


def test_a_refusal_completes_and_the_finish_reason_tells() -> None:
    result = Agent(ScriptedModel(Turn(text="I will not.", finish_reason=FinishReason.REFUSAL))).run_sync("Go.")
    assert (result.status, result.output, result.finish_reason) == ("completed", "I will not.", FinishReason.REFUSAL)


@dataclass
class Place:
    """An output."""

    city: str


def test_a_refusal_completes_without_an_output_where_a_type_was_asked_for() -> None:
    model = ScriptedModel(Turn(text="I will not.", finish_reason=FinishReason.REFUSAL))
    result = Agent(model, output_type=Place).run_sync("Go.")
    assert (result.status, result.output, len(model.requests)) == ("completed", None, 1)


def test_a_cut_output_of_a_type_is_cut_and_not_invalid() -> None:
    model = ScriptedModel(Turn(text='{"city": "Ro', finish_reason=FinishReason.LENGTH))
    result = Agent(model, output_type=Place).run_sync("Go.")
    assert result.error is not None
    assert (result.error.code, len(model.requests)) == (ErrorCode.OUTPUT_CUT, 1)


def test_a_run_that_was_left_after_a_cut_answer_does_not_complete_when_it_is_resumed() -> None:
    whole = Stage(says("Once upon", FinishReason.LENGTH))
    whole.play("Tell me a story.")
    left = [entry for entry in whole.state.entries if entry.kind != "run_finished"]
    ending = Stage(state=resumed_at(left)).play()
    assert ending.error is not None
    assert (ending.status, ending.error.code) == (S.FAILED, ErrorCode.OUTPUT_CUT)


def test_what_is_said_after_a_cut_answer_is_answered() -> None:
    stage = Stage(says("Once upon", FinishReason.LENGTH), says("Fine."), said=[("Never mind.",)])
    assert stage.play("Tell me a story.").status is S.COMPLETED


def test_a_cut_answer_of_an_agent_that_is_a_tool_has_failed() -> None:
    child = Agent(ScriptedModel(Turn(text="Half of", finish_reason=FinishReason.LENGTH)))
    asks = Turn(calls=(Call("helper", {"task": "Help."}),))
    agent = Agent(ScriptedModel(asks, "I see."), tools=[child.as_tool("helper", "Helps.")])
    agent.run_sync("Go.")
    assert result_codes(kept(agent)) == [ErrorCode.TOOL_FAILED]
    assert "length limit" in result_texts(kept(agent))[0]


# ---------------------------------------------------------------- going on


def test_a_cut_answer_goes_on_as_often_as_the_settings_say_and_is_one_answer() -> None:
    cut = FinishReason.LENGTH
    pieces = (Turn(text="Once upon ", finish_reason=cut), Turn(text="a time ", finish_reason=cut), "it was.")
    model = ScriptedModel(*pieces)
    agent = Agent(model, config=continuing(2))
    result = agent.run_sync("Tell me a story.")
    assert (result.status, result.output) == ("completed", "Once upon a time it was.")
    assert result.finish_reason is FinishReason.STOP
    assert [message.role for message in model.requests[1].messages] == ["user", "assistant", "user"]
    require_sound(kept(agent))
    short = Agent(ScriptedModel(*pieces), config=continuing(1)).run_sync("Tell me a story.")
    assert short.error is not None
    assert (short.error.code, short.message and short.message.text) == (ErrorCode.OUTPUT_CUT, "Once upon a time ")


def test_a_cut_output_of_a_type_goes_on_and_is_read_as_one() -> None:
    model = ScriptedModel(Turn(text='{"city": "Ro', finish_reason=FinishReason.LENGTH), 'me"}')
    assert Agent(model, output_type=Place, config=continuing(1)).run_sync("Go.").output == Place("Rome")


def test_a_cut_answer_with_calls_goes_on_without_running_them() -> None:
    turn = Turn(text="I look.", calls=(Call("look", '{"at": "se'),), finish_reason=FinishReason.LENGTH)
    agent = Agent(ScriptedModel(turn, "There is the sea."), config=continuing(1))
    assert agent.run_sync("Go.").output == "I look.There is the sea."
    require_sound(kept(agent))


def test_a_filtered_answer_does_not_go_on() -> None:
    model = ScriptedModel(Turn(text="Once", finish_reason=FinishReason.CONTENT_FILTER), "never said")
    Agent(model, config=continuing(3)).run_sync("Go.")
    assert len(model.requests) == 1


def test_the_answers_of_two_turns_are_not_joined() -> None:
    agent = Agent(ScriptedModel(Turn(text="Once ", finish_reason=FinishReason.LENGTH), "upon a time.", "Yes."))
    agent.run_sync("Tell me a story.")
    assert agent.run_sync("Go on.").output == "upon a time."
    assert agent.run_sync("Really?").output == "Yes."


@pytest.mark.parametrize("times", [-1, 1.5, "1", True])
def test_how_often_it_goes_on_is_a_count(times: Any) -> None:
    with pytest.raises(dragoman.InvalidValue, match="continue_cut"):
        LoopConfig(continue_cut=times)


# ---------------------------------------------------------------- others who take an answer


@pytest.mark.parametrize("text", ["", "Half"])
def test_another_model_is_asked_for_an_answer_that_was_filtered(text: str) -> None:
    filtered = ScriptedModel(Turn(text=text, finish_reason=FinishReason.CONTENT_FILTER))
    router = ProviderRouter(default=[filtered, other("second", "Whole.")], falls_back_after_start=True)
    agent = Agent(router)
    result = agent.run_sync("Go.")
    assert (result.status, result.output) == ("completed", "Whole.")
    noted = [entry for entry in kept(agent).entries if isinstance(entry, InterruptionEntry)]
    assert [entry.reason for entry in noted] == [ErrorCode.CONTENT_FILTERED]
    require_sound(kept(agent))


def test_no_other_model_is_asked_after_words_unless_the_router_says_so_nor_for_a_length_limit() -> None:
    for reason, goes_on in ((FinishReason.CONTENT_FILTER, False), (FinishReason.LENGTH, True)):
        first, second = ScriptedModel(Turn(text="Half", finish_reason=reason)), other("second", "Whole.")
        Agent(ProviderRouter(default=[first, second], falls_back_after_start=goes_on)).run_sync("Go.")
        assert second.requests == []


@pytest.mark.parametrize("reason", [each for each in FinishReason if each is not FinishReason.STOP])
def test_a_summary_that_is_not_whole_is_not_used(reason: FinishReason) -> None:
    request = CompactionRequest(first_serial=0, last_serial=1, messages=())
    answer = Message(Role.ASSISTANT, (Text("The user wants"),), meta=MessageMeta(finish_reason=reason))
    with pytest.raises(dragoman.InvalidValue, match="no whole summary"):
        compaction_entry(request, answer)


def test_a_cut_answer_is_logged_as_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "dragoman.agent"):
        Agent(ScriptedModel(Turn(text="Half", finish_reason=FinishReason.LENGTH), "."), config=continuing(1)).run_sync(
            "Go"
        )
    assert [record.__dict__["dragoman"]["finish_reason"] for record in caplog.records] == ["length"]


# ---------------------------------------------------------------- what the provider said


def test_what_the_provider_said_is_in_the_error_the_event_and_the_entry_without_secrets_and_capped() -> None:
    key = "sk-live-0123456789abcdefghij"
    words = f"no model gpt-9 for {key} " + "x" * 10_000
    gone = ModelError("not_found (HTTP 404)", code=ErrorCode.NOT_FOUND, provider_message=words)

    async def main() -> None:
        agent = Agent(ScriptedModel(gone))
        run_of = agent.stream("Go.")
        events = await read(run_of)
        result = await run_of.result()
        assert result.error is not None
        (noted,) = [entry for entry in kept(agent).entries if isinstance(entry, InterruptionEntry)]
        told = json.loads(event_to_json(events[-1]))["payload"]["error"]["providerMessage"]
        assert result.error.provider_message == noted.provider_message == told
        assert told.startswith("no model gpt-9 for [redacted] x")
        assert len(told) == PROVIDER_MESSAGE_LIMIT
        assert entry_from_json(entry_to_json(noted)) == noted

    run(main())


def test_an_entry_keeps_no_secret_that_a_provider_echoed() -> None:
    entry = InterruptionEntry(ErrorCode.AUTHENTICATION, provider_message="bad key sk-live-0123456789abcdefghij")
    assert entry.provider_message == "bad key [redacted]"


@pytest.mark.parametrize("arguments", [{"city": "Rome"}, '{"ci'])
def test_a_cut_answer_with_a_call_keeps_its_first_piece_when_it_goes_on(arguments: Any) -> None:
    first = Turn(text="Unplug it, ", calls=(Call("weather", arguments),), finish_reason=FinishReason.LENGTH)
    config = AgentConfig(loop=LoopConfig(continue_cut=1))
    result = Agent(ScriptedModel(first, "then open it."), tools=[weather], config=config).run_sync("How?")
    assert (result.status, result.output) == (AgentStatus.COMPLETED, "Unplug it, then open it.")
    assert result.message is not None
    assert result.message.tool_calls == ()
