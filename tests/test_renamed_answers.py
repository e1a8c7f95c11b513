"""A passed answer under the client's own name for the model."""

import pytest

from dragoman.delta import DoneDelta, StartDelta
from dragoman.testing.recorded import decode_recorded
from dragoman.web.gateway.renaming import rename_body, rename_events, rename_request
from dragoman.wire import find_provider
from tests.wire_samples import KITS

NAME = "the-name-of-the-client"
RENAMED = ("anthropic-messages", "openai-chat", "openai-responses", "gemini")
STREAMS = [
    pytest.param(api, sample.body, id=f"{api}-{sample.name}")
    for api in RENAMED
    for sample in KITS[find_provider(api)][1]
    if "event-stream" in sample.content_type
]


@pytest.mark.parametrize(("api", "body"), STREAMS)
def test_a_stream_says_the_same_under_another_name(api: str, body: bytes) -> None:
    renamed = rename_events(body, api, NAME)
    before, after = (decode_recorded(api, each, content_type="text/event-stream") for each in (body, renamed))
    for one, other in zip(before, after, strict=True):
        if isinstance(one, StartDelta):
            assert isinstance(other, StartDelta)
            assert other.model_id == (NAME if one.model_id else "")
        elif not isinstance(one, DoneDelta):  # which repeats fields of the response
            assert one == other


def test_every_event_that_names_the_model_names_the_client_s() -> None:
    events = b'event: response.created\r\ndata: {"response":{"id":"r","model":"gpt-5.2"},"type":"x"}\r\n\r\n'
    expected = f'event: response.created\r\ndata: {{"response":{{"id":"r","model":"{NAME}"}},"type":"x"}}\r\n\r\n'
    assert rename_events(events, "openai-responses", NAME) == expected.encode()


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"type":"content_block_start","content_block":{"type":"tool_use","input":{"model":"T"}}}\n\n',
        b'data: {"type":"message_start","message":{"model":{"name":"T"}}}\n\n',
        b'data: {"type":"message_start","message":["model"]}\n\n',
        b'data: {"model": broken}\n\n',
        b": model\n\ndata: [DONE]\n\n",
    ],
)
def test_a_model_anywhere_else_keeps_its_name(event: bytes) -> None:
    assert rename_events(event, "anthropic-messages", NAME) == event


def test_every_other_value_stays_as_it_was_written() -> None:
    body = b'{"model":"gpt-4.1","temperature":1.0,"big":12345678901234567890123,"text":"\\u00e9\\/"}'
    expected = body.replace(b"gpt-4.1", NAME.encode())
    assert rename_request(body, NAME) == rename_body(body, "openai-chat", NAME) == expected
    assert rename_body(b"[1]", "openai-chat", NAME) == b"[1]"


def test_gemini_names_the_model_in_a_field_of_its_own() -> None:
    answer = b'{"candidates":[1.0],"modelVersion":"gemini-2.5-pro","model":"x"}'
    renamed = answer.replace(b"gemini-2.5-pro", NAME.encode())
    assert rename_events(b"data: " + answer + b"\r\n\r\n", "gemini", NAME) == b"data: " + renamed + b"\r\n\r\n"
    assert rename_body(answer, "gemini", NAME) == renamed
    assert rename_body(b"[" + answer + b",\n{}]", "gemini", NAME) == b"[" + renamed + b",{}]"
