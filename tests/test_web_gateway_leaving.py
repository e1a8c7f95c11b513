"""Clients that leave, that do not read, and that are kept waiting."""

import asyncio
import os
import random
import re
import socket
from pathlib import Path

import pytest

from dragoman.web.connections import ConnectionLimits
from dragoman.web.gateway.fronts import FRONTS as FRONT_OF
from tests.gateway_stage import (
    ANSWERS,
    FRONTS,
    PROVIDERS,
    Exchange,
    Script,
    Stage,
    body_of,
    endless,
    line,
    on_a_loop,
    path_of,
    silent,
    staged,
    told_by,
    until,
    whole,
    written,
)
from tests.written_answers import assembled, read

each_front = pytest.mark.parametrize("api", FRONTS)
each_way = pytest.mark.parametrize("way", ["passed", "translated"])
MB = 1 << 20


def routes_for(api: str, way: str) -> tuple[str, ...]:
    """Return the routes that make a front pass bytes, or translate them."""
    other = FRONTS[(FRONTS.index(api) + 1) % len(FRONTS)]
    return () if way == "passed" else (f"*={PROVIDERS[other]}:m",)


async def rest_of(stage: Stage) -> None:
    """Wait until nothing of a client is left."""
    await stage.upstream.until(lambda upstream: upstream.open == 0)
    await until(lambda: not stage.gateway.metrics.under_way and not stage.gateway.metrics.held())


# ---------------------------------------------------------------- clients that leave


@each_front
@each_way
@pytest.mark.parametrize("script", [silent, endless], ids=["before", "inside"])
@on_a_loop
async def test_the_upstream_is_closed_when_a_client_leaves(api: str, way: str, script: Script) -> None:
    async with staged(*routes_for(api, way), script=script) as stage:
        async with line(stage.port) as connection:
            await connection.send(written(api))
            await stage.upstream.until(lambda upstream: upstream.open == 1)
            if script is endless:
                await connection.reader.readuntil(b"Hello.")
        await rest_of(stage)


@each_front
@each_way
@on_a_loop
async def test_the_upstream_of_a_whole_answer_is_closed_too(api: str, way: str) -> None:
    async with staged(*routes_for(api, way), script=silent) as stage:
        async with line(stage.port) as connection:
            await connection.send(written(api, stream=False))
            await stage.upstream.until(lambda upstream: upstream.open == 1)
        await rest_of(stage)


@on_a_loop
async def test_a_client_that_leaves_during_its_body_leaves_nothing() -> None:
    async with staged() as stage:
        async with line(stage.port) as connection:
            await connection.send(written("openai-chat")[:-5])
            await until(lambda: stage.gateway.metrics.held() > 0)
        await rest_of(stage)
        assert stage.upstream.seen == 0


@on_a_loop
async def test_clients_that_leave_at_any_moment_leave_nothing() -> None:
    chance = random.Random(7)

    async def paced(exchange: Exchange) -> None:
        exchange.closes = True
        await exchange.send(exchange.answer.opening)
        for _ in range(20):
            await asyncio.sleep(0)
            await exchange.send(exchange.answer.piece)
        await exchange.send(exchange.answer.closing)

    async def leave(stage: Stage) -> None:
        request = written(chance.choice(FRONTS), stream=chance.random() < 0.8)
        async with line(stage.port) as connection:
            await connection.send(request[: chance.randrange(len(request)) if chance.random() < 0.3 else None])
            for _ in range(chance.randrange(60)):
                await asyncio.sleep(0)

    async with staged("*=anthropic:m", script=paced) as stage:
        await stage.ask("openai-chat")  # opens what stays open
        await stage.client.get(stage.url + "/healthz")
        await rest_of(stage)
        tasks, files = len(asyncio.all_tasks()), _open_files()
        await asyncio.gather(*(leave(stage) for _ in range(150)))
        await rest_of(stage)
        await until(lambda: len(asyncio.all_tasks()) <= tasks and _open_files() <= files)
        assert (await stage.ask("openai-chat")).status == 200


def _open_files() -> int:
    return sum(1 for _ in Path(f"/proc/{os.getpid()}/fd").iterdir())


# ---------------------------------------------------------------- clients that do not read


@each_way
@on_a_loop
async def test_a_client_that_does_not_read_stops_its_upstream(way: str) -> None:
    sent = 0

    async def flood(exchange: Exchange) -> None:
        nonlocal sent
        pieces = exchange.answer.piece * (MB // len(exchange.answer.piece))
        await exchange.send(exchange.answer.opening)
        while True:
            await exchange.send(pieces)
            sent += len(pieces)

    limits = ConnectionLimits(stall_seconds=1.0)
    async with staged(*routes_for("openai-chat", way), script=flood, limits=limits) as stage:
        sock = socket.create_connection(("127.0.0.1", stage.port))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        sock.sendall(written("openai-chat"))
        await stage.upstream.until(lambda upstream: upstream.seen == 1)
        await rest_of(stage)  # the gateway gave the client up
        sock.close()
        assert sent < 40 * MB
        stage.upstream.script = whole
        assert (await stage.ask("openai-chat")).status == 200


@on_a_loop
async def test_a_client_that_reads_slowly_gets_everything() -> None:
    count = 40

    async def large(exchange: Exchange) -> None:
        pieces = exchange.answer.piece * (MB // 4 // len(exchange.answer.piece))
        await exchange.send(exchange.answer.opening)
        for _ in range(count):
            await exchange.send(pieces)
        await exchange.send(exchange.answer.closing)

    async with staged(script=large) as stage:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, ("127.0.0.1", stage.port))
        await loop.sock_sendall(sock, written("openai-chat", None, "Connection: close"))
        got = bytearray()
        while data := await loop.sock_recv(sock, 16 << 10):
            got += data
        sock.close()
        piece = ANSWERS["openai-chat"].piece
        assert got.count(b"Hello.") == count * (MB // 4 // len(piece))
        assert b"[DONE]" in got


# ---------------------------------------------------------------- clients that wait


def _waiting(count: int) -> tuple[Script, asyncio.Event]:
    """A script that sends this many parts of its answer at once, and the rest when it is told to."""
    ready = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        parts = [exchange.answer.opening + exchange.answer.piece, exchange.answer.closing]
        if count:
            await exchange.send(*parts[:count])
        await ready.wait()
        await exchange.send(*parts[count:])

    return script, ready


@pytest.mark.parametrize("api", [api for api in FRONTS if FRONT_OF[api].keep_alive])
@each_way
@pytest.mark.parametrize("count", [0, 1], ids=["before", "inside"])
@on_a_loop
async def test_a_client_hears_that_its_answer_is_under_way(api: str, way: str, count: int) -> None:
    script, ready = _waiting(count)
    async with staged(*routes_for(api, way), script=script, silence_seconds=0.05) as stage:
        async with line(stage.port) as connection:
            await connection.send(written(api, None, "Connection: close"))
            for _ in range(2):
                await connection.reader.readuntil(FRONT_OF[api].keep_alive)
            ready.set()
            await connection.rest()
        ready.set()
        told = await stage.ask(api)
        answer = assembled(read(told.body, api, stream=True)).message
        assert answer is not None
        assert answer.text == "Hello."


@on_a_loop
async def test_keep_alive_is_a_line_that_the_api_s_clients_skip() -> None:
    for api in FRONTS:
        body = FRONT_OF[api].keep_alive.join([ANSWERS[api].opening, ANSWERS[api].piece, ANSWERS[api].closing])
        answer = assembled(read(body, api, stream=True)).message
        assert answer is not None
        assert answer.text.startswith("Hello.")


@each_way
@on_a_loop
async def test_gemini_s_clients_are_kept_waiting_in_silence(way: str) -> None:
    script, ready = _waiting(0)
    async with staged(*routes_for("gemini", way), script=script, silence_seconds=0.02) as stage:
        asking = asyncio.ensure_future(stage.ask("gemini"))
        async with line(stage.port) as other:
            await other.send(written("openai-chat"))
            for _ in range(3):  # meanwhile another client has heard this often that it has to wait
                await other.reader.readuntil(FRONT_OF["openai-chat"].keep_alive)
            ready.set()
        assert all(event.startswith(b"data:") for event in (await asking).body.strip().split(b"\n\n"))


@pytest.mark.parametrize("api", [api for api in FRONTS if FRONT_OF[api].keep_alive])
@each_way
@on_a_loop
async def test_a_refusal_after_a_keep_alive_is_an_error_of_the_stream(api: str, way: str) -> None:
    ready = asyncio.Event()

    async def refuse(exchange: Exchange) -> None:
        await ready.wait()
        await exchange.send(b'{"error": {"message": "busy"}}', status=500, kind="application/json")

    async with staged(*routes_for(api, way), script=refuse, silence_seconds=0.05) as stage:
        status, body = await _ask_raw(stage, api, ready)
        assert status == 200
        assert assembled(read(body, api, stream=True)).error is not None
        if api == "openai-responses":
            kinds = re.findall(rb"^event: (\S+)", body, re.MULTILINE)
            assert kinds == [b"response.created", b"response.in_progress", b"response.failed"]


async def _ask_raw(stage: Stage, api: str, ready: asyncio.Event) -> tuple[int, bytes]:
    async with stage.client.post(stage.url + path_of(api), data=body_of(api)) as response:
        ready.set()  # the head is here, so a keep-alive has been sent
        told = await told_by(response)
        return told.status, told.body
