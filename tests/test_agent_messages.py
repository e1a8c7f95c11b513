"""Somebody else's conversation, carried on by an agent or in a session with one line."""

import logging
from typing import Any

import pytest

from dragoman import Agent, InvalidValue, MemoryStore, Message, Role, Text, start_session
from dragoman.history import ToolResultsEntry
from dragoman.interop import Imported, import_into, import_openai_chat
from dragoman.testing import ScriptedModel
from tests.agent_cases import kept, require_sound, run, weather

CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Is it raining in Paris?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_0", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "call_0", "content": "Rain, 9 degrees."},
    {"role": "assistant", "content": "Yes, and it is cold."},
]
ROLES = ["user", "assistant", "tool", "assistant", "user"]


def test_an_agent_carries_an_imported_conversation_on() -> None:
    model = ScriptedModel("No.")
    agent = Agent(model, tools=[weather], messages=import_openai_chat(CHAT))
    assert agent.run_sync("And in Oslo?").unwrap() == "No."
    (asked,) = model.requests
    assert asked.system == "Be brief."
    assert [message.role for message in asked.messages] == ROLES
    require_sound(kept(agent))


def test_messages_are_a_conversation_and_the_first_system_message_its_instruction() -> None:
    model = ScriptedModel("Good.")
    said = [Message(Role.SYSTEM, (Text("Be brief."),)), Message.user("How are you?"), Message.assistant("Well.")]
    assert Agent(model, messages=said).run_sync("Really?").unwrap() == "Good."
    assert model.requests[0].system == "Be brief."
    assert [message.text for message in model.requests[0].messages] == ["How are you?", "Well.", "Really?"]


def test_instructions_of_the_agent_come_before_those_of_the_conversation() -> None:
    model = ScriptedModel("No.")
    Agent(model, messages=import_openai_chat(CHAT), instructions="Be long.").run_sync("And in Oslo?")
    assert model.requests[0].system == "Be long."


def test_a_conversation_that_ends_with_a_question_is_answered_without_a_prompt() -> None:
    assert Agent(ScriptedModel("Well."), messages=[Message.user("How are you?")]).run_sync().unwrap() == "Well."


def test_without_a_prompt_or_messages_there_is_nothing_to_carry_on() -> None:
    conversations: tuple[list[Message] | tuple[Message, ...] | Imported, ...] = ((), [], Imported(None, ()))
    for nothing in conversations:
        with pytest.raises(InvalidValue, match="nothing to carry on"):
            Agent(ScriptedModel(), messages=nothing).run_sync()


def test_messages_beside_a_session_are_refused_with_what_to_do() -> None:
    session = run(start_session(MemoryStore()))
    with pytest.raises(InvalidValue, match=r"import_into\(session, messages\)"):
        Agent(ScriptedModel(), session=session, messages=[Message.user("Hello.")])


@pytest.mark.parametrize("wrong", [CHAT, "Hello.", 5, [Message.user("Hello."), "and"]])
def test_what_is_no_message_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidValue, match="messages must be a list of Message, or what an import function"):
        Agent(ScriptedModel(), messages=wrong)


def test_what_an_agent_cannot_take_over_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    orphan = import_openai_chat([{"role": "tool", "tool_call_id": "c9", "content": "9"}, *CHAT])
    with caplog.at_level(logging.WARNING, "dragoman.agent"):
        Agent(ScriptedModel("No."), tools=[weather], messages=orphan).run_sync("And in Oslo?")
    assert any("messages of the agent" in record.message for record in caplog.records)


def test_an_agent_that_is_a_tool_begins_each_task_with_the_messages() -> None:
    expert = ScriptedModel("9.", "10.")
    child = Agent(expert, messages=[Message.user("How cold?"), Message.assistant("8.")])
    copies = [child._copy() for _ in range(2)]
    assert [each.run_sync("And now?").unwrap() for each in copies] == ["9.", "10."]
    assert [len(request.messages) for request in expert.requests] == [3, 3]


def test_a_conversation_becomes_entries_of_a_session_with_its_warnings() -> None:
    async def carry_on() -> None:
        session = await start_session(MemoryStore())
        orphan = [{"role": "tool", "tool_call_id": "c9", "content": "9"}]
        warnings = await import_into(session, import_openai_chat([*CHAT, *orphan]))
        assert len(warnings) == 1
        assert [message.role for message in session.messages] == ROLES[:-1]
        model = ScriptedModel("No.")
        assert (await Agent(model, tools=[weather], session=session).run("And in Oslo?")).unwrap() == "No."
        require_sound(session)

    run(carry_on())


def test_open_calls_stay_open_for_the_next_run_if_they_shall() -> None:
    async def carry_on() -> None:
        session = await start_session(MemoryStore())
        await import_into(session, import_openai_chat(CHAT[:3]), leave_open=True)
        await Agent(ScriptedModel("It rains."), tools=[weather], session=session).run()
        (results,) = [entry for entry in session.entries if isinstance(entry, ToolResultsEntry)]
        assert results.results[0].text() == "Rain in Paris."

    run(carry_on())


@pytest.mark.parametrize("wrong", ["sums", 5, MemoryStore()])
def test_a_session_of_another_type_is_refused_with_what_is_wanted(wrong: Any) -> None:
    with pytest.raises(InvalidValue, match=r"session must be a Session, which start_session\(\) and open_session\(\)"):
        Agent(ScriptedModel(), session=wrong)


def test_a_session_that_was_not_awaited_is_refused_with_what_to_do() -> None:
    wrong: Any = start_session(MemoryStore())
    with pytest.raises(InvalidValue, match="await it first"):
        Agent(ScriptedModel(), session=wrong)
