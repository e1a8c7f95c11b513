"""Where a conversation stands, in one line: model, tokens, cache hits, cost, and how full the context is."""

import shutil
from collections.abc import Mapping

from ...errors import DragomanError
from ...history import LevelOfDetail
from ...usage import TokenUsage
from ..output import display_width, fitted, one_line
from .talk import Talk

__all__ = ["count_words", "level_words", "short_model", "status_words"]


def status_words(talk: Talk, width: int | None = None) -> str:
    """Return as much of it as fits a width, by default that of the terminal: first what matters most."""
    width = width or shutil.get_terminal_size((80, 24)).columns
    usage = talk.session.state.derived.token_usage if talk.session is not None else TokenUsage()
    whole, short = _context_words(talk)
    name = one_line(talk.model_name)
    versions = (
        [name, *_usage_words(usage), whole],
        [name, *_usage_words(usage), short],
        [short_model(name), *_usage_words(usage), short],
        [short_model(name), _tokens(usage), _cost(usage), short],
        [short_model(name), _tokens(usage), short],
        [short_model(name), short],
    )
    for version in versions:
        line = " · ".join(word for word in version if word)
        if display_width(line) <= width - 2:
            return line
    return fitted(short_model(name), max(width - 2, 1))


def count_words(count: int) -> str:
    """Return a number in a few characters: 950, 12.3k, 1.2M."""
    if count < 1_000:
        return str(count)
    if count < 999_500:
        return f"{count / 1_000:.1f}k" if count < 99_950 else f"{count / 1_000:.0f}k"
    return f"{count / 1_000_000:.1f}M"


def level_words(levels: Mapping[LevelOfDetail, int]) -> str:
    """Return how many entries are shown at which level."""
    shown = [f"{count} {level}" for level, count in levels.items() if count or level is LevelOfDetail.LIVE]
    return ", ".join(shown)


def short_model(name: str) -> str:
    """Return a model's name without its provider and its path."""
    last = name.partition(":")[2].rpartition("/")[2] or name
    return last if len(last) <= 24 else f"{last[:23]}…"


def _usage_words(usage: TokenUsage) -> list[str]:
    if usage.input_tokens is None and usage.output_tokens is None:
        return []
    words = [f"{count_words(usage.input_tokens or 0)} in", f"{count_words(usage.output_tokens or 0)} out"]
    if usage.cache_read_tokens and usage.input_tokens:
        words[0] += f" ({100 * usage.cache_read_tokens // usage.input_tokens}% cached)"
    return [*words, _cost(usage)]


def _tokens(usage: TokenUsage) -> str:
    total = (usage.input_tokens or 0) + (usage.output_tokens or 0)
    return f"{count_words(total)} tok" if total else ""


def _cost(usage: TokenUsage) -> str:
    if not usage.cost:
        return ""
    return f"${usage.cost:.4f}" if usage.cost < 0.1 else f"${usage.cost:.2f}"


def _context_words(talk: Talk) -> tuple[str, str]:
    """How full the context is, at length and in short."""
    try:
        built = talk.context()
    except DragomanError:  # the next reply says what is wrong
        return "", ""
    if built is None:
        return "", ""
    stats = built.stats
    share = f"{100 * stats.tokens // max(stats.budget, 1)}%"
    size = f"{count_words(stats.tokens)}/{count_words(stats.budget)}"
    return f"context {size} ({level_words(stats.levels)})", f"ctx {share}"
