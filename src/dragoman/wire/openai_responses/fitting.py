"""What hosts of the Responses API cannot take of a client's settings. Pure."""

from collections.abc import Iterator

from ...request import ModelConfig
from ..fitting import Change, SettingRule, budget_as_effort
from .dialects import ResponsesDialect

__all__ = ["SETTING_RULES", "hosted_kinds"]

_HOSTED = frozenset({"web_search", "code_execution"})


def hosted_kinds(dialect: ResponsesDialect) -> frozenset[str]:
    """Return our words for the tools that the vendor runs."""
    return _HOSTED if dialect.hosted_tools else frozenset()


def _known_budget(config: ModelConfig, dialect: ResponsesDialect) -> Iterator[Change]:
    return budget_as_effort(config, takes_budget=dialect.reasoning_budget)


SETTING_RULES: tuple[SettingRule, ...] = (_known_budget,)
