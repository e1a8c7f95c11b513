"""Listens to PostgreSQL for sessions that have changed: one connection, in a thread of its own."""

import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING

from ..errors import DragomanError, ErrorCode, StoreError
from .following import Notices
from .postgres_database import translated

if TYPE_CHECKING:
    import psycopg

__all__ = ["Listener"]

FIRST_DELAY, LONGEST_DELAY = 0.05, 5.0  # seconds between two attempts to reach a server that is gone


class Listener:
    """Wakes the followers in `notices`. It replaces a lost connection, and retries until that works.

    A notification names sessions, one in each line; an empty one means all.
    """

    def __init__(self, connect: "Callable[[], psycopg.Connection]", channel: str, notices: Notices) -> None:
        self._connect = connect
        self._channel = channel
        self._notices = notices
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stop: socket.socket | None = None

    @property
    def is_listening(self) -> bool:
        """Whether its thread works."""
        return self._thread is not None and self._thread.is_alive()

    def listen(self) -> None:
        """Begin to listen, unless it has. When it returns, nothing that is appended from now on is missed. Blocks.

        Raises StoreError if there is no connection, and no file descriptor or thread left.
        """
        with self._lock:
            if self.is_listening or self._notices.is_closed:
                return
            try:
                self._start()
            except (OSError, RuntimeError) as error:  # no file descriptor, or no thread, is left
                raise StoreError(f"the store cannot listen: {error}", code=ErrorCode.CONNECTION) from error

    def _start(self) -> None:
        with ExitStack() as opened:
            connection = opened.enter_context(closing(self._open()))
            stop, stopped = (opened.enter_context(each) for each in socket.socketpair())
            # One for the whole life of the thread: later there may be no file descriptor left.
            selector = opened.enter_context(selectors.DefaultSelector())
            selector.register(stopped, selectors.EVENT_READ)
            thread = threading.Thread(
                target=self._work, args=(connection, stopped, selector), name="dragoman-store-listener", daemon=True
            )
            thread.start()
            opened.pop_all()  # they belong to the thread now, and `stop` to this object
        self._thread, self._stop = thread, stop

    def close(self) -> None:
        """End the thread. Blocks."""
        with self._lock:
            thread, stop = self._thread, self._stop
            self._stop = None
        if stop is not None:
            stop.close()
        if thread is not None:
            thread.join()

    # ------------------------------------------------------------ in the thread

    def _work(self, connection: "psycopg.Connection", stopped: socket.socket, selector: selectors.BaseSelector) -> None:
        found: psycopg.Connection | None = connection
        with stopped, selector:
            while found is not None:
                with closing(found):
                    self._hear(found, stopped, selector)
                found = self._open_again(stopped, selector)

    def _hear(self, connection: "psycopg.Connection", stopped: socket.socket, selector: selectors.BaseSelector) -> None:
        """Pass on what comes, until the connection is lost or it is time to stop."""
        import psycopg

        try:
            with _selected(selector, connection.fileno()):
                while not _is_time_to_stop(stopped, selector):
                    for notice in connection.notifies(timeout=0):
                        if notice.payload:
                            self._notices.tell(notice.payload.split("\n"))
                        else:
                            self._notices.tell_all()
        except (psycopg.Error, OSError):  # lost
            return

    def _open_again(self, stopped: socket.socket, selector: selectors.BaseSelector) -> "psycopg.Connection | None":
        """Another connection, None if it is time to stop."""
        delay = 0.0
        while not _is_time_to_stop(stopped, selector, delay):
            try:
                connection = self._open()
            except (DragomanError, OSError):
                delay = min(max(FIRST_DELAY, 2 * delay), LONGEST_DELAY)
                continue
            self._notices.tell_all()  # they missed the notices in between
            return connection
        return None

    def _open(self) -> "psycopg.Connection":
        connection = self._connect()
        try:
            with translated():
                connection.execute(f'LISTEN "{self._channel}"'.encode())
        except BaseException:
            connection.close()
            raise
        return connection


@contextmanager
def _selected(selector: selectors.BaseSelector, descriptor: int) -> Iterator[None]:
    """Let the selector wait for this one too, inside of the block: after it, its number may be another's."""
    selector.register(descriptor, selectors.EVENT_READ)
    try:
        yield
    finally:
        selector.unregister(descriptor)


def _is_time_to_stop(stopped: socket.socket, selector: selectors.BaseSelector, seconds: float | None = None) -> bool:
    """Wait until there is something to hear, or so long, and return whether it is time to stop."""
    return any(key.fd == stopped.fileno() for key, _ in selector.select(seconds))
