"""Runs an aiohttp application until a signal ends it: one line when it is ready, exit within ten seconds."""

import asyncio
import signal
from collections.abc import Awaitable, Callable

from aiohttp import web

from ..errors import DragomanError, ErrorCode

__all__ = ["serve_until_stopped"]

SHUTDOWN_SECONDS = 3.0


async def serve_until_stopped(
    application: web.Application,
    *,
    host: str,
    port: int,
    ready: Callable[[str], None],
    stop: Callable[[], Awaitable[None]],
) -> None:
    """Serve on this address; call `ready` with its URL, and `stop` at SIGTERM or SIGINT, then end."""
    runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=SHUTDOWN_SECONDS)
    await runner.setup()
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    try:
        try:
            await web.TCPSite(runner, host, port, backlog=1024).start()
        except OSError as error:
            message = f"the gateway cannot listen on {host} port {port}: {error.strerror}"
            raise DragomanError(message, code=ErrorCode.CONNECTION) from error
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ended.set)
        bound = runner.addresses[0]
        shown = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
        ready(f"http://{shown}:{bound[1]}")
        await ended.wait()
        await stop()
    finally:
        await runner.cleanup()
