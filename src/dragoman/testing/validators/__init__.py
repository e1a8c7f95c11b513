"""Whether a provider would accept a request, found out without asking it. Needs `pip install 'dragoman[validation]'`.

A body is held to the types that the vendor publishes in its own SDK, at every depth, and to the numbered rules that
types cannot say (`RULES`). A problem reads `A3 messages[4]: …`; `T` is for the types.
"""

import json
from itertools import pairwise
from typing import Any

from ...errors import InvalidValue
from ...wire import PROVIDERS, find_dialect
from . import anthropic, bedrock, chat, gemini, responses
from .dialects import without_additions
from .rules import Request, Rule
from .vendor_types import check_types

__all__ = ["RULES", "Rule", "require_valid_request", "validate_request"]

# Wire API -> its rules. The provider that is meant where only the API is named, and how a body is read into turns.
RULES: dict[str, tuple[Rule, ...]] = {
    "openai-chat": chat.RULES,
    "openai-responses": responses.RULES,
    "anthropic-messages": anthropic.RULES,
    "gemini": gemini.RULES,
    "bedrock-converse": bedrock.RULES,
}
_STRICTEST = {
    "openai-chat": "openai-chat",
    "openai-responses": "openai",
    "anthropic-messages": "anthropic",
    "gemini": "google",
    "bedrock-converse": "bedrock",
}
_READERS = {
    "openai-chat": chat.read_turns,
    "openai-responses": responses.read_turns,
    "anthropic-messages": anthropic.read_turns,
    "gemini": gemini.read_turns,
    "bedrock-converse": bedrock.read_turns,
}


def validate_request(target: str, body: dict[str, Any] | bytes, *, model: str = "", path: str = "") -> list[str]:
    """Return why `target` would refuse this body; nothing where it would take it.

    `target` is a provider, or a wire API for its own vendor. The model is read from the body, else from `path`, where
    it is not given; rules of single model families need it. Raises MissingExtra where the vendors' SDKs are missing.
    """
    specification, provider = _find_target(target)
    if isinstance(body, bytes):
        try:
            body = json.loads(body)
        except ValueError:
            return ["T body: not JSON"]
    if not isinstance(body, dict):
        return ["T body: not a JSON object"]
    model = model or body.get("model") or _model_in(path)
    if not isinstance(model, str):
        return ["T model: not text"]
    missed = check_types(specification, without_additions(body, provider), model)
    if missed:
        return [f"T {problem}" for problem in missed]
    continues = bool(body.get("previous_response_id") or body.get("conversation"))
    request = Request(body, provider, model, _READERS[specification](body), continues)
    return [f"{rule.code} {problem}" for rule in RULES[specification] for problem in rule.check(request)]


def require_valid_request(target: str, body: dict[str, Any] | bytes, *, model: str = "", path: str = "") -> None:
    """Raise AssertionError with every problem, unless `target` would take this body."""
    problems = validate_request(target, body, model=model, path=path)
    if problems:
        raise AssertionError("\n".join([f"{target} would refuse this request:", *problems]))


def _find_target(target: str) -> tuple[str, str]:
    if target in PROVIDERS:
        return find_dialect(target).specification, target
    if target in _STRICTEST:
        return target, _STRICTEST[target]
    raise InvalidValue.of("target", target, f"one of {', '.join(sorted({*PROVIDERS, *_STRICTEST}))}")


def _model_in(path: str) -> str:
    """The model that a path names: `/model/ID/converse`, `/v1beta/models/ID:generateContent`."""
    from urllib.parse import unquote

    steps = path.partition("?")[0].split("/")
    for before, step in pairwise(steps):
        if before in ("model", "models", "deployments"):
            return unquote(step if before == "model" else step.rpartition(":")[0] or step)
    return ""
