"""Several models behind one name: which one answers, what is told where all fail, what trace a failure leaves."""

import asyncio
import json
import logging
from collections.abc import Mapping
from types import MappingProxyType

import pytest

from dragoman.history import ClientAnswerEntry
from dragoman.store import MemoryStore, open_session
from dragoman.web.gateway.keys import Keys, ServeKey
from tests.gateway_stage import FRONTS, PROVIDERS, Exchange, Script, body_of, on_a_loop, path_of, staged, whole

CHAT, RESPONSES, MESSAGES = "openai-chat", "openai-responses", "anthropic-messages"
OVERLOADED = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'


def chain(first: str, second: str) -> tuple[str, str]:
    """Routes to a model of each of two APIs; requests to the first name it `first`."""
    return f"*={PROVIDERS[first]}:first", f"*={PROVIDERS[second]}:second"


def is_first(exchange: Exchange) -> bool:
    """Whether the upstream is asked for the first model."""
    return b'"first"' in exchange.body or "first:" in exchange.request.path


# ---------------------------------------------------------------- before the first content


@pytest.mark.parametrize("front", [MESSAGES, CHAT])
@pytest.mark.parametrize("first", FRONTS[:-1])  # an answer of Gemini has no start of its own
@on_a_loop
async def test_the_next_model_is_asked_where_the_first_breaks_off_before_its_words(front: str, first: str) -> None:
    async def script(exchange: Exchange) -> None:
        if not is_first(exchange):
            await whole(exchange)
            return
        exchange.closes = True
        await exchange.send(exchange.answer.opening)

    async with staged(*chain(first, CHAT), script=script) as stage:
        told = await stage.ask(front)
        assert (told.status, told.headers["x-dragoman-model"]) == (200, f"{PROVIDERS[CHAT]}:second")
        assert (b"Hello." in told.body, b"error" in told.body) == (True, False)


@on_a_loop
async def test_the_next_model_is_asked_where_the_first_fails_after_its_start() -> None:
    async def script(exchange: Exchange) -> None:
        await (exchange.send(exchange.answer.opening, OVERLOADED) if is_first(exchange) else whole(exchange))

    async with staged(*chain(MESSAGES, MESSAGES), script=script) as stage:
        told = await stage.ask(MESSAGES)
        assert (told.body.count(b"message_start"), b"Overloaded" in told.body) == (2, False)  # its name, and its type


@on_a_loop
async def test_an_answer_that_breaks_off_after_its_first_words_is_the_answer() -> None:
    said = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        exchange.closes = True
        await exchange.send(exchange.answer.opening + exchange.answer.piece)
        await said.wait()

    async with staged(*chain(MESSAGES, MESSAGES), script=script) as stage:
        async with stage.client.post(stage.url + path_of(MESSAGES), data=body_of(MESSAGES)) as told:
            assert b"Hello." in await told.content.readuntil(b"Hello.")
            said.set()
            assert b"event: error" in await told.read()
        assert stage.upstream.seen == 1


@on_a_loop
async def test_a_client_hears_signs_of_life_while_a_start_is_held_back() -> None:
    heard = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.send(exchange.answer.opening)
        await heard.wait()
        await exchange.send(exchange.answer.piece + exchange.answer.closing)

    async with (
        staged(*chain(CHAT, MESSAGES), script=script, silence_seconds=0.01) as stage,
        stage.client.post(stage.url + path_of(CHAT), data=body_of(CHAT)) as told,
    ):
        assert (await told.content.readuntil(b"\n\n")) == b": keep-alive\n\n"
        assert told.headers["x-dragoman-session"].startswith("chat-")
        assert "x-dragoman-model" not in told.headers  # the other one may answer
        heard.set()
        assert b"Hello." in await told.read()


# ---------------------------------------------------------------- where all of them fail


def refusing(first: int, second: int, fields: Mapping[str, str] = MappingProxyType({})) -> Script:
    """Refuse both models, the first with these fields of the head. A status of 0 closes the connection."""

    async def script(exchange: Exchange) -> None:
        status = first if is_first(exchange) else second
        if not status:
            assert exchange.request.transport is not None
            exchange.request.transport.abort()
            return
        exchange.fields = (
            {name.replace("_", "-"): value for name, value in fields.items()} if is_first(exchange) else {}
        )
        await exchange.send(b'{"error":{"message":"refused"}}', status=status, kind="application/json")

    return script


@pytest.mark.parametrize("stream", [True, False])
@on_a_loop
async def test_a_client_is_told_the_failure_that_it_can_wait_for(stream: bool) -> None:
    async with staged(*chain(CHAT, MESSAGES), script=refusing(429, 400)) as stage:
        assert ((await stage.ask(CHAT, stream=stream)).status, stage.upstream.seen) == (429, 2)
    async with staged(*chain(MESSAGES, CHAT), script=refusing(400, 429)) as stage:
        assert ((await stage.ask(CHAT, stream=stream)).status, stage.upstream.seen) == (400, 1)  # any model refuses it
    async with staged(*chain(CHAT, CHAT), script=refusing(401, 503)) as stage:
        assert (await stage.ask(CHAT, stream=stream)).status == 503


@pytest.mark.parametrize("first", [CHAT, MESSAGES])
@on_a_loop
async def test_a_client_is_told_how_long_to_wait_by_whichever_model(first: str) -> None:
    async with staged(*chain(first, CHAT), script=refusing(503, 0, {"retry-after": "7"})) as stage:
        told = await stage.ask(CHAT)
        assert (told.status, told.headers["retry-after"], stage.upstream.seen >= 2) == (503, "7", True)
        assert told.headers["x-dragoman-model"] == f"{PROVIDERS[first]}:first"


@on_a_loop
async def test_a_gateway_that_only_forwards_tells_what_the_vendor_said() -> None:
    async with staged(*chain(CHAT, MESSAGES), script=refusing(500, 500), translates=False) as stage:
        told = await stage.ask(CHAT)
        assert (told.status, told.error["message"], stage.upstream.seen) == (500, "refused", 1)
    async with staged(*chain(MESSAGES, CHAT), script=refusing(500, 401), translates=False) as stage:
        assert (await stage.ask(CHAT)).status == 401


# ---------------------------------------------------------------- what trace a failure leaves


async def _begin_and_break(exchange: Exchange) -> None:
    """The first model reports what it uses, and breaks off. The second answers."""
    if not is_first(exchange):
        await whole(exchange)
        return
    exchange.closes = True
    await exchange.send(exchange.answer.opening)


@pytest.mark.parametrize("front", [MESSAGES, CHAT])
@on_a_loop
async def test_a_model_that_failed_is_in_the_record_the_log_and_the_metrics(
    front: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dragoman.serve")
    store = MemoryStore()
    async with staged(*chain(MESSAGES, CHAT), script=_begin_and_break, store=store) as stage:
        told = await stage.ask(front)
        page = stage.gateway.metrics.page()
    first, second = f"{PROVIDERS[MESSAGES]}:first", f"{PROVIDERS[CHAT]}:second"
    tried = [{"model": first, "error": "stream_truncated", "input_tokens": 3, "output_tokens": 2}]
    (line,) = [json.loads(record.getMessage()) for record in caplog.records if '"answer"' in record.getMessage()]
    assert (line["model"], line["tried"]) == (second, tried)
    assert f'dragoman_failed_models_total{{model="{first}",code="stream_truncated"}} 1\n' in page
    for model in (first, second):
        assert f'dragoman_tokens_total{{model="{model}",kind="input"}} 3\n' in page
    session = await open_session(store, told.headers["x-dragoman-session"])
    (answer,) = (entry for entry in session.entries if isinstance(entry, ClientAnswerEntry))
    assert (answer.model, [dict(each) for each in answer.metadata["tried"]]) == (second, tried)


@on_a_loop
async def test_what_a_model_used_that_failed_counts_for_the_key() -> None:
    key = ServeKey.of("alice", "the-key-of-alice", tokens=8)
    async with staged(*chain(MESSAGES, CHAT), script=_begin_and_break, keys=Keys([key])) as stage:
        for status in (200, 429):
            headers = {"x-api-key": "the-key-of-alice"}
            async with stage.client.post(stage.url + path_of(CHAT), data=body_of(CHAT), headers=headers) as told:
                assert told.status == status
                await told.read()


@on_a_loop
async def test_every_model_that_refused_is_counted() -> None:
    async with staged(*chain(CHAT, MESSAGES), script=refusing(429, 500)) as stage:
        await stage.ask(CHAT)
        page = stage.gateway.metrics.page()
    assert f'dragoman_failed_models_total{{model="{PROVIDERS[CHAT]}:first",code="rate_limited"}} 1\n' in page
    assert f'dragoman_failed_models_total{{model="{PROVIDERS[MESSAGES]}:second",code="server_error"}} 1\n' in page


# ---------------------------------------------------------------- overflows

OVERFLOWS = {
    CHAT: "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens.",
    "gemini": "The input token count (9001) exceeds the maximum number of tokens allowed (8192).",
}


@pytest.mark.parametrize("api", OVERFLOWS)
@on_a_loop
async def test_an_overflow_has_the_two_sizes_that_claude_code_reads(api: str) -> None:
    async def script(exchange: Exchange) -> None:
        error = {"message": OVERFLOWS[api], "code": "context_length_exceeded" if api == CHAT else 400}
        await exchange.send(json.dumps({"error": error}).encode(), status=400, kind="application/json")

    async with staged(f"*={PROVIDERS[api]}:m", script=script) as stage:
        message = (await stage.ask(MESSAGES)).error["message"]
        assert message.startswith("prompt is too long: 9001 tokens > 8192 maximum")
