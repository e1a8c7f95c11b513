"""Builds src/dragoman/catalogue/models.json from two published tables of facts, and prints where they disagree.

`python scripts/build_catalogue.py LITELLM_WHEEL GENAI_PRICES_WHEEL --date YYYY-MM-DD` reads both as archives; nothing
is installed. Only figures and flags are taken. LiteLLM's table has limits and abilities; both have prices. Where they
differ, SETTLED has what was found to be right; what it does not name is LiteLLM's, and printed for a person to look at.
"""

import argparse
import json
import re
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from dragoman.catalogue import ABILITIES, _readings

TARGET = Path(__file__).parents[1] / "src" / "dragoman" / "catalogue" / "models.json"
TABLE = "litellm/model_prices_and_context_window_backup.json"
RETIRED_FOR = timedelta(days=180)  # recorded conversations still name them, and other hosts still serve them

PRICE_NAMES = ("input", "output", "cache read", "cache write")
TOLERANCE = 0.011  # the tables round differently

Flags = dict[str, bool]
Entry = dict[str, Any]

# LiteLLM's flag -> our ability.
FLAGS = {
    "function_calling": "tools",
    "parallel_function_calling": "parallel_tools",
    "response_schema": "structured_output",
    "reasoning": "reasoning",
    "vision": "images",
    "pdf_input": "documents",
    "audio_input": "audio",
    "video_input": "video",
    "web_search": "hosted_tools",
    "assistant_prefill": "prefill",
}


# What a host may leave unsaid and another host of the same open model may say for it: facts of the model itself.
BORROWED = frozenset({"function_calling", "parallel_function_calling", "response_schema", "reasoning"})


class Vendor(NamedTuple):
    """How one provider's models are found in the two tables, and what is true of all of them.

    `always` and `never` are from the vendor's documents. `skip` are ids that are no models to talk to, or too many.
    """

    table: tuple[str, ...]
    prefix: str = ""
    second: str | None = None
    skip: str = r"(?!)"
    only: str = r""
    always: str = ""
    never: str = ""
    retired: bool = True
    borrows: bool = False


VENDORS: dict[str, Vendor] = {
    "openai": Vendor(
        ("openai",),
        second="openai",
        skip=r"ft:.*|.*container|.*(?:search-preview|audio-preview|computer-use).*|gpt-rosalind.*|.*-cyber.*|.*daybreak.*"
        r"|gpt-3\.5-turbo-.+|gpt-4-.*(?:0613|1106).*|.*-chat$",
        never="prefill",
    ),
    "anthropic": Vendor(("anthropic",), second="anthropic", skip=".*-preview", always="hosted_tools documents"),
    "google": Vendor(
        ("gemini",),
        "gemini/",
        second="google",
        skip=r".*(?:-tts|-exp|lyria|learnlm|deep-research|robotics|computer-use|gemma-2|omni|imagen|live).*",
        only=r"gem",
    ),
    "groq": Vendor(("groq",), "groq/", second="groq", skip=r".*guard-.*", never="strict_tools", borrows=True),
    "mistral": Vendor(
        ("mistral",),
        "mistral/",
        second="mistral",
        skip=r"labs-.*|.*vibe.*|.*mamba.*|.*tiny|.*-fim-.*",
    ),
    # It answers in JSON but takes no schema for it.
    "deepseek": Vendor(
        ("deepseek",),
        second="deepseek",
        skip=r"deepseek/.*",
        never="structured_output strict_tools documents",
    ),
    "cerebras": Vendor(("cerebras",), "cerebras/", second="cerebras", skip=r"llama3\.1-70b|qwen-3-32b", borrows=True),
    # Its hosted tools are on another API than the one we speak.
    "xai": Vendor(
        ("xai",),
        "xai/",
        second="x-ai",
        skip=r".*(?:beta|experimental|gv2|multi-agent|-\d{4}).*",
        always="parallel_tools",
        never="hosted_tools strict_tools",
    ),
    "together": Vendor(
        ("together_ai",),
        "together_ai/",
        second="together",
        skip=r"together.*|.*(?:CodeLlama|Qwen2|Llama-3\.[12]|Kimi-K2-Instruct|Mistral-7B|DeepSeek-(?:V3|R1)|405B).*",
        never="strict_tools hosted_tools",
        retired=False,
        borrows=True,
    ),
    "fireworks": Vendor(
        ("fireworks_ai",),
        "fireworks_ai/",
        second="fireworks",
        only=r"accounts/",
        skip=r".*(?:/auto.*|firerouter|firefunction.*|mixtral.*|llama-v3.*|glm-4p5.*|kimi-k2-instruct.*)",
        never="strict_tools hosted_tools",
        retired=False,
        borrows=True,
    ),
    "moonshot": Vendor(
        ("moonshot",), "moonshot/", second="moonshotai", skip=r".*-auto", always="hosted_tools", never="strict_tools"
    ),
    "zai": Vendor(("zai",), "zai/", second="zai", always="hosted_tools", never="structured_output strict_tools"),
    "bedrock": Vendor(
        ("bedrock_converse", "bedrock"),
        second="aws",
        skip=r".*/.*|.*@.*|.*(?:\.j2-|jamba|titan|claude-(?:v|instant|3-opus|3-5)|cohere|llama2|llama3-(?:8b|70b)|mixtral|"
        r"mistral-7b|pegasus|writer|safeguard|voxtral|3-7-sonnet|mythos-preview).*|claude.*|mistral\.mistral-(?:large|small)-2.*",
        never="hosted_tools",
        borrows=True,
    ),
    "bedrock-mantle": Vendor(
        ("bedrock_mantle",), "bedrock_mantle/", skip=r".*/.*|.*(?:safeguard|daybreak|cyber).*", borrows=True
    ),
}

# Providers that offer another one's models by the same ids, and what these cannot do there.
DOORS = {
    "openai-chat": {"like": "openai", "lacks": "hosted_tools"},
    "azure": {"like": "openai", "lacks": "hosted_tools"},
    "azure-responses": {"like": "openai"},
    "anthropic-vertex": {"like": "anthropic"},
    "anthropic-bedrock": {"like": "bedrock"},
    "bedrock-mantle": {"like": "bedrock"},
    "google-vertex": {"like": "google"},
    "google-openai": {"like": "google", "lacks": "hosted_tools"},
    "deepseek-responses": {"like": "deepseek"},
    "openrouter-responses": {"like": "openrouter"},
}

# Models that the second table alone has: priced from there, otherwise as the sibling they were announced beside.
SIBLINGS = {
    "openai": {"gpt-6.1-terra": "gpt-6.1-sol"},
    "moonshot": {
        "kimi-k2.7-code-highspeed": "kimi-k2.7-code",
        "kimi-k3.1-pro": "kimi-k3",
        "kimi-k3.1-pro-highspeed": "kimi-k3",
    },
    "zai": {"glm-5.3-flashx": "glm-5.3-flash", "glm-4.6v": "glm-4.5v"},
}

# OpenRouter: its word for a vendor -> ours, and the open models that are popular there.
ROUTED = {
    "anthropic": "anthropic",
    "openai": "openai",
    "google": "google",
    "x-ai": "xai",
    "deepseek": "deepseek",
    "mistralai": "mistral",
    "moonshotai": "moonshot",
    "z-ai": "zai",
}
ROUTED_AT_LIST_PRICE = ("anthropic", "openai", "google", "xai", "mistral")
ROUTED_OPEN = re.compile(
    r"(?:qwen/qwen3(?:-coder|-max|-235b|\.[5-8])|meta-llama/llama-(?:3\.3|4)|minimax/minimax-m[23]|nvidia/nemotron-3"
    r"|openai/gpt-oss|deepseek/deepseek-v|z-ai/glm-|moonshotai/kimi-|google/gemma-[34]).*"
)

# Where the tables disagree or are silent and the vendor's documents, or its other hosts, decide. With no facts of its
# own an entry says: looked at, the first table is right.
SETTLED: dict[tuple[str, str], Entry] = {
    # The first table has 128,000, Bedrock and Vertex 64,000: a limit that is too low is accepted, one too high refused.
    ("anthropic", "claude-sonnet-4-6"): {"output": 64_000},
    # One source still has the launch price, which ended in October 2026; this is the list price.
    ("mistral", "mistral-large-4"): {"prices": [1.36, 4.18, 0.14]},
    ("mistral", "mistral-large-4-0"): {"prices": [1.36, 4.18, 0.14]},
    # OpenAI's chat models: a window of 128,000, as documented. The oldest does not think.
    ("openai", "gpt-5-chat-latest"): {"lacks": "reasoning fixed_sampling"},
    ("openai", "gpt-5.1-chat-latest"): {},
    ("openai", "gpt-5.2-chat-latest"): {},
    # Google's image models: the small windows of their documents, not the family's million.
    ("google", "gemini-2.5-flash-image"): {},
    ("google", "gemini-3-pro-image"): {},
    ("google", "gemini-3-pro-image-preview"): {"window": 65_536},
    ("google", "gemini-3.1-flash-image"): {},
    ("google", "gemini-3.1-flash-image-preview"): {},
    # Names that moved on to a newer model; the second table has the price of an older one.
    ("mistral", "magistral-medium-latest"): {},
    ("mistral", "magistral-small-latest"): {},
    ("mistral", "mistral-large-latest"): {},
    ("mistral", "mistral-medium"): {},
    ("xai", "grok-code-fast"): {},
    ("xai", "grok-code-fast-1"): {},
    ("deepseek", "deepseek-chat"): {},
    ("deepseek", "deepseek-reasoner"): {},
    # The smaller of two figures, since too small a window costs less than one too large.
    ("mistral", "codestral-2508"): {},
    ("mistral", "codestral-latest"): {},
    ("cerebras", "llama3.1-8b"): {"window": 32_768},
    ("bedrock", "qwen.qwen3-coder-480b-a35b"): {"window": 128_000},
    # The vendor's price list.
    ("mistral", "open-mistral-nemo"): {
        "prices": [0.15, 0.15],
        "adds": "tools parallel_tools strict_tools",
        "lacks": "caching",
    },
    # Names for whatever model is newest, which refuses a temperature.
    ("google", "gemini-flash-latest"): {"adds": "fixed_sampling"},
    ("google", "gemini-flash-lite-latest"): {"adds": "fixed_sampling"},
    # Not known which is newer: the dearer one, so that a limit on cost holds.
    ("together", "Qwen/Qwen3.7-Max"): {"prices": [2.5, 7.5, 0.5]},
    ("together", "Qwen/Qwen3.8-2.4T-A95B"): {"prices": [2, 6, 0.5]},
    # The first table leaves out the price of the cache, and that they think.
    ("zai", "glm-4.5"): {"prices": [0.6, 2.2, 0.11], "adds": "reasoning caching"},
    ("zai", "glm-4.5v"): {"prices": [0.6, 1.8, 0.11], "adds": "reasoning caching"},
    ("zai", "glm-4.5-x"): {"prices": [2.2, 8.9, 0.45], "adds": "reasoning caching"},
    ("zai", "glm-4.5-air"): {"prices": [0.2, 1.1, 0.03], "adds": "reasoning caching"},
    ("zai", "glm-4.5-airx"): {"prices": [1.1, 4.5, 0.22], "adds": "reasoning caching"},
    ("zai", "glm-4.5-flash"): {"adds": "reasoning"},
}

# OpenAI's models from before hosted tools and strict schemas.
_OLD_OPENAI = re.compile(r"gpt-3\.5|gpt-4(?:$|-)|gpt-4o-2024-05|o1|o3-mini|gpt-audio|chatgpt")
_THINKS_ALWAYS = re.compile(r"(?:openai[.:/])?(?:o\d|gpt-[5-9])|chat-latest")


def main() -> None:
    """Write the data and print what needs a person's eye."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("litellm", type=Path)
    options.add_argument("genai_prices", type=Path)
    options.add_argument("--date", type=date.fromisoformat, required=True)
    given = options.parse_args()
    with zipfile.ZipFile(given.litellm) as wheel:
        table: dict[str, Entry] = json.loads(wheel.read(TABLE))
    second = SecondTable(given.genai_prices, given.date)
    known_flags = flags_by_model(table)
    models = {name: read_vendor(table, name, vendor, known_flags, given.date) for name, vendor in VENDORS.items()}
    for provider, siblings in SIBLINGS.items():
        for model_id, sibling in siblings.items():
            prices = second.prices(str(VENDORS[provider].second), model_id)
            models[provider][model_id] = {"like": f"{provider}:{sibling}", "prices": prices}
    compared, differences = compare(models, second)
    settle(models)
    models["openrouter"] = read_openrouter(second, models, known_flags)
    share_hosts(models)
    models = {name: drop_snapshots(entries) for name, entries in models.items()}
    sources = [f"the model table inside {wheel_name(given.litellm)}", f"the prices of {wheel_name(given.genai_prices)}"]
    sources.append("vendors' documents where these two disagree")
    TARGET.write_text(render(given.date, sources, models), encoding="utf-8")
    print("\n".join(differences))
    print(f"{sum(map(len, models.values()))} entries, {TARGET.stat().st_size:,} bytes")
    print(f"{compared} models in both tables, {len(differences)} figures differ")


# ---------------------------------------------------------------- the first table


def read_vendor(
    table: dict[str, Entry], name: str, vendor: Vendor, known: dict[str, Flags], day: date
) -> dict[str, Entry]:
    """Return the vendor's current models by the ids that it is called with."""
    oldest = day - RETIRED_FOR if vendor.retired else day
    regional: dict[str, dict[str, Entry]] = {}
    for key, row in table.items():
        model_id = key.removeprefix(vendor.prefix)
        is_chat = row.get("mode") in ("chat", "responses") or re.match(r"gemini/gemini-.*-image", key)
        if row.get("litellm_provider") not in vendor.table or not is_chat or re.fullmatch(vendor.skip, model_id):
            continue
        if not model_id.startswith(vendor.only) or not row.get("max_input_tokens"):
            continue
        if date.fromisoformat(row.get("deprecation_date") or "9999-12-31") < oldest:
            continue
        region, base = split_region(model_id) if name.startswith("bedrock") else ("", model_id)
        regional.setdefault(base, {})[region] = row
    found: dict[str, Entry] = {}
    for model_id, rows in regional.items():
        row = rows.get("") or rows.get("global") or next(iter(rows.values()))
        entry = read_row(name, model_id, row, vendor, known)
        unsaid = not row.get("supports_function_calling") if name == "fireworks" else "tools" not in entry["abilities"]
        if unsaid and name in ("together", "fireworks"):
            continue  # nobody says what it can do, or it is one of hundreds: it had better be unknown
        if regions := region_factors(model_id, row, rows):
            entry["regions"] = regions
        found[model_id] = entry
    return found


def read_row(provider: str, model_id: str, row: Entry, vendor: Vendor, known: dict[str, Flags]) -> Entry:
    """Return one row of the table in our form."""
    window, output = row["max_input_tokens"], row.get("max_output_tokens")
    if is_openai(provider, model_id) and window in (272_000, 922_000, 111_616) and output:
        window += output  # the table has the input limit here; OpenAI's window is for both
    entry: Entry = {"window": window}
    if output and output < window:
        entry["output"] = output  # one as large as the window is no limit, and asking for it is refused
    entry["abilities"] = " ".join(read_abilities(provider, model_id, row, vendor, known))
    if "-image" in model_id and provider == "google":
        entry["makes"] = "text image"
    elif row.get("supports_audio_output"):
        entry["makes"] = "text audio"
    if prices := read_prices(row):
        entry["prices"] = prices
    return entry


def read_abilities(provider: str, model_id: str, row: Entry, vendor: Vendor, known: dict[str, Flags]) -> list[str]:
    """Return what a model can do, in the vocabulary's order.

    A flag that its host leaves open is taken from other hosts of the same open model.
    """
    flags = {**(known.get(plain_name(model_id), {}) if vendor.borrows else {}), **own_flags(row)}
    has = {ability for flag, ability in FLAGS.items() if flags.get(flag)}
    if flags.get("native_streaming") is not False:
        has.add("streaming")
    if flags.get("parallel_function_calling") is not False and "llama" not in model_id:
        has.add("parallel_tools")
    if row.get("cache_read_input_token_cost"):
        has.add("caching")
    if flags.get("sampling_params") is False:
        has.add("fixed_sampling")
    if "claude" in model_id and not any(flags.get(f"{host}native_structured_output") for host in ("", "bedrock_")):
        has.discard("structured_output")
    correct_by_documents(has, provider, model_id)
    has = (has | set(vendor.always.split())) - set(vendor.never.split())
    if "tools" not in has:
        has -= {"parallel_tools", "strict_tools"}
    return [ability for ability in ABILITIES if ability in has]


def correct_by_documents(has: set[str], provider: str, model_id: str) -> None:
    """Change what the table has wrong or does not know, by what the vendors write of whole families."""
    if is_openai(provider, model_id) and _THINKS_ALWAYS.match(model_id):
        has.add("fixed_sampling")
    if provider == "openai" and not _OLD_OPENAI.match(model_id):
        has.add("hosted_tools")
    if provider == "openai" and re.match(r"o\d", model_id):
        has.discard("parallel_tools")
    if provider == "moonshot" and model_id.startswith("kimi-k"):
        has.add("fixed_sampling")  # another temperature than its own is an error
    if provider == "google" and model_id.startswith("gemini") and "-image" not in model_id:
        has |= {"images", "documents", "audio", "video"}
    if model_id.startswith("amazon.nova") and "micro" not in model_id:
        has.add("video")
    if model_id.startswith(("amazon.", "meta.")):
        has.discard("structured_output")  # the table counts what a client can feign with a tool
    strict = provider in ("openai", "bedrock-mantle", "mistral", "cerebras") or "claude" in model_id
    if strict and "structured_output" in has:
        has.add("strict_tools")


def read_prices(row: Entry) -> list[float | None]:
    """Return dollars per million tokens; a cache that costs nothing to write is billed as plain input."""
    names = ("input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost")
    prices = [per_million(row.get(name)) for name in (*names, "cache_creation_input_token_cost")]
    if prices[0] is None or prices[1] is None:
        return []
    prices[3] = prices[3] or None
    return trimmed(prices if prices[0] else prices[:2])


def flags_by_model(table: dict[str, Entry]) -> dict[str, Flags]:
    """Return what any host says of an open model, by its plain name; what a host denies is for that host alone."""
    found: dict[str, Flags] = {}
    for key, row in table.items():
        if row.get("mode") == "chat":
            said = found.setdefault(plain_name(key), {})
            said.update((flag, True) for flag, value in own_flags(row).items() if value and flag in BORROWED)
    return found


def own_flags(row: Entry) -> Flags:
    """Return the flags of a row by their short names."""
    return {name.removeprefix("supports_"): bool(value) for name, value in row.items() if name.startswith("supports_")}


def plain_name(model_id: str) -> str:
    """Return an open model's name without its host, maker and number format; other models keep theirs apart."""
    name = re.sub(r"(?<=\d)p(?=\d)", ".", model_id.lower().rpartition("/")[2])
    if re.search(r"claude|gemini|^gpt-\d|^o\d", name):
        return model_id
    return re.sub(r"^[a-z]+\.|-(?:fp8|fp4|instruct|turbo|it|us|fast)\b|-\d{4}$", "", name)


# ---------------------------------------------------------------- regions and hosts


def split_region(model_id: str) -> tuple[str, str]:
    """Return Bedrock's region and the id without it and without its version and date."""
    *_, last = _readings(model_id)
    return last.region or "", last.model_id


def region_factors(model_id: str, row: Entry, rows: dict[str, Entry]) -> dict[str, float]:
    """Return by how much each region's price differs, the commonest under `*`, a bare id's under no name."""
    base = row.get("input_cost_per_token")
    if not base or len(rows) < 2:
        return {}
    costs = {region: other.get("input_cost_per_token") or base for region, other in rows.items() if region}
    factors = {region: round(cost / base, 3) for region, cost in costs.items()}
    common = Counter(factor for region, factor in factors.items() if region not in ("global", "us-gov")).most_common(1)
    usual = common[0][0] if common else 1.0
    exceptions = {region: factor for region, factor in sorted(factors.items()) if factor != usual}
    if not exceptions and usual == 1:
        return {}
    if usual > 1 and model_id.startswith(("anthropic.", "openai.")):
        exceptions[""] = usual  # only the global endpoint has the vendor's own price, as the second table knows
    return {"*": usual, **exceptions}


def share_hosts(models: dict[str, dict[str, Entry]]) -> None:
    """Let models of other vendors on Bedrock refer to the vendor's own entry, keeping only what differs."""
    for host in ("bedrock", "bedrock-mantle"):
        for model_id, entry in models[host].items():
            vendor, _, name = model_id.partition(".")
            original = models.get(vendor, {}).get(name)
            if vendor not in ("anthropic", "openai", "xai") or original is None or "like" in original:
                continue
            lacks = [word for word in original["abilities"].split() if word not in entry["abilities"].split()]
            extra = [word for word in entry["abilities"].split() if word not in original["abilities"].split()]
            if extra:
                continue
            entry["like"] = f"{vendor}:{name}"
            del entry["abilities"]
            if lacks:
                entry["lacks"] = " ".join(lacks)
            keep_differences(entry, original)


def keep_differences(entry: Entry, original: Entry) -> None:
    """Remove from an entry what the one that it refers to says already."""
    for fact in ("window", "output", "prices", "makes"):
        if fact in entry and entry[fact] == original.get(fact):
            del entry[fact]


def drop_snapshots(entries: dict[str, Entry]) -> dict[str, Entry]:
    """Leave out dated ids that resolve to an entry with the same facts; hosted tools are often noted for one only."""

    def facts(entry: Entry) -> Entry:
        words = [word for word in entry.get("abilities", "").split() if word != "hosted_tools"]
        return {**entry, "abilities": words}

    kept: dict[str, Entry] = {}
    for model_id, entry in entries.items():
        bases = [reading.model_id for reading in _readings(model_id)][1:]
        base = next((entries[base] for base in bases if base in entries), None)
        if base is None or facts(base) != facts(entry):
            kept[model_id] = entry
    return kept


# ---------------------------------------------------------------- the second table


class SecondTable:
    """The other table, read from its archive as of a day."""

    def __init__(self, wheel: Path, day: date) -> None:
        sys.path.insert(0, str(wheel))
        from genai_prices.data import providers  # type: ignore[import-not-found]  # read from the archive

        self._providers = {provider.id: provider for provider in providers}
        self._moment = datetime.combine(day, time(3), UTC)  # DeepSeek is dearer by day in Beijing

    def ids(self, provider: str) -> Iterator[str]:
        """Yield the ids of a provider's models that are still offered."""
        yield from (model.id for model in self._providers[provider].models if not model.deprecated)

    def window(self, provider: str, model_id: str) -> int | None:
        """Return the context window, None if the table does not say."""
        model = self._providers[provider].find_model(model_id)
        window: int | None = model.context_window if model else None
        return window

    def prices(self, provider: str, model_id: str) -> list[float | None]:
        """Return the prices of a short prompt, in our order; empty if the table has none."""
        model = self._providers[provider].find_model(model_id)
        if model is None:
            return []
        row = model.get_prices(self._moment)
        figures = [getattr(row, f"{name}_mtok") for name in ("input", "output", "cache_read", "cache_write")]
        prices = [None if figure is None else float(getattr(figure, "base", figure)) for figure in figures]
        return [] if prices[0] is None or prices[1] is None else trimmed(prices)


def compare(models: dict[str, dict[str, Entry]], second: SecondTable) -> tuple[int, list[str]]:
    """Return how many models both tables price, and a line for each figure in which they differ unsettled."""
    compared = 0
    differences: list[str] = []
    for provider, entries in models.items():
        other = VENDORS[provider].second
        for model_id, entry in entries.items():
            theirs = second.prices(other, model_id) if other and "like" not in entry else []
            factor = entry.get("regions", {}).get("", 1)
            ours = [price and price * factor for price in entry.get("prices", ())]
            if not theirs or not ours:
                continue
            compared += 1
            if (provider, model_id) in SETTLED:
                continue
            for name, mine, its in zip(PRICE_NAMES, padded(ours), padded(theirs), strict=True):
                if mine is not None and its is not None and abs(mine - its) > TOLERANCE * its:
                    differences.append(f"{provider}:{model_id} {name}: {mine:g} taken, the other has {its:g}")
            window = second.window(str(other), model_id)
            if window and abs(window - entry["window"]) > 0.08 * window:
                differences.append(f"{provider}:{model_id} window: {entry['window']} taken, the other has {window}")
    return compared, differences


def settle(models: dict[str, dict[str, Entry]]) -> None:
    """Apply SETTLED; a model that it names must be there."""
    for (provider, model_id), facts in SETTLED.items():
        entry = models[provider].get(model_id)
        if entry is None:
            print(f"SETTLED names {provider}:{model_id}, which is not there")
            continue
        words = {*entry["abilities"].split(), *facts.get("adds", "").split()} - {*facts.get("lacks", "").split()}
        entry["abilities"] = " ".join(ability for ability in ABILITIES if ability in words)
        entry.update((fact, value) for fact, value in facts.items() if fact not in ("adds", "lacks"))


def read_openrouter(
    second: SecondTable, models: dict[str, dict[str, Entry]], known: dict[str, Flags]
) -> dict[str, Entry]:
    """Return OpenRouter's popular models: those of the vendors above by reference, open ones by what their hosts say.

    An open model's price there depends on the host that a call is routed to, so it has none here: each answer tells it.
    """
    found: dict[str, Entry] = {}
    vendor_of_all = Vendor((), always="hosted_tools", borrows=True)
    for routed in second.ids("openrouter"):
        if routed.startswith("~") or "/" not in routed or ":" in routed:
            continue
        maker, _, name = routed.partition("/")
        vendor = ROUTED.get(maker, "")
        name = name.replace(".", "-") if vendor == "anthropic" else name
        original = models.get(vendor, {}).get(name)
        window, prices = second.window("openrouter", routed), second.prices("openrouter", routed)
        if original is not None and vendor in ROUTED_AT_LIST_PRICE:
            ours = original.get("prices") or models[vendor][original["like"].partition(":")[2]]["prices"]
            if all(
                abs((mine or 0) - (its or 0)) <= 0.1 * (mine or 0) for mine, its in zip(ours[:2], prices, strict=False)
            ):
                found[routed] = {"like": f"{vendor}:{name}"}
        elif original is not None:
            found[routed] = {"like": f"{vendor}:{name}", "prices": []}
        elif ROUTED_OPEN.fullmatch(routed) and window:
            abilities = read_abilities("openrouter", routed, {}, vendor_of_all, known)
            if "tools" in abilities:
                found[routed] = {"window": window, "abilities": " ".join(abilities)}
    return found


# ---------------------------------------------------------------- small things and the file


def is_openai(provider: str, model_id: str) -> bool:
    """Whether it is one of OpenAI's own models, on any host, and not one that it gave away."""
    return (provider == "openai" or "openai." in model_id) and "gpt-oss" not in model_id


def per_million(cost: Any) -> float | None:
    """Return dollars per million tokens, without the noise of floating point."""
    return None if cost is None else float(f"{float(cost) * 1e6:.6g}")


def trimmed(prices: list[float | None]) -> list[float | None]:
    """Return prices without the unknown ones at the end."""
    while prices and prices[-1] is None:
        prices = prices[:-1]
    return [int(price) if price is not None and price == int(price) else price for price in prices]


def padded(prices: list[float | None]) -> list[float | None]:
    """Return four prices."""
    return [*prices, *[None] * (4 - len(prices))]


def wheel_name(wheel: Path) -> str:
    """Return name and version of a wheel, from its file name."""
    return " ".join(wheel.name.split("-")[:2])


def render(day: date, sources: list[str], models: dict[str, dict[str, Entry]]) -> str:
    """Return the file's text: JSON with one model per line."""
    dump: Callable[[Any], str] = lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))  # noqa: E731
    head = [f'"date":{dump(day.isoformat())}', f'"sources":{dump(sources)}', f'"doors":{dump(DOORS)}']
    vendors = [
        f"{dump(name)}:{{\n"
        + ",\n".join(f"{dump(model_id)}:{dump(entries[model_id])}" for model_id in sorted(entries))
        + "\n}"
        for name, entries in sorted(models.items())
    ]
    return "{\n" + ",\n".join(head) + ',\n"models":{\n' + ",\n".join(vendors) + "\n}\n}\n"


if __name__ == "__main__":
    main()
