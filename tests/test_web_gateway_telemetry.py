"""Spans and metrics of a gateway's requests, as OpenTelemetry's own SDK receives them."""

import json
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.semconv._incubating.attributes import http_attributes, url_attributes
from opentelemetry.semconv.metrics import http_metrics
from opentelemetry.trace import SpanKind

from dragoman.web.gateway.keys import Keys, ServeKey
from tests.gateway_stage import (
    FRONTS,
    Exchange,
    Upstream,
    endless,
    line,
    on_a_loop,
    path_of,
    served,
    staged,
    told_by,
    until,
    upstream_server,
    written,
)
from tests.telemetry_cases import METRICS, Receiver, attributes, errors

each_front = pytest.mark.parametrize("api", FRONTS)
KEY = "alice-has-a-long-key"
TRACE = "0af7651916cd43dd8448eb211c80319c"
SAID = "planted-raspberry"
ROUTES = {
    "anthropic-messages": "/v1/messages",
    "openai-responses": "/v1/responses",
    "openai-chat": "/v1/chat/completions",
    "gemini": "/v1beta/models/{model}:streamGenerateContent",
}


async def _fail(exchange: Exchange) -> None:
    await exchange.send(json.dumps({"error": {"message": SAID}}).encode(), status=500, kind="application/json")


async def _refuse(exchange: Exchange) -> None:
    await exchange.send(json.dumps({"error": {"message": SAID}}).encode(), status=400, kind="application/json")


async def _cut(exchange: Exchange) -> None:
    await exchange.send(exchange.answer.opening + exchange.answer.piece)


@each_front
@pytest.mark.parametrize("way", ["passed", "translated"])
@on_a_loop
async def test_a_request_is_a_span_with_its_model_call_inside(api: str, way: str) -> None:
    receiver = Receiver()
    provider = {"anthropic-messages": "openai-chat"}.get(api, "anthropic")
    routes = () if way == "passed" else (f"*={provider}:m",)
    keys = Keys([ServeKey.of("alice", KEY)])
    async with staged(*routes, keys=keys, telemetry=receiver.telemetry) as stage, line(stage.port) as connection:
        await connection.send(written(api, None, f"x-api-key: {KEY}", "Connection: close"))
        await connection.rest()
    name = f"POST {ROUTES[api]}"
    assert receiver.tree() == [name, ["chat m"]]
    request, call = receiver.span(name), receiver.span("chat m")
    assert (request.kind, call.kind) == (SpanKind.SERVER, SpanKind.CLIENT)
    session = attributes(request).pop("gen_ai.conversation.id")
    assert attributes(request) == {
        http_attributes.HTTP_REQUEST_METHOD: "POST",
        http_attributes.HTTP_ROUTE: ROUTES[api],
        http_attributes.HTTP_RESPONSE_STATUS_CODE: 200,
        url_attributes.URL_SCHEME: "http",
        "gen_ai.conversation.id": session,
        "dragoman.gateway.front": api,
        "dragoman.gateway.client": FRONTS_CLIENTS[api],
        "dragoman.gateway.key": "alice",
        "dragoman.gateway.way": way,
    }
    of_call = attributes(call)
    assert of_call["gen_ai.conversation.id"] == session
    assert (of_call["gen_ai.usage.input_tokens"], of_call["gen_ai.usage.output_tokens"]) == (3, 2)
    assert of_call["gen_ai.response.finish_reasons"] == ("stop",)
    assert "gen_ai.response.time_to_first_chunk" in of_call
    assert errors(receiver.spans) == [None, None]


FRONTS_CLIENTS = {
    "anthropic-messages": "messages",
    "openai-responses": "responses",
    "openai-chat": "chat",
    "gemini": "gemini",
}


@on_a_loop
async def test_a_client_s_trace_is_around_its_request() -> None:
    receiver = Receiver()
    async with staged(telemetry=receiver.telemetry) as stage, line(stage.port) as connection:
        field = f"traceparent: 00-{TRACE}-b7ad6b7169203331-01"
        await connection.send(written("openai-chat", None, field, "Connection: close"))
        await connection.rest()
    assert {f"{span.context.trace_id:032x}" for span in receiver.spans if span.context} == {TRACE}


@on_a_loop
async def test_each_model_that_is_asked_is_a_span_of_its_own() -> None:
    async def first_fails(exchange: Exchange) -> None:
        await (_fail(exchange) if b'"first"' in exchange.body else _whole(exchange))

    receiver = Receiver()
    routes = ("m=openai-chat:first", "m=openai-chat:second")
    async with staged(*routes, script=first_fails, telemetry=receiver.telemetry) as stage:
        assert (await stage.ask("openai-chat")).status == 200
    assert receiver.tree() == ["POST /v1/chat/completions", ["chat first", "chat second"]]
    assert errors(receiver.spans) == [None, "server_error", None]
    assert [attributes(span).get("dragoman.call.attempt") for span in receiver.spans] == [None, 0, 1]


async def _whole(exchange: Exchange) -> None:
    await exchange.send(exchange.answer.opening + exchange.answer.piece + exchange.answer.closing)


@pytest.mark.parametrize(
    ("script", "status", "found"),
    [
        (_fail, 500, ["server_error", "server_error"]),
        (_refuse, 400, [None, "invalid_request"]),
        (_cut, 200, ["stream_truncated", "stream_truncated"]),
    ],
)
@on_a_loop
async def test_failures_are_told_by_their_codes(script: Any, status: int, found: list[str | None]) -> None:
    receiver = Receiver()
    async with staged(script=script, telemetry=receiver.telemetry) as stage:
        assert (await stage.ask("openai-chat")).status == status
    assert errors(receiver.spans) == found


@on_a_loop
async def test_a_client_that_leaves_is_told_as_cancelled() -> None:
    receiver = Receiver()
    async with staged(script=endless, telemetry=receiver.telemetry) as stage:
        async with line(stage.port) as connection:
            await connection.send(written("openai-chat"))
            await connection.reader.readuntil(b"Hello.")
        await until(lambda: len(receiver.spans) == 2)
    assert errors(receiver.spans)[0] == "cancelled"


@on_a_loop
async def test_a_request_that_is_refused_is_a_span_without_a_call() -> None:
    receiver = Receiver()
    async with staged(keys=Keys([ServeKey.of("alice", KEY)]), telemetry=receiver.telemetry) as stage:
        assert (await stage.ask("openai-chat")).status == 401
        async with stage.client.request("PROPFIND", stage.url + f"/v1/{SAID}") as response:
            assert response.status == 401
    assert receiver.tree() == ["POST /v1/chat/completions", "HTTP"]
    assert attributes(receiver.spans[1])["http.request.method"] == "_OTHER"
    assert errors(receiver.spans) == [None, None]


@on_a_loop
async def test_health_and_metrics_are_no_spans() -> None:
    receiver = Receiver()
    async with staged(telemetry=receiver.telemetry) as stage:
        for path in ("/healthz", "/metrics"):
            async with stage.client.get(stage.url + path) as response:
                assert response.status == 200
    assert receiver.spans == []


@on_a_loop
async def test_requests_are_measured() -> None:
    receiver = Receiver()
    async with staged(telemetry=receiver.telemetry) as stage:
        for _ in range(3):
            await stage.ask("gemini")
    (point,) = receiver.points(http_metrics.HTTP_SERVER_REQUEST_DURATION)
    assert (point.count, dict(point.attributes)) == (
        3,
        {
            "http.request.method": "POST",
            "http.route": ROUTES["gemini"],
            "http.response.status_code": 200,
            "dragoman.gateway.front": "gemini",
        },
    )
    (calls,) = receiver.points("gen_ai.client.operation.duration")
    assert calls.count == 3


@each_front
@pytest.mark.parametrize("script", [_whole, _fail, _refuse, _cut])
@on_a_loop
async def test_no_span_and_no_metric_has_content_or_keys(api: str, script: Any) -> None:
    receiver = Receiver()
    keys = Keys([ServeKey.of("alice", KEY)])
    async with staged(script=script, keys=keys, telemetry=receiver.telemetry) as stage:
        for given in (KEY, "wrong-planted-key"):
            headers = {"x-api-key": given, "user-agent": SAID}
            body = written(api).partition(b"\r\n\r\n")[2].replace(b'"hi"', f'"{SAID}"'.encode())
            async with stage.client.post(stage.url + path_of(api), data=body, headers=headers) as response:
                await told_by(response)
    measured = [receiver.points(name) for name in (*METRICS, http_metrics.HTTP_SERVER_REQUEST_DURATION)]
    recorded = "\n".join(span.to_json() for span in receiver.spans) + repr(measured)
    assert len(receiver.spans) == 3
    assert not [secret for secret in (SAID, KEY, "planted-key") if secret in recorded]


@on_a_loop
async def test_content_is_in_spans_only_where_it_is_asked_for() -> None:
    receiver = Receiver(record_content=True)
    async with staged(telemetry=receiver.telemetry) as stage:
        await stage.ask("openai-chat", said=SAID)
    call = attributes(receiver.span("chat m"))
    assert SAID in call["gen_ai.input.messages"]
    assert "Hello." in call["gen_ai.output.messages"]


@on_a_loop
async def test_the_command_records_where_it_is_told_to(tmp_path: Path) -> None:
    async with upstream_server(Upstream()) as upstream:
        with served(upstream.url, tmp_path, "--telemetry") as server:
            async with line(server.port) as connection:
                await connection.send(written("openai-chat", None, "Connection: close"))
                assert (await connection.rest()).startswith(b"HTTP/1.1 200")
