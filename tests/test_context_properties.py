"""What a context holds to over any legal history, any budget from 2,000 tokens and any counter."""

import random
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman import Message, Role
from dragoman.context import ContextBuildResult, ContextManager, ModelCompactor, TokenCounter, compaction_entry
from dragoman.context.projection import PROJECTION_VERSION
from dragoman.history import (
    AgentState,
    ClientAnswerEntry,
    CompactionEntry,
    ContextualHistoryEntry,
    EpochEntry,
    HistoryEntry,
    LevelOfDetail,
    ModelOutputEntry,
    ResetEntry,
    ToolResultsEntry,
    context_messages,
    entry_from_json,
    entry_to_json,
    to_messages,
)
from dragoman.message import ModelInvocationDescriptor
from dragoman.request import ContextConfig, ModelInfo
from dragoman.target import TargetRules
from dragoman.testing.histories import legal_histories, random_history
from dragoman.testing.strategies import json_objects
from dragoman.usage import Prices
from tests.context_cases import (
    COUNTERS,
    Conversation,
    broken_pairs,
    epochs_in,
    history_lines,
    invented_lines,
    is_grown,
    newest_screen,
    without_screen,
    written,
)

unhurried = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])

BUDGETS = st.integers(2_000, 6_000) | st.just(2_000) | st.integers(6_000, 60_000)
HISTORIES = legal_histories(min_steps=20, max_steps=150)
SEEDS = st.integers(0, 2**32)


class Built(NamedTuple):
    """A context, the entries that it was built from, and whether an epoch or a reset came since the last one."""

    result: ContextBuildResult
    entries: list[HistoryEntry]
    is_disturbed: bool


class Case(NamedTuple):
    """A history to walk through, and how."""

    history: AgentState
    budget: int
    counter: TokenCounter
    seed: int
    screen_in_result: bool = False

    def conversation(self) -> Conversation:
        return Conversation(self.budget, counter=self.counter)

    def walk(self, conversation: Conversation) -> Iterator[Built]:
        """Append the history anew, entry by entry, and build a context every now and then."""
        choose = random.Random(self.seed)
        disturbed = False
        for entry in self.history.entries:
            conversation.append_anew(entry)
            disturbed |= isinstance(entry, (EpochEntry, ResetEntry))
            if choose.random() < 0.3:
                entries = list(conversation.entries)
                yield Built(conversation.build(screen_in_result=self.screen_in_result), entries, disturbed)
                disturbed = False


CASES = st.builds(Case, HISTORIES, BUDGETS, st.sampled_from(COUNTERS), SEEDS, st.booleans())


def since_reset(entries: list[HistoryEntry]) -> list[ContextualHistoryEntry]:
    """The contextual entries that a model may see."""
    resets = [entry.serial for entry in entries if isinstance(entry, ResetEntry)]
    later = entries[resets[-1] :] if resets else entries
    return [entry for entry in later if isinstance(entry, ContextualHistoryEntry)]


def whole_conversation(entries: Sequence[HistoryEntry], *, screen_in_result: bool = False) -> tuple[Message, ...]:
    """Everything that a model may see, whole."""
    context = context_messages(entries, policy=lambda _age: LevelOfDetail.LIVE)
    return to_messages(context, screen_in_result=screen_in_result)


def spoken(built: Built, *, in_result: bool) -> list[bytes]:
    """The messages that later requests begin with: all but the LiveScreen, or the result that it stands in."""
    if in_result and newest_screen(built.entries) is not None:
        return written(built.result.messages)[:-1]
    return without_screen(built.result, built.entries)


# ---------------------------------------------------------------- valid


@unhurried
@given(CASES)
def test_calls_and_results_are_never_parted(case: Case) -> None:
    for built in case.walk(case.conversation()):
        messages = built.result.messages
        if newest_screen(built.entries) is not None and messages[-1].role is Role.USER:
            messages = messages[:-1]
        assert broken_pairs(messages) == []


@unhurried
@given(CASES)
def test_a_context_is_never_empty_and_begins_with_the_users_side_if_the_conversation_does(case: Case) -> None:
    for built in case.walk(case.conversation()):
        whole = whole_conversation(built.entries)
        assert bool(whole) == bool(built.result.messages)
        if whole and (whole[0].role is Role.USER or built.result.messages[0].parts != whole[0].parts):
            assert built.result.messages[0].role is Role.USER


@unhurried
@given(CASES)
def test_what_is_not_folded_is_what_the_entries_say(case: Case) -> None:
    """With room for everything and no summary, a context is the whole conversation."""
    entries = [
        entry
        for entry in case.history.entries
        if not isinstance(entry, (EpochEntry, CompactionEntry, ClientAnswerEntry))  # the last names a serial
    ]
    conversation = Conversation(2_000_000, counter=case.counter)
    for entry in entries:
        conversation.append_anew(entry)
    whole = whole_conversation(conversation.entries, screen_in_result=case.screen_in_result)
    result = conversation.build(screen_in_result=case.screen_in_result)
    assert [message.parts for message in result.messages] == [message.parts for message in whole]


# ---------------------------------------------------------------- stable


@unhurried
@given(CASES)
def test_a_context_extends_the_last_one_byte_for_byte_unless_it_reports_an_epoch(case: Case) -> None:
    last: list[bytes] = []
    for built in case.walk(case.conversation()):
        now = spoken(built, in_result=case.screen_in_result)
        if built.result.stats.epoch is None and not built.is_disturbed:
            assert is_grown(last, now)
        assert (built.result.stats.epoch is None) == (built.result.entries == ())
        last = now


@unhurried
@given(CASES)
def test_building_twice_changes_nothing(case: Case) -> None:
    conversation = case.conversation()
    for built in case.walk(conversation):
        again = conversation.build(screen_in_result=case.screen_in_result)
        assert (again.stats.epoch, written(again.messages)) == (None, written(built.result.messages))


@settings(unhurried, max_examples=10)
@given(CASES)
def test_whoever_builds_it_and_whatever_was_built_before_the_result_is_the_same(case: Case) -> None:
    conversation = case.conversation()
    stranger = conversation.fresh_manager()  # it sees this conversation and others by turns
    other = Conversation(case.budget, counter=case.counter)
    for entry in random_history(case.seed, 20).entries:
        other.append_anew(entry)
    for built in case.walk(conversation):
        given_again = conversation.given(entries=built.entries, screen_in_result=case.screen_in_result)
        assert conversation.fresh_manager().build_context(given_again) == built.result
        stranger.build_context(other.given())
        assert stranger.build_context(given_again) == built.result


@settings(unhurried, max_examples=20)
@given(CASES)
def test_stored_entries_and_past_states_give_the_same_bytes(case: Case) -> None:
    conversation = case.conversation()
    walked = [(built, conversation.now) for built in case.walk(conversation)]
    manager = conversation.fresh_manager()
    for built, now in walked[-6:]:
        stored = [entry_from_json(entry_to_json(entry)) for entry in built.entries]
        past = conversation.state.state_at(len(stored) - 1).entries
        for entries in (stored, past):
            given_again = conversation.given(entries=entries, now=now, screen_in_result=case.screen_in_result)
            result = manager.build_context(given_again)
            assert written(result.messages) == written(built.result.messages)
            assert result.stats == built.result.stats
            assert result.entries == built.result.entries


# ---------------------------------------------------------------- true


@unhurried
@given(CASES)
def test_every_line_that_is_shown_is_one_of_the_history_or_a_marker(case: Case) -> None:
    for built in case.walk(case.conversation()):
        assert invented_lines(built.result.messages, history_lines(built.entries)) == []


@unhurried
@given(CASES)
def test_the_estimate_is_what_the_request_counts(case: Case) -> None:
    for built in case.walk(conversation := case.conversation()):
        result = built.result
        outputs = [entry for entry in built.entries if isinstance(entry, ModelOutputEntry)]
        counted = conversation.manager.estimate_tokens(
            result.messages,
            tools=result.tool_specs,
            system=result.system,
            invocation=outputs[-1].invocation if outputs else None,
        )
        if case.screen_in_result and newest_screen(built.entries) is not None:
            assert abs(result.estimate - counted) <= 8  # one message less, and a blank line between
        else:
            assert result.estimate == counted


# ---------------------------------------------------------------- within the budget


def last_unit(entries: list[HistoryEntry]) -> list[HistoryEntry]:
    seen = since_reset(entries)
    return list(seen[-2:] if isinstance(seen[-1], ToolResultsEntry) else seen[-1:])


@unhurried
@given(CASES)
# Two requests of a person that take half the room each, and turns beside them.
@example(Case(random_history(3795, 57, texts=["", "", "0000", "00000000000"]), 2_000, COUNTERS[2], 0))
def test_a_context_fits_its_budget_unless_its_last_unit_cannot_be_made_to(case: Case) -> None:
    for built in case.walk(case.conversation()):
        stats = built.result.stats
        assert stats.over_budget == (stats.tokens > stats.budget)
        if stats.over_budget:
            alone = Conversation(None, counter=case.counter, instruction=built.result.system, output_reserve=0)
            for entry in last_unit(built.entries):
                alone.append_anew(entry)
            # The opening of the ledger is left out of what the last unit may take.
            room = ModelInfo(provider="some", model_id="some", context_window=case.budget - 80)
            assert alone.build(model_info=room).stats.over_budget


@settings(unhurried, max_examples=30)
@given(CASES)
def test_each_overflow_gives_a_smaller_request_until_nothing_is_left_to_give_up(case: Case) -> None:
    conversation = case.conversation()
    for _ in case.walk(conversation):
        pass
    size = conversation.build().estimate
    for _ in range(12):
        update = conversation.manager.compute_context_updates(conversation.given(), overflow=True)
        if update.exhausted:
            assert update.entries == ()
            break
        for entry in update.entries:
            assert entry.reason == "overflow"
            conversation.state.append(entry)
        result = conversation.build()
        assert result.estimate < size
        assert broken_pairs(result.messages[:-1] if newest_screen(conversation.entries) else result.messages) == []
        size = result.estimate
    else:
        pytest.fail("twelve overflows, and still something to give up")
    again = conversation.manager.compute_context_updates(conversation.given(), overflow=True)
    assert again.exhausted


# ---------------------------------------------------------------- whatever the host does

# Two of them made what the histories say, so that its thinking may go back.
MODELS = (
    ModelInfo(provider="anthropic", model_id="claude-a", context_window=2_500),
    ModelInfo(provider="openai", model_id="gpt-c", context_window=60_000, prices=Prices(1.0, 4.0, 0.1, 1.25)),
    ModelInfo(provider="some", model_id="other", context_window=9_000, prices=Prices(1.0, 4.0)),
)
SPECIFICATIONS = {"anthropic": "messages", "openai": "responses", "some": "some"}
RULES = (None, TargetRules(opaque_providers=frozenset({"openai"}), opaque_same_model=True), TargetRules(thinking=False))


@settings(unhurried, max_examples=30)
@given(HISTORIES, SEEDS, st.sampled_from((None, ModelCompactor(), ModelCompactor(kept_share=0.9))))
# Words that an epoch keeps whole, and that the next one, in a smaller budget, would have had to cut.
@example(random_history(170, 20, texts=[]), 28161, None)
def test_models_limits_summaries_and_time_may_change_between_any_two_calls(
    history: AgentState, seed: int, compactor: ModelCompactor | None
) -> None:
    choose = random.Random(seed)
    conversation = Conversation(None, output_reserve=0)
    conversation.manager = conversation.fresh_manager(compactor=compactor)
    for entry in history.entries:
        conversation.append_anew(entry)
        if choose.random() < 0.7:
            continue
        conversation.wait(choose.choice((0, 1, 400)))
        info = choose.choice(MODELS)
        whom = ModelInvocationDescriptor(info.provider, SPECIFICATIONS[info.provider], info.model_id)
        aim: dict[str, Any] = {"invocation": whom, "rules": choose.choice(RULES)}
        fields: dict[str, Any] = {"model_info": info, **aim, "screen_in_result": choose.random() < 0.5}
        given_now = conversation.given(**fields)
        update = conversation.manager.compute_context_updates(given_now, overflow=choose.random() < 0.1)
        if update.compaction is not None:
            assert broken_pairs(update.compaction.messages) == []
            counted = conversation.manager.estimate_tokens(update.compaction.messages, **aim)
            assert counted <= (info.context_window or 0)
            answer = Message.assistant(choose.choice(("Summed up.", "All of it.\n" * 400)))
            conversation.state.append(compaction_entry(update.compaction, answer))
        for epoch in update.entries:
            conversation.state.append(epoch)
        entries = list(conversation.entries)
        result = conversation.build(**fields)
        assert conversation.fresh_manager().build_context(conversation.given(**fields, entries=entries)) == result
        assert bool(result.messages) == bool(since_reset(entries))
        screen = newest_screen(entries) is not None and result.messages[-1].role is Role.USER
        assert broken_pairs(result.messages[:-1] if screen else result.messages) == []
        assert invented_lines(result.messages, history_lines(entries)) == []
        assert conversation.build(**fields).stats.epoch is None


# ---------------------------------------------------------------- epochs that were not chosen


@cache
def real_choices(seed: int) -> dict[str, Any]:
    """What an epoch of a real conversation chose."""
    conversation = Conversation(2_000)
    for entry in random_history(seed, 60, resets=False).entries:
        conversation.append_anew(entry)
        conversation.build()
    epochs = [entry for entry in conversation.entries if isinstance(entry, EpochEntry)]
    return dict(epochs[-1].choices)


NUMBERS = st.integers(-3, 400) | st.integers(-(10**40), 10**400) | st.floats(allow_nan=False, allow_infinity=False)
ODD = st.none() | st.booleans() | NUMBERS | st.text(max_size=8) | st.lists(NUMBERS, max_size=3) | json_objects()
PICKS = st.from_regex(r"(-?\d{1,3}\.-?\d{1,2}:\d{1,4}(-\d{1,4})?(,\d{1,30})? ?){0,3}", fullmatch=True)
ZONES = st.fixed_dictionaries(
    {"picks": PICKS | ODD, "names": st.sampled_from(("", "nobody_said_this", "total.items x")) | ODD, "summary": ODD}
)
CHOICES = st.one_of(
    json_objects(),
    st.fixed_dictionaries(
        {
            "zones": st.lists(ZONES | ODD, max_size=3) | ODD,
            "liveFrom": NUMBERS | ODD,
            "turnsFrom": NUMBERS | ODD,
            "firstAsked": NUMBERS | ODD,
            "asked": st.lists(NUMBERS, max_size=2) | ODD,
            "picks": PICKS | ODD,
            "stable": NUMBERS | ODD,
            "cuts": st.dictionaries(st.text(max_size=3) | NUMBERS.map(str), NUMBERS | ODD, max_size=3) | ODD,
            "low": NUMBERS | ODD,
            "limit": NUMBERS | ODD,
        }
    ),
    st.builds(
        lambda choices, name, value: choices | {name: value},
        st.integers(0, 7).map(real_choices),
        st.sampled_from(
            ("zones", "liveFrom", "turnsFrom", "firstAsked", "asked", "picks", "stable", "cuts", "low", "limit", "more")
        ),
        ODD | PICKS | st.lists(ZONES, max_size=2) | st.lists(st.integers(0, 40), max_size=2) | st.integers(0, 40),
    ),
)


@settings(unhurried, max_examples=30)
@given(st.integers(0, 200), CHOICES, st.sampled_from((PROJECTION_VERSION, PROJECTION_VERSION + 1)))
def test_choices_that_nobody_could_have_made_are_passed_over(seed: int, choices: dict[str, Any], version: int) -> None:
    conversation = Conversation(2_000)
    history = list(random_history(seed, 40, resets=False).entries)
    for entry in history[:-8]:
        conversation.append_anew(entry)
    conversation.state.append(EpochEntry(version, "made up", choices))
    for place in range(9):
        if place:
            conversation.append_anew(history[place - 9])
        entries = list(conversation.entries)
        result = conversation.build()
        assert bool(result.messages) == bool(since_reset(entries))
        assert conversation.fresh_manager().build_context(conversation.given(entries=entries)) == result
        assert invented_lines(result.messages, history_lines(entries)) == []


def test_an_epoch_of_another_version_is_passed_over() -> None:
    conversation = Conversation(2_000)
    for entry in random_history(7, 60, resets=False).entries:
        conversation.append_anew(entry)
        conversation.build()
    entries = list(conversation.entries)
    assert epochs_in(entries)
    later = [
        replace(entry, version=PROJECTION_VERSION + 1) if isinstance(entry, EpochEntry) else entry for entry in entries
    ]
    result = ContextManager(ContextConfig(budget_tokens=2_000), counter=conversation.counter).build_context(
        conversation.given(entries=later)
    )
    assert not result.stats.over_budget
    assert result.stats.epoch == "budget"
