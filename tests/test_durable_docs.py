"""The commands of docs/durable.md run as they stand there, with real workers on a real PostgreSQL; and its example."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.testing.engineworkers import WORKER_CHECKS
from tests.postgres_server import Place

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "durable.md").read_text(encoding="utf-8")
ANYTHING = "…"
EXPORT = "export DRAGOMAN_STORE="


def steps() -> Iterator[tuple[str, list[str]]]:
    """Yield each command of the page, and the lines that it prints."""
    (block,) = re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, *printed = step.splitlines()
        yield command, printed


def pattern_of(lines: list[str]) -> str:
    """Return a pattern of what is printed; `…` alone in a line stands for any lines, in a line for anything."""
    parts = [r"(?:.*\n)*?" if line == ANYTHING else re.escape(line).replace(ANYTHING, ".*") + r"\n" for line in lines]
    return "".join(parts)


@pytest.fixture
def workers() -> Iterator[list[subprocess.Popen[str]]]:
    """The workers that a test starts. They end well when they are told to."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for worker in started:
        worker.send_signal(signal.SIGTERM)
    for worker in started:
        _, said = worker.communicate(timeout=60)
        assert worker.returncode == 0, said


@pytest.mark.slow
def test_the_commands_of_the_page_print_what_it_says(
    empty_postgres: Place, tmp_path: Path, workers: list[subprocess.Popen[str]]
) -> None:
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "DRAGOMAN_STORE": f"{empty_postgres.server.dsn}#{empty_postgres.schema}",
    }
    function = f'dragoman() {{ {shlex.quote(sys.executable)} -W error -m dragoman "$@"; }}\n'
    for command, printed in steps():
        if command.startswith(EXPORT):
            continue
        if command.startswith("dragoman sessions migrate"):
            command = f"dragoman sessions migrate '{empty_postgres.server.dsn}' --schema {empty_postgres.schema}"
            printed = [line.replace("schema dragoman", f"schema {empty_postgres.schema}") for line in printed]
        if command.endswith(" &"):
            arguments = shlex.split(command.removesuffix(" &"))[1:]
            workers.append(
                subprocess.Popen(
                    [sys.executable, "-m", "dragoman", *arguments],
                    cwd=ROOT / "examples" / "durable",
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            assert workers[-1].stdout is not None
            assert (
                workers[-1]
                .stdout.readline()
                .startswith("dragoman works: support; 8 slots; health at http://127.0.0.1:")
            )
            continue
        done = subprocess.run(
            ["sh", "-c", f"{function}{command}\n"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert re.fullmatch(pattern_of(printed), done.stdout), f"$ {command}\n{done.stdout}{done.stderr}"


@pytest.mark.slow
def test_the_example_holds_the_local_engine_to_its_promises() -> None:
    # A worker that is stopped while it writes to an SQLite file keeps all others from writing: that check is left out.
    names = [name for name in WORKER_CHECKS if name != "a_stopped_worker_does_no_harm"]
    command = [sys.executable, "-W", "error", "engine_promises.py", *names]
    folder = ROOT / "examples" / "durable"
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [f"holds: {name}" for name in names], done.stderr
