"""The catalogue of models: its data holds together, ids resolve to the right entry, users can add and override."""

import json
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

import msgspec
import pytest

from dragoman import catalogue
from dragoman.catalogue import ABILITIES, catalogue_date, find_model_info, list_models, register_model
from dragoman.errors import InvalidValue
from dragoman.request import ModelInfo
from dragoman.usage import Prices, TokenUsage
from dragoman.wire import PROVIDERS

DATA = Path(catalogue.__file__).with_name("models.json")
RAW = json.loads(DATA.read_text(encoding="utf-8"))
EVERY = list_models()
MODALITIES = {"text", "image", "document", "audio", "video"}
ASKED_FOR = (
    "openai azure anthropic google bedrock groq mistral deepseek openrouter cerebras xai"
    " together fireworks moonshot zai"
)


def known(provider: str, model_id: str) -> ModelInfo:
    """Return what the catalogue has, which must be something."""
    info = find_model_info(provider, model_id)
    assert info is not None, f"{provider}:{model_id} is unknown"
    return info


def prices_of(provider: str, model_id: str) -> Prices:
    """Return a model's prices, which must be known."""
    prices = known(provider, model_id).prices
    assert prices is not None
    return prices


@pytest.fixture(autouse=True)
def _nothing_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "_registered", {})


# ---------------------------------------------------------------- the data


def test_the_data_is_small_and_says_when_and_where_it_is_from() -> None:
    assert DATA.stat().st_size < 150_000
    assert catalogue_date() == date.fromisoformat(RAW["date"])
    assert catalogue_date() >= date(2026, 1, 1)
    assert all(source and "/" not in source for source in RAW["sources"])


def test_every_provider_in_the_data_is_one_that_we_speak_to() -> None:
    named = {*RAW["models"], *RAW["resellers"], *(reseller["like"] for reseller in RAW["resellers"].values())}
    assert named <= set(PROVIDERS)


def test_every_vendor_has_models_and_every_door_opens_on_some() -> None:
    assert all(list_models(provider) for provider in [*ASKED_FOR.split(), *RAW["resellers"]])


def test_every_entry_is_a_model_with_a_window_and_known_words() -> None:
    for info in EVERY:
        name = f"{info.provider}:{info.model_id}"
        assert info.context_window is not None, name
        assert info.abilities <= set(ABILITIES), name
        assert info.abilities, name
        assert {*info.input_modalities, *info.output_modalities} <= MODALITIES, name


def test_no_output_limit_reaches_the_window() -> None:
    # A limit as large as the window is none, and a request that asks for all of it is refused.
    wrong = [info for info in EVERY if (info.output_limit or 0) >= (info.context_window or 0)]
    assert wrong == []


def test_prices_are_sane() -> None:
    for info in EVERY:
        if info.prices is None:
            continue
        prices, name = info.prices, f"{info.provider}:{info.model_id}"
        assert prices.input <= prices.output <= 1_000, name
        assert prices.cache_read is None or 0 < prices.cache_read <= prices.input, name
        assert prices.cache_write is None or prices.input <= prices.cache_write <= 2 * prices.input, name


def test_a_price_for_cache_reads_goes_with_the_ability() -> None:
    priced = [info for info in EVERY if info.prices and info.prices.cache_read is not None]
    assert [info for info in priced if "caching" not in info.abilities] == []


def test_all_closed_models_have_a_price() -> None:
    unpriced = [info for vendor in ("openai", "anthropic", "google", "xai") for info in list_models(vendor)]
    assert [info.model_id for info in unpriced if info.prices is None] == []


def test_finer_words_about_tools_imply_tools() -> None:
    finer = {"parallel_tools", "strict_tools"}
    assert [info for info in EVERY if info.abilities & finer and "tools" not in info.abilities] == []


def test_no_entry_repeats_one_that_its_id_resolves_to() -> None:
    for provider, entries in RAW["models"].items():
        for model_id, entry in entries.items():
            bases = [reading.model_id for reading in catalogue._readings(model_id)][1:]
            assert all(entries.get(base) != entry for base in bases), f"{provider}:{model_id}"


def test_an_entry_refers_to_one_that_is_there() -> None:
    for entries in RAW["models"].values():
        for entry in entries.values():
            provider, _, model_id = entry.get("like", "").partition(":")
            assert not provider or model_id in RAW["models"][provider]


# ---------------------------------------------------------------- lookups


def test_an_unknown_model_is_none() -> None:
    assert find_model_info("openai", "gpt-of-next-year") is None
    assert find_model_info("ollama", "llama3") is None
    assert find_model_info("nobody", "gpt-4o") is None


def test_the_providers_own_facts_are_found() -> None:
    info = known("openai", "gpt-5")
    assert (info.context_window, info.output_limit) == (400_000, 128_000)
    assert info.prices == Prices(input=1.25, output=10, cache_read=0.125)
    assert {"tools", "structured_output", "reasoning", "fixed_sampling", "images"} <= info.abilities
    assert info.input_modalities == ("text", "image", "document")


@pytest.mark.parametrize(
    ("provider", "model_id", "entry"),
    [
        ("openai", "gpt-4o-2024-08-06", "gpt-4o"),
        ("openai", "gpt-4o-mini-2024-07-18", "gpt-4o-mini"),
        ("azure", "gpt-5-mini-2025-08-07", "gpt-5-mini"),
        ("anthropic", "claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("anthropic", "claude-opus-4-5-latest", "claude-opus-4-5"),
        ("anthropic-vertex", "claude-haiku-4-5@20251001", "claude-haiku-4-5"),
        ("anthropic-vertex", "claude-opus-5@default", "claude-opus-5"),
        ("bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "anthropic.claude-sonnet-4-5"),
        ("bedrock", "anthropic.claude-opus-4-6-v1", "anthropic.claude-opus-4-6"),
        ("bedrock", "us.amazon.nova-lite-v1:0", "amazon.nova-lite"),
        ("bedrock", "us.amazon.nova-lite-v1:0:24k", "amazon.nova-lite"),
        ("bedrock", "openai.gpt-oss-120b-1:0", "openai.gpt-oss-120b"),
        (
            "anthropic-bedrock",
            "arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude-opus-5",
            "anthropic.claude-opus-5",
        ),
        ("google", "models/gemini-2.5-pro", "gemini-2.5-pro"),
        ("google", "gemini-2.5-flash-001", "gemini-2.5-flash"),
        ("google", "gemini-2.5-flash-lite-preview-09-2025", "gemini-2.5-flash-lite"),
        ("google-vertex", "publishers/google/models/gemini-2.5-flash", "gemini-2.5-flash"),
        ("google-vertex", "projects/p/locations/l/publishers/google/models/gemini-2.5-flash", "gemini-2.5-flash"),
        ("openrouter", "anthropic/claude-opus-5:online", "anthropic/claude-opus-5"),
        ("mistral", "mistral-large-latest", "mistral-large-latest"),
    ],
)
def test_a_wrapped_id_resolves_to_its_entry(provider: str, model_id: str, entry: str) -> None:
    info = known(provider, model_id)
    assert (info.provider, info.model_id) == (provider, entry)


@pytest.mark.parametrize(
    ("provider", "model_id"),
    [
        ("openai", "gpt-4o-nano"),
        ("openai", "gpt-4o-mini-of-mine"),
        ("openai", "gpt-"),
        ("anthropic", "claude-opus-4-50"),
        ("anthropic", "claude-opus"),
        ("mistral", "mistral-large-2411"),
        ("google", "gemini-2.5"),
        ("bedrock", "arn:aws:bedrock:us-east-1:1:application-inference-profile/abc"),
    ],
)
def test_an_id_is_never_taken_for_one_that_it_merely_resembles(provider: str, model_id: str) -> None:
    assert find_model_info(provider, model_id) is None


@pytest.mark.parametrize("ending", ["-mini", "-nano", "-pro", "-5", "-2411", "-preview", "s"])
def test_a_longer_name_is_never_taken_for_the_model_that_it_begins_with(ending: str) -> None:
    for info in EVERY:
        longer = f"{info.model_id}{ending}"
        found = find_model_info(info.provider, longer)
        assert found is None or found.model_id == longer, f"{info.provider}:{longer}"


def test_the_small_model_is_not_taken_for_the_large_one() -> None:
    assert prices_of("openai", "gpt-4o-mini").input == 0.15
    assert prices_of("openai", "gpt-4o-mini-2024-07-18").input == 0.15
    assert prices_of("openai", "gpt-4o").input == 2.5


def test_a_snapshot_with_facts_of_its_own_keeps_them() -> None:
    info = known("openai", "gpt-4o-2024-05-13")
    assert (info.model_id, info.output_limit) == ("gpt-4o-2024-05-13", 4_096)
    assert "structured_output" not in info.abilities


def test_one_model_behind_several_resellers_is_one_entry() -> None:
    own = known("anthropic", "claude-haiku-4-5")
    vertex = known("anthropic-vertex", "claude-haiku-4-5")
    assert msgspec.structs.replace(vertex, provider="anthropic") == own
    bedrock = known("bedrock", "global.anthropic.claude-haiku-4-5-20251001-v1:0")
    assert (bedrock.context_window, bedrock.prices) == (own.context_window, own.prices)
    assert own.abilities - bedrock.abilities == {"hosted_tools"}
    assert known("azure", "gpt-4o").abilities == known("openai", "gpt-4o").abilities - {"hosted_tools"}


def test_a_region_has_its_price() -> None:
    name = "anthropic.claude-opus-4-5-20251101-v1:0"
    assert prices_of("bedrock", f"global.{name}") == Prices(input=5, output=25, cache_read=0.5, cache_write=6.25)
    regional = Prices(input=5.5, output=27.5, cache_read=0.55, cache_write=6.875)
    assert prices_of("bedrock", f"us.{name}") == prices_of("bedrock", name) == regional


def test_a_variant_has_no_known_price() -> None:
    assert known("openrouter", "openai/gpt-4o").prices is not None
    assert known("openrouter", "openai/gpt-4o:free").prices is None


@pytest.mark.parametrize("model_id", ["o3", "o4-mini", "gpt-5", "gpt-5-nano", "gpt-5.1", "gpt-6-sol"])
def test_openais_thinking_models_have_fixed_sampling(model_id: str) -> None:
    assert {"fixed_sampling", "reasoning"} <= known("openai", model_id).abilities


@pytest.mark.parametrize("model_id", ["gpt-4o", "gpt-4.1", "gpt-4o-mini"])
def test_openais_other_models_take_a_temperature(model_id: str) -> None:
    assert not {"fixed_sampling", "reasoning"} & known("openai", model_id).abilities


def test_newer_claudes_refuse_what_older_ones_take() -> None:
    older, newer = known("anthropic", "claude-sonnet-4-5").abilities, known("anthropic", "claude-opus-5").abilities
    assert ("prefill" in older, "fixed_sampling" in older) == (True, False)
    assert ("prefill" in newer, "fixed_sampling" in newer) == (False, True)


# ---------------------------------------------------------------- the user's own


def test_a_model_can_be_added() -> None:
    mine = ModelInfo(provider="vllm", model_id="my-model", context_window=32_768, abilities=frozenset({"tools"}))
    register_model(mine)
    assert find_model_info("vllm", "my-model") is mine
    assert list_models("vllm") == [mine]
    assert mine in list_models()


def test_a_model_can_be_replaced_for_its_provider_alone() -> None:
    discounted = msgspec.structs.replace(known("openai", "gpt-4o"), prices=Prices(input=1, output=4))
    register_model(discounted)
    assert find_model_info("openai", "gpt-4o") is discounted
    assert find_model_info("openai", "gpt-4o-2024-08-06") is discounted
    assert prices_of("azure", "gpt-4o").input == 2.5
    assert [info for info in list_models("openai") if info.model_id == "gpt-4o"] == [discounted]


def test_a_snapshot_of_the_users_wins_over_its_base() -> None:
    snapshot = ModelInfo(provider="openai", model_id="gpt-4o-2024-08-06", context_window=1_000)
    register_model(snapshot)
    assert find_model_info("openai", "gpt-4o-2024-08-06") is snapshot
    assert known("openai", "gpt-4o").context_window == 128_000


def test_only_a_model_info_can_be_registered() -> None:
    with pytest.raises(InvalidValue, match="ModelInfo"):
        register_model({"provider": "openai"})  # type: ignore[arg-type]  # the mistake under test


# ---------------------------------------------------------------- cost


def test_the_cost_of_a_call_with_cache_reads_and_writes() -> None:
    # claude-sonnet-4-5, dollars per million: 3 in, 15 out, 0.30 read, 3.75 written.
    # 100,000 in, of them 80,000 read and 15,000 written, so 5,000 fresh; 2,000 out.
    # 5,000 x 3 = 15,000; 80,000 x 0.3 = 24,000; 15,000 x 3.75 = 56,250; 2,000 x 15 = 30,000: 125,250 millionths.
    usage = TokenUsage(input_tokens=100_000, output_tokens=2_000, cache_read_tokens=80_000, cache_write_tokens=15_000)
    assert prices_of("anthropic", "claude-sonnet-4-5-20250929").cost_of(usage) == pytest.approx(0.125250)


def test_the_cost_of_a_call_where_writing_the_cache_is_plain_input() -> None:
    # gpt-4o: 2.50 in, 10 out, 1.25 read. 10,000 in, of them 4,000 read; 1,000 out, reasoning among them.
    # 6,000 x 2.5 = 15,000; 4,000 x 1.25 = 5,000; 1,000 x 10 = 10,000: 30,000 millionths.
    usage = TokenUsage(input_tokens=10_000, output_tokens=1_000, cache_read_tokens=4_000, reasoning_tokens=600)
    assert prices_of("openai", "gpt-4o").cost_of(usage) == pytest.approx(0.03)


# ---------------------------------------------------------------- loading


def test_importing_reads_nothing_and_the_first_lookup_is_quick() -> None:
    program = (
        "import time\nfrom dragoman import catalogue\n"
        "assert catalogue._catalogue.cache_info().currsize == 0\n"
        "start = time.process_time()\ncatalogue.find_model_info('openai', 'gpt-4o')\n"
        "print(time.process_time() - start)"
    )
    printed = [
        float(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)
        for _ in range(5)
    ]
    assert min(printed) < 0.005


def test_a_lookup_costs_microseconds() -> None:
    name = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
    start = time.process_time()
    for _ in range(200):
        find_model_info("bedrock", name)
    assert (time.process_time() - start) / 200 < 0.001
