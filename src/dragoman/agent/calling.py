"""Model calls of a run: the context is built, a model is asked, its deltas are told.

It decides only what a provider's refusal means. Whether to try again is the loop's decision.
"""

import sys
from datetime import UTC, datetime
from typing import Any

import msgspec

from ..context import ContextBuildResult, compaction_entry
from ..errors import ErrorCode, InvalidValue, ModelError
from ..history import CallSetup, ToolSets
from ..history.derived import AnswerEnd
from ..message import Message
from ..models.recorded import REQUEST_KEY, check_request, first_piece, recorded_settings, recorded_text_calls
from ..request import ModelConfig, RuntimeConfig, WireRequest
from ..router import AnyModel, AnyStream, LlmRequest, ProviderRouter
from ..stream import Assembly
from ..tools import SamplingRequest
from ..toolspec import ToolSpec
from ..wire.failures import refused_content
from .actions import Answered, CallModel, Compacted, Failed, RunError, Shrunk
from .answers import find_shortfall
from .contexts import Contexts
from .events import ErrorEvent, MediaNotShownEvent
from .hooks import ModelCall
from .media import MediaReader, Unshown
from .output import OutputReader
from .scope import Scope

__all__ = ["ModelCaller"]

# What the error says where the provider refuses the request again without what it refused first.
_STILL_REFUSED = {
    "opaque": "it was asked again without signatures and encrypted content",
    "media": "it was asked again with lines of text in place of pictures and files",
    "these media": "it was asked again with lines of text in place of pictures and files",
    "tools": "it was asked again without tools",
    "schema": "it was asked again with the schema of its answer in words",
}


class ModelCaller:
    """Calls the models of one run. `settings` go over those of the model that they name; `specs` are offered to all.

    `own` names the tools that every agent has: a server that refuses tools is asked again without them. A model that
    can be held to the type of `output` is; the others are told what is wanted of them.
    """

    def __init__(
        self,
        scope: Scope,
        router: ProviderRouter,
        contexts: Contexts,
        *,
        strategy: str,
        specs: tuple[ToolSpec, ...],
        own: frozenset[str],
        settings: ModelConfig | None,
        output: OutputReader[Any],
        media: MediaReader,
    ) -> None:
        self._scope = scope
        self._router = router
        self._contexts = contexts
        self._strategy = strategy
        self._specs = specs
        self._own = own
        self._settings = settings
        self._output = output
        self._media = media
        self._tool_sets = ToolSets()
        self._told: set[Unshown] = set()
        self._models: tuple[AnyModel, ...] = ()
        self._asked: AnyModel | None = None
        self._stream: AnyStream | None = None

    @property
    def partial(self) -> Message | None:
        """What has arrived of an answer that the caller has not got yet; None if nothing has."""
        if self._stream is None:
            return None
        assembly = self._stream.assembly
        arrived = assembly.message or assembly.partial  # whole, if the run is stopped before the answer is recorded
        return arrived if arrived is not None and arrived.parts else None

    async def call(self, action: CallModel) -> Answered | Failed:
        """Ask the model that the action's `choice` names."""
        scope, self._stream = self._scope, None
        try:
            if action.choice == 0:
                self._models = ()  # if `_route` raises, the last call's models are no fallbacks
                self._models = self._route()
            model = self._asked = self._models[action.choice]
            built, prepared = await self._prepare(model, action)
            call = await scope.hooks.before_model(prepared)
            messages = await self._readable(call, model)
            tools = () if (model.invocation, "tools") in self._media.refused else tuple(call.tools)
            await self._note_setup(model, call, tools, built)
            self._stream = model.stream(
                messages,
                tools,
                call.system,
                request_metadata={
                    "run_id": scope.run_id,
                    "session_id": scope.session.session_id,
                    **({"trace_id": trace_id} if (trace_id := _current_trace_id()) else {}),
                },
                cache_anchors=call.cache_anchors,
                **call.params,
            )
        except (InvalidValue, ModelError) as error:  # what the model cannot be asked; the store's errors end the run
            return self._failed(RunError.of(error), action)
        asked_at = datetime.now(UTC)
        assembly = await self._read(self._stream, call)
        await scope.hooks.after_model(call, assembly)
        if assembly.message is None:
            return self._refused(_error_of(assembly), call, model, action)
        shortfall = find_shortfall(AnswerEnd.of(assembly.message))
        if shortfall is not None and shortfall.code is not ErrorCode.OUTPUT_CUT and self._others_left(action) > 0:
            return self._failed(shortfall, action)  # another model may answer; a length limit is the caller's own
        request, self._stream = getattr(self._stream, "request", None), None
        check = {REQUEST_KEY: check_request(request)} if isinstance(request, WireRequest) else {}
        self._media.note_read(model)
        return Answered(scope.state, assembly.message, {**built.metadata, **check, **first_piece(asked_at, assembly)})

    def _refused(self, error: RunError, call: ModelCall, model: AnyModel, action: CallModel) -> Failed:
        """Return the failure. The next request leaves out what the provider refused, if it can."""
        what = refused_content(error.code, error.provider_message or error.message)
        if what is None:
            return self._failed(error, action)
        refused, said = self._media.refused, _STILL_REFUSED[what]
        was_refused = (model.invocation, what) in refused
        if what == "schema":
            is_adapted = "output_schema" in call.params and not was_refused
            if is_adapted:
                refused.add((model.invocation, what))
        elif what != "tools":
            is_adapted = self._media.give_up(what, model)
        elif given := [tool.name for tool in call.tools if tool.name not in self._own]:
            is_adapted, was_refused = False, True
            said = f"the agent was given tools ({', '.join(given)}): use a model that takes tools, or give it none"
        else:
            is_adapted = bool(call.tools) and not was_refused
            refused.add((model.invocation, what))
        if was_refused and not is_adapted:
            error = msgspec.structs.replace(error, message=f"{error.message}; {said}")
        failed = self._failed(error, action)
        return msgspec.structs.replace(failed, is_adapted=is_adapted)

    async def shrink(self) -> Shrunk:
        """Make the context of the model that was asked last smaller."""
        assert self._asked is not None
        entries = self._scope.session.entries
        update = await self._contexts.update(self._asked, entries, self._specs, overflow=True)
        if update.entries:
            await self._scope.append(*update.entries)
        return Shrunk(self._scope.state, not update.exhausted)

    async def compact(self) -> Compacted:
        """Ask for a summary if the context wants one now; without an answer the context is folded without it."""
        usage = None
        try:
            model = self._route()[0]
            request = (await self._contexts.update(model, self._scope.session.entries, self._specs)).compaction
            if request is not None:
                stream = model.stream(request.messages, (), request.system or "", max_tokens=request.max_tokens)
                try:
                    async for _ in stream:
                        pass
                finally:
                    await stream.aclose()
                answer, usage = stream.assembly.message, stream.assembly.usage
                if answer is not None:
                    await self._scope.append(compaction_entry(request, answer))
        except (InvalidValue, ModelError):  # what is wrong with the model itself is said when it is called
            pass
        return Compacted(self._scope.state, usage)

    async def sample(self, request: SamplingRequest) -> tuple[Message | None, RunError | None]:
        """Have the current model answer messages of a tool; return what came, and why it is no whole answer.

        Raises InvalidValue and ModelError for what the model cannot be asked.
        """
        model = self._route()[0]
        _, unshown = await MediaReader(RuntimeConfig()).fit(request.messages, model)
        if unshown:
            raise InvalidValue(f"it does not read {unshown[0].what}")
        given: dict[str, Any] = {"max_tokens": request.max_tokens, "temperature": request.temperature}
        if request.stop_sequences:
            given["stop_sequences"] = request.stop_sequences
        params = {name: value for name, value in given.items() if value is not None}
        stream = model.stream(request.messages, (), request.system, **params)
        try:
            async for _ in stream:
                pass
        finally:
            await stream.aclose()
        assembly = stream.assembly
        if assembly.message is not None:
            return assembly.message, None
        return assembly.partial, _error_of(assembly)

    async def _read(self, stream: AnyStream, call: ModelCall) -> Assembly:
        scope, is_first = self._scope, True
        log, run_id, index = scope.log, scope.run_id, scope.call_index
        tail = scope.session.begin_tail()
        try:
            async for delta in stream:
                if is_first:
                    is_first = False
                    await scope.hooks.after_first_delta(call)
                if log is not None:
                    log.add_delta(run_id, index, delta)
                if tail is not None:
                    tail.add(delta)
        finally:
            await stream.aclose()
        return stream.assembly

    async def _readable(self, call: ModelCall, model: AnyModel) -> tuple[Message, ...]:
        """The messages with their files read and unreadable media as text; the caller is told of those."""
        messages, unshown = await self._media.fit(call.messages, model)
        for each in unshown:
            if each not in self._told:
                self._told.add(each)
                self._scope.tell(MediaNotShownEvent, *each)
        return messages

    async def _prepare(self, model: AnyModel, action: CallModel) -> tuple[ContextBuildResult, ModelCall]:
        """The context of now, and the call that is made with it."""
        scope = self._scope
        built = await self._contexts.build(model, scope.session.entries, self._specs)
        if built.entries:
            await scope.append(*built.entries)
        is_refused = (model.invocation, "schema") in self._media.refused
        output = {} if is_refused else self._output.params(model)
        told = "" if output else self._output.instruction()
        return built, ModelCall(
            session_id=scope.session.session_id,
            run_id=scope.run_id,
            call_index=action.call_index,
            attempt=action.attempt,
            invocation=model.invocation,
            messages=built.messages,
            tools=built.tool_specs,
            system="\n\n".join(filter(None, (built.system, told))),
            cache_anchors=built.cache_anchors,
            params={**self._params(model), **output, **self._media.params(model)},
        )

    async def _note_setup(
        self, model: AnyModel, call: ModelCall, tools: tuple[ToolSpec, ...], built: ContextBuildResult
    ) -> None:
        """Record what the call is given beside the messages, if that is not what the record says already."""
        self._tool_sets.extend(self._scope.session.entries)
        setup = CallSetup(
            tools=tools,
            offered=built.tool_specs,
            system=None if call.system == (built.system or "") else call.system,
            settings=recorded_settings(model, call.params),
            text_calls=recorded_text_calls(model),
            withheld=self._media.withheld_from(model),
            **self._contexts.shaping,
        )
        change = self._tool_sets.find_change(model.invocation, setup)
        if change is not None:
            await self._scope.append(change)

    def _params(self, model: AnyModel) -> dict[str, Any]:
        """The settings for this model that are not the defaults, as `Model.stream` takes them."""
        config = self._settings
        if config is None or config.model_id != model.invocation.model:
            return {}
        plain = ModelConfig(config.model_id)
        names = [name for name in config.__struct_fields__ if getattr(config, name) != getattr(plain, name)]
        return {name: getattr(config, name) for name in names}

    def _route(self) -> tuple[AnyModel, ...]:
        context = self._scope.session.state.render_live_context() if self._router.looks_at_context else ()
        return self._router.route(LlmRequest(context=context, tools=self._specs, strategy=self._strategy))

    def _failed(self, error: RunError, action: CallModel) -> Failed:
        self._scope.tell(ErrorEvent, error)
        others_left, partial = self._others_left(action), self.partial
        self._stream = None
        return Failed(self._scope.state, error, partial, others_left)

    def _others_left(self, action: CallModel) -> int:
        """How many models may still be asked for this answer, after what has arrived of it."""
        may_fall_back = self.partial is None or self._router.falls_back_after_start
        return max(len(self._models) - action.choice - 1, 0) if may_fall_back else 0


def _error_of(assembly: Assembly) -> RunError:
    error = assembly.error
    assert error is not None  # a stream ends in a message or an error
    return RunError(
        error.error_code,
        error.message or "",
        bool(error.retryable),
        error.retry_after,
        error.provider_message or "",
    )


def _current_trace_id() -> str | None:
    """The trace around this call, where the program uses OpenTelemetry; it is not loaded for this."""
    trace: Any = sys.modules.get("opentelemetry.trace")
    context = None if trace is None else trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}" if context is not None and context.is_valid else None
