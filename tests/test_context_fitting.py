"""Entries that are odd or too large by themselves, in a context: cut to fit, folded, or shown as they are."""

from typing import Any

import pytest

from dragoman import (
    CacheConfig,
    ErrorCode,
    FileRef,
    Image,
    Message,
    Model,
    ModelConfig,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from dragoman.context import INJECTED_KEY, MARKER, EstimateCounter, recall
from dragoman.history import HistoryToolCallResult, InterruptionEntry, LevelOfDetail, ModelInputEntry
from dragoman.models import ProviderClient
from dragoman.testing.validators import validate_request
from dragoman.wire import find_dialect
from tests.context_cases import (
    Conversation,
    broken_pairs,
    file_text,
    history_lines,
    invented_lines,
    long_conversation,
    result_text,
    shown_lines,
)
from tests.conversations import TARGETS

PNG = Image("image/png", b"\x89PNG")

# ---------------------------------------------------------------- too large by itself

LARGE: dict[str, str] = {
    "many lines": file_text("big", 5_000),
    "one long line": "x" * 200_000,
    "JSON on one line": "[" + ", ".join(f'{{"id": {n}, "name": "item_{n}"}}' for n in range(9_000)) + "]",
    "other scripts": "日本語の文章。\n" * 20_000,
    "blank lines": "\n" * 100_000,
}


@pytest.mark.parametrize("kind", LARGE)
def test_a_result_larger_than_the_budget_is_cut_and_says_so(kind: str) -> None:
    conversation = Conversation(2_000, counter=EstimateCounter())
    conversation.say("Read it.")
    entry = conversation.call(LARGE[kind])
    result = conversation.build()
    assert not result.stats.over_budget
    assert entry.serial in result.stats.cut
    markers = [line for line in result_text(result.messages[-1]).split("\n") if line.startswith(MARKER)]
    assert len(markers) == 1
    assert f"#{entry.serial} " in markers[0]
    assert "left out" in markers[0]


@pytest.mark.parametrize("kind", LARGE)
def test_what_was_cut_comes_back_whole(kind: str) -> None:
    conversation = Conversation()
    conversation.say("Read it.")
    entry = conversation.call(LARGE[kind])
    conversation.build()
    assert recall(conversation.entries, {"entry": entry.serial}) == LARGE[kind]


def test_a_cut_text_keeps_its_beginning_and_its_end() -> None:
    conversation = Conversation()
    conversation.say("Read it.")
    conversation.call(LARGE["many lines"])
    lines = result_text(conversation.build().messages[-1]).split("\n")
    whole = LARGE["many lines"].split("\n")
    assert (lines[0], lines[-1]) == (whole[0], whole[-1])


def test_the_user_is_still_there_when_a_result_fills_the_budget() -> None:
    conversation = Conversation()
    conversation.say("What does parse_header return in strict_mode?")
    conversation.call(LARGE["many lines"])
    assert conversation.build().messages[0].role is Role.USER


def test_one_large_result_of_several_leaves_the_pairs_whole() -> None:
    conversation = Conversation()
    conversation.say("Read them.")
    conversation.call("small", LARGE["many lines"], "small too")
    result = conversation.build()
    assert broken_pairs(result.messages) == []
    assert [result_text(message) for message in result.messages[-3::2]] == ["small", "small too"]


@pytest.mark.parametrize(
    "arguments",
    [{"content": LARGE["many lines"]}, {"edits": [{"old": "a", "new": LARGE["many lines"]}]}],
    ids=["a string", "deeper"],
)
def test_arguments_larger_than_the_budget_are_cut_to_fit(arguments: dict[str, Any]) -> None:
    conversation = Conversation()
    conversation.say("Write it.")
    conversation.call("done", name="write_file", **arguments)
    result = conversation.build()
    assert not result.stats.over_budget
    (call,) = result.messages[-2].tool_calls
    assert call.arguments is not None
    assert call.arguments.keys() == {"path", *arguments}


def test_arguments_that_did_not_parse_are_cut_too() -> None:
    conversation = Conversation()
    conversation.say("Write it.")
    conversation.answer(ToolCall.parse("c", "write_file", '{"content": "' + "word " * 20_000))
    result = conversation.build()
    assert not result.stats.over_budget
    (call,) = result.messages[-1].tool_calls
    assert call.arguments is None
    assert call.parse_error


def test_an_input_larger_than_the_budget_is_cut_to_fit() -> None:
    conversation = Conversation()
    entry = conversation.say(LARGE["many lines"])
    result = conversation.build()
    assert (result.stats.over_budget, result.stats.cut) == (False, (entry.serial,))


def test_pictures_and_files_that_do_not_fit_are_left_out_with_a_word() -> None:
    conversation = Conversation()
    entry = conversation.say("Compare these.", PNG, PNG, PNG, FileRef(data=b"a" * 90_000, mime_type="text/plain"))
    result = conversation.build()
    assert not result.stats.over_budget
    (message,) = result.messages
    said = [part.text for part in message.parts if isinstance(part, Text)]
    picture = f"{MARKER} an image left out to fit; #{entry.serial} describes it"
    assert said == [
        "Compare these.",
        picture,
        picture,
        picture,
        f"{MARKER} a file left out to fit; #{entry.serial} has it",
    ]
    assert recall(conversation.entries, {"entry": entry.serial}).endswith("a" * 90_000)


def test_a_picture_alone_that_does_not_fit_leaves_no_empty_message() -> None:
    conversation = Conversation(2_000, counter=EstimateCounter(), instruction="x y z " * 300)
    conversation.say(PNG)
    (message,) = conversation.build().messages
    assert message.parts


def test_many_small_calls_that_no_cut_makes_fit_are_folded_as_soon_as_they_are_not_the_last() -> None:
    conversation = Conversation()
    conversation.say("Do it all.")
    conversation.call(*["ok"] * 300)
    assert conversation.build().stats.over_budget
    conversation.say("And?")
    result = conversation.build()
    assert not result.stats.over_budget
    assert result.messages[-1].text == "And?"


def test_what_does_not_fit_is_said_once_and_reported_at_each_build() -> None:
    conversation = Conversation(instruction="Never forget this. " * 2_000)
    conversation.say("hi")
    for _ in range(3):
        result = conversation.build()
        assert (result.stats.over_budget, result.entries) == (True, ())


# ---------------------------------------------------------------- accepted


@pytest.mark.parametrize("in_result", [False, True])
@pytest.mark.parametrize("name", TARGETS)
def test_every_provider_takes_a_folded_context(name: str, in_result: bool) -> None:
    target = TARGETS[name]
    conversation = long_conversation(instruction="Be brief.", widgets=None)
    conversation.state.update_memory_notebook("Remember.")
    conversation.call(file_text("last", 900), "", "small")
    client = ProviderClient(find_dialect(target.provider, target.model), base_url="https://host.invalid")
    asked = Model(client, ModelConfig(target.model), CacheConfig())
    built = conversation.build(model_info=asked.model_info(), invocation=target.invocation, screen_in_result=in_result)
    assert built.stats.cut
    wire = asked.render(built.messages, built.tool_specs, built.system, cache_anchors=built.cache_anchors)
    assert validate_request(target.provider, wire.body, path=wire.path) == []


# ---------------------------------------------------------------- single kinds of entries


def test_an_interrupted_answer_is_shown_if_somebody_spoke_next() -> None:
    conversation = Conversation()
    conversation.say("go")
    partial = Message.assistant("Half of", ToolCall("c", "f", raw_args_text='{"x', parse_error="cut off"))
    conversation.state.append(InterruptionEntry(ErrorCode.STREAM_TRUNCATED, "cut", partial))
    conversation.say("Go on.")
    shown = conversation.build().messages
    assert [message.text for message in shown] == ["go", "Half of", "Go on."]
    assert shown[1].meta is not None
    assert shown[1].meta.interrupted


def test_an_interrupted_answer_that_was_tried_again_is_not_shown() -> None:
    conversation = Conversation()
    conversation.say("go")
    conversation.state.append(InterruptionEntry(ErrorCode.TIMEOUT, "cut", Message.assistant("Half of")))
    conversation.answer("The whole.")
    assert [message.text for message in conversation.build().messages] == ["go", "The whole."]


def test_an_interrupted_answer_can_be_folded() -> None:
    conversation = Conversation()
    conversation.say("go")
    partial = Message.assistant("The culprit is parse_header_v2 in wire_format.py")
    entry = conversation.state.append(InterruptionEntry(ErrorCode.TIMEOUT, "cut", partial))
    conversation.say("And where is parse_header_v2 called?")
    demoted: list[int] = []
    for turn in range(12):
        conversation.call(file_text(f"m{turn}", 20))
        demoted += conversation.build().stats.demoted
    assert entry.serial in demoted
    assert invented_lines(conversation.build().messages, history_lines(conversation.entries)) == []


def test_results_of_a_turn_that_failed_as_a_whole_are_shown() -> None:
    conversation = Conversation()
    conversation.say("go")
    conversation.answer(ToolCall("a", "f", {}), ToolCall("b", "f", {}))
    conversation.state.append_tool_results((), "no tool could be reached")
    shown = conversation.build().messages
    assert [result_text(message) for message in shown[2:]] == ["no tool could be reached"] * 2
    assert broken_pairs(shown) == []


def test_an_empty_output_keeps_its_place() -> None:
    conversation = Conversation()
    conversation.say("go")
    conversation.answer(Message(Role.ASSISTANT, ()))
    conversation.say("Hello?")
    assert [message.role for message in conversation.build().messages] == ["user", "assistant", "user"]


def test_empty_outputs_and_results_can_be_folded() -> None:
    conversation = Conversation()
    conversation.say("go")
    for turn in range(40):
        conversation.answer(Message(Role.ASSISTANT, ()))
        conversation.call("", "")
        conversation.call(file_text(f"m{turn}", 10))
        assert broken_pairs(conversation.build().messages) == []
    assert conversation.build().stats.levels[LevelOfDetail.SUMMARY]


def test_calls_that_nobody_has_answered_yet_are_shown_and_never_folded() -> None:
    conversation = long_conversation()
    said = conversation.answer(ToolCall("open", "write_file", {"content": file_text("new", 100)}))
    result = conversation.build()
    assert result.messages[-1].tool_calls[0].tool_call_id == said.tool_calls[0].tool_call_id


def test_thinking_stays_with_the_calls_that_stand_whole() -> None:
    conversation = long_conversation()
    thinking = Thinking("Hm.", provider_data={"signature": "s"})
    conversation.answer(thinking, ToolCall("last", "read_file", {"path": "a.py"}))
    assert conversation.build().messages[-1].parts[0] == thinking


def test_pictures_in_results_are_shown_while_they_stand_whole() -> None:
    conversation = Conversation(20_000)
    conversation.say("Look.")
    call = conversation.answer(ToolCall("c", "screenshot", {})).tool_calls[0]
    shown = HistoryToolCallResult.of_result(ToolResult(call.tool_call_id, (Text("Here:"), PNG)), "screenshot")
    conversation.state.append_tool_results([shown])
    (result,) = conversation.build().messages[-1].parts
    assert isinstance(result, ToolResult)
    assert result.content == (Text("Here:"), PNG)


def test_an_input_that_is_only_a_picture_can_be_folded() -> None:
    conversation = Conversation()
    conversation.say(PNG)
    for turn in range(20):
        conversation.call(file_text(f"m{turn}", 20))
        assert not conversation.build().stats.over_budget


def test_what_a_host_put_in_is_no_request_of_a_person() -> None:
    notice = "\n".join(f"reminder_{number}: keep_the_changelog_up_to_date" for number in range(12))
    ledgers = []
    for metadata in ({}, {INJECTED_KEY: True}):
        conversation = Conversation()
        conversation.say("Fix it.")
        conversation.say(ModelInputEntry.of(notice, metadata=metadata))
        for turn in range(12):
            conversation.call(file_text(f"m{turn}", 20))
            conversation.build()
        ledgers.append(sum("reminder_" in line for line in shown_lines(conversation.build().messages)))
    assert ledgers[0] > ledgers[1]
