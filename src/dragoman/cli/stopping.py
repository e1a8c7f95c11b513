"""SIGTERM and SIGINT for a command that shall end well: at any moment, once, and in bounded time."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from .output import warn

__all__ = ["StopSignals", "Stopped"]

SIGNALS = (signal.SIGTERM, signal.SIGINT)
WRITE_SECONDS = 1.0  # for the last words: a pipe may be full, and its reader may not read


class Stopped(BaseException):
    """A signal came while nothing could be stopped yet. No Exception, so that code of others does not handle it."""


class StopSignals:
    """Takes the signals inside of its block. The first one calls `stop`; `seconds` after it the process ends.

    Without a `stop` it raises Stopped where the main thread is: nothing is under way that must end well.
    """

    def __init__(self, seconds: float) -> None:
        self.is_received = False
        self.stop: Callable[[], object] = _raise_stopped
        self.late_words = "the worker was stopped before it began to work"  # said if the process must be ended
        self._before: dict[signal.Signals, Any] = {}
        self._timer = threading.Timer(seconds, self.end_process)
        self._timer.daemon = True

    def __enter__(self) -> "StopSignals":
        self._before = {number: signal.getsignal(number) for number in SIGNALS}
        self.take()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def take(self) -> None:
        """Take the signals, also from code that has taken them meanwhile."""
        for number in SIGNALS:
            signal.signal(number, self._receive)

    def end_process(self) -> None:
        """Say `late_words` and end the process, also if these words cannot be written or writing them blocks."""
        try:
            last = threading.Timer(WRITE_SECONDS, os._exit, (0,))
            last.daemon = True
            last.start()
            warn(self.late_words)
            sys.stdout.flush()
        finally:
            os._exit(0)

    def _receive(self, _number: int, _frame: object) -> None:  # called also while a tool blocks the event loop
        if not self.is_received:
            self.is_received = True
            self._timer.start()
            self.stop()


def _raise_stopped() -> None:
    raise Stopped
