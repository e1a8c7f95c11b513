"""Requests to the inspector that no browser sends: answered as JSON, told by no log, and no word of them quoted."""

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import pytest

from dragoman.store import MemoryStore
from dragoman.web.connections import HEAD_LIMIT
from dragoman.web.gateway.application import Gateway
from dragoman.web.gateway.refusals import refuse_unread
from dragoman.web.gateway.routes import Routes
from dragoman.web.inspector import inspector
from dragoman.web.serving import serving

from .inspector_stage import TOKEN, staged

QUERY = f"token={TOKEN}&key=0123456789abcdef"
HOST = "Host: 127.0.0.1"


class Answer(NamedTuple):
    """An answer as it came."""

    status: int
    content_type: str
    has_policy: bool
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        """What the answer says is wrong."""
        found: dict[str, Any] = json.loads(self.body)["error"]
        return found


async def answer_to(address: str, request: bytes) -> Answer:
    """Send bytes to a server, and return its answer."""
    host, _, port = address.removeprefix("http://").partition("/")[0].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii")
    fields = {name.lower(): text.strip() for name, _, text in (line.partition(":") for line in head.split("\r\n")[1:])}
    body = await reader.readexactly(int(fields["content-length"]))
    writer.close()
    return Answer(int(head.split()[1]), fields["content-type"], "content-security-policy" in fields, body)


async def alone(request: bytes) -> Answer:
    """The answer of `dragoman inspect`."""
    async with staged(MemoryStore()) as stage:
        return await answer_to(stage.address, request)


async def beside_the_gateway(request: bytes) -> Answer:
    """The answer of `dragoman serve`."""
    gateway = Gateway(MemoryStore(), Routes(()), lambda name: pytest.fail(f"{name} is opened"))
    application = gateway.application({"/inspect": inspector(MemoryStore(), token=TOKEN, path="/inspect")})
    async with serving(application, host="127.0.0.1", port=0, refuse=refuse_unread) as address:
        return await answer_to(address, request.replace(b" /api", b" /inspect/api"))


MALFORMED = {
    "unknown method": (f"BREW /api/sessions?{QUERY} HTTP/1.1\r\n{HOST}\r\n\r\n", 400),
    "long line": (f"GET /api/sessions?{QUERY}&a={'a' * HEAD_LIMIT} HTTP/1.1\r\n{HOST}\r\n\r\n", 431),
    "long field": (f"GET /api/sessions?{QUERY} HTTP/1.1\r\n{HOST}\r\nX-A: {'a' * 2 * HEAD_LIMIT}\r\n\r\n", 431),
    "NUL in the target": (f"GET /api/sessions?{QUERY}\0 HTTP/1.1\r\n{HOST}\r\n\r\n", 400),
    "NUL in a field": (f"GET /api/sessions?{QUERY} HTTP/1.1\r\n{HOST}\r\nX-A: \0\r\n\r\n", 400),
    "two hosts": (f"GET /api/sessions?{QUERY} HTTP/1.1\r\n{HOST}\r\n{HOST}\r\n\r\n", 400),
    "no HTTP": (f"hello {QUERY}\r\n\r\n", 400),
    "unknown expectation": (f"GET /api/sessions?{QUERY} HTTP/1.1\r\n{HOST}\r\nExpect: {TOKEN}\r\n\r\n", 417),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_request_is_refused_in_json_and_quoted_nowhere(case: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    request, status = MALFORMED[case]
    answer = asyncio.run(alone(request.encode()))
    assert (answer.status, answer.content_type.partition(";")[0]) == (status, "application/json")
    assert answer.has_policy
    assert answer.error["message"]
    assert TOKEN.encode() not in answer.body
    assert TOKEN not in caplog.text
    assert [record for record in caplog.records if record.exc_info or record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("origin", ["http://[::1", "http://[", "http://127.0.0.1:port", "", "\N{MICRO SIGN}"])
@pytest.mark.parametrize("server", [alone, beside_the_gateway], ids=["inspect", "serve"])
def test_an_origin_that_is_no_address_is_refused(
    server: Callable[[bytes], Coroutine[Any, Any, Answer]], origin: str, caplog: pytest.LogCaptureFixture
) -> None:
    request = f"GET /api/sessions?{QUERY} HTTP/1.1\r\n{HOST}\r\nOrigin: {origin}\r\n\r\n"
    answer = asyncio.run(server(request.encode()))
    assert (answer.status, answer.error["code"], answer.has_policy) == (403, "wrong_origin", True)
    assert caplog.records == []
