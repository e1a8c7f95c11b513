"""Summaries that a model writes: what is asked, what becomes of the answer, and the ledger that begins with it."""

import pytest

from dragoman import InvalidValue, Message, Role, Text, TokenUsage, ToolCall, ToolError
from dragoman.context import (
    MARKER,
    CompactionRequest,
    ContextUpdateResult,
    ModelCompactor,
    compaction_entry,
    recall,
)
from dragoman.history import CompactionEntry, HistoryToolCallResult
from dragoman.message import MessageMeta, ModelInvocationDescriptor
from tests.context_cases import (
    Conversation,
    broken_pairs,
    file_text,
    history_lines,
    invented_lines,
    is_grown,
    ledger_of,
    written,
)


def busy(budget: int = 4_000) -> Conversation:
    """A conversation with a compactor that has come to its first epoch; nothing is folded yet."""
    conversation = Conversation(budget)
    conversation.manager = conversation.fresh_manager(compactor=ModelCompactor())
    conversation.say("Rename settle_account.")
    while not updates(conversation).compaction:
        conversation.call(file_text(f"m{conversation.state.next_serial}", 15))
    return conversation


def updates(conversation: Conversation) -> ContextUpdateResult:
    return conversation.manager.compute_context_updates(conversation.given())


def asked(conversation: Conversation) -> CompactionRequest:
    request = updates(conversation).compaction
    assert request is not None
    return request


def compact(conversation: Conversation, summary: str) -> CompactionEntry:
    return conversation.state.append(compaction_entry(asked(conversation), Message.assistant(summary)))


def go_on(conversation: Conversation, turns: int = 1) -> None:
    for _ in range(turns):
        conversation.call(file_text(f"m{conversation.state.next_serial}", 15))


# ---------------------------------------------------------------- what is asked


def test_a_full_context_asks_for_a_summary_of_all_but_the_newest() -> None:
    conversation = busy()
    request = asked(conversation)
    assert request.first_serial == 0
    assert 0 < request.last_serial < conversation.state.next_serial - 2
    assert request.messages[0].text == "Rename settle_account."
    assert request.messages[-1].text == ModelCompactor().prompt


def test_the_request_holds_whole_pairs() -> None:
    request = asked(busy())
    assert broken_pairs(request.messages) == []
    assert request.messages[-2].role is Role.TOOL


def test_the_request_has_the_system_instruction() -> None:
    conversation = Conversation(4_000, instruction="Be brief.")
    conversation.manager = conversation.fresh_manager(compactor=ModelCompactor())
    conversation.say("go")
    while not updates(conversation).compaction:
        go_on(conversation)
    assert asked(conversation).system == "Be brief."


def test_asking_changes_nothing() -> None:
    conversation = busy()
    assert asked(conversation) == asked(conversation)
    assert updates(conversation).entries == ()


def test_without_a_compactor_nothing_is_asked() -> None:
    conversation = busy()
    conversation.manager = conversation.fresh_manager()
    update = updates(conversation)
    assert update.compaction is None
    assert [entry.reason for entry in update.entries] == ["budget"]


def test_a_compactor_that_has_nothing_to_ask_leaves_it_to_the_ledger() -> None:
    conversation = Conversation(2_000)
    conversation.manager = conversation.fresh_manager(compactor=ModelCompactor())
    conversation.say(file_text("big", 400))
    update = updates(conversation)
    assert update.compaction is None
    assert [entry.reason for entry in update.entries] == ["budget"]


def test_what_earlier_epochs_folded_is_asked_about_as_the_model_was_shown_it() -> None:
    conversation = Conversation(16_000)
    conversation.manager = conversation.fresh_manager(compactor=ModelCompactor())
    conversation.say("Rename settle_account.")
    for _ in range(20):
        go_on(conversation, 15)
        conversation.wait(400)
        assert conversation.build().stats.epoch == "cache expired"
    while not updates(conversation).compaction:
        shown = conversation.build().messages
        go_on(conversation)
    request = asked(conversation)
    assert shown[1].text.startswith(f"{MARKER} what came before")
    assert request.messages[:-1] == shown[: len(request.messages) - 1]
    assert request.first_serial == 0
    assert conversation.manager.estimate_tokens(request.messages) <= 16_000
    compact(conversation, "All read.")
    assert conversation.build().messages[0].text.endswith(f"{MARKER} summary\nAll read.")


def test_texts_that_were_cut_to_fit_are_asked_about_as_they_were_shown() -> None:
    conversation = Conversation(4_000)
    conversation.manager = conversation.fresh_manager(compactor=ModelCompactor())
    conversation.say("go")
    conversation.call(file_text("big", 900))
    shown = conversation.build()
    assert shown.stats.cut
    while not updates(conversation).compaction:
        go_on(conversation)
    request = asked(conversation)
    assert request.messages[: len(shown.messages)] == shown.messages
    assert conversation.manager.estimate_tokens(request.messages) <= 4_000


def test_what_is_too_long_to_be_asked_about_is_left_to_the_ledger() -> None:
    conversation = Conversation(2_000)
    conversation.manager = conversation.fresh_manager(compactor=ModelCompactor())
    conversation.say(file_text("big", 400))
    conversation.say("What does it say?")
    update = updates(conversation)
    assert update.compaction is None
    assert [entry.reason for entry in update.entries] == ["budget"]


def test_what_a_summary_covers_is_not_asked_about_again() -> None:
    conversation = Conversation(2_000)
    conversation.manager = conversation.fresh_manager(compactor=ModelCompactor())
    conversation.say("go")
    conversation.say(file_text("big", 80))
    conversation.state.append(CompactionEntry(0, 1, "Everything."))
    conversation.build()
    conversation.say(file_text("more", 120))
    update = updates(conversation)
    assert update.compaction is None
    assert [entry.reason for entry in update.entries] == ["budget"]


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0])
def test_a_share_outside_its_bounds_is_refused(share: float) -> None:
    with pytest.raises(InvalidValue, match="keptShare"):
        ModelCompactor(kept_share=share)


# ---------------------------------------------------------------- what becomes of the answer


def test_the_answer_becomes_an_entry_with_who_wrote_it_and_what_it_used() -> None:
    request = CompactionRequest(first_serial=2, last_serial=9, messages=())
    invocation = ModelInvocationDescriptor("some", "some", "some")
    meta = MessageMeta(invocation=invocation, usage=TokenUsage(input_tokens=5))
    entry = compaction_entry(request, Message(Role.ASSISTANT, (Text("All done."),), meta=meta))
    assert entry == CompactionEntry(2, 9, "All done.", invocation=invocation, usage=TokenUsage(input_tokens=5))


def test_an_answer_without_text_is_refused() -> None:
    request = CompactionRequest(first_serial=0, last_serial=1, messages=())
    with pytest.raises(InvalidValue, match="no text"):
        compaction_entry(request, Message.assistant(" \n"))


def test_the_ledger_begins_with_the_summary() -> None:
    conversation = busy()
    compact(conversation, "settle_account is renamed in four modules.\nTwo are left.")
    result = conversation.build()
    assert result.stats.epoch == "compaction"
    opening, marker, *lines = result.messages[0].text.split("\n")
    assert opening.startswith(MARKER)
    assert (marker, lines) == (f"{MARKER} summary", ["settle_account is renamed in four modules.", "Two are left."])


def test_what_a_summary_covers_is_shown_no_more_and_the_rest_is_whole() -> None:
    conversation = busy()
    entry = compact(conversation, "Renamed.")
    result = conversation.build()
    assert broken_pairs(result.messages) == []
    shown = [call.tool_call_id for message in result.messages for call in message.tool_calls]
    assert shown
    assert all(int(call_id[1:].partition("_")[0]) > entry.last_serial for call_id in shown)


def test_after_a_summary_the_context_grows_as_before() -> None:
    conversation = busy()
    compact(conversation, "Renamed.")
    before = conversation.build()
    go_on(conversation)
    after = conversation.build()
    assert after.stats.epoch is None
    assert is_grown(written(before.messages), written(after.messages))


def test_a_summary_stays_at_the_head_of_the_ledger_through_all_later_epochs() -> None:
    conversation = busy()
    compact(conversation, "settle_account is renamed in four modules.")
    conversation.manager = conversation.fresh_manager()
    reasons = set()
    for turn in range(60):
        if turn % 30 == 29:
            conversation.wait(1_000)
        result = conversation.build()
        reasons.add(result.stats.epoch)
        assert f"{MARKER} summary\nsettle_account is renamed in four modules." in result.messages[0].text
        assert not result.stats.over_budget
        go_on(conversation)
    assert {"compaction", "budget", "cache expired"} <= reasons


def test_the_next_summary_is_asked_with_the_last_one_and_takes_its_place() -> None:
    conversation = busy()
    first = compact(conversation, "The first summary.")
    conversation.build()
    while not updates(conversation).compaction:
        go_on(conversation)
    request = asked(conversation)
    assert request.messages[0].text.endswith(f"{MARKER} summary\nThe first summary.")
    assert request.first_serial == first.first_serial
    assert request.last_serial > first.last_serial
    compact(conversation, "Both, in one.")
    text = ledger_of(conversation)
    assert "Both, in one." in text
    assert "The first summary." not in text


def test_summaries_of_different_parts_stand_side_by_side() -> None:
    conversation = Conversation(8_000)
    conversation.say("go")
    go_on(conversation, 10)
    conversation.state.append(CompactionEntry(0, 6, "What came first."))
    conversation.build()
    conversation.state.append(CompactionEntry(7, 12, "What came next."))
    texts = [message.text for message in conversation.build().messages[:2]]
    assert "What came first." in texts[0]
    assert "What came next." in texts[1]


# ---------------------------------------------------------------- odd ones


def test_the_newest_entries_stay_whole_even_if_a_summary_covers_them() -> None:
    conversation = Conversation(8_000)
    conversation.say("go")
    conversation.call("found")
    conversation.say("And now?")
    conversation.state.append(CompactionEntry(0, 3, "Everything."))
    result = conversation.build()
    assert "Everything." in result.messages[0].text
    assert [message.text for message in result.messages[1:]] == ["And now?"]
    assert conversation.build().stats.epoch is None


def test_results_that_came_after_a_summary_of_their_calls_are_not_lost() -> None:
    conversation = Conversation(8_000)
    conversation.say("go")
    said = conversation.answer(ToolCall("c", "search", {"q": "x"}))
    conversation.state.append(CompactionEntry(0, said.serial, "It was asked."))
    conversation.build()
    found = HistoryToolCallResult.of_text(said.tool_calls[0], "found in wire_format.py")
    conversation.state.append_tool_results([found])
    conversation.say("Well?")
    result = conversation.build()
    assert broken_pairs(result.messages) == []
    assert [message.role for message in result.messages] == ["user", "assistant", "tool", "user"]


def test_a_summary_of_nothing_that_a_model_sees_is_passed_over() -> None:
    conversation = Conversation(instruction="Be brief.")
    conversation.state.append(CompactionEntry(0, 0, "An instruction was given."))
    conversation.say("hi")
    for _ in range(2):
        result = conversation.build()
        assert (result.stats.epoch, [message.text for message in result.messages]) == (None, ["hi"])


def test_a_summary_that_reaches_behind_a_reset_is_passed_over() -> None:
    conversation = Conversation()
    conversation.say("The code is 4711.")
    conversation.state.reset()
    conversation.say("Something else.")
    conversation.answer("Yes?")
    conversation.state.append(CompactionEntry(0, 3, "The code is 4711."))
    result = conversation.build()
    assert [message.text for message in result.messages] == ["Something else.", "Yes?"]


def test_a_summary_longer_than_the_budget_is_cut_to_fit_and_comes_back_whole() -> None:
    conversation = Conversation(2_000)
    conversation.say("go")
    go_on(conversation, 8)
    summary = file_text("summary", 900)
    entry = conversation.state.append(CompactionEntry(0, conversation.state.next_serial - 3, summary))
    result = conversation.build()
    assert not result.stats.over_budget
    assert entry.serial in result.stats.cut
    assert f"#{entry.serial} has them" in result.messages[0].text
    assert recall(conversation.entries, {"entry": entry.serial}) == summary
    assert invented_lines(result.messages, history_lines(conversation.entries)) == []
    assert conversation.fresh_manager().build_context(conversation.given()).messages == result.messages


def test_a_summary_that_fills_the_budget_still_leaves_the_newest_result() -> None:
    conversation = Conversation(2_000)
    conversation.say("go")
    go_on(conversation, 3)
    conversation.state.append(CompactionEntry(0, 6, file_text("summary", 900)))
    conversation.call(file_text("big", 900))
    result = conversation.build()
    assert not result.stats.over_budget
    assert result.messages[-1].role is Role.TOOL


def test_the_simple_policy_has_no_use_for_summaries() -> None:
    conversation = Conversation(policy="simple")
    conversation.say("go")
    conversation.call("found")
    conversation.state.append(CompactionEntry(0, 1, "It was asked."))
    assert conversation.build().messages[0].text == "go"


def test_a_summary_before_a_reset_does_not_come_back() -> None:
    conversation = busy()
    entry = compact(conversation, "Renamed.")
    conversation.build()
    conversation.state.reset()
    conversation.say("Something else.")
    assert "Renamed." not in str(conversation.build().messages)
    with pytest.raises(ToolError):
        recall(conversation.entries, {"entry": entry.serial})
