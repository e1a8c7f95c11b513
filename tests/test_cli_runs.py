"""`dragoman runs`: runs are listed, followed and decided about, whatever models and damage put into a store."""

import asyncio
import io
import sqlite3
from collections import Counter
from contextlib import closing
from typing import Any

import pytest

from dragoman import Agent, MemoryStore, Session
from dragoman.cli.describedruns import list_described
from dragoman.cli.output import Output
from dragoman.cli.runs import follow_text
from dragoman.cli.stores import is_part_of_id
from dragoman.durable import Agents, LocalEngine, submit
from dragoman.errors import ErrorCode, StoreError
from dragoman.store import RequestPage
from dragoman.store.protocol import OpenedSession
from dragoman.testing import ScriptedModel
from tests.cli_cases import User, empty_user, require_words  # noqa: F401  # the fixture
from tests.durable_cases import working

# Lines of two lengths, so that the end of some delta cuts a line break, whatever the length of a delta is.
SAID = "abc\r\n" * 24 + "abcde\r\n" * 24 + "END"


class WatchedStream(io.StringIO):
    """A stream that tells when something is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = asyncio.Event()

    def write(self, text: str) -> int:
        self.written.set()
        return super().write(text)


def test_a_followed_text_is_whole_wherever_its_deltas_are_cut() -> None:
    async def follow() -> str:
        stream = WatchedStream()

        async def until_printed(number: int) -> None:
            if 1 < number <= len(SAID) // 12:  # delta 0 has no text; each of the others is printed before the next
                await stream.written.wait()
                stream.written.clear()

        def make(session: Session) -> Agent[Any, Any]:
            return Agent(ScriptedModel(SAID, between=until_printed), session=session)

        async with MemoryStore() as store, asyncio.timeout(60):
            engine = LocalEngine()
            run = await submit(store, engine, agent="writer", session="s", prompt="Write.")
            following = asyncio.ensure_future(follow_text(run, Output(stream)))
            async with working(store, engine, Agents({"writer": make})):
                await following
        return stream.getvalue()

    assert asyncio.run(follow()) == SAID.replace("\r\n", "\n") + "\n"


# ---------------------------------------------------------------- listing


class CountingStore(MemoryStore):
    """A store that counts how often each session is opened, and how many requests it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: Counter[str] = Counter()
        self.limits: list[int | None] = []
        self.erased_when_listed: set[str] = set()
        self.broken: StoreError | None = None

    async def open(self, session_id: str) -> OpenedSession:
        self.opened[session_id] += 1
        if self.broken is not None:
            raise self.broken
        return await super().open(session_id)

    async def list_requests(self, **asked: Any) -> RequestPage:
        self.limits.append(asked.get("limit"))
        page = await super().list_requests(**asked)
        for session_id in self.erased_when_listed:
            await self.erase(session_id)
        return page


def in_a_store(use: Any) -> Any:
    """Return what `use` makes of a store with a run that has failed, one that waits, and two that are queued in "q"."""

    async def run() -> Any:
        async with CountingStore() as store, asyncio.timeout(60):
            engine = LocalEngine()
            ended = [
                await submit(store, engine, agent=agent, session=agent, prompt="Go.") for agent in ("broken", "payer")
            ]
            async with working(store, engine):
                for each in ended:
                    await each.result()
            for prompt in ("One", "Two"):
                await submit(store, engine, agent="echo", session="q", prompt=prompt, key=prompt)
            store.opened.clear()
            store.limits.clear()
            return await use(store)

    return asyncio.run(run())


def test_a_list_opens_each_open_session_once_and_no_other() -> None:
    async def use(store: CountingStore) -> None:
        listed = await list_described(store)
        assert [(each["session"], each["status"]) for each in listed] == [
            ("q", "queued"),
            ("q", "queued"),
            ("payer", "awaiting_human"),
            ("broken", "failed"),
        ]
        assert [each.get("key") for each in listed] == ["Two", "One", None, None]
        assert [waiting["tool"] for waiting in listed[2]["waiting"]] == ["pay"]
        assert store.opened == {"q": 1, "payer": 1}

    in_a_store(use)


def test_a_list_with_errors_opens_what_failed_too() -> None:
    async def use(store: CountingStore) -> None:
        (failed,) = [each for each in await list_described(store, with_errors=True) if each["status"] == "failed"]
        assert failed["error"]["code"] == "given_up"
        assert store.opened == {"q": 1, "payer": 1, "broken": 1}

    in_a_store(use)


def test_a_list_of_one_run_asks_for_one_and_opens_one() -> None:
    async def use(store: CountingStore) -> None:
        assert [each["serial"] for each in await list_described(store, limit=1)] == [1]
        assert (store.limits, store.opened) == ([1], {"q": 1})

    in_a_store(use)


def test_a_session_that_is_erased_meanwhile_is_left_out_and_another_takes_its_place() -> None:
    async def use(store: CountingStore) -> None:
        store.erased_when_listed = {"q"}
        assert [each["session"] for each in await list_described(store, limit=3)] == ["payer", "broken"]
        assert store.limits == [3, 2]

    in_a_store(use)


def test_a_store_that_is_away_is_an_error_and_no_list_of_damaged_sessions() -> None:
    async def use(store: CountingStore) -> None:
        store.broken = StoreError("away", code=ErrorCode.CONNECTION)
        with pytest.raises(StoreError, match="away"):
            await list_described(store)

    in_a_store(use)


def test_a_session_with_an_id_that_no_session_may_have_hides_no_other_run(user: User) -> None:
    for session in ("before", "bad", "after"):
        assert user.run("runs", "submit", "--agent", "a", "--session", session, "Hello").status == 0
    with closing(sqlite3.connect(user.store)) as database, database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f'DROP TRIGGER "{name}"')
        database.execute("UPDATE sessions SET session_id = 'b\x1b[31m\nad' WHERE session_id = 'bad'")
    ended = user.run("runs", "list")
    assert (ended.status, ended.err) == (0, "")
    rows = [line.rsplit(None, 3) for line in ended.out.splitlines()[1:]]
    assert rows == [
        ["after", "0", "a", "queued"],
        ["b\\x1b[31m ad", "0", "a", "damaged"],
        ["before", "0", "a", "queued"],
    ]
    (damaged,) = [each for each in user.run("runs", "list", "--json").json if each["status"] == "damaged"]
    assert damaged["error"]["code"] == "invalid_request"


# ---------------------------------------------------------------- deciding


RANDOM_ID = "9f2c44d07b3a4c1e8d5f6a7b8c9d0e1f"


@pytest.mark.parametrize("typed", ["order-1", "12", "ORDER-12", "…12", "@", "order-123"])
@pytest.mark.parametrize("decision", ["approve", "deny", "abort", "retry"])
def test_a_decision_reaches_no_session_that_was_not_named(user: User, decision: str, typed: str) -> None:
    assert user.run("runs", "submit", "--agent", "a", "--session", "order-12", "Hello").status == 0
    ended = user.run("runs", decision, typed)
    require_words(ended, typed)
    assert user.run("runs", "list", "--json").json[0]["status"] == "queued"
    assert len(user.run("sessions", "show", "order-12", "--json").json_lines) == 1


@pytest.mark.parametrize("typed", [RANDOM_ID[:8], RANDOM_ID[-8:]])
def test_a_decision_takes_no_part_of_a_random_id(user: User, typed: str) -> None:
    assert user.run("runs", "submit", "--agent", "a", "--session", RANDOM_ID, "Hello").status == 0
    require_words(user.run("runs", "abort", typed), f"is '{RANDOM_ID}' meant?")
    assert user.run("runs", "show", typed).out.startswith(f"{RANDOM_ID} 0: queued")
    assert user.run("runs", "abort", RANDOM_ID).out.startswith(f"{RANDOM_ID} 0: aborted")


def test_part_of_the_id_that_a_key_makes_is_part_of_an_id(user: User) -> None:
    made = user.run("runs", "submit", "--agent", "a", "--key", "mail-12", "Hello", "--json").json["session"]
    assert is_part_of_id(made)
    assert is_part_of_id(made[:12])
    assert is_part_of_id("key-1a2b3c4d")
    assert not is_part_of_id("key-order")
    assert "made of --key" in " ".join(user.run("runs", "submit", "--help").out.split())


def test_the_help_of_a_decision_says_that_it_takes_a_whole_id(user: User) -> None:
    assert "the session's whole id" in user.run("runs", "approve", "--help").out
    assert "its beginning or its end" in " ".join(user.run("runs", "show", "--help").out.split())


@pytest.mark.parametrize("typed", ["order-1", "12"])
def test_nothing_is_erased_without_a_question_but_what_was_named(user: User, typed: str) -> None:
    assert user.run("runs", "submit", "--agent", "a", "--session", "order-12", "Hello").status == 0
    require_words(user.run("sessions", "erase", typed, "--yes"), "is 'order-12' meant?")
    assert user.run("sessions", "erase", "order-12", "--yes").status == 0
