"""A client's settings → those that a target takes. Each rule is about the target alone; what it changes is named.

Encoders refuse a setting that their API cannot take: a caller of ours chose it. The client of another API could not
know, so here it is changed to the nearest one, or left out. The rules of an API are in its package.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, TypeAlias

from msgspec.structs import replace

from ..request import HostedTool, ModelConfig, ModelInfo, ModelRequest, ReadRequest, Reasoning
from ..target import Dialect
from . import WIRE_APIS
from .claude import BUDGETS

__all__ = ["Change", "SettingRule", "budget_as_effort", "fit_request"]

Change: TypeAlias = tuple[dict[str, Any], str]  # settings that change, and the warning
SettingRule: TypeAlias = Callable[[ModelConfig, Any], Iterator[Change]]


def fit_request(
    read: ReadRequest, dialect: Dialect, model: str, info: ModelInfo | None = None
) -> tuple[ModelRequest, tuple[str, ...]]:
    """Return the request for a model of the dialect, and a warning for each setting that was changed or left out.

    With `info`, settings that this very model cannot take are left out too, and the output limit is kept.

    Hosted tools go along where the target has them, without their options: those are another vendor's. The messages
    are not changed; handoff fits them.
    """
    config = replace(read.request.config, model_id=model)
    warnings: list[str] = []
    api = import_module(f".{WIRE_APIS[dialect.specification].package}.fitting", __package__)
    rules: tuple[SettingRule, ...] = (*api.SETTING_RULES, _leave_ignored)
    for rule in rules:
        for changes, warning in rule(config, dialect):
            config = replace(config, **changes)
            warnings.append(warning)
    for changes, warning in _within_abilities(config, info) if info is not None else ():
        config = replace(config, **changes)
        warnings.append(warning)
    known: frozenset[str] = api.hosted_kinds(dialect)
    hosted = {tool.kind: HostedTool(tool.kind) for tool in read.hosted_tools if tool.kind in known}
    left_out = [tool.kind for tool in read.hosted_tools if tool.kind not in hosted]
    warnings += [f"the hosted tool {kind[:60]!r} is left out: {dialect.provider} has none" for kind in left_out]
    config = replace(config, hosted_tools=tuple(hosted.values()))
    return replace(read.request, config=config), tuple(warnings)


def budget_as_effort(config: ModelConfig, *, takes_budget: bool) -> Iterator[Change]:
    """Say a budget as the weakest effort that has as many tokens, where the target takes no budget."""
    reasoning = config.reasoning
    if reasoning is None or reasoning.budget_tokens is None or takes_budget:
        return
    budget = reasoning.budget_tokens
    effort: Any = next((word for word, tokens in BUDGETS.items() if tokens >= budget), "max")
    changed = Reasoning(effort=effort, summary=reasoning.summary)
    yield {"reasoning": changed}, f"a thinking budget of {budget} is said as the effort {effort!r}"


def _within_abilities(config: ModelConfig, info: ModelInfo) -> Iterator[Change]:
    """Leave out what the model itself cannot do."""
    limit, who = info.output_limit, f"{info.provider}:{info.model_id}"
    if limit is not None and config.max_tokens is not None and config.max_tokens > limit:
        yield {"max_tokens": limit}, f"{who} writes {limit} tokens at most"
    reasoning = config.reasoning
    if reasoning is not None and reasoning.effort != "off" and "reasoning" not in info.abilities:
        yield {"reasoning": None}, f"{who} does not reason"
    if config.output_schema is not None and "structured_output" not in info.abilities:
        yield {"output_schema": None}, f"{who} takes no schema of the answer"
    if "fixed_sampling" in info.abilities and (config.temperature is not None or config.top_p is not None):
        yield {"temperature": None, "top_p": None}, f"{who} takes neither temperature nor top_p"


def _leave_ignored(config: ModelConfig, dialect: Dialect) -> Iterator[Change]:
    """Leave out what the dialect says that it cannot take."""
    empty: dict[str, Any] = {"stop_sequences": ()}
    for name in sorted(dialect.ignored):
        if getattr(config, name, None):
            yield {name: empty.get(name)}, f"{dialect.provider} takes no {name}"
