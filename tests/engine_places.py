"""Stores and engines that every process of a test opens; `dragoman.testing.engineworkers` names these functions."""

from typing import Any

from dragoman import PostgresStore
from dragoman.durable import Engine, PostgresEngine, TemporalEngine
from dragoman.store import SessionStore

BEATS: dict[str, Any] = {"heartbeat_seconds": 0.5, "dead_seconds": 2.0}


def open_postgres(address: str) -> tuple[SessionStore, Engine]:
    """Open a schema, with the engine beside it."""
    dsn, _, schema = address.partition("#")
    return PostgresStore(dsn, schema=schema), PostgresEngine(dsn, schema=schema, **BEATS)


def open_patient(address: str) -> tuple[SessionStore, Engine]:
    """Open a schema, with an engine that waits very long for workers that stand still."""
    store, _ = open_postgres(address)
    dsn, _, schema = address.partition("#")
    return store, PostgresEngine(dsn, schema=schema, dead_seconds=3600.0)


def open_temporal(places: str) -> tuple[SessionStore, Engine]:
    """Open a schema, with a Temporal server: its address and that of the schema, with a space between."""
    server, _, address = places.partition(" ")
    dsn, _, schema = address.partition("#")
    return PostgresStore(dsn, schema=schema), TemporalEngine(server, task_queue=schema, prefix=schema, **BEATS)
