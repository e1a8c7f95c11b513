"""A model by the name that a person types, with what the settings say about its provider. Touches no network."""

import os
from typing import TYPE_CHECKING, Any

from ..errors import DragomanError, ErrorCode
from .keys import stored_key
from .settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..history import HistoryEntry
    from ..models import Model

__all__ = ["LOCAL", "MODEL_KEY", "open_model", "own_model", "unsent_model"]

LOCAL = "local"
MODEL_KEY = "chat_model"  # in the metadata of what was said in a chat: the model that was asked
# Placeholder in a rendered request for what only a sent request has.
HIDDEN = "(not shown)"


def open_model(settings: Settings, name: str, **config: Any) -> "Model":
    """Return the model of that name, ready to be asked; the settings of its provider count.

    Raises InvalidValue for a name that is none, and DragomanError where the settings name a variable for the key that
    is not set.
    """
    from ..models import model

    if name.startswith(f"{LOCAL}:"):
        return model(name, **config)
    provider = settings.providers.get(name.partition(":")[0])
    if provider is None:
        return model(_known(name), api_key=_kept_key(name), **config)
    if provider.key_variable is None:
        key = _kept_key(name)
    else:
        key = os.environ.get(provider.key_variable) or stored_key((provider.key_variable,))
        if not key:
            raise DragomanError(
                f"no key for {name.partition(':')[0]}: the settings say that it is in {provider.key_variable}, "
                "which is not set",
                code=ErrorCode.AUTHENTICATION,
            )
    return model(_known(name), api_key=key, headers=provider.headers, **{**_endpoint(settings, name), **config})


def _kept_key(name: str) -> str | None:
    """The key in the keyring for a model whose provider has none in the environment."""
    from ..wire import find_dialect

    provider, _, model_id = _known(name).partition(":")
    variables = find_dialect(provider, model_id).key_variables
    return None if any(os.environ.get(variable) for variable in variables) else stored_key(variables)


def unsent_model(settings: Settings, name: str, **config: Any) -> "Model":
    """Return the model as its requests are written down: no key is looked for, no secret is in it."""
    from ..models import model
    from ..wire import find_dialect

    if name.startswith(f"{LOCAL}:"):
        return model(name, **config)
    provider, _, model_id = _known(name).partition(":")
    # Settings that the user has not given and the program cannot know are shown by their names.
    endpoint = {"region": "region", "project": "project", **_endpoint(settings, name)}
    if "base_url" not in endpoint and not find_dialect(provider, model_id).base_url:
        endpoint["base_url"] = "https://your-base-url.invalid"
    known = settings.providers.get(provider)
    headers = dict.fromkeys(known.headers, HIDDEN) if known is not None else {}
    return model(name, headers=headers, **{**endpoint, **config})


def own_model(entries: "Sequence[HistoryEntry]") -> str | None:
    """Return the model of a session: the one that was asked last in a chat, else the one that answered last."""
    from ..history import ModelInputEntry, ModelOutputEntry
    from ..wire import PROVIDERS

    for entry in reversed(entries):
        if isinstance(entry, ModelInputEntry) and isinstance(entry.metadata.get(MODEL_KEY), str):
            return str(entry.metadata[MODEL_KEY])
    for entry in reversed(entries):
        meta = entry.message.meta if isinstance(entry, ModelOutputEntry) else None
        if meta is not None and meta.invocation is not None and meta.invocation.provider in PROVIDERS:
            return f"{meta.invocation.provider}:{meta.invocation.model}"
    return None


def _endpoint(settings: Settings, name: str) -> dict[str, str]:
    provider = settings.providers.get(name.partition(":")[0])
    if provider is None:
        return {}
    names = ("base_url", "region", "project", "text_calls")
    given = {name: getattr(provider, name) for name in names}
    return {field: value for field, value in given.items() if value is not None}


def _known(name: str) -> str:
    """The name, if it has the form of one and its provider is known; the error says which was meant."""
    from ..models.names import split_name

    split_name(name)
    return name
