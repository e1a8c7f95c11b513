"""Engines by what a person types: `postgres`, `temporal`, or `local` for the workers of one machine."""

import argparse
from typing import TYPE_CHECKING

from ..errors import InvalidValue
from .arguments import add_store
from .places import is_address, split_address

if TYPE_CHECKING:
    from ..durable import Engine
    from ..store import SessionStore

__all__ = ["ENGINES", "add_engine", "open_engine", "prepare"]

ENGINES = ("postgres", "temporal", "local")


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Give a command `--store`, `--engine`, and where Temporal is."""
    add_store(parser)
    parser.add_argument(
        "--engine", choices=ENGINES, help="what schedules runs (postgres if the store is there, local for a file)"
    )
    parser.add_argument("--address", metavar="HOST:PORT", help="where Temporal's server is (127.0.0.1:7233)")
    parser.add_argument("--namespace", help="of Temporal (default)")
    parser.add_argument("--task-queue", help="of Temporal, one for each store (dragoman)")


def open_engine(chosen: argparse.Namespace, store: str, opened: "SessionStore") -> "Engine":
    """Return the engine that the command line names, or the one that fits the store."""
    name = chosen.engine or ("postgres" if is_address(store) else "local")
    for option in ("address", "namespace", "task_queue"):
        if getattr(chosen, option) is not None and name != "temporal":
            flag = option.replace("_", "-")
            raise InvalidValue(f"--{flag} belongs to --engine temporal, and the engine is {name}")
    if name == "temporal":
        from ..durable import TemporalEngine, abort_order

        queue = chosen.task_queue or "dragoman"
        return TemporalEngine(
            chosen.address or "127.0.0.1:7233",
            namespace=chosen.namespace or "default",
            task_queue=queue,
            prefix=queue,
            abort=lambda order: abort_order(opened, order),
        )
    if name == "local":
        from ..durable import LocalEngine

        return LocalEngine()
    if not is_address(store):
        raise InvalidValue("--engine postgres needs a store in PostgreSQL: --store postgresql://…")
    from ..durable import PostgresEngine

    conninfo, schema = split_address(store)
    return PostgresEngine(conninfo, schema=schema)


async def prepare(location: str, store: "SessionStore", engine: "Engine") -> None:
    """Make the tables of a store in PostgreSQL, and of an engine beside them, unless they are there."""
    if is_address(location):
        await store.migrate()  # type: ignore[attr-defined]  # a PostgresStore, as its address says
    if engine.follows_record:  # its trigger must be there before the first request is
        await engine.prepare()
