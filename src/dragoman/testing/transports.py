"""Transports for tests: one that answers from given exchanges, one that records what goes through another.

A recording is a file of JSON lines, one exchange each, gzip'd if its name ends in `.gz`. It holds no request headers,
and no text in it that was sent as a credential or looks like one. A credential may arrive in pieces: the recording
hides them if the same field of several events holds them, one after the other.
"""

import base64
import gzip
import json
import os
import re
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit
from zlib import crc32

import msgspec

from .._fieldtypes import require_field_types
from ..errors import InvalidValue, ModelError, Secrets, UnreadableData
from ..files import read_file
from ..stream import EventStreamParser
from ..transport import HttpRequest, HttpResponse, Timeouts, Transport
from ..transport.protocol import secrets_of

__all__ = ["RecordingTransport", "ReplayTransport", "ReplayedResponse", "read_recording"]

REDACTED = "REDACTED"
KEPT_HEADERS = ("retry-after", "x-amzn-errortype")
# Header fields and query parameters that carry credentials, and fields of a JSON body that do.
_SECRET_HEADER = re.compile(r"auth|key$|token$|secret|password|credential|cookie|signature|^sig$", re.IGNORECASE)
_SECRET_FIELD = re.compile(
    r"(?:api|access|secret|private|subscription)[_-]?key$|(?:access|auth|session|refresh|bearer)[_-]?token$"
    r"|authorization$|secret$|password$|credentials?$",
    re.IGNORECASE,
)
# One that is never closed reaches to the end: to look for its end again at each further quote would take for ever.
_JSON_STRING = re.compile(r'"[^"\\]*+(?:\\(?:.|\Z)[^"\\]*+)*+(?:"|\Z)', re.DOTALL)


class ReplayedResponse(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of a replay transport: its body in the chunks given, then `failure` raised if there is one."""

    chunks: tuple[bytes, ...] = ()
    status: int = 200
    headers: dict[str, str] = msgspec.field(default_factory=lambda: {"content-type": "text/event-stream"})
    failure: ModelError | None = None

    def __post_init__(self) -> None:
        require_field_types(self)


class ReplayTransport:
    """Answers the n-th request with the n-th exchange, and keeps the requests in `requests`. Touches no network."""

    def __init__(self, exchanges: Iterable[ReplayedResponse | ModelError]) -> None:
        self._exchanges = list(exchanges)
        self.requests: list[HttpRequest] = []
        self.closed_responses = 0

    @classmethod
    def from_recording(cls, path: str | os.PathLike[str]) -> "ReplayTransport":
        """Return a transport that answers with the exchanges of a recording, in its order."""
        return cls(read_recording(path))

    def __repr__(self) -> str:
        return f"<ReplayTransport {len(self.requests)} of {len(self._exchanges)} exchanges used>"

    async def send(self, request: HttpRequest, timeouts: Timeouts) -> HttpResponse:  # noqa: ARG002  # the protocol's
        """Return the next answer; raise it where it is an error. Time limits do not matter here."""
        self.requests.append(request)
        if len(self.requests) > len(self._exchanges):
            raise InvalidValue(f"the replay transport has {len(self._exchanges)} exchanges and was asked for one more")
        exchange = self._exchanges[len(self.requests) - 1]
        if isinstance(exchange, ModelError):
            raise exchange
        return _Replay(exchange, self)

    async def close(self) -> None:
        """Do nothing: nothing is open."""


class _Replay:
    def __init__(self, exchange: ReplayedResponse, transport: ReplayTransport) -> None:
        self.status = exchange.status
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in exchange.headers.items()}
        self._exchange = exchange
        self._transport = transport
        self._closed = False

    async def chunks(self) -> AsyncIterator[bytes]:
        for chunk in self._exchange.chunks:
            yield chunk
        if self._exchange.failure is not None:
            raise self._exchange.failure

    async def close(self) -> None:
        self._transport.closed_responses += not self._closed
        self._closed = True


def read_recording(path: str | os.PathLike[str]) -> list[ReplayedResponse]:
    """Return the answers of a recording; raise OSError where it cannot be opened, UnreadableData where it is none."""
    data = read_file(path)
    try:
        return [_replayed(json.loads(line)) for line in data.splitlines() if line.strip()]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadableData(f"{Path(path).name} is no recording of exchanges") from error


def _replayed(record: Mapping[str, Any]) -> ReplayedResponse:
    response = record["response"]
    body = base64.b64decode(response["body_b64"]) if "body_b64" in response else _body_bytes(response["body"])
    headers = {"content-type": response.get("content_type") or "", **response.get("headers", {})}
    return ReplayedResponse(chunks=(body,), status=response["status"], headers=headers)


def _body_bytes(body: Any) -> bytes:
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")


class RecordingTransport:
    """Passes everything on to `inner` and appends each exchange to a file when its body has ended or was closed.

    `protocol` is the wire protocol's name (`anthropic-messages` …), `name` what the ids of the exchanges begin with.
    """

    def __init__(
        self,
        inner: Transport,
        path: str | os.PathLike[str],
        *,
        protocol: str,
        vendor: str = "",
        name: str = "recorded",
    ) -> None:
        self._inner = inner
        self._path = Path(path)
        self._labels = {"vendor": vendor, "protocol": protocol}
        self._name = name
        self._count = 0

    def __repr__(self) -> str:
        return f"<RecordingTransport of {type(self._inner).__name__} to {self._path.name}>"

    async def send(self, request: HttpRequest, timeouts: Timeouts) -> HttpResponse:
        """Return the inner transport's answer; what it raises is raised, and nothing is recorded."""
        response = await self._inner.send(request, timeouts)
        index, self._count = self._count, self._count + 1
        return _Recorded(response, request, self, index)

    async def close(self) -> None:
        """Close the inner transport."""
        await self._inner.close()

    def write(self, request: HttpRequest, response: HttpResponse, body: bytes, index: int) -> None:
        """Append one exchange to the file, redacted."""
        record = {"id": f"{self._name}#{index}", **self._labels, **_record(request, response, body)}
        line = json.dumps(record, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
        packed = gzip.compress(line) if self._path.suffix == ".gz" else line
        # What models are told and say is private: for the owner alone.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            file.write(packed)


class _Recorded:
    def __init__(self, inner: HttpResponse, request: HttpRequest, transport: RecordingTransport, index: int) -> None:
        self.status = inner.status
        self.headers: Mapping[str, str] = inner.headers
        self._inner = inner
        self._request = request
        self._transport = transport
        self._index = index
        self._body = bytearray()
        self._written = False

    async def chunks(self) -> AsyncIterator[bytes]:
        chunks = self._inner.chunks()
        try:
            async for chunk in chunks:
                self._body += chunk
                yield chunk
        finally:
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()
            self._write()

    async def close(self) -> None:
        await self._inner.close()
        self._write()

    def _write(self) -> None:
        if not self._written:
            self._written = True
            self._transport.write(self._request, self, bytes(self._body), self._index)


# ---------------------------------------------------------------- what is written


def _record(request: HttpRequest, response: HttpResponse, body: bytes) -> dict[str, Any]:
    hide = _Redaction(secrets_of(request))
    content_type = response.headers.get("content-type", "")
    binary = "vnd.amazon.eventstream" in content_type
    written: dict[str, Any] = {"status": response.status, "content_type": content_type}
    if binary:
        body = hide.frames(body)
        written["body_b64"] = base64.b64encode(body).decode()
    else:
        written["body"] = hide.body(hide.lines(hide.exact(body).decode("utf-8", "replace")), content_type)
    if kept := {name: hide.text(response.headers[name]) for name in KEPT_HEADERS if name in response.headers}:
        written["headers"] = kept
    sent = {"method": request.method, "path": hide.path(request.url), "body": hide.request_body(request.body)}
    record = {
        "streaming": binary or "text/event-stream" in content_type,
        "framing": "wire",
        "values_redacted": hide.count,
        "features": [],
        "request": sent,
        "response": written,
        "expect": None,
        "expect_why": "recorded by a client; no other program has read it",
    }
    return {**record, "events": _binary_events(hide, body)} if binary else record


def _binary_events(hide: "_Redaction", body: bytes) -> list[dict[str, Any]]:
    try:
        events = EventStreamParser().feed(body)
        return [{name: hide.value(json.loads(data))} for name, data in events]
    except (ModelError, ValueError):
        return []


class _Redaction:
    """Blanks out what was sent as a credential, wherever it stands, and what looks like one. Counts what it changed."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self.count = 0

    def exact(self, data: bytes) -> bytes:
        clean = self._secrets.hide_in(data)
        self.count += clean != data
        return clean

    def text(self, text: str) -> str:
        clean = self._secrets.hide(text)
        self.count += clean != text
        return clean

    def value(self, value: Any) -> Any:
        """A JSON value with its texts redacted; fields named like a credential lose theirs altogether."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {self.text(name): self._field(name, item) for name, item in value.items()}

    def _field(self, name: str, value: Any) -> Any:
        if isinstance(value, str) and value and _SECRET_FIELD.search(name):
            self.count += 1
            return REDACTED
        return self.value(value)

    def body(self, text: str, content_type: str) -> str:
        """A response body: in JSON and event streams only whole string literals change, so that it stays readable."""
        if "json" not in content_type and "event-stream" not in content_type:
            return self.text(text)
        return _JSON_STRING.sub(self._literal, text)

    def _literal(self, found: re.Match[str]) -> str:
        try:
            value = json.loads(found[0])
        except ValueError:
            return self.text(found[0])
        clean = self.text(value)
        return found[0] if clean == value else json.dumps(clean, ensure_ascii=False)

    def lines(self, text: str) -> str:
        """An event stream, or JSON lines: without credentials whose pieces are in the same field of several lines."""
        lines = _LINE_END.split(text)
        events = {index: event for index, line in enumerate(lines) if (event := _json_object(_DATA.sub("", line)))}
        for index in self._changed(events):
            start = _DATA.match(lines[index])
            lines[index] = (start[0] if start else "") + json.dumps(events[index])
        return "".join(lines)

    def frames(self, body: bytes) -> bytes:
        """An event stream of AWS, likewise; a frame that changes gets a new length and new checksums."""
        frames, rest = _frames(body)
        clean = [(self.exact(headers), self.exact(payload)) for headers, payload, _ in frames]
        events = {index: event for index, (_, payload) in enumerate(clean) if (event := _json_object(payload))}
        for index in self._changed(events):
            clean[index] = (clean[index][0], json.dumps(events[index]).encode())
        written = [
            frame if new == (headers, payload) else _frame(*new)
            for (headers, payload, frame), new in zip(frames, clean, strict=True)
        ]
        return b"".join(written) + self.exact(rest)

    def _changed(self, events: Mapping[int, dict[str, Any]]) -> set[int]:
        """Hide the pieces in the texts of these events; return the keys of the events that changed."""
        fields: dict[str, list[tuple[int, Any, Any, str]]] = {}
        for index, event in events.items():
            for field, holder, key in _texts(event, ""):
                fields.setdefault(field, []).append((index, holder, key, holder[key]))
        changed = set()
        for found in fields.values():
            clean = self._secrets.hide_pieces([text for *_, text in found])
            for (index, holder, key, text), new in zip(found, clean, strict=True):
                if new != text:
                    holder[key] = new
                    changed.add(index)
        self.count += len(changed)
        return changed

    def request_body(self, body: bytes) -> Any:
        if not body:
            return None
        try:
            return self.value(json.loads(body))
        except ValueError:
            return self.text(body.decode("utf-8", "replace"))

    def path(self, url: str) -> str:
        shown = self.text(urlsplit(url).path) or "/"
        fields = [(name, REDACTED if _SECRET_HEADER.search(name) else self.text(value)) for name, value in _query(url)]
        return shown + ("?" + "&".join(f"{quote(name)}={quote(value)}" for name, value in fields) if fields else "")


def _query(url: str) -> list[tuple[str, str]]:
    return parse_qsl(urlsplit(url).query, keep_blank_values=True)


# ---------------------------------------------------------------- the events of a body

_LINE_END = re.compile(r"(\r\n|\r|\n)")
_DATA = re.compile(r"\s*(?:data:\s*)?")
_FRAME_EXTRA = 16  # bytes of a frame besides headers and payload: two lengths and two checksums


def _json_object(text: str | bytes) -> dict[str, Any] | None:
    if text[:1] not in ("{", b"{"):
        return None
    try:
        value = json.loads(text)
        list(_texts(value, ""))  # it may be nested too deep to walk
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _texts(value: Any, field: str) -> Iterator[tuple[str, Any, Any]]:
    """Each text in a JSON value: the name of its field, and where it is. Events of another type have other fields."""
    if isinstance(value, dict):
        field = f"{field} {value.get('type')} {value.get('thought')}"
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        name = f"{field}.{key}" if isinstance(value, dict) else field
        if isinstance(item, str):
            yield name, value, key
        elif isinstance(item, (dict, list)):
            yield from _texts(item, name)


def _frames(body: bytes) -> tuple[list[tuple[bytes, bytes, bytes]], bytes]:
    """The headers, the payload and all of each whole frame; and what is left of the body."""
    found, start = [], 0
    while len(body) - start >= _FRAME_EXTRA:
        total, headers = struct.unpack_from(">II", body, start)
        if not headers + _FRAME_EXTRA <= total <= len(body) - start:
            break
        frame = body[start : start + total]
        found.append((frame[12 : 12 + headers], frame[12 + headers : -4], frame))
        start += total
    return found, body[start:]


def _frame(headers: bytes, payload: bytes) -> bytes:
    lengths = struct.pack(">II", len(headers) + len(payload) + _FRAME_EXTRA, len(headers))
    frame = lengths + struct.pack(">I", crc32(lengths)) + headers + payload
    return frame + struct.pack(">I", crc32(frame))
