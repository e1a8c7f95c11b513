"""Engines by what a person types: `postgres`, `temporal`, or `local` for the workers of one machine."""

import argparse
from typing import TYPE_CHECKING

from ..errors import InvalidValue
from .arguments import add_store
from .config import is_address

if TYPE_CHECKING:
    from ..durable import Engine
    from ..store import SessionStore

__all__ = ["add_engine", "open_engine"]

ENGINES = ("postgres", "temporal", "local")


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Give a command `--store`, `--engine` and `--address`."""
    add_store(parser)
    parser.add_argument(
        "--engine", choices=ENGINES, help="who schedules runs (postgres for a store there, local for a file)"
    )
    parser.add_argument("--address", metavar="HOST:PORT", help="where Temporal's server is (127.0.0.1:7233)")


def open_engine(chosen: argparse.Namespace, store: str, opened: "SessionStore") -> "Engine":
    """Return the engine that the command line names, or the one that fits the store."""
    name = chosen.engine or ("postgres" if is_address(store) else "local")
    if chosen.address is not None and name != "temporal":
        raise InvalidValue(f"--address belongs to --engine temporal, and the engine is {name}")
    if name == "temporal":
        from ..durable import TemporalEngine, abort_order

        return TemporalEngine(chosen.address or "127.0.0.1:7233", abort=lambda order: abort_order(opened, order))
    if name == "local":
        from ..durable import LocalEngine

        return LocalEngine()
    if not is_address(store):
        raise InvalidValue("--engine postgres needs a store in PostgreSQL: --store postgresql://…")
    from ..durable import PostgresEngine

    address, mark, schema = store.partition("#")
    return PostgresEngine(address, schema=schema if mark else "dragoman")
