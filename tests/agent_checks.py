"""What must hold of every history that an agent leaves, whatever happened to it; said apart from the rules it obeys."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from dragoman import Message, ModelError, ToolSpec
from dragoman.context import ContextBuildInput, ContextManager
from dragoman.errors import IllegalAppend
from dragoman.history import (
    AgentState,
    HistoryEntry,
    HistoryToolCallResult,
    ModelInputEntry,
    ModelOutputEntry,
    ResetEntry,
    RunFinishedEntry,
    ToolFinishedEntry,
    ToolResultsEntry,
)
from dragoman.testing.validators import validate_request
from dragoman.wire import find_dialect
from tests.conversations import TARGETS, History, Target, render

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def find_problems(entries: Sequence[HistoryEntry]) -> list[str]:
    """Return what is wrong with a history: entries against the rules, calls without their one result."""
    try:
        AgentState.from_entries(entries)
    except IllegalAppend as error:
        return [str(error), *_unanswered(entries)]
    return list(_unanswered(entries))


def _unanswered(entries: Sequence[HistoryEntry]) -> Iterator[str]:
    """Yield where a call of a turn that is over has no result, two, or another than was recorded when it came."""
    known: set[str] = set()
    waiting: list[str] = []
    finished: dict[str, HistoryToolCallResult] = {}
    for entry in entries:
        if isinstance(entry, ModelInputEntry | ModelOutputEntry | RunFinishedEntry) and waiting:
            yield f"#{entry.serial} {entry.kind} comes while {waiting} have no result"
        if isinstance(entry, ModelOutputEntry):
            waiting = [call.tool_call_id for call in entry.message.tool_calls]
            if known & set(waiting) or len(set(waiting)) < len(waiting):
                yield f"#{entry.serial} repeats an id of {waiting}"
            known.update(waiting)
        elif isinstance(entry, ToolFinishedEntry):
            name = entry.result.tool_call_id
            if name in finished or name not in waiting:
                yield f"#{entry.serial} is a result of {name}, which has one or was never called"
            finished[name] = entry.result
        elif isinstance(entry, ToolResultsEntry):
            answered = [result.tool_call_id for result in entry.results]
            if answered != waiting:
                yield f"#{entry.serial} answers {answered}, called were {waiting}"
            for result in entry.results:
                kept = finished.get(result.tool_call_id)
                if kept is not None and kept.without_live_screen() != result.without_live_screen():
                    yield f"#{entry.serial} gives {result.tool_call_id} another result than it had"
            waiting = []
        elif isinstance(entry, ResetEntry):
            waiting = []


def find_refusals(
    entries: Sequence[HistoryEntry], tools: Sequence[ToolSpec] = (), *, targets: Sequence[str] = tuple(TARGETS)
) -> list[str]:
    """Return why any provider would refuse to carry this conversation on after one more word of the user."""
    found: list[str] = []
    for name in targets:
        try:
            found.extend(f"{name}: {problem}" for problem in _refusals(TARGETS[name], entries, tuple(tools)))
        except ModelError as error:
            found.append(f"{name}: {error!r}")
    return found


def _refusals(target: Target, entries: Sequence[HistoryEntry], tools: tuple[ToolSpec, ...]) -> list[str]:
    rules = find_dialect(target.provider, target.model).rules
    built = ContextManager().build_context(
        ContextBuildInput(
            entries=entries,
            now=NOW,
            tools=tools,
            invocation=target.invocation,
            rules=rules,
            screen_in_result=not rules.user_after_tool,
        )
    )
    messages = (*built.messages, Message.user("Go on."))
    body, path = render(target, History("", built.system, messages, built.tool_specs), messages, "unmarked")
    return validate_request(target.provider, body, path=path)
