"""`dragoman worker`: what it says of a registry that is wrong, and that signals end it well at any moment."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import pytest

from tests.cli_cases import User, empty_user, require_words  # noqa: F401  # the fixture

SECRET = "sk-planted-5d21-not-to-be-shown"
EMPTY = "from dragoman.durable import Agents\nagents = Agents({})\n"
TELL_OPENED = """
import sys

told = []

def tell(event, arguments):
    if event == "sqlite3.connect/handle" and not told:
        told.append(event)
        print("opened", flush=True)

sys.addaudithook(tell)
"""
SIGNALS = [signal.SIGTERM, signal.SIGINT]
PATIENCE = 60.0


# ---------------------------------------------------------------- the registry


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("import os\nKEY = os.environ['SHOP_KEY']", "KeyError at app.py:2: the environment variable 'SHOP_KEY' is not"),
        ("x = 1\ndef f(:\n", "SyntaxError at app.py:2; --debug"),
        ("from json import nothing", "ImportError at app.py:1; --debug"),
        (f"raise ValueError('{SECRET}')", "ValueError at app.py:1; --debug"),
        (f"{{}}['{SECRET}']", "KeyError at app.py:1; --debug"),
        (f"import sys\nsys.exit('{SECRET}')", "SystemExit at app.py:2; --debug"),
        (f"raise BaseException('{SECRET}')", "BaseException at app.py:1; --debug"),
        (f"raise GeneratorExit('{SECRET}')", "GeneratorExit at app.py:1; --debug"),
        ("import json\njson.loads('{')", "json.decoder.JSONDecodeError at app.py:2; --debug"),
        ("import part", "ZeroDivisionError at part.py:2; --debug"),
        (
            "from dragoman.durable import Agents\nagents = Agents({'a': 5})",
            "InvalidValue at app.py:2: agent 'a' must be",
        ),
        ("raise ModuleNotFoundError", "ModuleNotFoundError at app.py:1; --debug"),
    ],
)
def test_a_mistake_in_the_users_module_is_told_with_its_type_and_its_place(user: User, module: str, words: str) -> None:
    user.write("app.py", f"{module}\n")
    user.write("part.py", "\n1 / 0\n")
    ended = user.process("worker", "--agents", "app:agents")
    require_words(ended, words)
    assert ended.err.startswith("dragoman: --agents app:agents: importing app raised ")
    assert "mistake in dragoman" not in ended.err
    assert SECRET not in ended.err


def test_debug_shows_the_traceback_of_the_users_module(user: User) -> None:
    user.write("app.py", "raise ValueError('the words')\n")
    ended = user.process("worker", "--agents", "app:agents", "--debug")
    assert ended.status == 1
    assert "Traceback" in ended.err
    assert "ValueError: the words" in ended.err
    assert ended.err.splitlines()[-1].startswith("dragoman: --agents app:agents: importing app raised ValueError")


@pytest.mark.parametrize("named", ["..:x", ".app:x", "app.:x", "a..b:x", ":x", "app:"])
def test_a_name_that_no_module_has_is_refused(user: User, named: str) -> None:
    require_words(user.run("worker", "--agents", named), "--agents must be a module and a name in it")


# ---------------------------------------------------------------- signals


@contextmanager
def worker(user: User, module: str) -> Iterator[subprocess.Popen[str]]:
    """A worker with this module in a process of its own, which is ended whatever happens."""
    user.write("app.py", module)
    process = subprocess.Popen(
        user.command("worker", "--agents", "app:agents"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def next_line(process: subprocess.Popen[str]) -> str:
    """Wait for the next line of a process."""
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_the_registry_is_imported_ends_the_worker_well(user: User, number: signal.Signals) -> None:
    with worker(user, "import signal\nprint('importing', flush=True)\nsignal.pause()\n") as process:
        assert next_line(process) == "importing\n"
        process.send_signal(number)
        assert process.communicate(timeout=PATIENCE) == ("", "")
        assert process.returncode == 0


def test_a_module_that_catches_everything_does_not_keep_the_worker_from_ending(user: User) -> None:
    pause = "import signal\nprint('importing', flush=True)\ntry:\n    signal.pause()\nexcept BaseException:\n    pass\n"
    with worker(user, pause + EMPTY) as process:
        assert next_line(process) == "importing\n"
        process.terminate()
        assert process.communicate(timeout=PATIENCE) == ("", "")
        assert process.returncode == 0


def test_a_signal_before_the_store_is_ready_ends_the_worker_well(user: User) -> None:
    user.imported()
    with closing(sqlite3.connect(user.store, isolation_level=None)) as locked:
        locked.execute("BEGIN EXCLUSIVE")
        with worker(user, EMPTY + TELL_OPENED) as process:
            assert next_line(process) == "opened\n"  # and nothing can be read from it while it is locked
            process.terminate()
            locked.execute("ROLLBACK")
            assert process.communicate(timeout=PATIENCE) == ("", "")
            assert process.returncode == 0


@pytest.mark.parametrize("number", SIGNALS)
def test_a_worker_that_works_ends_well(user: User, number: signal.Signals) -> None:
    take = f"import signal\nsignal.signal(signal.{number.name}, signal.SIG_IGN)\n"  # the worker takes it back
    with worker(user, take + EMPTY) as process:
        assert next_line(process).startswith("dragoman works: ")
        process.send_signal(number)
        assert process.communicate(timeout=PATIENCE) == ("", "")
        assert process.returncode == 0


def test_the_command_leaves_the_handlers_of_its_caller_and_no_timer(user: User) -> None:
    program = """
import os, signal, sys, threading
from dragoman.cli import main

def heard(number, frame):
    print("heard", number, flush=True)

numbers = (signal.SIGTERM, signal.SIGINT)
for number in numbers:
    signal.signal(number, heard)
status = main(["worker", "--agents", "app:agents", "--stop-seconds", "5"])
for thread in threading.enumerate():
    if isinstance(thread, threading.Timer):
        thread.join()
print("ended", status, flush=True)
for number in numbers:
    os.kill(os.getpid(), number)
"""
    user.write("app.py", EMPTY)
    process = subprocess.Popen([sys.executable, "-W", "error", "-c", program], stdout=subprocess.PIPE, text=True)
    with process:
        assert next_line(process).startswith("dragoman works: ")
        process.terminate()
        said, _ = process.communicate(timeout=PATIENCE)
    assert said == "ended 0\nheard 15\nheard 2\n"
    assert process.returncode == 0


# ---------------------------------------------------------------- the end that nothing blocks

LATE = """
import os, signal, sys, threading
from dragoman.cli.stopping import StopSignals

with StopSignals(0.01) as signals:
    signals.stop = lambda: None
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait()
"""
UNWRITTEN = """
import sys
from dragoman.cli.stopping import StopSignals

sys.stdout.write("words that cannot be written")
StopSignals(1).end_process()
"""


def run_late(program: str, **pipes: int) -> subprocess.Popen[bytes]:
    """Run a program until it ends, with these ends of pipes as its output, which it buffers as by default."""
    process: subprocess.Popen[bytes] = subprocess.Popen(
        [sys.executable, "-E", "-c", program], stdout=pipes.get("stdout"), stderr=pipes.get("stderr")
    )
    try:
        process.wait(PATIENCE)
    finally:
        process.kill()
        process.wait()
    return process


@pytest.mark.parametrize(("program", "output"), [(LATE, "stderr"), (UNWRITTEN, "stderr"), (UNWRITTEN, "stdout")])
def test_a_late_process_ends_although_no_reader_is_left(program: str, output: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        assert run_late(program, **{output: writing}).returncode == 0
    finally:
        os.close(writing)


@pytest.mark.parametrize(("program", "output"), [(LATE, "stderr"), (UNWRITTEN, "stderr"), (UNWRITTEN, "stdout")])
def test_a_late_process_ends_although_its_reader_does_not_read(program: str, output: str) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, b"x")
    os.set_blocking(writing, True)
    try:
        assert run_late(program, **{output: writing}).returncode == 0
    finally:
        os.close(reading)
        os.close(writing)
