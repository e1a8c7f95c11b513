"""Runs that outlive processes and machines: the record says what was done, an engine decides who works now."""

from typing import TYPE_CHECKING

from .._lazynames import lazy_names

if TYPE_CHECKING:
    from .agents import Agents, MakeAgent, UnknownAgent
    from .engine import Engine, EngineError, Perform
    from .local import LocalEngine
    from .orders import Order, Progress
    from .performer import Retries, carry_on
    from .postgres import PostgresEngine
    from .runs import RunHandle, abort_order, find_run, submit
    from .sweeps import sweep
    from .temporal import TemporalEngine
    from .worker import Worker

__all__ = [
    "Agents",
    "Engine",
    "EngineError",
    "LocalEngine",
    "MakeAgent",
    "Order",
    "Perform",
    "PostgresEngine",
    "Progress",
    "Retries",
    "RunHandle",
    "TemporalEngine",
    "UnknownAgent",
    "Worker",
    "abort_order",
    "carry_on",
    "find_run",
    "submit",
    "sweep",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        __all__,
        modules=(
            "orders",
            "engine",
            "agents",
            "performer",
            "runs",
            "sweeps",
            "worker",
            "local",
            "postgres",
            "temporal",
        ),
    )
