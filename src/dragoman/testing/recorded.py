"""Recorded answers to deltas, the way production reads them, for tests over captured traffic."""

from collections.abc import Iterable, Mapping

from ..delta import MessageDelta
from ..errors import InvalidValue
from ..stream import ResponseReader
from ..wire import find_codec, find_recorded_dialect

__all__ = ["PROTOCOLS", "decode_recorded"]

# Protocol of a recording -> its wire API, and the vendor whose dialect is meant where none is named.
PROTOCOLS: dict[str, tuple[str, str]] = {
    "openai-chat": ("openai-chat", "openai-chat"),
    "openai-compatible": ("openai-chat", "openai-compatible"),
    "openai-responses": ("openai-responses", "openai"),
    "anthropic-messages": ("anthropic-messages", "anthropic"),
    "gemini": ("gemini", "google"),
    "bedrock-converse": ("bedrock-converse", "bedrock"),
}


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
    """Return the deltas of a recorded answer: a legal stream, whatever the bytes. An iterable is fed piece by piece."""
    if protocol not in PROTOCOLS:
        raise InvalidValue.of("protocol", protocol, f"one of {', '.join(PROTOCOLS)}")
    if isinstance(body, (str, bytearray)):
        raise InvalidValue.of_content("body", body, "bytes, or an iterable of bytes")
    specification, default = PROTOCOLS[protocol]
    reader = ResponseReader(
        find_codec(specification),
        find_recorded_dialect(specification, vendor, default),
        run_id=run_id,
        status=status,
        headers={**(headers or {}), "content-type": content_type},
    )
    deltas: list[MessageDelta] = []
    for chunk in [body] if isinstance(body, bytes) else body:
        deltas += reader.feed(chunk)
    return deltas + reader.end()
