"""Upstreams that answer as none should: their clients get an error of their own API, and never the gateway's key."""

import pytest

from tests.gateway_stage import FRONTS, KEY, Exchange, Script, on_a_loop, staged

each_front = pytest.mark.parametrize("api", FRONTS)


def answering(body: bytes, *, status: int = 200, kind: str = "application/json", **fields: str) -> Script:
    """Answer every request with this."""

    async def answer(exchange: Exchange) -> None:
        exchange.fields = fields
        await exchange.send(body, status=status, kind=kind)

    return answer


@each_front
@pytest.mark.parametrize("status", [302, 304, 600, 999])
@on_a_loop
async def test_a_status_that_no_answer_has_is_a_bad_gateway(api: str, status: int) -> None:
    async with staged(script=answering(b"{}" if status != 304 else b"", status=status)) as stage:
        for stream in (True, False):
            told = await stage.ask(api, stream=stream)
            assert (told.status, bool(told.error["message"])) == (502, True)


@each_front
@pytest.mark.parametrize("body", [b"null", b"3", b'"text"', b'{"id": "\xff"}', b"", b'{"id": 1'])
@on_a_loop
async def test_a_whole_body_that_is_no_object_is_no_answer(api: str, body: bytes) -> None:
    async with staged(script=answering(body)) as stage:
        told = await stage.ask(api, stream=False)
        assert (told.status, bool(told.error["message"])) == (502, True)


@each_front
@pytest.mark.parametrize("status", [200, 429])
@on_a_loop
async def test_a_field_of_an_answer_tells_no_client_the_gateways_key(api: str, status: int) -> None:
    fields = {"x-request-id": f"of-{KEY}", "openai-organization": KEY}
    async with staged(script=answering(b'{"error": {"message": "no"}}', status=status, **fields)) as stage:
        told = await stage.ask(api, stream=False)
        assert told.headers["x-request-id"] == "of-[redacted]"
        assert KEY not in repr(told)
