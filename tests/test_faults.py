"""What a network can do to a call, on a loopback server: each fault ends in its own code and leaves nothing behind."""

import asyncio
import gzip
import socket
import tracemalloc
import zlib
from collections.abc import Callable
from typing import NamedTuple

import pytest

from dragoman import ErrorCode, Message, MessageDelta, ModelError, model
from dragoman.delta import DoneDelta, ErrorDelta
from dragoman.transport import Timeouts
from tests.loopback import (
    CLOSING,
    KEY,
    OPENING,
    QUICK,
    STREAM_HEAD,
    Peer,
    Script,
    Server,
    answering,
    call,
    post,
    serving,
    transport_of,
    whole,
)

both_transports = pytest.mark.parametrize("kind", ["aiohttp", "httpx"])
PING = b'event: ping\ndata: {"type": "ping"}\n\n'
CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def then_close(*pieces: bytes) -> Script:
    async def script(peer: Peer) -> None:
        await peer.send(*pieces)
        peer.close()

    return script


def then_hang(*pieces: bytes) -> Script:
    async def script(peer: Peer) -> None:
        await peer.send(*pieces)
        await peer.until_closed()

    return script


async def reset_mid_stream(peer: Peer) -> None:
    await peer.send(CHUNKED_HEAD, chunk(OPENING))
    peer.reset()


async def reset_without_length(peer: Peer) -> None:
    await peer.send(STREAM_HEAD, OPENING)
    peer.reset()


async def reset_at_once(peer: Peer) -> None:
    peer.reset()


async def line_of_50_mb(peer: Peer) -> None:
    await peer.send(STREAM_HEAD, b"data: ", *[b"x" * 1_000_000] * 50)
    await peer.until_closed()


def gzip_bomb() -> bytes:
    packer = zlib.compressobj(wbits=-15)
    megabyte = packer.compress(bytes(1_000_000)) + packer.flush(zlib.Z_FULL_FLUSH)  # a block that stands alone
    return gzip.compress(b"")[:10] + megabyte * 500


HALF_A_CHARACTER = '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"é'.encode()[:-1]
HTML = b"<!doctype html><title>Sign in</title>"
RATE_LIMIT = b'{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}'
SHORT = Timeouts(connect=1.0, first_byte=0.3, silence=0.3)


class Fault(NamedTuple):
    name: str
    script: Script
    code: str
    timeouts: Timeouts = QUICK


# The table: what the server does, and the code that the stream's one `error` has.
FAULTS = [
    Fault("connection reset mid-stream", reset_mid_stream, "connection"),
    # aiohttp cannot tell this from a body that ends: it has neither length nor chunks.
    Fault("connection reset in a body without length", reset_without_length, "connection|stream_truncated"),
    Fault("connection reset before any answer", reset_at_once, "connection"),
    Fault("connection closed before any answer", then_close(), "connection"),
    Fault("chunked body cut short", then_close(CHUNKED_HEAD, chunk(OPENING)), "connection"),
    Fault("body shorter than its length", then_close(whole(OPENING + CLOSING)[: -len(CLOSING)]), "connection"),
    # The second where the nonsense arrives together with the head.
    Fault("chunk without a size", then_hang(CHUNKED_HEAD, b"zz\r\nhello\r\n"), "connection|protocol_violation"),
    Fault("no HTTP at all", then_close(b"220 mail.example ESMTP ready\r\n\r\n"), "protocol_violation"),
    Fault("stream closed without an end", then_close(STREAM_HEAD, OPENING), "stream_truncated"),
    Fault("silence past the timeout", then_hang(STREAM_HEAD, OPENING), "timeout", SHORT),
    Fault("no answer at all", then_hang(), "timeout", SHORT),
    Fault("a head and no body", then_hang(STREAM_HEAD), "timeout", SHORT),
    Fault("total time over", then_hang(STREAM_HEAD, OPENING), "timeout", Timeouts(total=0.3)),
    Fault(
        "half a UTF-8 character at the end",
        then_close(STREAM_HEAD, OPENING, b"data: " + HALF_A_CHARACTER),
        "stream_truncated",
    ),
    Fault(
        "half a UTF-8 character inside an event",
        then_close(STREAM_HEAD, OPENING, b"data: " + HALF_A_CHARACTER + b'"}}\n\n'),
        "protocol_violation",
    ),
    Fault("a line of 50 MB", line_of_50_mb, "protocol_violation"),
    Fault("100,000 empty events", then_close(STREAM_HEAD, b"event: ping\n\n:\n\n\n\n" * 100_000), "stream_truncated"),
    Fault("100,000 events of empty data", then_close(STREAM_HEAD, b"data:\n\n" * 100_000), "stream_truncated"),
    Fault(
        "gzip bomb",
        answering(whole(gzip_bomb(), "Content-Encoding: gzip")),
        "protocol_violation",
    ),
    Fault("gzip that is none", answering(whole(OPENING, "Content-Encoding: gzip")), "protocol_violation"),
    Fault(
        "gzip cut short",
        answering(whole(gzip.compress(OPENING + CLOSING)[:-60], "Content-Encoding: gzip")),
        "stream_truncated",
    ),
    Fault("unknown compression", answering(whole(b"..", "Content-Encoding: br")), "protocol_violation"),
    Fault(
        "429 with Retry-After",
        answering(whole(RATE_LIMIT, "Retry-After: 7", status="429 Slow", kind="application/json")),
        "rate_limited",
    ),
    Fault("200 with an HTML page", answering(whole(HTML, kind="text/html")), "protocol_violation"),
    Fault("200 with HTML called a stream", answering(whole(HTML)), "stream_truncated"),
    Fault("200 without a body", answering(whole(b"", kind="application/json")), "protocol_violation"),
    Fault(
        "redirect elsewhere",
        answering(whole(b"", "Location: http://elsewhere.example/", status="307 Moved")),
        "protocol_violation",
    ),
    Fault(
        "redirect that looks like an answer",
        answering(whole(OPENING + CLOSING, "Location: /v2", status="302 Found")),
        "protocol_violation",
    ),
]


def require_one_error(deltas: list[MessageDelta], code: str) -> ErrorDelta:
    terminals = [delta for delta in deltas if isinstance(delta, (ErrorDelta, DoneDelta))]
    assert terminals == deltas[-1:]
    (error,) = terminals
    assert isinstance(error, ErrorDelta), error
    assert error.error_code in code.split("|"), error
    return error


async def let_go(server: Server, before: set[asyncio.Task[object]]) -> None:
    """Require that the client has closed every connection and left no task that goes on."""
    async with asyncio.timeout(2):
        await server.released.wait()
    left = asyncio.all_tasks() - before - server.tasks
    if left:  # httpx leaves it to the loop to close its inner generators: a task of one step each
        _, left = await asyncio.wait(left, timeout=1)
    assert left == set()


@both_transports
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_ends_in_its_code_and_leaves_nothing_behind(fault: Fault, kind: str) -> None:
    async def main() -> None:
        async with serving(fault.script) as server:
            before = asyncio.all_tasks()
            async with transport_of(kind) as transport:
                require_one_error(await call(transport, post(server.url), fault.timeouts), fault.code)
                assert len(server.requests) == 1
            await let_go(server, before)

    asyncio.run(main())


@both_transports
def test_a_fault_closes_its_connection_before_the_transport_is_closed(kind: str) -> None:
    async def main() -> None:
        async with serving(then_hang(STREAM_HEAD, OPENING)) as server, transport_of(kind) as transport:
            before = asyncio.all_tasks() - server.tasks
            await call(transport, post(server.url), SHORT)
            await let_go(server, before)

    asyncio.run(main())


@both_transports
@pytest.mark.parametrize(
    ("script", "timeouts", "message"),
    [
        (then_hang(STREAM_HEAD, OPENING), Timeouts(silence=0.3), "timeout silence"),
        (then_hang(STREAM_HEAD, OPENING), Timeouts(first_byte=0.1, silence=0.3), "timeout silence"),
        (then_hang(), Timeouts(connect=0.1, first_byte=0.3), "timeout first_byte"),
        (then_hang(STREAM_HEAD), Timeouts(first_byte=0.3, silence=0.1), "timeout first_byte"),
        (then_hang(STREAM_HEAD, OPENING), Timeouts(total=0.3), "timeout total"),
        (then_hang(), Timeouts(total=0.3), "timeout total"),
    ],
    ids=["silence", "silence longer than first byte", "no head", "no body", "total in the body", "total in the head"],
)
def test_a_timeout_comes_not_before_its_time_and_not_a_second_after(
    script: Script, timeouts: Timeouts, message: str, kind: str
) -> None:
    async def main() -> None:
        clock = asyncio.get_running_loop().time
        async with serving(script) as server, transport_of(kind) as transport:
            last = clock()

            def seen(delta: MessageDelta) -> None:
                nonlocal last
                if not isinstance(delta, ErrorDelta) and "silence" in message:
                    last = clock()

            # The server wrote before the client saw it: the clock starts with the last text, or with the call.
            error = require_one_error(await call(transport, post(server.url), timeouts, seen), "timeout")
            waited = clock() - last
            assert error.message is not None
            assert message in error.message
            assert 0.3 - 0.01 <= waited < 1.3

    asyncio.run(main())


@both_transports
def test_bytes_that_keep_coming_are_no_silence(kind: str) -> None:
    pieces = 12

    async def main() -> None:
        loop = asyncio.get_running_loop()

        async def script(peer: Peer) -> None:
            await peer.send(STREAM_HEAD, OPENING)
            for _ in range(pieces):
                tick: asyncio.Future[None] = loop.create_future()
                loop.call_later(0.05, tick.set_result, None)
                await tick
                await peer.send(b": still here\n\n")
            await peer.send(CLOSING)
            await peer.until_closed()

        async with serving(script) as server, transport_of(kind) as transport:
            deltas = await call(transport, post(server.url), Timeouts(silence=0.3))
            assert isinstance(deltas[-1], DoneDelta)

    asyncio.run(main())


@both_transports
@pytest.mark.parametrize("filler", [b": processing\n\n", b"\n\n", PING], ids=["comments", "blank lines", "pings"])
def test_a_server_that_sends_only_signs_of_life_ends_in_a_timeout(filler: bytes, kind: str) -> None:
    async def main() -> None:
        async def script(peer: Peer) -> None:
            await peer.send(STREAM_HEAD, OPENING)
            while True:
                await asyncio.sleep(0.01)
                await peer.send(filler)

        async with serving(script) as server, transport_of(kind) as transport:
            limits = Timeouts(silence=30, idle=0.2)
            asked = model(
                "anthropic-compatible:m", base_url=server.url, api_key=KEY, transport=transport, timeouts=limits
            )
            assembly = await asked.stream([Message.user("Hi.")], max_tokens=9).collect()
            assert assembly.error is not None
            assert assembly.error.error_code is ErrorCode.TIMEOUT
            assert "(timeout idle)" in (assembly.error.message or "")

    asyncio.run(main())


EMPTY_MEMBER = gzip.compress(b"")
PACKED_HEAD = STREAM_HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")


@both_transports
@pytest.mark.parametrize("head", [STREAM_HEAD, PACKED_HEAD], ids=["plain", "gzip"])
def test_the_total_time_is_over_while_bytes_keep_coming(head: bytes, kind: str) -> None:
    opening, flood = OPENING, b": still here\n\n" * 100
    if head is PACKED_HEAD:
        opening, flood = gzip.compress(OPENING), gzip.compress(flood)

    async def main() -> None:
        clock = asyncio.get_running_loop().time

        async def script(peer: Peer) -> None:
            await peer.send(head, opening)
            gives_up = clock() + 5.0
            while clock() < gives_up and not peer.is_closed:
                await peer.send(flood)
            peer.close()

        async with serving(script) as server, transport_of(kind) as transport:
            error = require_one_error(await call(transport, post(server.url), Timeouts(total=0.3)), "timeout")
            assert "timeout total" in (error.message or "")

    asyncio.run(main())


@both_transports
def test_compressed_bytes_that_unpack_to_nothing_have_a_limit(kind: str) -> None:
    sent = 0

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.send(PACKED_HEAD)
        members = EMPTY_MEMBER * 1_000
        while sent < 32 * 1024 * 1024 and not peer.is_closed:
            await peer.send(members)
            sent += len(members)
        peer.close()

    async def main() -> None:
        async with serving(script) as server, transport_of(kind) as transport:
            require_one_error(await call(transport, post(server.url)), "protocol_violation")

    asyncio.run(main())
    assert sent < 16 * 1024 * 1024  # what the sockets hold included


@both_transports
def test_a_slow_reader_is_not_taken_for_a_silent_server(kind: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        asked = asyncio.Event()

        async def script(peer: Peer) -> None:
            await peer.send(CHUNKED_HEAD, chunk(OPENING))
            await asked.wait()
            await peer.send(chunk(CLOSING), b"0\r\n\r\n")

        async with serving(script) as server, transport_of(kind) as transport:
            response = await transport.send(post(server.url), Timeouts(silence=0.2))
            chunks = response.chunks()
            assert await anext(chunks) == OPENING
            pause: asyncio.Future[None] = loop.create_future()
            loop.call_later(0.5, pause.set_result, None)
            await pause
            asked.set()
            assert b"".join([chunk async for chunk in chunks]) == CLOSING

    asyncio.run(main())


@both_transports
def test_a_refused_connection_is_a_connection_error(kind: str) -> None:
    async def main() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1/messages"
            before = asyncio.all_tasks()
            async with transport_of(kind) as transport:
                error = require_one_error(await call(transport, post(url)), "connection")
                assert error.retryable
            assert asyncio.all_tasks() == before

    asyncio.run(main())


@both_transports
def test_a_name_that_does_not_resolve_is_a_connection_error(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_such_name(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", no_such_name)

    async def main() -> None:
        before = asyncio.all_tasks()
        async with transport_of(kind) as transport:
            require_one_error(await call(transport, post("http://nowhere.invalid/v1/messages")), "connection")
        assert asyncio.all_tasks() == before

    asyncio.run(main())


@both_transports
@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
def test_a_redirect_to_another_host_never_gets_a_request(status: str, kind: str) -> None:
    async def main() -> None:
        async with serving(answering(whole(OPENING + CLOSING))) as thief:
            redirect = answering(whole(b"", f"Location: {thief.url}", status=status))
            async with serving(redirect) as server, transport_of(kind) as transport:
                error = require_one_error(await call(transport, post(server.url)), "protocol_violation")
                assert not error.retryable
                assert error.message is not None
                assert "redirect" in error.message
                assert len(server.requests) == 1
            assert (thief.connections, thief.requests) == (0, [])

    asyncio.run(main())


@both_transports
def test_retry_after_reaches_the_error(kind: str) -> None:
    fault = next(fault for fault in FAULTS if fault.name == "429 with Retry-After")

    async def main() -> None:
        async with serving(fault.script) as server, transport_of(kind) as transport:
            error = require_one_error(await call(transport, post(server.url)), "rate_limited")
            assert (error.retry_after, error.retryable) == (7.0, True)

    asyncio.run(main())


@both_transports
def test_a_gzip_bomb_is_refused_in_bounded_memory(kind: str) -> None:
    bomb = whole(gzip_bomb(), "Content-Encoding: gzip")

    async def main() -> int:
        async with serving(answering(bomb)) as server, transport_of(kind) as transport:
            await call(transport, post(server.url))  # imports and pools are no part of the measure
            tracemalloc.start()
            try:
                require_one_error(await call(transport, post(server.url)), "protocol_violation")
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

    assert asyncio.run(main()) < 32 * 1024 * 1024  # it unpacks to 500 MB


def until(condition: Callable[[MessageDelta], bool], event: asyncio.Event) -> Callable[[MessageDelta], None]:
    return lambda delta: event.set() if condition(delta) else None


@both_transports
@pytest.mark.parametrize("stage", ["in the head", "in the body"])
def test_cancelling_propagates_and_closes_the_connection(stage: str, kind: str) -> None:
    async def main() -> None:
        arrived = asyncio.Event()
        in_body = stage == "in the body"

        async def script(peer: Peer) -> None:
            if in_body:
                await peer.send(STREAM_HEAD, OPENING)
            else:
                arrived.set()
            await peer.until_closed()

        async with serving(script) as server, transport_of(kind) as transport:
            before = asyncio.all_tasks() - server.tasks
            task = asyncio.create_task(
                call(transport, post(server.url), QUICK, until(lambda delta: delta.kind == "text", arrived))
            )
            await arrived.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert task.cancelled()
            await let_go(server, before)

    asyncio.run(main())


@both_transports
def test_a_cancellation_is_not_lost_when_a_timeout_falls_on_the_same_moment(kind: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with serving(then_hang(STREAM_HEAD, OPENING)) as server, transport_of(kind) as transport:
            for early in (-0.002, -0.001, 0.0, 0.0005, 0.001):
                begun = asyncio.Event()
                task = asyncio.create_task(
                    call(transport, post(server.url), Timeouts(silence=0.05), until(lambda _: True, begun))
                )
                await begun.wait()
                loop.call_later(0.05 + early, task.cancel)
                try:
                    require_one_error(await task, "timeout")
                    assert task.cancelling() == 0
                except asyncio.CancelledError:
                    assert task.cancelled()
                current = asyncio.current_task()
                assert current is not None
                assert current.cancelling() == 0

    asyncio.run(main())


@both_transports
@pytest.mark.parametrize("is_first", [True, False])
def test_a_cancellation_is_not_lost_when_a_timeout_falls_on_the_same_round_of_the_loop(
    kind: str, is_first: bool
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with serving(then_hang(STREAM_HEAD, OPENING)) as server, transport_of(kind) as transport:
            begun = asyncio.Event()
            task = asyncio.create_task(
                call(transport, post(server.url), Timeouts(silence=0.1), until(lambda _: True, begun))
            )
            await begun.wait()
            due = loop.time() + 0.1

            def hold_the_loop_up() -> None:
                loop.call_at(due - 0.03 if is_first else due + 0.03, task.cancel)
                while loop.time() < due + 0.05:
                    pass

            loop.call_at(due - 0.05, hold_the_loop_up)
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())


@both_transports
def test_closing_a_response_early_closes_its_connection(kind: str) -> None:
    async def main() -> None:
        async with serving(then_hang(STREAM_HEAD, OPENING)) as server, transport_of(kind) as transport:
            before = asyncio.all_tasks() - server.tasks
            response = await transport.send(post(server.url), QUICK)
            chunks = response.chunks()
            assert await anext(chunks) == OPENING
            await response.close()
            await response.close()
            await let_go(server, before)

    asyncio.run(main())


@both_transports
def test_a_failed_call_raises_without_the_library_s_own_error_behind_it(kind: str) -> None:
    async def main() -> None:
        async with serving(reset_at_once) as server, transport_of(kind) as transport:
            with pytest.raises(ModelError) as caught:
                await transport.send(post(server.url), QUICK)
            assert caught.value.__context__ is None
            assert caught.value.__cause__ is None

    asyncio.run(main())
