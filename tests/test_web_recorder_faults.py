"""What no fault of a store may break: the recorder serves on, and nothing that was acknowledged is lost."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman import Message, Text, ToolCall
from dragoman.errors import ErrorCode, StoreError
from dragoman.history import (
    ClientAnswerEntry,
    HistoryEntry,
    ResetEntry,
)
from dragoman.store import (
    Head,
    Lease,
    Mark,
    MemoryStore,
)
from dragoman.web.gateway.recorder import Recorder
from tests.web_cases import (
    all_sessions,
    answer,
    asked,
    given,
    of_body,
    require_sound,
    texts,
)
from tests.web_recording import A, B, Clients, Run, X, in_memory, over_stores

# ---------------------------------------------------------------- faults


class Broken(MemoryStore):
    """A store whose methods fail, or wait for ever, when a test says so."""

    error: Exception | None = None
    waits = False

    async def _trouble(self) -> None:
        if self.waits:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error

    async def append(
        self, session_id: str, entries: Sequence[HistoryEntry], expected_serial: int, *, lease: Lease | None = None
    ) -> Head:
        await self._trouble()
        return await super().append(session_id, entries, expected_serial, lease=lease)

    async def find_marks(self, words: Sequence[str]) -> tuple[Mark, ...]:
        await self._trouble()
        return await super().find_marks(words)


@asynccontextmanager
async def broken() -> AsyncIterator[tuple[Broken, Recorder]]:
    store = Broken()
    try:
        yield store, Recorder(store)
    finally:
        await store.close()


FAULTS: dict[str, Exception] = {
    "a store error": StoreError("the disk is full", code=ErrorCode.CONNECTION),
    "an operating system error": OSError(28, "No space left on device"),
    "a bug": ZeroDivisionError("Secret words."),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_of_the_store_breaks_an_answer(fault: str) -> None:
    async def test() -> None:
        async with broken() as (store, recorder):
            store.error = FAULTS[fault]
            turn = await recorder.begin(asked(A))
            assert turn.fault
            assert "Secret" not in turn.fault
            assert (turn.session_id, turn.session, turn.messages) == ("", None, (A,))
            await turn.append(ResetEntry())
            await turn.end(given(answer("X")))
            store.error = None
            turn = await recorder.begin(asked(A))
            assert not turn.fault
            store.error = FAULTS[fault]
            await turn.end(given(answer("X")))
            assert turn.fault
            assert recorder.faults == 2
            store.error = None
            turn = await recorder.begin(asked(A))
            await turn.end(given(answer("X")))
            assert not turn.fault
            (session,) = await all_sessions(store)
            assert texts(session) == ["user: A", "assistant: X"]

    asyncio.run(test())


def test_a_store_that_hangs_breaks_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with broken() as (store, recorder):

            def hang(waits: bool) -> None:
                store.waits = waits
                monkeypatch.setattr("dragoman.web.gateway.recorder.STORE_SECONDS", 0.01 if waits else 600)

            hang(True)
            turn = await recorder.begin(asked(A))
            assert turn.fault == "the store took longer than 0.01 seconds"
            hang(False)
            turn = await recorder.begin(asked(A))
            hang(True)
            await turn.end(given(answer("X")))
            assert turn.fault
            hang(False)
            turn = await recorder.begin(asked(A))
            await turn.end(given(answer("X")))
            assert not turn.fault

    asyncio.run(test())


def test_a_caller_that_is_cancelled_leaves_the_answer_recorded() -> None:
    async def test() -> None:
        async with broken() as (store, recorder):
            turn = await recorder.begin(asked(A))
            ending = asyncio.ensure_future(turn.end(given(answer("X"))))
            await asyncio.sleep(0)
            ending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await ending
            await recorder.settle()
            (session,) = await all_sessions(store)
            assert texts(session) == ["user: A", "assistant: X"]
            await turn.end(given(answer("Y")))
            assert texts((await all_sessions(store))[0]) == ["user: A", "assistant: X"]

    asyncio.run(test())


@over_stores
def test_a_session_that_was_erased_is_begun_anew(run_recorder: Run) -> None:
    async def test(clients: Clients) -> None:
        turn = await clients.ask(A, told="X")
        await clients.store.erase(turn.session_id)
        await clients.ask(A, X, B, told="Y")
        assert texts(await clients.one()) == ["user: A", "assistant: X", "user: B", "assistant: Y"]

    run_recorder(test)


@in_memory
def test_a_session_that_has_grown_large_is_opened_anew(run_recorder: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.web.gateway.kept_sessions.BYTES", 100_000)

    async def test(clients: Clients) -> None:
        kept = set()
        for _ in range(30):
            turn = await clients.recorder.begin(asked(A))
            await turn.end(given(answer("X"), body=random.Random(0).randbytes(10_000)))
            kept.add(turn.kept)
        assert 3 <= len(kept) <= 6
        assert texts(await clients.one()) == ["user: A", "assistant: X"]

    run_recorder(test)


@pytest.mark.parametrize("session_id", ["@", "x" * 300, "a\nb"])
def test_a_client_that_joins_what_is_no_session_gets_its_answer(session_id: str) -> None:
    async def test() -> None:
        async with broken() as (store, recorder):
            turn = await recorder.begin(asked(A, session_id=session_id))
            assert turn.fault.startswith("no session can be joined")
            await turn.end(given(answer("X")))
            assert not await all_sessions(store)

    asyncio.run(test())


def test_messages_that_cannot_be_digested_break_no_answer() -> None:
    async def test() -> None:
        async with broken() as (_, recorder):
            request = asked(A)
            assert request.read is not None
            wrong: Any = ("no message",)
            read = replace(request.read, request=replace(request.read.request, messages=wrong))
            turn = await recorder.begin(replace(request, read=read))
            assert turn.fault == "the recorder failed: AttributeError"
            assert turn.messages == wrong

    asyncio.run(test())


@in_memory
def test_facts_may_be_added_to_a_turn_under_way(run_recorder: Run) -> None:
    async def test(clients: Clients) -> None:
        from dragoman.history import NotebookEntry

        turn = await clients.ask(A)
        assert turn.session is not None
        await turn.append(NotebookEntry("Noted."))
        await turn.end(given(answer("X")))
        assert [entry.kind for entry in (await clients.one()).entries] == [
            *("system_instruction", "model_input", "client_request", "notebook", "model_output", "client_answer")
        ]
        repeat = await clients.ask(A)
        assert repeat.session is None

    run_recorder(test)


@in_memory
def test_an_answer_of_which_the_client_has_not_all_is_an_interruption(run_recorder: Run) -> None:
    async def test(clients: Clients) -> None:
        turn = await clients.ask(A)
        await turn.end(given(answer("X"), is_whole=False))
        await clients.ask(A, B, told="Y")
        assert texts(await clients.one()) == ["user: A", "user: B", "assistant: Y"]

    run_recorder(test)


@in_memory
def test_keys_reach_no_record(run_recorder: Run) -> None:
    async def test(clients: Clients) -> None:
        secret = "sk-ant-REDACTED"
        turn = await clients.ask(A, query=f"alt=sse&key={secret}", headers={"x-api-key": secret, "anthropic-beta": "b"})
        headers = {"set-cookie": secret, "content-type": "text/plain"}
        await turn.end(given(answer("X"), headers=headers))
        session = await clients.one()
        assert secret not in repr(list(session.entries))
        assert isinstance(session.entries[-1], ClientAnswerEntry)
        assert session.entries[-1].headers == {"content-type": "text/plain"}

    run_recorder(test)


def test_any_body_without_messages_is_recorded() -> None:
    async def test() -> None:
        async with broken() as (store, recorder):
            empty = of_body(b'{"model": "m", "prompt": {"id": "p"}}', api="openai-responses")
            for _ in range(2):
                turn = await recorder.begin(empty)
                assert not turn.fault
                await turn.end(given(answer(Text("X"))))
            assert len(await all_sessions(store)) == 2

    asyncio.run(test())


def test_a_call_with_broken_arguments_is_answered_as_interrupted() -> None:
    async def test() -> None:
        async with broken() as (store, recorder):
            turn = await recorder.begin(asked(A))
            await turn.end(given(answer("Wait.", ToolCall.parse("a", "look", '{"x": "cu'))))
            turn = await recorder.begin(asked(A, Message.assistant("Wait."), B))
            await turn.end(given(answer("X")))
            (session,) = await all_sessions(store)
            assert [message.role for message in session.messages] == ["user", "assistant", "tool", "user", "assistant"]
            await require_sound(store)

    asyncio.run(test())
