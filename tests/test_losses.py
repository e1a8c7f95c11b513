"""No event of an answer is lost in silence: written streams with every event, recorded ones with some of each kind.

`python -m tests.losses` loses each event of each recording.
"""

import pytest

from tests.corpus import needs_corpus
from tests.cuts import streaming_records
from tests.losses import is_less, kind_of, read, unnoticed
from tests.wire_streams import STREAMS, WireStream, recorded_stream

EVERY_STREAM = pytest.mark.parametrize("stream", STREAMS, ids=[stream.name for stream in STREAMS])


@EVERY_STREAM
def test_an_answer_without_one_of_its_events_is_never_silently_less(stream: WireStream) -> None:
    tried, found = unnoticed(stream)
    assert tried >= len(stream.events)
    assert not found


@needs_corpus
def test_a_recorded_answer_without_one_of_its_events_is_never_silently_less() -> None:
    tried, faults = 0, []
    for protocol, record in streaming_records():
        count, found = unnoticed(recorded_stream(protocol, record), most=3)
        tried += count
        faults += found
    assert tried >= 1_000
    assert not faults


@EVERY_STREAM
def test_a_stream_without_its_finish_is_never_done(stream: WireStream) -> None:
    finishes = {"message_delta", "message_stop", "messageStop", "finish", "response.completed"}
    places = [place for place, event in enumerate(stream.events) if kind_of(stream.protocol, event) in finishes]
    assert places
    for place in places:
        assert read(stream, {place}).error is not None


def test_what_is_lost_in_silence_is_found() -> None:
    whole = STREAMS[0]
    kinds = [kind_of(whole.protocol, event) for event in whole.events]
    assert is_less(read(whole), read(whole, {kinds.index("content_block_delta text_delta")}))
