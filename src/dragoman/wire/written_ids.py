"""Ids of tool calls as an API spells them. Pure: the same id always gets the same spelling."""

import re
from hashlib import sha256

__all__ = ["spell_call_id"]

_DIGITS = 24


def spell_call_id(call_id: str, pattern: re.Pattern[str], prefix: str) -> str:
    """Return the id itself where the API's alphabet allows it, else one that is made of its hash."""
    if pattern.fullmatch(call_id):
        return call_id
    return prefix + sha256(call_id.encode("utf-8", "replace")).hexdigest()[:_DIGITS]
