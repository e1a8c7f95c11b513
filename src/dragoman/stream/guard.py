"""Turns any source of deltas into a legal stream that ends in exactly one `done` or `error`.

Pure: the caller drives it and says what time it is. The async wrapper is in `models`.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime

from ..delta import SEQ_LIMIT, ErrorDelta, MessageDelta
from ..errors import ContractViolation, DragomanError, ErrorCode
from ..usage import amount_of
from .contract import StreamContract

__all__ = ["Guard", "guard_deltas"]


class Guard:
    """Passes legal deltas on, closes the stream with an `error` where the source breaks a rule, raises or stops early.

    Nothing passes after a terminal delta; `dropped` counts the deltas that the source sent after it.
    """

    __slots__ = ("_contract", "_run_id", "_timestamp", "dropped", "finished")

    def __init__(self, *, run_id: str = "", source: str = "stream") -> None:
        self._contract = StreamContract(source)
        self._run_id = run_id
        self._timestamp: datetime | None = None
        self.finished = False
        self.dropped = 0

    def feed(self, delta: MessageDelta) -> MessageDelta | None:
        """Return what to pass on for this delta: itself, a closing `error`, or None after the end."""
        if self.finished:
            self.dropped += 1
            return None
        try:
            self._contract.check(delta)
        except ContractViolation as violation:
            return self.close(violation)
        if self._contract.finished:
            self.finished = True
        self._run_id = delta.run_id
        self._timestamp = delta.timestamp
        return delta

    def feed_all(self, deltas: list[MessageDelta]) -> list[MessageDelta]:
        """Return what to pass on for these deltas: the same as `feed` for each of them, faster."""
        taken = 0 if self.finished else self._contract.take(deltas)
        if taken:
            self.finished = self._contract.finished
            self._run_id = deltas[taken - 1].run_id
            self._timestamp = deltas[taken - 1].timestamp
        if taken == len(deltas):
            return deltas
        legal = (self.feed(delta) for delta in deltas[taken:])
        return deltas[:taken] + [delta for delta in legal if delta is not None]

    def close(self, cause: Exception | None = None, *, now: datetime | None = None) -> ErrorDelta | None:
        """Return the closing `error` if the stream has not ended: for `cause`, or because the source stopped early."""
        if self.finished:
            return None
        self.finished = True
        header = (self._run_id, min(self._contract.last_seq + 1, SEQ_LIMIT), now or self._timestamp)
        if cause is None:
            message = "the stream ended before the provider said that it was finished"
            return ErrorDelta(*header, ErrorCode.STREAM_TRUNCATED, message)
        if not isinstance(cause, DragomanError):
            # Its text may hold anything, a prompt or a key included: only the type is told.
            return ErrorDelta(*header, ErrorCode.INTERNAL, f"the source of the stream raised {type(cause).__name__}")
        return ErrorDelta(
            *header,
            cause.code,
            str(cause),
            cause.retryable,
            amount_of(cause.retry_after),
            cause.request_id,
            cause.provider_message,
        )


def guard_deltas(deltas: Iterable[MessageDelta], *, run_id: str = "", source: str = "stream") -> Iterator[MessageDelta]:
    """Yield a legal stream from any iterable of deltas; an Exception of the source becomes the closing `error`."""
    guard = Guard(run_id=run_id, source=source)
    cause: Exception | None = None
    try:
        for delta in deltas:
            legal = guard.feed(delta)
            if legal is not None:
                yield legal
            if guard.finished:
                return
    except Exception as error:  # noqa: BLE001  # whatever the source does, the stream ends legally
        cause = error
    closing = guard.close(cause)
    if closing is not None:
        yield closing
