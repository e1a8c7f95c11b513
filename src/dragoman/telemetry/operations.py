"""One operation each: a run, a model call, a tool. Its span from begin to end, and what is measured when it ends.
`requests` has that of a server.

The caller gives each span its parent, so that tasks and threads cannot change it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ..errors import ErrorCode, redact
from ..history import AgentStatus, HistoryToolCallResult
from ..message import Message, ModelInvocationDescriptor, Role, ToolCall
from ..stream import Assembly
from ..usage import TokenUsage
from . import conventions as names
from .content import MessageTexts, write_arguments, write_instructions, write_output
from .conventions import (
    Attributes,
    error_words,
    model_attributes,
    request_attributes,
    response_attributes,
    usage_attributes,
)

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.metrics import Counter, Histogram
    from opentelemetry.trace import Span, Tracer

__all__ = ["Around", "ChatOperation", "Operation", "Recorder", "RunOperation", "ToolOperation"]


class Recorder(msgspec.Struct, frozen=True, kw_only=True):
    """Where operations write to: a tracer and instruments, which may be ones that do nothing."""

    tracer: "Tracer"
    clock: Callable[[], float]
    with_content: bool
    tokens: "Histogram"
    call_seconds: "Histogram"
    first_chunk_seconds: "Histogram"
    run_seconds: "Histogram"
    tool_seconds: "Histogram"
    request_seconds: "Histogram"
    cached_tokens: "Counter"
    cost: "Counter"


class Operation:
    """What all operations share. The first end counts; a second end changes nothing."""

    def __init__(
        self,
        recorder: Recorder,
        name: str,
        attributes: Attributes,
        *,
        around: "Operation | None" = None,
        inside: "Context | None" = None,
        kind: Literal["CLIENT", "INTERNAL", "SERVER"] = "INTERNAL",
    ) -> None:
        from opentelemetry import trace

        self._recorder = recorder
        self._began = recorder.clock()
        self._has_ended = False
        self._token: Token[Context] | None = None
        self._span: Span = recorder.tracer.start_span(
            name,
            context=inside if around is None else trace.set_span_in_context(around._span),
            kind=trace.SpanKind[kind],
            attributes=attributes,
        )

    def enter(self) -> None:
        """Make its span the current one of this context, until `leave`, or as long as the context lives."""
        from opentelemetry import context, trace

        self._token = context.attach(trace.set_span_in_context(self._span))

    def leave(self) -> None:
        """Make the span before it the current one again, in the context that entered."""
        from opentelemetry import context

        token, self._token = self._token, None
        if token is not None:
            context.detach(token)

    def cut(self, error_type: str = names.CANCELLED) -> None:
        """End it without an outcome: it was stopped."""
        self._end({}, error_type=error_type)

    @property
    def _writes_content(self) -> bool:
        return self._recorder.with_content and self._span.is_recording()

    def _end(self, attributes: Attributes, *, error_type: str | None = None, words: str = "") -> None:
        if self._has_ended:
            return
        self._has_ended = True
        if error_type is not None:
            from opentelemetry.trace import Status, StatusCode

            attributes[names.ERROR_TYPE] = error_type
            self._span.set_status(Status(StatusCode.ERROR, words or None))
        self._span.set_attributes(attributes)
        self._span.end()
        self._measure(
            self._recorder.clock() - self._began, {} if error_type is None else {names.ERROR_TYPE: error_type}
        )

    def _measure(self, seconds: float, error: Attributes) -> None:
        raise NotImplementedError


class Around(Operation):
    """An operation that asks models: a run, or a client's request to a server. It learns what they said and used."""

    session_id: str
    agent: Attributes
    texts: MessageTexts

    def note_call(self, invocation: ModelInvocationDescriptor) -> None:
        """Learn which model is asked."""

    def note_input(self, system: str, messages: Sequence[Message]) -> None:
        """Learn what a model is asked."""

    def note_answer(self, usage: TokenUsage | None, said: str | None) -> None:
        """Learn what a model said, and what it used."""


class RunOperation(Around):
    """`invoke_agent`: a run. What its model calls used is added up."""

    def __init__(self, recorder: Recorder, *, session_id: str, run_id: str, agent_name: str) -> None:
        self.session_id = session_id
        self.agent: Attributes = {names.AGENT_NAME: agent_name} if agent_name else {}
        self.texts = MessageTexts()
        self._usage = TokenUsage()
        self._models: Attributes = {}
        self._said: str | None = None
        self._asked: Attributes = {}
        attributes: Attributes = {names.OPERATION: "invoke_agent", names.CONVERSATION: session_id, names.RUN_ID: run_id}
        name = f"invoke_agent {agent_name}".strip()
        super().__init__(recorder, name, attributes | self.agent)

    def note_call(self, invocation: ModelInvocationDescriptor) -> None:
        """Take the model that is asked first as the run's own."""
        self._models = self._models or model_attributes(invocation)

    def note_input(self, system: str, messages: Sequence[Message]) -> None:
        """Take what is said after the last answer, in the first call, as what the run was asked."""
        if not self._writes_content or names.INPUT_MESSAGES in self._asked:
            return
        answers = [index for index, message in enumerate(messages) if message.role is Role.ASSISTANT]
        new = messages[answers[-1] + 1 :] if answers else messages
        self._asked[names.INPUT_MESSAGES] = MessageTexts().write(new)
        if system:
            self._asked[names.SYSTEM_INSTRUCTIONS] = write_instructions(system)

    def note_answer(self, usage: TokenUsage | None, said: str | None) -> None:
        """Add what a call used; what the last one said is what the run says."""
        if usage is not None:
            self._usage += usage
        self._said = said or self._said

    def end(self, status: AgentStatus, *, error_code: ErrorCode | None = None, error_message: str = "") -> None:
        """End it as the run has ended; one that was aborted counts as cancelled."""
        attributes: Attributes = {names.RUN_STATUS: status.value, **self._models, **usage_attributes(self._usage)}
        attributes |= self._asked
        if self._said is not None:
            attributes[names.OUTPUT_MESSAGES] = self._said
        if error_code is not None:
            words = error_words(error_code, error_message, with_content=self._recorder.with_content)
            self._end(attributes, error_type=error_code.value, words=words)
        else:
            self._end(attributes, error_type=names.CANCELLED if status is AgentStatus.ABORTED else None)

    def _measure(self, seconds: float, error: Attributes) -> None:
        self._recorder.run_seconds.record(seconds, self.agent | error)


class ChatOperation(Operation):
    """`chat`: one attempt to get an answer of a model."""

    def __init__(
        self,
        recorder: Recorder,
        run: Around,
        *,
        invocation: ModelInvocationDescriptor,
        params: Mapping[str, Any],
        call_index: int,
        attempt: int,
    ) -> None:
        self._run = run
        self._measured: Attributes = {names.OPERATION: "chat", **model_attributes(invocation)}
        self._first_chunk: float | None = None
        attributes: Attributes = {
            **self._measured,
            **request_attributes(params),
            **run.agent,
            **({names.CONVERSATION: run.session_id} if run.session_id else {}),
            "gen_ai.request.stream": True,
            names.CALL_INDEX: call_index,
            names.CALL_ATTEMPT: attempt,
        }
        run.note_call(invocation)
        super().__init__(recorder, f"chat {invocation.model}", attributes, around=run, kind="CLIENT")

    def note_first_chunk(self) -> None:
        """Note that the first piece of the answer has come."""
        if self._first_chunk is None:
            self._first_chunk = self._recorder.clock() - self._began

    def end(self, assembly: Assembly, *, params: Mapping[str, Any], system: str, messages: Sequence[Message]) -> None:
        """End it with what the stream came to. The request is the one that was sent, with what hooks changed in it."""
        answer, error = response_attributes(assembly), assembly.error
        if (
            assembly.message is None and assembly.partial is None
        ):  # what came first was the error, no piece of an answer
            self._first_chunk = None
        if names.RESPONSE_MODEL in answer:
            self._measured[names.RESPONSE_MODEL] = answer[names.RESPONSE_MODEL]
        content = self._content(assembly, system, messages) if self._writes_content else {}
        self._run.note_input(system, messages)
        self._run.note_answer(assembly.usage, content.get(names.OUTPUT_MESSAGES) if error is None else None)
        self._count(assembly.usage)
        attributes: Attributes = {**request_attributes(params), **answer, **content}
        if error is None:
            self._end(attributes)
        else:
            self._end(attributes, error_type=error.error_code.value, words=redact(error.message or ""))

    def _end(self, attributes: Attributes, *, error_type: str | None = None, words: str = "") -> None:
        if self._first_chunk is not None:
            attributes[names.FIRST_CHUNK] = self._first_chunk
        super()._end(attributes, error_type=error_type, words=words)

    def _content(self, assembly: Assembly, system: str, messages: Sequence[Message]) -> dict[str, str]:
        found = {names.INPUT_MESSAGES: self._run.texts.write(messages)}
        if system:
            found[names.SYSTEM_INSTRUCTIONS] = write_instructions(system)
        answer = assembly.message or assembly.partial
        if answer is not None:
            found[names.OUTPUT_MESSAGES] = write_output(answer)
        return found

    def _count(self, usage: TokenUsage | None) -> None:
        if usage is None:
            return
        recorder, measured = self._recorder, self._measured
        for kind, tokens in (("input", usage.input_tokens), ("output", usage.output_tokens)):
            if tokens is not None:
                recorder.tokens.record(tokens, measured | {names.TOKEN_TYPE: kind})
        for kind, tokens in (("read", usage.cache_read_tokens), ("write", usage.cache_write_tokens)):
            if tokens:
                recorder.cached_tokens.add(tokens, measured | {names.CACHE_USE: kind})
        if usage.cost:
            recorder.cost.add(usage.cost, measured)

    def _measure(self, seconds: float, error: Attributes) -> None:
        if self._first_chunk is not None:
            self._recorder.first_chunk_seconds.record(self._first_chunk, self._measured)
        self._recorder.call_seconds.record(seconds, self._measured | error)


class ToolOperation(Operation):
    """`execute_tool`: one call of a tool."""

    def __init__(self, recorder: Recorder, run: RunOperation, call: ToolCall) -> None:
        self._call = call
        self._measured: Attributes = {names.TOOL_NAME: call.tool_name, names.TOOL_TYPE: "function", **run.agent}
        attributes: Attributes = {
            **self._measured,
            names.OPERATION: "execute_tool",
            names.TOOL_CALL_ID: call.tool_call_id,
            names.CONVERSATION: run.session_id,
        }
        super().__init__(recorder, f"execute_tool {call.tool_name}", attributes, around=run)
        if self._writes_content:
            arguments = write_arguments(call.raw_args_text, call.arguments)
            self._span.set_attribute(names.TOOL_ARGUMENTS, arguments)

    def end(self, result: HistoryToolCallResult) -> None:
        """End it with the call's one result. What a failed tool says is content too."""
        said = redact(result.text()) if self._writes_content else ""
        attributes: Attributes = {names.TOOL_RESULT: said} if said else {}
        if result.error_code is None:
            self._end(attributes)
        else:
            self._end(attributes, error_type=result.error_code.value, words=said)

    def _measure(self, seconds: float, error: Attributes) -> None:
        self._recorder.tool_seconds.record(seconds, self._measured | error)
