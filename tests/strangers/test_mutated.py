"""Changed answers end legally and in a documented way: 10,000 in every run, the same ones each time."""

import pytest

from tests.strangers.mutated import CHANGES, STREAM_CHANGES, Fault, require_legal_end, run
from tests.wire_streams import STREAMS, WireStream


@pytest.mark.slow
def test_a_changed_answer_ends_legally_and_in_a_documented_way() -> None:
    faults = []
    for number in range(10_000):
        try:
            run(number, seed=15)
        except Fault as fault:
            faults.append(str(fault))
    assert not faults, f"{len(faults)} broke a promise: {faults[:5]}"


def test_every_kind_of_change_is_tried_and_some_answers_survive() -> None:
    ends = [run(number, seed=0) for number in range(300)]
    assert {change for _, change in ends} == {change.__name__ for change in (*CHANGES, *STREAM_CHANGES)}
    assert {"done", "protocol_violation", "stream_truncated"} <= {end for end, _ in ends}


@pytest.mark.parametrize("stream", STREAMS, ids=[stream.name for stream in STREAMS])
def test_an_answer_that_was_not_changed_is_done(stream: WireStream) -> None:
    assert require_legal_end(stream, stream.events) == "done"
