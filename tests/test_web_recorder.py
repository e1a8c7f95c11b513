"""The recorder over every store: which session a request goes to, what is recorded, and what no fault may break."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman import Message, Text, Thinking, ToolCall, ToolSpec
from dragoman.errors import ErrorCode, StoreError
from dragoman.history import (
    ClientAnswerEntry,
    ClientRequestEntry,
    HistoryEntry,
    InterruptionEntry,
    ModelInputEntry,
    ResetEntry,
)
from dragoman.history.exchanges import body_of
from dragoman.store import (
    Head,
    Lease,
    Mark,
    MemoryStore,
    Session,
    SessionStore,
    open_session,
    start_session,
)
from dragoman.web.gateway.asked import Asked
from dragoman.web.gateway.recorder import Recorder, Turn
from dragoman.web.gateway.responses import response_mark, with_previous
from tests.web_cases import (
    CLAUDE,
    LOOK,
    READ,
    all_sessions,
    answer,
    asked,
    call,
    failed,
    given,
    of_body,
    outputs,
    require_sound,
    result,
    store_opener,
    texts,
)

KINDS = ("memory", "sqlite", "postgres")
TITLE: dict[str, Any] = {"system": "Write a title.", "tools": ()}
NAMED: dict[str, Any] = {"client": "claude-code", "conversation": "abc"}


class Clients:
    """A recorder and its store, for one test."""

    def __init__(self, open_store: Callable[[], SessionStore]) -> None:
        self.open_store = open_store
        self.store = open_store()
        self.recorder = Recorder(self.store)

    async def ask(self, *messages: Message, told: Message | str | None = None, **fields: Any) -> Turn:
        """One exchange: a request, and its answer if one is given."""
        turn = await self.recorder.begin(asked(*messages, **fields))
        assert not turn.fault, turn.fault
        if told is not None:
            await turn.end(given(answer(told) if isinstance(told, str) else told))
            assert not turn.fault, turn.fault
        return turn

    async def sessions(self) -> list[Session]:
        return await all_sessions(self.store)

    async def one(self) -> Session:
        """The only session."""
        (session,) = await self.sessions()
        return session

    def restart(self) -> None:
        """Forget everything but the store, as a process that was killed."""
        self.recorder = Recorder(self.store)


Test = Callable[[Clients], Awaitable[None]]


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Callable[[Test], None]:
    """Return what runs a test over a store of the kind that the test is run for, and checks what is left in it."""
    open_store = store_opener(request)

    def run(test: Test) -> None:
        async def whole() -> None:
            clients = Clients(open_store)
            try:
                await test(clients)
                await clients.recorder.settle()
                await require_sound(clients.store)
                assert clients.recorder.faults == 0
            finally:
                await clients.store.close()

        asyncio.run(whole())

    return run


over_stores = pytest.mark.parametrize("run", KINDS, indirect=True)
in_memory = pytest.mark.parametrize("run", ["memory"], indirect=True)
Run = Callable[[Test], None]

A, B, C = Message.user("A"), Message.user("B"), Message.user("C")
X, Y = Message.assistant("X"), Message.assistant("Y")


# ---------------------------------------------------------------- one conversation


@over_stores
def test_a_conversation_is_one_session(run: Run) -> None:
    async def test(clients: Clients) -> None:
        calling = answer(Thinking("Hm.", provider_data={"signature": "s"}), "Wait.", call("look", x=1))
        await clients.ask(A, told=calling)
        theirs = Message.assistant("Wait.", call("look", x=1))
        await clients.ask(A, theirs, result("found"), told="X")
        await clients.ask(A, theirs, result("found"), X, B, told="Y")
        session = await clients.one()
        assert texts(session) == [
            "user: A",
            "assistant: Wait. look()",
            "tool: found",
            "assistant: X",
            "user: B",
            "assistant: Y",
        ]
        assert isinstance(outputs(session)[0].parts[0], Thinking)
        assert session.state.system_instruction == "Be brief."
        kinds = [str(entry.kind) for entry in session.entries]
        assert kinds.count("system_instruction") == 1
        assert kinds.count("client_request") == kinds.count("client_answer") == 3

    run(test)


@over_stores
def test_a_conversation_goes_on_after_the_server_was_killed(run: Run) -> None:
    async def test(clients: Clients) -> None:
        await clients.ask(A, told="X")
        clients.restart()
        await clients.ask(A, X, B)
        clients.restart()
        await clients.ask(A, X, B, told="Y")
        clients.restart()
        await clients.ask(A, X, B, Y, C, told="Z")
        assert texts(await clients.one()) == [
            *("user: A", "assistant: X", "user: B", "assistant: Y", "user: C", "assistant: Z")
        ]

    run(test)


@over_stores
def test_bodies_are_recorded_to_the_byte_and_shared_with_earlier_ones(run: Run) -> None:
    async def test(clients: Clients) -> None:
        long = Message.user("word " * 2_000)
        bodies = []
        for messages in ((long,), (long, X, B), (long, X, B, Y, C)):
            turn = await clients.ask(*messages, told={1: "X", 3: "Y", 5: "Z"}[len(messages)])
            bodies.append(turn.said.asked.body)
        session = await clients.one()
        requests = [entry for entry in session.entries if isinstance(entry, ClientRequestEntry)]
        assert [body_of(session.entries.__getitem__, entry).encode() for entry in requests] == bodies
        assert [len(entry.text) < 1_000 for entry in requests] == [False, True, True]
        answers = [entry for entry in session.entries if isinstance(entry, ClientAnswerEntry)]
        assert [(entry.body, entry.request_serial) for entry in answers] == [
            (text.encode(), entry.serial) for text, entry in zip("XYZ", requests, strict=True)
        ]

    run(test)


@in_memory
def test_a_body_that_is_no_utf8_is_recorded_to_the_byte(run: Run) -> None:
    async def test(clients: Clients) -> None:
        broken = Asked(
            api="openai-chat", path="/v1/chat/completions", model="m", body=b"\xff\x00{", headers={}, read=None
        )
        turn = await clients.recorder.begin(broken)
        await turn.end(given(None, status=200, body=b"ok"))
        request, told = (await clients.one()).entries
        assert isinstance(request, ClientRequestEntry)
        assert isinstance(told, ClientAnswerEntry)
        import base64

        assert base64.b64decode(request.text) == b"\xff\x00{"
        assert request.metadata["encoding"] == "base64"
        assert turn.messages == ()

    run(test)


@over_stores
def test_the_model_is_asked_with_recorded_answers_under_the_clients_ids(run: Run) -> None:
    async def test(clients: Clients) -> None:
        signed = Thinking("Hm.", provider_data={"signature": "s"})
        for number, name in enumerate(("look", "look")):
            before = [Message.user("A")]
            if number:
                before += [Message.assistant(call(name)), result("x")]
            await clients.ask(*before, told=answer(signed, call(name)))
        messages = [A, Message.assistant(call("look")), result("x"), Message.assistant(call("look")), result("y")]
        clients.restart()
        turn = await clients.ask(*messages, told="Done.")
        session = await clients.one()
        assert [each.tool_call_id for each in outputs(session)[1].tool_calls] == ["call_1~2"]
        assert texts(session)[-2:] == ["tool: y", "assistant: Done."]
        assert [len(message.parts) for message in turn.messages] == [1, 2, 1, 2, 1]
        for index in (1, 3):
            assert turn.messages[index].parts[0] == signed
            assert turn.messages[index].tool_calls[0].tool_call_id == "call_1"
            meta = turn.messages[index].meta
            assert meta is not None
            assert meta.invocation == CLAUDE

    run(test)


# ---------------------------------------------------------------- repeats


@over_stores
def test_a_retry_after_a_failure_is_the_same_turn(run: Run) -> None:
    async def test(clients: Clients) -> None:
        turn = await clients.ask(A)
        await turn.end(failed(ErrorCode.STREAM_TRUNCATED, answer("Hel")))
        turn = await clients.ask(A)
        await turn.end(failed())
        await clients.ask(A, told="X")
        await clients.ask(A, X, B, told="Y")
        session = await clients.one()
        assert texts(session) == ["user: A", "assistant: X", "user: B", "assistant: Y"]
        broken = [entry for entry in session.entries if isinstance(entry, InterruptionEntry)]
        assert [(entry.reason, entry.partial is not None) for entry in broken] == [
            (ErrorCode.STREAM_TRUNCATED, True),
            (ErrorCode.OVERLOADED, False),
        ]

    run(test)


@over_stores
def test_a_repeat_with_the_same_answer_adds_only_facts(run: Run) -> None:
    async def test(clients: Clients) -> None:
        await clients.ask(A, told="X")
        await clients.ask(A, X, B, told="Y")
        await clients.ask(A, told=" X\n")
        session = await clients.one()
        assert texts(session) == ["user: A", "assistant: X", "user: B", "assistant: Y"]
        assert sum(isinstance(entry, ClientAnswerEntry) for entry in session.entries) == 3
        await clients.ask(A, X, B, Y, C, told="Z")
        assert texts(await clients.one())[-2:] == ["user: C", "assistant: Z"]

    run(test)


@over_stores
def test_a_repeat_with_another_answer_is_a_fork(run: Run) -> None:
    async def test(clients: Clients) -> None:
        await clients.ask(A, told="X")
        await clients.ask(A, told="Y")
        await clients.ask(A, Y, B, told="Z")
        first, second = await clients.sessions()
        assert texts(first) == ["user: A", "assistant: X"]
        assert texts(second) == ["user: A", "assistant: Y", "user: B", "assistant: Z"]
        assert second.info.forked_from is not None
        await clients.ask(A, X, C, told="V")
        first, second = await clients.sessions()
        assert texts(first) == ["user: A", "assistant: X", "user: C", "assistant: V"]

    run(test)


@over_stores
def test_a_repeat_that_fails_changes_nothing_that_was_said(run: Run) -> None:
    async def test(clients: Clients) -> None:
        await clients.ask(A, told="X")
        turn = await clients.ask(A)
        await turn.end(failed(ErrorCode.STREAM_TRUNCATED, answer("Hel")))
        assert texts(await clients.one()) == ["user: A", "assistant: X"]

    run(test)


@in_memory
def test_the_same_request_many_times_keeps_few_marks_and_one_session(run: Run) -> None:
    async def test(clients: Clients) -> None:
        turns = [await clients.ask(A) for _ in range(30)]
        for turn in turns:
            await turn.end(given(answer("X")))
        session = await clients.one()
        assert texts(session) == ["user: A", "assistant: X"]
        marks = await clients.store.find_marks([turns[0].said.mark])
        assert len(marks) == 1

    run(test)


# ---------------------------------------------------------------- edits


@over_stores
def test_a_rewind_is_a_fork_and_nothing_is_lost(run: Run) -> None:
    async def test(clients: Clients) -> None:
        await clients.ask(A, told="X")
        await clients.ask(A, X, B, told="Y")
        await clients.ask(A, X, C, told="Z")
        await clients.ask(A, X, C, Message.assistant("Z"), B, told="V")
        first, second = await clients.sessions()
        assert texts(first) == ["user: A", "assistant: X", "user: B", "assistant: Y"]
        assert texts(second) == [*("user: A", "assistant: X", "user: C", "assistant: Z", "user: B", "assistant: V")]

    run(test)


@over_stores
def test_an_answer_that_the_client_changed_is_a_fork(run: Run) -> None:
    async def test(clients: Clients) -> None:
        await clients.ask(A, told="X")
        await clients.ask(A, Y, B, told="Z")
        first, second = await clients.sessions()
        assert texts(first) == ["user: A", "assistant: X"]
        assert texts(second) == ["user: A", "assistant: Y", "user: B", "assistant: Z"]

    run(test)


@over_stores
def test_an_earlier_message_that_was_changed_begins_anew(run: Run) -> None:
    async def test(clients: Clients) -> None:
        await clients.ask(A, told="X")
        await clients.ask(B, X, C, told="Y")
        _, second = await clients.sessions()
        assert texts(second) == ["user: B", "assistant: X", "user: C", "assistant: Y"]
        assert second.info.forked_from is None

    run(test)


@over_stores
def test_words_after_a_failed_turn_go_on_in_its_session(run: Run) -> None:
    async def test(clients: Clients) -> None:
        turn = await clients.ask(A)
        await turn.end(failed(ErrorCode.CANCELLED, answer("Hel")))
        await clients.ask(Message.user("A", "B"), told="X")
        assert texts(await clients.one()) == ["user: A", "user: B", "assistant: X"]

    run(test)


@over_stores
def test_a_cut_answer_that_the_client_took_for_whole_goes_on(run: Run) -> None:
    async def test(clients: Clients) -> None:
        turn = await clients.ask(A)
        signed = Thinking("Hm.", provider_data={"signature": "s"})
        await turn.end(failed(ErrorCode.STREAM_TRUNCATED, answer(signed, call("look"))))
        await clients.ask(A, Message.assistant(call("look")), result("found"), told="X")
        session = await clients.one()
        assert texts(session) == ["user: A", "assistant: look()", "tool: found", "assistant: X"]
        assert outputs(session)[0].parts[0] == signed

    run(test)


@over_stores
def test_results_that_never_came_are_recorded_as_interrupted(run: Run) -> None:
    async def test(clients: Clients) -> None:
        await clients.ask(A, told=answer(call("look", "a"), call("read", "b")))
        theirs = Message.assistant(call("look", "a"), call("read", "b"))
        await clients.ask(A, theirs, result("found", "b"), B, told="X")
        session = await clients.one()
        assert "interrupted" in texts(session)[2]
        assert texts(session)[3:] == ["tool: found", "user: B", "assistant: X"]

    run(test)


@in_memory
def test_an_answer_in_two_pieces_goes_on_in_one_session(run: Run) -> None:
    async def test(clients: Clients) -> None:
        await clients.ask(A, told="One.")
        await clients.ask(A, Message.assistant("One."), told="Two.")
        await clients.ask(A, Message.assistant("One.", "Two."), B, told="X")
        assert texts(await clients.one()) == [
            *("user: A", "assistant: One.", "assistant: Two.", "user: B", "assistant: X")
        ]

    run(test)


# ---------------------------------------------------------------- names, compaction, side requests


@over_stores
def test_a_named_conversation_names_its_session(run: Run) -> None:
    async def test(clients: Clients) -> None:
        await clients.ask(A, told="X", **NAMED)
        session = await clients.one()
        assert session.session_id == "claude-code-abc"
        assert session.metadata["gateway"].to_plain() == {
            "client": "claude-code",
            "conversation": "abc",
            "api": "anthropic-messages",
        }
        await clients.ask(A, told="Y", **{**NAMED, "key_name": "other"})
        names = [each.session_id for each in await clients.sessions()]
        assert names == ["claude-code-abc", "claude-code-abc-2"]

    run(test)


@in_memory
def test_a_conversation_without_a_name_gets_a_random_id(run: Run) -> None:
    async def test(clients: Clients) -> None:
        await clients.ask(A, told="X", client="pi")
        session = await clients.one()
        program, _, number = session.session_id.partition("-")
        assert (program, len(number)) == ("pi", 12)

    run(test)


@over_stores
def test_a_compaction_is_a_fork_that_begins_with_a_reset(run: Run) -> None:
    async def test(clients: Clients) -> None:
        await clients.ask(A, told=answer(call("look")), **NAMED)
        clients.restart()
        summary = Message.user("This was said so far: A.")
        await clients.ask(summary, told="X", **NAMED)
        await clients.ask(summary, X, B, told="Y", **NAMED)
        first, second = await clients.sessions()
        assert second.info.forked_from is not None
        assert second.info.forked_from.session_id == first.session_id
        assert any(isinstance(entry, ResetEntry) for entry in second.entries)
        context = [type(each).__name__ for each in second.state.render_live_context()]
        assert context == [
            *("SystemInstructionMessage", "ModelInputAtDetail", "ModelOutputEntry"),
            *("ModelInputAtDetail", "ModelOutputEntry"),
        ]

    run(test)


@over_stores
def test_a_title_is_asked_for_beside_the_conversation(run: Run) -> None:
    async def test(clients: Clients) -> None:
        opencode: dict[str, Any] = {"client": "opencode", "conversation": "s1"}
        await clients.ask(Message.user("Title for: A"), told="T", **TITLE, **opencode)
        await clients.ask(A, told="X", **opencode)
        await clients.ask(A, X, B, told="Y", **opencode)
        side, main = await clients.sessions()
        assert side.metadata["side"] is True
        assert "side" not in main.metadata
        assert main.session_id == "opencode-s1"
        assert texts(main) == ["user: A", "assistant: X", "user: B", "assistant: Y"]

    run(test)


@in_memory
def test_a_title_for_the_very_same_words_is_kept_apart_from_them(run: Run) -> None:
    async def test(clients: Clients) -> None:
        for named in ({}, {"client": "opencode", "conversation": "s1"}):
            await clients.ask(A, told="X", **named)
            turn = await clients.ask(A, told="T", **TITLE, **named)
            assert turn.is_side
            await clients.ask(A, X, B, told="Y", **named)
        for main in (await clients.sessions())[::2]:
            assert texts(main) == ["user: A", "assistant: X", "user: B", "assistant: Y"]

    run(test)


@over_stores
def test_a_side_request_that_extends_the_conversation_is_a_fork_beside_it(run: Run) -> None:
    async def test(clients: Clients) -> None:
        await clients.ask(A, told="X")
        turn = await clients.ask(A, X, Message.user("What next?"), told="N", system="Suggest.", tools=(LOOK,))
        assert turn.is_side
        await clients.ask(A, X, B, told="Y")
        main, side = await clients.sessions()
        assert texts(main) == ["user: A", "assistant: X", "user: B", "assistant: Y"]
        assert texts(side) == ["user: A", "assistant: X", "user: What next?", "assistant: N"]
        assert side.metadata["side"] is True

    run(test)


@in_memory
def test_an_agent_of_a_client_with_tools_of_its_own_is_kept_apart(run: Run) -> None:
    async def test(clients: Clients) -> None:
        await clients.ask(A, told="X", **NAMED)
        agent: dict[str, Any] = {"system": "You search.", "tools": (READ,), **NAMED}
        task = Message.user("Search it.")
        await clients.ask(task, told=answer(call("read")), **agent)
        await clients.ask(task, Message.assistant(call("read")), result("found"), told="F", **agent)
        await clients.ask(A, X, B, told="Y", **NAMED)
        main, side = await clients.sessions()
        assert texts(main) == ["user: A", "assistant: X", "user: B", "assistant: Y"]
        assert texts(side)[-1] == "assistant: F"
        assert side.info.forked_from is None
        assert side.metadata["side"] is True

    run(test)


@in_memory
def test_new_tools_or_a_new_system_text_alone_go_on_in_the_session(run: Run) -> None:
    async def test(clients: Clients) -> None:
        await clients.ask(A, told="X")
        await clients.ask(A, X, B, told="Y", tools=(LOOK, READ, ToolSpec("more", "More.")))
        await clients.ask(A, X, B, Y, C, told="Z", system="Now be long.", tools=(LOOK, READ, ToolSpec("more", "More.")))
        session = await clients.one()
        assert session.state.system_instruction == "Now be long."

    run(test)


# ---------------------------------------------------------------- two at once


@over_stores
def test_two_requests_at_once_are_two_sessions(run: Run) -> None:
    async def test(clients: Clients) -> None:
        await clients.ask(A, told="X")
        one, other = await asyncio.gather(clients.ask(A, X, B), clients.ask(A, X, C))
        await asyncio.gather(one.end(given(answer("Y"))), other.end(given(answer("Z"))))
        found = sorted(texts(session)[2:] for session in await clients.sessions())
        assert found == [["user: B", "assistant: Y"], ["user: C", "assistant: Z"]]
        await clients.ask(A, X, C, Message.assistant("Z"), B, told="V")
        assert len(await clients.sessions()) == 2

    run(test)


@pytest.mark.parametrize("run", KINDS[1:], indirect=True)
def test_two_servers_of_one_store_lose_nothing(run: Run) -> None:
    async def test(clients: Clients) -> None:
        await clients.ask(A, told="X")
        other = Clients(clients.open_store)
        try:
            await other.ask(A, X, B, told="Y")
            await clients.ask(A, X, C, told="Z")
            turn = await clients.ask(A, X, B, Y, C)
            await other.ask(A, X, B, Y, B, told="V")
            await turn.end(given(answer("W")))
        finally:
            await other.store.close()
        found = sorted(texts(session)[2:] for session in await clients.sessions())
        assert found == [
            ["user: B", "assistant: Y", "user: B", "assistant: V"],
            ["user: B", "assistant: Y", "user: C", "assistant: W"],
            ["user: C", "assistant: Z"],
        ]

    run(test)


@over_stores
def test_an_answer_that_finds_its_session_moved_on_is_a_fork(run: Run) -> None:
    async def test(clients: Clients) -> None:
        turn = await clients.ask(A)
        session = await open_session(clients.store, turn.session_id)
        await session.append(ModelInputEntry.of("From elsewhere."))
        await turn.end(given(answer("X")))
        assert not turn.fault
        first, second = await clients.sessions()
        assert texts(first) == ["user: A", "user: From elsewhere."]
        assert texts(second) == ["user: A", "assistant: X"]
        assert turn.session_id == second.session_id
        await clients.ask(A, X, B, told="Y")
        assert texts((await clients.sessions())[1])[-1] == "assistant: Y"

    run(test)


@over_stores
def test_a_session_that_a_run_holds_is_forked(run: Run) -> None:
    async def test(clients: Clients) -> None:
        await clients.ask(A, told="X")
        session = await clients.one()
        async with session.hold():
            await clients.ask(A, X, B, told="Y")
        first, second = await clients.sessions()
        assert texts(first) == ["user: A", "assistant: X"]
        assert texts(second)[2:] == ["user: B", "assistant: Y"]

    run(test)


@in_memory
def test_a_turn_that_never_ended_blocks_nothing_once_it_is_gone(run: Run) -> None:
    async def test(clients: Clients) -> None:
        await clients.ask(A, told="X")
        turn = await clients.ask(A, X, B)
        del turn
        await clients.ask(A, X, B, C, told="Y")
        assert texts(await clients.one()) == ["user: A", "assistant: X", "user: B", "user: C", "assistant: Y"]

    run(test)


# ---------------------------------------------------------------- joined sessions


@over_stores
def test_a_conversation_goes_on_in_another_client_and_back(run: Run) -> None:
    async def test(clients: Clients) -> None:
        claude: dict[str, Any] = {"client": "claude-code", "session_id": "work"}
        codex: dict[str, Any] = {
            "client": "codex",
            "session_id": "work",
            "api": "openai-responses",
            "system": "You are Codex.",
            "tools": (ToolSpec("shell", "Runs it."),),
        }
        await clients.ask(A, told=answer(call("look")), **claude)
        await clients.ask(A, Message.assistant(call("look")), result("found"), told="X", **claude)
        turn = await clients.ask(B, **codex)
        assert turn.is_joined
        assert [message.role for message in turn.messages] == ["user", "assistant", "tool", "assistant", "user"]
        await turn.end(given(answer("Y")))
        await clients.ask(B, Y, C, told="Z", **codex)
        back = [A, Message.assistant(call("look")), result("found"), X, Message.user("D")]
        turn = await clients.ask(*back, told="W", **claude)
        session = await clients.one()
        assert session.session_id == "work"
        assert texts(session) == [
            *("user: A", "assistant: look()", "tool: found", "assistant: X", "user: B", "assistant: Y"),
            *("user: C", "assistant: Z", "user: D", "assistant: W"),
        ]
        assert len(turn.messages) == 9

    run(test)


@in_memory
def test_titles_and_agents_of_a_client_that_joined_are_kept_apart(run: Run) -> None:
    async def test(clients: Clients) -> None:
        joined: dict[str, Any] = {"client": "claude-code", "session_id": "work"}
        await clients.ask(A, told="X", **joined)
        turn = await clients.ask(Message.user("Title?"), told="T", **TITLE, **joined)
        assert turn.is_side
        assert turn.messages == (Message.user("Title?"),)
        agent: dict[str, Any] = {"system": "You search.", "tools": (READ,), **joined}
        await clients.ask(C, told=answer(call("read")), **agent)
        turn = await clients.ask(C, Message.assistant(call("read")), result("found"), told="F", **agent)
        assert turn.is_side
        await clients.ask(A, X, B, told="Y", **joined)
        session = await open_session(clients.store, "work")
        assert texts(session) == ["user: A", "assistant: X", "user: B", "assistant: Y"]
        assert len(await clients.sessions()) == 3

    run(test)


@over_stores
def test_two_clients_of_one_session_at_once_get_a_fork(run: Run) -> None:
    async def test(clients: Clients) -> None:
        joined: dict[str, Any] = {"session_id": "work"}
        await clients.ask(A, told="X", **joined)
        one = await clients.ask(A, X, B, **joined)
        other = await clients.ask(C, client="codex", **joined)
        assert [message.text for message in other.messages] == ["A", "X", "C"]
        await one.end(given(answer("Y")))
        await other.end(given(answer("Z")))
        first, second = await clients.sessions()
        assert texts(first)[2:] == ["user: B", "assistant: Y"]
        assert texts(second)[2:] == ["user: C", "assistant: Z"]

    run(test)


@over_stores
def test_a_client_joins_the_session_of_an_agent(run: Run) -> None:
    async def test(clients: Clients) -> None:
        session = await start_session(clients.store, "work")
        await session.append_model_input("A")
        await session.append_model_output(answer(call("look", "call_1")))
        turn = await clients.ask(B, told="X", session_id="work")
        assert "interrupted" in str(turn.messages[2].parts)
        assert texts(await clients.one())[-2:] == ["user: B", "assistant: X"]

    run(test)


@in_memory
def test_a_joined_session_with_an_open_run_is_forked(run: Run) -> None:
    async def test(clients: Clients) -> None:
        from dragoman.history import RunStartedEntry

        session = await start_session(clients.store, "work")
        await session.append(RunStartedEntry(run_id="r"))
        await session.append_model_input("A")
        await clients.ask(B, told="X", session_id="work")
        first, second = await clients.sessions()
        assert texts(first) == ["user: A"]
        assert texts(second) == ["user: A", "user: B", "assistant: X"]

    run(test)


@in_memory
def test_a_repeat_in_a_joined_session_is_the_same_turn(run: Run) -> None:
    async def test(clients: Clients) -> None:
        joined: dict[str, Any] = {"session_id": "work"}
        turn = await clients.ask(A, **joined)
        await turn.end(failed())
        turn = await clients.ask(A, told="X", **joined)
        assert turn.is_joined
        assert texts(await clients.one()) == ["user: A", "assistant: X"]

    run(test)


# ---------------------------------------------------------------- responses that are continued


@over_stores
def test_a_request_that_names_the_response_before_it_goes_on_in_its_session(run: Run) -> None:
    async def test(clients: Clients) -> None:
        api: dict[str, Any] = {"api": "openai-responses", "key_name": "me", "client": "sdk"}

        async def respond(response_id: str, told: Message, *messages: Message, previous: str = "") -> Turn:
            request = await with_previous(clients.store, asked(*messages, previous=previous, **api))
            turn = await clients.recorder.begin(request)
            await turn.end(given(told, marks=(response_mark(response_id, "me"),)))
            assert not turn.fault
            return turn

        calling = answer(Thinking("Hm."), call("look", "call_1"), call("read", "call_2"))
        await respond("resp_1", calling, A)
        clients.restart()
        await respond("resp_2", answer("X"), result("x"), result("y", "call_2"), previous="resp_1")
        turn = await respond("resp_3", answer("Y"), B, previous="resp_2")
        session = await clients.one()
        assert texts(session) == [
            *("user: A", "assistant: look() read()", "tool: x", "tool: y", "assistant: X", "user: B", "assistant: Y")
        ]
        assert [message.role for message in turn.messages] == ["user", "assistant", "tool", "tool", "assistant", "user"]
        await respond("resp_4", answer("Z"), C, previous="resp_2")
        first, second = await clients.sessions()
        assert texts(second)[-3:] == ["assistant: X", "user: C", "assistant: Z"]
        assert texts(first)[-1] == "assistant: Y"

    run(test)


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
def test_a_session_that_was_erased_is_begun_anew(run: Run) -> None:
    async def test(clients: Clients) -> None:
        turn = await clients.ask(A, told="X")
        await clients.store.erase(turn.session_id)
        await clients.ask(A, X, B, told="Y")
        assert texts(await clients.one()) == ["user: A", "assistant: X", "user: B", "assistant: Y"]

    run(test)


@in_memory
def test_a_session_that_has_grown_large_is_opened_anew(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.web.gateway.kept_sessions.BYTES", 100_000)

    async def test(clients: Clients) -> None:
        kept = set()
        for _ in range(30):
            turn = await clients.recorder.begin(asked(A))
            await turn.end(given(answer("X"), body=random.Random(0).randbytes(10_000)))
            kept.add(turn.kept)
        assert 3 <= len(kept) <= 6
        assert texts(await clients.one()) == ["user: A", "assistant: X"]

    run(test)


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
def test_facts_may_be_added_to_a_turn_under_way(run: Run) -> None:
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

    run(test)


@in_memory
def test_an_answer_of_which_the_client_has_not_all_is_an_interruption(run: Run) -> None:
    async def test(clients: Clients) -> None:
        turn = await clients.ask(A)
        await turn.end(given(answer("X"), is_whole=False))
        await clients.ask(A, B, told="Y")
        assert texts(await clients.one()) == ["user: A", "user: B", "assistant: Y"]

    run(test)


@in_memory
def test_keys_reach_no_record(run: Run) -> None:
    async def test(clients: Clients) -> None:
        secret = "sk-ant-REDACTED"
        turn = await clients.ask(A, query=f"alt=sse&key={secret}", headers={"x-api-key": secret, "anthropic-beta": "b"})
        headers = {"set-cookie": secret, "content-type": "text/plain"}
        await turn.end(given(answer("X"), headers=headers))
        session = await clients.one()
        assert secret not in repr(list(session.entries))
        assert isinstance(session.entries[-1], ClientAnswerEntry)
        assert session.entries[-1].headers == {"content-type": "text/plain"}

    run(test)


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
