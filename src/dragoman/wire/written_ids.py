"""Ids of tool calls as an API spells them. Pure: the same id always gets the same spelling."""

import re
from hashlib import sha256

__all__ = ["spell_call_id", "spellings_of"]

_DIGITS = 24
CHAT_PREFIX = "call_"
MESSAGES_PREFIX = "toolu_"


def spell_call_id(call_id: str, pattern: re.Pattern[str], prefix: str) -> str:
    """Return the id itself where the API's alphabet allows it, else one that is made of its hash."""
    if pattern.fullmatch(call_id):
        return call_id
    return prefix + _hashed(call_id)


def spellings_of(call_id: str) -> tuple[str, ...]:
    """Return every id by which a client of any API may know this call."""
    hashed = _hashed(call_id)
    return (call_id, CHAT_PREFIX + hashed, MESSAGES_PREFIX + hashed)


def _hashed(call_id: str) -> str:
    return sha256(call_id.encode("utf-8", "replace")).hexdigest()[:_DIGITS]
