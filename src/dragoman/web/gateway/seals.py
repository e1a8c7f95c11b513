"""Another vendor's thinking under a signature of ours. Pure.

A client that speaks one API gets the thinking of a model of another. Its API wants a signature, and sends it back. Ours
holds the model's name, the vendor's own data and a digest of the text, so that all can be restored without the record.

A seal is neither secret nor proof of its origin: it gives its client no right, and the vendor checks its own data. An
authentication code would need a secret that all gateways of a record share and that outlives them.
"""

import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import msgspec
from msgspec.structs import replace

from ...message import Message, MessageMeta, ModelInvocationDescriptor, Part, Thinking

__all__ = ["MARK", "is_sealed", "seal", "unseal"]

MARK = "dragoman.seal."
_FIELDS = ("signature", "encrypted_content")  # where an API keeps it
_LARGEST = 4_000_000


class _Sealed(msgspec.Struct, frozen=True, array_like=True):
    provider: str
    specification: str
    model: str
    data: dict[str, Any] | None
    text: str  # its digest


def seal(invocation: ModelInvocationDescriptor, data: dict[str, Any] | None, text: str) -> str:
    """Return a signature for thinking of this model, with the provider's own data. It fits no other text."""
    sealed = _Sealed(invocation.provider, invocation.specification, invocation.model, data, _digest(text))
    return MARK + urlsafe_b64encode(zlib.compress(msgspec.json.encode(sealed), 1)).decode()


def is_sealed(body: bytes) -> bool:
    """Whether a request's body holds a signature of ours, which no vendor may see."""
    return MARK.encode() in body


def unseal(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages with sealed thinking as its vendor made it. What cannot be read is thinking without data."""
    return tuple(_unsealed(message) for message in messages)


def _unsealed(message: Message) -> Message:
    sealed = [_find(part) for part in message.parts]
    if not any(sealed):
        return message
    parts: list[Part] = []
    invocation: ModelInvocationDescriptor | None = None
    for part, found in zip(message.parts, sealed, strict=True):
        if not found:
            parts.append(_without_data(part))
            continue
        assert isinstance(part, Thinking)
        made_by, data = _open(found, part.text)
        parts.append(replace(part, provider_data=data))
        invocation = made_by or invocation
    meta = replace(message.meta or MessageMeta(), invocation=invocation)
    return replace(message, parts=tuple(parts), meta=meta)


def _without_data(part: Part) -> Part:
    """The part without provider data: those are of the client's API, and the message is of another one now."""
    return replace(part, provider_data=None) if getattr(part, "provider_data", None) is not None else part


def _find(part: Part) -> str:
    data = part.provider_data if isinstance(part, Thinking) else None
    found = (value for name in _FIELDS if isinstance(value := (data or {}).get(name), str))
    return next((value for value in found if value.startswith(MARK)), "")


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _open(found: str, text: str) -> tuple[ModelInvocationDescriptor | None, dict[str, Any] | None]:
    """The model that thought this text, and its data; neither where a client has changed the signature or the text."""
    try:
        written = zlib.decompressobj().decompress(urlsafe_b64decode(found.removeprefix(MARK)), _LARGEST)
        sealed = msgspec.json.decode(written, type=_Sealed)
        if sealed.text != _digest(text):
            return None, None
        return ModelInvocationDescriptor(sealed.provider, sealed.specification, sealed.model), sealed.data
    except (ValueError, zlib.error, RecursionError):  # of base64, JSON and empty names too
        return None, None
