"""A model by the name that a person types, with what the settings say about its provider. Touches no network."""

import os
from typing import TYPE_CHECKING, Any

from ..errors import DragomanError, ErrorCode, InvalidValue
from .arguments import nearest
from .settings import Settings

if TYPE_CHECKING:
    from ..models import Model

__all__ = ["LOCAL", "local_name", "open_model", "unsent_model"]

LOCAL = "local"
# What may stand after an `@` in the name of a local model: who speaks that API, and where it is on the server.
_LOCAL_APIS = {
    "chat": ("llamacpp", "/v1"),
    "responses": ("llamacpp-responses", "/v1"),
    "anthropic": ("llamacpp-anthropic", ""),
}
# Stands in a rendered request for what only a sent one has.
HIDDEN = "(not shown)"


def open_model(settings: Settings, name: str, **config: Any) -> "Model":
    """Return the model of a provider, ready to be asked; the provider's settings count. Not for `local:…`.

    Raises InvalidValue for a name that is none, and DragomanError where the settings name a variable for the key that
    is not set.
    """
    from ..models import model

    provider = settings.providers.get(name.partition(":")[0])
    if provider is None:
        return model(_known(name), **config)
    key: str | None = None
    if provider.key_variable is not None:
        key = os.environ.get(provider.key_variable)
        if not key:
            raise DragomanError(
                f"no key for {name.partition(':')[0]}: the settings say that it is in {provider.key_variable}, "
                "which is not set",
                code=ErrorCode.AUTHENTICATION,
            )
    return model(_known(name), api_key=key, headers=provider.headers, **{**_place(settings, name), **config})


def unsent_model(settings: Settings, name: str, **config: Any) -> "Model":
    """Return the model as its requests are written down: no key is looked for, no secret is in it."""
    from ..models import model
    from ..providers import find_dialect

    if name.startswith(f"{LOCAL}:"):
        provider, path = _LOCAL_APIS[_local_api(name)]
        return model(f"{provider}:{local_name(name)}", base_url=f"http://127.0.0.1{path}", **config)
    provider, _, model_id = _known(name).partition(":")
    # What the user has not said, and nobody can know, stands there by its name.
    place = {"region": "region", "project": "project", **_place(settings, name)}
    if "base_url" not in place and not find_dialect(provider, model_id).base_url:
        place["base_url"] = "https://your-base-url.invalid"
    known = settings.providers.get(provider)
    headers = dict.fromkeys(known.headers, HIDDEN) if known is not None else {}
    return model(name, headers=headers, **{**place, **config})


def local_name(name: str) -> str:
    """Return what a local model is called when it is asked: its name, or that of its file without the ending."""
    from pathlib import Path

    typed = name.partition(":")[2]
    if _local_api(name) != "chat" or typed.endswith("@chat"):
        typed = typed.rpartition("@")[0]
    return Path(typed).stem if typed.endswith(".gguf") else typed


def _local_api(name: str) -> str:
    """Which of the local server's APIs is meant: the word after an `@`, if it is one of them."""
    api = name.rpartition("@")[2]
    return api if "@" in name and api in _LOCAL_APIS else "chat"


def _place(settings: Settings, name: str) -> dict[str, str]:
    provider = settings.providers.get(name.partition(":")[0])
    if provider is None:
        return {}
    given = {"base_url": provider.base_url, "region": provider.region, "project": provider.project}
    return {field: value for field, value in given.items() if value is not None}


def _known(name: str) -> str:
    """The name, if it has the form of one and its provider is known; the error says which was meant."""
    from ..providers import PROVIDERS

    provider, colon, model_id = name.partition(":")
    if not colon or not provider or not model_id:
        raise InvalidValue(f"{name!r} is no model: give provider:name, such as anthropic:claude-sonnet-4-5")
    if provider not in PROVIDERS:
        hint = nearest(provider, [LOCAL, *PROVIDERS], "`dragoman doctor` lists them")
        raise InvalidValue(f"there is no provider {provider!r}: {hint}")
    return name
