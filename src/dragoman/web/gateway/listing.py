"""The models that a gateway has, as clients of each API list them, and estimates of tokens. Pure."""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..._jsontext import encode_json
from ...catalogue import find_model_info, list_models
from ...context import TokenCounter, count_message, find_counter
from ...errors import ErrorCode
from ...request import ReadRequest
from ...stream import Assembly
from ...usage import TokenUsage
from ...wire import WIRE_APIS
from .fronts import ANTHROPIC, GEMINI, Wanted
from .routes import Routes

if TYPE_CHECKING:
    from .asked import Asked

__all__ = ["counted", "find_use", "listed"]

_MADE = "1970-01-01T00:00:00Z"  # when the model was made is not known here; clients want a time


def listed(routes: Routes, wanted: Wanted) -> dict[str, Any]:
    """Return the list of models, or the one that is asked for; raise ModelError, `not_found`, for an unknown one."""
    names = routes.names or tuple(info.model_id for info in list_models(WIRE_APIS[wanted.api].providers[0]))
    if wanted.action == "model":
        name = wanted.target.removeprefix("models/")
        if name not in names:
            routes.find(name, wanted.api)  # a pattern may have it
        return _described(name, wanted.api)
    models = [_described(name, wanted.api) for name in names]
    if wanted.api == GEMINI:
        return {"models": models}
    if wanted.api == ANTHROPIC:
        ends = {"first_id": names[0] if names else None, "last_id": names[-1] if names else None}
        return {"data": models, "has_more": False, **ends}
    return {"object": "list", "data": models}


def counted(read: ReadRequest, api: str) -> dict[str, Any]:
    """Return an estimate of a request's tokens as the API says it."""
    tokens = _count(read, find_counter())
    return {"totalTokens": tokens} if api == GEMINI else {"input_tokens": tokens}


def find_use(asked: "Asked", arrived: Assembly, model: str) -> TokenUsage | None:
    """Return what an answer of `model` used. Vendors tell it last: where the end never came, it is estimated."""
    usage, said = arrived.usage, arrived.partial or arrived.message
    has_left = arrived.error is not None and arrived.error.error_code is ErrorCode.CANCELLED
    is_told = usage is not None and (arrived.error is None or arrived.finish_reason is not None)
    if not model or is_told or (said is None and not has_left):
        return usage
    counter, known = find_counter(), usage or TokenUsage()
    sent = _count(asked.read, counter) if asked.read is not None else 0
    came = 0 if said is None else count_message(said, counter, include_thinking=True)
    used = replace(
        known,
        input_tokens=sent if known.input_tokens is None else known.input_tokens,
        output_tokens=max(known.output_tokens or 0, came),
    )
    info = find_model_info(*model.split(":", 1))
    return replace(used, cost=info.prices.cost_of(used)) if info is not None and info.prices is not None else used


def _count(read: ReadRequest, counter: TokenCounter) -> int:
    request = read.request
    tokens = sum(count_message(message, counter) for message in request.messages)
    tokens += counter.count(request.system or "")
    return tokens + sum(counter.count(encode_json(tool).decode()) for tool in request.tools)


def _described(name: str, api: str) -> dict[str, Any]:
    if api == ANTHROPIC:
        return {"type": "model", "id": name, "display_name": name, "created_at": _MADE}
    if api == GEMINI:
        methods = ["generateContent", "streamGenerateContent", "countTokens"]
        return {"name": f"models/{name}", "displayName": name, "supportedGenerationMethods": methods}
    return {"id": name, "object": "model", "created": 0, "owned_by": "dragoman"}
