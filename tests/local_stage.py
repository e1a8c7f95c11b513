"""A stage for models on this machine: weights that hold nothing, and a stand-in for the package that serves them."""

import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman.local import KNOWN_WEIGHTS
from dragoman.local.server import close_shared_servers

STAND_IN = Path(__file__).parent / "llama_stand_in" / "xllamacpp.py"
SOURCES = Path(__file__).parents[1] / "src"


class Stage:
    """What is staged: the folder of the stand-in, and the known weights in a cache of their own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, answers: dict[str, list[Any]]) -> None:
        self.folder = folder / "stand-in"
        self.folder.mkdir()
        shutil.copy(STAND_IN, self.folder)
        (self.folder / "answers.json").write_text(json.dumps(answers))
        (self.folder / "started").touch()
        monkeypatch.setenv("DRAGOMAN_CACHE", str(folder / "cache"))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(self.folder), str(SOURCES)]))
        monkeypatch.syspath_prepend(str(self.folder))
        monkeypatch.delitem(sys.modules, "xllamacpp", raising=False)
        for weights in KNOWN_WEIGHTS.values():
            weights.path.parent.mkdir(parents=True, exist_ok=True)
            with weights.path.open("wb") as file:
                file.truncate(weights.size)  # a hole: it takes no room

    @property
    def started(self) -> list[int]:
        """The process ids of all servers that were started."""
        return [int(line) for line in (self.folder / "started").read_text().splitlines()]

    def run(self, program: str) -> "subprocess.Popen[str]":
        """Start a program in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-W", "error", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def close(self) -> None:
        """Stop the servers of this process."""
        close_shared_servers()


def wait_until_gone(pid: int, after: Callable[[], object]) -> None:
    """Call `after`, and return when the process is gone."""
    if not hasattr(os, "pidfd_open"):
        pytest.skip("this system does not tell of the end of other processes")
    process = os.pidfd_open(pid)
    try:
        after()
        assert select.select([process], [], [], 60)[0], "the server lives on"
    finally:
        os.close(process)
