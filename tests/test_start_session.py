"""Opening or starting a session with one call, in any number of processes at once."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dragoman import (
    Agent,
    ErrorCode,
    InvalidValue,
    MemoryStore,
    SessionBusy,
    SessionStore,
    SQLiteStore,
    StoreError,
    start_session,
)
from dragoman.store import SessionInfo
from dragoman.testing import ScriptedModel
from tests.agent_cases import Gate, run

PROCESSES = 4

PROGRAM = """
import asyncio, sys
from dragoman import SQLiteStore, start_session

async def main():
    async with SQLiteStore(sys.argv[1]) as store:
        print("ready", flush=True)
        sys.stdin.readline()
        session = await start_session(store, "sums", system_instruction="Be brief.", exist_ok=True)
        print(session.state.system_instruction)

asyncio.run(main())
"""


@pytest.fixture(params=["memory", "sqlite"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], SessionStore]:
    return MemoryStore if request.param == "memory" else lambda: SQLiteStore(tmp_path / "s.db")


@asynccontextmanager
async def closing(store: SessionStore) -> AsyncIterator[SessionStore]:
    try:
        yield store
    finally:
        await store.close()


def test_a_session_is_started_once_and_opened_from_then_on(opened: Callable[[], SessionStore]) -> None:
    async def twice() -> None:
        async with closing(opened()) as store:
            first = await start_session(store, "sums", metadata={"user": "Ada"}, exist_ok=True)
            await first.append_model_input("Hello.")
            second = await start_session(store, "sums", metadata={"user": "Bob"}, exist_ok=True)
            assert [message.text for message in second.messages] == ["Hello."]
            assert second.metadata == {"user": "Ada"}

    run(twice())


def test_without_exist_ok_an_id_that_is_taken_is_refused(opened: Callable[[], SessionStore]) -> None:
    async def twice() -> None:
        async with closing(opened()) as store:
            await start_session(store, "sums")
            with pytest.raises(StoreError, match="already") as raised:
                await start_session(store, "sums")
            assert raised.value.code is ErrorCode.CONFLICT

    run(twice())


def test_an_instruction_is_recorded_again_only_if_it_differs(opened: Callable[[], SessionStore]) -> None:
    async def thrice() -> None:
        async with closing(opened()) as store:
            for words in ("Be brief.", "Be brief.", "Be long."):
                session = await start_session(store, "sums", system_instruction=words, exist_ok=True)
            assert [entry.kind for entry in session.entries] == ["system_instruction"] * 2
            assert session.state.system_instruction == "Be long."

    run(thrice())


def test_an_erased_session_is_not_started_again(opened: Callable[[], SessionStore]) -> None:
    async def erase() -> None:
        async with closing(opened()) as store:
            await start_session(store, "sums", exist_ok=True)
            await store.erase("sums")
            with pytest.raises(StoreError, match="was erased"):
                await start_session(store, "sums", exist_ok=True)

    run(erase())


def test_without_an_id_there_is_nothing_to_open() -> None:
    with pytest.raises(InvalidValue, match="session_id"):
        run(start_session(MemoryStore(), exist_ok=True))


def test_many_tasks_start_one_session(opened: Callable[[], SessionStore]) -> None:
    async def at_once() -> None:
        async with closing(opened()) as store:
            starts = [
                start_session(store, "sums", system_instruction="Be brief.", exist_ok=True) for _ in range(PROCESSES)
            ]
            sessions = await asyncio.gather(*starts)
            assert {session.state.system_instruction for session in sessions} == {"Be brief."}
            await sessions[0].refresh()
            assert len(sessions[0].entries) == 1

    run(at_once())


def test_many_processes_start_one_session(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), str(path)]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    assert [process.communicate("go\n", timeout=60)[0] for process in started] == ["Be brief.\n"] * PROCESSES

    async def count() -> int:
        async with SQLiteStore(path) as store:
            return len((await start_session(store, "sums", exist_ok=True)).entries)

    assert run(count()) == 1


def test_another_error_than_a_conflict_is_raised() -> None:
    class Full(MemoryStore):
        async def create(self, session_id: str | None = None, *, metadata: Mapping[str, Any] = {}) -> SessionInfo:
            raise StoreError("the disk is full", code=ErrorCode.QUOTA_EXCEEDED)

    with pytest.raises(StoreError, match="full"):
        run(start_session(Full(), "sums", exist_ok=True))


def test_an_instruction_with_half_a_character_is_recorded_once(opened: Callable[[], SessionStore]) -> None:
    async def twice() -> int:
        async with closing(opened()) as store:
            await start_session(store, "sums", system_instruction="Be brief\ud83d.", exist_ok=True)
            session = await start_session(store, "sums", system_instruction="Be brief\ud83d.", exist_ok=True)
            return len(session.entries)

    assert run(twice()) == 1


def test_another_instruction_is_refused_while_a_run_is_under_way_and_the_same_one_is_not() -> None:
    async def meanwhile() -> None:
        store, gate = MemoryStore(), Gate(2)
        session = await start_session(store, "sums", system_instruction="Be brief.")
        running = Agent(ScriptedModel("Three.", between=gate), session=session).stream("1 + 2?")
        await gate.reached.wait()
        same = await start_session(store, "sums", system_instruction="Be brief.", exist_ok=True)
        assert same.run_id == running.run_id
        with pytest.raises(SessionBusy):
            await start_session(store, "sums", system_instruction="Be long.", exist_ok=True)
        gate.opened.set()
        assert (await running.result()).output == "Three."

    run(meanwhile())
