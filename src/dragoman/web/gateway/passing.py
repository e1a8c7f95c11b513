"""The same API on both sides: the bytes of a request and its answer pass untouched, and a copy is read.

Whole events are passed on as they come. A stream that breaks off ends in the API's own error, never in half an event.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from ...delta import DoneDelta, ErrorDelta, ToolCallEndDelta
from ...errors import DragomanError, ErrorCode, ModelError, Secrets
from ...history.exchanges import MAX_ANSWER
from ...message import Message
from ...models.streams import clean_assembly, close_quietly
from ...request import ModelRequest, WireRequest
from ...stream import AnswerForm, Assembler, Assembly, ResponseReader, frame_events
from ...transport.protocol import is_header_value
from ...wire.wholeness import WHOLE_FINISHES
from .fronts import GEMINI
from .renaming import rename_body, rename_events, rename_request
from .upstream import HOLD_LIMIT, as_error, has_content

if TYPE_CHECKING:
    from ...models import Model
    from ...transport import HttpResponse

__all__ = ["PassedAnswer", "fetch_whole", "forwarded_headers", "other_request", "passed_request"]

ERROR_LIMIT = 1 << 20
WHOLE_LIMIT = MAX_ANSWER  # of an answer: what the record takes
EVENT_LIMIT = 64 << 20
# How long the rest of an answer is waited for: after its end, and after a finish that usage may follow.
READ_OUT_SECONDS = 2.0
FINISH_SECONDS = 10.0
TOO_LARGE = "the answer is larger than the gateway takes"
_TRUNCATED = "the model's answer broke off"
_CUT_CALL = "the model's answer ended inside of a tool call"
# Fields of a request that are about its connection, its credentials or this gateway.
_OWN_HEADERS = frozenset(
    [
        *("host", "connection", "keep-alive", "proxy-connection", "te"),
        *("trailer", "transfer-encoding", "upgrade", "expect", "content-length"),
        *("content-encoding", "accept-encoding", "authorization", "x-api-key", "x-goog-api-key"),
        *("api-key", "cookie", "origin", "referer", "forwarded"),
        *("via",),
    ]
)
# Fields that choose the account at a vendor, which is the gateway's.
_ACCOUNT_HEADERS = frozenset({"openai-organization", "openai-project", "x-goog-user-project"})
_OWN_PREFIXES = ("proxy-", "x-dragoman-", "x-forwarded-", "sec-", "access-control-")
# Fields of an answer that clients read.
_TOLD = re.compile(r"content-type|retry-after(-ms)?|x-should-retry|.*request-id|.*ratelimit.*|anthropic-.*|openai-.*")
_EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
# The paths of the fronts, by which the place of a vendor's other paths is found.
_OWN_PATHS = ("/v1/messages", "/v1/chat/completions", "/v1/responses")
_METHOD = re.compile(r":(generateContent|streamGenerateContent)(?=\?|$)")


def forwarded_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of a client's request that its vendor gets too. Names are in lower case."""
    return {
        name: value
        for name, value in headers.items()
        if name not in _OWN_HEADERS | _ACCOUNT_HEADERS and not name.startswith(_OWN_PREFIXES) and is_header_value(value)
    }


def passed_request(
    model: "Model", body: bytes, headers: Mapping[str, str], *, asked: str, suffix: str = "", query: str = ""
) -> WireRequest | None:
    """Return the client's request as the model's vendor gets it; None where the vendor's requests have another form.

    The body is the client's own. Only where the client calls the model by another name is that name replaced.
    `suffix` is what the path has at its end for another method of the API: `/count_tokens`, or Gemini's `:method`.
    """
    plain = _plain_request(model, model.get_config().model_id)
    if plain is None:
        return None
    path, named = plain
    if suffix.startswith(":"):
        path = _METHOD.sub(lambda _: suffix, path.partition("?")[0])
    else:
        path += suffix
    if query:
        path += f"{'&' if '?' in path else '?'}{query}"
    wire = model.client.address(WireRequest(path=path, body=b"", headers=named))
    if _is_renamed(model, asked) and model.client.dialect.specification != GEMINI:  # which has it in the path
        body = rename_request(body, model.get_config().model_id)
    return msgspec.structs.replace(wire, body=body, headers={**wire.headers, **forwarded_headers(headers)})


def other_request(
    model: "Model", method: str, path: str, headers: Mapping[str, str], body: bytes, *, query: str
) -> WireRequest:
    """Return a request that has no front, for the model's vendor; raise ModelError where it has no such paths."""
    plain = _plain_request(model, model.get_config().model_id)
    own = next((way for way in _OWN_PATHS if plain is not None and way.endswith(plain[0])), None)
    if plain is None or own is None or not path.startswith(own.removesuffix(plain[0])):
        raise ModelError(f"{model!r} has nothing at {path[:200]}", code=ErrorCode.NOT_FOUND)
    path = path.removeprefix(own.removesuffix(plain[0])) + (f"?{query}" if query else "")
    wire = model.client.address(WireRequest(path=path, body=b"", headers=plain[1]))
    return msgspec.structs.replace(
        wire, method=method, body=body, headers={**wire.headers, **forwarded_headers(headers)}
    )


async def fetch_whole(model: "Model", request: WireRequest) -> tuple[int, dict[str, str], bytes]:
    """Send a request as it is; return status, fields and body of its answer."""
    response, secrets = await model.client.forward(request)
    try:
        body = bytearray()
        async for chunk in response.chunks():
            body += chunk
            if len(body) > WHOLE_LIMIT:
                raise ModelError(TOO_LARGE, code=ErrorCode.PROTOCOL_VIOLATION)
    finally:
        await response.close()
    return _told_status(response), _told_fields(response, secrets), secrets.hide_in(bytes(body))


def _told_fields(response: "HttpResponse", secrets: Secrets) -> dict[str, str]:
    """The fields of an answer that its client gets too, without the credentials of the gateway."""
    return {name: secrets.hide_exactly(value) for name, value in response.headers.items() if _TOLD.fullmatch(name)}


def _told_status(response: "HttpResponse") -> int:
    """The status of an answer; raise ModelError for one that no answer has, such as a redirect."""
    status = response.status
    if 200 <= status < 300 or 400 <= status < 600:
        return status
    raise ModelError(f"the model's server answered with status {status}", code=ErrorCode.PROTOCOL_VIOLATION)


@lru_cache(maxsize=1_000)
def _plain_request(model: "Model", model_id: str) -> tuple[str, dict[str, str]] | None:
    """Path and headers of the model's requests; None where a body of the API is not what its vendor takes."""
    request = ModelRequest(config=model.get_config(), messages=(Message.user("."),))
    wire = model.client.codec.encode_request(request, model.client.dialect)
    body = msgspec.json.decode(wire.body)
    if model.client.dialect.specification != GEMINI and body.get("model") != model_id:
        return None  # its host names the model in the path
    return wire.path, dict(wire.headers)


def _is_renamed(model: "Model", asked: str) -> bool:
    return asked != model.get_config().model_id


class PassedAnswer:
    """The answer of a vendor who speaks the client's API; see `UpstreamAnswer`."""

    def __init__(self, model: "Model", request: WireRequest, *, asked: str, is_stream: bool) -> None:
        dialect = model.client.dialect
        self.model = f"{dialect.provider}:{model.get_config().model_id}"
        self.status = 200
        self.headers: dict[str, str] = {}
        self.is_whole = False
        self._client = model.client
        self._request = request
        self._form = AnswerForm(answer_id="cut", model=asked, stream=is_stream, source=dialect.specification)
        self._assembler = Assembler(invocation=model.invocation)
        self._rewrites = model.rewrites()
        self._secrets = Secrets()
        self._name = asked if _is_renamed(model, asked) else ""  # the client's, where the vendor has another
        self._response: HttpResponse | None = None
        self._reader: ResponseReader | None = None
        self._chunks: AsyncIterator[bytes] | None = None
        self._until: float | None = None  # when the rest of the answer is not waited for any longer
        self._rest = b""  # of an event that has not come whole
        self._first = b""
        self._has_content = False
        self._has_cut_call = False
        self._refusal: bytes | None = None
        self._cause: DragomanError | None = None  # why the body broke off

    @property
    def assembly(self) -> Assembly:
        """What has come of the answer, read."""
        arrived = clean_assembly(self._assembler.result(), self._secrets)
        if self._has_cut_call and arrived.message is not None:
            error = as_error(ModelError(_CUT_CALL, code=ErrorCode.STREAM_TRUNCATED))
            return msgspec.structs.replace(arrived, message=None, partial=arrived.message, error=error)
        return arrived

    def refusal(self) -> bytes | None:
        """Return the body by which the upstream refused."""
        return self._refusal

    async def open(self, *, holds: bool = False) -> ErrorDelta | None:
        """Wait for the first whole event, or for the first content, or for the whole body where that is asked for."""
        try:
            self._response, self._secrets = await self._client.forward(self._request)
        except DragomanError as error:
            return self._failed(as_error(error))
        response = self._response
        self._reader = self._client.open_reader(response)
        self._chunks = response.chunks()
        self.headers = _told_fields(response, self._secrets)
        try:
            self.status = _told_status(response)
        except ModelError as error:
            return self._failed(as_error(error))
        if self.status >= 400:
            return await self._refused()
        if "text/event-stream" in response.headers.get("content-type", ""):
            self._first = more = await self._next_events()
            while holds and more and not self._has_content and len(self._first) < HOLD_LIMIT:
                more = await self._next_events()
                self._first += more
            return self.assembly.error if not (self._has_content if holds else self._first) else None
        return await self._read_whole()

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield the answer. Its finish comes last, when all has come: an answer that breaks off has none."""
        piece, finish, size, begin, last = self._first, list[bytes](), 0, b"", b""
        while piece:
            if self._reader is not None and self._reader.has_finish:
                finish.append(piece)
                size += len(piece)
                if size > WHOLE_LIMIT:
                    raise ModelError(TOO_LARGE, code=ErrorCode.PROTOCOL_VIOLATION)
            else:
                begin, last = begin or piece, piece
                yield piece
            piece = await self._next_events()
        yield b"".join(finish) if self.is_whole else self._cut(begin + last)

    async def close(self) -> None:
        """Close the connection, unless the answer has been read to its end."""
        await close_quietly(getattr(self._chunks, "aclose", None))
        await close_quietly(getattr(self._response, "close", None))

    # ------------------------------------------------------------ parts

    async def _next_events(self) -> bytes:
        """Return the next whole events; nothing when the body has ended."""
        assert self._reader is not None
        while (chunk := await self._next_chunk()) is not None:
            if not self._reader.finished:
                self._read(self._reader.feed(chunk, datetime.now(UTC)))
            if self._reader.finished and not self.is_whole:  # no reader of ours takes it for an answer
                await self._end_chunks(None)
                return b""
            whole, self._rest = _whole_events(self._rest, chunk)
            if whole:
                return self._told(whole)
            if len(self._rest) > EVENT_LIMIT:
                too_large = f"an event of the model's answer is larger than {EVENT_LIMIT:,} bytes"
                await self._end_chunks(ModelError(too_large, code=ErrorCode.PROTOCOL_VIOLATION))
        if not self._reader.finished:
            self._read(self._reader.end(datetime.now(UTC), self._cause))
            self.is_whole = self.assembly.message is not None
        if self.is_whole and self._rest:  # some servers end without the last blank line
            rest, self._rest = self._rest, b""
            return self._told(rest)
        return b""

    def _told(self, events: bytes) -> bytes:
        """Events as the client gets them: the vendor's own, but for secrets and another name of the model."""
        api = self._client.dialect.specification
        return self._secrets.hide_in(rename_events(events, api, self._name) if self._name else events)

    async def _next_chunk(self) -> bytes | None:
        if self._chunks is None:
            return None
        try:
            async with asyncio.timeout_at(self._until):
                return await anext(self._chunks)
        except (StopAsyncIteration, TimeoutError):
            pass
        except DragomanError as error:
            self._cause = error
        await self._end_chunks(self._cause)
        return None

    async def _end_chunks(self, cause: DragomanError | None) -> None:
        self._cause = cause
        await close_quietly(getattr(self._chunks, "aclose", None))
        self._chunks = None

    async def _read_whole(self) -> ErrorDelta | None:
        """Read a body that is no stream. It is passed on if it is whole."""
        assert self._reader is not None
        body = bytearray()
        while (chunk := await self._next_chunk()) is not None:
            body += chunk
            self._read(self._reader.feed(chunk, datetime.now(UTC)))
            if len(body) > WHOLE_LIMIT:
                return self._failed(as_error(ModelError(TOO_LARGE, code=ErrorCode.PROTOCOL_VIOLATION)))
        if self._cause is None and _is_json(bytes(body)):
            self._read(self._reader.end(datetime.now(UTC)))
            if self._has_cut_call:
                return self.assembly.error
            self.is_whole = True  # what the vendor says, the client gets, whatever it means
            api = self._client.dialect.specification
            told = rename_body(bytes(body), api, self._name) if self._name else bytes(body)
            self._first = self._secrets.hide_in(told)
            return None
        cut = self._cause or ModelError(_TRUNCATED, code=ErrorCode.STREAM_TRUNCATED)
        self._read(self._reader.end(datetime.now(UTC), cut))
        return as_error(cut)

    async def _refused(self) -> ErrorDelta:
        assert self._reader is not None
        body = bytearray()
        while len(body) < ERROR_LIMIT and (chunk := await self._next_chunk()) is not None:
            body += chunk
            self._read(self._reader.feed(chunk, datetime.now(UTC)))
        self._read(self._reader.end(datetime.now(UTC), self._cause))
        self._refusal = self._secrets.hide_in(bytes(body)) if self._cause is None else None
        error = self.assembly.error
        return error or as_error(ModelError(_TRUNCATED, code=ErrorCode.SERVER_ERROR))

    def _read(self, deltas: list[Any]) -> None:
        """Take the copy's deltas. The answer is whole when its finish has come, or the vendor's own error."""
        self._has_content = self._has_content or has_content(deltas)
        feed, rewrites = self._assembler.feed, self._rewrites
        is_plain = rewrites.keys().isdisjoint(map(type, deltas))
        for delta in deltas:
            feed(delta if is_plain or type(delta) not in rewrites else rewrites[type(delta)](delta))
            if type(delta) is ToolCallEndDelta and delta.parse_error is not None:
                self._has_cut_call = True
        if self._has_cut_call and deltas and isinstance(deltas[-1], DoneDelta):
            # Any other finish says itself that the answer was cut.
            self._has_cut_call = deltas[-1].finish_reason in WHOLE_FINISHES
        if deltas and self._reader is not None and self._reader.finished:
            is_broken = isinstance(deltas[-1], ErrorDelta) and deltas[-1].error_code in _BROKEN
            self.is_whole = not is_broken and not self._has_cut_call
        if self._until is None and self._reader is not None and self._reader.has_finish:
            rest = READ_OUT_SECONDS if self.is_whole else FINISH_SECONDS
            self._until = asyncio.get_running_loop().time() + rest

    def _failed(self, error: ErrorDelta) -> ErrorDelta:
        self._assembler.feed(error)
        return error

    def _cut(self, passed: bytes) -> bytes:
        """The error event that ends a stream which broke off after these events."""
        assert self._client.codec.open_writer is not None
        writer = self._client.codec.open_writer(self._form)
        error = self.assembly.error or as_error(ModelError(_TRUNCATED, code=ErrorCode.STREAM_TRUNCATED))
        return frame_events(writer.break_off(error, passed))


# Errors that our reader finds. The vendor's own come with other codes.
_BROKEN = frozenset(
    {ErrorCode.STREAM_TRUNCATED, ErrorCode.CONNECTION, ErrorCode.PROTOCOL_VIOLATION, ErrorCode.INTERNAL}
)


def _whole_events(rest: bytes, chunk: bytes) -> tuple[bytes, bytes]:
    """What may be passed on, and the beginning of an event that has not come whole."""
    data = rest + chunk if rest else chunk
    if data.endswith(_EVENT_ENDS):
        return data, b""
    marks = _EVENT_ENDS if b"\r" in data else _EVENT_ENDS[:1]
    end = max(found + len(mark) if (found := data.rfind(mark)) >= 0 else 0 for mark in marks)
    return data[:end], data[end:]


def _is_json(body: bytes) -> bool:
    """Whether a body is an object or a list. What its fields mean is between the vendor and the client."""
    try:
        body.decode()
        msgspec.json.decode(body, type=dict[str, msgspec.Raw] | list[msgspec.Raw])
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return False
    return True
