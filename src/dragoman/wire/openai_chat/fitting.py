"""What vendors of Chat Completions cannot take of a client's settings. Pure."""

from collections.abc import Iterator
from typing import Any

from ...request import ModelConfig, Reasoning
from ..fitting import Change, SettingRule, budget_as_effort
from .dialects import ChatDialect

__all__ = ["SETTING_RULES", "hosted_kinds"]

# Efforts from weak to strong.
_EFFORTS = ("off", "minimal", "low", "medium", "high", "max")


def hosted_kinds(dialect: ChatDialect) -> frozenset[str]:
    """Return our words for the tools that the vendor runs."""
    return frozenset(dialect.hosted_tools)


def _known_budget(config: ModelConfig, dialect: ChatDialect) -> Iterator[Change]:
    return budget_as_effort(config, takes_budget=bool(dialect.budget_field))


def _known_effort(config: ModelConfig, dialect: Any) -> Iterator[Change]:
    """Take the nearest effort that a Chat vendor knows; none where it knows no effort."""
    reasoning, known = config.reasoning, dialect.efforts
    if reasoning is None or reasoning.effort is None or reasoning.effort in known:
        return
    wanted = _EFFORTS.index(reasoning.effort)
    near = sorted((word for word in _EFFORTS if word in known), key=lambda word: abs(_EFFORTS.index(word) - wanted))
    found: Any = near[0] if near else None
    changed = Reasoning(effort=found, summary=reasoning.summary)
    yield (
        {"reasoning": changed},
        f"the effort {reasoning.effort!r} is not known to {dialect.provider}: {found!r} is sent",
    )


def _no_schema(config: ModelConfig, dialect: Any) -> Iterator[Change]:
    if config.output_schema is not None and not dialect.output_schema:
        yield {"output_schema": None}, f"{dialect.provider} takes no schema of the answer"


def _free_choice_in_text(config: ModelConfig, dialect: Any) -> Iterator[Change]:
    if dialect.text_calls is not None and config.tool_choice not in (None, "auto", "none"):
        yield {"tool_choice": None}, "no tool can be forced on a model that writes its calls as text"


SETTING_RULES: tuple[SettingRule, ...] = (_known_budget, _known_effort, _no_schema, _free_choice_in_text)
