"""The end of a gateway: open answers end in an error of their API, and the process ends in time."""

import asyncio
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dragoman.errors import ErrorCode
from dragoman.history import ClientAnswerEntry, InterruptionEntry
from dragoman.store import Head, MemoryStore
from dragoman.web.gateway.fronts import FRONTS as FRONTS_SERVED
from tests.gateway_stage import (
    FRONTS,
    PROVIDERS,
    Exchange,
    Served,
    Stage,
    Told,
    Upstream,
    body_of,
    endless,
    head,
    line,
    on_a_loop,
    path_of,
    served,
    silent,
    staged,
    told_by,
    until,
    upstream_server,
    written,
)
from tests.web_cases import all_sessions
from tests.written_answers import assembled, read

each_front = pytest.mark.parametrize("api", FRONTS)
each_way = pytest.mark.parametrize("way", ["passed", "translated"])
LONGEST = 10.0  # seconds from the signal to the end of the process


def routes_for(api: str, way: str) -> tuple[str, ...]:
    """Return the routes that make a front pass bytes, or translate them."""
    other = FRONTS[(FRONTS.index(api) + 1) % len(FRONTS)]
    return () if way == "passed" else (f"*={PROVIDERS[other]}:m",)


async def opened(stage: Stage, api: str) -> "asyncio.Task[Told]":
    """Begin a stream; return the task that reads it when its first text is here."""
    begun = asyncio.Event()

    async def ask() -> Told:
        async with stage.client.post(stage.url + path_of(api), data=body_of(api)) as response:
            return await told_by(response, lambda body: begun.set() if b"Hello." in body else None)

    task = asyncio.ensure_future(ask())
    await begun.wait()
    return task


@each_front
@each_way
@on_a_loop
async def test_an_open_stream_ends_in_an_error_of_its_api(api: str, way: str) -> None:
    async with staged(*routes_for(api, way), script=endless) as stage:
        answer = await opened(stage, api)
        await stage.gateway.stop()
        told = await answer
        came = assembled(read(told.body, api, stream=True))
        assert came.message is None
        assert came.error is not None
        assert came.partial is not None
        assert came.partial.text == "Hello."
        assert b"being stopped" in told.body
        assert told.is_torn is FRONTS_SERVED[api].breaks_off
        await stage.upstream.until(lambda upstream: upstream.open == 0)


@each_way
@on_a_loop
async def test_the_last_event_of_responses_goes_on_with_id_and_numbers(way: str) -> None:
    async with staged(*routes_for("openai-responses", way), script=endless) as stage:
        answer = await opened(stage, "openai-responses")
        await stage.gateway.stop()
        events = [json.loads(data) for data in re.findall(rb"^data: (.*)", (await answer).body, re.MULTILINE)]
        assert events[-1]["type"] == "response.failed"
        assert events[-1]["response"]["id"] == events[0]["response"]["id"]
        numbers = [event["sequence_number"] for event in events]
        assert numbers == sorted(set(numbers))


@each_way
@on_a_loop
async def test_a_cut_upstream_goes_on_with_id_and_numbers_too(way: str) -> None:
    async def cut(exchange: Exchange) -> None:
        await exchange.send(exchange.answer.opening + exchange.answer.piece)

    async with staged(*routes_for("openai-responses", way), script=cut) as stage:
        body = (await stage.ask("openai-responses")).body
        events = [json.loads(data) for data in re.findall(rb"^data: (.*)", body, re.MULTILINE)]
        assert events[-1]["type"] == "response.failed"
        assert events[-1]["response"]["id"] == events[0]["response"]["id"]
        numbers = [event["sequence_number"] for event in events]
        assert numbers == sorted(set(numbers))


@each_front
@each_way
@on_a_loop
async def test_what_has_not_begun_is_refused_with_a_status(api: str, way: str) -> None:
    async with staged(*routes_for(api, way), script=silent) as stage:
        asking = [asyncio.ensure_future(stage.ask(api, stream=stream)) for stream in (True, False)]
        await stage.upstream.until(lambda upstream: upstream.open == 2)
        await stage.gateway.stop()
        for told in await asyncio.gather(*asking):
            assert told.status in (503, 529)
            assert "being stopped" in told.error["message"]


@each_front
@on_a_loop
async def test_a_request_whose_body_is_under_way_is_refused_with_a_status(api: str) -> None:
    async with staged() as stage, line(stage.port) as connection:
        await connection.send(head(api, "Content-Length: 100") + b"{")
        await until(lambda: stage.gateway.metrics.held() > 0)
        await stage.gateway.stop()
        assert (await connection.answer()).status in (503, 529)


@on_a_loop
async def test_a_gateway_that_stops_takes_nothing_more() -> None:
    async with staged() as stage:
        await stage.gateway.stop()
        assert (await stage.ask("openai-chat")).status in (503, 529)
        async with stage.client.get(stage.url + "/healthz") as response:
            assert await response.json() == {"status": "stopping"}
        assert stage.upstream.seen == 0


@on_a_loop
async def test_what_had_come_is_recorded() -> None:
    store = MemoryStore()
    async with staged(script=endless, store=store) as stage:
        answer = await opened(stage, "openai-chat")
        await stage.gateway.stop()
        told = await answer
        (session,) = await all_sessions(store)
        entries = session.entries
        (given,) = [entry for entry in entries if isinstance(entry, ClientAnswerEntry)]
        (cut,) = [entry for entry in entries if isinstance(entry, InterruptionEntry)]
        assert (given.body, given.is_whole, cut.reason) == (told.body, False, ErrorCode.OVERLOADED)


@pytest.mark.slow
@on_a_loop
async def test_a_store_that_hangs_keeps_no_client_waiting_for_the_end() -> None:
    class Hanging(MemoryStore):
        hangs = False

        async def append(self, *arguments: Any, **options: Any) -> Head:
            if self.hangs:
                await asyncio.Event().wait()
            return await super().append(*arguments, **options)

    store = Hanging()
    async with staged(script=endless, store=store) as stage:
        answer = await opened(stage, "openai-chat")
        store.hangs = True
        await stage.gateway.stop()
        assert b"being stopped" in (await answer).body


@pytest.mark.parametrize("way", ["passed", "translated"])
@on_a_loop
async def test_an_answer_that_has_come_is_finished(way: str) -> None:
    is_recording, goes_on = asyncio.Event(), asyncio.Event()

    class Slow(MemoryStore):
        async def append(self, session_id: str, entries: Any, *arguments: Any, **options: Any) -> Head:
            if any(isinstance(entry, ClientAnswerEntry) for entry in entries):
                is_recording.set()
                await goes_on.wait()
            return await super().append(session_id, entries, *arguments, **options)

    async with staged(*routes_for("openai-chat", way), store=Slow()) as stage:
        asking = asyncio.ensure_future(stage.ask("openai-chat"))
        await is_recording.wait()
        stopping = asyncio.ensure_future(stage.gateway.stop())
        await until(lambda: stage.gateway.is_stopping)
        goes_on.set()
        assert (await asking).body.endswith(b"data: [DONE]\n\n")
        await stopping


# ---------------------------------------------------------------- processes


def require_end(server: Served, begun: float, status: int = 0) -> None:
    """Require that the process ends in time."""
    try:
        assert server.process.wait(LONGEST + 5) == status, server.log.read_text("utf-8")[-3_000:]
    except subprocess.TimeoutExpired:
        raise AssertionError(server.log.read_text("utf-8")[-3_000:]) from None
    assert time.monotonic() - begun < LONGEST


async def _stream(server: Served, api: str, begun: asyncio.Event) -> bytes:
    async with line(server.port) as connection:
        await connection.send(written(api, None, "Connection: close"))
        got = b""
        while data := await connection.reader.read(65_536):
            got += data
            if b"Hello." in got:
                begun.set()
        return got


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@on_a_loop
async def test_a_signal_ends_the_streams_of_every_front_and_the_process(number: signal.Signals, tmp_path: Path) -> None:
    upstream = Upstream()
    upstream.script = endless
    async with upstream_server(upstream):
        with served(upstream.url, tmp_path, "--model", "*=openai-chat:m") as server:
            begun = [asyncio.Event() for _ in FRONTS]
            streams = [
                asyncio.ensure_future(_stream(server, api, event)) for api, event in zip(FRONTS, begun, strict=True)
            ]
            async with line(server.port) as silent_one, line(server.port) as slow_one:
                await slow_one.send(head("openai-chat", "Content-Length: 100") + b"{")
                for event in begun:
                    await event.wait()
                started = time.monotonic()
                server.process.send_signal(number)
                await asyncio.to_thread(require_end, server, started)
                assert await silent_one.rest() == b""
                assert b"being stopped" in await slow_one.rest()
            for api, got in zip(FRONTS, await asyncio.gather(*streams), strict=True):
                assert b"being stopped" in got
                is_torn = not got.endswith(b"0\r\n\r\n")  # Google's SDK for JavaScript skips the error's event
                assert is_torn is FRONTS_SERVED[api].breaks_off
            assert "Traceback" not in server.log.read_text("utf-8")


@on_a_loop
async def test_a_client_that_does_not_read_delays_nothing(tmp_path: Path) -> None:
    async def flood(exchange: Exchange) -> None:
        await exchange.send(exchange.answer.opening)
        while True:
            await exchange.send(exchange.answer.piece * 1_000)

    upstream = Upstream()
    upstream.script = flood
    async with upstream_server(upstream):
        with served(upstream.url, tmp_path) as server:
            async with line(server.port) as connection:
                connection.writer.transport.pause_reading()  # type: ignore[attr-defined]  # it is a transport of both ways
                await connection.send(written("openai-chat"))
                await upstream.until(lambda upstream: upstream.open == 1)
                started = time.monotonic()
                server.process.send_signal(signal.SIGTERM)
                await asyncio.to_thread(require_end, server, started)


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
@on_a_loop
async def test_a_second_signal_ends_the_process_at_once(second: signal.Signals, tmp_path: Path) -> None:
    async def flood(exchange: Exchange) -> None:
        await exchange.send(exchange.answer.opening)
        while True:
            await exchange.send(exchange.answer.piece * 1_000)

    upstream = Upstream()
    upstream.script = flood
    async with upstream_server(upstream):
        with served(upstream.url, tmp_path) as server:
            async with line(server.port) as connection:
                connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
                await connection.send(written("openai-chat"))
                await upstream.until(lambda upstream: upstream.open == 1)
                server.process.send_signal(signal.SIGTERM)
                await upstream.until(lambda upstream: upstream.open == 0)  # it has begun to end
                server.process.send_signal(second)
                await asyncio.to_thread(require_end, server, time.monotonic(), -second)


HANGS = """
import asyncio, sys
from aiohttp import web
from dragoman.web import serving
from dragoman.web.gateway.refusals import refuse_unread

serving.LAST_SECONDS = 0.5

async def stop():
    await asyncio.Event().wait()

asyncio.run(serving.serve_until_stopped(
    web.Application(), host="127.0.0.1", port=0, ready=lambda address: print(address, flush=True), stop=stop,
    refuse=refuse_unread,
))
"""


def test_a_process_that_hangs_is_ended_all_the_same() -> None:
    with subprocess.Popen([sys.executable, "-c", HANGS], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"http://")
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
        assert (process.returncode, b"did not end" in said) == (1, True)
