"""Several models behind one name: which one answers, what is told where all of them fail, what trace a failure leaves."""

import asyncio
import json

import pytest

from tests.gateway_stage import FRONTS, PROVIDERS, Exchange, on_a_loop, staged, whole

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
async def test_the_next_model_is_asked_where_the_first_breaks_off_before_its_first_words(
    front: str, first: str
) -> None:
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
        body = json.dumps(
            {"model": "m", "stream": True, "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
        )
        async with stage.client.post(f"{stage.url}/v1/messages", data=body) as told:
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

    async with staged(*chain(CHAT, MESSAGES), script=script, silence_seconds=0.01) as stage:
        body = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]})
        async with stage.client.post(f"{stage.url}/v1/chat/completions", data=body) as told:
            assert (await told.content.readuntil(b"\n\n")) == b": keep-alive\n\n"
            heard.set()
            assert b"Hello." in await told.read()
