"""What the Messages API cannot take of a client's settings. Pure."""

from ..claude import choice_before_thinking, room_for_thinking
from ..fitting import SettingRule
from .dialects import AnthropicDialect
from .requests import HOSTED_TOOLS

__all__ = ["SETTING_RULES", "hosted_kinds"]


def hosted_kinds(_: AnthropicDialect) -> frozenset[str]:
    """Return our words for the tools that the vendor runs."""
    return frozenset(HOSTED_TOOLS)


SETTING_RULES: tuple[SettingRule, ...] = (room_for_thinking, choice_before_thinking)
