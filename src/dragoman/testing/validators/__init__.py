"""Whether a provider would accept a request, found out without asking it. Needs `pip install 'dragoman[validation]'`.

A body is held to the types that the vendor publishes in its own SDK, at every depth, and to the numbered rules that
types cannot say (`RULES`). A problem reads `A3 messages[4]: …`; `T` is for the types.
"""

import json
from importlib import import_module
from itertools import pairwise
from typing import Any

from ...wire import PROVIDERS, WIRE_APIS, find_provider
from .dialects import without_additions
from .rules import Request, Rule

__all__ = ["RULES", "Rule", "require_valid_request", "validate_request"]

# The modules here are named as the packages of the wire APIs. Each has RULES, `read_turns` and `check_types`.
_VALIDATORS: dict[str, Any] = {name: import_module(f".{api.package}", __name__) for name, api in WIRE_APIS.items()}
RULES: dict[str, tuple[Rule, ...]] = {name: validator.RULES for name, validator in _VALIDATORS.items()}


def validate_request(target: str, body: dict[str, Any] | bytes, *, model: str = "", path: str = "") -> list[str]:
    """Return why `target` would refuse this body; nothing where it would take it.

    `target` is a provider, or a wire API for its own vendor. The model is read from the body, else from `path`, where
    it is not given; rules of single model families need it. Raises MissingExtra where the vendors' SDKs are missing.
    """
    provider = find_provider(target, called="target")
    validator = _VALIDATORS[PROVIDERS[provider]]
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
    missed = validator.check_types(without_additions(body, provider), model)
    if missed:
        return [f"T {problem}" for problem in missed]
    continues = bool(body.get("previous_response_id") or body.get("conversation"))
    request = Request(body, provider, model, validator.read_turns(body), continues)
    return [f"{rule.code} {problem}" for rule in validator.RULES for problem in rule.check(request)]


def require_valid_request(target: str, body: dict[str, Any] | bytes, *, model: str = "", path: str = "") -> None:
    """Raise AssertionError with every problem, unless `target` would take this body."""
    problems = validate_request(target, body, model=model, path=path)
    if problems:
        raise AssertionError("\n".join([f"{target} would refuse this request:", *problems]))


def _model_in(path: str) -> str:
    """The model that a path names: `/model/ID/converse`, `/v1beta/models/ID:generateContent`."""
    from urllib.parse import unquote

    steps = path.partition("?")[0].split("/")
    for before, step in pairwise(steps):
        if before in ("model", "models", "deployments"):
            return unquote(step if before == "model" else step.rpartition(":")[0] or step)
    return ""
