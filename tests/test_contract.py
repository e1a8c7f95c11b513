"""The contract accepts exactly the legal sequences, and says precisely what is wrong with the others."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from msgspec.structs import force_setattr

from dragoman import DragomanError, ErrorCode, MessageDelta
from dragoman.delta import ErrorDelta, StartDelta, ToolCallArgsDelta, ToolCallStartDelta, UnknownDelta
from dragoman.errors import ContractViolation
from dragoman.stream import StreamContract
from tests.oracle import (
    KINDS,
    RUN,
    STAMP,
    allows,
    any_streams,
    delta_of,
    deltas_at,
    open_streams,
    unhurried,
    whole_streams,
)

SHORT = 500
MANY_CALLS = 100_000
FIRST_SEQ = 7


def accepts(contract: StreamContract, delta: MessageDelta) -> bool:
    try:
        contract.check(delta)
    except ContractViolation:
        return False
    return True


def accepts_all(deltas: Sequence[MessageDelta]) -> bool:
    contract = StreamContract()
    return all(accepts(contract, delta) for delta in deltas)


def contract_after(*deltas: MessageDelta, source: str = "stream") -> StreamContract:
    contract = StreamContract(source)
    for delta in deltas:
        contract.check(delta)
    return contract


def violation_of(contract: StreamContract, delta: MessageDelta) -> ContractViolation:
    with pytest.raises(ContractViolation) as raised:
        contract.check(delta)
    return raised.value


def possible_next(deltas: Sequence[MessageDelta]) -> list[MessageDelta]:
    """Every kind, each of two calls, with a seq that rises, repeats or falls."""
    if not deltas:
        return deltas_at(FIRST_SEQ)
    last = deltas[-1].seq
    return [*deltas_at(last + 1), *deltas_at(last), *deltas_at(last - 1)]


def test_contract_and_oracle_agree_on_every_sequence_up_to_length_five() -> None:
    # A sequence is accepted if and only if each of its deltas is accepted after the ones before it. So whatever has
    # an illegal beginning is refused by both sides (the test below holds the oracle to that) and needs no visit:
    # trying every next delta after every legal beginning decides all the sequences there are.
    visited = 0
    beginnings: list[tuple[MessageDelta, ...]] = [()]
    for _ in range(5):
        legal = []
        for beginning in beginnings:
            for delta in possible_next(beginning):
                sequence = (*beginning, delta)
                expected = allows(sequence)
                assert accepts_all(sequence) == expected, sequence
                visited += 1
                if expected:
                    legal.append(sequence)
        beginnings = legal
    assert {delta.kind for delta in possible_next(())} == set(KINDS)
    assert visited > 10_000


@unhurried
@given(any_streams)
def test_the_oracle_refuses_whatever_begins_with_something_it_refuses(deltas: list[MessageDelta]) -> None:
    verdicts = [allows(deltas[:length]) for length in range(len(deltas) + 1)]
    assert verdicts == sorted(verdicts, reverse=True)


@unhurried
@given(any_streams | open_streams())
def test_contract_and_oracle_agree_on_longer_sequences(deltas: list[MessageDelta]) -> None:
    contract = StreamContract()
    accepted = 0
    while accepted < len(deltas) and accepts(contract, deltas[accepted]):
        accepted += 1
    assert allows(deltas[:accepted])
    assert accepted == len(deltas) or not allows(deltas[: accepted + 1])


@unhurried
@given(whole_streams())
def test_every_whole_legal_stream_leaves_the_contract_finished(deltas: list[MessageDelta]) -> None:
    contract = contract_after(*deltas[:-1])
    assert not contract.finished
    contract.check(deltas[-1])
    assert contract.finished
    assert contract.state == deltas[-1].kind


@unhurried
@given(any_streams)
def test_a_refused_delta_leaves_the_state_unchanged(deltas: list[MessageDelta]) -> None:
    contract = StreamContract()
    kept: list[MessageDelta] = []
    for delta in deltas:
        before = (contract.state, contract.last_seq, contract.finished)
        legal = allows([*kept, delta])
        assert accepts(contract, delta) == legal
        if legal:
            kept.append(delta)
        else:
            assert (contract.state, contract.last_seq, contract.finished) == before


def test_a_kind_of_a_later_version_is_refused_in_every_state() -> None:
    start, done = delta_of("start", 0), delta_of("done", 1)
    for before in ([], [start], [start, done], [delta_of("error", 0)]):
        assert "hologram" in str(violation_of(contract_after(*before), UnknownDelta(RUN, 9, STAMP, "hologram", {})))


START = delta_of("start", 3)
OPEN_CALL = (START, delta_of("tool_call_start", 4, "c1"))
ENDED_CALL = (*OPEN_CALL, delta_of("tool_call_end", 5, "c1"))


@pytest.mark.parametrize(
    ("before", "delta", "told"),
    [
        ((), delta_of("text", 0), ("text", "idle", "legal", "start", "error")),
        ((START,), delta_of("start", 4), ("start", "open", "legal", "text", "done")),
        ((START, delta_of("done", 4)), delta_of("text", 5), ("text", "done", "nothing")),
        ((START, delta_of("error", 4)), delta_of("error", 5), ("error", "nothing")),
        ((START,), delta_of("text", 3), ("text", "seq 3", "above 3")),
        ((START,), delta_of("text", 2), ("text", "seq 2", "above 3")),
        ((START,), delta_of("tool_call_args", 4, "c2"), ("tool_call_args", "'c2'", "open", "none")),
        (OPEN_CALL, delta_of("tool_call_args", 5, "c2"), ("tool_call_args", "'c2'", "not open", "'c1'")),
        (OPEN_CALL, delta_of("tool_call_end", 5, "c2"), ("tool_call_end", "'c2'", "not open", "'c1'")),
        (ENDED_CALL, delta_of("tool_call_end", 6, "c1"), ("tool_call_end", "'c1'", "not open", "none")),
        (OPEN_CALL, delta_of("tool_call_start", 5, "c1"), ("tool_call_start", "'c1'", "opened before")),
        (ENDED_CALL, delta_of("tool_call_start", 6, "c1"), ("tool_call_start", "'c1'", "opened before")),
        (OPEN_CALL, delta_of("done", 5), ("done", "ended", "'c1'")),
    ],
)
def test_a_violation_names_who_what_was_seen_and_what_was_legal(
    before: tuple[MessageDelta, ...], delta: MessageDelta, told: tuple[str, ...]
) -> None:
    violation = violation_of(contract_after(*before, source="acme:large"), delta)
    assert violation.code is ErrorCode.PROTOCOL_VIOLATION
    assert str(violation).startswith("acme:large: ")
    for word in told:
        assert word in str(violation)


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (0, "open: none"),
        (1, "open: '1'"),
        (5, "open: '1', '2', '3', '4', '5'"),
        (6, "open: '1', '2', '3', '4', '5' and 1 more"),
    ],
)
def test_a_violation_names_the_first_five_open_calls(count: int, told: str) -> None:
    opened = (delta_of("tool_call_start", number, str(number)) for number in range(1, count + 1))
    contract = contract_after(delta_of("start", 0), *opened)
    violation = violation_of(contract, delta_of("tool_call_end", 9, "other"))
    assert str(violation) == f"stream: tool_call_end for 'other' in state open: that call is not open ({told})"


@pytest.mark.parametrize(
    ("name", "told"), [("c" * 40, "c" * 40), ("c" * 41, "c" * 40 + "…")], ids=["whole", "shortened"]
)
def test_a_violation_shows_forty_characters_of_an_id(name: str, told: str) -> None:
    violation = violation_of(contract_after(delta_of("start", 0)), delta_of("tool_call_end", 9, name))
    assert f"for '{told}' in state" in str(violation)


def test_after_a_terminal_delta_a_violation_says_that_nothing_may_follow() -> None:
    violation = violation_of(contract_after(delta_of("error", 0)), delta_of("text", 1))
    assert str(violation) == "stream: text in state error: nothing may follow a terminal delta"


@pytest.mark.parametrize("name", ["c" * 1_000_000, "\N{GRINNING FACE}" * 1_000_000], ids=["ascii", "astral"])
def test_a_call_id_of_a_megabyte_makes_no_long_message(name: str) -> None:
    contract = contract_after(delta_of("start", 0), delta_of("tool_call_start", 1, name))
    for delta in (
        delta_of("tool_call_start", 2, name),
        delta_of("tool_call_end", 2, name + "x"),
        delta_of("done", 2),
    ):
        assert len(str(violation_of(contract, delta))) < SHORT


def test_an_unknown_kind_of_a_megabyte_makes_no_long_message() -> None:
    delta = UnknownDelta(RUN, 0, STAMP, "k" * 1_000_000, {})
    assert len(str(violation_of(StreamContract(), delta))) < SHORT


def test_a_seq_too_long_to_print_is_refused_by_an_error_of_ours() -> None:
    with pytest.raises(DragomanError) as raised:
        contract_after(delta_of("start", 10**5_000), delta_of("text", 10**5_000))
    assert len(str(raised.value)) < SHORT


class CountedId(str):
    """A call id of which all together may be compared or written out only so often as is allowed."""

    __slots__ = ()
    allowed = 0

    def __eq__(self, other: object) -> bool:
        CountedId.touch()
        return str.__eq__(self, other)

    def __repr__(self) -> str:
        CountedId.touch()
        return str.__repr__(self)

    __hash__ = str.__hash__

    @classmethod
    def touch(cls) -> None:
        CountedId.allowed -= 1
        assert CountedId.allowed > 0, "the work grows with the number of open calls"


def counted(kind: str, seq: int, call: str) -> MessageDelta:
    delta = delta_of(kind, seq, call)
    force_setattr(delta, "tool_call_id", CountedId(call))  # the constructors take plain strings only
    return delta


def with_many_open_calls() -> StreamContract:
    # Counted, not timed: one look through the open calls for each delta would touch 10^10 ids.
    CountedId.allowed = 10 * MANY_CALLS
    contract = contract_after(delta_of("start", 0))
    for number in range(MANY_CALLS):
        contract.check(counted("tool_call_start", number + 1, f"c{number}"))
    return contract


def test_with_many_open_calls_every_violation_stays_short() -> None:
    contract = with_many_open_calls()
    seq = MANY_CALLS + 1
    for delta in (
        delta_of("tool_call_start", seq, "c0"),
        delta_of("tool_call_args", seq, "absent"),
        delta_of("tool_call_end", seq, "absent"),
        delta_of("done", seq),
    ):
        assert len(str(violation_of(contract, delta))) < SHORT


def test_with_many_open_calls_a_delta_costs_no_more_than_with_few() -> None:
    contract = with_many_open_calls()
    CountedId.allowed = 10 * MANY_CALLS
    seq = MANY_CALLS
    for number in reversed(range(MANY_CALLS)):  # the last one first: a search from the front finds it last
        contract.check(counted("tool_call_args", seq + 1, f"c{number}"))
        contract.check(counted("tool_call_end", seq + 2, f"c{number}"))
        seq += 2
    contract.check(delta_of("done", seq + 1))


def test_with_many_open_calls_a_refusal_costs_no_more_than_with_few() -> None:
    contract = with_many_open_calls()
    CountedId.allowed = 20 * 1_000
    for number in range(1_000):
        assert not accepts(contract, counted("tool_call_args", MANY_CALLS + 1, f"absent{number}"))


def test_a_call_that_an_error_left_open_takes_no_more_arguments_in_a_batch() -> None:
    contract = StreamContract()
    opened: list[MessageDelta] = [StartDelta("r", 0, None), ToolCallStartDelta("r", 1, None, "c", "look_up")]
    assert contract.take([*opened, ErrorDelta("r", 2, None, ErrorCode.OVERLOADED)]) == 3
    assert contract.take([ToolCallArgsDelta("r", 3, None, "c", "{}")]) == 0
