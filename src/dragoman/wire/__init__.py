"""The wire APIs and the providers that speak them. A package is imported when it is first asked for."""

from importlib import import_module
from typing import Any

import msgspec

from ..errors import InvalidValue
from ..stream import Codec
from ..target import Dialect

__all__ = ["PROVIDERS", "find_codec", "find_dialect"]


class WireApi(msgspec.Struct, frozen=True, kw_only=True):
    """One wire API: its package here, the providers that speak it, and how to recognise an answer.

    The first provider is the API's own vendor. It is meant where only the API is named.
    """

    package: str
    providers: tuple[str, ...]
    # Regular expression of what only this API says near the beginning of an answer.
    mark: bytes


# The one table of wire APIs. Registry, recordings, validators, captures and command line read it.
WIRE_APIS: dict[str, WireApi] = {
    "openai-chat": WireApi(
        package="openai_chat",
        providers=(
            *("openai-chat", "azure", "groq", "mistral", "deepseek", "openrouter", "cerebras", "huggingface"),
            *("ollama", "vllm", "llamacpp", "xai", "together", "fireworks", "moonshot", "zai", "snowflake", "crusoe"),
            *("heroku", "google-openai", "openai-compatible"),
        ),
        mark=rb'"object"\s*:\s*"chat\.completion',
    ),
    "openai-responses": WireApi(
        package="openai_responses",
        providers=(
            *("openai", "azure-responses", "openrouter-responses", "deepseek-responses", "bedrock-mantle"),
            *("llamacpp-responses", "openai-responses-compatible"),
        ),
        mark=rb'(?m)"object"\s*:\s*"response"|"type"\s*:\s*"response\.|^event: response\.',
    ),
    "anthropic-messages": WireApi(
        package="anthropic",
        providers=(
            *("anthropic", "anthropic-bedrock", "anthropic-vertex", "anthropic-compatible", "llamacpp-anthropic"),
        ),
        mark=rb'(?m)"type"\s*:\s*"message_start"|"stop_reason"\s*:|^event: message_start',
    ),
    "gemini": WireApi(
        package="gemini",
        providers=("google", "google-vertex"),
        mark=rb'"(?:candidates|usageMetadata|promptFeedback)"\s*:',
    ),
    "bedrock-converse": WireApi(package="bedrock", providers=("bedrock",), mark=rb'"stopReason"\s*:|messageStart'),
}

# provider -> the wire API that it speaks
PROVIDERS: dict[str, str] = {provider: name for name, api in WIRE_APIS.items() for provider in api.providers}


def find_codec(specification: str) -> Codec:
    """Return the codec of a wire API; raise InvalidValue for an unknown one."""
    if specification not in WIRE_APIS:
        raise InvalidValue.of("specification", specification, f"one of {', '.join(WIRE_APIS)}")
    codec: Codec = _package(specification).CODEC
    return codec


def find_dialect(provider: str, model_id: str = "") -> Dialect:
    """Return the provider's dialect; where a host serves many model families, the dialect that fits the model."""
    if provider not in PROVIDERS:
        raise InvalidValue.of("provider", provider, f"one of {', '.join(sorted(PROVIDERS))}")
    package = _package(PROVIDERS[provider])
    by_family = getattr(package, "family_dialect", None)
    if by_family is not None:
        family: Dialect = by_family(model_id)
        return family
    found: Dialect = next(dialect for dialect in package.DIALECTS if dialect.provider == provider)
    return found


def find_provider(name: str, *, called: str = "provider") -> str:
    """Return the provider that a name means: a provider means itself, a wire API its own vendor.

    Raises InvalidValue for any other name; `called` is what the caller's own argument is called.
    """
    if name in PROVIDERS:
        return name
    if name in WIRE_APIS:
        return WIRE_APIS[name].providers[0]
    raise InvalidValue.of(called, name, f"one of {', '.join(sorted({*PROVIDERS, *WIRE_APIS}))}")


def find_recorded_dialect(protocol: str, vendor: str) -> Dialect:
    """Return the dialect that a recording names: `vendor`'s for this API, else that of the protocol's own provider.

    A protocol is a wire API or a provider. A vendor's own name counts, and one derived from it (`vendor-responses`).
    """
    default = find_provider(protocol, called="protocol")
    for name, specification in PROVIDERS.items():
        derived = name == vendor or name.startswith(f"{vendor}-") or name.endswith(f"-{vendor}")
        if vendor and derived and specification == PROVIDERS[default]:
            return find_dialect(name)
    return find_dialect(default)


def _package(specification: str) -> Any:
    return import_module(f".{WIRE_APIS[specification].package}", __name__)
