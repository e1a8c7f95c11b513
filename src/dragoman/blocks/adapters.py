"""Models behind the block-style interface: blocks in, a whole response or a stream of chunks out. Decides no policy."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from ..errors import ErrorCode, InvalidValue, ModelError
from ..message import ModelInvocationDescriptor
from ..models import model as make_model
from ..router import AnyStream
from ..stream import Assembly
from ..toolspec import ToolSpec
from ..usage import TokenUsage as CoreUsage
from .channels import DEFAULT_CAPACITY, Sender, StreamingResponse, require_capacity
from .chunks import ChunkWriter
from .mapping import from_core, to_core
from .values import Message, ModelResponse, TokenUsage

__all__ = ["BlockAdapter", "ModelAdapter", "StreamingModel", "adapter_for"]


@runtime_checkable
class ModelAdapter(Protocol):
    """A model that is sent blocks and answers in blocks."""

    def model_name(self) -> str:
        """What the model is called."""

    def supports_streaming(self) -> bool:
        """Whether `stream_message` gives an answer before it is whole."""

    async def send_message(
        self,
        messages: Sequence[Message],
        system_prompt: str | None = None,
        max_tokens: int | None = None,
        *,
        tools: Sequence[ToolSpec] = (),
    ) -> ModelResponse:
        """Return the whole answer; raise ModelError if there is none."""

    async def stream_message(
        self,
        messages: Sequence[Message],
        system_prompt: str | None = None,
        max_tokens: int | None = None,
        *,
        tools: Sequence[ToolSpec] = (),
    ) -> StreamingResponse:
        """Return the answer as it comes; what goes wrong after this returned arrives as the closing `Error`."""


class StreamingModel(Protocol):
    """What an adapter needs of a model: `Model.stream`, or one that behaves like it."""

    def stream(
        self,
        messages: Any,
        tool_specs: Any = None,
        system_prompt: str | None = None,
        **params: Any,
    ) -> AnyStream:
        """Ask the model; return its deltas."""


class BlockAdapter:
    """Any model as a `ModelAdapter`.

    `name` is what `model_name` says, by default the model's own. A stream holds up to `capacity` chunks that the reader
    has read; then the model's answer waits on the network.
    """

    def __init__(self, model: StreamingModel, *, name: str | None = None, capacity: int = DEFAULT_CAPACITY) -> None:
        if not callable(getattr(model, "stream", None)):
            raise InvalidValue.of("model", model, "a Model, or something with its `stream`")
        self._model = model
        self._name = name
        self._capacity = require_capacity(capacity)

    def __repr__(self) -> str:
        return f"BlockAdapter({self.model_name()})"

    def model_name(self) -> str:
        """The name given, else `provider:model` as the model's invocation says it, else the name of its class."""
        if self._name is not None:
            return self._name
        invocation = getattr(self._model, "invocation", None)
        if isinstance(invocation, ModelInvocationDescriptor):
            return f"{invocation.provider}:{invocation.model}"
        return type(self._model).__name__

    def supports_streaming(self) -> bool:
        """True: every model here streams."""
        return True

    async def send_message(
        self,
        messages: Sequence[Message],
        system_prompt: str | None = None,
        max_tokens: int | None = None,
        *,
        tools: Sequence[ToolSpec] = (),
    ) -> ModelResponse:
        """Return the answer; raise ModelError if the call failed or the stream broke off.

        `stop_reason.is_complete` says whether the answer is whole. One that reached its length limit or a filter is
        not, and its tool uses have a `parse_error`.
        """
        stream = self._ask(messages, system_prompt, max_tokens, tools)
        try:
            async for _ in stream:
                pass
            return self._response(stream.assembly)
        finally:
            await stream.aclose()

    async def stream_message(
        self,
        messages: Sequence[Message],
        system_prompt: str | None = None,
        max_tokens: int | None = None,
        *,
        tools: Sequence[ToolSpec] = (),
    ) -> StreamingResponse:
        """Return the answer as it comes. The request is under way at once, in a task that ends with its reader.

        What the model cannot do is refused here; what goes wrong later arrives as the closing `Error`. Tool uses come
        when the answer is whole, so that none of a broken one is ever run.
        """
        stream = self._ask(messages, system_prompt, max_tokens, tools)

        async def produce(sender: Sender) -> None:
            writer = ChunkWriter()
            try:
                async for delta in stream:
                    for chunk in writer.feed(delta):
                        await sender.send(chunk)
                    if delta.kind in ("done", "error"):
                        for chunk in writer.stop():
                            await sender.send(chunk)
                        await sender.finish(self._response(stream.assembly))
            finally:
                await stream.aclose()

        return StreamingResponse.produced_by(produce, capacity=self._capacity)

    def _ask(
        self,
        messages: Sequence[Message],
        system_prompt: str | None,
        max_tokens: int | None,
        tools: Sequence[ToolSpec],
    ) -> AnyStream:
        params = {} if max_tokens is None else {"max_tokens": max_tokens}
        return self._model.stream(to_core(messages), tools, system_prompt, **params)

    def _response(self, assembly: Assembly) -> ModelResponse:
        """The answer that a stream came to; raises what kept it from being whole."""
        message = assembly.message
        if assembly.error is not None:
            raise assembly.error.to_exception()
        if message is None or assembly.finish_reason is None:
            raise ModelError("the answer ended before it was whole", code=ErrorCode.STREAM_TRUNCATED)
        (said,) = from_core((message,))
        model_id = message.meta.model_id if message.meta else None
        return ModelResponse(said, _usage(assembly.usage), model_id or self.model_name(), assembly.finish_reason)


def adapter_for(model: "StreamingModel | ModelAdapter | str") -> ModelAdapter:
    """Return an adapter over a model, or over the one that a name `provider:model` names; an adapter is returned."""
    if isinstance(model, ModelAdapter):
        return model
    return BlockAdapter(make_model(model) if isinstance(model, str) else model)


def _usage(usage: CoreUsage | None) -> TokenUsage | None:
    """The usage, unless input or output was not reported: no number is made up."""
    if usage is None or usage.input_tokens is None or usage.output_tokens is None:
        return None
    return TokenUsage(usage.input_tokens, usage.output_tokens, usage.total_tokens)
