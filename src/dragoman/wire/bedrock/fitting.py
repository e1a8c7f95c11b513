"""What the model families on Converse cannot take of a client's settings. Pure."""

from collections.abc import Iterator
from typing import Any

from ...request import ModelConfig
from ...toolspec import OneTool
from ..claude import choice_before_thinking, room_for_thinking
from ..fitting import Change, SettingRule, budget_as_effort
from .dialects import BedrockDialect

__all__ = ["SETTING_RULES", "hosted_kinds"]


def hosted_kinds(dialect: BedrockDialect) -> frozenset[str]:
    """Return our words for the tools that the vendor runs."""
    return frozenset(dialect.hosted_tools)


def _known_reasoning(config: ModelConfig, dialect: BedrockDialect) -> Iterator[Change]:
    if dialect.reasoning is not None:
        yield from budget_as_effort(config, takes_budget=dialect.reasoning == "thinking")
    elif config.reasoning is not None:
        yield {"reasoning": None}, f"{config.model_id} takes no setting of its reasoning"


def _claude_alone(config: ModelConfig, dialect: BedrockDialect) -> Iterator[Change]:
    if dialect.reasoning == "thinking":
        yield from room_for_thinking(config, dialect)


def _claude_choice(config: ModelConfig, dialect: BedrockDialect) -> Iterator[Change]:
    if dialect.reasoning == "thinking":
        yield from choice_before_thinking(config, dialect)


def _known_choice(config: ModelConfig, dialect: BedrockDialect) -> Iterator[Change]:
    choice: Any = config.tool_choice
    form = "tool" if isinstance(choice, OneTool) else "any"
    if choice not in (None, "auto", "none") and form not in dialect.forced_choices:
        yield {"tool_choice": None}, f"no tool can be forced on {config.model_id}"


def _no_schema(config: ModelConfig, dialect: BedrockDialect) -> Iterator[Change]:
    if config.output_schema is not None and not dialect.structured_output:
        yield {"output_schema": None}, f"{config.model_id} takes no schema of the answer"


SETTING_RULES: tuple[SettingRule, ...] = (_known_reasoning, _claude_alone, _claude_choice, _known_choice, _no_schema)
