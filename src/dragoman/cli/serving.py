"""`dragoman serve`: a gateway that speaks the vendors' APIs, with any model behind and a record of all."""

import argparse
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InvalidValue
from .arguments import add_common, add_store, natural
from .config import configured
from .output import Output, warn

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..store import SessionStore
    from ..web.connections import ConnectionLimits
    from ..web.gateway.application import Gateway
    from ..web.gateway.replay import Replay
    from .settings import Settings

__all__ = ["add_arguments"]

LEVELS = ("debug", "info", "warning", "error")
PORT = 4505
INSPECTOR = "/inspect"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the command its arguments."""
    add_common(parser, serve)
    add_store(parser)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument("--port", type=natural, default=PORT, help="0 takes a free one (%(default)s)")
    parser.add_argument(
        "--model", action="append", default=[], dest="routes", metavar="NAME=PROVIDER:MODEL",
        help="which model answers a name; NAME may end in *; again for the same name: a fallback",
    )  # fmt: skip
    parser.add_argument("--keys", type=Path, metavar="FILE", help="TOML: a table per key, with its limits")
    parser.add_argument("--allow-host", action="append", default=[], metavar="NAME", help="a name that clients may use")
    parser.add_argument("--replay", metavar="PLACE", help="answer from this store alone; ask no model")
    parser.add_argument("--fold", type=natural, metavar="TOKENS", help="keep each context in this budget")
    parser.add_argument("--read-only-record", action="store_true", help="forward and record, never translate")
    parser.add_argument("--pass-others", action="store_true", help="pass what has no front to its vendor, unrecorded")
    parser.add_argument("--max-body", type=natural, default=64, metavar="MB", help="of a request (%(default)s)")
    parser.add_argument("--max-answers", type=natural, default=200, metavar="N", help="at once (%(default)s)")
    parser.add_argument(
        "--telemetry", action="store_true", help="spans and metrics to OpenTelemetry's global providers; no content"
    )
    parser.add_argument("--log-level", choices=LEVELS, default="info", help="what standard error tells (%(default)s)")


def serve(chosen: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT."""
    import asyncio
    import logging

    from ..request import ObservabilityConfig
    from ..telemetry import Telemetry
    from ..web.gateway.access import is_loopback
    from ..web.gateway.application import Gateway, GatewaySettings
    from ..web.gateway.keys import KEY_VARIABLE, read_keys
    from ..web.gateway.routes import Routes
    from ..web.serving import limits_for
    from .modelchoice import open_model

    chosen.model = None  # a route here, and no setting
    settings = configured(chosen)
    if chosen.port > 65_535:
        raise InvalidValue("--port must be from 0 to 65535")
    if chosen.fold is not None and chosen.fold < 2_000:
        raise InvalidValue("--fold must be 2000 tokens or more")
    routes, keys = Routes(chosen.routes), read_keys(chosen.keys)
    if chosen.keys is not None and chosen.keys.stat().st_mode & 0o077 and os.name == "posix":
        warn(f"{chosen.keys} can be read by other users of this machine: chmod 600 {chosen.keys}")
    telemetry = Telemetry(ObservabilityConfig(traces=True, metrics=True)) if chosen.telemetry else None
    if not keys and not is_loopback(chosen.host):
        raise InvalidValue(
            f"without a key only this machine is served: set {KEY_VARIABLE} or give --keys, or leave out --host"
        )
    logging.basicConfig(
        level=chosen.log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    served = GatewaySettings(
        fold=chosen.fold,
        translates=not chosen.read_only_record,
        passes_others=chosen.pass_others,
        body_limit=max(chosen.max_body, 1) << 20,
        answers_at_once=max(chosen.max_answers, 1),
        hosts=frozenset((*chosen.allow_host, chosen.host)),
    )

    def open_gateway(store: "SessionStore", replay: "Replay | None") -> Gateway:
        opener = partial(open_model, settings)
        return Gateway(store, routes, opener, keys=keys, settings=served, replay=replay, telemetry=telemetry)

    asyncio.run(_serve(chosen, settings, open_gateway, limits_for(served.answers_at_once)))
    return 0


async def _serve(
    chosen: argparse.Namespace,
    settings: "Settings",
    open_gateway: "Callable[[SessionStore, Replay | None], Gateway]",
    limits: "ConnectionLimits",
) -> None:
    import secrets

    from ..web.gateway.refusals import refuse_unread
    from ..web.gateway.replay import Replay
    from ..web.serving import serve_until_stopped
    from .inspecting import open_inspector
    from .places import checked_place, is_address
    from .stores import open_store

    location = checked_place(chosen.replay, "--replay") if chosen.replay else settings.store
    async with open_store(location, creates=chosen.replay is None) as store:
        if is_address(location) and chosen.replay is None:
            await store.migrate()  # type: ignore[union-attr]  # a PostgresStore, as its address says
        gateway = open_gateway(store, Replay(store) if chosen.replay else None)
        token = secrets.token_urlsafe(24)
        page = open_inspector(
            settings,
            store,
            token,
            path=INSPECTOR,
            hosts=(chosen.host, *chosen.allow_host),
            read_only=bool(chosen.replay),
        )
        application = gateway.application({INSPECTOR: page})
        ready = partial(_tell, token)
        await serve_until_stopped(
            application,
            host=chosen.host,
            port=chosen.port,
            ready=ready,
            stop=gateway.stop,
            refuse=refuse_unread,
            limits=limits,
        )


def _tell(token: str, address: str) -> None:
    """Say that the gateway is ready: one line on standard output. Who may see the record is told apart from it."""
    place = address.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")  # no browser opens these
    sys.stderr.write(f"the record in a browser: {place}{INSPECTOR}/?token={token}\n")
    sys.stderr.flush()
    Output().line(f"dragoman serves {address}")
    sys.stdout.flush()
