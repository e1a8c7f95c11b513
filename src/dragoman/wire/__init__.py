"""The wire APIs and the vendors that speak them. A codec is imported when its vendor is first asked for."""

from importlib import import_module
from types import ModuleType
from typing import Any

from ..errors import InvalidValue
from ..stream import Codec
from ..target import Dialect

__all__ = ["PROVIDERS", "find_codec", "find_dialect", "find_recorded_dialect"]

# provider -> the module that has its record. Adding a vendor of a known API is a record there and a name here.
_CHAT = (
    "openai-chat azure groq mistral deepseek openrouter cerebras huggingface ollama vllm llamacpp xai together"
    " fireworks moonshot zai snowflake crusoe heroku google-openai openai-compatible"
)
_RESPONSES = (
    "openai azure-responses openrouter-responses deepseek-responses bedrock-mantle llamacpp-responses"
    " openai-responses-compatible"
)
_ANTHROPIC = "anthropic anthropic-bedrock anthropic-vertex anthropic-compatible llamacpp-anthropic"
PROVIDERS: dict[str, str] = {
    **dict.fromkeys(_CHAT.split(), "openai_chat"),
    **dict.fromkeys(_RESPONSES.split(), "openai_responses"),
    **dict.fromkeys(_ANTHROPIC.split(), "anthropic"),
    **dict.fromkeys(("google", "google-vertex"), "gemini"),
    "bedrock": "bedrock",
}

_CODECS = {
    "openai-chat": "openai_chat",
    "openai-responses": "openai_responses",
    "anthropic-messages": "anthropic",
    "gemini": "gemini",
    "bedrock-converse": "bedrock",
}


def find_codec(specification: str) -> Codec:
    """Return the codec of a wire API; raise InvalidValue for one that nobody speaks."""
    if specification not in _CODECS:
        raise InvalidValue.of("specification", specification, f"one of {', '.join(_CODECS)}")
    codec: Codec = _module(_CODECS[specification]).CODEC
    return codec


def find_dialect(provider: str, model_id: str = "") -> Dialect:
    """Return the vendor's record, for hosts of many model families the one that fits the model."""
    if provider not in PROVIDERS:
        raise InvalidValue.of("provider", provider, f"one of {', '.join(sorted(PROVIDERS))}")
    module = _module(PROVIDERS[provider])
    by_family = getattr(module, "family_dialect", None)
    if by_family is not None:
        family: Dialect = by_family(model_id)
        return family
    return _by_name(module)[provider]


def find_recorded_dialect(specification: str, vendor: str, default: str) -> Dialect:
    """Return the record of `vendor` for this wire API, by its own name or one derived from it; else the default's."""
    records = [
        _by_name(_module(module))[name]
        for name, module in PROVIDERS.items()
        if vendor and (name == vendor or name.startswith(f"{vendor}-") or name.endswith(f"-{vendor}"))
    ]
    fitting = [record for record in records if record.specification == specification]
    return fitting[0] if fitting else find_dialect(default)


def _module(name: str) -> ModuleType:
    return import_module(f".{name}", __name__)


def _by_name(module: Any) -> dict[str, Dialect]:
    return {dialect.provider: dialect for dialect in module.DIALECTS}
