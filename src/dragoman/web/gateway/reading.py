"""What a client's body says: its head, and the conversation. A large body is read in a thread, beside other clients."""

import asyncio
import re
from itertools import islice
from typing import Any

import msgspec

from ..._jsontext import decode_json
from ...errors import DragomanError, UnreadableData
from ...request import ReadRequest
from ...wire import find_codec
from .refusals import RefusedRequest

__all__ = ["LARGE", "Head", "read_conversation", "read_head"]

LARGE = 128 << 10  # bytes of a body that is read in a thread
MOST_TOKENS = 1_000_000  # of JSON in one body: texts, brackets, commas. Each costs far more memory than its bytes
_TOKEN = re.compile(rb'"[^"]*+"?|[,\[{]')


class Head(msgspec.Struct):
    """What a body says of itself, also one that cannot be read as a conversation."""

    model: str | None = None
    stream: bool | None = None
    previous_response_id: str | None = None
    metadata: Any = None


async def read_head(body: bytes) -> Head:
    """Return the head of a body; raise UnreadableData where it is no request, RefusedRequest where it is too costly."""
    return await asyncio.to_thread(_head, body) if len(body) > LARGE else _head(body)


def _head(body: bytes) -> Head:
    if _has_too_many(body):
        raise RefusedRequest(413, f"the body has more than the {MOST_TOKENS:,} values that this gateway takes")
    try:
        try:
            return msgspec.json.decode(body, type=Head)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            return msgspec.convert(decode_json(body), Head)  # it reads half a surrogate pair, too
    except msgspec.ValidationError as error:
        raise UnreadableData(f"the body is no request: {error}") from None
    except RecursionError:
        raise UnreadableData("the body is nested too deeply") from None
    except (UnreadableData, UnicodeDecodeError):
        raise UnreadableData("the body is no JSON object") from None


async def read_conversation(
    api: str, body: bytes, *, model: str, is_stream: bool
) -> tuple[ReadRequest | None, DragomanError | None]:
    """Return the request as it was read; None, and why, where this API's reader cannot read it."""
    if len(body) > LARGE:
        return await asyncio.to_thread(_read, api, body, model, is_stream)
    return _read(api, body, model, is_stream)


def _read(api: str, body: bytes, model: str, is_stream: bool) -> tuple[ReadRequest | None, DragomanError | None]:
    read_request = find_codec(api).read_request
    assert read_request is not None
    try:
        return read_request(body, model=model, stream=is_stream), None
    except DragomanError as error:
        return None, error


def _has_too_many(body: bytes) -> bool:
    """Whether a body is large by its structure. What looks like structure inside of texts does not count."""
    if sum(body.count(mark) for mark in (b",", b"[", b"{", b'"')) <= MOST_TOKENS:
        return False
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")  # now each quote begins or ends a text
    return next(islice(_TOKEN.finditer(plain), MOST_TOKENS, None), None) is not None
