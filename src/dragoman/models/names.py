"""Model names, `provider:model`: how they are read, and which one a mistyped name probably means."""

from .._nearest import find_nearest
from ..catalogue import find_model_info, list_models
from ..errors import InvalidValue
from ..wire import PROVIDERS, WIRE_APIS

__all__ = ["LOCAL", "split_name", "suggest_name"]

LOCAL = "local"  # the provider of models on this machine
_LIKE = 0.75  # how like a known id another one must be to be taken for a slip


def split_name(name: object) -> tuple[str, str]:
    """Return the provider and the model of a name; raise InvalidValue with the name that was probably meant."""
    if not isinstance(name, str):
        raise InvalidValue.of("the model's name", name, "a str such as 'provider:model'")
    provider, colon, model_id = name.partition(":")
    if not provider or not model_id:
        hint = None if colon else suggest_name(name)
        such = "give provider:name, such as anthropic:claude-opus-4-5"
        raise InvalidValue(f"{name[:100]!r} is no model: {f'did you mean {hint!r}?' if hint else such}")
    if provider != LOCAL and provider not in PROVIDERS:
        hint = suggest_name(name)
        known = f"there are {', '.join(sorted(PROVIDERS))}"
        raise InvalidValue(f"there is no provider {provider[:100]!r}: {f'did you mean {hint!r}?' if hint else known}")
    return provider, model_id


def suggest_name(name: str) -> str | None:
    """Return the known name that this one probably means; None if it is known itself, or like none."""
    provider, _, model_id = name.partition(":")
    if model_id and provider not in PROVIDERS:
        meant = find_nearest(provider, [LOCAL, *PROVIDERS], cutoff=_LIKE)
        return f"{meant or _maker(model_id)}:{model_id}" if meant or _maker(model_id) else None
    if model_id:
        ids = [info.model_id for info in list_models(provider)]
        meant = None if find_model_info(provider, model_id) else find_nearest(model_id, ids, cutoff=_LIKE)
        return meant and f"{provider}:{meant}"
    provider, slash, model_id = name.partition("/")
    if slash and provider in PROVIDERS:
        return f"{provider}:{model_id}"
    known = {info.model_id: f"{maker}:{info.model_id}" for maker in reversed(_makers()) for info in list_models(maker)}
    meant = find_nearest(name, known.values(), cutoff=_LIKE)
    return known.get(name) or meant or known.get(find_nearest(name, known, cutoff=_LIKE) or "")


def _maker(model_id: str) -> str | None:
    """The provider that has a model of this very id: its maker, if that is one of those that have their own API."""
    having = {info.provider for info in list_models() if info.model_id == model_id}
    return next((provider for provider in _makers() if provider in having), None)


def _makers() -> list[str]:
    """The providers, those with a wire API of their own first: `openai` before `openai-chat`."""
    own = sorted((api.providers[0] for api in WIRE_APIS.values()), key=len)
    return [*own, *(provider for provider in PROVIDERS if provider not in own)]
