"""Usage, prices, and the strategies for users."""

from collections.abc import Callable
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from dragoman import MessageDelta, Role, TokenUsage
from dragoman.delta import DELTA_CLASSES, UnknownDelta
from dragoman.stream import StreamContract, assemble
from dragoman.testing import strategies
from dragoman.usage import NUMBER_LIMIT, Prices
from tests.test_values import Value, plain, refusal, unhurried

# ---------------------------------------------------------------- usage and prices

COUNTS = (
    "input_tokens",
    "output_tokens",
    "total_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)


@pytest.mark.parametrize("count", [-1, 1.0, True, "5"])
@pytest.mark.parametrize("field", COUNTS)
def test_a_token_count_is_a_whole_number_from_0_up(field: str, count: object) -> None:
    message = refusal(TokenUsage, {field: count})
    assert plain(field) in plain(message)
    assert repr(count) in message
    assert "a whole number from 0 up" in message


@pytest.mark.parametrize("cost", [-0.01, float("nan"), float("inf"), "1", True])
def test_a_cost_is_a_finite_number_from_0_up(cost: object) -> None:
    message = refusal(TokenUsage, {"cost": cost})
    assert "cost" in message
    assert repr(cost) in message
    assert "a finite number from 0 up" in message


def test_a_later_report_wins_field_by_field_and_is_not_added() -> None:
    first = TokenUsage(input_tokens=10, output_tokens=1, cache_read_tokens=4, cost=0.5)
    later = TokenUsage(output_tokens=7, cache_read_tokens=0)
    assert first.updated_by(later) == TokenUsage(input_tokens=10, output_tokens=7, cache_read_tokens=0, cost=0.5)


@given(strategies.token_usages(), strategies.token_usages())
@unhurried
def test_an_update_takes_each_field_from_the_later_report_where_it_has_one(a: TokenUsage, b: TokenUsage) -> None:
    updated = a.updated_by(b)
    for name in (*COUNTS, "cost"):
        earlier, later = getattr(a, name), getattr(b, name)
        assert getattr(updated, name) == (earlier if later is None else later)


@given(strategies.token_usages(), strategies.token_usages())
@unhurried
def test_a_sum_adds_what_was_reported_and_keeps_none_where_nobody_reported(a: TokenUsage, b: TokenUsage) -> None:
    total = a + b
    for name in (*COUNTS, "cost"):
        left, right = getattr(a, name), getattr(b, name)
        expected = None if left is None and right is None else min((left or 0) + (right or 0), NUMBER_LIMIT)
        assert getattr(total, name) == expected


@given(strategies.token_usages())
@unhurried
def test_nothing_reported_changes_no_sum(usage: TokenUsage) -> None:
    assert usage + TokenUsage() == usage == TokenUsage() + usage


def test_a_usage_is_added_to_nothing_else() -> None:
    other: Any = 5
    with pytest.raises(TypeError):
        TokenUsage() + other


@pytest.mark.parametrize("price", [-1, float("nan"), float("inf"), "3", True])
@pytest.mark.parametrize("field", ["input", "output", "cache_read", "cache_write"])
def test_a_price_is_a_finite_number_from_0_up(field: str, price: object) -> None:
    message = refusal(Prices, {"input": 1, "output": 1, field: price})
    assert plain(field) in plain(message)
    assert repr(price) in message
    assert "a finite number from 0 up" in message


@pytest.mark.parametrize(
    ("usage", "dollars"),
    [
        (TokenUsage(), 0),
        (TokenUsage(input_tokens=1_000_000), 3),
        (TokenUsage(output_tokens=1_000_000), 15),
        (TokenUsage(output_tokens=1_000_000, reasoning_tokens=900_000), 15),
        (TokenUsage(input_tokens=1_000_000, cache_read_tokens=1_000_000), 0.3),
        (TokenUsage(input_tokens=1_000_000, cache_write_tokens=1_000_000), 3.75),
        (TokenUsage(input_tokens=1_000_000, cache_read_tokens=600_000, cache_write_tokens=300_000), 1.605),
        (TokenUsage(input_tokens=2_000, output_tokens=500, total_tokens=2_500), 0.0135),
        (TokenUsage(total_tokens=1_000_000), 0),
        (TokenUsage(cache_read_tokens=1_000_000), 0.3),
        (TokenUsage(input_tokens=10, cache_read_tokens=1_000_000), 0.3),
    ],
    ids=repr,
)
def test_cached_input_is_charged_at_its_own_price_and_never_twice(usage: TokenUsage, dollars: float) -> None:
    prices = Prices(input=3, output=15, cache_read=0.3, cache_write=3.75)
    assert prices.cost_of(usage) == pytest.approx(dollars)


def test_a_cache_price_that_is_not_given_is_the_input_price() -> None:
    usage = TokenUsage(input_tokens=1_000_000, cache_read_tokens=500_000, cache_write_tokens=500_000)
    assert Prices(input=3, output=15).cost_of(usage) == pytest.approx(3)


def test_a_cache_price_of_0_is_a_price() -> None:
    usage = TokenUsage(input_tokens=1_000_000, cache_read_tokens=1_000_000)
    assert Prices(input=3, output=15, cache_read=0).cost_of(usage) == 0


# ---------------------------------------------------------------- the strategies for users


@given(strategies.legal_streams())
@settings(unhurried, max_examples=50)
def test_a_generated_stream_is_legal_and_ends_once(stream: list[MessageDelta]) -> None:
    contract = StreamContract()
    for delta in stream:
        assert not contract.finished
        contract.check(delta)
    assert contract.finished


@given(strategies.legal_streams(ending="done"))
@settings(unhurried, max_examples=50)
def test_a_generated_stream_that_is_done_assembles_to_a_message(stream: list[MessageDelta]) -> None:
    assembly = assemble(stream)
    assert assembly.error is None
    assert assembly.message is not None


def gives(strategy: st.SearchStrategy[Value], wanted: Callable[[Value], bool]) -> bool:
    """Whether the strategy gives such a value, sooner or later."""
    generous = settings(unhurried, max_examples=5_000, database=None, phases=[Phase.generate])
    return wanted(find(strategy, wanted, settings=generous))


def first_of(strategy: st.SearchStrategy[Value]) -> list[Value]:
    drawn: list[Value] = []

    @settings(unhurried, max_examples=5, database=None, phases=[Phase.generate])
    @given(strategy)
    def collect(value: Value) -> None:
        drawn.append(value)

    collect()
    return drawn


@pytest.mark.parametrize("kind", DELTA_CLASSES)
def test_generated_streams_have_every_kind(kind: str) -> None:
    assert gives(strategies.legal_streams(), lambda stream: any(delta.kind == kind for delta in stream))


@pytest.mark.parametrize("parsed", [True, False])
def test_generated_streams_have_calls_that_parse_and_calls_that_do_not(parsed: bool) -> None:
    def has_call(stream: list[MessageDelta]) -> bool:
        message = assemble(stream).message
        return message is not None and any((call.arguments is not None) == parsed for call in message.tool_calls)

    assert gives(strategies.legal_streams(ending="done"), has_call)


def test_generated_streams_have_calls_open_side_by_side() -> None:
    def has_two_open(stream: list[MessageDelta]) -> bool:
        counts = {"tool_call_start": 1, "tool_call_end": -1}
        return max(accumulate(counts.get(delta.kind, 0) for delta in stream)) > 1

    assert gives(strategies.legal_streams(), has_two_open)


@pytest.mark.parametrize("ending", ["done", "error"])
def test_the_ending_of_generated_streams_can_be_chosen(ending: str) -> None:
    assert {stream[-1].kind for stream in first_of(strategies.legal_streams(ending=ending))} == {ending}


@pytest.mark.parametrize("kind", [*DELTA_CLASSES, "unknown"])
def test_generated_deltas_can_be_of_one_kind(kind: str) -> None:
    for delta in first_of(strategies.deltas(kind)):
        assert isinstance(delta, UnknownDelta) if kind == "unknown" else delta.kind == kind


@pytest.mark.parametrize("role", Role)
def test_generated_messages_can_be_of_one_role(role: Role) -> None:
    assert {message.role for message in first_of(strategies.messages(role))} == {role}


def test_generated_text_is_the_callers() -> None:
    assert gives(strategies.messages("user", text=st.just("word")), lambda message: message.text == "word")


@pytest.mark.parametrize(
    ("build", "given", "allowed"),
    [
        (strategies.messages, {"role": "robot"}, "assistant"),
        (strategies.parts, {"role": "robot"}, "assistant"),
        (strategies.deltas, {"kind": "hologram"}, "unknown"),
        (strategies.legal_streams, {"ending": "stop"}, "'done', 'error'"),
    ],
)
def test_a_strategy_refuses_what_it_cannot_generate(
    build: Callable[..., object], given: dict[str, Any], allowed: str
) -> None:
    assert allowed in refusal(build, given)
