"""The conformance kit, run over our codecs, and over codecs that each break one promise."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from dragoman import ErrorCode, FinishReason, ModelError, TokenUsage
from dragoman.request import ModelRequest, WireRequest
from dragoman.stream import Codec, EventDecoder
from dragoman.testing.conformance import (
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
from dragoman.wire.anthropic.requests import Encoder
from tests.wire_samples import ANTHROPIC, KITS, sse


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

    class Counted(Encoder):
        def write(self, request: ModelRequest) -> WireRequest:
            wire = super().write(request)
            return msgspec.structs.replace(wire, body=wire.body[:-1] + f',"request":{next(count)}}}'.encode())

    with pytest.raises(AssertionError, match="two renderings differ"):
        require_rendering(msgspec.structs.replace(CODEC, open_encoder=Counted), DIALECT, model="m")


def test_an_encoder_that_shares_its_state_with_a_copy_is_found() -> None:
    class Sharing(Encoder):
        def copy(self) -> "Sharing":
            return self

    with pytest.raises(AssertionError, match="what a copy was given"):
        require_rendering(msgspec.structs.replace(CODEC, open_encoder=Sharing), DIALECT, model="m")


def test_opaque_data_that_stays_home_is_found() -> None:
    class Forgetful(Encoder):
        def write(self, request: ModelRequest) -> WireRequest:
            wire = super().write(request)
            return msgspec.structs.replace(wire, body=wire.body.replace(b"c2lnbmF0dXJl", b"bG9zdA=="))

    with pytest.raises(AssertionError, match="does not go back"):
        require_replay(msgspec.structs.replace(CODEC, open_encoder=Forgetful), DIALECT, ANSWER, model="m")


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
