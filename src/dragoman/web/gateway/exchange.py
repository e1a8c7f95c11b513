"""One request of a client, from its record to the record of its answer."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import quote

from msgspec.structs import replace

from ...delta import ErrorDelta
from ...errors import DragomanError, ErrorCode, ModelError, report_raised
from ...stream import AnswerForm, Assembly, frame_events
from ...wire import find_codec
from .asked import Given
from .attempts import Attempt, most_useful
from .fronts import GEMINI
from .opening import Opener
from .passing import TOO_LARGE, WHOLE_LIMIT, PassedAnswer
from .responses import response_marks
from .upstream import as_error

if TYPE_CHECKING:
    from aiohttp import web

    from ...models import Model
    from .asked import Asked
    from .delivery import Delivery
    from .fronts import Front
    from .observing import Observed, ObservedCall
    from .recorder import Turn
    from .upstream import UpstreamAnswer

__all__ = ["STOPPED", "Exchange"]

# What any model would refuse: the next one is not asked.
_FINAL = frozenset({ErrorCode.INVALID_REQUEST, ErrorCode.CONTENT_FILTERED})
# Causes that end an answer early, whether or not something of it had come. A refusal is no answer.
_CUTS = frozenset({ErrorCode.STREAM_TRUNCATED, ErrorCode.CANCELLED})
_LEFT = "the client closed the connection"
STOPPED = "the gateway is being stopped: ask again"
MOST_TRIED = 20  # that the record tells of
STOP_SECONDS = 2.0  # for a client to take the end of its answer, and again for its record


class Exchange:
    """Asks the models of a request in their order and delivers the first answer that comes.

    The client is told the finish of an answer when the answer is recorded.
    """

    def __init__(
        self,
        asked: "Asked",
        front: "Front",
        headers: Mapping[str, str],
        *,
        turn: "Turn",
        delivery: "Delivery",
        seen: "Observed",
        fold: int | None = None,
        translates: bool = True,
    ) -> None:
        self.assembly = Assembly()
        self._asked_at: datetime | None = None
        self.model = ""
        self.way = "translated"
        self.cause: ErrorCode | None = None  # why there is no answer, or not all of it
        self.is_cut = False  # something of the answer had come
        self.has_left = False  # the client, before the end of its answer
        self.is_ending = False  # the whole answer has come, and is being read out and recorded
        self.is_stopping = False
        self.failed: list[Attempt] = []  # models that failed, other than `model`
        self._asked = asked
        self.front = front
        self._turn = turn
        self._delivery = delivery
        delivery.told = self._told_of_record
        self._seen = seen
        self._opener = Opener(
            asked=asked, front=front, headers=headers, turn=turn, fold=fold, translates=translates
        )  # fmt: skip
        self._codec = find_codec(front.api)

    async def run(self, models: "Sequence[Callable[[], Model]]") -> "web.StreamResponse":
        """Return the response, delivered; raise CancelledError where the client leaves before its end."""
        for number, open_model in enumerate(models):
            self.model, self.way, self._asked_at = "", "translated", None
            answer: UpstreamAnswer | None = None
            call: ObservedCall | None = None
            try:
                model = open_model()
                answer = await self._open(model)
                call = self._seen.begin_call(model, self._asked.read, number)
                self._asked_at = datetime.now(UTC)
                error = await answer.open(holds=len(models) > 1)
                call.note_first_bytes()
                failure = error or answer.assembly.error  # nothing was delivered yet, whatever has come
                if failure is None or len(models) == 1:
                    return await self._deliver(answer, error)
            except (asyncio.CancelledError, ConnectionError):  # the latter where the client left as it was written to
                return await self._broken_off(answer)
            except Exception as error:  # noqa: BLE001  # a bug of ours ends the answer as any other failure does
                if not isinstance(error, DragomanError):
                    report_raised(error, "the gateway")
                failure = as_error(error)
                if self._delivery.has_begun:
                    return await self._fail(failure, answer)
            finally:
                if answer is not None:
                    await answer.close()
                if call is not None and answer is not None:
                    call.end(answer.assembly)
            self.failed.append(Attempt(self.model, self.way, self._asked_at, failure, answer))
            if failure.error_code in _FINAL:
                break
        return await self._fail_all()

    async def _open(self, model: "Model") -> "UpstreamAnswer":
        self.model = f"{model.client.dialect.provider}:{model.get_config().model_id}"
        answer = await self._opener.open(model, self.model)
        self.way = "passed" if isinstance(answer, PassedAnswer) else "translated"
        return answer

    async def _fail_all(self) -> "web.StreamResponse":
        """No model answers. The client is told the failure that it can best act on."""
        told = most_useful(self.failed)
        self.failed.remove(told)
        self.model, self.way, self._asked_at = told.model, told.way, told.asked_at
        try:
            return await self._fail(told.error, told.answer)
        except (asyncio.CancelledError, ConnectionError):
            return await self._broken_off(told.answer)

    async def _deliver(self, answer: "UpstreamAnswer", error: ErrorDelta | None) -> "web.StreamResponse":
        delivery = self._delivery
        if error is not None:
            return await self._fail(error, answer)
        headers = {**answer.headers, **self._told()}
        if not self._asked.is_stream or "text/event-stream" not in headers.get("content-type", ""):
            body = b"".join([piece async for piece in answer.pieces()])
            is_array = self._asked.api == GEMINI  # whose stream without `alt=sse` is one
            if await delivery.settle() or (self._asked.is_stream and not is_array and answer.status == 200):
                error = as_error(ModelError("the model's answer is no stream", code=ErrorCode.PROTOCOL_VIOLATION))
                return await self._fail(error, answer)
            self.is_ending = True
            await self._record(answer, answer.status, headers, body, is_whole=answer.is_whole)
            return delivery.whole(answer.status, {**headers, **self._told()}, body)
        await delivery.begin(answer.status, headers)
        held = b""
        async for piece in answer.pieces():
            if answer.is_whole:
                self.is_ending = True
                held += piece
            else:
                await delivery.write(piece)
            if delivery.size + len(held) > WHOLE_LIMIT:
                return await self._fail(as_error(ModelError(TOO_LARGE, code=ErrorCode.PROTOCOL_VIOLATION)), answer)
        self.is_ending = True
        await self._record(answer, delivery.status, headers, delivery.body(held), is_whole=answer.is_whole)
        if held:
            await delivery.write(held)
        return await delivery.finish(is_cut=not answer.is_whole)

    async def _fail(self, error: ErrorDelta, answer: "UpstreamAnswer | None") -> "web.StreamResponse":
        """Tell the client that no model answers: by a status, or, once the head has gone out, by an event."""
        delivery, self.cause = self._delivery, error.error_code
        if await delivery.settle():
            event = self._error_event(error)
            body = delivery.body(event)
            await self._record(answer, delivery.status, delivery.headers, body, is_whole=False, error=error)
            await delivery.write(event)
            return await delivery.finish(is_cut=True)
        status, headers, body = self._written(error, answer)
        await self._record(answer, status, headers, body, is_whole=True, error=error)
        return delivery.whole(status, {**headers, **self._told()}, body)

    def _written(self, error: ErrorDelta, answer: "UpstreamAnswer | None") -> tuple[int, dict[str, str], bytes]:
        """Status, fields and body of a failure before the head: the upstream's own where it speaks the same API."""
        refusal = answer.refusal() if answer is not None else None
        if answer is not None and refusal is not None:
            return answer.status, answer.headers, refusal
        assert self._codec.write_error is not None
        written = self._codec.write_error(error)
        return written.status, written.headers, written.body

    async def _broken_off(self, answer: "UpstreamAnswer | None") -> "web.StreamResponse":
        """The client left, or the gateway stops: record what had come, and end the stream if there is who reads it."""
        if answer is not None:
            await answer.close()
        delivery = self._delivery
        if self.is_stopping:
            return await self._stop(ErrorDelta("", 0, None, ErrorCode.OVERLOADED, STOPPED), answer)
        self.has_left = True
        error = ErrorDelta("", 0, None, ErrorCode.CANCELLED, _LEFT)
        self.cause = error.error_code
        delivery.stop()
        await self._record(answer, delivery.status, delivery.headers, delivery.body(), is_whole=False, error=error)
        raise asyncio.CancelledError

    async def _stop(self, error: ErrorDelta, answer: "UpstreamAnswer | None") -> "web.StreamResponse":
        """End a stream because the gateway stops. The client is told first: the store may take longer than there is."""
        delivery, self.cause, response = self._delivery, error.error_code, None
        if await delivery.settle():
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await delivery.write(self._error_event(error))
                    response = await delivery.finish(is_cut=True)
            status, headers, body = delivery.status, delivery.headers, delivery.body()
        else:
            status, headers, body = self._written(error, answer)
            response = delivery.whole(status, {**headers, **self._told()}, body)
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await self._record(answer, status, headers, body, is_whole=False, error=error)
        if response is None:
            raise ConnectionError("the client does not read its answer")
        return response

    async def _record(
        self,
        answer: "UpstreamAnswer | None",
        status: int,
        headers: Mapping[str, str],
        body: bytes,
        *,
        is_whole: bool,
        error: ErrorDelta | None = None,
    ) -> None:
        arrived = answer.assembly if answer is not None else Assembly()
        if error is not None and arrived.error is None:  # also of a whole answer: the client does not have it
            arrived = replace(arrived, message=None, partial=arrived.partial or arrived.message, error=error)
        self.assembly = arrived
        if arrived.error is not None:
            self.cause = arrived.error.error_code
            said = arrived.partial or arrived.message
            self.is_cut = self.cause in _CUTS or (said is not None and bool(said.parts))
        marks = response_marks(self._asked, body, is_whole=is_whole)
        kept = {name: value for name, value in headers.items() if not name.startswith("x-dragoman-")}
        await self._turn.end(
            Given(
                status=status, body=body, headers=kept, model=self.model, assembly=arrived, is_whole=is_whole,
                is_passed=self.way == "passed" and error is None, asked_at=self._asked_at, marks=marks,
                tried=tuple(attempt.facts() for attempt in self.failed[:MOST_TRIED]),
            )
        )  # fmt: skip

    def _error_event(self, error: ErrorDelta) -> bytes:
        assert self._codec.open_writer is not None
        writer = self._codec.open_writer(AnswerForm(answer_id="failed", model=self._asked.model))
        return frame_events(writer.break_off(error, self._delivery.body()))

    def _told(self) -> dict[str, str]:
        """What the client is told of the model and the record."""
        told = {"x-dragoman-model": self.model} if self.model.isascii() and self.model.isprintable() else {}
        return {**told, **self._told_of_record()}

    def _told_of_record(self) -> dict[str, str]:
        """What the client is told of the record. A name goes into a header as it goes into a URL."""
        if self._turn.fault:
            return {"x-dragoman-record": "failed"}
        session_id = self._turn.told_session_id
        return {"x-dragoman-session": quote(session_id, safe="")} if session_id else {}
