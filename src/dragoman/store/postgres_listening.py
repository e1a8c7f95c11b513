"""Listens to PostgreSQL for sessions that have changed: one connection, in a thread of its own."""

import selectors
import socket
import threading
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from ..errors import DragomanError
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
        """Whether it has begun to listen."""
        return self._thread is not None

    def listen(self) -> None:
        """Begin to listen, unless it has. When it returns, nothing that is appended from now on is missed. Blocks."""
        with self._lock:
            if self._thread is not None or self._notices.is_closed:
                return
            connection = self._open()
            self._stop, stopped = socket.socketpair()
            self._thread = threading.Thread(
                target=self._work, args=(connection, stopped), name="dragoman-store-listener", daemon=True
            )
            self._thread.start()

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

    def _work(self, connection: "psycopg.Connection", stopped: socket.socket) -> None:
        found: psycopg.Connection | None = connection
        with stopped:
            while found is not None:
                with closing(found):
                    self._hear(found, stopped)
                found = self._open_again(stopped)

    def _hear(self, connection: "psycopg.Connection", stopped: socket.socket) -> None:
        """Pass on what comes, until the connection is lost or it is time to stop."""
        import psycopg

        try:
            while not _is_time_to_stop(stopped, connection.fileno()):
                for notice in connection.notifies(timeout=0):
                    if notice.payload:
                        self._notices.tell(notice.payload.split("\n"))
                    else:
                        self._notices.tell_all()
        except (psycopg.Error, OSError):  # lost
            return

    def _open_again(self, stopped: socket.socket) -> "psycopg.Connection | None":
        """Another connection, None if it is time to stop."""
        delay = 0.0
        while not _is_time_to_stop(stopped, seconds=delay):
            try:
                connection = self._open()
            except DragomanError:
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


def _is_time_to_stop(stopped: socket.socket, *others: int, seconds: float | None = None) -> bool:
    """Wait until there is something to hear, or so long, and return whether it is time to stop."""
    with selectors.DefaultSelector() as selector:
        for each in (stopped.fileno(), *others):
            selector.register(each, selectors.EVENT_READ)
        return any(key.fd == stopped.fileno() for key, _ in selector.select(seconds))
