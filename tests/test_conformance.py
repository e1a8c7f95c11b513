"""The conformance kit, run over three of our codecs, and over codecs that each break one promise."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from dragoman import ErrorCode, FinishReason, ModelError, TokenUsage, WireRequest
from dragoman.request import ModelRequest
from dragoman.stream import Codec, EventDecoder
from dragoman.testing.conformance import (
    WireSample,
    require_conformance,
    require_error_code,
    require_legal_stream,
    require_prefixes_fail,
    require_reading,
    require_rendering,
    require_replay,
    require_same_in_pieces,
)
from dragoman.wire import find_codec, find_dialect


def sse(*events: dict[str, Any], named: bool = False) -> bytes:
    lines = []
    for event in events:
        lines += [f"event: {event['type']}"] if named else []
        lines += [f"data: {json.dumps(event)}", ""]
    return "\n".join([*lines, ""]).encode()


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


ANTHROPIC = (
    WireSample(
        name="thinking, text and a call, streamed",
        body=sse(
            {
                "type": "message_start",
                "message": {
                    "id": "msg_1",
                    "model": "claude-sonnet-4-5",
                    "usage": {"input_tokens": 9, "output_tokens": 1},
                },
            },
            *block(
                0,
                {"type": "thinking", "thinking": "", "signature": ""},
                {"type": "thinking_delta", "thinking": "Where is Zürich?"},
                {"type": "signature_delta", "signature": "c2lnbmF0dXJl"},
            ),
            *block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "One moment 🌦"}),
            *block(
                2,
                {"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": {}},
                {"type": "input_json_delta", "partial_json": ""},
                {"type": "input_json_delta", "partial_json": '{"city": "Zür'},
                {"type": "input_json_delta", "partial_json": 'ich"}'},
            ),
            {"type": "ping"},
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 42}},
            {"type": "message_stop"},
            named=True,
        ),
        thinking="Where is Zürich?",
        text="One moment 🌦",
        tool_calls=(("toolu_1", "look_up", {"city": "Zürich"}),),
        finish_reason=FinishReason.TOOL_CALLS,
        finish=b'"type": "message_stop"',
        opaque=("c2lnbmF0dXJl",),
    ),
    WireSample(
        name="redacted thinking, whole",
        content_type="application/json",
        body=json.dumps(
            {
                "id": "msg_2",
                "type": "message",
                "role": "assistant",
                "model": "claude-sonnet-4-5",
                "content": [{"type": "redacted_thinking", "data": "b3BhcXVl"}, {"type": "text", "text": "Hello."}],
                "stop_reason": "end_turn",
                "usage": {"input_tokens": 3, "output_tokens": 4},
            }
        ).encode(),
        text="Hello.",
        finish=b"}",
        opaque=("b3BhcXVl",),
    ),
    WireSample(
        name="overloaded",
        status=529,
        content_type="application/json",
        body=b'{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}',
        error=ErrorCode.OVERLOADED,
    ),
    WireSample(
        name="overloaded inside a stream",
        body=sse({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, named=True),
        error=ErrorCode.OVERLOADED,
    ),
)


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def call_piece(index: int, arguments: str, **first: Any) -> dict[str, Any]:
    function = {"arguments": arguments, **({"name": first.pop("name")} if "name" in first else {})}
    return {"index": index, **first, "function": function}


CHAT = (
    WireSample(
        name="two calls, streamed",
        body=sse(
            chunk(role="assistant", content=None),
            chunk(content="Both: "),
            chunk(tool_calls=[call_piece(0, "", id="call_a", type="function", name="look_up")]),
            chunk(tool_calls=[call_piece(0, '{"city": "Oslo"}')]),
            chunk(tool_calls=[call_piece(1, "{}", id="call_b", type="function", name="wait")]),
            chunk("tool_calls"),
            {"id": "c", "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}},
        )
        + b"data: [DONE]\n\n",
        text="Both: ",
        tool_calls=(("call_a", "look_up", {"city": "Oslo"}), ("call_b", "wait", {})),
        finish_reason=FinishReason.TOOL_CALLS,
        finish=b'"finish_reason": "tool_calls"',
        usage=TokenUsage(input_tokens=7, output_tokens=5, total_tokens=12),
    ),
    WireSample(
        name="cut by its length, whole",
        content_type="application/json",
        body=json.dumps(
            {"id": "c", "choices": [{"index": 0, "message": {"content": "Once"}, "finish_reason": "length"}]}
        ).encode(),
        text="Once",
        finish_reason=FinishReason.LENGTH,
        finish=b"}",
    ),
    WireSample(
        name="unknown key",
        status=401,
        content_type="application/json",
        body=b'{"error": {"message": "Incorrect API key", "type": "invalid_request_error", "code": "invalid_api_key"}}',
        error=ErrorCode.AUTHENTICATION,
    ),
)

GEMINI = (
    WireSample(
        name="a signed call, streamed",
        body=sse(
            {"candidates": [{"content": {"role": "model", "parts": [{"text": "So: "}]}}]},
            {
                "candidates": [
                    {
                        "content": {
                            "role": "model",
                            "parts": [
                                {
                                    "functionCall": {"name": "look_up", "args": {"city": "Oslo"}},
                                    "thoughtSignature": "c2lnbmF0dXJl",
                                }
                            ],
                        },
                        "finishReason": "STOP",
                    }
                ],
                "usageMetadata": {"promptTokenCount": 4, "candidatesTokenCount": 3, "totalTokenCount": 7},
            },
        ),
        text="So: ",
        tool_calls=((None, "look_up", {"city": "Oslo"}),),
        finish_reason=FinishReason.TOOL_CALLS,
        finish=b'"finishReason": "STOP"',
        opaque=("c2lnbmF0dXJl",),
    ),
    WireSample(
        name="too many requests",
        status=429,
        content_type="application/json",
        body=b'{"error": {"code": 429, "message": "Slow down.", "status": "RESOURCE_EXHAUSTED"}}',
        error=ErrorCode.RATE_LIMITED,
    ),
)

KITS = {
    "anthropic": ("claude-sonnet-4-5", ANTHROPIC),
    "openai-chat": ("gpt-4.1", CHAT),
    "groq": ("llama-3.3-70b-versatile", CHAT),
    "google": ("gemini-3-pro-preview", GEMINI),
}


@pytest.mark.parametrize("provider", KITS)
def test_our_codecs_conform(provider: str) -> None:
    model, samples = KITS[provider]
    dialect = find_dialect(provider, model)
    assert require_conformance(find_codec(dialect.specification), dialect, samples, model=model) >= 8


# Codecs that break one promise each: the check that is there for it must see it.

CODEC = find_codec("anthropic-messages")
DIALECT = find_dialect("anthropic")
ANSWER, FAILURE = ANTHROPIC[0], ANTHROPIC[2]


class _Altered:
    """A decoder that behaves as another does, but for what a subclass changes."""

    def __init__(self, inner: EventDecoder, writer: Any) -> None:
        self.inner = inner
        self.writer = writer

    @property
    def unknown_events(self) -> int:
        return self.inner.unknown_events

    def decode(self, events: Any) -> None:
        self.inner.decode(events)

    def decode_body(self, body: bytes) -> None:
        self.inner.decode_body(body)

    def end(self) -> None:
        self.inner.end()


class _Optimist(_Altered):
    """Takes the end of the bytes for the end of the answer."""

    def end(self) -> None:
        self.inner.decode(STOP)


class _ByChunk(_Altered):
    """Skips what comes in one chunk with something else."""

    def decode(self, events: Any) -> None:
        self.inner.decode(events[-1:])


class _Raising(_Altered):
    """Has a bug."""

    def decode(self, events: Any) -> None:
        raise KeyError("choices")


def _stop_events() -> list[Any]:
    from dragoman.stream import SseParser

    parser = SseParser()
    stop = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}}
    return list(parser.feed(sse(stop, {"type": "message_stop"}, named=True)))


STOP = _stop_events()


def altered(decoder: type[_Altered]) -> Codec:
    return msgspec.structs.replace(
        CODEC, open_decoder=lambda writer, dialect: decoder(CODEC.open_decoder(writer, dialect), writer)
    )


def test_a_decoder_that_takes_any_end_for_the_finish_is_found() -> None:
    with pytest.raises(AssertionError, match="ends in done"):
        require_prefixes_fail(altered(_Optimist), DIALECT, ANSWER)


def test_a_decoder_that_depends_on_chunks_is_found() -> None:
    with pytest.raises(AssertionError, match="it reads otherwise"):
        require_same_in_pieces(altered(_ByChunk), DIALECT, ANSWER)


def test_a_decoder_that_raises_is_found() -> None:
    with pytest.raises(AssertionError, match="the decoder raised KeyError"):
        require_legal_stream(altered(_Raising), DIALECT, ANSWER)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("text", "Another."),
        ("thinking", ""),
        ("tool_calls", (("toolu_1", "look_up", {}),)),
        ("tool_calls", (("toolu_2", "look_up", {"city": "Zürich"}),)),
        ("finish_reason", FinishReason.STOP),
        ("usage", TokenUsage(input_tokens=1)),
    ],
)
def test_an_answer_read_otherwise_than_its_sample_says_is_found(field: str, value: Any) -> None:
    sample = msgspec.structs.replace(ANSWER, **{field: value})
    with pytest.raises(AssertionError, match=f"^{ANSWER.name}: (?:{field}|ids) is "):
        require_reading(CODEC, DIALECT, sample)


def test_an_error_with_another_code_is_found() -> None:
    def misnamed(status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
        return ModelError("no", code=ErrorCode.INTERNAL)

    with pytest.raises(AssertionError, match="it ends in 'internal'"):
        require_error_code(msgspec.structs.replace(CODEC, map_error=misnamed), DIALECT, FAILURE)
    with pytest.raises(AssertionError, match="it ends in 'done'"):
        require_error_code(CODEC, DIALECT, ANSWER)


def test_a_rendering_that_differs_from_call_to_call_is_found() -> None:
    count = iter(range(9))

    def counted(request: ModelRequest, dialect: Any) -> WireRequest:
        wire = CODEC.encode_request(request, dialect)
        return msgspec.structs.replace(wire, body=wire.body[:-1] + f',"request":{next(count)}}}'.encode())

    with pytest.raises(AssertionError, match="two renderings differ"):
        require_rendering(msgspec.structs.replace(CODEC, encode_request=counted), DIALECT, model="m")


def test_opaque_data_that_stays_home_is_found() -> None:
    def forgetful(request: ModelRequest, dialect: Any) -> WireRequest:
        wire = CODEC.encode_request(request, dialect)
        return msgspec.structs.replace(wire, body=wire.body.replace(b"c2lnbmF0dXJl", b"bG9zdA=="))

    with pytest.raises(AssertionError, match="does not go back"):
        require_replay(msgspec.structs.replace(CODEC, encode_request=forgetful), DIALECT, ANSWER, model="m")


def test_opaque_data_that_goes_with_a_foreign_turn_is_found() -> None:
    sample = msgspec.structs.replace(ANSWER, opaque=("One moment",))
    with pytest.raises(AssertionError, match="goes where it was not made"):
        require_replay(CODEC, DIALECT, sample, model="m")


def test_a_sample_must_say_where_its_finish_is() -> None:
    with pytest.raises(AssertionError, match="must be bytes of the body"):
        require_prefixes_fail(CODEC, DIALECT, msgspec.structs.replace(ANSWER, finish=b"nowhere"))


def test_samples_without_an_answer_prove_nothing() -> None:
    with pytest.raises(AssertionError, match="hold no answer"):
        require_conformance(CODEC, DIALECT, [FAILURE], model="m")
