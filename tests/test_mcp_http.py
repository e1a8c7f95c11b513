"""MCP servers over streamable HTTP, on the loopback interface: both ages of the protocol, ends, tokens."""

import asyncio
import json
import traceback
from collections.abc import Iterator

import pytest

from dragoman import ErrorCode, Image, InvalidValue, ToolError
from dragoman.tools.mcp import McpServer
from tests.mcp_cases import TOKEN, Forgetful, call, official_over_http, run, say, text_of
from tests.mcp_official_server import PNG

GIVEN = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Where a server is that wants a token."""
    with official_over_http(TOKEN) as (url, _process):
        yield url


def test_tools_are_called_over_http(url: str) -> None:
    async def work() -> None:
        async with McpServer.http(url, GIVEN) as server:
            assert await say(server, "add", a=2, b=3) == "5"
            assert (await call(server, "picture")).attachments == (Image("image/png", PNG),)
            headers = json.loads(await say(server, "headers"))
            assert headers["authorization"] == f"Bearer {TOKEN}"
            assert server.instructions == "Ask nicely."

    run(work())


def test_many_calls_at_once_over_http(url: str) -> None:
    async def work() -> None:
        async with McpServer.http(url, GIVEN) as server:
            sums = await asyncio.gather(*(say(server, "add", a=number, b=1) for number in range(20)))
            assert sums == [str(number + 1) for number in range(20)]

    run(work())


def test_a_call_over_http_that_takes_too_long_leaves_the_session_usable(url: str) -> None:
    async def work() -> None:
        async with McpServer.http(url, GIVEN, timeout_ms=300) as server:
            assert (await call(server, "hang")).error_code is ErrorCode.TOOL_TIMEOUT
            assert await say(server, "add", a=1, b=1) == "2"

    run(work())


def test_a_list_that_has_changed_is_read_again_over_http() -> None:
    async def work(url: str) -> None:
        changed = asyncio.Event()
        async with McpServer.http(url, on_tools_changed=lambda _server: changed.set()) as server:
            await say(server, "grow")
            await changed.wait()
            assert await say(server, "grown") == "new"

    with official_over_http() as (url, _process):
        run(work(url))


def test_a_wrong_token_is_told_and_shown_nowhere(url: str, caplog: pytest.LogCaptureFixture) -> None:
    wrong = "wrong-7f3a9c-not-a-vendor-shape"

    async def work() -> ToolError:
        server = McpServer.http(f"{url}?tenant={wrong}-tenant", {"Authorization": f"Bearer {wrong}"})
        assert wrong not in repr(server)
        with pytest.raises(ToolError, match=r"'127\.0\.0\.1' answered with status 401") as raised:
            async with server:
                pass
        return raised.value

    error = run(work())
    assert error.code is ErrorCode.AUTHENTICATION
    shown = "".join(traceback.format_exception(error)) + repr(error) + str(error.provider_message) + caplog.text
    assert wrong not in shown


def test_a_server_that_dies_in_a_call_over_http_leaves_it_open_what_was_done() -> None:
    async def work() -> None:
        with official_over_http() as (url, process):
            async with McpServer.http(url) as server:
                hanging = [asyncio.create_task(call(server, name)) for name in ("hang", "look_forever")]
                assert await say(server, "add", a=1, b=1) == "2"  # so the others have been sent
                process.kill()
                for result in await asyncio.gather(*hanging):
                    assert "may or may not have taken effect" in text_of(result)
                gone = await call(server, "add", a=1, b=1)
                assert gone.error_code is ErrorCode.TOOL_FAILED

    run(work())


@pytest.mark.parametrize("status", [404, 400])
def test_a_session_that_the_server_has_forgotten_is_begun_again_and_the_call_made_once(status: int) -> None:
    async def work() -> None:
        with Forgetful.running() as forgetful:
            forgetful.unknown_session = status
            async with McpServer.http(forgetful.url) as server:
                assert await say(server, "note") == "call 1"
                forgetful.sessions.clear()
                assert await say(server, "note") == "call 2"
                assert forgetful.calls == ["note", "note"]
                assert len(forgetful.sessions) == 1

    run(work())


def test_what_is_lost_with_a_pooled_connection_is_sent_again_but_for_calls() -> None:
    async def work() -> None:
        with Forgetful.running() as forgetful:
            forgetful.is_fickle = True
            async with McpServer.http(forgetful.url) as server:
                assert "initialize" in forgetful.dropped
                assert "may or may not have taken effect" in text_of(await call(server, "note"))
            assert forgetful.dropped.count("tools/call") == 1
            assert forgetful.calls == []

    run(work())


def test_a_call_that_is_turned_away_twice_fails_and_was_not_run() -> None:
    async def work() -> None:
        with Forgetful.running() as forgetful:
            async with McpServer.http(forgetful.url, name="bouncer") as server:
                forgetful.takes_calls = False
                result = await call(server, "note")
                assert text_of(result) == "note: MCP server 'bouncer' answered 404: the call was not run"
                assert forgetful.calls == []

    run(work())


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504])
def test_a_gateway_error_says_that_the_call_may_have_run(status: int) -> None:
    async def work() -> None:
        with Forgetful.running() as forgetful:
            async with McpServer.http(forgetful.url, name="shop") as server:
                forgetful.call_status = status
                told = text_of(await call(server, "note"))
                assert told.startswith(f"note: MCP server 'shop' answered with status {status} (")
                assert told.endswith("the call may or may not have taken effect")
                assert forgetful.calls == ["note"]

    run(work())


def test_an_idempotent_call_is_made_once_more_after_a_gateway_error() -> None:
    async def work() -> None:
        with Forgetful.running() as forgetful:
            forgetful.hints = {"idempotentHint": True}
            async with McpServer.http(forgetful.url) as server:
                forgetful.call_status = 504
                assert "may or may not have taken effect" in text_of(await call(server, "note"))
                assert forgetful.calls == ["note", "note"]

    run(work())


@pytest.mark.parametrize(
    ("status", "code", "told"),
    [
        (200, -32603, "failed (code -32603): the till; the call may or may not have taken effect"),
        (200, -32001, "failed (code -32001): the till; the call may or may not have taken effect"),
        (200, -32602, "refused the call (code -32602): the till"),
        (403, -32603, "answered with status 403: the till"),
    ],
)
def test_only_an_error_after_which_the_call_may_have_run_says_so(status: int, code: int, told: str) -> None:
    async def work() -> None:
        with Forgetful.running() as forgetful:
            async with McpServer.http(forgetful.url, name="shop") as server:
                forgetful.call_status, forgetful.call_error = status, {"code": code, "message": "the till"}
                assert text_of(await call(server, "note")) == f"note: MCP server 'shop' {told}"

    run(work())


def test_a_server_that_was_away_is_used_again() -> None:
    async def work() -> None:
        with Forgetful.running() as forgetful:
            port = forgetful.server_port
            server = McpServer.http(forgetful.url, name="commuter")
            await server.__aenter__()
        try:
            away = await call(server, "note")
            assert away.error_code is ErrorCode.TOOL_FAILED
            assert text_of(away).startswith("MCP server 'commuter' could not be reached (")
            with Forgetful.running(port) as forgetful:
                assert await say(server, "note") == "call 1"
                await server.__aexit__()
        finally:
            await server.__aexit__()

    run(work())


def test_a_server_that_is_not_there_cannot_be_opened() -> None:
    async def work() -> None:
        with Forgetful.running() as forgetful:
            url = forgetful.url
        with pytest.raises(ToolError, match=r"'127\.0\.0\.1' could not be reached") as raised:
            async with McpServer.http(url, GIVEN):
                pass
        assert raised.value.code is ErrorCode.CONNECTION

    run(work())


@pytest.mark.parametrize(
    ("url", "headers"),
    [
        ("ftp://example.org/mcp", {}),
        ("example.org/mcp", {}),
        ("http://", {}),
        ("http://[bad/mcp", {}),
        (f"https://user:{TOKEN}@example.org/mcp", {}),
        ("https://example.org/mcp", {"Authorization": f"Bearer {TOKEN}\r\nX: y"}),
        ("https://example.org/mcp", {"Authorization": f"{TOKEN}é"}),
        ("https://example.org/mcp", {"": TOKEN}),
    ],
)
def test_an_address_or_header_that_cannot_be_is_told_without_showing_it(url: str, headers: dict[str, str]) -> None:
    with pytest.raises(InvalidValue) as raised:
        McpServer.http(url, headers)
    assert TOKEN not in str(raised.value)
