"""How a request sets thinking for Claude models on any host, and what thinking forbids. Pure."""

import re
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from ..errors import ErrorCode, ModelError
from ..request import ModelConfig
from ..toolspec import OneTool, ToolChoice

__all__ = [
    "choice_before_thinking",
    "claude_max_tokens",
    "claude_thinking",
    "require_free_choice",
    "room_for_thinking",
    "thinks_by_budget",
]

DEFAULT_MAX_TOKENS = 4_096  # the API demands a limit; the catalogue's is put into the config where one is known
LEAST_BUDGET = 1_024

EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "max": "max"}
# Models from before adaptive thinking take a budget and no effort.
BUDGETS = {"minimal": LEAST_BUDGET, "low": 2_048, "medium": 8_192, "high": 16_384, "max": 32_768}
_BUDGET_ONLY = re.compile(r"claude-(?:3-|(?:opus|sonnet|haiku)-4(?:-[015])?(?:$|[@-]20\d{6}|-latest|-v\d))")


def claude_thinking(config: ModelConfig) -> tuple[dict[str, Any] | None, str | None]:
    """Return the wire's `thinking` object and its effort, each None where nothing is to be sent."""
    reasoning = config.reasoning
    if reasoning is None:
        return None, None
    display = {"display": "summarized"} if reasoning.summary else {}
    if reasoning.budget_tokens is not None:
        return _enabled(max(reasoning.budget_tokens, LEAST_BUDGET), config, display), None
    if reasoning.effort is None:
        return ({"type": "adaptive", **display} if display else None), None
    if reasoning.effort == "off":
        return {"type": "disabled"}, None
    if not _BUDGET_ONLY.search(config.model_id):
        return {"type": "adaptive", **display}, EFFORTS[reasoning.effort]
    budget = BUDGETS[reasoning.effort]
    if config.max_tokens is not None:
        budget = min(budget, config.max_tokens // 2)  # an effort is a wish: the answer keeps its room
    return (_enabled(budget, config, display) if budget >= LEAST_BUDGET else None), None


def thinks_by_budget(thinking: dict[str, Any] | None) -> bool:
    """Whether thinking is on in the older way, under which a tool loop must have begun with a thinking block."""
    return thinking is not None and thinking["type"] == "enabled"


def claude_max_tokens(config: ModelConfig, thinking: dict[str, Any] | None) -> int:
    """Return the output limit, which counts thinking too."""
    budget: int = thinking["budget_tokens"] if thinking is not None and thinks_by_budget(thinking) else 0
    return config.max_tokens or DEFAULT_MAX_TOKENS + budget


def require_free_choice(choice: ToolChoice, thinking: dict[str, Any] | None) -> None:
    """Raise ModelError where a tool is forced on a model that thinks by budget: the API refuses the pair."""
    if thinks_by_budget(thinking) and choice not in ("auto", "none"):
        raise ModelError(
            f"tool_choice {choice!r} cannot be combined with a thinking budget: allowed are 'auto' and 'none'",
            code=ErrorCode.UNSUPPORTED,
        )


def room_for_thinking(config: ModelConfig, _: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """Keep Claude's thinking budget below the output limit; leave thinking out where there is no room."""
    reasoning = config.reasoning
    budget = reasoning.budget_tokens if reasoning is not None else None
    if reasoning is None or budget is None or config.max_tokens is None:
        return
    if max(budget, LEAST_BUDGET) < config.max_tokens:
        return
    half = config.max_tokens // 2
    smaller = replace(reasoning, budget_tokens=half) if half >= LEAST_BUDGET else None
    yield {"reasoning": smaller}, f"a thinking budget of {budget} leaves no room in {config.max_tokens} tokens"


def choice_before_thinking(config: ModelConfig, _: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """A forced tool excludes thinking by budget, and the client's program waits for the tool."""
    is_forced = isinstance(config.tool_choice, OneTool) or config.tool_choice == "required"
    if is_forced and thinks_by_budget(claude_thinking(config)[0]):
        yield {"reasoning": None}, "thinking is left out: it cannot be combined with a forced tool"


def _enabled(budget: int, config: ModelConfig, display: dict[str, str]) -> dict[str, Any]:
    if config.max_tokens is not None and config.max_tokens <= budget:
        raise ModelError(
            f"max_tokens must be above the thinking budget of {budget}, got {config.max_tokens}",
            code=ErrorCode.INVALID_REQUEST,
        )
    return {"type": "enabled", "budget_tokens": budget, **display}
