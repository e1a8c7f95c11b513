"""What a context counts for the model that it is for: thinking that goes back, and what reported usage has taught."""

from typing import Any

import pytest
from msgspec.structs import replace

from dragoman import ErrorCode, Message, Role, Text, Thinking, TokenUsage, ToolCall
from dragoman.context import ContextBuildResult, ContextManager, EstimateCounter, TokenCounter
from dragoman.context.timeline import Aim
from dragoman.history import InterruptionEntry, hand_off
from dragoman.message import MessageMeta, ModelInvocationDescriptor, Part
from dragoman.target import TargetRules
from dragoman.wire import find_dialect
from tests.context_cases import COUNTERS, Conversation, file_text
from tests.conversations import TARGETS

CLAUDE = ModelInvocationDescriptor("anthropic", "anthropic-messages", "claude-sonnet-4-5")
OPUS = ModelInvocationDescriptor("anthropic", "anthropic-messages", "claude-opus-4-5")
GPT = ModelInvocationDescriptor("openai", "openai-responses", "gpt-5")
FOUR = EstimateCounter(4)

LONG = Thinking("so then, " * 400, provider_data={"signature": "s"})
LONG_TOKENS = FOUR.count(LONG.text)
CLAUDE_AIM = Aim(CLAUDE)


def said(*parts: Part, by: ModelInvocationDescriptor | None, used: int | None = None) -> Message:
    usage = None if used is None else TokenUsage(input_tokens=used)
    return Message(Role.ASSISTANT, parts, meta=MessageMeta(invocation=by, usage=usage))


def thoughtful(by: ModelInvocationDescriptor | None = CLAUDE, budget: int = 20_000) -> Conversation:
    """A conversation in which a model has thought much and said little."""
    conversation = Conversation(budget)
    conversation.say("go")
    conversation.answer(said(LONG, Text("ok"), by=by))
    conversation.say("on")
    return conversation


def thinking_counted(conversation: Conversation, **fields: object) -> int:
    """How much of an estimate is thinking."""
    result = conversation.manager.build_context(conversation.given(**fields))
    answered = [message.meta.invocation for message in result.messages if message.meta is not None]
    target: Any = fields.get("invocation", answered[-1] if answered else None)
    # Thinking without an origin counts nothing.
    nobodys = [replace(message, meta=None) for message in result.messages]
    return result.estimate - conversation.manager.estimate_tokens(nobodys, tools=result.tool_specs, invocation=target)


# ---------------------------------------------------------------- thinking


@pytest.mark.parametrize("name", TARGETS)
def test_thinking_counts_exactly_where_the_handoff_sends_it_back(name: str) -> None:
    target = TARGETS[name]
    rules = find_dialect(target.provider, target.model).rules
    for origin in TARGETS.values():
        conversation = thoughtful(origin.invocation)
        shown = conversation.build().messages
        handed = hand_off(shown, target=target.invocation, rules=rules)
        is_sent = any(isinstance(part, Thinking) for message in handed.messages for part in message.parts)
        counted = thinking_counted(conversation, invocation=target.invocation, rules=rules)
        assert counted == LONG_TOKENS * is_sent


@pytest.mark.parametrize(
    ("target", "counts"), [(CLAUDE, True), (OPUS, True), (GPT, False)], ids=lambda value: getattr(value, "model", value)
)
def test_without_rules_the_thinking_of_the_same_provider_counts(
    target: ModelInvocationDescriptor, counts: bool
) -> None:
    assert thinking_counted(thoughtful(), invocation=target) == LONG_TOKENS * counts


def test_a_request_that_names_nobody_is_for_whoever_answered_last() -> None:
    conversation = thoughtful()
    assert thinking_counted(conversation) == LONG_TOKENS
    conversation.answer(said(Text("ok"), by=GPT))
    assert thinking_counted(conversation) == 0


def test_thinking_of_nobody_knows_whom_counts_nothing() -> None:
    assert thinking_counted(thoughtful(None), invocation=CLAUDE) == 0


def test_thinking_of_an_answer_that_broke_off_counts_nothing() -> None:
    conversation = Conversation(20_000)
    conversation.say("go")
    partial = said(LONG, Text("Half of"), by=CLAUDE)
    conversation.state.append(InterruptionEntry(ErrorCode.STREAM_TRUNCATED, "cut", partial))
    conversation.say("Go on.")
    assert thinking_counted(conversation, invocation=CLAUDE) == 0


def test_the_simple_policy_counts_thinking_too() -> None:
    conversation = thoughtful()
    conversation.manager = Conversation(20_000, policy="simple").manager
    assert thinking_counted(conversation, invocation=CLAUDE) == LONG_TOKENS


def think_and_read(conversation: Conversation, turn: int) -> None:
    call = ToolCall(f"c{turn}", "read_file", {"path": "a.py"})
    conversation.answer(said(Thinking(f"{turn}: {LONG.text[:2_000]}"), call, by=CLAUDE))
    conversation.state.append_tool_results((), file_text(f"m{turn}", 5))


def test_a_conversation_full_of_thinking_fits_its_budget_with_all_that_is_sent() -> None:
    conversation = Conversation(4_000)
    conversation.say("go")
    epochs = 0
    for turn in range(40):
        think_and_read(conversation, turn)
        result = conversation.build(invocation=CLAUDE)
        epochs += result.stats.epoch is not None
        assert sum(CLAUDE_AIM.count(message, FOUR) for message in result.messages) <= 4_000
    assert epochs > 2


def test_models_that_take_turns_are_counted_for_as_if_each_were_alone() -> None:
    conversation = Conversation(6_000)
    conversation.say("go")
    rules = TargetRules(opaque_providers=frozenset({"anthropic"}), opaque_same_model=True)
    for turn in range(30):
        think_and_read(conversation, turn)
        for target in (CLAUDE, GPT, OPUS):
            given = conversation.given(invocation=target, rules=rules)
            expected = conversation.fresh_manager().build_context(given)
            assert conversation.manager.build_context(given) == expected
        conversation.build(invocation=(CLAUDE, GPT, OPUS)[turn % 3], rules=rules)


# ---------------------------------------------------------------- what was reported


def answered(
    conversation: Conversation, *, by: ModelInvocationDescriptor, times: int, manager: ContextManager | None = None
) -> ContextBuildResult:
    """The model answers, and reports so many times what was counted."""
    result = (manager or conversation.manager).build_context(conversation.given(invocation=by))
    message = said(Text("ok"), by=by, used=times * result.estimate)
    conversation.answer(message, metadata=result.metadata)
    conversation.say("next")
    return result


def correction(conversation: Conversation, target: ModelInvocationDescriptor | None) -> float:
    return conversation.build(invocation=target).stats.correction


def test_what_one_model_reports_corrects_no_count_for_another() -> None:
    conversation = Conversation(50_000)
    conversation.say("word " * 400)
    for _ in range(3):
        answered(conversation, by=CLAUDE, times=2)
        answered(conversation, by=GPT, times=3)
    assert [correction(conversation, target) for target in (CLAUDE, GPT, OPUS)] == [2.0, 3.0, 1.0]
    assert correction(conversation, None) == 3.0  # who answered last


@pytest.mark.parametrize("counter", COUNTERS[1:], ids=lambda counter: counter.name)
def test_what_another_counter_counted_corrects_nothing(counter: TokenCounter) -> None:
    conversation = Conversation(50_000, counter=COUNTERS[0])
    conversation.say("word " * 400)
    answered(conversation, by=CLAUDE, times=2)
    answered(conversation, by=CLAUDE, times=3, manager=ContextManager(conversation.config, counter=counter))
    assert correction(conversation, CLAUDE) == 2.0
    conversation.counter = counter
    conversation.manager = conversation.fresh_manager()
    assert correction(conversation, CLAUDE) == 3.0


def test_a_correction_outlives_a_reset() -> None:
    conversation = Conversation(50_000)
    conversation.say("word " * 400)
    answered(conversation, by=CLAUDE, times=2)
    conversation.state.reset()
    conversation.say("Something else.")
    assert [correction(conversation, target) for target in (CLAUDE, None)] == [2.0, 2.0]
