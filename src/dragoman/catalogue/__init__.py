"""What is known of models, as data with its date: windows, limits, abilities, prices. Never touches the network.

A model that is not here is unknown, not refused. `context_window` is the vendor's figure; where input and output share
it, as at OpenAI and Anthropic, input may have the window less the output. `output_limit` is None where a vendor has no
limit but the window. Prices are those of a short prompt sent the ordinary way: the surcharge that some models have
for long prompts, one-hour cache writes and batch discounts are not in them.
"""

import re
from datetime import date
from functools import cache, lru_cache
from pkgutil import get_data
from typing import NamedTuple

import msgspec

from ..errors import InvalidValue
from ..request import ModelInfo
from ..usage import Prices

__all__ = ["ABILITIES", "catalogue_date", "find_model_info", "list_models", "register_model"]

# Every word that the data uses in `ModelInfo.abilities`. A user's own entries may have others.
ABILITIES: dict[str, str] = {
    "streaming": "answers piece by piece",
    "tools": "calls functions that the caller declares",
    "parallel_tools": "may call several tools in one answer",
    "strict_tools": "can be held to a tool's schema",
    "structured_output": "can be held to a JSON schema in its answer",
    "reasoning": "can think before it answers",
    "fixed_sampling": "refuses or ignores temperature and top_p, always or whenever it thinks",
    "images": "reads images",
    "documents": "reads PDF files",
    "audio": "hears sound",
    "video": "watches video",
    "caching": "has a prompt cache with a price of its own",
    "hosted_tools": "has tools that the provider runs itself",
    "prefill": "goes on from a last assistant message",
}
_MODALITIES = {"images": "image", "documents": "document", "audio": "audio", "video": "video"}

# How an id wraps the one in the catalogue. Each is taken off in turn, and what is left must then be there letter for
# letter: nothing is guessed from how an id begins, so `gpt-4o-mini` can never be taken for `gpt-4o`. A release number
# of four digits (`mistral-large-2411`) is a different model and stays.
_PATH = re.compile(r"^(?:arn:.*|projects/.*|publishers/.*|models)/(?=[^/]+$)")  # models/gemini-…, a resource name
_VARIANT = re.compile(r":(?:free|nitro|floor|online|exacto|extended|thinking|batch)$")  # OpenRouter; has its own price
_REGION = re.compile(r"^(us-gov|us|eu|apac|ap|au|jp|in|ca|sa|me|af|global)\.(?=[a-z0-9]+\.)")  # us.anthropic.…
_VERSION = re.compile(r"-v1$|-v?\d+(?::\d+)+(?::\w+)?$")  # Bedrock's -v1:0
_VERTEX = re.compile(r"@[\w-]+$")  # @20250929, @default
_SNAPSHOT = re.compile(r"-(?:20\d{6}|20\d\d-\d\d-\d\d|latest|00\d|preview-\d\d-(?:\d\d|20\d\d))$")
_WRAPPINGS = (_PATH, _VARIANT, _REGION, _VERSION, _VERTEX, _SNAPSHOT)


class _Reading(NamedTuple):
    """One way to read an id: without some of its wrappings, and what those say of the price."""

    model_id: str
    region: str | None = None
    is_variant: bool = False


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model in the data. What `like` (provider:id) has and this does not say is taken from there, less `lacks`.

    `prices` are input, output, cache read, cache write; empty means unknown. `regions` are what Bedrock's regions
    multiply them by: `*` those not named, an empty name an id without one.
    """

    like: str | None = None
    lacks: str = ""
    window: int | None = None
    output: int | None = None
    makes: str | None = None
    abilities: str | None = None
    prices: tuple[float | None, ...] | None = None
    regions: dict[str, float] = {}


class _Reseller(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A provider that offers the models of another one, less some abilities."""

    like: str
    lacks: str = ""


class _Catalogue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    date: date
    sources: tuple[str, ...]
    resellers: dict[str, _Reseller]
    models: dict[str, dict[str, _Entry]]


_registered: dict[tuple[str, str], ModelInfo] = {}


@lru_cache(maxsize=512)  # every request of a model asks
def find_model_info(provider: str, model_id: str) -> ModelInfo | None:
    """Return what is known of a model, None if nothing is; its `model_id` is the one it is known by.

    The id is tried as it stands, then without its wrappings: a resource path, OpenRouter's variant, Bedrock's region
    and version, Vertex's `@…`, a snapshot's date. What was registered for the provider wins over the catalogue.
    """
    for reading in _readings(model_id):
        if info := _registered.get((provider, reading.model_id)):
            return info
        if info := _known(provider, reading):
            return info
    return None


def register_model(info: ModelInfo) -> None:
    """Add a model, or replace what is known of it, for its provider and for as long as the process runs."""
    if not isinstance(info, ModelInfo):
        raise InvalidValue.of("info", info, "a ModelInfo")
    _registered[info.provider, info.model_id] = info
    find_model_info.cache_clear()


def list_models(provider: str | None = None) -> list[ModelInfo]:
    """Return every known model, or every one of a provider, sorted by provider and id."""
    catalogue = _catalogue()
    providers = {*catalogue.models, *catalogue.resellers} if provider is None else {provider}
    found: dict[tuple[str, str], ModelInfo] = {}
    for name in providers:
        for model_id in _ids(name):
            info = _known(name, _Reading(model_id))
            assert info is not None
            found[name, model_id] = info
    found.update((key, info) for key, info in _registered.items() if provider in (None, info.provider))
    return [found[key] for key in sorted(found)]


def catalogue_date() -> date:
    """Return the day on which the data was gathered: prices and limits may have changed since."""
    return _catalogue().date


def _readings(model_id: str) -> tuple[_Reading, ...]:
    readings = [reading := _Reading(model_id)]
    for wrapping in _WRAPPINGS:
        found = wrapping.search(reading.model_id)
        if found is None:
            continue
        rest = reading.model_id[: found.start()] + reading.model_id[found.end() :]
        region = found[1] if wrapping is _REGION else reading.region
        reading = _Reading(rest, region, reading.is_variant or wrapping is _VARIANT)
        readings.append(reading)
    return tuple(readings)


@cache
def _catalogue() -> _Catalogue:
    data = get_data(__name__, "models.json")
    assert data is not None
    return msgspec.json.decode(data, type=_Catalogue)


def _ids(provider: str) -> set[str]:
    catalogue = _catalogue()
    own = set(catalogue.models.get(provider, ()))
    return own | _ids(catalogue.resellers[provider].like) if provider in catalogue.resellers else own


def _known(provider: str, reading: _Reading) -> ModelInfo | None:
    entry = _entry(provider, reading.model_id)
    if entry is None:
        return None
    abilities = (entry.abilities or "").split()
    return ModelInfo(
        provider=provider,
        model_id=reading.model_id,
        context_window=entry.window,
        output_limit=entry.output,
        input_modalities=("text", *(kind for ability, kind in _MODALITIES.items() if ability in abilities)),
        output_modalities=tuple((entry.makes or "text").split()),
        abilities=frozenset(abilities),
        prices=_prices(entry, reading),
    )


def _entry(provider: str, model_id: str) -> _Entry | None:
    """The provider's own entry, or that of the one whose models it offers, with what it shares filled in."""
    catalogue = _catalogue()
    entry = catalogue.models.get(provider, {}).get(model_id)
    if entry is not None:
        return entry if entry.like is None else _filled(entry)
    reseller = catalogue.resellers.get(provider)
    shared = None if reseller is None else _entry(reseller.like, model_id)
    if reseller is None or shared is None:
        return None
    return msgspec.structs.replace(shared, abilities=_without(shared.abilities, reseller.lacks))


def _filled(entry: _Entry) -> _Entry:
    assert entry.like is not None
    provider, _, model_id = entry.like.partition(":")
    shared = _entry(provider, model_id)
    assert shared is not None, f"the catalogue has no {entry.like}"
    return _Entry(
        window=shared.window if entry.window is None else entry.window,
        output=shared.output if entry.output is None else entry.output,
        makes=shared.makes if entry.makes is None else entry.makes,
        abilities=_without(shared.abilities if entry.abilities is None else entry.abilities, entry.lacks),
        prices=shared.prices if entry.prices is None else entry.prices,
        regions=entry.regions,
    )


def _without(abilities: str | None, lacks: str) -> str:
    removed = lacks.split()
    return " ".join(ability for ability in (abilities or "").split() if ability not in removed)


def _prices(entry: _Entry, reading: _Reading) -> Prices | None:
    if not entry.prices or reading.is_variant:
        return None
    usual = 1.0 if reading.region is None else entry.regions.get("*", 1.0)
    factor = entry.regions.get(reading.region or "", usual)
    scaled = [None if price is None else round(price * factor, 6) for price in entry.prices]
    cost_in, cost_out, cache_read, cache_write = scaled + [None] * (4 - len(scaled))
    assert cost_in is not None and cost_out is not None  # noqa: PT018  # one rule: these two are always given
    return Prices(input=cost_in, output=cost_out, cache_read=cache_read, cache_write=cache_write)
