"""The models that a gateway has, as clients of each API list them, and estimates of tokens. Pure."""

from typing import Any

from ..._jsontext import encode_json
from ...catalogue import list_models
from ...context import count_message, find_counter
from ...request import ReadRequest
from ...wire import WIRE_APIS
from .fronts import ANTHROPIC, GEMINI, Wanted
from .routes import Routes

__all__ = ["counted", "listed"]

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
    request = read.request
    counter = find_counter()
    tokens = sum(count_message(message, counter) for message in request.messages)
    tokens += counter.count(request.system or "")
    tokens += sum(counter.count(encode_json(tool).decode()) for tool in request.tools)
    return {"totalTokens": tokens} if api == GEMINI else {"input_tokens": tokens}


def _described(name: str, api: str) -> dict[str, Any]:
    if api == ANTHROPIC:
        return {"type": "model", "id": name, "display_name": name, "created_at": _MADE}
    if api == GEMINI:
        methods = ["generateContent", "streamGenerateContent", "countTokens"]
        return {"name": f"models/{name}", "displayName": name, "supportedGenerationMethods": methods}
    return {"id": name, "object": "model", "created": 0, "owned_by": "dragoman"}
