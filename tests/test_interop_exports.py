"""What is exported is accepted by the libraries themselves, and says the same when it is imported again."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from dragoman import Message, Role, Text, Thinking, ToolCall, ToolResult
from dragoman.interop import (
    Imported,
    export_langchain,
    export_openai_responses,
    export_pydantic_ai,
    export_vercel_ui,
    import_langchain,
    import_openai_responses,
    import_pydantic_ai,
    import_vercel_ui,
)
from dragoman.testing.validators import validate_request

from .interop_cases import FORMS, messages_of, recorded

LIBRARIES: dict[str, tuple[Callable[..., Any], Callable[[Any], Imported]]] = {
    "pydantic_ai": (export_pydantic_ai, import_pydantic_ai),
    "langchain": (export_langchain, import_langchain),
    "vercel": (export_vercel_ui, import_vercel_ui),
}


def words(messages: tuple[Message, ...]) -> dict[str, list[tuple[Any, ...]]]:
    """Return all texts and thoughts in order, and the calls and the results by their ids."""
    parts = [(str(message.role), part) for message in messages for part in message.parts]
    texts = [(role, part.kind, part.text) for role, part in parts if isinstance(part, (Text, Thinking))]
    calls = [(part.tool_call_id, part.tool_name, part.arguments) for _, part in parts if isinstance(part, ToolCall)]
    results = [(part.tool_call_id, part.content, part.is_error) for _, part in parts if isinstance(part, ToolResult)]
    broken = {call for call, _, arguments in calls if arguments is None}  # which never ran
    return {
        "texts": [text for text in texts if text[2].strip()],
        "calls": sorted(calls, key=lambda call: call[0]),
        "results": sorted(((each, said) for each, said, _ in results if isinstance(said, str)), key=lambda one: one[0]),
        "failed": sorted((each,) for each, _, failed in results if failed and each not in broken),
    }


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("form", FORMS)
def test_what_is_exported_says_the_same_when_it_is_imported_again(form: str, library: str) -> None:
    export, read = LIBRARIES[library]
    messages = tuple(
        each for each in messages_of(recorded(FORMS[form][0](FORMS[form][1]))) if each.role is not Role.SYSTEM
    )
    again = read(json.dumps(export(messages, "Be brief.")))
    assert again.system == "Be brief."
    before, after = words(messages), words(again.messages)
    said = {each for each, _ in before["results"]}  # UI messages have text where a result has pictures
    after["results"] = [result for result in after["results"] if result[0] in said]
    assert after == before


@pytest.mark.parametrize("form", FORMS)
def test_exported_items_are_a_request_that_openai_takes(form: str) -> None:
    messages = (*messages_of(recorded(FORMS[form][0](FORMS[form][1]))), Message.user("Go on."))
    exported = export_openai_responses(messages)
    assert validate_request("openai", {"model": "gpt-5", **exported}) == []
    assert import_openai_responses(exported["input"]).messages[-1].text == "Go on."


@pytest.mark.parametrize("form", FORMS)
def test_the_libraries_accept_what_is_exported(form: str) -> None:
    messages = messages_of(recorded(FORMS[form][0](FORMS[form][1])))
    pydantic_ai = pytest.importorskip("pydantic_ai.messages")
    langchain = pytest.importorskip("langchain_core.messages")
    pydantic_ai.ModelMessagesTypeAdapter.validate_json(json.dumps(export_pydantic_ai(messages)))
    assert [message.content_blocks for message in langchain.messages_from_dict(export_langchain(messages))]


def test_a_signature_of_claude_goes_through_both_python_libraries() -> None:
    read, source = FORMS["claude_code"]
    messages = read(source).messages
    for export, back in (LIBRARIES["pydantic_ai"], LIBRARIES["langchain"]):
        again = back(export(messages)).messages
        signed = [part for message in again for part in message.parts if isinstance(part, Thinking)]
        assert [part.provider_data for part in signed] == [{"signature": "c2lnbmF0dXJl"}] * 2
        makers = [message.meta.invocation for message in again if message.meta and message.meta.invocation]
        assert {maker.provider for maker in makers} == {"anthropic"}


def test_a_call_that_is_not_answered_stays_open_in_ui_messages() -> None:
    messages = [Message.user("Look."), Message.assistant(ToolCall("c1", "look", {"at": 1}))]
    (_, answer) = export_vercel_ui(messages)
    assert answer["parts"][1] == {
        "type": "dynamic-tool",
        "toolName": "look",
        "toolCallId": "c1",
        "state": "input-available",
        "input": {"at": 1},
    }
