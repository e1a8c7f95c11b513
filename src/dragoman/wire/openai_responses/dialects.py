"""The hosts of OpenAI's Responses API, one dialect each: where they are, how they depart from it. Data only."""

from typing import Any

from ...target import Dialect, SchemaRules, TargetRules
from ..schemas import OPENAI_SCHEMAS, SHARED_SCHEMAS

__all__ = ["DIALECTS", "SPECIFICATION", "ResponsesDialect"]

SPECIFICATION = "openai-responses"


class ResponsesDialect(Dialect, frozen=True, kw_only=True):
    """A host of the Responses API."""

    specification: str = SPECIFICATION
    ignored: frozenset[str] = frozenset({"stop_sequences"})
    abilities: frozenset[str] = frozenset(
        ["streaming", "tools", "parallel_tools", "strict_tools", "structured_output", "reasoning", "images"]
    )
    path: str = "/responses"
    # The host keeps conversations unless told not to, and gives reasoning as encrypted content when asked.
    store: bool = True
    encrypted_reasoning: bool = True
    # Reasoning that came as plain text goes back as such.
    plain_reasoning: bool = False
    # A reasoning budget in tokens, which only some hosts know.
    reasoning_budget: bool = False
    item_ids: bool = True
    # Nothing may come between a call and its output.
    calls_last: bool = False
    hosted_tools: bool = True
    cache_key: bool = True


_FILES = frozenset({"image/", "application/", "text/"})
_OPENAI_RULES: dict[str, Any] = {
    "prefill": True,
    "system_inside": True,
    "user_media": _FILES,
    "result_media": _FILES,
}
_ABILITIES = frozenset({*ResponsesDialect(provider="-", base_url="").abilities, "documents", "caching", "hosted_tools"})
_PLAIN: dict[str, Any] = {"store": False, "encrypted_reasoning": False, "plain_reasoning": True, "cache_key": False}


def _own(provider: str, *, schemas: SchemaRules = OPENAI_SCHEMAS, **rules: Any) -> TargetRules:
    return TargetRules(opaque_providers=frozenset({provider}), schemas=schemas, **rules)


DIALECTS: tuple[ResponsesDialect, ...] = (
    ResponsesDialect(
        provider="openai",
        base_url="https://api.openai.com/v1",
        key_variables=("OPENAI_API_KEY",),
        abilities=_ABILITIES,
        rules=_own("openai", **_OPENAI_RULES),
    ),
    ResponsesDialect(
        provider="azure-responses",
        base_url="",  # https://RESOURCE.openai.azure.com/openai/v1
        auth="api-key",
        key_variables=("AZURE_OPENAI_API_KEY",),
        abilities=_ABILITIES,
        rules=_own("azure-responses", **_OPENAI_RULES),
    ),
    ResponsesDialect(
        provider="openrouter-responses",
        base_url="https://openrouter.ai/api/v1",
        key_variables=("OPENROUTER_API_KEY",),
        plain_reasoning=True,
        reasoning_budget=True,
        rules=_own(
            "openrouter-responses",
            schemas=SHARED_SCHEMAS,
            opaque_same_model=True,
            system_inside=True,
            user_media=frozenset({"image/", "application/pdf"}),
        ),
    ),
    ResponsesDialect(
        provider="deepseek-responses",
        base_url="https://api.deepseek.com",
        key_variables=("DEEPSEEK_API_KEY",),
        item_ids=False,
        calls_last=True,
        hosted_tools=False,
        rules=_own("deepseek-responses", user_media=frozenset()),
        **_PLAIN,
    ),
    ResponsesDialect(
        provider="bedrock-mantle",
        base_url="",  # https://bedrock-mantle.REGION.api.aws/openai/v1
        key_variables=("AWS_BEARER_TOKEN_BEDROCK",),
        cache_key=False,
        rules=_own("bedrock-mantle", opaque_same_model=True, system_inside=True),
    ),
    ResponsesDialect(
        provider="llamacpp-responses",
        base_url="http://127.0.0.1:8080/v1",
        auth="none",
        says_cut=False,  # its `response.completed` has the status `completed` then too
        hosted_tools=False,
        abilities=frozenset({"streaming", "tools", "reasoning", "images"}),  # it ignores `text.format`
        rules=_own("llamacpp-responses", opaque_same_model=True),
        **_PLAIN,
    ),
    ResponsesDialect(
        provider="openai-responses-compatible",
        base_url="",
        says_cut=False,
        rules=_own("openai-responses-compatible", opaque_same_model=True),
        **_PLAIN,
    ),
)
