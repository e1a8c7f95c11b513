"""A request without what names its conversation or its moment: two clients that ask the same have the same digest.

Pure. Replays find the recorded answer by this digest.
"""

from hashlib import sha256
from typing import TYPE_CHECKING, Any

from ..._jsontext import decode_json, sorted_json
from ...errors import UnreadableData
from .conversations import BILLING_LINE
from .fronts import ANTHROPIC, CHAT, GEMINI, RESPONSES

if TYPE_CHECKING:
    from .asked import Asked

__all__ = ["body_mark", "plain_body"]

# By API: the fields of a body that name the conversation, the user, or the client's own bookkeeping.
NAMING_FIELDS: dict[str, frozenset[str]] = {
    ANTHROPIC: frozenset({"metadata"}),
    RESPONSES: frozenset({"metadata", "client_metadata", "prompt_cache_key", "user", "safety_identifier"}),
    CHAT: frozenset({"metadata", "prompt_cache_key", "user", "safety_identifier"}),
    GEMINI: frozenset({"labels"}),
}


def body_mark(asked: "Asked") -> str:
    """Return the word by which stores find the answers to a request."""
    return f"body:{_digest(asked)}"


def plain_body(api: str, body: bytes | str) -> Any:
    """Return a body as JSON without what names its conversation or its moment; raise UnreadableData if it is no JSON.

    Client-made ids of items go too: Codex makes new ones for each thread.
    """
    value = decode_json(body)
    if not isinstance(value, dict):
        return value
    plain = {name: item for name, item in value.items() if name not in NAMING_FIELDS.get(api, ())}
    if isinstance(items := plain.get("input"), list) and api == RESPONSES:
        plain["input"] = [_without_id(item) for item in items]
    if isinstance(blocks := plain.get("system"), list) and api == ANTHROPIC:
        plain["system"] = [block for block in blocks if not _is_billing_line(block)]
    return plain


def _digest(asked: "Asked") -> str:
    try:
        body = sorted_json(plain_body(asked.api, asked.body))
    except UnreadableData:
        body = asked.body
    about = sorted_json([asked.api, asked.model, asked.is_stream, "alt=sse" in asked.query])
    return sha256(about + body).hexdigest()[:40]


def _without_id(item: Any) -> Any:
    """An item of the conversation without its id. A reference to an item is nothing else."""
    if not isinstance(item, dict) or item.get("type") == "item_reference":
        return item
    return {name: value for name, value in item.items() if name != "id"}


def _is_billing_line(block: Any) -> bool:
    return isinstance(block, dict) and str(block.get("text", "")).startswith(BILLING_LINE)
