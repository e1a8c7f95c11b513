"""Keys stay secret: a planted one is searched for in logs, errors, reprs, tracebacks and recorded files."""

import asyncio
import base64
import gzip
import logging
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from dragoman import InvalidValue, ModelError, to_json
from dragoman.stream.eventstream import encode_frame
from dragoman.testing.transports import RecordingTransport, ReplayedResponse, ReplayTransport
from dragoman.transport import (
    AiohttpTransport,
    AwsKeys,
    AwsSigner,
    HttpRequest,
    HttpxTransport,
    KeySigner,
    Signer,
    TokenSigner,
    Transport,
)
from tests.loopback import CLOSING, KEY, OPENING, QUICK, answering, call, post, serving, transport_of, whole
from tests.test_faults import FAULTS, Fault

both_transports = pytest.mark.parametrize("kind", ["aiohttp", "httpx"])
NOTABLE = [fault for fault in FAULTS if fault.name != "a line of 50 MB"]  # seconds of asyncio's own debug log
SHAPED_KEY = "sk-ant-api03-planted0123456789"  # as vendors make them


def secret_request(url: str) -> HttpRequest:
    """Return a request with the planted key in its headers and in its query."""
    headers = {"x-api-key": KEY, "authorization": f"Bearer {KEY}", "content-type": "application/json"}
    return HttpRequest("POST", f"{url}?key={KEY}&beta=true", headers, b'{"prompt":"private-prompt"}')


def everything_of(error: BaseException) -> Iterator[str]:
    """Yield what an error reporter could show: texts, arguments, the chain, and the local variables of our frames."""
    seen: set[int] = set()
    chain: list[BaseException | None] = [error]
    while chain:
        link = chain.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        yield from (str(link), repr(link), repr(link.args), repr(vars(link)))
        yield from own_frames(link)
        chain += [link.__cause__, link.__context__]


def own_frames(error: BaseException) -> Iterator[str]:
    report = traceback.TracebackException.from_exception(error, capture_locals=True)
    for frame in report.stack:
        if "dragoman" in frame.filename and "/tests/" not in frame.filename:
            yield f"{frame.name}: {frame.locals}"


def logged(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(f"{record.getMessage()} {record.args!r} {record.exc_text}" for record in caplog.records)


@pytest.fixture
def full_log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG)
    for name in ("asyncio", "aiohttp", "httpx", "httpcore", "botocore", "dragoman"):
        caplog.set_level(logging.DEBUG, logger=name)
    return caplog


@both_transports
@pytest.mark.parametrize("fault", NOTABLE, ids=lambda fault: fault.name)
def test_a_fault_tells_no_key(fault: Fault, kind: str, full_log: pytest.LogCaptureFixture) -> None:
    found: list[str] = []

    async def main() -> None:
        async with serving(fault.script) as server, transport_of(kind) as transport:
            request = secret_request(server.url)
            found.append(repr(request))
            try:
                response = await transport.send(request, fault.timeouts)
                found.append(repr(response))
                async for _ in response.chunks():
                    pass
                await response.close()
            except ModelError as error:
                found.extend(everything_of(error))
            found.extend(repr(delta) + str(to_json(delta)) for delta in await call(transport, request, fault.timeouts))
            found.append(repr(transport))
            assert any(KEY.encode() in request for request in server.requests)  # it was really sent

    asyncio.run(main(), debug=True)
    assert full_log.records  # the log was really on
    for text in (*found, logged(full_log)):
        assert KEY not in text
        assert "private-prompt" not in text


@both_transports
def test_a_good_call_logs_no_key(kind: str, full_log: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with serving(answering(whole(OPENING + CLOSING))) as server, transport_of(kind) as transport:
            await call(transport, secret_request(server.url))

    asyncio.run(main(), debug=True)
    assert KEY not in logged(full_log)
    assert "private-prompt" not in logged(full_log)


@both_transports
def test_a_host_that_cannot_be_reached_tells_no_key(kind: str, full_log: pytest.LogCaptureFixture) -> None:
    found: list[str] = []

    async def main() -> None:
        async with transport_of(kind) as transport:
            try:
                await transport.send(secret_request("http://127.0.0.1:9/v1/messages"), QUICK)
            except ModelError as error:
                found.extend(everything_of(error))

    asyncio.run(main(), debug=True)
    assert found
    assert KEY not in "\n".join([*found, logged(full_log)])


def test_a_proxy_s_password_is_told_by_nobody(full_log: pytest.LogCaptureFixture) -> None:
    transport = AiohttpTransport(proxy=f"http://me:{KEY}@127.0.0.1:9", headers={"x-team-key": KEY})
    found = [repr(transport), str(transport)]

    async def main() -> None:
        try:
            await transport.send(post("http://models.example/"), QUICK)
        except ModelError as error:
            found.extend(everything_of(error))

    asyncio.run(main(), debug=True)
    assert len(found) > 2
    assert KEY not in "\n".join([*found, logged(full_log)])


@both_transports
def test_a_provider_that_repeats_the_key_does_not_get_it_into_the_error(kind: str) -> None:
    words = f"Incorrect API key provided: {SHAPED_KEY}. Header x-api-key: {KEY} is not valid."
    body = b'{"type":"error","error":{"type":"authentication_error","message":"%s"}}' % words.encode()

    async def main() -> str:
        script = answering(whole(body, status="401 No", kind="application/json"))
        async with serving(script) as server, transport_of(kind) as transport:
            (delta,) = await call(transport, post(server.url, key=SHAPED_KEY))
            return repr(delta) + str(to_json(delta))

    told = asyncio.run(main())
    assert "authentication" in told
    assert SHAPED_KEY not in told
    assert KEY not in told


def secret_token() -> str:
    return KEY


SIGNERS: list[Signer] = [
    KeySigner(KEY),
    KeySigner(KEY, "x-api-key"),
    TokenSigner(secret_token),
    AwsSigner("eu-west-1", keys=AwsKeys(f"{KEY}-id", f"{KEY}-secret", f"{KEY}-token")),
]


@pytest.mark.parametrize("signer", SIGNERS, ids=repr)
def test_a_signer_shows_no_secret_and_logs_none(signer: Signer, full_log: pytest.LogCaptureFixture) -> None:
    signed = asyncio.run(signer.sign(HttpRequest("POST", "http://h/", {}, b"{}")), debug=True)
    assert any(KEY in value for value in signed.headers.values())
    assert KEY not in repr(signer) + str(signer) + repr(signed) + logged(full_log)


def test_values_that_hold_secrets_show_none() -> None:
    shown = [AwsKeys(KEY, KEY, KEY), secret_request("http://127.0.0.1/x"), HttpxTransport(httpx.AsyncClient())]
    shown += [HttpRequest("POST", f"http://me:{KEY}@h/", {}, b"")]
    for value in shown:
        assert KEY not in repr(value) + str(value) + f"{value}" + str(getattr(value, "__rich_repr__", list)())


@pytest.mark.parametrize(
    "source", [lambda: {"secret": KEY}, lambda: (_ for _ in ()).throw(ValueError(KEY)), lambda: f"{KEY}\n"]
)
def test_a_token_source_that_fails_tells_no_secret(source: Any) -> None:
    with pytest.raises((ModelError, ValueError)) as caught:
        asyncio.run(TokenSigner(source).sign(HttpRequest("POST", "http://h/", {}, b"")))
    assert KEY not in "\n".join(everything_of(caught.value))


@pytest.mark.parametrize("key", [f"{KEY}\n", f" {KEY}", f"{KEY}é", ""])
def test_a_key_that_cannot_be_sent_is_refused_unquoted(key: str) -> None:
    for header in ("authorization", "x-api-key"):
        with pytest.raises(InvalidValue, match=header) as caught:
            KeySigner(key, header)
        assert KEY not in "\n".join(everything_of(caught.value))


def test_a_header_that_cannot_be_sent_is_refused_without_its_key() -> None:
    with pytest.raises(InvalidValue, match="names that are HTTP tokens") as caught:
        KeySigner(KEY, "x key")
    assert KEY not in "\n".join(everything_of(caught.value))


# ---------------------------------------------------------------- recorded files


def recorded_text(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz"])
@both_transports
def test_a_recording_of_the_network_holds_no_key(name: str, kind: str, tmp_path: Path) -> None:
    echo = b'data: {"type":"ping","echo":"%s","other":"%s"}\n\n' % (KEY.encode(), SHAPED_KEY.encode())
    body = b'{"messages":[{"role":"user","content":"my key is %s"}],"api_key":"short"}' % SHAPED_KEY.encode()

    async def main() -> None:
        script = answering(whole(OPENING + echo + CLOSING, f"Retry-After: {KEY}"))
        async with serving(script) as server, transport_of(kind) as transport:
            request = secret_request(server.url)
            recorder = RecordingTransport(transport, tmp_path / name, protocol="anthropic-messages")
            assert KEY not in repr(recorder)
            await call(recorder, HttpRequest("POST", request.url, request.headers, body))

    asyncio.run(main())
    text = recorded_text(tmp_path / name)
    assert "message_stop" in text
    assert "beta=true" in text
    assert "my key is" in text
    for secret in (KEY, SHAPED_KEY, "short"):
        assert secret not in text
    assert KEY.encode() not in (tmp_path / name).read_bytes()


async def record_one(transport: Transport, request: HttpRequest, path: Path) -> str:
    recorder = RecordingTransport(transport, path, protocol="bedrock-converse")
    response = await recorder.send(request, QUICK)
    async for _ in response.chunks():
        pass
    return recorded_text(path)


def test_a_recording_of_a_binary_stream_holds_no_key(tmp_path: Path) -> None:
    frame = encode_frame(
        {":event-type": "contentBlockDelta", ":message-type": "event"}, b'{"echo":"%s"}' % KEY.encode()
    )
    exchange = ReplayedResponse(chunks=(frame,), headers={"content-type": "application/vnd.amazon.eventstream"})
    text = asyncio.run(record_one(ReplayTransport([exchange]), secret_request("http://h/x"), tmp_path / "x.jsonl"))
    assert KEY not in text
    assert "contentBlockDelta" in text
    assert KEY.encode() not in base64.b64decode(text.partition('"body_b64": "')[2].partition('"')[0])


def test_a_recording_of_a_signed_request_holds_no_part_of_the_signature(tmp_path: Path) -> None:
    keys = AwsKeys("AKIDPLANTED", "secret-planted", "token-planted-0123456789")

    async def main() -> tuple[HttpRequest, str]:
        request = await AwsSigner("eu-west-1", keys=keys).sign(HttpRequest("POST", "http://h/x", {}, b"{}"))
        echo = request.headers["authorization"].encode() + b" token-planted-0123456789"
        exchange = ReplayedResponse(chunks=(echo,), headers={"content-type": "text/plain"})
        return request, await record_one(ReplayTransport([exchange]), request, tmp_path / "x.jsonl")

    request, text = asyncio.run(main())
    assert "planted" not in text.lower()
    assert request.headers["authorization"].rpartition("=")[2] not in text


def test_what_a_model_signs_is_no_secret_and_stays(tmp_path: Path) -> None:
    signature = "EqQBCkYIBBgCKkBbase64base64=="
    body = b'{"content":[{"type":"thinking","thinking":"x","signature":"%s"}]}' % signature.encode()
    exchange = ReplayedResponse(chunks=(body,), headers={"content-type": "application/json"})
    request = HttpRequest("POST", "http://h/x", {"x-api-key": KEY}, body)
    text = asyncio.run(record_one(ReplayTransport([exchange]), request, tmp_path / "x.jsonl"))
    assert text.count(signature) == 2
