"""`dragoman worker`: carries requested runs on until it is told to stop."""

import argparse
import sys
from typing import TYPE_CHECKING

from ..errors import DragomanError, ErrorCode
from .arguments import add_common, seconds, whole
from .config import configured
from .engines import add_engine, open_engine, prepare
from .output import Output

if TYPE_CHECKING:
    from aiohttp import web

    from ..durable import Agents, Engine, Worker
    from ..store import SessionStore
    from .stopping import StopSignals

__all__ = ["add_arguments"]

LOCAL_SWEEP_SECONDS = 1.0  # without a server that tells, a worker looks for requests as often as this
SWEEP_SECONDS = 60.0
MOST_SLOTS = 10_000
MOST_PORT = 65_535
END_SECONDS = 2.0  # to give leases back and close connections, after runs that did not stop in time
LEFT = "runs that did not reach their next entry in time were left to other workers"
LEVELS = ("debug", "info", "warning", "error")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its arguments."""
    add_common(parser, work)
    parser.add_argument(
        "--agents", required=True, metavar="MODULE:NAME", help="the registry, such as app.agents:agents"
    )
    add_engine(parser)
    parser.add_argument(
        "--slots", type=whole(1, MOST_SLOTS), default=8, metavar="N", help="runs at a time (%(default)s)"
    )
    parser.add_argument(
        "--stop-seconds",
        type=seconds,
        default=20.0,
        metavar="S",
        help="for runs to reach their next entry (%(default)s)",
    )
    parser.add_argument(
        "--health-port",
        type=whole(0, MOST_PORT),
        default=0,
        metavar="PORT",
        help="of /healthz and /readyz; 0 takes a free one",
    )
    parser.add_argument("--log-level", choices=LEVELS, default="info", help="what standard error tells (%(default)s)")


def work(chosen: argparse.Namespace) -> int:
    """Work until SIGTERM or SIGINT; return 0, also if runs were left to other workers."""
    from .stopping import Stopped, StopSignals

    with StopSignals(chosen.stop_seconds + END_SECONDS) as signals:  # before everything that takes time
        import asyncio

        try:
            in_time = _start(chosen, signals)
        except (Stopped, asyncio.CancelledError):  # before it began to work
            return 0
        if not in_time:
            signals.end_process()  # their tools may still run in threads, and must not go on without a lease
    return 0


def _start(chosen: argparse.Namespace, signals: "StopSignals") -> bool:
    """Import the agents, and work; return False if runs are still under way."""
    import asyncio
    import logging

    from .registry import load_agents

    settings = configured(chosen)
    agents = load_agents(chosen.agents)
    signals.take()  # the user's module may have taken them
    if signals.is_received:  # and it may have kept the exception to itself
        return True
    logging.basicConfig(
        level=chosen.log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    return asyncio.run(_work(chosen, settings.store, agents, signals))


async def _work(chosen: argparse.Namespace, location: str, agents: "Agents", signals: "StopSignals") -> bool:
    import asyncio

    from .stores import open_store

    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    signals.stop = lambda: loop.call_soon_threadsafe(task.cancel)
    try:
        async with open_store(location, creates=True) as store:
            engine = open_engine(chosen, location, store)
            try:
                await prepare(location, store, engine)
                return await _work_with(chosen, _worker(chosen, store, engine, agents), agents, signals)
            finally:
                await engine.close()
    finally:
        signals.stop = _do_nothing  # it stops already, and the loop will be closed


def _worker(chosen: argparse.Namespace, store: "SessionStore", engine: "Engine", agents: "Agents") -> "Worker":
    from ..durable import LocalEngine, Worker

    return Worker(
        store,
        engine,
        agents,
        slots=chosen.slots,
        stop_seconds=chosen.stop_seconds,
        sweep_seconds=LOCAL_SWEEP_SECONDS if isinstance(engine, LocalEngine) else SWEEP_SECONDS,
    )


async def _work_with(chosen: argparse.Namespace, worker: "Worker", agents: "Agents", signals: "StopSignals") -> bool:
    """Answer questions about the worker's health while it works; a signal stops it."""
    import asyncio

    loop = asyncio.get_running_loop()
    runner, address = await _serve_health(worker, chosen.health_port)
    try:
        signals.stop, signals.late_words = lambda: loop.call_soon_threadsafe(worker.stop), LEFT
        await asyncio.sleep(0)  # a signal that came before this cancels here, and not while the worker works
        working = asyncio.ensure_future(worker.run())
        await worker.ready()
        if worker.is_ready and not signals.is_received:  # a signal may come while the worker opens its store
            names = ", ".join(agents.names) or "no agents"
            Output().line(f"dragoman works: {names}; {chosen.slots} slots; health at {address}/healthz")
            sys.stdout.flush()
        return await working
    finally:
        await runner.cleanup()


def _do_nothing() -> None:
    """Do nothing."""


async def _serve_health(worker: "Worker", port: int) -> "tuple[web.AppRunner, str]":
    """Answer on loopback whether the worker lives, and whether it takes orders."""
    from aiohttp import web

    async def health(_request: web.Request) -> web.Response:
        return web.json_response({"status": "ok", "runs": worker.count})

    async def readiness(_request: web.Request) -> web.Response:
        return web.json_response({"ready": worker.is_ready}, status=200 if worker.is_ready else 503)

    application = web.Application()
    application.add_routes([web.get("/healthz", health), web.get("/readyz", readiness)])
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
    except OSError as error:
        await runner.cleanup()
        words = f"port {port} cannot be used: {error.strerror}; name another with --health-port, or 0 for a free one"
        raise DragomanError(words, code=ErrorCode.CONNECTION) from error
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"
