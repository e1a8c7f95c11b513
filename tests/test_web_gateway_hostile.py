"""Clients that send what no client should: refused in their API's own form, while others are served."""

import asyncio
import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from dragoman.web.connections import HEAD_LIMIT, HEADS_LIMIT, ConnectionLimits
from dragoman.web.gateway.reading import MOST_TOKENS
from tests.gateway_stage import (
    FRONTS,
    PROVIDERS,
    Stage,
    Told,
    Upstream,
    body_of,
    endless,
    head,
    line,
    on_a_loop,
    served,
    staged,
    upstream_server,
    written,
)

each_front = pytest.mark.parametrize("api", FRONTS)
MESSAGES = "anthropic-messages"
MB = 1 << 20
DEPTH = 100_000
NESTS = ("[" * DEPTH + "]" * DEPTH, '{"a":' * DEPTH + "1" + "}" * DEPTH)
NOISE = (b"\x16\x03\x01\x00\xa5\x01" + bytes(60), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\0\r\n\r\n")


async def told(stage: Stage, request: bytes) -> Told:
    """Send bytes, and return the answer."""
    async with line(stage.port) as connection:
        sending = asyncio.ensure_future(connection.send(request))
        try:
            return await connection.answer()
        finally:
            sending.cancel()


def require_error(api: str, answer: Told, status: int) -> None:
    """Require an error in the API's own form."""
    assert answer.status == status
    error = answer.error
    assert error["message"]
    if api == MESSAGES:
        assert json.loads(answer.body)["type"] == "error"
        assert error["type"] == "request_too_large" if status == 413 else error["type"].endswith("_error")
    elif api == "gemini":
        assert (error["code"], type(error["status"])) == (status, str)
    else:
        assert set(error) == {"message", "type", "param", "code"}


@each_front
@on_a_loop
async def test_half_a_surrogate_pair_in_a_history_poisons_no_conversation(api: str) -> None:
    body = body_of(api, said="half \ud83d of it")
    assert b"\\ud83d" in body
    renamed = tuple((f"*={provider}:other",) for provider in PROVIDERS.values())
    for routes in ((), ("*=anthropic:m",), ("*=openai:m",), *renamed):
        async with staged(*routes) as stage:
            answer = await told(stage, written(api, body))
            assert answer.status == 200
            assert b" of it" in stage.upstream.bodies[-1]
            assert (
                not routes
                or routes[0].startswith(f"*={PROVIDERS[api]}:")
                or b"\xef\xbf\xbd" in stage.upstream.bodies[-1]
            )


@each_front
@on_a_loop
async def test_a_model_s_name_that_is_too_long_is_refused(api: str) -> None:
    for length, status in ((200, 200), (201, 400)):
        name = "m" * length
        async with staged() as stage:
            body = body_of(api) if api == "gemini" else body_of(api, model=name)
            request = written(api, body).replace(b"/models/m:", f"/models/{name}:".encode())
            answer = await told(stage, request)
            require_error(api, answer, status) if status == 400 else None
            assert (answer.status, stage.upstream.seen) == (status, status == 200)


# ---------------------------------------------------------------- bodies


@each_front
@on_a_loop
async def test_a_declared_body_that_is_too_large_is_refused_unread(api: str) -> None:
    async with staged(body_limit=MB) as stage:
        request = head(api, f"Content-Length: {1 << 30}", "Expect: 100-continue")
        require_error(api, await told(stage, request), 413)


@each_front
@on_a_loop
async def test_a_chunked_body_that_is_too_large_is_refused(api: str) -> None:
    async with staged(body_limit=MB) as stage:
        piece = b"%x\r\n%b\r\n" % (MB // 2, b" " * (MB // 2))
        require_error(api, await told(stage, head(api, "Transfer-Encoding: chunked") + 8 * piece), 413)
        assert (await stage.ask(api)).status == 200


@each_front
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@on_a_loop
async def test_a_compressed_body_is_read(api: str, encoding: str) -> None:
    async with staged() as stage:
        pack = gzip.compress if encoding == "gzip" else zlib.compress
        body = body_of(api)
        async with line(stage.port) as connection:
            await connection.send(written(api, pack(body), f"Content-Encoding: {encoding}", "Connection: close"))
            assert (await connection.rest()).startswith(b"HTTP/1.1 200")
        assert stage.upstream.bodies == [body]
        assert "content-encoding" not in {name.lower() for name in stage.upstream.headers[0]}


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@on_a_loop
async def test_a_compressed_body_counts_by_what_it_becomes(encoding: str) -> None:
    pack = gzip.compress if encoding == "gzip" else zlib.compress
    bomb = pack(b" " * (64 * MB))
    assert len(bomb) < MB // 8
    async with staged(body_limit=MB) as stage:
        answer = await told(stage, written(MESSAGES, bomb, f"Content-Encoding: {encoding}"))
        require_error(MESSAGES, answer, 413)
        assert answer.error["type"] == "request_too_large"


@pytest.mark.parametrize(
    ("body", "encoding", "status"),
    [
        (b"nothing that was packed", "gzip", 400),
        (gzip.compress(body_of(MESSAGES))[:-9], "gzip", 400),
        (gzip.compress(body_of(MESSAGES)) + b"more", "gzip", 400),
        (gzip.compress(gzip.compress(body_of(MESSAGES))), "gzip, gzip", 415),
        (b"whatever", "br", 415),
    ],
    ids=["no gzip", "cut", "too long", "twice", "another"],
)
@on_a_loop
async def test_a_body_that_cannot_be_unpacked_is_refused(body: bytes, encoding: str, status: int) -> None:
    async with staged() as stage:
        answer = await told(stage, written(MESSAGES, body, f"Content-Encoding: {encoding}"))
        require_error(MESSAGES, answer, status)


@each_front
@on_a_loop
async def test_a_body_that_comes_too_slowly_is_given_up(api: str) -> None:
    async with staged(body_seconds=0.2) as stage, line(stage.port) as connection:
        await connection.send(head(api, "Content-Length: 100") + b"{")
        require_error(api, await connection.answer(), 408)
        assert (await stage.ask(api)).status == 200


@on_a_loop
async def test_large_bodies_are_bounded_together_and_small_ones_are_still_taken() -> None:
    async with staged(body_limit=2 * MB) as stage, asyncio.TaskGroup() as group:
        stage.upstream.script = endless
        large = [written(MESSAGES, body_of(MESSAGES, said="a" * (2 * MB - 1000))) for _ in range(6)]
        asked = [group.create_task(_status(stage, request)) for request in large]
        await stage.upstream.until(lambda upstream: upstream.seen == 4)
        refused = [task for task in asked if task.done()]
        while len(refused) < 2:
            await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            refused = [task for task in asked if task.done()]
        assert [task.result() for task in refused] == [503, 503]
        assert await _status(stage, written(MESSAGES)) == 200
        for task in asked:
            task.cancel()


async def _status(stage: Stage, request: bytes) -> int:
    async with line(stage.port) as connection:
        await connection.send(request)
        status = int((await connection.reader.readline()).split()[1])
        if status == 200 and len(request) > MB:
            await connection.rest()
        return status


# ---------------------------------------------------------------- JSON


@each_front
@pytest.mark.parametrize(
    "nest", ["[" * DEPTH + "]" * DEPTH, '{"a":' * DEPTH + "1" + "}" * DEPTH], ids=["lists", "objects"]
)
@pytest.mark.parametrize("field", ["messages", "contents", "input", "metadata", "tools", "unknown"])
@on_a_loop
async def test_json_of_any_depth_is_refused(api: str, nest: str, field: str) -> None:
    async with staged() as stage:
        request = body_of(api)[:-1] + f', "{field}": {nest}'.encode() + b"}"
        require_error(api, await told(stage, written(api, request)), 400)


@pytest.mark.parametrize("depth", [50, 200, 450, 900])
@each_front
@on_a_loop
async def test_json_that_is_merely_deep_fails_nowhere(api: str, depth: int) -> None:
    nest: Any = 1
    for _ in range(depth):
        nest = {"a": nest}
    async with staged("*=openai-chat:m") as stage:
        for field in ("tools", "metadata", "unknown"):
            value = [{"name": "t", "input_schema": nest, "functionDeclarations": [nest]}] if field == "tools" else nest
            fields: dict[str, Any] = {field: value}
            assert (await stage.ask(api, **fields)).status in (200, 400)


@each_front
@on_a_loop
async def test_json_with_more_values_than_a_conversation_has_is_refused(api: str) -> None:
    async with staged() as stage:
        many = body_of(api)[:-1] + b', "unknown": [' + b"[]," * MOST_TOKENS + b"1]}"
        require_error(api, await told(stage, written(api, many)), 413)


@each_front
@on_a_loop
async def test_a_long_text_counts_as_one_value(api: str) -> None:
    async with staged() as stage:
        said = '[1, {"a": "b\\"}], ' * (MOST_TOKENS // 4)
        assert (await stage.ask(api, said=said)).status == 200


@each_front
@pytest.mark.parametrize("body", [b"", b"no JSON", b"[]", b"null", b'{"model": 1}', b'{"model": "\xff\xfe"}'], ids=repr)
@on_a_loop
async def test_a_body_that_is_no_request_is_refused(api: str, body: bytes) -> None:
    async with staged() as stage:
        require_error(api, await told(stage, written(api, body)), 400)


# ---------------------------------------------------------------- heads


NO_HTTP = {
    "both lengths": head(MESSAGES, "Content-Length: 5", "Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "space before the colon": head(MESSAGES, "Content-Length: 5", "Transfer-Encoding : chunked") + b"0\r\n\r\n",
    "another coding": head(MESSAGES, "Transfer-Encoding: xchunked") + b"0\r\n\r\n",
    "chunked twice": head(MESSAGES, "Transfer-Encoding: chunked, chunked") + b"0\r\n\r\n",
    "two lengths": head(MESSAGES, "Content-Length: 5", "Content-Length: 6") + b"12345",
    "a negative length": head(MESSAGES, "Content-Length: -5"),
    "a signed length": head(MESSAGES, "Content-Length: +5") + b"12345",
    "no length": head(MESSAGES, "Content-Length: 0x5") + b"12345",
    "an endless length": head(MESSAGES, f"Content-Length: {10**30}"),
    "no chunk": head(MESSAGES, "Transfer-Encoding: chunked") + b"zz\r\nabc\r\n0\r\n\r\n",
    "a longer chunk": head(MESSAGES, "Transfer-Encoding: chunked") + b"3\r\nabcdef\r\n0\r\n\r\n",
    "an endless chunk": head(MESSAGES, "Transfer-Encoding: chunked") + b"f" * 30 + b"\r\nabc\r\n",
    "a space in a name": head(MESSAGES, "x api: 1", "Content-Length: 0"),
    "a zero byte": head(MESSAGES, "x-a: 1\x002", "Content-Length: 0"),
    "a bare CR": head(MESSAGES, "x-a: 1\r2", "Content-Length: 0"),
    "a folded line": head(MESSAGES, "x-a: 1\r\n 2", "Content-Length: 0"),
    "two hosts": head(MESSAGES, "Host: evil.example", "Content-Length: 0"),
    "thousands of fields": head(MESSAGES, *[f"x-{index}: 1" for index in range(5_000)], "Content-Length: 0"),
}


@pytest.mark.parametrize("case", NO_HTTP)
@on_a_loop
async def test_what_two_servers_could_read_in_two_ways_is_refused(case: str) -> None:
    smuggled = b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    async with staged() as stage, line(stage.port) as connection:
        await connection.send(NO_HTTP[case] + smuggled)
        require_error(MESSAGES, await connection.answer(), 431 if case == "thousands of fields" else 400)
        assert await connection.rest() == b""  # nothing of it is taken for a request
        assert stage.upstream.seen == 0


@on_a_loop
async def test_what_follows_a_body_is_no_second_request() -> None:
    async with staged() as stage, line(stage.port) as connection:
        await connection.send(written(MESSAGES) + body_of(MESSAGES))
        assert b"400 Bad Request" in await connection.rest()
        assert stage.upstream.seen <= 1


@pytest.mark.parametrize("noise", NOISE, ids=["TLS", "HTTP/2", "noise"])
@on_a_loop
async def test_what_is_no_http_is_told_so(noise: bytes) -> None:
    async with staged() as stage:
        require_error("openai-chat", await told(stage, noise), 400)


@each_front
@on_a_loop
async def test_a_line_that_is_too_long_is_told_so(api: str) -> None:
    async with staged() as stage:
        require_error(api, await told(stage, head(api, f"x-a: {'a' * (HEAD_LIMIT + 1)}")), 431)


@each_front
@on_a_loop
async def test_a_head_that_is_too_large_is_told_so(api: str) -> None:
    async with staged() as stage:
        fields = [f"x-{index}: {'a' * (HEAD_LIMIT - 100)}" for index in range(2 * HEADS_LIMIT // HEAD_LIMIT)]
        require_error(api, await told(stage, head(api, *fields)), 431)


@on_a_loop
async def test_a_body_that_is_refused_may_be_sent_to_its_end() -> None:
    async with staged(body_limit=MB) as stage, line(stage.port) as connection:
        await connection.send(head(MESSAGES, f"Content-Length: {8 * HEADS_LIMIT}"), b" " * (8 * HEADS_LIMIT))
        assert (await connection.answer()).status == 413
        await connection.send(written(MESSAGES))
        assert (await connection.reader.readline()).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "target",
    ["/session/a%0d%0aSet-Cookie:%20a=b/v1/messages", "/v1beta/models/m%0d%0aSet-Cookie:%20a=b:generateContent"],
)
@on_a_loop
async def test_line_breaks_in_a_path_become_no_field(target: str) -> None:
    async with staged() as stage:
        body = body_of("gemini" if "beta" in target else MESSAGES)
        request = f"POST {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        answer = await told(stage, request)
        assert 400 <= answer.status < 500
        assert "set-cookie" not in answer.headers
        assert json.loads(answer.body)["error"]


@pytest.mark.parametrize("name", ["m\r\nSet-Cookie: a=b", "../../admin", "m\0"])
@on_a_loop
async def test_a_model_s_name_becomes_no_field_and_no_path(name: str) -> None:
    async with staged() as stage:
        answer = await stage.ask(MESSAGES, model=name)
        assert (answer.status, "set-cookie" in answer.headers) == (400, False)
        assert stage.upstream.seen == 0


# ---------------------------------------------------------------- connections


@each_front
@on_a_loop
async def test_a_head_that_comes_too_slowly_is_given_up(api: str) -> None:
    async with staged(limits=ConnectionLimits(head_seconds=0.1)) as stage, line(stage.port) as connection:
        await connection.send(head(api)[:-8])
        require_error(api, await connection.answer(), 408)
        assert await connection.rest() == b""


@on_a_loop
async def test_bytes_that_drip_do_not_prolong_a_head() -> None:
    async with staged(limits=ConnectionLimits(head_seconds=0.2)) as stage, line(stage.port) as connection:
        answer = asyncio.ensure_future(connection.answer())
        await connection.send(head(MESSAGES)[:-2])
        for byte in 100_000 * b"x-a: 1\r\n":
            await connection.send(bytes([byte]))
            if answer.done():
                break
            await asyncio.wait([answer], timeout=0.001)
        require_error(MESSAGES, await answer, 408)


@on_a_loop
async def test_a_second_head_has_the_same_limit() -> None:
    limits = ConnectionLimits(head_seconds=0.2, idle_seconds=60)
    async with staged(limits=limits) as stage, line(stage.port) as connection:
        await connection.send(b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert (await connection.answer()).status == 200
        await connection.send(b"POST /v1/mess")
        assert (await connection.answer()).status == 408


@on_a_loop
async def test_a_connection_that_says_nothing_is_closed() -> None:
    async with staged(limits=ConnectionLimits(head_seconds=0.1)) as stage, line(stage.port) as connection:
        assert await connection.rest() == b""


@on_a_loop
async def test_a_connection_that_has_nothing_more_to_say_is_closed() -> None:
    async with staged(limits=ConnectionLimits(idle_seconds=0.1)) as stage, line(stage.port) as connection:
        await connection.send(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert (await connection.answer()).status == 200
        assert await connection.rest() == b""


@on_a_loop
async def test_a_stream_may_take_longer_than_a_head() -> None:
    async def slow(exchange: Any) -> None:
        await exchange.send(exchange.answer.opening)
        await done.wait()
        await exchange.send(exchange.answer.piece + exchange.answer.closing)

    done = asyncio.Event()
    limits = ConnectionLimits(head_seconds=0.05, idle_seconds=0.05)
    async with staged(script=slow, limits=limits) as stage, line(stage.port) as other:
        answer = asyncio.ensure_future(stage.ask(MESSAGES))
        await stage.upstream.until(lambda upstream: upstream.seen == 1)
        assert await other.rest() == b""  # both limits are over
        done.set()
        assert b"message_stop" in (await answer).body


@on_a_loop
async def test_silent_connections_make_room_for_those_that_ask() -> None:
    limits = ConnectionLimits(connections=50)
    async with staged(limits=limits) as stage:
        silent = [await asyncio.open_connection("127.0.0.1", stage.port) for _ in range(200)]
        assert (await stage.ask(MESSAGES)).status == 200
        assert [await reader.read() for reader, _ in silent[:150]] == [b""] * 150
        for _, writer in silent:
            writer.close()


@on_a_loop
async def test_answers_under_way_are_not_ended_to_make_room() -> None:
    limits = ConnectionLimits(connections=4)
    async with staged(script=endless, limits=limits) as stage, asyncio.TaskGroup() as group:
        asked = [group.create_task(stage.ask(MESSAGES)) for _ in range(4)]
        await stage.upstream.until(lambda upstream: upstream.open == 4)
        async with line(stage.port) as connection:
            answer = await connection.answer()
            assert (answer.status, answer.headers["connection"]) == (503, "close")
        assert stage.upstream.open == 4
        for task in asked:
            task.cancel()


@on_a_loop
async def test_no_more_answers_are_begun_at_once_than_allowed() -> None:
    async with staged(script=endless, answers_at_once=3) as stage, asyncio.TaskGroup() as group:
        asked = [group.create_task(stage.ask(MESSAGES)) for _ in range(20)]
        await stage.upstream.until(lambda upstream: upstream.open == 3)
        refused = [task.result() for task in asked if task.done()]
        while len(refused) < 17:
            await asyncio.wait([task for task in asked if not task.done()], return_when=asyncio.FIRST_COMPLETED)
            refused = [task.result() for task in asked if task.done()]
        assert {(answer.status, answer.headers["retry-after"]) for answer in refused} == {(529, "1")}
        assert stage.upstream.seen == 3
        for task in asked:
            task.cancel()


# ---------------------------------------------------------------- a process


@on_a_loop
async def test_hostile_bodies_cost_a_bounded_amount_of_memory(tmp_path: Path) -> None:
    async with upstream_server(Upstream()) as upstream:
        with served(upstream.url, tmp_path, "--max-body", "8") as server:
            async with line(server.port) as connection:
                await connection.send(written(MESSAGES, None, "Connection: close"))
                assert (await connection.rest()).startswith(b"HTTP/1.1 200")
            before = server.peak_memory()
            bomb = gzip.compress(b" " * (256 * MB), 1)
            piece = b"%x\r\n%b\r\n" % (MB, b" " * MB)
            hostile = [
                written(MESSAGES, bomb, "Content-Encoding: gzip"),
                head(MESSAGES, "Transfer-Encoding: chunked") + 64 * piece,
                written(MESSAGES, b"[" * (8 * MB)),
                written(MESSAGES, body_of(MESSAGES)[:-1] + b', "a": [' + b"[]," * (2 * MB) + b"1]}"),
            ]
            for request in hostile:
                async with line(server.port) as connection:
                    sending = asyncio.ensure_future(connection.send(request))
                    assert 400 <= (await connection.answer()).status < 500
                    sending.cancel()
            assert server.peak_memory() - before < 64 * MB


@pytest.mark.slow
@pytest.mark.parametrize(("files", "answers"), [(256, "20"), (256, "200"), (128, "200")])
@on_a_loop
async def test_a_process_with_few_files_serves_beside_silent_connections(
    tmp_path: Path, files: int, answers: str
) -> None:
    async with upstream_server(Upstream()) as upstream:
        with served(upstream.url, tmp_path, "--max-answers", answers, files=files) as server:
            silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(600)]
            for _ in range(5):
                async with line(server.port) as connection:
                    await connection.send(written(MESSAGES))
                    assert (await connection.reader.readline()).startswith(b"HTTP/1.1 200")
            for _, writer in silent:
                writer.transport.abort()
            assert "Traceback" not in server.log.read_text("utf-8")


MALFORMED = {
    "129 fields": (431, "128", [f"x-{number}: v" for number in range(129)]),
    "length and chunks": (400, "two lengths", ["Content-Length: 3", "Transfer-Encoding: chunked"]),
    "two lengths": (400, "two lengths", ["Content-Length: 3", "Content-Length: 4"]),
    "a length of letters": (400, "length of the request", ["Content-Length: abc"]),
    "two hosts": (400, "two Host", ["Host: localhost"]),
}


@pytest.mark.parametrize("case", MALFORMED)
@on_a_loop
async def test_a_malformed_head_is_told_what_is_wrong_with_it(case: str) -> None:
    status, words, fields = MALFORMED[case]
    async with staged() as stage, line(stage.port) as connection:
        await connection.send(head("openai-chat", *fields))
        told = await connection.answer()
        assert (told.status, words in told.error["message"]) == (status, True)


@each_front
@on_a_loop
async def test_two_names_of_a_client_are_read_as_the_first(api: str) -> None:
    request = written(api, None, "User-Agent: first/1", "user-agent: second/2", "Connection: close")
    async with staged() as stage:
        async with line(stage.port) as connection:
            await connection.send(request)
            assert (await connection.rest()).startswith(b"HTTP/1.1 200")
        assert stage.upstream.headers[-1]["User-Agent"] == "first/1"


@on_a_loop
async def test_a_request_without_a_host_is_told_so() -> None:
    async with staged() as stage, line(stage.port) as connection:
        await connection.send(head("openai-chat").replace(b"Host: 127.0.0.1\r\n", b""))
        told = await connection.answer()
        assert (told.status, "no Host" in told.error["message"]) == (400, True)
