"""Builds src/dragoman/catalogue/models.json from two published tables of facts, and prints where they disagree.

`python scripts/build_catalogue.py LITELLM_WHEEL GENAI_PRICES_WHEEL --date YYYY-MM-DD` reads both as archives; nothing
is installed. Only figures and flags are taken. LiteLLM's table has limits and abilities; both have prices. Where they
differ, catalogue_facts.py says which is right; what it does not name is LiteLLM's, and printed for a person to look at.
"""

import argparse
import json
import re
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

from catalogue_facts import (
    BORROWED,
    CONFIRMED,
    FLAGS,
    OLD_OPENAI,
    RESELLERS,
    ROUTED,
    ROUTED_AT_LIST_PRICE,
    ROUTED_OPEN,
    SETTLED,
    SIBLINGS,
    THINKS_ALWAYS,
    VENDORS,
    Entry,
    Vendor,
)

from dragoman.catalogue import ABILITIES, _readings

TARGET = Path(__file__).parents[1] / "src" / "dragoman" / "catalogue" / "models.json"
TABLE = "litellm/model_prices_and_context_window_backup.json"
RETIRED_FOR = timedelta(days=180)  # recorded conversations still name them, and other hosts still serve them

PRICE_NAMES = ("input", "output", "cache read", "cache write")
TOLERANCE = 0.011  # the tables round differently

Flags = dict[str, bool]


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
    sources.append("choices by hand where these two disagree, each with its reason in the script that builds this file")
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
    if is_openai(provider, model_id) and THINKS_ALWAYS.match(model_id):
        has.add("fixed_sampling")
    if provider == "openai" and not OLD_OPENAI.match(model_id):
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
            if (provider, model_id) in SETTLED or CONFIRMED.fullmatch(f"{provider}:{model_id}"):
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
            # Its hosts take a schema, even where the vendor itself does not.
            words = abilities_of(models, original) | {"structured_output", "hosted_tools"}
            abilities = [ability for ability in ABILITIES if ability in words]
            found[routed] = {"like": f"{vendor}:{name}", "abilities": " ".join(abilities), "prices": []}
        elif ROUTED_OPEN.fullmatch(routed) and window:
            abilities = read_abilities("openrouter", routed, {}, vendor_of_all, known)
            if "tools" in abilities:
                found[routed] = {"window": window, "abilities": " ".join(abilities)}
    return found


def abilities_of(models: dict[str, dict[str, Entry]], entry: Entry) -> set[str]:
    """Return the abilities of an entry, or of the one that it refers to."""
    provider, _, model_id = entry.get("like", "").partition(":")
    whole = models[provider][model_id] if provider else entry
    return set(whole["abilities"].split())


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
    head = {"date": day.isoformat(), "sources": sources, "resellers": RESELLERS}
    vendors = [
        f"{dumped(name)}:{{\n"
        + ",\n".join(f"{dumped(model_id)}:{dumped(entry)}" for model_id, entry in sorted(entries.items()))
        + "\n}"
        for name, entries in sorted(models.items())
    ]
    opening = ",\n".join(f"{dumped(name)}:{dumped(value)}" for name, value in head.items())
    return "{\n" + opening + ',\n"models":{\n' + ",\n".join(vendors) + "\n}\n}\n"


def dumped(value: Any) -> str:
    """Return a value as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


if __name__ == "__main__":
    main()
