"""Sessions of the recorder: by name, joined, continued, compacted, and two requests at once."""

import asyncio
from typing import Any

import pytest

from dragoman import Message, Text, Thinking, ToolSpec
from dragoman.history import (
    ClientRequestEntry,
    ModelInputEntry,
    ResetEntry,
)
from dragoman.store import (
    open_session,
    start_session,
)
from dragoman.web.gateway.recorder import Turn
from dragoman.web.gateway.responses import response_mark, with_previous
from tests.web_cases import (
    LOOK,
    READ,
    answer,
    asked,
    call,
    failed,
    given,
    result,
    texts,
)
from tests.web_recording import KINDS, NAMED, TITLE, A, B, C, Clients, Run, X, Y, in_memory, over_stores

# ---------------------------------------------------------------- names, compaction, side requests


@over_stores
def test_a_named_conversation_names_its_session(run_recorder: Run) -> None:
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

    run_recorder(test)


@in_memory
def test_a_conversation_without_a_name_gets_a_random_id(run_recorder: Run) -> None:
    async def test(clients: Clients) -> None:
        await clients.ask(A, told="X", client="pi")
        session = await clients.one()
        program, _, number = session.session_id.partition("-")
        assert (program, len(number)) == ("pi", 12)

    run_recorder(test)


@over_stores
def test_a_compaction_is_a_fork_that_begins_with_a_reset(run_recorder: Run) -> None:
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

    run_recorder(test)


@over_stores
def test_a_title_is_asked_for_beside_the_conversation(run_recorder: Run) -> None:
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

    run_recorder(test)


@in_memory
def test_a_title_for_the_very_same_words_is_kept_apart_from_them(run_recorder: Run) -> None:
    async def test(clients: Clients) -> None:
        for named in ({}, {"client": "opencode", "conversation": "s1"}):
            await clients.ask(A, told="X", **named)
            turn = await clients.ask(A, told="T", **TITLE, **named)
            assert turn.is_side
            await clients.ask(A, X, B, told="Y", **named)
        for main in (await clients.sessions())[::2]:
            assert texts(main) == ["user: A", "assistant: X", "user: B", "assistant: Y"]

    run_recorder(test)


@in_memory
@pytest.mark.parametrize("said", ["X", "T"], ids=["the same answer", "another answer"])
@pytest.mark.parametrize("joined", ["", "s1"], ids=["own", "joined"])
def test_the_same_words_under_another_system_text_are_beside_the_conversation(
    run_recorder: Run, said: str, joined: str
) -> None:
    async def test(clients: Clients) -> None:
        plain: dict[str, Any] = {"tools": (), "session_id": joined}
        main = await clients.ask(A, **plain)
        side = await clients.ask(A, system="Write a title.", told=said, **plain)
        await main.end(given(answer("X")))
        await clients.ask(A, X, B, told="Y", **plain)
        first, second = await clients.sessions()
        assert side.is_side
        assert second.metadata["side"] is True
        assert texts(first) == ["user: A", "assistant: X", "user: B", "assistant: Y"]
        assert texts(second) == ["user: A", f"assistant: {said}"]
        assert (first.state.system_instruction, second.state.system_instruction) == ("Be brief.", "Write a title.")
        assert sum(isinstance(entry, ClientRequestEntry) for entry in first.entries) == 2

    run_recorder(test)


@in_memory
@pytest.mark.parametrize("said", ["X", "Z"], ids=["the same answer", "another answer"])
def test_first_words_that_were_answered_begin_another_conversation_under_another_system_text(
    run_recorder: Run, said: str
) -> None:
    async def test(clients: Clients) -> None:
        await clients.ask(A, told="X")
        await clients.ask(A, told=said, system="Be long.")
        main, other = await clients.sessions()
        assert (main.state.system_instruction, other.state.system_instruction) == ("Be brief.", "Be long.")
        assert (texts(main), texts(other)) == (["user: A", "assistant: X"], ["user: A", f"assistant: {said}"])
        assert (await clients.store.info(other.session_id)).forked_from is None

    run_recorder(test)


@in_memory
@pytest.mark.parametrize("joined", ["", "s1"], ids=["own", "joined"])
def test_a_failed_turn_that_is_asked_anew_under_another_system_text_goes_on_with_it(
    run_recorder: Run, joined: str
) -> None:
    async def test(clients: Clients) -> None:
        first = await clients.ask(A, session_id=joined)
        await first.end(failed())
        await clients.ask(A, told="X", system="Be long.", session_id=joined)
        session = await clients.one()
        assert session.state.system_instruction == "Be long."
        assert texts(session) == ["user: A", "assistant: X"]

    run_recorder(test)


@over_stores
def test_a_side_request_that_extends_the_conversation_is_a_fork_beside_it(run_recorder: Run) -> None:
    async def test(clients: Clients) -> None:
        await clients.ask(A, told="X")
        turn = await clients.ask(A, X, Message.user("What next?"), told="N", system="Suggest.", tools=(LOOK,))
        assert turn.is_side
        await clients.ask(A, X, B, told="Y")
        main, side = await clients.sessions()
        assert texts(main) == ["user: A", "assistant: X", "user: B", "assistant: Y"]
        assert texts(side) == ["user: A", "assistant: X", "user: What next?", "assistant: N"]
        assert side.metadata["side"] is True

    run_recorder(test)


@in_memory
def test_an_agent_of_a_client_with_tools_of_its_own_is_kept_apart(run_recorder: Run) -> None:
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

    run_recorder(test)


@in_memory
def test_new_tools_or_a_new_system_text_alone_go_on_in_the_session(run_recorder: Run) -> None:
    async def test(clients: Clients) -> None:
        await clients.ask(A, told="X")
        await clients.ask(A, X, B, told="Y", tools=(LOOK, READ, ToolSpec("more", "More.")))
        await clients.ask(A, X, B, Y, C, told="Z", system="Now be long.", tools=(LOOK, READ, ToolSpec("more", "More.")))
        session = await clients.one()
        assert session.state.system_instruction == "Now be long."

    run_recorder(test)


@in_memory
@pytest.mark.parametrize("joined", ["", "s1"], ids=["own", "joined"])
def test_a_client_that_changes_its_model_goes_on_in_the_session(run_recorder: Run, joined: str) -> None:
    async def test(clients: Clients) -> None:
        await clients.ask(A, told="X", session_id=joined)
        # Claude Code has another system text and other descriptions of the same tools for another model.
        other: dict[str, Any] = {"system": "You are Opus.", "tools": (LOOK, ToolSpec("read", "Reads any file."))}
        turn = await clients.ask(A, X, B, told="Y", session_id=joined, **other)
        assert not turn.is_side
        assert texts(await clients.one()) == ["user: A", "assistant: X", "user: B", "assistant: Y"]

    run_recorder(test)


# ---------------------------------------------------------------- two at once


@over_stores
def test_two_requests_at_once_are_two_sessions(run_recorder: Run) -> None:
    async def test(clients: Clients) -> None:
        await clients.ask(A, told="X")
        one, other = await asyncio.gather(clients.ask(A, X, B), clients.ask(A, X, C))
        await asyncio.gather(one.end(given(answer("Y"))), other.end(given(answer("Z"))))
        found = sorted(texts(session)[2:] for session in await clients.sessions())
        assert found == [["user: B", "assistant: Y"], ["user: C", "assistant: Z"]]
        await clients.ask(A, X, C, Message.assistant("Z"), B, told="V")
        assert len(await clients.sessions()) == 2

    run_recorder(test)


@pytest.mark.parametrize("run_recorder", KINDS[1:], indirect=True)
def test_two_servers_of_one_store_lose_nothing(run_recorder: Run) -> None:
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

    run_recorder(test)


@over_stores
def test_an_answer_that_finds_its_session_moved_on_is_a_fork(run_recorder: Run) -> None:
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

    run_recorder(test)


@over_stores
def test_a_session_that_a_run_holds_is_forked(run_recorder: Run) -> None:
    async def test(clients: Clients) -> None:
        await clients.ask(A, told="X")
        session = await clients.one()
        async with session.hold():
            await clients.ask(A, X, B, told="Y")
        first, second = await clients.sessions()
        assert texts(first) == ["user: A", "assistant: X"]
        assert texts(second)[2:] == ["user: B", "assistant: Y"]

    run_recorder(test)


@in_memory
def test_a_turn_that_never_ended_blocks_nothing_once_it_is_gone(run_recorder: Run) -> None:
    async def test(clients: Clients) -> None:
        await clients.ask(A, told="X")
        turn = await clients.ask(A, X, B)
        del turn
        await clients.ask(A, X, B, C, told="Y")
        assert texts(await clients.one()) == ["user: A", "assistant: X", "user: B", "user: C", "assistant: Y"]

    run_recorder(test)


# ---------------------------------------------------------------- joined sessions


@over_stores
def test_a_conversation_goes_on_in_another_client_and_back(run_recorder: Run) -> None:
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

    run_recorder(test)


@in_memory
def test_titles_and_agents_of_a_client_that_joined_are_kept_apart(run_recorder: Run) -> None:
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

    run_recorder(test)


@over_stores
def test_two_clients_of_one_session_at_once_get_a_fork(run_recorder: Run) -> None:
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

    run_recorder(test)


@over_stores
def test_a_result_that_comes_after_another_client_has_spoken_is_kept_in_a_fork(run_recorder: Run) -> None:
    async def test(clients: Clients) -> None:
        joined: dict[str, Any] = {"session_id": "work"}
        await clients.ask(A, told=answer(call("look")), **joined)
        await clients.ask(B, told="Y", client="codex", **joined)
        turn = await clients.ask(A, Message.assistant(call("look")), result("found"), told="X", **joined)
        assert [message.role for message in turn.messages] == ["user", "assistant", "tool"]
        main, fork = await clients.sessions()
        assert texts(main)[-2:] == ["user: B", "assistant: Y"]
        assert texts(fork) == ["user: A", "assistant: look()", "tool: found", "assistant: X"]

    run_recorder(test)


@over_stores
def test_a_client_joins_the_session_of_an_agent(run_recorder: Run) -> None:
    async def test(clients: Clients) -> None:
        session = await start_session(clients.store, "work")
        await session.append_model_input("A")
        await session.append_model_output(answer(call("look", "call_1")))
        turn = await clients.ask(B, told="X", session_id="work")
        assert "interrupted" in str(turn.messages[2].parts)
        assert texts(await clients.one())[-2:] == ["user: B", "assistant: X"]

    run_recorder(test)


@in_memory
def test_a_joined_session_with_an_open_run_is_forked(run_recorder: Run) -> None:
    async def test(clients: Clients) -> None:
        from dragoman.history import RunStartedEntry

        session = await start_session(clients.store, "work")
        await session.append(RunStartedEntry(run_id="r"))
        await session.append_model_input("A")
        await clients.ask(B, told="X", session_id="work")
        first, second = await clients.sessions()
        assert texts(first) == ["user: A"]
        assert texts(second) == ["user: A", "user: B", "assistant: X"]

    run_recorder(test)


@in_memory
def test_a_repeat_in_a_joined_session_is_the_same_turn(run_recorder: Run) -> None:
    async def test(clients: Clients) -> None:
        joined: dict[str, Any] = {"session_id": "work"}
        turn = await clients.ask(A, **joined)
        await turn.end(failed())
        turn = await clients.ask(A, told="X", **joined)
        assert turn.is_joined
        assert texts(await clients.one()) == ["user: A", "assistant: X"]

    run_recorder(test)


@over_stores
def test_words_that_recur_in_a_joined_session_are_new_words(run_recorder: Run) -> None:
    async def test(clients: Clients) -> None:
        joined: dict[str, Any] = {"session_id": "work"}
        for number, said in enumerate((A, B, B, C, B, A)):  # each is a client of its own
            turn = await clients.ask(said, **joined)
            assert len(turn.messages) == 2 * number + 1
            assert turn.told_session_id == "work"
            await turn.end(given(answer("X")))
        turn = await clients.ask(A, X, B, told="Y", **joined)  # a client that goes on in its own conversation
        assert len(turn.messages) == 13
        turn = await clients.ask(B, C, told="Z", **joined)
        assert [part.text for part in turn.messages[-1].parts if isinstance(part, Text)] == ["B", "C"]
        assert (await clients.one()).session_id == "work"

    run_recorder(test)


@in_memory
def test_a_client_of_a_joined_session_says_the_same_again_in_its_conversation(run_recorder: Run) -> None:
    async def test(clients: Clients) -> None:
        joined: dict[str, Any] = {"session_id": "work"}
        for _ in range(2):
            await clients.ask(A, told="X", **joined)
            await clients.ask(A, X, B, told="Y", **joined)
        assert texts(await clients.one()) == ["user: A", "assistant: X", "user: B", "assistant: Y"] * 2

    run_recorder(test)


@in_memory
def test_results_that_a_joined_client_sends_again_are_no_new_results(run_recorder: Run) -> None:
    async def test(clients: Clients) -> None:
        joined: dict[str, Any] = {"session_id": "work"}
        await clients.ask(A, told=answer(call("look")), **joined)
        again = [A, Message.assistant(call("look")), result("found")]
        for _ in range(2):
            turn = await clients.ask(*again, told="X", **joined)
            assert [message.role for message in turn.messages] == ["user", "assistant", "tool"]
        assert texts(await clients.one()) == ["user: A", "assistant: look()", "tool: found", "assistant: X"]

    run_recorder(test)


@in_memory
def test_a_retry_in_a_joined_session_is_new_once_another_client_has_spoken(run_recorder: Run) -> None:
    async def test(clients: Clients) -> None:
        joined: dict[str, Any] = {"session_id": "work"}
        turn = await clients.ask(A, **joined)
        await turn.end(failed())
        await clients.ask(B, told="X", **joined)
        await clients.ask(A, told="Y", **joined)
        assert texts(await clients.one())[-2:] == ["user: A", "assistant: Y"]

    run_recorder(test)


@in_memory
def test_the_same_words_of_two_joined_clients_at_once_get_a_fork(run_recorder: Run) -> None:
    async def test(clients: Clients) -> None:
        joined: dict[str, Any] = {"session_id": "work"}
        await clients.ask(A, told="X", **joined)
        turns = [await clients.ask(B, **joined) for _ in range(3)]
        told = [turn.told_session_id for turn in turns]
        for turn in reversed(turns):
            await turn.end(given(answer(f"Y{turns.index(turn)}")))
        assert [turn.session_id for turn in turns] == told
        assert len(set(told)) == 3
        for session in await clients.sessions():
            assert texts(session)[:3] == ["user: A", "assistant: X", "user: B"]

    run_recorder(test)


# ---------------------------------------------------------------- the session that a client is told


@in_memory
def test_the_session_that_is_told_before_an_answer_has_the_answer(run_recorder: Run) -> None:
    async def test(clients: Clients) -> None:
        turns = [await clients.ask(A) for _ in range(3)]
        told = [turn.told_session_id for turn in turns]
        assert (bool(told[0]), told[1:]) == (True, ["", ""])
        for turn in reversed(turns):
            await turn.end(given(answer(f"X{turns.index(turn)}")))
        assert turns[0].session_id == told[0]
        again = await clients.ask(A)
        assert again.told_session_id == ""
        await again.end(given(answer("Z")))
        assert again.told_session_id not in ("", told[0])

    run_recorder(test)


# ---------------------------------------------------------------- responses that are continued


@over_stores
def test_a_request_that_names_the_response_before_it_goes_on_in_its_session(run_recorder: Run) -> None:
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

    run_recorder(test)
