"""`--fold`: the projection keeps a client's context in a budget, from the record of its conversation."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ...context import ContextBuildInput, ContextManager
from ...request import ContextConfig

if TYPE_CHECKING:
    from ...models import Model
    from ...request import ReadRequest
    from .recorder import Turn

__all__ = ["fold_context"]


async def fold_context(turn: "Turn", read: "ReadRequest", model: "Model", budget: int) -> "ReadRequest":
    """Return the request with what the projection chose of the session; as it is where there is no record of it."""
    session = turn.session
    if session is None:
        return read
    rules = model.rules
    built = ContextManager(ContextConfig(budget_tokens=budget, recall=False)).build_context(
        ContextBuildInput(
            entries=session.entries,
            now=datetime.now(UTC),
            tools=read.request.tools,
            model_info=model.model_info(),
            invocation=model.invocation,
            rules=rules,
            screen_in_result=not rules.user_after_tool,
        )
    )
    await turn.append(*built.entries)
    request = replace(read.request, messages=built.messages, system=built.system, cache_anchors=built.cache_anchors)
    return replace(read, request=request)
