"""Streams from the outside world, held to the contract. Knows no wire format."""

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime

from .delta import MessageDelta
from .errors import DragomanError
from .stream import Guard

__all__ = ["guard_stream"]


async def guard_stream(
    source: AsyncIterator[MessageDelta],
    *,
    run_id: str = "",
    name: str = "stream",
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> AsyncIterator[MessageDelta]:
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
            _log_bug(error)
    finally:
        await _close_source(source)
    closing = guard.close(cause, now=clock())
    if closing is not None:
        yield closing


async def _close_source(source: object) -> None:
    """Close a source that can be closed; that it fails to is a bug of its own, not the stream's end."""
    close = getattr(source, "aclose", None)
    if close is None:
        return
    try:
        await close()
    except Exception as error:  # noqa: BLE001  # the stream has its terminal already, or gets it
        _log_bug(error)


def _log_bug(error: Exception) -> None:
    """Log where it happened, not what it said: the text of a foreign exception may hold a prompt or a key."""
    import logging
    import traceback

    where = "".join(traceback.format_tb(error.__traceback__))
    logging.getLogger("dragoman").error("a stream's source raised %s\n%s", type(error).__name__, where)
