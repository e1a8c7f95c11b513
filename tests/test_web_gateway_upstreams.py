"""Upstreams that answer as none should: their clients get an error of their own API, and never the gateway's key."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dragoman import MemoryStore, Model, model
from dragoman.history import ClientAnswerEntry, InterruptionEntry, ModelOutputEntry
from dragoman.transport.protocol import HttpRequest, Timeouts
from tests.gateway_stage import FRONTS, KEY, Exchange, Script, answers, line, on_a_loop, staged, written

each_front = pytest.mark.parametrize("api", FRONTS)


def answering(body: bytes, *, status: int = 200, kind: str = "application/json", **fields: str) -> Script:
    """Answer every request with this."""

    async def answer(exchange: Exchange) -> None:
        exchange.fields = fields
        await exchange.send(body, status=status, kind=kind)

    return answer


@each_front
@pytest.mark.parametrize("status", [302, 304, 600, 999])
@on_a_loop
async def test_a_status_that_no_answer_has_is_a_bad_gateway(api: str, status: int) -> None:
    async with staged(script=answering(b"{}" if status != 304 else b"", status=status)) as stage:
        for stream in (True, False):
            told = await stage.ask(api, stream=stream)
            assert (told.status, bool(told.error["message"])) == (502, True)


@each_front
@pytest.mark.parametrize("body", [b"null", b"3", b'"text"', b'{"id": "\xff"}', b"", b'{"id": 1'])
@on_a_loop
async def test_a_whole_body_that_is_no_object_is_no_answer(api: str, body: bytes) -> None:
    async with staged(script=answering(body)) as stage:
        told = await stage.ask(api, stream=False)
        assert (told.status, bool(told.error["message"])) == (502, True)


@each_front
@pytest.mark.parametrize("status", [200, 429])
@on_a_loop
async def test_a_field_of_an_answer_tells_no_client_the_gateways_key(api: str, status: int) -> None:
    fields = {"x-request-id": f"of-{KEY}", "openai-organization": KEY}
    async with staged(script=answering(b'{"error": {"message": "no"}}', status=status, **fields)) as stage:
        told = await stage.ask(api, stream=False)
        assert told.headers["x-request-id"] == "of-[redacted]"
        assert KEY not in repr(told)


# The words by which a client of each API knows that an answer is finished.
FINISHES = {
    "anthropic-messages": (b"end_turn", b"message_stop"),
    "openai-responses": (b"response.completed",),
    "openai-chat": (b'"finish_reason": "stop"', b"[DONE]"),
    "gemini": (b"finishReason",),
}
UNREADABLE = b"data: {broken\n\n"


@each_front
@on_a_loop
async def test_an_answer_that_breaks_off_after_its_finish_tells_none(api: str) -> None:
    closing = answers("Hello.")[api].closing.split(b"\n\n")
    first = closing[: 2 if api == "anthropic-messages" else 1]  # for Messages with the stop reason
    await require_no_finish(api, b"\n\n".join(first) + b"\n\n" + UNREADABLE)


@each_front
@on_a_loop
async def test_an_answer_with_an_event_that_cannot_be_read_tells_no_finish(api: str) -> None:
    _, piece, closing = answers("Hello.")[api]
    await require_no_finish(api, UNREADABLE + piece + closing)


@on_a_loop
async def test_an_answer_that_ends_without_its_reason_tells_no_end() -> None:
    await require_no_finish("openai-chat", b"data: [DONE]\n\n")


@on_a_loop
async def test_a_finish_inside_of_a_call_is_a_cut_and_one_for_length_is_the_vendor_s_own() -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    half = {"type": "input_json_delta", "partial_json": '{"all": tr'}
    events: list[dict[str, Any]] = [
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": call},
        {"type": "content_block_delta", "index": 1, "delta": half},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ]
    rest = b"".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in events)
    await require_no_finish("anthropic-messages", rest)
    cut = await told_in_two_steps("anthropic-messages", MemoryStore(), rest.replace(b'"tool_use"}', b'"max_tokens"}'))
    assert b"message_stop" in cut


async def require_no_finish(api: str, rest: bytes) -> None:
    """Require that a stream which goes on so ends in an error without a finish, for the client and in the record."""
    store = MemoryStore()
    told = await told_in_two_steps(api, store, rest)
    assert b'"error"' in told
    assert [word for word in FINISHES[api] if word in told] == []
    (info,) = (await store.list()).sessions
    *_, interruption, answer = await store.load(info.session_id)
    assert isinstance(interruption, InterruptionEntry)
    assert isinstance(answer, ClientAnswerEntry)


async def told_in_two_steps(api: str, store: MemoryStore, *rest: bytes) -> bytes:
    """Return all that a client gets, if the upstream sends the rest after the client has read the first text."""
    has_read = asyncio.Event()

    async def send(exchange: Exchange) -> None:
        await exchange.send(exchange.answer.opening + exchange.answer.piece)
        await has_read.wait()
        for piece in rest:
            await exchange.send(piece)

    async with staged(script=send, store=store) as stage, line(stage.port) as connection:
        await connection.send(written(api, None, "Connection: close"))
        told = await connection.reader.readuntil(b"Hello.")
        has_read.set()
        return told + await connection.rest()


@each_front
@on_a_loop
async def test_a_whole_answer_is_delivered_with_all_that_follows_its_finish(api: str) -> None:
    store, closing = MemoryStore(), answers("Hello.")[api].closing
    told = await told_in_two_steps(api, store, *(event + b"\n\n" for event in closing.split(b"\n\n")[:-1]))
    (info,) = (await store.list()).sessions
    *_, output, answer = await store.load(info.session_id)
    assert isinstance(output, ModelOutputEntry)
    assert isinstance(answer, ClientAnswerEntry)
    assert answer.body.endswith(closing)
    assert all(word in told for word in FINISHES[api])


class BrokenTransport:
    """A transport with a bug: its body ends in an exception of any kind."""

    def __init__(self, opening: bytes) -> None:
        self._opening = opening

    async def send(self, request: HttpRequest, timeouts: Timeouts) -> "BrokenResponse":
        return BrokenResponse(self._opening)

    async def close(self) -> None:
        pass


class BrokenResponse:
    def __init__(self, opening: bytes) -> None:
        self.status = 200
        self.headers = {"content-type": "text/event-stream"}
        self._opening = opening

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self._opening
        raise RuntimeError("a bug in a transport")

    async def close(self) -> None:
        pass


@each_front
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@on_a_loop
async def test_a_bug_in_the_middle_of_a_stream_ends_it_with_an_error_and_is_recorded(api: str) -> None:
    store, answer = MemoryStore(), answers("Hello.")[api]

    def open_model(name: str) -> Model:
        transport = BrokenTransport(answer.opening + answer.piece)
        return model(name, base_url="http://127.0.0.1:9/v1", api_key=KEY, transport=transport)

    async with staged(store=store, open_model=open_model) as stage:
        told = await stage.ask(api)
    assert (told.status, b"Hello." in told.body, b'"error"' in told.body) == (200, True, True)
    assert b"HTTP/1.1" not in told.body
    (info,) = (await store.list()).sessions
    *_, interruption, _ = await store.load(info.session_id)
    assert isinstance(interruption, InterruptionEntry)


@on_a_loop
async def test_a_response_to_repeated_words_is_continued_with_what_was_said_up_to_it() -> None:
    async with staged("*=openai-chat:gpt-5") as stage:

        async def ask(said: str, previous: str = "") -> str:
            more = {"previous_response_id": previous} if previous else {}
            told = await stage.ask("openai-responses", stream=False, said=said, **more)
            return str(json.loads(told.body)["id"])

        first = await ask("hi")
        await ask("between us", first)
        again = await ask("hi")
        await ask("what did I say?", again)
        asked = json.loads(stage.upstream.bodies[-1])["messages"]
        assert [message["content"] for message in asked] == ["hi", "Hello.", "what did I say?"]
