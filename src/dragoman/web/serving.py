"""Runs an aiohttp application until a signal ends it: one line when it is ready, exit within ten seconds."""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from aiohttp import web

from ..errors import DragomanError, ErrorCode
from .connections import ConnectionLimits, Connections, Refuse

__all__ = ["limits_for", "serve_until_stopped", "serving"]

log = logging.getLogger("dragoman.serve")
SHUTDOWN_SECONDS = 1.0  # aiohttp waits as long twice for its handlers
LAST_SECONDS = 9.0  # after the signal; then the process ends whatever it does
OWN_FILES = 64  # of the store, the log and the program itself
FILES = 10_000


def limits_for(answers_at_once: int) -> ConnectionLimits:
    """Return the limits that leave the process files enough for this many answers, each with its upstream.

    Where there are few files, each connection may have an upstream, and there are fewer answers at once.
    """
    room = max(_allowed_files() - OWN_FILES, 32)
    spare = max(room - 2 * answers_at_once, room // 2)
    backlog = min(spare // 4, ConnectionLimits().backlog)
    return ConnectionLimits(connections=spare - backlog, backlog=backlog)


@asynccontextmanager
async def serving(
    application: web.Application, *, host: str, port: int, refuse: Refuse, limits: ConnectionLimits | None = None
) -> AsyncIterator[str]:
    """Serve on this address, and yield its URL. On leaving, take no more connections and end those that are there.

    `refuse` writes the answers to requests that no application sees: those that are no HTTP, or come too slowly.
    """
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        assert runner.server is not None
        limits = limits or ConnectionLimits()
        connections = Connections(
            runner.server.request_handler, runner.server.request_factory, limits=limits, refuse=refuse
        )
        loop = asyncio.get_running_loop()
        try:
            listener = await loop.create_server(connections, host, port, backlog=limits.backlog)
        except OSError as error:
            message = f"the server cannot listen on {host} port {port}: {error.strerror}"
            raise DragomanError(message, code=ErrorCode.CONNECTION) from error
        try:
            bound = listener.sockets[0].getsockname()
            yield f"http://[{bound[0]}]:{bound[1]}" if ":" in bound[0] else f"http://{bound[0]}:{bound[1]}"
        finally:
            listener.close()
            connections.pre_shutdown()
            await connections.shutdown(SHUTDOWN_SECONDS)
    finally:
        await runner.cleanup()


async def serve_until_stopped(
    application: web.Application,
    *,
    host: str,
    port: int,
    ready: Callable[[str], None],
    stop: Callable[[], Awaitable[None]],
    refuse: Refuse,
    limits: ConnectionLimits | None = None,
) -> None:
    """Serve on this address; call `ready` with its URL, and `stop` at SIGTERM or SIGINT, then end.

    A second signal ends the process at once.
    """
    async with serving(application, host=host, port=port, refuse=refuse, limits=limits) as address:
        ended = asyncio.Event()
        _take_signals(ended)
        ready(address)
        await ended.wait()
        await stop()


def _take_signals(ended: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)

    def end() -> None:
        for number in numbers:
            with suppress(NotImplementedError):
                loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)  # of the second one, the process dies
        last = threading.Timer(LAST_SECONDS, _give_up)
        last.daemon = True
        last.start()
        ended.set()

    for number in numbers:
        try:
            loop.add_signal_handler(number, end)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(end))


def _give_up() -> None:
    """End a process that hangs: in a thread, or in a store that does not answer. The record loses nothing by it."""
    log.error("the server did not end within %g s of the signal, and is ended now", LAST_SECONDS)
    os._exit(1)


def _allowed_files() -> int:
    """How many files and connections this process may open, once it has asked for as many as it may ask for."""
    try:
        import resource  # not on Windows
    except ImportError:
        return 512
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft
