"""The recorder over every store: which session a request goes to, and what is recorded of it."""

import asyncio

import pytest

from dragoman import Message, Thinking
from dragoman.errors import ErrorCode
from dragoman.history import (
    ClientAnswerEntry,
    ClientRequestEntry,
    InterruptionEntry,
)
from dragoman.history.exchanges import body_of
from dragoman.web.gateway.asked import Asked
from dragoman.web.gateway.canonical import body_mark
from dragoman.web.gateway.reading import LARGE
from dragoman.web.gateway.said import Said
from tests.web_cases import (
    CLAUDE,
    answer,
    asked,
    call,
    failed,
    given,
    outputs,
    result,
    texts,
)
from tests.web_recording import A, B, C, Clients, Run, X, Y, in_memory, over_stores

# ---------------------------------------------------------------- one conversation


@over_stores
def test_a_conversation_is_one_session(run_recorder: Run) -> None:
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

    run_recorder(test)


@over_stores
def test_a_conversation_goes_on_after_the_server_was_killed(run_recorder: Run) -> None:
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

    run_recorder(test)


@over_stores
def test_bodies_are_recorded_to_the_byte_and_shared_with_earlier_ones(run_recorder: Run) -> None:
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

    run_recorder(test)


@in_memory
def test_a_body_that_is_no_utf8_is_recorded_to_the_byte(run_recorder: Run) -> None:
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

    run_recorder(test)


@over_stores
def test_the_model_is_asked_with_recorded_answers_under_the_clients_ids(run_recorder: Run) -> None:
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

    run_recorder(test)


# ---------------------------------------------------------------- repeats


@pytest.mark.parametrize(("size", "is_beside"), [(10, False), (LARGE, True)], ids=["small", "large"])
def test_the_digests_of_a_large_body_are_made_beside_other_clients(size: int, is_beside: bool) -> None:
    async def test() -> None:
        said = Said(asked(Message.user("x" * size)))
        reading = asyncio.create_task(said.read())
        await asyncio.sleep(0)
        assert reading.done() is not is_beside
        await reading
        assert said.digest in said.prefixes
        assert said.body_mark == body_mark(said.asked)

    asyncio.run(test())


@over_stores
def test_a_retry_after_a_failure_is_the_same_turn(run_recorder: Run) -> None:
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

    run_recorder(test)


@over_stores
def test_a_repeat_with_the_same_answer_adds_only_facts(run_recorder: Run) -> None:
    async def test(clients: Clients) -> None:
        await clients.ask(A, told="X")
        await clients.ask(A, X, B, told="Y")
        await clients.ask(A, told=" X\n")
        session = await clients.one()
        assert texts(session) == ["user: A", "assistant: X", "user: B", "assistant: Y"]
        assert sum(isinstance(entry, ClientAnswerEntry) for entry in session.entries) == 3
        await clients.ask(A, X, B, Y, C, told="Z")
        assert texts(await clients.one())[-2:] == ["user: C", "assistant: Z"]

    run_recorder(test)


@over_stores
def test_a_repeat_with_another_answer_is_a_fork(run_recorder: Run) -> None:
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

    run_recorder(test)


@over_stores
def test_a_repeat_that_fails_changes_nothing_that_was_said(run_recorder: Run) -> None:
    async def test(clients: Clients) -> None:
        await clients.ask(A, told="X")
        turn = await clients.ask(A)
        await turn.end(failed(ErrorCode.STREAM_TRUNCATED, answer("Hel")))
        assert texts(await clients.one()) == ["user: A", "assistant: X"]

    run_recorder(test)


@in_memory
def test_the_same_request_many_times_keeps_few_marks_and_one_session(run_recorder: Run) -> None:
    async def test(clients: Clients) -> None:
        turns = [await clients.ask(A) for _ in range(30)]
        for turn in turns:
            await turn.end(given(answer("X")))
        session = await clients.one()
        assert texts(session) == ["user: A", "assistant: X"]
        marks = await clients.store.find_marks([turns[0].said.mark])
        assert len(marks) == 1

    run_recorder(test)


# ---------------------------------------------------------------- edits


@over_stores
def test_a_rewind_is_a_fork_and_nothing_is_lost(run_recorder: Run) -> None:
    async def test(clients: Clients) -> None:
        await clients.ask(A, told="X")
        await clients.ask(A, X, B, told="Y")
        await clients.ask(A, X, C, told="Z")
        await clients.ask(A, X, C, Message.assistant("Z"), B, told="V")
        first, second = await clients.sessions()
        assert texts(first) == ["user: A", "assistant: X", "user: B", "assistant: Y"]
        assert texts(second) == [*("user: A", "assistant: X", "user: C", "assistant: Z", "user: B", "assistant: V")]

    run_recorder(test)


@over_stores
def test_an_answer_that_the_client_changed_is_a_fork(run_recorder: Run) -> None:
    async def test(clients: Clients) -> None:
        await clients.ask(A, told="X")
        await clients.ask(A, Y, B, told="Z")
        first, second = await clients.sessions()
        assert texts(first) == ["user: A", "assistant: X"]
        assert texts(second) == ["user: A", "assistant: Y", "user: B", "assistant: Z"]

    run_recorder(test)


@over_stores
def test_an_earlier_message_that_was_changed_begins_anew(run_recorder: Run) -> None:
    async def test(clients: Clients) -> None:
        await clients.ask(A, told="X")
        await clients.ask(B, X, C, told="Y")
        _, second = await clients.sessions()
        assert texts(second) == ["user: B", "assistant: X", "user: C", "assistant: Y"]
        assert second.info.forked_from is None

    run_recorder(test)


@over_stores
def test_words_after_a_failed_turn_go_on_in_its_session(run_recorder: Run) -> None:
    async def test(clients: Clients) -> None:
        turn = await clients.ask(A)
        await turn.end(failed(ErrorCode.CANCELLED, answer("Hel")))
        await clients.ask(Message.user("A", "B"), told="X")
        assert texts(await clients.one()) == ["user: A", "user: B", "assistant: X"]

    run_recorder(test)


@over_stores
def test_a_cut_answer_that_the_client_took_for_whole_goes_on(run_recorder: Run) -> None:
    async def test(clients: Clients) -> None:
        turn = await clients.ask(A)
        signed = Thinking("Hm.", provider_data={"signature": "s"})
        await turn.end(failed(ErrorCode.STREAM_TRUNCATED, answer(signed, call("look"))))
        await clients.ask(A, Message.assistant(call("look")), result("found"), told="X")
        session = await clients.one()
        assert texts(session) == ["user: A", "assistant: look()", "tool: found", "assistant: X"]
        assert outputs(session)[0].parts[0] == signed

    run_recorder(test)


@over_stores
def test_results_that_never_came_are_recorded_as_interrupted(run_recorder: Run) -> None:
    async def test(clients: Clients) -> None:
        await clients.ask(A, told=answer(call("look", "a"), call("read", "b")))
        theirs = Message.assistant(call("look", "a"), call("read", "b"))
        await clients.ask(A, theirs, result("found", "b"), B, told="X")
        session = await clients.one()
        assert "interrupted" in texts(session)[2]
        assert texts(session)[3:] == ["tool: found", "user: B", "assistant: X"]

    run_recorder(test)


@in_memory
def test_an_answer_in_two_pieces_goes_on_in_one_session(run_recorder: Run) -> None:
    async def test(clients: Clients) -> None:
        await clients.ask(A, told="One.")
        await clients.ask(A, Message.assistant("One."), told="Two.")
        await clients.ask(A, Message.assistant("One.", "Two."), B, told="X")
        assert texts(await clients.one()) == [
            *("user: A", "assistant: One.", "assistant: Two.", "user: B", "assistant: X")
        ]

    run_recorder(test)
