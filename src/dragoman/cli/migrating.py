"""`dragoman sessions migrate`: the tables of a PostgreSQL store and of its engine, created or brought up to date."""

import argparse
import os
import sys

from ..errors import InvalidValue
from .arguments import Tasks, add_task
from .config import configured
from .engines import ENGINES
from .places import DEFAULT_SCHEMA, checked_place, is_address, is_connection_string, split_address

__all__ = ["add_migrate"]

VARIABLE = "DRAGOMAN_POSTGRES"


def add_migrate(tasks: Tasks) -> None:
    """Add the command to the group `sessions`."""
    words = "create the tables of a PostgreSQL store, or bring them up to date"
    parser = add_task(tasks, "migrate", words, migrate_sessions)
    address = f"connection string or URI; without it that of the variable {VARIABLE}, or the store of the settings"
    parser.add_argument("conninfo", nargs="?", help=address)
    parser.add_argument("--schema", help=f"the name of the schema ({DEFAULT_SCHEMA})")
    parser.add_argument(
        "--engine", choices=ENGINES, default="postgres", help="what schedules durable runs here (%(default)s)"
    )


def migrate_sessions(chosen: argparse.Namespace) -> None:
    """Create or update the tables, and say which number they have."""
    import asyncio
    import importlib.util

    from ..durable import PostgresEngine
    from ..store import PostgresStore

    conninfo, schema = chosen.conninfo or os.environ.get(VARIABLE), DEFAULT_SCHEMA
    if conninfo is None and is_address(store := configured(chosen).store):
        conninfo = store
    if conninfo is None:
        raise InvalidValue(f"where is the database? Give its address, or set {VARIABLE}")
    if not is_connection_string(conninfo):  # in such a string a `#` is part of a value
        conninfo = checked_place(conninfo, "the address" if chosen.conninfo else VARIABLE)
        if is_address(conninfo):
            conninfo, schema = split_address(conninfo)
    schema = chosen.schema or schema

    async def migrate() -> int:
        async with PostgresStore(conninfo, schema=schema) as store:
            number = await store.migrate()
        has_extra = importlib.util.find_spec("procrastinate") is not None
        if has_extra and chosen.engine == "postgres":  # with another engine nobody would take orders from its tables
            engine = PostgresEngine(conninfo, schema=schema)
            try:
                await engine.prepare()
            finally:
                await engine.close()
        return number

    sys.stdout.write(f"schema {schema} has number {asyncio.run(migrate())}\n")
