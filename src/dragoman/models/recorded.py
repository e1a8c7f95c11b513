"""What a record keeps of a model's requests, and a model that writes them again: its settings, a checksum. Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from zlib import crc32

import msgspec

from ..errors import UnreadableData
from ..message import ModelInvocationDescriptor
from ..request import CacheConfig, ModelConfig, WireRequest
from ..stream import Assembly
from ..wire import PROVIDERS, find_dialect
from .model import Model, model

__all__ = [
    "FIRST_PIECE_KEY",
    "REQUEST_KEY",
    "UNKNOWN_PROVIDER",
    "check_request",
    "first_piece",
    "open_recorded_model",
    "recorded_settings",
    "recorded_text_calls",
]

# The metadata key under which a model output keeps the checksum of its request.
REQUEST_KEY = "request_check"
# The one under which it keeps how many seconds the first piece of the answer took.
FIRST_PIECE_KEY = "first_piece_seconds"
# A model of no provider that is known here is written down as one that speaks the most common API.
UNKNOWN_PROVIDER = "openai-compatible"
_CACHING = CacheConfig()


def check_request(request: WireRequest) -> str:
    """Return the length and the checksum of a request's body, to compare with the request that is rendered again."""
    return f"{len(request.body)}:{crc32(request.body):08x}"


def first_piece(asked_at: datetime, assembly: Assembly) -> dict[str, float]:
    """Return the metadata of an answer that says how long its first piece took; none where that is not known."""
    if assembly.first_at is None:
        return {}
    return {FIRST_PIECE_KEY: round(max((assembly.first_at - asked_at).total_seconds(), 0.0), 3)}


def recorded_settings(asked: object, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a call that are not the defaults, in the layout of their JSON; none of a foreign model.

    `params` are those of the call, as `Model.stream` takes them.
    """
    if not isinstance(asked, Model):
        return {}
    config, info = asked.get_config(**params), asked.model_info()
    settings: dict[str, Any] = msgspec.to_builtins(config)
    del settings["modelId"]
    if config.cache_config == _CACHING:
        del settings["cacheConfig"]
    elif config.cache_config is None:
        settings["cacheConfig"] = None
    if config.max_tokens is not None and config.max_tokens == info.output_limit:
        del settings["maxTokens"]
    if "reasoning" not in info.abilities:
        settings.pop("encryptedReasoning", None)
    return settings


def recorded_text_calls(asked: object) -> str:
    """Return the form in which the model writes calls as text, empty where its server reads them."""
    return (asked.client.dialect.text_calls or "") if isinstance(asked, Model) else ""


def open_recorded_model(
    invocation: ModelInvocationDescriptor, settings: Mapping[str, Any] | None = None, *, text_calls: str = ""
) -> Model:
    """Return a model that writes the requests of one that is named in a record. It has no key and sends nothing.

    Raises UnreadableData for settings that are none.
    """
    provider = invocation.provider if invocation.provider in PROVIDERS else UNKNOWN_PROVIDER
    given = dict(settings or {})
    caches = given.get("cacheConfig", True) is not None
    try:
        config = msgspec.convert({**given, "modelId": invocation.model}, ModelConfig)
    except msgspec.ValidationError as error:
        raise UnreadableData(f"the recorded settings are none of a model: {error}") from None
    address: dict[str, Any] = {"region": "region", "project": "project"}
    if not find_dialect(provider, invocation.model).base_url:
        address["base_url"] = "https://your-base-url.invalid"
    own = {name: getattr(config, name) for name in config.__struct_fields__ if name != "model_id"}
    return model(
        f"{provider}:{invocation.model}",
        cache=caches,
        text_calls=text_calls or None,  # type: ignore[arg-type]  # the dialect checks it
        **address,
        **own,
    )
