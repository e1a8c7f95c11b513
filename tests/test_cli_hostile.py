"""What models, tools and damage put into a store hides no session and writes no line of its own."""

import asyncio
import io
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from dragoman import Agent, MemoryStore, Session, SQLiteStore, start_session
from dragoman.cli.entrytext import markdown_of, write_entry
from dragoman.cli.output import Output
from dragoman.cli.playing import Player
from dragoman.cli.retelling import retold
from dragoman.durable import Agents, LocalEngine, submit
from dragoman.errors import ErrorCode
from dragoman.history import (
    ApprovalAskedEntry,
    HistoryEntry,
    HistoryToolCallResult,
    InterruptionEntry,
    ModelOutputEntry,
    QuestionAskedEntry,
    RunFinishedEntry,
    RunRequestedEntry,
    RunStartedEntry,
    RunStatus,
    ToolFinishedEntry,
    ToolStartedEntry,
    UnknownEntry,
)
from dragoman.message import Message, ModelInvocationDescriptor, Text, ToolCall
from dragoman.store import SessionPage
from dragoman.testing import Call, ScriptedModel, Turn
from tests.cli_cases import User, empty_user  # noqa: F401  # the fixture
from tests.durable_cases import pay, working

FORGED = "order-7 0: completed, agent support, run 1"
NAME = f"x]\n{FORGED}\n[y"


class ErasingStore(MemoryStore):
    """A store of two sessions, one of which is erased as soon as it was listed."""

    async def list(self, **asked: Any) -> SessionPage:
        if not self._sessions_made:
            self._sessions_made = True
            for name in ("kept", "gone"):
                await self.create(name)
        page = await super().list(**asked)
        if any(info.session_id == "gone" for info in page.sessions):
            await self.erase("gone")
        return page

    _sessions_made = False


@pytest.mark.parametrize("task", ["list", "verify"])
def test_a_session_that_is_erased_meanwhile_is_left_out(user: User, monkeypatch: pytest.MonkeyPatch, task: str) -> None:
    monkeypatch.setattr("dragoman.cli.stores.open_store", lambda _location, **_: ErasingStore())
    user.store.parent.mkdir(parents=True)
    user.store.touch()
    ended = user.run("sessions", task)
    assert (ended.status, ended.err) == (0, "")
    assert "kept" in ended.out
    assert "gone" not in ended.out


# ---------------------------------------------------------------- lines


async def wait_for_a_person(user: User) -> None:
    """Record a run whose model has chosen the id of the call that waits."""

    def make(session: Session) -> Agent[Any, Any]:
        call = Call("pay", {"amount": 5}, tool_call_id=NAME)
        return Agent(ScriptedModel(Turn(calls=(call,))), tools=[pay], session=session)

    user.store.parent.mkdir(parents=True)
    async with SQLiteStore(user.store) as store:
        engine = LocalEngine()
        run = await submit(store, engine, agent="support", session="order-7", prompt="Pay.")
        async with working(store, engine, Agents({"support": make})):
            await run.result()


@pytest.mark.parametrize("task", [("runs", "show"), ("runs", "list"), ("sessions", "show"), ("sessions", "cache")])
def test_the_id_of_a_call_that_waits_writes_no_line(user: User, task: tuple[str, ...]) -> None:
    asyncio.run(wait_for_a_person(user))
    ended = user.run(*task, *([] if task == ("runs", "list") else ["order-7"]))
    assert (ended.status, ended.err) == (0, "")
    assert FORGED not in [line.strip() for line in ended.out.splitlines()]
    if task == ("runs", "show"):
        assert ended.out.splitlines()[-1] == f"  waits for a decision: pay  [x]\\n{FORGED}\\n[y]"
        assert user.run(*task, "order-7", "--json").json["waiting"] == [{"id": NAME, "tool": "pay"}]


def test_the_error_of_a_run_writes_no_line(user: User) -> None:
    async def record() -> None:
        user.store.parent.mkdir(parents=True)
        async with SQLiteStore(user.store) as store:
            session = await start_session(store, "order-7")
            await session.append(RunRequestedEntry("support", (Text("Hi"),), run_id="r"))
            await session.append(RunStartedEntry(run_id="r"))
            await session.append(RunFinishedEntry(RunStatus.FAILED, ErrorCode.GIVEN_UP, f"no\n{FORGED}", run_id="r"))

    asyncio.run(record())
    out = user.run("runs", "show", "order-7").out
    assert out.splitlines()[-2:] == ["order-7 0: failed, agent support, run r", f"  given_up: no {FORGED}"]


CALL = ToolCall(tool_name=NAME, tool_call_id=NAME, raw_args_text="{", parse_error=f"no\n{FORGED}")
ENTRIES: list[HistoryEntry] = [
    ModelOutputEntry(Message.assistant(CALL, invocation=ModelInvocationDescriptor(NAME, "s", NAME))),
    ApprovalAskedEntry(NAME, NAME, "why"),
    ToolStartedEntry(NAME, NAME),
    ToolFinishedEntry(HistoryToolCallResult.of_text(CALL, "done")),
    QuestionAskedEntry(NAME, NAME, "what?", origin=NAME),
    InterruptionEntry(ErrorCode.SERVER_ERROR, f"no\n{FORGED}"),
    UnknownEntry(NAME, {}),
]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_names_and_ids_in_an_entry_write_no_line(entry: HistoryEntry) -> None:
    stream = io.StringIO()
    write_entry(Output(stream), entry)
    lines = stream.getvalue().splitlines()
    assert FORGED not in lines
    if not isinstance(entry, InterruptionEntry):  # what it says is a text of its own
        assert f"    {FORGED}" not in lines
        assert FORGED not in "".join(markdown_of("s", [entry])).splitlines()


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_names_and_errors_in_a_replay_write_no_line(entry: HistoryEntry) -> None:
    stream = io.StringIO()
    player = Player(Output(stream))
    for beat in retold([entry]):
        player.show(beat.what)
    player.close()
    assert FORGED not in stream.getvalue().splitlines()


def test_the_id_of_a_damaged_session_writes_no_line(user: User) -> None:
    user.imported([{"role": "user", "content": "Hi."}], "--id", "bad")
    with closing(sqlite3.connect(user.store)) as database, database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f'DROP TRIGGER "{name}"')
        database.execute("UPDATE sessions SET session_id = ?", ("bad\nsound    good",))
    ended = user.run("sessions", "verify")
    assert ended.status == 1
    assert ended.out.startswith("DAMAGED  bad\\nsound    good  its own record: ")
    assert ended.out.count("\n") == 1
