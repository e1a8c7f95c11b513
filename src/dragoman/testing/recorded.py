"""Recorded answers to deltas, the way production reads them, for tests over captured traffic."""

from collections.abc import Iterable, Mapping

from ..delta import MessageDelta
from ..errors import InvalidValue
from ..stream import ResponseReader
from ..wire import find_codec, find_recorded_dialect

__all__ = ["decode_recorded"]


def decode_recorded(
    protocol: str,
    body: bytes | Iterable[bytes],
    *,
    vendor: str = "",
    status: int = 200,
    content_type: str = "text/event-stream",
    headers: Mapping[str, str] | None = None,
    run_id: str = "recorded",
) -> list[MessageDelta]:
    """Return the deltas of a recorded answer: a legal stream, whatever the bytes. An iterable is fed piece by piece.

    `protocol` is a wire API, or a provider. `vendor` names a provider of the same API, where the answer is that one's.
    """
    if isinstance(body, (str, bytearray)):
        raise InvalidValue.of_content("body", body, "bytes, or an iterable of bytes")
    dialect = find_recorded_dialect(protocol, vendor)
    reader = ResponseReader(
        find_codec(dialect.specification),
        dialect,
        run_id=run_id,
        status=status,
        headers={**(headers or {}), "content-type": content_type},
    )
    deltas: list[MessageDelta] = []
    for chunk in [body] if isinstance(body, bytes) else body:
        deltas += reader.feed(chunk)
    return deltas + reader.end()
