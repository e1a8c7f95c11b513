"""The answer as it comes, and any other source of deltas held to the contract. Knows no provider."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, TypeVar, cast

import msgspec

from ..delta import KnownDelta, MessageDelta
from ..errors import DragomanError, Secrets, report_raised
from ..jsonform import from_json, to_json
from ..message import Message, ModelInvocationDescriptor, Part, Text, Thinking, ToolCall
from ..request import WireRequest
from ..stream import Assembler, Assembly, Guard, ResponseReader

__all__ = ["Exchange", "ModelStream", "clean_assembly", "close_quietly", "guard_stream", "log_bug", "without_secrets"]

_Told = TypeVar("_Told", bound=Message | MessageDelta | None)
_NO_SECRETS = Secrets()


class Exchange:
    """What a client learns while it sends one request: the credentials in it, and the reader of the answer."""

    __slots__ = ("reader", "secrets")

    def __init__(self) -> None:
        self.secrets = _NO_SECRETS
        self.reader: ResponseReader | None = None


class ModelStream:
    """The answer as it comes: iterate it for the deltas; `assembly` is what they have come to so far.

    Use it with `async with`, so that leaving early closes the connection.
    """

    def __init__(
        self,
        batches: AsyncGenerator[list[MessageDelta], None],
        *,
        request: WireRequest,
        invocation: ModelInvocationDescriptor,
        rewrite: Mapping[type, Callable[[Any], MessageDelta]],
        exchange: Exchange | None = None,
        invocation_state: Any = None,
        trace_id: str | None = None,
    ) -> None:
        self.request = request
        self.invocation = invocation
        self.invocation_state = invocation_state
        self._exchange = exchange or Exchange()
        self._assembler = Assembler(invocation=invocation, trace_id=trace_id)
        self._batches = batches
        self._rewrite = rewrite
        self._deltas = self._iterate()

    @property
    def assembly(self) -> Assembly:
        """What has arrived: the message once the stream is done, else the partial, with the error that ended it.

        It is free of the request's credentials, wherever a provider may repeat them: it is what gets recorded.
        """
        return clean_assembly(self._assembler.result(), self._exchange.secrets)

    @property
    def unknown_events(self) -> int:
        """How many wire events were skipped because no codec knows them; 0 is usual, more means a newer API."""
        reader = self._exchange.reader
        return 0 if reader is None else reader.unknown_events

    async def batches(self) -> AsyncGenerator[list[KnownDelta], None]:
        """Yield the deltas of each network read together, for who passes them on. It replaces the iteration."""
        async for read in self._batches:
            batch = self._rewritten(read)
            for delta in batch:
                self._assembler.feed(delta)
            yield batch

    async def collect(self) -> Assembly:
        """Read the stream to its end and return what it came to."""
        async for _ in self._deltas:
            pass
        return self.assembly

    def __aiter__(self) -> AsyncIterator[KnownDelta]:
        return self._deltas

    async def __anext__(self) -> KnownDelta:
        return await anext(self._deltas)

    async def __aenter__(self) -> "ModelStream":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop reading and close the connection."""
        await self._deltas.aclose()
        await self._batches.aclose()

    def _rewritten(self, read: list[MessageDelta]) -> list[Any]:
        """The deltas of one read, of known kinds: the guard has refused all others."""
        rewrite = self._rewrite
        if rewrite.keys().isdisjoint(map(type, read)):
            return read
        return [rewrite[type(delta)](delta) if type(delta) in rewrite else delta for delta in read]

    async def _iterate(self) -> AsyncGenerator[KnownDelta, None]:
        try:
            async for read in self._batches:
                for delta in self._rewritten(read):
                    self._assembler.feed(delta)
                    yield delta
        finally:
            await self._batches.aclose()


def clean_assembly(arrived: Assembly, secrets: Secrets) -> Assembly:
    """Return what has arrived without the request's credentials, wherever a provider may repeat them."""
    if not secrets:
        return arrived
    return msgspec.structs.replace(
        arrived,
        message=without_secrets(arrived.message, secrets),
        partial=without_secrets(arrived.partial, secrets),
        error=without_secrets(arrived.error, secrets),
        raw_finish_reason=secrets.hide_exactly(arrived.raw_finish_reason or "") or None,
    )


def without_secrets(value: _Told, secrets: Secrets) -> _Told:
    """Return a message or delta without secrets; nearly always it is returned as it is."""
    if value is None:
        return value
    whole = _without_pieces(value, secrets) if isinstance(value, Message) else value
    written = to_json(whole)
    clean = secrets.hide_in(written)
    return cast("_Told", whole if clean is written else from_json(clean))


def _without_pieces(message: Message, secrets: Secrets) -> Message:
    """Hide a secret that is spread over parts which are read joined, and one inside which the stream was cut."""
    texts = [part.text for part in message.parts if isinstance(part, Text)]
    thoughts = [part.text for part in message.parts if isinstance(part, Thinking)]
    clean = {Text: iter(secrets.hide_pieces(texts)), Thinking: iter(secrets.hide_pieces(thoughts))}
    parts: list[Part] = []
    for part in message.parts:
        new: Part = part
        if isinstance(part, Text | Thinking):
            text = next(clean[type(part)])
            new = part if text == part.text else msgspec.structs.replace(part, text=text)
        elif isinstance(part, ToolCall) and part.parse_error:
            text = secrets.hide_exactly(part.raw_args_text)
            new = part if text == part.raw_args_text else msgspec.structs.replace(part, raw_args_text=text)
        parts.append(new)
    is_same = all(new is old for new, old in zip(parts, message.parts, strict=True))
    return message if is_same else msgspec.structs.replace(message, parts=tuple(parts))


async def guard_stream(
    source: AsyncIterator[MessageDelta],
    *,
    run_id: str = "",
    name: str = "stream",
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> AsyncGenerator[MessageDelta, None]:
    """Yield a legal stream from any async source of deltas, ended by exactly one `done` or `error`.

    Cancellation and GeneratorExit propagate; every other failure of the source becomes the closing `error`.
    The source is closed in any case.
    """
    guard = Guard(run_id=run_id, source=name)
    cause: Exception | None = None
    try:
        async for delta in source:
            legal = guard.feed(delta)
            if legal is not None:
                yield legal
            if guard.finished:
                return
    except Exception as error:  # noqa: BLE001  # whatever the source does, the stream ends legally
        cause = error
        if not isinstance(error, DragomanError):
            log_bug(error)
    finally:
        await close_quietly(getattr(source, "aclose", None))
    closing = guard.close(cause, now=clock())
    if closing is not None:
        yield closing


async def close_quietly(close: Callable[[], Awaitable[object]] | None) -> None:
    """Close the source if it can be closed. A failure to close is logged, and does not change how the stream ends."""
    if close is None:
        return
    try:
        await close()
    except Exception as error:  # noqa: BLE001  # the stream has its terminal already, or gets it
        log_bug(error)


def log_bug(error: BaseException, what: str = "a stream's source") -> None:
    """Report what should not have been raised."""
    report_raised(error, what)
