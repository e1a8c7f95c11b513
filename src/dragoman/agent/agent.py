"""`Agent`: what a user holds. A model, tools and a session; `agentrun` has the runs that carry the session on."""

import asyncio
import copy
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Unpack, overload

from .._loops import SharedLock
from ..context import RECALL_TOOL, Compactor
from ..errors import (
    DragomanError,
    ErrorCode,
    IllegalAppend,
    InvalidValue,
    Raised,
    StoreError,
    report_raised,
    running_loop,
    type_name,
)
from ..history import AgentStatus, ModelInputEntry, QuestionAction
from ..message import FinishReason, Message
from ..request import AgentConfig
from ..store import Session, SessionBusy, SessionHold
from ..store.refusals import require_seconds
from ..tools import QuestionAnswer, ToolContext, ToolDefinition, ToolLike, ToolRegistry
from ..tools.batches import ClassLocks
from ..tools.containing import current_task, must_pass
from ..toolspec import ToolSpec
from ..usage import TokenUsage
from .actions import Ending, RunError
from .agentrun import INSIDE, AgentRun, Prompt, agent_busy, as_input, next_run_id, require_carried_on
from .answers import finish_of, last_message
from .approval import ApprovalDecision, ApprovalPolicy
from .asking import Asker, QuestionPolicy
from .budget import Budget
from .calling import ModelCaller
from .contexts import Contexts
from .deciding import decide_call, decide_question
from .events import ErrorEvent, FinishedEvent
from .given import (
    AgentOptions,
    AnyRoute,
    as_conversation,
    as_hooks,
    as_router,
    begin_session,
    chosen_tools,
    require_kinds,
    warn_of_unused_tools,
)
from .hooks import HookChain, Hooks
from .instructions import Instructions, require_instructions
from .media import MediaReader, model_at_hand
from .observing import observers
from .output import OutputReader
from .results import OutputT, RunResult
from .routes import Routes
from .runner import Runner
from .scope import Scope
from .subagents import make_task_tool
from .syncrun import SyncRun
from .tooling import ToolRunner, tools_of

if TYPE_CHECKING:
    import typing_extensions
    from typing_extensions import TypeForm  # also `int | str`, which is no class

    from ..interop import Imported

    RuntimeT = typing_extensions.TypeVar("RuntimeT", default=None)
else:  # only checkers need the default; typing has it from Python 3.13 on
    RuntimeT = TypeVar("RuntimeT")

__all__ = ["Agent"]

LEAVE_SECONDS = 10.0  # for a run to end whose text is not read any more

_D = TypeVar("_D")
_O = TypeVar("_O")


class Agent(Generic[RuntimeT, OutputT]):
    """A model, its tools and a session. One run at a time; others may wait for it, in any thread and event loop.

    `model` is a model, a name such as `anthropic:claude-opus-4-5`, or a router. Without a session the agent keeps one
    in memory. `runtime` is an object of yours that tools get in their `ToolContext`. `instructions` may be a function
    of such a context, called at the start of each run; what it returns is recorded where it has changed. `approval`
    decides about calls that need it, or leaves them to a person. `questions` answers what tools ask while they run, or
    leaves that to a person. `name` is what traces call the agent. `messages` begin
    the session that the agent keeps in memory: a conversation of another program, as `dragoman.interop` imports it, or
    yours.

    `Agent[Desk, int]` is an agent with a Desk as its runtime and a whole number as its output. `Agent` alone has no
    runtime, and its output is text.
    """

    if not TYPE_CHECKING:

        def __class_getitem__(cls, given):
            """Return the type with text for an output that is left out."""
            return super().__class_getitem__(given if isinstance(given, tuple) else (given, str))

    @overload
    def __init__(self: "Agent[None, str]", model: AnyRoute, **options: Unpack[AgentOptions[None]]) -> None: ...

    @overload
    def __init__(
        self: "Agent[_D, str]", model: AnyRoute, *, runtime: _D, **options: Unpack[AgentOptions[_D]]
    ) -> None: ...

    @overload
    def __init__(
        self: "Agent[None, _O]", model: AnyRoute, *, output_type: "TypeForm[_O]", **options: Unpack[AgentOptions[None]]
    ) -> None: ...

    @overload
    def __init__(
        self,
        model: AnyRoute,
        *,
        runtime: RuntimeT,
        output_type: "TypeForm[OutputT]",
        **options: Unpack[AgentOptions[RuntimeT]],
    ) -> None: ...

    def __init__(
        self,
        model: AnyRoute,
        *,
        output_type: Any = str,
        name: str = "",
        tools: Iterable[ToolLike[Any]] = (),
        instructions: Instructions[Any] | None = None,
        session: Session | None = None,
        messages: "Iterable[Message] | Imported" = (),
        config: AgentConfig | None = None,
        runtime: Any = None,
        approval: ApprovalPolicy | None = None,
        questions: QuestionPolicy | None = None,
        hooks: Iterable[Hooks] = (),
        compactor: Compactor | None = None,
    ) -> None:
        hooks = as_hooks(hooks)
        require_kinds(config, session, name=name)
        require_instructions(instructions, runtime)
        self._conversation = as_conversation(messages, session)
        if approval is not None and not callable(approval):
            raise InvalidValue.of("approval", approval, "a function that decides about a call")
        if questions is not None and not callable(questions):
            raise InvalidValue.of("questions", questions, "a function that answers a question")
        if compactor is not None and not hasattr(compactor, "plan"):
            raise InvalidValue.of("compactor", compactor, "a Compactor, such as ModelCompactor()")
        self._config = config or AgentConfig()
        self._routes = Routes(as_router(model, self._config))
        self._tools = chosen_tools(ToolRegistry(tools), self._config, session)
        self._tools.require(runtime=runtime, agent=self)
        warn_of_unused_tools(self._routes.own, self._tools)
        self._name = name
        self._instructions = instructions
        self._session = session
        self._runtime = runtime
        self._approval = approval
        self._questions = questions
        self._output: OutputReader[OutputT] = OutputReader(output_type)
        self._hooks = (*observers(self._config.observability, agent_name=name), *hooks)
        self._contexts = Contexts(self._config, compactor)
        self._media = MediaReader(self._config.runtime)
        self._run: AgentRun[OutputT] | None = None  # the newest that had its turn
        self._turn = SharedLock()  # of the run under way
        self._class_locks = ClassLocks()
        self._registry: tuple[Session, tuple[ToolSpec, ...], ToolRegistry] | None = None
        self._budget: Budget | None = None

    def __repr__(self) -> str:
        router = self._routes.current
        models = ", ".join(dict.fromkeys(repr(model) for model in router.models)) or repr(router)
        tools = f", tools {', '.join(self._tools.names)}" if self._tools else ""
        kept = f", {self._session!r}" if self._session is not None else ""
        return f"<Agent{f' {self._name!r}' if self._name else ''} of {models}{tools}{kept}>"

    @property
    def session(self) -> Session | None:
        """The session; None before the first run of an agent that was given none."""
        return self._session

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools that it was given."""
        return self._tools.specs

    @property
    def config(self) -> AgentConfig:
        """The settings."""
        return self._config

    def use(self, model: AnyRoute) -> None:
        """Carry the session on with another model, from the next run on."""
        self._require_idle()
        self._routes.own = as_router(model, self._config)
        warn_of_unused_tools(self._routes.own, self._tools)

    def override(self, *, model: AnyRoute) -> AbstractContextManager[None]:
        """Ask another model in a `with` block, such as a ScriptedModel in a test; tools and settings stay.

        It holds for runs that this task, and the tasks that it starts, begin in the block. Other tasks and threads
        keep the agent's own model.
        """
        router = as_router(model, AgentConfig())  # settings for the agent's own model say nothing of this one
        warn_of_unused_tools(router, self._tools)
        return self._routes.replaced(router)

    # ------------------------------------------------------------ running

    async def run(
        self, prompt: Prompt | None = None, *, strategy: str = "", wait_seconds: float = 0.0, run_id: str | None = None
    ) -> RunResult[OutputT]:
        """Say something, or nothing to carry on what was interrupted, and return how it ended.

        Raises InvalidValue for the caller's own mistakes, and SessionBusy if another run has the session for all of
        `wait_seconds`; nothing else. On a session with an unfinished run it goes on exactly where that stopped; a
        prompt is then taken up before the next model call. With `run_id`, and without a prompt, it carries on that run
        alone: it raises InvalidValue if that run has ended meanwhile, or if another one comes first.
        """
        require_carried_on(run_id, prompt)
        run = self._start(prompt, strategy, keeps_events=False, wait_seconds=wait_seconds, only=run_id)
        return await run.result()

    def run_sync(
        self, prompt: Prompt | None = None, *, strategy: str = "", wait_seconds: float = 0.0
    ) -> RunResult[OutputT]:
        """Do the same where no event loop runs."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            is_inside = False
        else:
            is_inside = True
        if is_inside:
            raise InvalidValue("run_sync is for programs without an event loop; here, await run()")
        return asyncio.run(self.run(prompt, strategy=strategy, wait_seconds=wait_seconds))

    def stream(
        self, prompt: Prompt | None = None, *, strategy: str = "", wait_seconds: float = 0.0
    ) -> AgentRun[OutputT]:
        """Start a run and return it; iterate it for its events. Needs a running event loop.

        The iteration and `result()` raise what `run` raises. While a run of this very agent is under way it raises
        SessionBusy at once, unless it may wait.
        """
        return self._start(prompt, strategy, keeps_events=True, wait_seconds=wait_seconds)

    def stream_sync(
        self, prompt: Prompt | None = None, *, strategy: str = "", wait_seconds: float = 0.0
    ) -> SyncRun[OutputT]:
        """Do the same for a caller that does not await, with or without a running event loop, as in Jupyter.

        The run has a thread and an event loop of its own. Tools that belong to another event loop fail in it, such as
        those of an MCP server that was opened there. While the caller waits, its own event loop stands still.
        """

        def start() -> AgentRun[OutputT]:
            return self._start(prompt, strategy, keeps_events=True, wait_seconds=wait_seconds)

        return SyncRun(start, self._output)

    async def abort(self) -> None:
        """End the run that is under way, or the one that a session was left with.

        If the run is another process's, it is asked to end: its owner does that within seconds.
        """
        if self._run is not None and not self._run.is_done:
            await self._run.abort()
        elif self._session is not None:
            await self._session.refresh()
            if not self._session.run_id:
                return
            try:
                await self._abandon(self._session)
            except SessionBusy:
                try:
                    await self._session.request_abort()
                except IllegalAppend:  # it has ended meanwhile
                    pass

    async def _abandon(self, session: Session) -> None:
        async with session.hold(seconds=self._config.loop.lease_seconds):
            if session.run_id:
                await self._end_open_run(session)

    async def _end_aborted(self, session: Session) -> bool:
        """End the open run if it was asked to end, and return whether it was."""
        if session.state.derived.abort_request is None:
            return False
        await self._end_open_run(session)
        return True

    async def _end_open_run(self, session: Session) -> None:
        run = AgentRun(self, session.run_id, keeps_events=False)
        ending = await self._runner(run, session, "").run(is_abandoned=True)
        if ending.error is not None:
            raise StoreError(ending.error.message, code=ending.error.code)

    async def pause(self) -> None:
        """Stop the run that is under way at its next entry and leave it open: `run()` carries it on, also elsewhere."""
        if self._run is not None and not self._run.is_done:
            await self._run.pause()

    async def steer(self, prompt: Prompt) -> None:
        """Say something to the run that is under way; it is recorded, and taken up before the next model call."""
        if self._run is None or self._run.is_done:
            raise InvalidValue("no run is under way: say it with run()")
        await self._run.steer(prompt)

    # ------------------------------------------------------------ approval

    async def approve(self, tool_call_id: str, *, arguments: dict[str, Any] | None = None, reason: str = "") -> None:
        """Let a call run, with other arguments if they are given; then `run()` carries on."""
        await self._decide(tool_call_id, ApprovalDecision(True, reason, arguments))

    async def deny(self, tool_call_id: str, *, reason: str = "") -> None:
        """Do not let a call run; the model is told why. Then `run()` carries on."""
        await self._decide(tool_call_id, ApprovalDecision(False, reason))

    async def _decide(self, tool_call_id: str, decision: ApprovalDecision) -> None:
        self._require_idle()
        await decide_call(self._session, self._tools, tool_call_id, decision)

    async def answer(
        self,
        question_id: str,
        content: dict[str, Any] | None = None,
        *,
        action: QuestionAction | Literal["accept", "decline", "cancel"] = QuestionAction.ACCEPT,
    ) -> None:
        """Answer what a tool of the run under way asks a person, in whichever process it runs.

        Raises InvalidValue for a question that waits for no answer, and for content that does not fit it.
        """
        answer = QuestionAnswer(action, content)  # type: ignore[arg-type]  # a word is converted
        await decide_question(self._session, question_id, answer)
        if self._run is not None and not self._run.is_done:
            self._run._tell_news()

    # ------------------------------------------------------------ as a tool

    def as_tool(self, name: str, description: str, *, timeout_ms: int | None = 0) -> ToolDefinition:
        """Return a tool with which another agent gives this one a task; each task has a session of its own.

        What it uses counts for the limits of the run that it is called in. A task has no limit of time but those of
        the two agents; `timeout_ms` sets one, and None is that of the other agent's tools.
        """
        return make_task_tool(self, name, description, timeout_ms)

    def _copy(self) -> "Agent[RuntimeT, OutputT]":
        """An agent like this one, with a session of its own."""
        child = copy.copy(self)
        child._session = child._run = child._budget = None
        child._turn = SharedLock()
        child._class_locks = ClassLocks()  # a tool that gives its own agent a task holds its class until that ends
        child._contexts = Contexts(self._config, self._contexts.compactor)
        child._media = MediaReader(self._config.runtime)
        return child

    # ------------------------------------------------------------ steps

    def _start(
        self,
        prompt: Prompt | None,
        strategy: str,
        *,
        keeps_events: bool,
        wait_seconds: float = 0.0,
        around: Budget | None = None,
        only: str | None = None,
    ) -> AgentRun[OutputT]:
        running_loop()  # before anything is made that would have to be awaited
        self._routes.require(strategy)
        require_seconds(wait_seconds, "wait_seconds", 0.0)
        entry = None if prompt is None else as_input(prompt)
        session = self._session
        if session is None and entry is None and self._conversation is None:
            raise InvalidValue("there is nothing to carry on: give a prompt")
        run_id = next_run_id(session, has_prompt=entry is not None)
        run = AgentRun(self, run_id, keeps_events=keeps_events, strategy=strategy, only=only)
        if self._run is not None and self._run.is_done:
            self._run._note_end()  # its event loop may have been closed before it could say so
        elif self._run is not None and self._run.is_left:
            wait_seconds = max(wait_seconds, LEAVE_SECONDS)
        if self._turn.take():
            self._run, run._turn = run, self._turn
        elif wait_seconds <= 0:
            raise agent_busy(self._session)
        run._task = asyncio.ensure_future(self._execute(run, entry, strategy, wait_seconds, around))
        run._task.add_done_callback(run._note_end)
        return run

    async def _execute(
        self,
        run: AgentRun[OutputT],
        entry: ModelInputEntry | None,
        strategy: str,
        wait_seconds: float,
        around: Budget | None,
    ) -> RunResult[OutputT]:
        mistake: InvalidValue | SessionBusy | None = None
        task = current_task()
        INSIDE.set((*INSIDE.get(), run))
        try:
            left = await self._wait_for_turn(run, wait_seconds)
            if left is None:
                return self._ended(run, Ending(AgentStatus.ABORTED))
            if self._session is None:
                self._session = await begin_session(self._conversation)
            session, known = self._session, self._session.run_id

            def hold(seconds_to_wait: float) -> SessionHold:
                return session.hold(
                    seconds=self._config.loop.lease_seconds,
                    wait_seconds=seconds_to_wait,
                    on_news=run._tell_news,
                    on_lost=run._stop_lost,
                )

            async with AsyncExitStack() as stack:
                if not await run._enter(stack, hold, left):
                    return self._ended(run, Ending(AgentStatus.ABORTED))
                run._require_due(session)
                if await self._end_aborted(session) and entry is None:
                    return self._ended(run, Ending(AgentStatus.ABORTED))
                if session.run_id != known or not session.run_id:  # others have begun, ended or requested a run
                    run.run_id = next_run_id(session, has_prompt=entry is not None)
                self._require_sense(session, entry)
                if entry is not None:
                    entry = await self._admitted(entry, strategy)
                runner = self._runner(run, session, strategy, around)
                run._begin(runner)
                ending = await runner.run(() if entry is None else (entry,), instructions=self._instructions)
                return self._result(session, runner, run.run_id, ending)
        except (InvalidValue, SessionBusy) as error:
            mistake = error
            raise
        except DragomanError as error:
            return self._ended(run, Ending(AgentStatus.FAILED, RunError.of(error)))
        except BaseException as error:  # such as an error of a foreign store
            if must_pass(error, task):
                raise
            cause = report_raised(error, "the start of the run")
            failure = RunError(ErrorCode.INTERNAL, f"{type_name(error)} before the run: see the log")
            return self._ended(run, Ending(AgentStatus.FAILED, failure), cause)
        finally:
            run._begun.set()
            if run._log is not None:
                run._log.close(mistake)

    async def _wait_for_turn(self, run: AgentRun[OutputT], wait_seconds: float) -> float | None:
        """Wait for this agent's other runs; return how long is left to wait, None if the run was aborted."""
        if run._turn is not None:
            return wait_seconds
        begin = time.monotonic()
        has_turn = await run._take_turn(self._turn, wait_seconds)
        if has_turn is None:
            return None
        if not has_turn:
            raise agent_busy(self._session)
        self._run = run
        return max(0.0, wait_seconds - (time.monotonic() - begin))

    def _ended(self, run: AgentRun[OutputT], ending: Ending, cause: Raised | None = None) -> RunResult[OutputT]:
        """The result of a run that could not begin, told to its readers too."""
        session_id = self._session.session_id if self._session is not None else ""
        if run._log is not None and run._runner is None:
            if ending.error is not None:
                run._log.add(ErrorEvent, run.run_id, 0, ending.error)
            run._log.add(FinishedEvent, run.run_id, 0, ending.status, ending.error)
        raised = () if cause is None else (cause,)
        return RunResult(
            session_id=session_id,
            run_id=run.run_id,
            status=ending.status,
            error=ending.error,
            raised=raised,
            cause=cause,
        )

    def _require_sense(self, session: Session, entry: ModelInputEntry | None) -> None:
        state = session.state
        derived = state.derived
        is_due = (
            state.current_run_id or derived.steering or derived.requests or derived.owes_answer or derived.open_calls
        )
        if entry is None and not is_due:
            failed = f" (the last run failed: {derived.last_error.code})" if derived.last_error is not None else ""
            raise InvalidValue(f"there is nothing to carry on{failed}: give a prompt")
        if entry is not None and derived.approvals_asked:
            waiting = ", ".join(asked.tool_call_id for asked in derived.approvals_asked)
            raise InvalidValue(f"answer the calls {waiting} first, with approve or deny; or abort")

    async def _admitted(self, entry: ModelInputEntry, strategy: str) -> ModelInputEntry:
        """The input as it may be recorded; raise ModelError for media that the model at hand cannot read."""
        if not entry.attachments:
            return entry
        known = self._session.entries if self._session is not None else ()

        def admit() -> ModelInputEntry:  # in a thread, because files may be read
            reader = model_at_hand(self._routes.current, known, entry, self._tools.specs, strategy)
            return self._media.admit_input(entry, reader)

        return await asyncio.to_thread(admit)

    def _runner(self, run: AgentRun[OutputT], session: Session, strategy: str, around: Budget | None = None) -> Runner:
        config = self._config
        scope = Scope(session, run.run_id, hooks=HookChain(self._hooks), log=run._log)
        offered, registry = self._all_tools(session)
        self._budget = Budget(config.loop, seconds=time.monotonic, around=around)
        if session.run_id:  # the run goes on
            self._budget.note_record(session.entries, session.run_id)
        caller = ModelCaller(
            scope,
            self._routes.current,
            self._contexts,
            strategy=strategy,
            specs=offered,
            own=frozenset(name for name in registry.names if name not in self._tools),
            settings=config.model,
            output=self._output,
            media=self._media,
        )
        folder = self._media.folder
        context = ToolContext(
            session_id=session.session_id,
            run_id=run.run_id,
            runtime=self._runtime,
            agent=self,
            root=None if folder is None else str(folder.root),
            options=config.runtime.options,
        )
        asker = Asker(
            scope,
            caller,
            self._budget,
            policy=self._questions,
            has_person=around is None,
            seconds=config.tools.question_timeout_ms / 1_000,
        )
        tools = ToolRunner(
            scope,
            registry,
            config.tools,
            policy=self._approval,
            context=context,
            asker=asker,
            media=self._media,
            locks=self._class_locks,
        )
        check = None if self._output.is_text else self._output.read
        return Runner(
            scope,
            caller,
            tools,
            self._budget,
            asker=asker,
            compacts=self._contexts.compactor is not None,
            check=check,
            records_content=config.observability.record_content,
        )

    def _all_tools(self, session: Session) -> tuple[tuple[ToolSpec, ...], ToolRegistry]:
        """The tools that the agent offers, and those that it can run: contexts offer `recall`. Made once a session."""
        if self._registry is None or self._registry[0] is not session:
            has_recall = self._contexts.have_recall and RECALL_TOOL.name not in self._tools
            self._registry = (session, *tools_of(session, self._tools, self._config.tools, has_recall=has_recall))
        return self._registry[1:]

    def _result(self, session: Session, runner: Runner, run_id: str, ending: Ending) -> RunResult[OutputT]:
        message = last_message(session.entries, run_id)
        output: OutputT | None = None
        if ending.status is AgentStatus.COMPLETED and message is not None:
            is_refused = finish_of(message) is FinishReason.REFUSAL
            output = self._output.read(message) if self._output.is_text else None if is_refused else runner.output
        waiting = [call.request for call in session.state.derived.open_calls if call.awaits_answer]
        return RunResult(
            session_id=session.session_id,
            run_id=run_id,
            status=ending.status,
            message=message,
            output=output,
            usage=self._budget.usage if self._budget else TokenUsage(),
            error=ending.error,
            approvals=tuple(waiting),
            raised=tuple(runner.raised),
            cause=runner.cause,
        )

    def _require_idle(self) -> None:
        if self._run is not None and not self._run.is_done:
            raise InvalidValue("a run is under way: await it, steer it or abort it first")
