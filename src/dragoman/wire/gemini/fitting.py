"""What Gemini cannot take of a client's settings. Pure."""

from collections.abc import Iterator
from typing import Any

from ...request import ModelConfig, Reasoning
from ..fitting import Change, SettingRule
from .dialects import GeminiDialect
from .requests import HOSTED_TOOLS, always_thinks

__all__ = ["SETTING_RULES", "hosted_kinds"]


def hosted_kinds(_: GeminiDialect) -> frozenset[str]:
    """Return our words for the tools that the vendor runs."""
    return frozenset(HOSTED_TOOLS)


def _thinking_models(config: ModelConfig, _: Any) -> Iterator[Change]:
    if config.reasoning is not None and config.reasoning.effort == "off" and always_thinks(config.model_id):
        yield {"reasoning": Reasoning(effort="minimal")}, f"{config.model_id} always thinks: the least effort is sent"


def _any_number_of_calls(config: ModelConfig, _: Any) -> Iterator[Change]:
    if config.parallel_tool_calls is False:
        yield {"parallel_tool_calls": None}, "this API cannot be told to make one call at a time"


SETTING_RULES: tuple[SettingRule, ...] = (_thinking_models, _any_number_of_calls)
