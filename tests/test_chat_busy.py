"""`dragoman chat` on a session that another process runs: it says whose it is, and offers to wait, follow or fork."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dragoman import SQLiteStore, open_session, start_session
from tests.chat_peer import Parrot, parrot
from tests.chat_terminal import CTRL_D, Terminal, clean_environment, terminal


@pytest.fixture(scope="module")
def server() -> Iterator[Parrot]:
    with parrot() as served:
        yield served


@pytest.fixture
def home(server: Parrot, tmp_path: Path) -> Path:
    server.replies.clear()
    server.requests.clear()
    (tmp_path / "config.toml").write_text(server.settings())
    return tmp_path


class Owner:
    """This process runs the session `talk` until it is told to end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._holds = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._ends = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._own(),))
        self._thread.start()
        assert self._holds.wait(60)

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._ends.set)
        self._thread.join()
        self._loop.close()

    async def _own(self) -> None:
        async with SQLiteStore(self._path) as store:
            session = await start_session(store, "talk")
            async with session.hold():
                self._holds.set()
                await self._ends.wait()
                await session.set_system_instruction("Said by the owner.")


@contextmanager
def owned(home: Path) -> Iterator[Owner]:
    owner = Owner(home / "s.db")
    try:
        yield owner
    finally:
        if owner._thread.is_alive():
            owner.end()


@contextmanager
def chat(home: Path) -> Iterator[Terminal]:
    arguments = ("chat", "-s", "talk", "--store", str(home / "s.db"))
    with terminal(*arguments, env=clean_environment(home), cwd=home) as shown:
        shown.expect(f"process {os.getpid()} on")
        shown.expect("[w]ait for it, [f]ollow it, for[k] it")
        yield shown


def leave(shown: Terminal) -> None:
    shown.ready()
    shown.send(CTRL_D)
    assert shown.end() == 0


def test_a_person_can_go_on_in_a_fork(home: Path) -> None:
    with owned(home), chat(home) as shown:
        shown.send("k\r")
        shown.expect("a fork of talk")
        shown.say("hello")
        shown.expect("You said: hello")
        leave(shown)


def test_a_person_can_wait_or_follow(home: Path) -> None:
    with owned(home) as owner, chat(home) as shown:
        shown.send("f\r")
        owner.end()
        shown.expect("Said by the owner.")
        shown.say("hello")
        shown.expect("You said: hello")
        leave(shown)


def test_a_script_is_told_who_has_the_session_and_can_wait(home: Path) -> None:
    def answer(*more: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "dragoman", "chat", "-s", "talk", "--store", str(home / "s.db"), "-p", "hello"]
        return subprocess.run(
            [*command, *more], capture_output=True, text=True, check=False, cwd=home, env=clean_environment(home)
        )

    with owned(home) as owner:
        done = answer()
        assert done.returncode == 1
        assert f"process {os.getpid()} on" in done.stderr
        assert "--wait SECONDS" in done.stderr
        threading.Timer(0.5, owner.end).start()
        done = answer("--wait", "60")
        assert (done.returncode, done.stdout) == (0, "You said: hello\n")

    async def kinds() -> list[str]:
        async with SQLiteStore(home / "s.db") as store:
            return [str(entry.kind) for entry in (await open_session(store, "talk")).entries]

    assert asyncio.run(kinds())[:2] == ["system_instruction", "run_started"]
