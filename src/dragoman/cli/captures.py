"""Captured answers of providers to deltas: a raw body, one with its HTTP head, or a recording of exchanges.

Bytes are read as they come, so that a pipe is decoded while it is open. Which API it is, and in which framing, is found
out where the user does not say.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from .._jsontext import decode_json, encode_json
from .._nearest import nearest
from ..delta import MessageDelta
from ..errors import InvalidValue, UnreadableData
from ..files import LARGEST_FILE
from ..stream import ResponseReader
from ..target import Dialect
from ..wire import PROVIDERS, WIRE_APIS, find_codec, find_dialect, find_provider, find_recorded_dialect

__all__ = ["Answer", "find_api", "read_answers"]

EVENT_STREAM = "text/event-stream"
AWS_EVENT_STREAM = "application/vnd.amazon.eventstream"
MOST_TO_LOOK_AT = 1 << 16

# Mark of an answer -> the API or the provider, in the order in which they are looked for.
_MARKS: tuple[tuple[re.Pattern[bytes], str], ...] = (
    *((re.compile(api.mark), name) for name, api in WIRE_APIS.items()),
    (re.compile(rb'"choices"\s*:'), "openai-compatible"),
)
_HTTP_HEAD = re.compile(rb"HTTP/[\d.]+ (\d{3})[^\n]*\n((?:[^\r\n]+\r?\n)*)\r?\n")


class Answer(NamedTuple):
    """One answer: its name in a recording, and its deltas, a legal stream that is decoded as it is read."""

    name: str
    deltas: Iterator[MessageDelta]


class _Response(NamedTuple):
    dialect: Dialect
    status: int
    headers: Mapping[str, str]


def find_api(name: str) -> Dialect:
    """Return the dialect of a wire API or a provider by its name; raise InvalidValue for any other."""
    known = [*WIRE_APIS, *PROVIDERS]
    if name not in known:
        hint = nearest(name, known, f"give a provider, or one of {', '.join(WIRE_APIS)}")
        raise InvalidValue(f"there is no API {name!r}: {hint}")
    return find_dialect(find_provider(name))


def read_answers(
    chunks: Iterable[bytes],
    *,
    api: str | None = None,
    status: int | None = None,
    content_type: str | None = None,
    clock: Callable[[], datetime] | None = None,
) -> Iterator[Answer]:
    """Yield the answers of a capture: one, or those of a recording. Each must be read before the next is asked for.

    Without a `clock` the deltas have no time: the capture holds none. Raises InvalidValue where it cannot be found
    out which API it is.
    """
    source = _Source(chunks)
    if source.first == b"{":
        data = source.rest()
        exchanges = _recorded(data)
        if exchanges is not None:
            for index, exchange in enumerate(exchanges):
                yield _recorded_answer(exchange, index, api)
            return
        source = _Source([data])
    headers: dict[str, str] = {}
    if source.begins_with(b"HTTP/"):
        head_status, headers = source.take_head()
        status = status or head_status
    if content_type is not None:
        headers["content-type"] = content_type
    # Where a head is missing, the framing can be seen: only AWS's begins with a length. JSON is told apart later.
    headers.setdefault("content-type", AWS_EVENT_STREAM if source.first == b"\0" else EVENT_STREAM)
    dialect = find_api(api) if api is not None else find_api(source.guess_api(headers["content-type"]))
    yield Answer("", _decoded(source.chunks(), _Response(dialect, status or 200, headers), "captured", clock))


def _decoded(
    chunks: Iterable[bytes], response: _Response, run_id: str, clock: Callable[[], datetime] | None = None
) -> Iterator[MessageDelta]:
    reader = ResponseReader(
        find_codec(response.dialect.specification),
        response.dialect,
        run_id=run_id,
        status=response.status,
        headers=response.headers,
    )
    for chunk in chunks:
        yield from reader.feed(chunk, clock() if clock is not None else None)
        if reader.finished:
            return
    yield from reader.end(clock() if clock is not None else None)


# ---------------------------------------------------------------- recordings


def _recorded(data: bytes) -> list[dict[str, Any]] | None:
    """The exchanges of a recording; None if it is none."""
    exchanges = []
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        try:
            exchange = decode_json(line)
        except UnreadableData:
            return None
        response = exchange.get("response") if isinstance(exchange, dict) else None
        if not isinstance(response, dict) or "status" not in response:
            return None
        exchanges.append(exchange)
    return exchanges or None


def _recorded_answer(exchange: dict[str, Any], index: int, api: str | None) -> Answer:
    name = str(exchange.get("id") or f"#{index}")
    response = exchange["response"]
    try:
        if "body_b64" in response:
            body = base64.b64decode(response["body_b64"], validate=True)
        else:
            said = response["body"]
            body = said.encode("utf-8", "surrogatepass") if isinstance(said, str) else encode_json(said)
        status = int(response["status"])
        headers = {**response.get("headers", {}), "content-type": str(response.get("content_type") or "")}
    except (KeyError, TypeError, ValueError, AttributeError, binascii.Error):
        raise UnreadableData(f"the exchange {name[:80]!r} is damaged") from None
    dialect = find_api(api) if api is not None else _recorded_dialect(exchange, name)
    return Answer(name, _decoded([body], _Response(dialect, status, headers), name))


def _recorded_dialect(exchange: dict[str, Any], name: str) -> Dialect:
    protocol, vendor = exchange.get("protocol"), exchange.get("vendor")
    if protocol not in (*WIRE_APIS, *PROVIDERS):
        raise InvalidValue(f"the exchange {name[:80]!r} does not say which API it is: name it with --api")
    return find_recorded_dialect(protocol, vendor if isinstance(vendor, str) else "")


# ---------------------------------------------------------------- bytes as they come


class _Source:
    """Chunks of bytes, of which the first can be looked at before they are used."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._held = b""
        while self._more():
            if self._held.lstrip():
                break
            self._held = b""
        self._held = self._held if self._held[:1] == b"\0" else self._held.lstrip()

    @property
    def first(self) -> bytes:
        """The first byte that is no white space; empty if there is none."""
        return self._held[:1]

    def begins_with(self, prefix: bytes) -> bool:
        """Whether it begins so."""
        while len(self._held) < len(prefix) and self._more():
            pass
        return self._held.startswith(prefix)

    def take_head(self) -> tuple[int, dict[str, str]]:
        """Return status and headers, and go on after them; of several heads, as a proxy makes them, the last."""
        status, headers = 200, {}
        while self.begins_with(b"HTTP/"):
            found = _HTTP_HEAD.match(self._held)
            while found is None and len(self._held) <= MOST_TO_LOOK_AT and self._more():
                found = _HTTP_HEAD.match(self._held)
            if found is None:
                raise UnreadableData("the HTTP head does not end")
            status = int(found[1])
            lines = [line.partition(":") for line in found[2].decode("latin-1").splitlines()]
            headers = {name.strip().lower(): value.strip() for name, _, value in lines}
            self._held = self._held[found.end() :]
        return status, headers

    def guess_api(self, content_type: str) -> str:
        """Return the provider whose API this looks like; read on until it can be told."""
        if AWS_EVENT_STREAM in content_type:
            return "bedrock"
        while True:
            for mark, provider in _MARKS:
                if mark.search(self._held[:MOST_TO_LOOK_AT]):
                    return provider
            if len(self._held) > MOST_TO_LOOK_AT or not self._more():
                raise InvalidValue(f"whose answer is this? Name the API: --api {'|'.join(WIRE_APIS)}, or a provider")

    def chunks(self) -> Iterator[bytes]:
        """Yield everything from here on."""
        held, self._held = self._held, b""
        if held:
            yield held
        yield from self._chunks

    def rest(self) -> bytes:
        """Return everything from here on; raise UnreadableData where that has no end."""
        chunks, size = [], 0
        for chunk in self.chunks():
            size += len(chunk)
            if size > LARGEST_FILE:
                raise UnreadableData(f"the capture is larger than {LARGEST_FILE} bytes, or it has no end")
            chunks.append(chunk)
        return b"".join(chunks)

    def _more(self) -> bool:
        chunk = next(self._chunks, None)
        if chunk is None:
            return False
        self._held += chunk
        return True
