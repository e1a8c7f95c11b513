"""Transports without a network: what was recorded plays again, byte for byte and delta for delta."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from dragoman import InvalidValue, ModelError
from dragoman.delta import DoneDelta
from dragoman.testing.transports import RecordingTransport, ReplayedResponse, ReplayTransport, read_recording
from dragoman.transport import HttpRequest, Transport
from tests.loopback import CLOSING, OPENING, QUICK, answering, call, post, serving, transport_of, whole

ANSWER = OPENING + CLOSING
PLAIN = HttpRequest("POST", "http://127.0.0.1:1/v1", {}, b"{}")


def test_a_replay_answers_in_order_and_keeps_the_requests() -> None:
    async def main() -> None:
        overloaded = ModelError("busy", code=None)
        transport = ReplayTransport([overloaded, ReplayedResponse(chunks=(OPENING, CLOSING))])
        with pytest.raises(ModelError, match="busy"):
            await transport.send(PLAIN, QUICK)
        assert isinstance((await call(transport, PLAIN))[-1], DoneDelta)
        assert transport.requests == [PLAIN, PLAIN]
        assert transport.closed_responses == 1
        with pytest.raises(InvalidValue, match="2 exchanges"):
            await transport.send(PLAIN, QUICK)

    asyncio.run(main())


def test_a_replay_can_break_off() -> None:
    cut = ReplayedResponse(chunks=(OPENING,), failure=ModelError("gone"))
    deltas = asyncio.run(call(ReplayTransport([cut]), PLAIN))
    assert deltas[-1].kind == "error"


@pytest.mark.parametrize("name", ["exchanges.jsonl", "exchanges.jsonl.gz"])
def test_a_recording_replays_to_the_same_deltas(name: str, tmp_path: Path) -> None:
    limit = b'{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}'
    exchanges = [
        ReplayedResponse(chunks=(OPENING[:70], OPENING[70:], CLOSING)),
        ReplayedResponse(
            chunks=(limit,), status=429, headers={"content-type": "application/json", "retry-after": "7", "x": "y"}
        ),
        ReplayedResponse(chunks=(OPENING,)),
        ReplayedResponse(chunks=(b"\0\xff\xfe",), headers={"content-type": "application/vnd.amazon.eventstream"}),
    ]

    async def deltas(transport: Transport) -> list[Any]:
        return [await call(transport, PLAIN) for _ in exchanges]

    path = tmp_path / name
    recorder = RecordingTransport(ReplayTransport(exchanges), path, protocol="anthropic-messages", vendor="anthropic")
    first = asyncio.run(deltas(recorder))
    assert asyncio.run(deltas(ReplayTransport.from_recording(path))) == first
    assert path.stat().st_mode & 0o077 == 0


def test_a_recording_of_the_network_holds_the_fields_of_the_corpus(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(answering(whole(ANSWER))) as server, transport_of("aiohttp") as transport:
            recorder = RecordingTransport(
                transport, tmp_path / "x.jsonl", protocol="anthropic-messages", name="me/test"
            )
            await call(recorder, post(server.url + "?beta=true", body=b'{"model":"claude","max_tokens":5}'))

    asyncio.run(main())
    record = json.loads((tmp_path / "x.jsonl").read_text())
    assert record["id"] == "me/test#0"
    assert record["protocol"] == "anthropic-messages"
    assert record["streaming"] is True
    assert record["framing"] == "wire"
    assert record["request"] == {
        "method": "POST",
        "path": "/v1/messages?beta=true",
        "body": {"model": "claude", "max_tokens": 5},
    }
    assert record["response"] == {"status": 200, "content_type": "text/event-stream", "body": ANSWER.decode()}
    assert (record["expect"], record["features"], record["values_redacted"]) == (None, [], 0)
    (replayed,) = read_recording(tmp_path / "x.jsonl")
    assert replayed.chunks == (ANSWER,)


def test_a_file_that_is_no_recording_is_unreadable(tmp_path: Path) -> None:
    for name, data in {"a.jsonl": b"{}", "b.jsonl": b"hello", "c.jsonl.gz": b"hello", "d.jsonl": b"[1]"}.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ValueError, match=r"no recording|no gzip file"):
            read_recording(tmp_path / name)
