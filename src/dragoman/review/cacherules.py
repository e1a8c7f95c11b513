"""What is known of the providers' prompt caches: the shortest prefix they keep, in which steps, for how long. Data."""

import re

import msgspec

from ..message import ModelInvocationDescriptor

__all__ = ["LONG_LIFE", "CacheRules", "find_cache_rules"]

LONG_LIFE = 3_600.0  # seconds, where a mark asks for an hour


class CacheRules(msgspec.Struct, frozen=True, kw_only=True):
    """A provider's cache: it keeps no fewer than `minimum` tokens, grows in steps, and lives for so many seconds.

    After `seconds` it may be gone, after `most_seconds` it is.
    """

    minimum: int = 1_024
    step: int = 1
    seconds: float = 300.0
    most_seconds: float = 300.0


_OPENAI = CacheRules(step=128, most_seconds=600.0)

# Model's name -> the rules of its maker, wherever it is served; the first that fits. docs/context.md has the sources.
_BY_MODEL: tuple[tuple[re.Pattern[str], CacheRules], ...] = (
    (re.compile(r"claude.*(opus-4-[56]|haiku-4-5)"), CacheRules(minimum=4_096)),
    (re.compile(r"claude.*opus-5"), CacheRules(minimum=512)),
    (re.compile(r"claude.*3-5-haiku"), CacheRules(minimum=2_048)),
    (re.compile(r"claude"), CacheRules()),
    (re.compile(r"gemini-2"), CacheRules(minimum=2_048)),
    (re.compile(r"gemini"), CacheRules(minimum=4_096)),
    (re.compile(r"gpt-5\.([6-9]|\d\d)"), CacheRules(step=128, seconds=1_800.0, most_seconds=1_800.0)),
    (re.compile(r"^(gpt-\d|o\d|chatgpt|codex)"), _OPENAI),
)
_OPENAI_PROVIDERS = frozenset({"openai", "openai-chat", "azure", "azure-responses"})


def find_cache_rules(invocation: ModelInvocationDescriptor) -> CacheRules:
    """Return the rules of the cache that serves a model; cautious ones where nothing is known."""
    for pattern, rules in _BY_MODEL:
        if pattern.search(invocation.model):
            return rules
    return _OPENAI if invocation.provider in _OPENAI_PROVIDERS else CacheRules()
