"""A provider that repeats the credentials wherever it can gets them into no record, log, span, recording or error."""

import asyncio
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from dragoman import (
    AgentConfig,
    InvalidValue,
    LoopConfig,
    ObservabilityConfig,
    SQLiteStore,
    model,
    start_session,
)
from dragoman.message import Message
from dragoman.models import render_request
from dragoman.store import PostgresStore
from dragoman.testing.transports import RecordingTransport
from dragoman.tools.mcp import McpServer
from dragoman.transport import AiohttpTransport, KeySigner
from tests.loopback import KEY, QUICK, Peer, serving, transport_of, whole
from tests.telemetry_cases import Receiver
from tests.test_secrets import everything_of, logged

HEADER = "team-4711-planted-header"  # the value of a header that the caller gave
ECHO = f"Bearer {KEY} {HEADER}"
LOUD = AgentConfig(
    loop=LoopConfig(attempts=1),
    observability=ObservabilityConfig(log_level="debug", traces=True, record_content=True),
)


def events(*objects: dict[str, Any], named: bool = False) -> bytes:
    lines = [f"event: {each['type']}\n" if named else "" for each in objects]
    return "".join(f"{line}data: {json.dumps(each)}\n\n" for line, each in zip(lines, objects, strict=True)).encode()


def in_pieces(field: str) -> list[str]:
    """Return a text that holds the key, cut through its middle, as deltas may cut it."""
    text = f"{field} {ECHO}."
    return [text[start : start + 7] for start in range(0, len(text), 7)]


CHAT = events(
    *[
        {"id": KEY, "model": KEY, "system_fingerprint": KEY, "choices": [{"index": 0, "delta": {"content": piece}}]}
        for piece in in_pieces("said")
    ],
    {"id": KEY, "model": KEY, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "echo": KEY}]},
    {"id": KEY, "model": KEY, "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1, "echo": KEY}},
)
MESSAGES = events(
    {
        "type": "message_start",
        "message": {
            "id": KEY, "type": "message", "role": "assistant", "model": KEY, "content": [], "echo": KEY,
            "usage": {"input_tokens": 3, "output_tokens": 1, "echo": KEY},
        },
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    *[
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
        for piece in in_pieces("said")
    ],
    {"type": "content_block_stop", "index": 0},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": KEY, "echo": KEY},
        "usage": {"output_tokens": 2, "echo": KEY},
    },
    {"type": "message_stop"},
)  # fmt: skip
GEMINI = events(
    {
        "candidates": [{"content": {"role": "model", "parts": [{"text": f"said {ECHO}."}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 1, "echo": KEY},
        "modelVersion": KEY,
        "responseId": KEY,
        "echo": KEY,
    }
)
ANSWERS = {"openai-chat:m": CHAT, "anthropic:m": MESSAGES, "google:m": GEMINI}
STRANGE = events({"id": "1", "choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": KEY}]})
REFUSAL = json.dumps({"error": {"type": KEY, "code": KEY, "message": f"wrong: {ECHO}", "echo": KEY}}).encode()


async def run_agent(name: str, answer: bytes, folder: Path, found: list[str], kind: str) -> str:
    """Run an agent against a server that answers so; return how it ended and note all that could be told."""
    receiver = Receiver(record_content=True)
    async with (
        serving(answering_once(answer)) as server,
        transport_of(kind) as transport,
        SQLiteStore(folder / "s.db") as store,
    ):
        recorder = RecordingTransport(transport, folder / "x.jsonl", protocol="openai-chat")
        chosen = model(
            name, api_key=KEY, base_url=server.url, transport=recorder, timeouts=QUICK, headers={"x-team": HEADER}
        )
        session = await start_session(store, "s")
        agent = receiver.agent(chosen, session=session, config=LOUD)
        result = await agent.run("Hello")
        assert any(KEY.encode() in request and HEADER.encode() in request for request in server.requests)
        found += [repr(result), repr(list(session.entries)), repr(chosen), repr(agent), repr(chosen.client)]
        found += [repr(chosen.render([Message.user("Hello")]))]
    found += [f"{span.name} {dict(span.attributes or {})} {span.events} {span.status}" for span in receiver.spans]
    return str(result.status)


def answering_once(answer: bytes) -> Any:
    async def script(peer: Peer) -> None:
        if answer is REFUSAL:
            fields = (f"X-Request-Id: {KEY}", f"X-Echo: {ECHO}")
            await peer.send(whole(answer, *fields, status="400 No", kind="application/json"))
        else:
            await peer.send(whole(answer, f"X-Request-Id: {KEY}", f"X-Echo: {ECHO}"))

    return script


@pytest.mark.parametrize("kind", ["aiohttp", "httpx"])
@pytest.mark.parametrize(
    ("name", "answer", "status"),
    [
        *[(name, answer, "completed") for name, answer in ANSWERS.items()],
        ("openai-chat:m", STRANGE, "failed"),
        *[(name, REFUSAL, "failed") for name in (*ANSWERS, "openai:m")],
    ],
)
def test_what_a_provider_repeats_is_kept_nowhere(
    name: str, answer: bytes, status: str, kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for logger in ("httpcore", "hpack"):  # its debug log of response headers is httpcore's own
        caplog.set_level(logging.INFO, logger=logger)
    found: list[str] = []
    assert asyncio.run(run_agent(name, answer, tmp_path, found, kind)) == status
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"Hello" in kept
    if status == "completed":
        assert re.search(rb"said (?:Bearer )?\[redacted\]", kept)
    for secret in (KEY, HEADER):
        assert secret.encode() not in kept
        told = [text for text in (*found, logged(caplog)) if secret in text]
        assert told == []


def test_placeholders_for_a_key_are_ordinary_words() -> None:
    async def main(key: str) -> str:
        answer = events({"id": "1", "choices": [{"index": 0, "delta": {"content": key}, "finish_reason": "stop"}]})
        async with serving(answering_once(answer)) as server, transport_of("aiohttp") as transport:
            chosen = model("openai-chat:m", api_key=key, base_url=server.url, transport=transport)
            message = (await chosen.stream([Message.user("Hi")]).collect()).message
            assert message is not None
            return message.text

    for key in ("EMPTY", "none", "ollama", "lm-studio", "not-needed", "key", "12345678"):
        assert asyncio.run(main(key)) == key


@pytest.mark.parametrize("key", ["k", f"Bearer {KEY}", KEY * 1_000, f"{KEY}\n", f" {KEY}"])
def test_a_key_that_can_be_none_is_refused_where_it_is_given(key: str) -> None:
    with pytest.raises(InvalidValue, match="the key for header 'x-api-key'") as caught:
        model("anthropic:m", api_key=key)
    assert KEY not in "\n".join(everything_of(caught.value))


async def open_store(address: str) -> None:
    async with PostgresStore(address) as store:
        del address
        await store.migrate()


REFUSED: dict[str, Any] = {
    "name": lambda: model("nonsense", api_key=KEY),
    "provider": lambda: model("nobody:m", api_key=KEY, headers={"x-team": KEY}),
    "timeouts": lambda: model("anthropic:m", api_key=KEY, timeouts=5),  # type: ignore[arg-type]  # the point of it
    "setting": lambda: model("anthropic:m", api_key=KEY, temperature="warm"),
    "base_url": lambda: model("anthropic:m", base_url=f"https://me:{KEY}@host/?key={KEY}"),
    "user of base_url": lambda: model("anthropic:m", base_url=f"https://me:{KEY}@host/v1"),
    "host of base_url": lambda: model("anthropic:m", base_url=f"http://[::1/{KEY}"),
    "port of base_url": lambda: model("anthropic:m", base_url=f"http://host:{KEY}/v1"),
    "environment": lambda: model("anthropic:m", api_key=KEY, base_url=f"ftp://{KEY}"),
    "header": lambda: model("anthropic:m", headers={"x-team": f"{KEY}\n"}),
    "header name": lambda: model("anthropic:m", headers={f"x {KEY}": "a"}),
    "kind of key": lambda: model("anthropic:m", api_key={"key": KEY}),  # type: ignore[arg-type]  # the point of it
    "render": lambda: render_request("anthropic:m", [], headers={"x-team": f"{KEY}\n"}),
    "signer": lambda: KeySigner(f"{KEY}\n"),
    "transport": lambda: AiohttpTransport(headers={"x-team": f"{KEY}\n"}),
    "proxy": lambda: AiohttpTransport(proxy=f"socks5://me:{KEY}@host"),
    "mcp url": lambda: McpServer.http(f"https://me:{KEY}@host/mcp", {"x-team": KEY}),
    "mcp header": lambda: McpServer.http("https://host/mcp", {"x-team": f"{KEY}\n"}),
    "store": lambda: PostgresStore(f"postgresql://me:{KEY}@host/db", connections=0),
    "address of a store": lambda: asyncio.run(open_store(f"postgresql://me:{KEY}@[host/db")),
    "mcp env": lambda: McpServer.stdio("x", env={"TOKEN=": KEY}),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_stays_in_no_local_variable(what: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        REFUSED[what]()
    told = [text for text in everything_of(caught.value) if KEY in text]
    assert told == []


def test_a_header_of_the_caller_is_sent_and_not_shown() -> None:
    given = {"x-team": HEADER, "anthropic-beta": "files-2026-01-01"}
    rendered = render_request("anthropic:m", [Message.user("Hi")], headers=given)
    assert HEADER not in repr(rendered)
    assert rendered.headers["x-team"] == "[redacted]"
    assert re.fullmatch("files-[0-9-]+", rendered.headers["anthropic-beta"])
