"""`dragoman models`: what is known of models, as a table, a card or JSON."""

import argparse
from typing import TYPE_CHECKING, Any

from .._nearest import nearest
from ..errors import DragomanError, ErrorCode, InvalidValue
from .arguments import add_common, natural
from .config import configured
from .output import Output, wrapped, write_table

if TYPE_CHECKING:
    from ..request import ModelInfo

__all__ = ["add_arguments"]

ORDERS = ("name", "window", "price")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its arguments."""
    add_common(parser, list_models)
    parser.add_argument("words", nargs="*", metavar="WORD", help="only models with these words in provider:name")
    parser.add_argument("--provider", help="only those of one provider")
    parser.add_argument("--can", action="append", default=[], metavar="ABILITY", help="only those that can do this")
    parser.add_argument("--window", type=natural, default=0, metavar="TOKENS", help="only those with so large a window")
    parser.add_argument("--sort", choices=ORDERS, default="name", help="by name, largest window, lowest price")
    parser.add_argument("--json", action="store_true", help="as JSON")


def list_models(chosen: argparse.Namespace) -> None:
    """Print the models that fit: a table, or a card if there is only one."""
    from ..catalogue import catalogue_date

    settings = configured(chosen)
    output = Output(color=settings.color)
    found = _found(chosen)
    if chosen.json:
        output.json([_plain(info) for info in found])
        return
    if not found:
        raise DragomanError(
            "no known model fits; that a model is not known does not mean that it cannot be used",
            code=ErrorCode.NOT_FOUND,
        )
    if len(found) == 1:
        _write_card(output, found[0])
    else:
        _write_table(output, found)
    output.line()
    count = "1 model" if len(found) == 1 else f"{len(found)} models"
    output.line(f"{count}. Dollars per million tokens; gathered on {catalogue_date()}.", "dim")


def _found(chosen: argparse.Namespace) -> "list[ModelInfo]":
    from ..catalogue import ABILITIES
    from ..catalogue import list_models as known_models

    unknown = next((ability for ability in chosen.can if ability not in ABILITIES), None)
    if unknown is not None:
        raise InvalidValue(f"there is no ability {unknown!r}: {nearest(unknown, ABILITIES, ', '.join(ABILITIES))}")
    known = known_models()
    providers = sorted({info.provider for info in known})
    if chosen.provider is not None and chosen.provider not in providers:
        hint = nearest(chosen.provider, providers, ", ".join(providers))
        raise InvalidValue(f"the catalogue has no provider {chosen.provider!r}: {hint}")
    words = [word.lower() for word in chosen.words]
    fitting = [
        info
        for info in known
        if chosen.provider in (None, info.provider)
        and all(word in f"{info.provider}:{info.model_id}".lower() for word in words)
        and set(chosen.can) <= info.abilities
        and (info.context_window or 0) >= chosen.window
    ]
    exact = [info for info in fitting if chosen.words == [f"{info.provider}:{info.model_id}"]]
    return sorted(exact or fitting, key=_ORDER_KEYS[chosen.sort])


_ORDER_KEYS: dict[str, Any] = {
    "name": lambda info: (info.provider, info.model_id),
    "window": lambda info: (-(info.context_window or 0), info.provider, info.model_id),
    "price": lambda info: (
        info.prices.input + info.prices.output if info.prices is not None else float("inf"),
        info.provider,
        info.model_id,
    ),
}


def _write_table(output: Output, found: "list[ModelInfo]") -> None:
    rows = []
    for info in found:
        costs = (_dollars(info.prices.input), _dollars(info.prices.output)) if info.prices is not None else ("?", "?")
        abilities = " ".join(sorted(info.abilities - {"streaming"}))
        rows.append((f"{info.provider}:{info.model_id}", _tokens(info.context_window), *costs, abilities))
    if not output.is_narrow:
        write_table(output, ("MODEL", "WINDOW", "IN", "OUT", "CAN DO"), rows, right=frozenset({1, 2, 3}))
        return
    for name, window, cost_in, cost_out, _ in rows:
        output.line(name)
        output.line(f"  {window} tokens, {cost_in} in, {cost_out} out", "dim")


def _write_card(output: Output, info: "ModelInfo") -> None:
    from ..catalogue import ABILITIES

    output.line(f"{info.provider}:{info.model_id}", "bold")
    output.line(f"  window  {_tokens(info.context_window)} tokens, of output {_tokens(info.output_limit)}")
    output.line(f"  reads   {', '.join(info.input_modalities)}")
    output.line(f"  makes   {', '.join(info.output_modalities)}")
    if info.prices is None:
        output.line("  prices  not known")
    else:
        cached = [
            f"{_dollars(price)} {words}"
            for price, words in ((info.prices.cache_read, "from cache"), (info.prices.cache_write, "into cache"))
            if price is not None
        ]
        listed = [f"{_dollars(info.prices.input)} in", f"{_dollars(info.prices.output)} out", *cached]
        output.line(f"  prices  {', '.join(listed)}")
    for ability in sorted(info.abilities):
        for line in wrapped(f"{ability}: {ABILITIES.get(ability, '')}", output.width - 4):
            output.line(f"    {line}")


def _plain(info: "ModelInfo") -> dict[str, Any]:
    import msgspec

    plain: dict[str, Any] = msgspec.to_builtins(info)
    return {**plain, "abilities": sorted(info.abilities)}


def _tokens(count: int | None) -> str:
    return "?" if count is None else f"{count:,}"


def _dollars(price: float) -> str:
    return f"{price:.2f}" if price >= 0.1 or price == 0 else f"{price:.3g}"
