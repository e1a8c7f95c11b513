"""Recorded streams in pieces and cut short: a fixed sample; `python -m tests.cuts` checks them all."""

from tests.corpus import body_of, needs_corpus
from tests.cuts import before_finish, cuts_of, require_prefixes_fail, require_same_in_pieces, streaming_records

pytestmark = needs_corpus

EVERY = 9


def sample(limit: int) -> list[int]:
    """Indices of every ninth streaming record that is not too long to be fed byte by byte in a moment."""
    records = streaming_records()
    return [index for index in range(0, len(records), EVERY) if len(body_of(records[index][1])) <= limit]


def test_a_recorded_stream_gives_equal_deltas_however_it_is_cut() -> None:
    records = streaming_records()
    chosen = sample(60_000)
    assert len(chosen) >= 8
    for index in chosen:
        protocol, record = records[index]
        require_same_in_pieces(protocol, record, seed=index, splits=5)


def test_a_recorded_stream_cut_before_its_finish_ends_in_one_error() -> None:
    records = streaming_records()
    checked = 0
    for index in sample(60_000):
        protocol, record = records[index]
        body = body_of(record)
        cuts = sorted(cuts_of(body, max(1, len(body) // 40)))
        checked += require_prefixes_fail(protocol, record, cuts[:: max(1, len(cuts) // 60)])
    assert checked >= 300


def test_the_finish_is_found_in_every_recorded_stream_that_has_one() -> None:
    unfinished = [
        record["id"]
        for protocol, record in streaming_records()
        if before_finish(protocol, body_of(record)) == len(body_of(record))
    ]
    assert all(record["expect"] is None for _, record in streaming_records() if record["id"] in unfinished)
