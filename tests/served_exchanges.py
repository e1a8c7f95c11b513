"""Recorded exchanges through the gateway, over real HTTP: every front, and whichever API recorded the answer behind it.

`python -m tests.served_exchanges` prints the counts; `--every N` takes each Nth exchange.

An upstream plays the recorded answer back. What a client of the front reads must say the same; where both sides speak
the same API, both bodies must be the same to the byte. A stream that is cut must never read as finished.
"""

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web

from dragoman.delta import DoneDelta
from dragoman.errors import DragomanError
from dragoman.models import Model, model
from dragoman.store import MemoryStore, SessionStore
from dragoman.stream import Assembly
from dragoman.web.gateway.application import Gateway, GatewaySettings
from dragoman.web.gateway.passing import passed_request
from dragoman.web.gateway.routes import Routes
from dragoman.wire import find_recorded_dialect
from tests.corpus import PROTOCOLS, Record, body_of, decode, records
from tests.gateway_stage import told_by
from tests.written_answers import SAID_FINISHES, SERVED, api_of, assembled, read, said

KEY = "key-of-the-upstream"
CUTS = 4  # of each streamed answer
_SAID = [{"role": "user", "content": "hi"}]
_BODIES: dict[str, dict[str, Any]] = {
    "anthropic-messages": {"messages": _SAID, "max_tokens": 100_000},
    "openai-chat": {"messages": _SAID, "stream_options": {"include_usage": True}},
    "openai-responses": {"input": "hi", "store": False},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
}
_PATHS = {
    "anthropic-messages": "/v1/messages",
    "openai-chat": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
}


class Upstream:
    """Plays the answer of `record` back, whole or its first `length` bytes, and keeps the request that it got."""

    def __init__(self) -> None:
        self.record: Record | None = None
        self.length: int | None = None
        self.body = b""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer any request."""
        self.body = await request.read()
        assert self.record is not None
        recorded = self.record["response"]
        kind = recorded.get("content_type") or "application/json"
        response = web.StreamResponse(status=recorded["status"], headers={"content-type": kind})
        await response.prepare(request)
        body = body_of(self.record)
        await response.write(body if self.length is None else body[: self.length])
        return response


class Stage:
    """An upstream, a gateway before it, and a client."""

    def __init__(self, store: SessionStore) -> None:
        self.upstream = Upstream()
        self.store = store
        self.model_name = ""
        self.address = self._upstream_address = ""
        self.client: aiohttp.ClientSession

    def open_model(self, name: str) -> Model:
        """The model that the current exchange was recorded with, at the upstream's address."""
        return model(name, base_url=self._upstream_address, api_key=KEY, region="eu-west-1", project="p")

    async def ask(self, api: str, body: bytes, *, stream: bool, name: str = "m") -> tuple[int, bytes]:
        """Status and body of the gateway's answer."""
        path = (
            _PATHS.get(api)
            or f"/v1beta/models/{name}:{'streamGenerateContent?alt=sse' if stream else 'generateContent'}"
        )
        async with self.client.post(self.address + path, data=body) as response:
            told = await told_by(response)
            return told.status, told.body


@asynccontextmanager
async def staged(store: SessionStore | None = None) -> AsyncIterator[Stage]:
    """A stage on loopback."""
    stage = Stage(store or MemoryStore())
    upstream = web.Application(client_max_size=1 << 30)
    upstream.router.add_route("*", "/{path:.*}", stage.upstream.answer)
    routes = _OneRoute(stage)
    gateway = Gateway(stage.store, routes, stage.open_model, settings=GatewaySettings(silence_seconds=600.0))
    runners = []
    for application in (upstream, gateway.application()):
        runner = web.AppRunner(application, access_log=None, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        runners.append(runner)
    stage._upstream_address, stage.address = (f"http://127.0.0.1:{runner.addresses[0][1]}" for runner in runners)
    async with aiohttp.ClientSession(auto_decompress=False) as stage.client:
        try:
            yield stage
        finally:
            for runner in reversed(runners):
                await runner.cleanup()


class _OneRoute(Routes):
    """Every name means the model of the stage."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self._stage = stage

    def find(self, name: str, api: str) -> tuple[str, ...]:  # all are one
        return (self._stage.model_name,)


def is_streamed(record: Record) -> bool:
    """Whether the recorded answer is a stream."""
    kind = record["response"].get("content_type") or ""
    return "event-stream" in kind or "eventstream" in kind


def front_problem(before: Assembly, api: str, status: int, body: bytes, *, stream: bool) -> str | None:
    """How what a client reads differs from what was recorded; None where it says the same."""
    after = assembled(read(body, api, stream=stream)) if status == 200 else None
    is_error = after is None or after.error is not None
    if before.message is None:
        return None if is_error else "an answer that failed reads as finished"
    assert before.finish_reason is not None
    expected = SAID_FINISHES[api].get(before.finish_reason, before.finish_reason)
    if expected is None:
        return None if is_error else "a finish without a word does not read as an error"
    if after is None or after.error is not None:
        return f"status {status}: {body[:300]!r}"
    if after.finish_reason is not expected:
        return f"finishes with {after.finish_reason}, not {expected}"
    one, other = said(before, api), said(after, api)
    return next(
        (f"{name}: {one[name]!r} became {other[name]!r}"[:500] for name in one if one[name] != other[name]), None
    )


async def pair_problem(stage: Stage, protocol: str, record: Record, api: str) -> str | None:
    """Ask the front for the recorded answer, and say what is wrong with what came."""
    stream = is_streamed(record)
    stage.upstream.record, stage.upstream.length = record, None
    body = {**_BODIES[api], **({} if api == "gemini" else {"model": "m", "stream": stream})}
    status, answer = await stage.ask(api, json.dumps(body).encode(), stream=stream)
    if api == api_of(protocol) and passes(stage) and _ended(protocol, record):
        same = answer == body_of(record) and status == record["response"]["status"]
        return None if same else f"not the same bytes: {answer[:200]!r}"
    return front_problem(assembled(decode(protocol, record)), api, status, answer, stream=stream)


async def cut_problem(stage: Stage, protocol: str, record: Record, api: str, length: int) -> str | None:
    """Cut the recorded answer, and say whether a client reads it as finished although it is not."""
    stage.upstream.record, stage.upstream.length = record, length
    body = {**_BODIES[api], **({} if api == "gemini" else {"model": "m", "stream": True})}
    status, answer = await stage.ask(api, json.dumps(body).encode(), stream=True)
    whole = assembled(decode(protocol, record, [body_of(record)[:length]])).message is not None
    finished = status == 200 and assembled(read(answer, api, stream=True)).message is not None
    return "reads as finished" if finished and not whole else None


async def identity_problem(stage: Stage, protocol: str, record: Record) -> str | None:
    """Send the recorded request, and say whether one of the two bodies was changed."""
    request = record["request"]
    body = json.dumps(request["body"], ensure_ascii=False).encode()
    api, name = api_of(protocol), request["body"].get("model") or "m"
    if api != "gemini":
        stage.model_name = f"{stage.model_name.partition(':')[0]}:{name}"
    stage.upstream.record, stage.upstream.length = record, None
    stream = bool(request["body"].get("stream")) if api != "gemini" else is_streamed(record)
    status, answer = await stage.ask(api, body, stream=stream, name=name)
    if stage.upstream.body != body:
        return f"another request: {stage.upstream.body[:200]!r}"
    if status != record["response"]["status"]:
        return f"status {status}: {answer[:200]!r}"
    return None if answer == body_of(record) else f"another answer: {answer[-200:]!r}"


def passes(stage: Stage) -> bool:
    """Whether the bodies of the stage's model are those of its API: some hosts take another form."""
    asked = stage.open_model(stage.model_name)
    return passed_request(asked, b"{}", {}, asked=asked.get_config().model_id) is not None


def _ended(protocol: str, record: Record) -> bool:
    """Whether the recorded answer came to its end. Of any other, the client gets what came and an error."""
    return record["response"]["status"] != 200 or isinstance(decode(protocol, record)[-1], DoneDelta)


def provider_of(protocol: str, record: Record) -> str:
    """The provider that recorded an exchange."""
    known = "openai-chat" if protocol == "openai-compatible" else protocol
    return find_recorded_dialect(known, record["vendor"]).provider


async def run(every: int, fronts: Sequence[str] = SERVED) -> Counter[str]:
    """Count what came of all exchanges."""
    counts: Counter[str] = Counter()
    async with staged() as stage:
        for protocol in PROTOCOLS:
            for record in records(protocol)[::every]:
                await _count(stage, protocol, record, fronts, counts)
    return counts


async def _count(stage: Stage, protocol: str, record: Record, fronts: Sequence[str], counts: Counter[str]) -> None:
    back = api_of(protocol)

    def note(what: str, problem: str | None) -> None:
        counts[f"{what}: {'right' if problem is None else 'WRONG'}"] += 1
        if problem is not None:
            print(what, protocol, record["id"], problem)

    for api in fronts:
        stage.model_name = f"{provider_of(protocol, record)}:m"
        try:
            note(f"{api} on {back}", await pair_problem(stage, protocol, record, api))
        except (DragomanError, aiohttp.ClientError, AssertionError) as error:
            note(f"{api} on {back}", repr(error))
        if is_streamed(record) and record["response"]["status"] == 200:
            size = len(body_of(record))
            for cut in range(CUTS):
                note(f"cut, {api}", await cut_problem(stage, protocol, record, api, size * cut // CUTS))
    if back in fronts and (record["request"] or {}).get("body") and passes(stage) and _ended(protocol, record):
        note(f"bytes, {back}", await identity_problem(stage, protocol, record))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1)
    found = asyncio.run(run(parser.parse_args().every))
    for line in sorted(found):
        print(f"{found[line]:6} {line}")
