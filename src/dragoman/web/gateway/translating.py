"""Different APIs on the two sides: a request through messages, an answer through deltas. No pair knows the other."""

import uuid
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime
from functools import partial

from msgspec.structs import replace

from ...delta import ErrorDelta, KnownDelta
from ...errors import DragomanError
from ...models import Model
from ...models.streams import ModelStream, close_quietly
from ...request import ReadRequest
from ...stream import AnswerForm, Assembly, Codec, WireEvent, frame_events
from ...wire.fitting import fit_request
from .seals import seal
from .upstream import HOLD_LIMIT, as_error, has_content

__all__ = ["TranslatedAnswer"]


class TranslatedAnswer:
    """The answer of any model, in the client's API; see `UpstreamAnswer`.

    `asked` is the client's name for the model. `as_array`: the client wants all events of a stream as one JSON array.
    """

    def __init__(self, model: Model, codec: Codec, read: ReadRequest, *, asked: str, as_array: bool = False) -> None:
        dialect = model.client.dialect
        self.model = f"{dialect.provider}:{model.get_config().model_id}"
        self.status = 200
        self.is_whole = False
        self._asking = model
        self._read = read
        self._as_array = as_array
        self._is_stream = read.request.stream
        self._form = AnswerForm(
            answer_id=uuid.uuid4().hex,
            model=asked,
            created=int(datetime.now(UTC).timestamp()),
            stream=self._is_stream,
            include_usage=read.include_usage,
            source=dialect.specification,
            call_fields=read.call_fields,
            echo=read.echo,
            seal=partial(seal, model.invocation),
        )
        assert codec.open_writer is not None
        self._writer = codec.open_writer(self._form)
        kind = "text/event-stream" if self._is_stream and not as_array else "application/json"
        self.headers = {"content-type": f"{kind}; charset=utf-8" if self._is_stream else kind}
        self._stream: ModelStream | None = None
        self._batches: AsyncGenerator[list[KnownDelta], None] | None = None
        self._first = b""
        self._has_content = False
        self._failure: ErrorDelta | None = None

    @property
    def assembly(self) -> Assembly:
        """What has come of the answer."""
        if self._stream is None or self._failure is not None:
            return Assembly(error=self._failure)
        arrived = self._stream.assembly
        failure = self._writer.failure
        if failure is not None and arrived.message is not None:  # whole for us, and a cut for the client's API
            return replace(arrived, message=None, partial=arrived.message, error=failure)
        return arrived

    def refusal(self) -> bytes | None:
        """Return None: the upstream speaks another API."""
        return None

    async def open(self, *, holds: bool = False) -> ErrorDelta | None:
        """Ask the model and wait for the first events or content, or for the whole body where that is asked for."""
        try:
            self._stream = self._ask()
        except DragomanError as error:
            self._failure = as_error(error)
            return self._failure
        self._batches = self._stream.batches()
        if self._is_stream and not self._as_array:
            self._first = more = await self._next_events()
            while holds and more and not self._has_content and len(self._first) < HOLD_LIMIT:
                more = await self._next_events()
                self._first += more
            return self._writer.failure if not (self._has_content if holds else self._first) else None
        events = [event async for batch in self._batches for event in self._writer.write(batch)]
        events += self._writer.end()
        if self._writer.failure is not None:
            return self._writer.failure
        self._first = _array(events) if self._as_array else self._writer.body()
        self.is_whole = True
        return None

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield the answer."""
        piece = self._first
        while piece:
            yield piece
            piece = await self._next_events()

    async def close(self) -> None:
        """Close the connection."""
        if self._batches is not None:
            await close_quietly(self._batches.aclose)
        if self._stream is not None:
            await close_quietly(self._stream.aclose)

    def _ask(self) -> ModelStream:
        asking, read = self._asking, replace(self._read, request=replace(self._read.request, stream=True))
        info = asking.model_info()
        request, _ = fit_request(read, asking.client.dialect, info.model_id, info)
        asked = Model(asking.client, request.config, asking.cache_config)
        return asked.stream(
            request.messages,
            request.tools,
            request.system,
            tool_choice=request.tool_choice,
            request_metadata=request.metadata,
            cache_anchors=request.cache_anchors,
        )

    async def _next_events(self) -> bytes:
        """Return the events of the next deltas that give any; nothing after the last."""
        assert self._batches is not None
        while not self._writer.is_over:
            batch = await anext(self._batches, None)
            self._has_content = self._has_content or has_content(batch or ())
            events = self._writer.end() if batch is None else self._writer.write(batch)
            self.is_whole = self._writer.done is not None
            if events:
                return frame_events(events)
        return b""


def _array(events: Sequence[WireEvent]) -> bytes:
    """Gemini's stream without `alt=sse`: one JSON array of all events."""
    return b"[" + b",\n".join(data for _, data in events) + b"]"
