"""When a context changes what it has shown: epochs and their reasons, the LiveScreen, anchors, prices, corrections."""

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from dragoman import Message, Role, Text, TokenUsage, ToolCall, ToolSpec, render_request
from dragoman.context import ESTIMATE_KEY, MARKER, ContextBuildResult
from dragoman.context.index import KINDS
from dragoman.context.worth import BLOCK_FEATURES, LINE_FEATURES, NAME_FEATURES, load_weights
from dragoman.history import EpochEntry, LevelOfDetail, NotebookEntry, WidgetRenderContext, WidgetResult
from dragoman.message import MessageMeta, ModelInvocationDescriptor, Part
from dragoman.request import ModelInfo
from dragoman.usage import Prices
from tests.context_cases import (
    Conversation,
    broken_pairs,
    file_text,
    is_grown,
    long_conversation,
    newest_screen,
    result_text,
    written,
)

CLAUDE = ModelInvocationDescriptor("anthropic", "anthropic-messages", "claude-sonnet-4-5")
GPT = ModelInvocationDescriptor("openai", "openai-responses", "gpt-5")


def said(*parts: Part, **meta: Any) -> Message:
    return Message(Role.ASSISTANT, parts, meta=MessageMeta(**meta))


def half_full(budget: int = 8_000) -> Conversation:
    """A conversation that fills about half of its budget, without an epoch so far."""
    conversation = Conversation(budget)
    conversation.say("go")
    while conversation.build().stats.tokens < budget / 2:
        call = ToolCall(f"c{conversation.state.next_serial}", "read_file", {"path": "a.py"})
        conversation.answer(said(call, invocation=CLAUDE))
        conversation.state.append_tool_results((), file_text(f"m{conversation.state.next_serial}", 15))
    assert not [entry for entry in conversation.entries if isinstance(entry, EpochEntry)]
    return conversation


# ---------------------------------------------------------------- reasons


def test_a_conversation_that_grows_has_epochs_for_its_budget_and_no_others() -> None:
    conversation = long_conversation()
    reasons = {entry.reason for entry in conversation.entries if isinstance(entry, EpochEntry)}
    assert reasons == {"budget"}


def test_an_epoch_makes_room_for_several_turns() -> None:
    conversation = long_conversation(8_000, turns=80)
    assert 0 < sum(isinstance(entry, EpochEntry) for entry in conversation.entries) < 40


def test_nothing_changes_while_the_cache_lives() -> None:
    conversation = half_full()
    conversation.wait(200)
    assert conversation.build(invocation=CLAUDE).stats.epoch is None


def test_a_cache_that_has_expired_makes_an_epoch_free() -> None:
    conversation = half_full()
    size = conversation.build().stats.tokens
    conversation.wait(400)
    result = conversation.build()
    assert result.stats.epoch == "cache expired"
    assert result.stats.tokens < size


def test_the_life_of_the_cache_can_be_given() -> None:
    conversation = half_full()
    conversation.wait(400)
    assert conversation.build(cache_seconds=3_600.0).stats.epoch is None


def test_another_model_makes_an_epoch_free() -> None:
    assert half_full().build(invocation=GPT).stats.epoch == "model changed"


def test_the_same_model_or_one_that_nobody_names_does_not() -> None:
    assert half_full().build(invocation=CLAUDE).stats.epoch is None
    assert half_full().build().stats.epoch is None


@pytest.mark.parametrize("fields", [{}, {"invocation": GPT}], ids=["expired", "another model"])
def test_a_free_epoch_is_taken_once_per_answer(fields: Mapping[str, Any]) -> None:
    conversation = half_full()
    conversation.wait(0 if fields else 400)
    first = conversation.build(**fields)
    assert first.stats.epoch
    for _ in range(3):  # the call failed, say, and is made again
        conversation.wait(1_000)
        again = conversation.build(**fields)
        assert (again.stats.epoch, written(again.messages)) == (None, written(first.messages))


def test_a_short_conversation_is_left_alone_when_the_cache_is_gone() -> None:
    conversation = Conversation(8_000)
    conversation.say("hi")
    conversation.answer("hello")
    conversation.say("how are you?")
    conversation.wait(100_000)
    assert conversation.build(invocation=GPT).stats.epoch is None


@pytest.mark.slow
def test_an_epoch_that_could_change_nothing_is_not_reported() -> None:
    conversation = Conversation()
    conversation.say("go")
    conversation.call(*["ok"] * 300)
    assert conversation.build().stats.over_budget
    again = conversation.build()
    assert (again.stats.epoch, again.entries, again.stats.over_budget) == (None, (), True)


def test_updates_are_the_entries_that_building_would_ask_for() -> None:
    conversation = half_full()
    assert conversation.manager.compute_context_updates(conversation.given()).entries == ()
    conversation.wait(400)
    update = conversation.manager.compute_context_updates(conversation.given())
    assert update.entries == conversation.manager.build_context(conversation.given()).entries
    assert (update.compaction, update.exhausted) == (None, False)
    for entry in update.entries:
        conversation.state.append(entry)
    assert conversation.build().stats.epoch is None
    assert conversation.manager.compute_context_updates(conversation.given()).entries == ()


def test_an_epoch_that_was_not_appended_is_asked_for_again() -> None:
    conversation = half_full()
    conversation.wait(400)
    first = conversation.manager.build_context(conversation.given())
    assert conversation.manager.build_context(conversation.given()) == first
    assert first.entries


# ---------------------------------------------------------------- overflow


def test_an_overflow_is_never_exceeded_again() -> None:
    conversation = long_conversation(20_000, turns=20)
    refused = conversation.build().estimate
    (entry,) = conversation.manager.compute_context_updates(conversation.given(), overflow=True).entries
    conversation.state.append(entry)
    learned = conversation.build()
    assert learned.estimate < refused
    for turn in range(60):
        conversation.call(file_text(f"late{turn}", 30))
        result = conversation.build()
        assert result.estimate < refused
        assert broken_pairs(result.messages) == []


def test_overflow_after_overflow_comes_to_an_end() -> None:
    conversation = long_conversation(60_000, turns=60)
    sizes = [conversation.build().estimate]
    while not (update := conversation.manager.compute_context_updates(conversation.given(), overflow=True)).exhausted:
        for entry in update.entries:
            conversation.state.append(entry)
        sizes.append(conversation.build().estimate)
        assert len(sizes) < 15
    assert len(sizes) > 3
    assert all(later < earlier for earlier, later in pairwise(sizes))


def test_an_overflow_with_nothing_to_give_up_is_exhausted_at_once() -> None:
    conversation = Conversation()
    conversation.say("hi")
    update = conversation.manager.compute_context_updates(conversation.given(), overflow=True)
    assert (update.exhausted, update.entries) == (True, ())


def test_an_overflow_without_any_message_is_exhausted() -> None:
    conversation = Conversation()
    assert conversation.manager.compute_context_updates(conversation.given(), overflow=True).exhausted


def test_a_stored_session_still_knows_its_limit() -> None:
    conversation = long_conversation(20_000, turns=20)
    refused = conversation.build().estimate
    for entry in conversation.manager.compute_context_updates(conversation.given(), overflow=True).entries:
        conversation.state.append(entry)
    conversation.manager = conversation.fresh_manager()
    for turn in range(40):
        conversation.call(file_text(f"late{turn}", 30))
        assert conversation.build().estimate < refused


# ---------------------------------------------------------------- the LiveScreen


def watched(turns: int, *, budget: int = 6_000, in_result: bool = False) -> list[ContextBuildResult]:
    """The contexts of a conversation in which the notebook is edited at every turn."""
    conversation = Conversation(budget, widgets=None)
    results = []
    for turn in range(turns):
        conversation.state.update_memory_notebook(f"At turn {turn} there are {turn * turn} things to do.")
        if turn % 10 == 0:
            conversation.say(f"Next, please: {turn}")
        else:
            conversation.call(file_text(f"m{turn}", 8))
        screen = newest_screen(conversation.entries)
        assert screen is not None
        assert f"At turn {turn} " in screen
        results.append(conversation.build(screen_in_result=in_result))
    assert sum(isinstance(entry, NotebookEntry) for entry in conversation.entries) == turns
    return results


def text_of(message: Message) -> str:
    return result_text(message) if message.role is Role.TOOL else message.text


@pytest.mark.parametrize("in_result", [False, True])
def test_the_screen_changes_at_each_of_200_turns_and_the_bytes_before_it_only_grow(in_result: bool) -> None:
    results = watched(200, in_result=in_result)
    stable = [written(result.messages)[:-1] for result in results]
    epochs = [result.stats.epoch for result in results]
    assert 2 < sum(epoch is not None for epoch in epochs) < 60
    for place, (earlier, later) in enumerate(pairwise(stable), 1):
        assert is_grown(earlier, later) or epochs[place] is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["anthropic:claude-sonnet-4-5", "openai-chat:gpt-4.1", "openai:gpt-5"])
def test_on_the_wire_too_only_the_screen_changes_over_200_turns(name: str) -> None:
    before: list[Any] = []
    grown = 0
    for result in watched(200):
        request = render_request(name, result.messages, tools=result.tool_specs, system_prompt=result.system)
        *spoken, screen = said_on_the_wire(json.loads(request.body))
        assert "Live Screen" in json.dumps(screen)
        assert "Live Screen" not in json.dumps(spoken)
        if result.stats.epoch is None:
            assert spoken[: len(before)] == before
            grown += 1
        before = spoken
    assert grown > 150


def said_on_the_wire(body: dict[str, Any]) -> list[Any]:
    """Everything that a request says, block by block."""
    turns = body.get("messages") or body["input"]
    return [block for turn in turns for block in (turn["content"] if isinstance(turn.get("content"), list) else [turn])]


@pytest.mark.parametrize("in_result", [False, True])
def test_the_screen_stands_in_the_last_message_alone(in_result: bool) -> None:
    for turn, result in enumerate(watched(200, in_result=in_result)):
        shown = [place for place, message in enumerate(result.messages) if "Memory Notebook" in text_of(message)]
        assert shown == [len(result.messages) - 1]
        assert f"At turn {turn} " in text_of(result.messages[-1])


@pytest.mark.parametrize("in_result", [False, True])
def test_the_screen_stands_after_every_anchor(in_result: bool) -> None:
    for result in watched(200, in_result=in_result):
        last = len(result.messages) - 1
        assert result.cache_anchors or last == 0
        assert all(0 <= anchor < last for anchor in result.cache_anchors)
        assert list(result.cache_anchors) == sorted(set(result.cache_anchors))
        assert len(result.cache_anchors) <= 3


def test_in_a_result_the_screen_adds_no_turn_of_the_user() -> None:
    result = watched(6, in_result=True)[-1]
    assert result.messages[-1].role is Role.TOOL
    assert result_text(result.messages[-1]).startswith(file_text("m5", 8))


def test_after_an_input_the_screen_is_a_turn_of_its_own_in_any_case() -> None:
    result = watched(11, in_result=True)[-1]
    assert [message.role for message in result.messages[-2:]] == ["user", "user"]


def test_a_widget_that_fails_costs_its_own_place() -> None:
    class Broken:
        name = "broken"
        tools: tuple[ToolSpec, ...] = ()

        def render_live_screen(self, context: WidgetRenderContext) -> str | None:
            raise RuntimeError("no")

        def execute_tool(self, name: str, arguments: Mapping[str, Any], context: WidgetRenderContext) -> WidgetResult:
            raise RuntimeError("no")

    conversation = Conversation(widgets=(Broken(),))
    conversation.say("hi")
    result = conversation.build()
    assert result.messages[0].text == "hi"
    assert "broken could not be shown" in result.messages[-1].text


# ---------------------------------------------------------------- anchors


def test_an_anchor_stands_at_the_end_of_the_ledger() -> None:
    conversation = long_conversation()
    conversation.call("ok")
    result = conversation.build()
    assert result.stats.epoch is None
    ledger = [message.role is Role.USER and message.text.startswith(MARKER) for message in result.messages].index(True)
    assert ledger in result.cache_anchors


def test_the_last_message_is_an_anchor() -> None:
    result = long_conversation().build()
    assert result.cache_anchors[-1] == len(result.messages) - 1


def test_a_turn_of_many_results_has_an_anchor_before_it() -> None:
    conversation = Conversation(20_000)
    conversation.say("go")
    conversation.call("one")
    before = len(conversation.build().messages) - 1
    conversation.call(*["ok"] * 40)
    assert before in conversation.build().cache_anchors


# ---------------------------------------------------------------- budgets, prices


def info(window: int | None, **prices: Any) -> ModelInfo:
    priced = Prices(**{"output": 10.0, **prices}) if prices else None
    return ModelInfo(provider="some", model_id="some", context_window=window, prices=priced)


def test_the_budget_is_the_window_without_what_the_answer_needs() -> None:
    conversation = Conversation(None, output_reserve=1_000)
    conversation.say("hi")
    assert conversation.build(model_info=info(10_000)).stats.budget == 9_000


def test_a_budget_that_is_given_wins() -> None:
    conversation = Conversation(5_000)
    conversation.say("hi")
    assert conversation.build(model_info=info(100_000)).stats.budget == 5_000


@pytest.mark.parametrize("model_info", [None, info(None), info(10)], ids=["no model", "no window", "a tiny window"])
def test_without_a_window_there_is_a_budget_all_the_same(model_info: ModelInfo | None) -> None:
    conversation = Conversation(None)
    conversation.say("hi")
    assert conversation.build(model_info=model_info).stats.budget >= 1_000


PROFILES: dict[str, ModelInfo | None] = {
    "unknown": None,
    "anthropic": info(16_000, input=3.0, cache_read=0.3, cache_write=3.75),
    "openai": info(16_000, input=2.0, cache_read=0.5),
    "gemini": info(16_000, input=1.25, cache_read=0.125),
    "no cache": info(16_000, input=2.0),
    "reads for nothing": info(16_000, input=2.0, cache_read=0.0),
    "all for nothing": info(16_000, input=0.0, output=0.0),
    "dear writes": info(16_000, input=1.0, cache_read=0.1, cache_write=1_000.0),
    "reads dearer than input": info(16_000, input=1.0, cache_read=3.0),
}


def run_at(model_info: ModelInfo | None) -> list[ContextBuildResult]:
    conversation = Conversation(8_000)
    conversation.say("go")
    results = []
    for turn in range(80):
        conversation.call(file_text(f"m{turn}", 30))
        results.append(conversation.build(model_info=model_info))
    return results


@pytest.mark.parametrize("profile", PROFILES)
def test_whatever_the_prices_epochs_are_few_and_nothing_is_over_budget(profile: str) -> None:
    results = run_at(PROFILES[profile])
    assert not [result for result in results if result.stats.over_budget]
    assert 2 < sum(result.stats.epoch is not None for result in results) < 40


def test_where_reading_costs_as_much_as_fresh_input_contexts_are_kept_smaller() -> None:
    mean = {name: sum(result.stats.tokens for result in run_at(PROFILES[name])) for name in ("no cache", "anthropic")}
    assert mean["no cache"] < mean["anthropic"]


# ---------------------------------------------------------------- what was reported


def answered(conversation: Conversation, *, reported: int) -> None:
    result = conversation.build()
    message = said(Text("ok"), usage=TokenUsage(input_tokens=reported))
    conversation.answer(message, metadata={ESTIMATE_KEY: result.estimate})
    conversation.say("next")


def test_reported_usage_corrects_the_count() -> None:
    conversation = Conversation(20_000)
    conversation.say("word " * 400)
    plain = conversation.build()
    assert (plain.stats.correction, plain.stats.tokens) == (1.0, plain.estimate)
    answered(conversation, reported=2 * plain.estimate)
    corrected = conversation.build()
    assert corrected.stats.correction == 2.0
    assert corrected.stats.tokens == 2 * corrected.estimate


def test_a_corrected_conversation_still_fits_its_budget() -> None:
    conversation = Conversation(6_000)
    conversation.say("go")
    for turn in range(40):
        conversation.call(file_text(f"m{turn}", 20))
        answered(conversation, reported=int(1.6 * conversation.build().estimate))
        result = conversation.build()
        assert result.stats.tokens <= 6_000
        assert 1.5 < result.stats.correction < 1.7


@pytest.mark.parametrize("estimate", [0, -5, "1000", 3.5, True, None], ids=repr)
def test_what_is_no_estimate_corrects_nothing(estimate: object) -> None:
    conversation = Conversation(20_000)
    conversation.say("word " * 400)
    message = said(Text("ok"), usage=TokenUsage(input_tokens=1_000))
    conversation.answer(message, metadata={ESTIMATE_KEY: estimate})
    assert conversation.build().stats.correction == 1.0


def test_usage_without_an_estimate_corrects_nothing() -> None:
    conversation = Conversation(20_000)
    conversation.say("hi")
    conversation.answer(said(Text("ok"), usage=TokenUsage(input_tokens=90_000)))
    assert conversation.build().stats.correction == 1.0


# ---------------------------------------------------------------- levels, weights


def test_levels_count_every_entry_at_most_once() -> None:
    conversation = long_conversation(turns=60)
    levels = conversation.build().stats.levels
    contextual = 1 + 2 * 60
    assert set(levels) == set(LevelOfDetail)
    assert levels[LevelOfDetail.LIVE] > 0
    assert levels[LevelOfDetail.SUMMARY] > 0
    assert sum(levels.values()) <= contextual


def test_the_shipped_weights_are_those_of_the_feature_tables() -> None:
    weights = load_weights()
    assert set(weights.line.weights) == {*BLOCK_FEATURES, *LINE_FEATURES}
    assert set(weights.name.weights) == set(NAME_FEATURES)
    assert set(weights.line.kinds) == set(weights.name.kinds) == set(KINDS)
    assert not set(BLOCK_FEATURES) & set(LINE_FEATURES)
