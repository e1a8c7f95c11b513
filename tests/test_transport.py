"""Transports as carriers: what is sent is what was asked for, connections are shared, bodies come out readable."""

import asyncio
import gc
import gzip
import random
import shutil
import ssl
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from dragoman import InvalidValue, ModelError
from dragoman.delta import DoneDelta
from dragoman.transport import AiohttpTransport, HttpRequest, HttpxTransport, Timeouts, Transport, default_transport
from dragoman.transport.body import EXPANSION_FREE, EXPANSION_LIMIT, PIECE_SIZE, Inflater
from tests.loopback import (
    CLOSING,
    OPENING,
    QUICK,
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
ANSWER = OPENING + CLOSING


async def body_of(transport: Transport, request: HttpRequest) -> bytes:
    response = await transport.send(request, QUICK)
    return b"".join([chunk async for chunk in response.chunks()])


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("field", ["connect", "first_byte", "silence", "idle", "total"])
@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan"), True, "10"])
def test_a_timeout_must_be_a_number_of_seconds_above_zero(field: str, value: Any) -> None:
    with pytest.raises(InvalidValue, match=f"timeouts.{field}"):
        Timeouts(**{field: value})


@pytest.mark.parametrize(
    "url", ["", "v1/messages", "ftp://host/x", "http://", "http:///x", "http://h:x/", "http://hö/"]
)
def test_a_url_that_cannot_be_sent_is_refused_unquoted(url: str) -> None:
    with pytest.raises(InvalidValue, match="url must be"):
        HttpRequest("POST", url, {}, b"")


@pytest.mark.parametrize("value", ["planted\n", "planted\r\nx: y", " planted", "plantéd", "planted\0"])
def test_a_header_that_cannot_be_sent_is_refused_unquoted(value: str) -> None:
    with pytest.raises(InvalidValue, match="x-api-key") as caught:
        HttpRequest("POST", "http://h/", {"x-api-key": value}, b"")
    assert "plant" not in str(caught.value)


# ---------------------------------------------------------------- what is sent, what comes back


@both_transports
def test_the_request_arrives_as_it_was_written(kind: str) -> None:
    async def main() -> bytes:
        async with serving(answering(whole(ANSWER))) as server, transport_of(kind) as transport:
            url = server.url.replace("/v1/messages", "/model/a.b-v1%3A0/converse?alt=sse&x=%2F")
            headers = {"X-Api-Key": "k-1", "content-type": "application/json", "anthropic-version": "1"}
            await body_of(transport, HttpRequest("POST", url, headers, b'{"a":1}'))
            return server.requests[0]

    head, _, body = asyncio.run(main()).partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
    assert lines[0] == "POST /model/a.b-v1%3A0/converse?alt=sse&x=%2F HTTP/1.1"
    assert fields["x-api-key"] == "k-1"
    assert fields["content-type"] == "application/json"
    assert fields["accept-encoding"] == "identity"
    assert fields["content-length"] == "7"
    assert "cookie" not in fields
    assert body == b'{"a":1}'


@both_transports
def test_a_large_body_arrives_whole(kind: str) -> None:
    large = b'{"image":"' + bytes(range(65, 91)) * 120_000 + b'"}'

    async def main() -> bytes:
        async with serving(answering(whole(ANSWER))) as server, transport_of(kind) as transport:
            await body_of(transport, post(server.url, body=large))
            return server.requests[0]

    head, _, body = asyncio.run(main()).partition(b"\r\n\r\n")
    assert b"content-length: %d" % len(large) in head.lower()
    assert body == large


@both_transports
def test_a_request_without_a_body_has_none(kind: str) -> None:
    async def main() -> bytes:
        async with serving(answering(whole(b"{}"))) as server, transport_of(kind) as transport:
            assert await body_of(transport, HttpRequest("GET", server.url, {}, b"")) == b"{}"
            return server.requests[0]

    assert b"content-length" not in asyncio.run(main()).lower()


@both_transports
def test_response_headers_are_lower_case_and_repeated_ones_joined(kind: str) -> None:
    async def main() -> None:
        script = answering(whole(ANSWER, "X-Request-Id: r-1", "X-Note: a", "x-note: b"))
        async with serving(script) as server, transport_of(kind) as transport:
            response = await transport.send(post(server.url), QUICK)
            assert response.headers["x-request-id"] == "r-1"
            assert response.headers["x-note"] == "a, b"
            await response.close()

    asyncio.run(main())


def test_cookies_are_not_kept() -> None:
    async def main() -> list[bytes]:
        script = answering(whole(b"{}", "Set-Cookie: id=1; Path=/"))
        async with serving(script) as server, transport_of("aiohttp") as transport:
            await body_of(transport, post(server.url))
            await body_of(transport, post(server.url))
            return server.requests

    assert all(b"cookie" not in request.lower() for request in asyncio.run(main()))


@both_transports
def test_a_whole_stream_ends_in_done(kind: str) -> None:
    async def main() -> None:
        async with serving(answering(whole(ANSWER))) as server, transport_of(kind) as transport:
            deltas = await call(transport, post(server.url))
            assert isinstance(deltas[-1], DoneDelta)

    asyncio.run(main())


@both_transports
def test_a_connection_whose_body_was_read_is_used_again(kind: str) -> None:
    async def main() -> None:
        async with serving(answering(whole(ANSWER))) as server, transport_of(kind) as transport:
            for _ in range(3):
                assert await body_of(transport, post(server.url)) == ANSWER
            assert (server.connections, len(server.requests)) == (1, 3)

    asyncio.run(main())


async def ten_answers(kind: str, script: Script) -> Server:
    async with serving(script) as server, transport_of(kind) as transport:
        for _ in range(10):
            assert await body_of(transport, post(server.url)) == ANSWER
        return server


@both_transports
def test_a_server_that_closes_after_each_answer_fails_no_call(kind: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.send(whole(ANSWER))
        peer.close()

    server = asyncio.run(ten_answers(kind, script))
    assert (server.connections, len(server.requests)) == (10, 10)


@both_transports
@pytest.mark.parametrize("way", ["close", "reset"])
def test_a_request_that_meets_the_close_of_a_pooled_connection_is_sent_again_once(way: str, kind: str) -> None:
    used: set[Peer] = set()

    async def script(peer: Peer) -> None:
        if peer in used:
            getattr(peer, way)()
        else:
            used.add(peer)
            await peer.send(whole(ANSWER))

    server = asyncio.run(ten_answers(kind, script))
    assert (server.connections, len(server.requests)) == (10, 19)  # each but the first was lost once


def test_a_new_connection_is_used_where_other_pooled_ones_are_closed_too() -> None:
    async def main() -> None:
        everyone = asyncio.Event()
        answered = 0

        async def script(peer: Peer) -> None:
            nonlocal answered
            answered += 1
            if answered == 5:
                everyone.set()
            await everyone.wait()
            if answered > 5 and server.connections == 5:
                peer.close()  # it answers nothing more on the connections of the beginning
            else:
                await peer.send(whole(ANSWER))

        async with serving(script) as server, transport_of("aiohttp") as transport:
            await asyncio.gather(*(body_of(transport, post(server.url)) for _ in range(5)))
            assert await body_of(transport, post(server.url)) == ANSWER
            assert (server.connections, len(server.requests)) == (6, 7)

    asyncio.run(main())


@both_transports
def test_a_request_on_a_new_connection_is_sent_once(kind: str) -> None:
    async def script(peer: Peer) -> None:
        peer.close()

    async def main() -> None:
        async with serving(script) as server, transport_of(kind) as transport:
            with pytest.raises(ModelError, match="broke off"):
                await transport.send(post(server.url), QUICK)
            assert (server.connections, len(server.requests)) == (1, 1)

    asyncio.run(main())


def test_words_that_answer_no_request_are_not_the_next_answer() -> None:
    async def main() -> None:
        told = asyncio.Event()

        async def script(peer: Peer) -> None:
            await peer.send(whole(ANSWER))
            await asked.wait()
            await peer.send(whole(b"{}", status="408 Too Late"))
            told.set()

        asked = asyncio.Event()
        async with serving(script) as server, transport_of("aiohttp") as transport:
            assert await body_of(transport, post(server.url)) == ANSWER
            asked.set()
            await told.wait()
            assert await body_of(transport, post(server.url)) == ANSWER

    asyncio.run(main())


@both_transports
def test_many_calls_run_at_the_same_time(kind: str) -> None:
    async def main() -> None:
        everyone = asyncio.Event()
        arrived = 0

        async def script(peer: Peer) -> None:
            nonlocal arrived
            arrived += 1
            if arrived == 60:
                everyone.set()
            await everyone.wait()
            await peer.send(whole(ANSWER))

        async with serving(script) as server, transport_of(kind) as transport:
            bodies = await asyncio.gather(*(body_of(transport, post(server.url)) for _ in range(60)))
            assert set(bodies) == {ANSWER}

    asyncio.run(main())


# ---------------------------------------------------------------- compression


def bare_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


PACKED = {
    "gzip": gzip.compress(ANSWER),
    "x-gzip": gzip.compress(ANSWER[:50]) + gzip.compress(ANSWER[50:]),
    "deflate": zlib.compress(ANSWER),
    "Deflate": bare_deflate(ANSWER),
    "identity": ANSWER,
}


@both_transports
@pytest.mark.parametrize("encoding", PACKED)
def test_a_body_compressed_unasked_is_read_all_the_same(encoding: str, kind: str) -> None:
    async def main() -> None:
        script = answering(whole(PACKED[encoding], f"Content-Encoding: {encoding}"))
        async with serving(script) as server, transport_of(kind) as transport:
            assert await body_of(transport, post(server.url)) == ANSWER

    asyncio.run(main())


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "deflate", "Deflate"])
def test_compressed_bytes_may_be_cut_anywhere(encoding: str) -> None:
    inflater = Inflater(encoding.lower())
    pieces = [piece for byte in PACKED[encoding] for piece in inflater.feed(bytes([byte]))]
    inflater.end()
    assert b"".join(pieces) == ANSWER


def test_text_that_packs_well_is_no_bomb() -> None:
    text = b'data: {"type":"ping"}\n\n' * 1_000_000
    inflater = Inflater("gzip")
    assert sum(len(piece) for piece in inflater.feed(gzip.compress(text, 1))) == len(text)


def test_a_bomb_is_noticed_before_it_fills_memory() -> None:
    packed = gzip.compress(bytes(20_000_000))
    inflater = Inflater("gzip")
    unpacked = 0
    with pytest.raises(ModelError, match="unpacks to more"):  # noqa: PT012  # the loop is what raises
        for start in range(0, len(packed), 1_000):
            for piece in inflater.feed(packed[start : start + 1_000]):
                assert len(piece) <= PIECE_SIZE
                unpacked += len(piece)
    assert unpacked <= EXPANSION_FREE + EXPANSION_LIMIT * len(packed)


@pytest.mark.parametrize("packed", [gzip.compress(b"") * 200_000, b"\0\0\0\xff\xff" * 800_000], ids=["gzip", "deflate"])
def test_compressed_bytes_without_content_are_noticed(packed: bytes) -> None:
    inflater = Inflater("deflate" if packed[0] == 0 else "gzip")
    with pytest.raises(ModelError, match="almost nothing"):
        list(inflater.feed(packed))


def test_a_member_for_each_event_is_read() -> None:
    events = [b"data: %d\n\n" % number for number in range(50_000)]
    inflater = Inflater("gzip")
    assert b"".join(inflater.feed(b"".join(map(gzip.compress, events)))) == b"".join(events)
    inflater.end()


def test_what_zlib_still_holds_when_a_piece_is_full_is_not_lost() -> None:
    for more in range(300):
        text = b"a" * (PIECE_SIZE + more)
        inflater = Inflater("deflate")
        assert b"".join(inflater.feed(bare_deflate(text))) == text
        inflater.end()


def test_damaged_data_raises_nothing_but_model_errors() -> None:
    chance = random.Random(7)
    for _ in range(300):
        packed = bytearray(PACKED["gzip"])
        packed[chance.randrange(len(packed))] ^= 1 << chance.randrange(8)
        inflater = Inflater("gzip")
        try:
            list(inflater.feed(bytes(packed)))
            inflater.end()
        except ModelError:
            pass


# ---------------------------------------------------------------- settings of the default transport


def test_custom_headers_go_with_every_request_and_the_request_s_own_win() -> None:
    async def main() -> bytes:
        transport = AiohttpTransport(trust_env=False, headers={"X-Team": "blue", "X-Api-Key": "other"})
        async with serving(answering(whole(ANSWER))) as server:
            await body_of(transport, post(server.url, key="k-1"))
            return server.requests[0].lower()

    request = asyncio.run(main())
    assert b"x-team: blue" in request
    assert b"x-api-key: k-1" in request
    assert b"other" not in request


PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return monkeypatch


@pytest.mark.parametrize("way", ["explicit", "http_proxy", "HTTP_PROXY", "all_proxy"])
def test_a_proxy_gets_the_request(way: str, clean_environment: pytest.MonkeyPatch) -> None:
    async def main() -> bytes:
        async with serving(answering(whole(ANSWER))) as proxy:
            address = proxy.url.removesuffix("/v1/messages")
            if way != "explicit":
                clean_environment.setenv(way, address)
            transport = AiohttpTransport(proxy=address if way == "explicit" else None)
            await body_of(transport, post("http://models.example/v1/messages"))
            return proxy.requests[0]

    assert asyncio.run(main()).startswith(b"POST http://models.example/v1/messages HTTP/1.1\r\n")


@pytest.mark.parametrize("why", ["no_proxy", "trust_env"])
def test_a_proxy_of_the_environment_can_be_passed_by(why: str, clean_environment: pytest.MonkeyPatch) -> None:
    async def main() -> int:
        async with serving(answering(whole(ANSWER))) as proxy, serving(answering(whole(ANSWER))) as server:
            clean_environment.setenv("http_proxy", proxy.url)
            if why == "no_proxy":
                clean_environment.setenv("no_proxy", "127.0.0.1")
            transport = AiohttpTransport(trust_env=why == "no_proxy")
            await body_of(transport, post(server.url))
            return len(proxy.requests)

    assert asyncio.run(main()) == 0


def test_the_environment_is_asked_for_a_proxy_once_for_each_host(clean_environment: pytest.MonkeyPatch) -> None:
    async def main() -> tuple[int, int]:
        async with serving(answering(whole(ANSWER))) as proxy, serving(answering(whole(ANSWER))) as server:
            transport = AiohttpTransport()
            await body_of(transport, post(server.url))
            clean_environment.setenv("http_proxy", proxy.url)
            await body_of(transport, post(server.url))
            asked_before = len(proxy.requests)
            await body_of(transport, post("http://models.example/v1/messages"))
            return asked_before, len(proxy.requests)

    assert asyncio.run(main()) == (0, 1)


def test_a_proxy_of_another_kind_is_refused_without_its_password(clean_environment: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidValue, match="SOCKS") as caught:
        AiohttpTransport(proxy="socks5://me:planted@proxy.example")
    assert "planted" not in str(caught.value)
    clean_environment.setenv("all_proxy", "socks5://me:planted@proxy.example")
    with pytest.raises(InvalidValue, match="SOCKS") as caught:
        asyncio.run(body_of(AiohttpTransport(), post("http://models.example/")))
    assert "planted" not in str(caught.value)


def test_a_proxy_that_is_down_is_a_connection_error() -> None:
    async def main() -> None:
        with pytest.raises(ModelError, match="proxy") as caught:
            await body_of(AiohttpTransport(proxy="http://127.0.0.1:9"), post("http://models.example/"))
        assert caught.value.code == "connection"

    asyncio.run(main())


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder / "cert.pem", folder / "key.pem"


@pytest.mark.parametrize("way", ["ca_file", "ssl_context", "system"])
def test_a_certificate_is_trusted_only_through_the_authorities_given(way: str, certificate: tuple[Path, Path]) -> None:
    async def main() -> bytes:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await Peer(reader, writer).request()
            writer.write(whole(ANSWER))
            await reader.read()
            writer.close()

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        listener = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        url = f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1/messages"
        ways: dict[str, dict[str, Any]] = {
            "ca_file": {"ca_file": certificate[0]},
            "ssl_context": {"ssl_context": ssl.create_default_context(cafile=certificate[0])},
            "system": {},
        }
        transport = AiohttpTransport(trust_env=False, **ways[way])
        try:
            return await body_of(transport, post(url))
        finally:
            await transport.close()
            listener.close()

    if way == "system":
        with pytest.raises(ModelError, match="certificate") as caught:
            asyncio.run(main())
        assert (caught.value.code, caught.value.retryable) == ("connection", False)
    else:
        assert asyncio.run(main()) == ANSWER


# ---------------------------------------------------------------- the shared pool


def test_models_share_one_transport() -> None:
    assert default_transport() is default_transport()


def test_one_transport_serves_one_event_loop_after_the_other_and_leaves_nothing_open() -> None:
    transport = AiohttpTransport(trust_env=False)

    async def main() -> None:
        async with serving(answering(whole(ANSWER))) as server:
            assert await body_of(transport, post(server.url)) == ANSWER

    for _ in range(3):
        asyncio.run(main())
    assert transport._pools == {}
    gc.collect()  # an unclosed session or socket would warn here, and a warning is an error


def test_a_loop_that_was_just_closed_is_forgotten_by_the_next() -> None:
    transport = AiohttpTransport(trust_env=False)

    async def main() -> None:
        async def script(peer: Peer) -> None:
            await peer.send(whole(ANSWER, "Connection: close"))
            peer.close()

        async with serving(script) as server:
            await body_of(transport, post(server.url))

    for _ in range(2):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(main())
        loop.close()
    assert len(transport._pools) == 1
    asyncio.run(main())
    assert transport._pools == {}
    gc.collect()


def test_a_closed_transport_opens_again_when_it_is_used() -> None:
    async def main() -> None:
        async with serving(answering(whole(ANSWER))) as server:
            transport = AiohttpTransport(trust_env=False)
            for _ in range(2):
                assert await body_of(transport, post(server.url)) == ANSWER
                await transport.close()
            await transport.close()

    asyncio.run(main())


def test_importing_the_package_loads_no_network_library() -> None:
    program = (
        "import sys, dragoman.transport, dragoman.testing.transports\n"
        "print(*{'asyncio', 'ssl', 'aiohttp', 'httpx', 'botocore', 'urllib.request'} & set(sys.modules))"
    )
    command = [sys.executable, "-I", "-c", program]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "\n"


def test_an_object_that_is_no_httpx_client_is_refused() -> None:
    with pytest.raises(InvalidValue, match="AsyncClient"):
        HttpxTransport(object())  # type: ignore[arg-type]  # the point of the test
