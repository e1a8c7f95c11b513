"""Tool calls of a run: what becomes of each, who approves it, and the running, every step of it recorded first."""

import asyncio
import copy
from collections import Counter
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from ..context import RECALL_TOOL, recall
from ..errors import ErrorCode
from ..history import (
    ApprovalAnsweredEntry,
    ApprovalAskedEntry,
    HistoryEntry,
    HistoryToolCallResult,
    MemoryNotebookWidget,
    OpenCall,
    RunStartedEntry,
    ToolFinishedEntry,
    ToolResultsEntry,
    ToolStartedEntry,
)
from ..message import FileRef, ToolCall
from ..request import ToolsConfig
from ..store import Session
from ..tools import ReadyCall, ToolContext, ToolDefinition, ToolExecutor, ToolRegistry
from ..tools.batches import ClassLocks
from ..tools.executor import RETRY_TYPE
from ..toolspec import ToolSpec
from .actions import Approve, Done, RunTools, Step, Verdict
from .approval import ApprovalPolicy, ApprovalRequest, decide
from .asking import Asker, CallAsking
from .events import ApprovalAskedEvent, ToolResultEvent, ToolStartedEvent
from .loop import interrupted_result
from .media import MediaReader
from .scope import Scope

__all__ = ["ToolRunner", "tools_of"]

CRASHED = "the process that ran it was lost"


class ToolRunner:
    """Judges, approves and runs the calls of one run. `registry` has every tool, those of the agent itself too.

    `context` is what tools get, before a call is named in it.
    """

    def __init__(
        self,
        scope: Scope,
        registry: ToolRegistry,
        config: ToolsConfig,
        *,
        policy: ApprovalPolicy | None,
        context: ToolContext[Any],
        asker: Asker,
        media: MediaReader,
        locks: ClassLocks,
    ) -> None:
        self._scope = scope
        self._asker = asker
        self._registry = registry
        self._config = config
        self._policy = policy
        self._given = context
        self._media = media
        self._retries = Retries(scope.session)
        self._prepared: dict[str, ReadyCall] = {}  # by the ids of the calls
        self._executor = ToolExecutor(
            registry,
            parallel_limit=config.parallel_limit,
            timeout_ms=config.timeout_ms,
            before_start=self._require_lease,
            locks=locks,
        )

    def judge(self, call: OpenCall) -> Verdict:
        """Return what becomes of a call that has no result. What was started before is not started again, unless
        both the record and the tool say that this does no harm.
        """
        answered = call.answered
        if answered is not None and not answered.approved:
            return _denied(call, answered.reason)
        if call.awaits_answer and call.started is None:
            return Step.WAIT  # whether the agent has the tool is checked after the decision
        ready = self._prepare(call)
        if isinstance(ready, HistoryToolCallResult):
            return interrupted_result(call, CRASHED) if call.started is not None else ready
        if call.started is not None and not (call.started.idempotent and ready.definition.idempotent):
            return interrupted_result(call, CRASHED)
        if answered is None and call.started is None and self._needs_approval(ready):
            return Step.ASK
        bound = self._executor.bind(ready)
        if isinstance(bound, HistoryToolCallResult):
            return interrupted_result(call, CRASHED) if call.started is not None else bound
        self._prepared[call.tool_call_id] = bound
        return Step.RUN

    async def approve(self, action: Approve) -> Done:
        """Have the policy decide, and ask a person where it does not; either way it is recorded."""
        entries: list[HistoryEntry] = []
        asked: list[OpenCall] = []
        for call in action.calls:
            ready = self._ready(call)
            request = ApprovalRequest(
                session_id=self._scope.session.session_id,
                run_id=self._scope.run_id,
                call=call.request,
                tool=ready.definition,
                arguments=ready.arguments,
            )
            decision = await decide(self._policy, request)
            name = call.tool_call_id
            if decision is None:
                entries.append(ApprovalAskedEntry(name, call.request.tool_name))
                asked.append(call)
            else:
                answer = (decision.approved, decision.reason, decision.arguments)
                entries.append(ApprovalAnsweredEntry(name, *answer, by="policy"))
        await self._scope.append(*entries)
        for call in asked:
            self._scope.tell(ApprovalAskedEvent, call.request)
        return Done(self._scope.state)

    async def run(self, action: RunTools) -> Done:
        """Run the calls: a start is recorded before its tool begins, a result the moment it is there."""
        await self._executor.run_all(
            [self._ready(call) for call in action.calls],
            self._context,
            on_started=self._started,
            on_finished=self._finished,
        )
        return Done(self._scope.state)

    async def _started(self, ready: ReadyCall) -> None:
        call = ready.call
        notes = {"parse_warning": "; ".join(ready.warnings)} if ready.warnings else {}
        entry = ToolStartedEntry(call.tool_call_id, call.tool_name, ready.definition.idempotent, metadata=notes)
        await self._scope.hooks.before_tool(call, self._context(ready))
        hold = self._scope.session.held
        if hold is not None:
            await hold.renew_if_old()
        recorded: tuple[HistoryEntry, ...] = ()
        while not recorded:  # something else may be recorded first: an abort, for example
            self._scope.take_news()
            if self._scope.hooks.is_stopped:  # the run ends: the call is not started
                raise asyncio.CancelledError
            # The append checks the lease, and from here to the start of the tool no one is waited for.
            recorded = await self._scope.append(entry, expected_serial=self._scope.state.next_serial)
        self._scope.tell(ToolStartedEvent, call)

    def _require_lease(self) -> None:
        hold = self._scope.session.held
        if hold is not None:
            hold.require_valid()

    async def _finished(self, ready: ReadyCall, result: HistoryToolCallResult) -> None:
        open_call = self._scope.state.open_call(ready.call.tool_call_id)
        if open_call is not None and open_call.result is not None:  # the tool has recorded it with what it changed
            result = open_call.result
            self._scope.tell(ToolResultEvent, result)
        elif open_call is not None:
            if any(isinstance(part, FileRef) and part.path is not None for part in result.attachments):
                result = await asyncio.to_thread(self._media.admit_result, result, ready.call)
            await self._scope.append(ToolFinishedEntry(result))
        await self._scope.hooks.after_tool(ready.call, self._context(ready), result)

    def _needs_approval(self, ready: ReadyCall) -> bool:
        if self._config.approval != "as_declared":
            return self._config.approval == "always"
        return ready.definition.needs_approval(ready.arguments, self._context(ready))

    def _prepare(self, call: OpenCall) -> ReadyCall | HistoryToolCallResult:
        """The call with checked arguments. It is checked again only where the approval has changed them."""
        known = self._prepared.get(call.tool_call_id)
        is_changed = call.answered is not None and call.answered.arguments is not None
        if known is not None and (known.start is not None or not is_changed):
            return known
        ready = self._executor.prepare(call.request, None if call.answered is None else call.answered.arguments)
        if isinstance(ready, ReadyCall):
            self._prepared[call.tool_call_id] = ready
        return ready

    def _ready(self, call: OpenCall) -> ReadyCall:
        return self._prepared[call.tool_call_id]  # as `judge` has found

    def context(self, call: ToolCall | None = None) -> ToolContext[Any]:
        """Return what the tool of this call gets; without a call, what a function gets that is no tool."""
        given = replace(self._given, options=copy.deepcopy(self._given.options))
        if call is None:
            return given
        left = max(0, self._config.retry_limit - self._retries.count(call.tool_name))
        named = {"tool_call_id": call.tool_call_id, "tool_name": call.tool_name, "retries_left": left}
        return replace(given, **named, asking=CallAsking(self._asker, call))

    def _context(self, ready: ReadyCall) -> ToolContext[Any]:
        return self.context(ready.call)


class Retries:
    """Counts for each tool how many answers in a row it has met with RetryTool in one run. It follows the record."""

    def __init__(self, session: Session) -> None:
        entries = session.entries
        self._session = session
        self._counts: Counter[str] = Counter()
        self._read = len(entries)
        while session.run_id and self._read and not isinstance(entries[self._read - 1], RunStartedEntry):
            self._read -= 1  # the run goes on

    def count(self, tool_name: str) -> int:
        """Return the count of a tool by now."""
        entries = self._session.entries
        for entry in entries[self._read :]:
            if isinstance(entry, ToolResultsEntry):
                retried = {each.tool_name for each in entry.results if each.error_type == RETRY_TYPE}
                for name in {each.tool_name for each in entry.results}:
                    self._counts[name] = self._counts[name] + 1 if name in retried else 0
        self._read = len(entries)
        return self._counts[tool_name]


def tools_of(
    session: Session, tools: ToolRegistry, config: ToolsConfig, *, has_recall: bool
) -> tuple[tuple[ToolSpec, ...], ToolRegistry]:
    """Return the tools that an agent offers, its own and those of widgets, and all that it can run.

    Contexts offer `recall`; `has_recall` says whether it is to be had.
    """
    off = set(config.disabled)
    if not config.notebook:
        off.update(spec.name for spec in MemoryNotebookWidget.tools)
    specs = [spec for spec in session.state.enumerate_widget_tools() if spec.name not in off]
    offered = tools.with_tools(*(_widget_tool(session, spec) for spec in specs))
    if not has_recall:
        return offered.specs, offered
    return offered.specs, offered.with_tools(_recall_tool(session, result_limit_bytes=config.result_limit_bytes))


def _recall_tool(session: Session, *, result_limit_bytes: int) -> ToolDefinition:
    """Return the tool that brings a folded entry of the session back."""

    async def execute(arguments: Mapping[str, Any], _context: ToolContext[Any]) -> str:
        return recall(session.entries, arguments, result_limit_bytes=result_limit_bytes)

    return _tool(RECALL_TOOL, execute, idempotent=True)


def _widget_tool(session: Session, spec: ToolSpec) -> ToolDefinition:
    """Return a widget's tool. It records its change and its result together, so that neither happens twice."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext[Any]) -> str:
        planned = session.state.plan_widget_tool(spec.name, arguments)
        call = session.state.derived.open_call(context.tool_call_id)
        assert call is not None
        result = HistoryToolCallResult.of_text(
            call.request, planned.text, error_code=planned.error_code, error_type=planned.error_type
        )
        await session.append(*planned.entries, ToolFinishedEntry(result))
        return planned.text

    return _tool(spec, execute, concurrency="widgets")


def _tool(spec: ToolSpec, execute: Any, **more: Any) -> ToolDefinition:
    return ToolDefinition(
        name=spec.name, description=spec.description, parameter_schema=spec.parameter_schema, execute=execute, **more
    )


def _denied(call: OpenCall, reason: str) -> HistoryToolCallResult:
    said = f"It was not run: the user refused it. {reason}".strip()
    return HistoryToolCallResult.of_text(call.request, said, error_code=ErrorCode.TOOL_DENIED)
