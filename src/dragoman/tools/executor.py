"""Checks calls, binds their arguments and runs them up to a limit at once; each has exactly one result."""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from .._frozen import frozen
from .._jsontext import require_json_object
from .._nearest import find_nearest
from ..errors import ErrorCode, InvalidValue, RetryTool, ToolError, report_raised, type_name
from ..history.toolresults import STATUS_CODES, HistoryToolCallResult, ToolExecutionStatus
from ..history.widgets import describe_failure
from ..message import Message, ToolCall
from .asking import Asking, Question, QuestionAnswer, SamplingRequest
from .batches import Batch, ClassLocks, MakeContext, OnFinished, OnStarted, ReadyCall, Release
from .coercion import coerce_arguments
from .definition import ToolDefinition
from .jsonvalues import NotJson
from .mismatch import quote
from .registry import ToolRegistry
from .results import ResultContent
from .running import Abandoned, TimeLimit, ToolEnd, ToolRun
from .toolcontext import ToolContext

__all__ = ["ReadyCall", "ToolExecutor"]

_MAY_RETRY = "Call {} again."
_MAY_NOT_RETRY = "{} has asked for another try too often. Do not call it again: go on without it."
_MOST_NAMED = 30  # tools that the result of an unknown tool lists
RETRY_TYPE = type_name(RetryTool(""))  # of the results that ask for another try
_TOOL_CODES = frozenset(code for codes in STATUS_CODES.values() for code in codes if code is not None)


class ToolExecutor:
    """Runs the tools of a registry.

    `timeout_ms` counts for tools that have none of their own. A cancelled tool has `grace_ms` to end, then it is left
    to itself. Results are kept whole, however long they are. `before_start` is called right before a tool begins; if it
    raises, the tool does not begin, and `run` raises it.
    """

    def __init__(
        self,
        registry: ToolRegistry,
        *,
        parallel_limit: int = 8,
        timeout_ms: int | None = None,
        grace_ms: int = 2_000,
        before_start: Callable[[], None] | None = None,
        locks: ClassLocks | None = None,
    ) -> None:
        if not isinstance(registry, ToolRegistry):
            raise InvalidValue.of("registry", registry, "a ToolRegistry")
        for name, value in (
            ("parallel_limit", parallel_limit),
            ("timeout_ms", timeout_ms),
            ("grace_ms", grace_ms),
        ):
            if (value is not None or name != "timeout_ms") and (type(value) is not int or value < 1):
                raise InvalidValue.of(name, value, "a whole number from 1 up")
        self._registry = registry
        self._parallel_limit = parallel_limit
        self._timeout_ms = timeout_ms
        self._grace = grace_ms / 1_000
        self._before_start = before_start
        self._locks = locks or ClassLocks()
        self._abandoned: Abandoned = set()

    @property
    def registry(self) -> ToolRegistry:
        """The tools."""
        return self._registry

    def prepare(self, call: ToolCall, arguments: dict[str, Any] | None = None) -> ReadyCall | HistoryToolCallResult:
        """Return the call ready to be bound, or the result that says why it cannot be. Calls no code of the user.

        `arguments` replace those of the call: a person or a policy changed them. They must fit the schema as they are;
        only what a model wrote is converted.
        """
        definition = self._registry.find(call.tool_name)
        if definition is None:
            return HistoryToolCallResult.of_text(call, self._unknown(call.tool_name), error_code=ErrorCode.UNKNOWN_TOOL)
        given = call.arguments if arguments is None else arguments
        if given is None:
            reason = call.parse_error or "there are none"
            return _refused(call, f"The arguments of {call.tool_name} could not be read: {reason}.")
        try:
            require_json_object(given, "arguments")
            warnings: Sequence[str] = ()
            if arguments is None:
                given, warnings = coerce_arguments(given, definition.parameter_schema)
            problems = definition.checker.problems(given)
        except InvalidValue as error:
            problems = [str(error)]
        except RecursionError:
            problems = ["arguments: nested too deeply"]
        if problems:
            return _unfit(call, problems)
        return ReadyCall(call=call, definition=definition, arguments=frozen(given), warnings=tuple(warnings))

    def bind(self, ready: ReadyCall) -> ReadyCall | HistoryToolCallResult:
        """Return the call with its arguments as Python values, or the result that says what their types refuse.

        A call that is bound already is returned as it is.
        """
        if ready.start is not None:
            return ready
        try:
            return msgspec.structs.replace(ready, start=ready.definition.bind(ready.arguments))
        except ToolError as error:
            return _unfit(ready.call, [str(error)])

    async def run(self, ready: ReadyCall, context: ToolContext[Any]) -> HistoryToolCallResult:
        """Return the result of a call; raises nothing but CancelledError, after the tool has been cancelled too."""
        (result,) = await self.run_all([ready], lambda _ready: context)
        return result

    async def run_all(
        self,
        calls: Sequence[ReadyCall],
        make_context: MakeContext,
        *,
        on_started: OnStarted | None = None,
        on_finished: OnFinished | None = None,
    ) -> list[HistoryToolCallResult]:
        """Return the results of several calls, in call order, exactly one for each.

        Calls run side by side up to the limit; those whose tools share a concurrency class one at a time, in order.
        `on_started` has ended before its tool begins, `on_finished` is called as soon as a result is in; callbacks
        never overlap. If one raises, all other calls are cancelled and it propagates. Cancelled, this cancels what
        runs, waits for it, and tells `on_finished` every result that came in.
        """
        batch = Batch(
            calls,
            run=self._run_or_none,
            locks=self._locks,
            seconds=self._seconds,
            limit=self._parallel_limit,
            make_context=make_context,
            on_started=on_started,
            on_finished=on_finished,
        )
        return await batch.finish()

    async def _run_or_none(
        self, ready: ReadyCall, context: ToolContext[Any], release: Release
    ) -> HistoryToolCallResult | None:
        """The result of a call, or None if it was cancelled before there was one. Does not raise."""
        started = time.perf_counter()
        bound = self.bind(ready)
        if isinstance(bound, HistoryToolCallResult):
            release()
            return bound
        assert bound.start is not None
        limit = TimeLimit(self._seconds(ready.definition))
        if context.asking is not None:
            context = msgspec.structs.replace(context, asking=_UncountedAsking(context.asking, limit))
        start = partial(bound.start, context)
        run = ToolRun(
            ready.definition, start, abandoned=self._abandoned, before_start=self._before_start, on_end=release
        )
        self._locks.note_tool(ready.definition.concurrency, lambda: run.is_stranded)
        try:
            end = await run.wait(limit)
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None:
                task.uncancel()  # the exception ends here: the result is reported as usual
            # A tool that ended before it was cancelled has done its work: its result is kept.
            if run.end is None:
                await run.stop(self._grace)
                return _result(ready, run.end, started, context) if isinstance(run.end, ResultContent) else None
            end = run.end
            if isinstance(end, asyncio.CancelledError):
                return None  # the caller has cancelled the tool too
        if end is None:
            return self._timed_out(ready, started, stopped=await run.stop(self._grace))
        return _result(ready, end, started, context)

    def _seconds(self, definition: ToolDefinition) -> float | None:
        milliseconds = self._timeout_ms if definition.timeout_ms is None else definition.timeout_ms
        return milliseconds / 1_000 if milliseconds else None

    def _timed_out(self, ready: ReadyCall, started: float, *, stopped: bool) -> HistoryToolCallResult:
        name, seconds = ready.call.tool_name, self._seconds(ready.definition)
        if ready.definition.is_async and stopped:
            state = "It was cancelled" + (
                "." if ready.definition.idempotent else ": it may or may not have taken effect."
            )
        else:
            state = "It could not be stopped and may still be running: what it does may yet happen."
        text = f"{name} did not end within {seconds:g} seconds. {state}"
        elapsed = time.perf_counter() - started
        return HistoryToolCallResult.of_text(
            ready.call, text, error_code=ErrorCode.TOOL_TIMEOUT, elapsed_seconds=elapsed
        )

    def _unknown(self, name: str) -> str:
        names = self._registry.names
        near = find_nearest(name, names)
        hint = f" Did you mean {near!r}?" if near else ""
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        return f"There is no tool {quote(name)}.{hint} There are: {', '.join(names[:_MOST_NAMED]) or 'none'}{more}."


class _UncountedAsking:
    """Asks without counting the time of the answer for the call's time limit."""

    def __init__(self, asking: Asking, limit: TimeLimit) -> None:
        self._asking = asking
        self._limit = limit

    async def ask_person(self, question: Question) -> QuestionAnswer:
        """Return what a person, or a policy, answers."""
        with self._limit.paused():
            return await self._asking.ask_person(question)

    async def ask_model(self, request: SamplingRequest) -> Message:
        """Return the model's answer, which is whole."""
        with self._limit.paused():
            return await self._asking.ask_model(request)


def _refused(call: ToolCall, says: str) -> HistoryToolCallResult:
    text = f"{says}\nNothing was run. Call it again with arguments that fit its schema."
    return HistoryToolCallResult.of_text(call, text, error_code=ErrorCode.INVALID_ARGUMENTS)


def _unfit(call: ToolCall, problems: list[str]) -> HistoryToolCallResult:
    lines = "\n".join(f"- {problem}" for problem in problems)
    return _refused(call, f"The arguments of {call.tool_name} do not fit:\n{lines}")


def _result(ready: ReadyCall, end: ToolEnd, started: float, context: ToolContext[Any]) -> HistoryToolCallResult:
    elapsed = time.perf_counter() - started
    if isinstance(end, BaseException):
        name = ready.call.tool_name
        if not isinstance(end, (ToolError, NotJson)):
            report_raised(end, f"the tool {name!r}")
        text, code = _describe(name, end)
        kind = type_name(end)
        if isinstance(end, RetryTool):
            kind = RETRY_TYPE
            text += f"\n{_MAY_RETRY if context.retries_left > 0 else _MAY_NOT_RETRY}".format(name)
        return HistoryToolCallResult.of_text(
            ready.call, text, error_code=code, elapsed_seconds=elapsed, error_type=kind
        )
    return HistoryToolCallResult(
        tool_name=ready.call.tool_name,
        tool_call_id=ready.call.tool_call_id,
        status=ToolExecutionStatus.SUCCESS,
        result=end.levels,
        elapsed_seconds=elapsed,
        attachments=end.attachments,
    )


def _describe(name: str, error: BaseException) -> tuple[str, ErrorCode]:
    """The text and the code of a failure, for the model. A ToolError is written for it, other exceptions are not."""
    if isinstance(error, ToolError):
        return str(error) or f"{name} failed", error.code if error.code in _TOOL_CODES else ErrorCode.TOOL_FAILED
    if isinstance(error, NotJson):
        return f"{name} failed: it returned {error}", ErrorCode.TOOL_FAILED
    return f"{name} failed: {describe_failure(error)}", ErrorCode.TOOL_FAILED
