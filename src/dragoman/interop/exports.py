"""Messages here to the message lists of other APIs, as their SDKs take them.

The handoff fits them and the codecs write them, as for a request: what is exported is what the API accepts.
"""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from .._jsontext import decode_json
from ..history import hand_off
from ..message import Message, ModelInvocationDescriptor, Role
from ..request import ModelConfig, ModelRequest
from ..target import Dialect
from ..wire import find_codec, find_dialect
from ..wire.openai_chat import ChatDialect

__all__ = ["export_anthropic", "export_openai_chat", "export_openai_responses"]

_ANY_MODEL = "any"


def export_openai_chat(messages: Iterable[Message], system: str | None = None) -> list[dict[str, Any]]:
    """Return the conversation as a Chat Completions message list, the system text first.

    Thinking is left out, and so is what only other providers understand. Raises ModelError (`unsupported`) where the
    newest user turn holds media that the API cannot take.
    """
    dialect = find_dialect("openai-chat")
    assert isinstance(dialect, ChatDialect)
    # `developer` means the same to OpenAI, and nothing to most others who take this form.
    written: list[dict[str, Any]] = _encode(messages, system, replace(dialect, system_role="system"))["messages"]
    return written


def export_anthropic(messages: Iterable[Message], system: str | None = None) -> dict[str, Any]:
    """Return the conversation as `messages`, and `system` if there is one, of a Messages API request.

    Thinking is included where Anthropic's models made it. Raises ModelError (`unsupported`) where the newest user turn
    holds media that the API cannot take.
    """
    body = _encode(messages, system, find_dialect("anthropic"))
    return {name: body[name] for name in ("system", "messages") if name in body}


def export_openai_responses(messages: Iterable[Message], system: str | None = None) -> dict[str, Any]:
    """Return the conversation as `input`, and `instructions` if there are any, of a Responses API request.

    Reasoning is included where OpenAI's models made it. Raises ModelError (`unsupported`) where the newest user turn
    holds media that the API cannot take.
    """
    body = _encode(messages, system, find_dialect("openai"))
    items = [_plain_answer(item) for item in body.get("input", [])]
    return {**({"instructions": body["instructions"]} if "instructions" in body else {}), "input": items}


def _plain_answer(item: dict[str, Any]) -> dict[str, Any]:
    """Return a text of the model that has no id with plain content: the SDK's type wants the id otherwise."""
    if item.get("role") != "assistant" or "id" in item:
        return item
    kept = {name: value for name, value in item.items() if name != "type"}
    return {**kept, "content": "".join(part["text"] for part in item["content"])}


def _encode(messages: Iterable[Message], system: str | None, dialect: Dialect) -> dict[str, Any]:
    spoken = list(messages)
    leading: list[str] = []
    while spoken and spoken[0].role is Role.SYSTEM:
        leading.append(spoken.pop(0).text)
    if system is None:
        system = "\n\n".join(text for text in leading if text) or None
    fitted: tuple[Message, ...] = ()
    if spoken:
        target = ModelInvocationDescriptor(dialect.provider, dialect.specification, _ANY_MODEL)
        # A conversation may end with an answer: no model is asked to go on.
        fitted = hand_off(spoken, target=target, rules=replace(dialect.rules, prefill=True)).messages
    request = ModelRequest(config=ModelConfig(_ANY_MODEL), messages=fitted, system=system, stream=False)
    body: dict[str, Any] = decode_json(find_codec(dialect.specification).encode_request(request, dialect).body)
    return body
