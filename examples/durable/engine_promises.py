"""Holds an engine to its promises, with workers that are killed and stopped: `python engine_promises.py [CHECK …]`."""

import asyncio
import sys
import tempfile

from dragoman import SQLiteStore
from dragoman.durable import Engine, LocalEngine
from dragoman.store import SessionStore
from dragoman.testing.engineworkers import WORKER_CHECKS, Workplace


def open_place(path: str) -> tuple[SessionStore, Engine]:
    """Open the store and the engine: every worker calls this. Yours is the engine that you have written."""
    return SQLiteStore(path), LocalEngine()


async def main(names: list[str]) -> None:
    """Run the checks of these names, or all."""
    with tempfile.TemporaryDirectory() as folder:
        place = Workplace("engine_promises:open_place", f"{folder}/sessions.db", folder)
        for name in names or WORKER_CHECKS:
            await WORKER_CHECKS[name](place)
            print(f"holds: {name}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
