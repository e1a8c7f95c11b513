"""Session files of coding agents, and the databases of `llm` and the OpenAI Agents SDK: what they become here."""

import base64
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dragoman import (
    ErrorCode,
    Image,
    InvalidValue,
    Message,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
    UnreadableData,
)
from dragoman.history import ToolResultsEntry
from dragoman.interop import (
    Imported,
    export_anthropic,
    import_claude_code,
    import_codex,
    import_llm,
    import_openai_agents,
    import_pi,
)
from dragoman.interop.llm import import_all_llm
from dragoman.interop.openai_agents import import_all_openai_agents
from dragoman.message import ModelInvocationDescriptor

from .conversations import PNG, TARGETS, History, Record, check_history, needs_conversations, read_records
from .interop_cases import SAMPLES, make_database, messages_of, recorded, transcript
from .test_interop_conversations import said_in_messages, said_in_record
from .transcript_forms import as_claude_code, as_codex, as_pi

FILES: dict[str, Callable[[Any], Imported]] = {
    "claude_code": import_claude_code,
    "claude_code_fork": import_claude_code,
    "claude_code_search": import_claude_code,
    "claude_code_subagent": import_claude_code,
    "codex": import_codex,
    "pi": import_pi,
}
FORMS: dict[str, tuple[Callable[[Record], Iterator[Any]], Callable[[Any], Imported]]] = {
    "claude_code": (as_claude_code, import_claude_code),
    "codex": (as_codex, import_codex),
    "pi": (as_pi, import_pi),
}


def said(imported: Imported) -> list[tuple[str, str]]:
    """Return who said what, the kind of a part where it is no text."""
    return [
        (str(message.role), " | ".join(getattr(part, "text", None) or part.kind for part in message.parts))
        for message in imported.messages
    ]


def wrong_renders(name: str, imported: Imported, turns: int | None) -> list[str]:
    """Return what the targets would refuse, before and after the conversation was recorded."""
    wrong: list[str] = []
    for messages in (imported.messages, messages_of(recorded(imported))):
        names = dict.fromkeys(call.tool_name for message in messages for call in message.tool_calls)
        spoken = tuple(message for message in messages if message.role is not Role.SYSTEM)
        asked = (*spoken, Message.user("Go on."), Message.assistant("Yes."))
        history = History(name, imported.system, asked, tuple(ToolSpec(each, f"Does {each}.") for each in names))
        for target in TARGETS:
            tally = check_history(target, history, "unmarked", turns=turns, cuts=turns)
            wrong += tally.wrong
            assert tally.counts["turn"]
    return wrong


# ---------------------------------------------------------------- every sample, every recorded conversation


@pytest.mark.parametrize("name", FILES)
def test_a_session_file_becomes_requests_that_every_target_accepts(name: str) -> None:
    assert wrong_renders(name, FILES[name](SAMPLES / f"{name}.jsonl"), None) == []


@pytest.mark.parametrize("name", ["llm", "llm_0.27", "openai_agents"])
def test_every_conversation_of_a_database_becomes_requests_that_every_target_accepts(name: str, tmp_path: Path) -> None:
    path = make_database(name, tmp_path)
    before = path.read_bytes()
    for found in import_all_openai_agents(path) if "agents" in name else import_all_llm(path):
        assert wrong_renders(name, found, None) == []
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@needs_conversations
@pytest.mark.parametrize("every", [150, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("form", FORMS)
def test_a_recorded_conversation_comes_back_from_a_session_file(form: str, every: int) -> None:
    write, read = FORMS[form]
    for record in read_records(every):
        text = "\n".join(json.dumps(line) for line in write(record))
        imported = read(text)
        assert imported.session_id == record["id"]
        expected = [each for each in said_in_record(record) if each[0] != "system"]
        if form == "codex":  # its results do not say whether they are errors
            expected = [
                (role, [(*part[:3], False) if role == "tool" else part for part in parts]) for role, parts in expected
            ]
        assert list(said_in_messages(imported.messages)) == expected, record["id"]
        assert not [each for each in imported.warnings if "not carried" in each or "copy" in each], imported.warnings
        assert wrong_renders(record["id"], imported, 1) == []


# ---------------------------------------------------------------- Claude Code


def test_a_transcript_is_the_conversation_that_was_held() -> None:
    imported = import_claude_code(SAMPLES / "claude_code.jsonl")
    assert imported.session_id == "da85755f-5069-4c75-b31d-9512cda026c0"
    first = imported.messages[3]
    assert [part.kind for part in first.parts] == ["thinking", "text", "tool_call", "tool_call"]
    assert first.meta is not None
    assert first.meta.invocation == ModelInvocationDescriptor("anthropic", "anthropic-messages", "claude-sonnet-4-5")
    assert first.meta.usage is not None
    assert first.timestamp is not None
    results = [entry for entry in recorded(imported).entries if isinstance(entry, ToolResultsEntry)]
    assert [[result.error_code for result in entry.results] for entry in results] == [
        [None, None],
        [None, ErrorCode.TOOL_FAILED],
        [None, ErrorCode.TOOL_FAILED],
    ]
    shown = imported.messages[4].parts[0]
    assert isinstance(shown, ToolResult)
    assert isinstance(shown.content, tuple)
    assert isinstance(shown.content[0], Image)


def test_what_a_compaction_summed_up_is_there_and_its_summary_is_left_out() -> None:
    imported = import_claude_code(SAMPLES / "claude_code.jsonl")
    texts = [text for _, text in said(imported)]
    assert texts.index("please make a note") < texts.index("and greet me") < texts.index("again")
    assert not [text for text in texts if "The summary" in text]
    assert any("a summary of what is there anyhow is left out" in warning for warning in imported.warnings)


def test_a_summary_of_what_is_not_in_the_file_is_kept_as_words_of_the_program() -> None:
    imported = import_claude_code(SAMPLES / "claude_code_fork.jsonl")
    assert imported.messages[0].text.endswith("The summary: a note was written.")
    assert imported.messages[0].meta is not None
    assert imported.messages[0].meta.extra == {"injected": True}


def test_signatures_of_a_transcript_go_back_to_claude() -> None:
    imported = import_claude_code(SAMPLES / "claude_code.jsonl")
    sent = export_anthropic(imported.messages)["messages"]
    assert {"type": "thinking", "thinking": "Now write.", "signature": "c2lnbmF0dXJl"} in sent[3]["content"]


def line(kind: str, uuid: str, parent: str | None, content: Any, **fields: Any) -> dict[str, Any]:
    message = {"role": kind, "content": content, **fields.pop("message", {})}
    return {"type": kind, "uuid": uuid, "parentUuid": parent, "message": message, **fields}


def test_a_branch_that_was_given_up_is_left_out_and_told() -> None:
    lines = [
        line("user", "a", None, "Hello"),
        line("assistant", "b", "a", [{"type": "text", "text": "First."}]),
        line("assistant", "c", "a", [{"type": "text", "text": "Second."}]),
    ]
    imported = import_claude_code(lines)
    assert said(imported) == [("user", "Hello"), ("assistant", "Second.")]
    assert imported.warnings == ("line 2: a line of a branch that was given up is left out",)


def test_a_line_whose_parent_was_never_written_goes_on_with_the_line_before() -> None:
    lines = [line("user", "a", None, "Hello"), line("assistant", "b", "lost", [{"type": "text", "text": "Hi."}])]
    assert said(import_claude_code(lines)) == [("user", "Hello"), ("assistant", "Hi.")]


def test_the_lines_of_a_subagent_are_a_conversation_of_their_own() -> None:
    lines = [
        line("user", "a", None, "Hello"),
        line("user", "s1", None, "Count.", isSidechain=True),
        line("assistant", "s2", "s1", [{"type": "text", "text": "Two."}], isSidechain=True),
        line("assistant", "b", "a", [{"type": "text", "text": "Hi."}]),
    ]
    imported = import_claude_code(lines)
    assert said(imported) == [("user", "Hello"), ("assistant", "Hi.")]
    assert imported.warnings == ("line 2: a conversation of 2 lines is left out: sidechain='s1'",)
    assert said(import_claude_code(lines, sidechain="s1")) == [("user", "Count."), ("assistant", "Two.")]
    with pytest.raises(UnreadableData, match="no subagent 's9'"):
        import_claude_code(lines, sidechain="s9")


def test_a_result_that_comes_between_the_lines_of_an_answer_stays_with_it() -> None:
    call = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "A map."}
    lines = [
        line("user", "a", None, "Hello"),
        line("assistant", "b", "a", [call], message={"id": "m1"}),
        line("user", "r", "b", [result]),
        line("assistant", "c", "b", [{**call, "id": "c2"}], message={"id": "m1"}),
        line("user", "q", "c", [{**result, "tool_use_id": "c2"}]),
    ]
    imported = import_claude_code(lines)
    assert said(imported) == [("user", "Hello"), ("assistant", "tool_call | tool_call"), *[("tool", "tool_result")] * 2]
    assert imported.warnings == ()


def test_words_that_waited_while_the_model_worked_are_the_persons() -> None:
    queued = {"type": "attachment", "uuid": "b", "parentUuid": "a"}
    lines = [
        line("user", "a", None, "Hello"),
        {**queued, "attachment": {"type": "queued_command", "prompt": "And hurry."}},
    ]
    imported = import_claude_code(lines)
    assert said(imported) == [("user", "Hello"), ("user", "And hurry.")]
    assert imported.messages[1].meta is None


@pytest.mark.parametrize(
    "ended",
    [
        line("user", "b", "a", "<task-notification>Done.</task-notification>", origin={"kind": "task-notification"}),
        {
            "type": "attachment",
            "uuid": "b",
            "parentUuid": "a",
            "attachment": {
                "type": "queued_command",
                "prompt": "<task-notification>Done.</task-notification>",
                "commandMode": "task-notification",
                "timestamp": "2026-01-02T03:04:05Z",
            },
        },
    ],
)
def test_what_a_background_task_reported_is_not_the_persons(ended: dict[str, Any]) -> None:
    imported = import_claude_code([line("user", "a", None, "Hello", origin={"kind": "human"}), ended])
    assert said(imported)[1] == ("user", "<task-notification>Done.</task-notification>")
    assert [message.meta and message.meta.extra for message in imported.messages] == [None, {"injected": True}]
    assert imported.warnings == ()


def test_a_picture_that_was_attached_by_its_name_is_shown() -> None:
    file = {"base64": base64.b64encode(PNG).decode(), "type": "image/png", "originalSize": len(PNG)}
    attached = {"type": "file", "filename": "/data/map.png", "content": {"type": "image", "file": file}}
    lines = [
        line("user", "a", None, "What is on @map.png?"),
        {"type": "attachment", "uuid": "b", "parentUuid": "a", "attachment": {**attached, "displayPath": "map.png"}},
    ]
    imported = import_claude_code(lines)
    assert imported.messages[1].parts == (Text("/data/map.png:"), Image(mime_type="image/png", data=PNG))
    assert imported.warnings == ()


def test_a_call_that_the_person_refused_never_ran() -> None:
    call = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "Refused.", "is_error": True}
    lines = [
        line("user", "a", None, "Hello"),
        line("assistant", "b", "a", [call]),
        line("user", "c", "b", [result], toolUseResult="User rejected tool use"),
    ]
    kinds = [entry.kind for entry in recorded(import_claude_code(lines)).entries]
    assert kinds == ["model_input", "model_output", "tool_result"]


def test_an_answer_whose_calls_were_never_written_has_broken_off() -> None:
    written = {"id": "m1", "model": "claude-opus-4-5", "stop_reason": "tool_use"}
    lines = [
        line("user", "a", None, "Hello"),
        line("assistant", "b", "a", [{"type": "text", "text": "I look."}], message=written),
    ]
    imported = import_claude_code(lines)
    assert said(imported) == [("user", "Hello"), ("assistant", "I look.")]
    assert imported.warnings == ("line 2: the calls of this answer were never written: it is recorded as broken off",)
    assert [entry.kind for entry in recorded(imported).entries] == ["model_input", "interruption"]
    call = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
    whole = [*lines, line("assistant", "c", "b", [call], message=written)]
    assert import_claude_code(whole).messages[1].meta != imported.messages[1].meta
    assert import_claude_code(whole).warnings == ()


@pytest.mark.slow
def test_a_transcript_that_is_cut_after_any_line_is_read() -> None:
    lines = transcript("claude_code")
    first = next(index for index, each in enumerate(lines) if "message" in each)
    for count in range(first + 1, len(lines) + 1):
        assert wrong_renders("cut", import_claude_code(lines[:count]), 1) == []


def test_an_error_of_the_api_is_no_answer() -> None:
    failed = line("assistant", "b", "a", [{"type": "text", "text": "API Error: 529"}], isApiErrorMessage=True)
    imported = import_claude_code([line("user", "a", None, "Hello"), failed])
    assert said(imported) == [("user", "Hello")]
    assert imported.warnings == ("line 2: an error of the API, which was shown to the person is left out",)


# ---------------------------------------------------------------- Codex and pi


def test_a_rollout_is_the_conversation_that_was_held() -> None:
    imported = import_codex(SAMPLES / "codex.jsonl")
    assert imported.system == "You are a coding agent.\n\nSkills: none."
    assert [text for role, text in said(imported) if role == "user"][1:] == ["please make a note", "greet"]
    answer = imported.messages[2]
    assert isinstance(answer.parts[0], Thinking)
    assert answer.meta is not None
    assert (answer.meta.model_id, answer.meta.invocation) == ("gpt-5", None)  # its provider has a name of the person's
    assert answer.meta.usage is not None
    assert answer.meta.usage.reasoning_tokens == 2


def test_turns_that_the_person_took_back_are_left_out() -> None:
    lines = transcript("codex")
    lines.append({"type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 1}})
    imported = import_codex(lines)
    assert said(imported)[-1] == ("assistant", "Done: the note says gamma.")
    assert any("a turn that the person took back is left out" in warning for warning in imported.warnings)


def test_a_rollout_of_the_first_versions_has_its_items_bare() -> None:
    lines: list[dict[str, Any]] = [
        {"id": "s1", "timestamp": "2026-01-02T03:04:05Z", "instructions": "Be brief."},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "List."}]},
        {"type": "local_shell_call", "call_id": "c1", "action": {"type": "exec", "command": ["ls"]}},
        {"type": "function_call_output", "call_id": "c1", "output": "a.txt"},
    ]
    imported = import_codex(lines)
    assert (imported.system, imported.session_id) == ("Be brief.", "s1")
    call = imported.messages[1].parts[0]
    assert isinstance(call, ToolCall)
    assert (call.tool_name, call.arguments) == ("local_shell", {"type": "exec", "command": ["ls"]})


def test_a_session_of_pi_is_the_conversation_that_was_held() -> None:
    imported = import_pi(SAMPLES / "pi.jsonl")
    makers = {message.meta.model_id for message in imported.messages if message.meta and message.meta.model_id}
    assert makers == {"m1", "claude-sonnet-4-5", "gpt-5"}
    assert imported.messages[-1].parts == (Text("Hello to you.", provider_data={"id": "msg_73"}),)
    assert imported.messages[1].meta is not None
    assert imported.messages[1].meta.usage is not None
    assert imported.messages[1].meta.usage.cost is not None


def test_an_answer_of_the_responses_api_has_its_items_again() -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2ln"}
    answer = {
        "role": "assistant",
        "api": "openai-responses",
        "provider": "openai",
        "model": "gpt-5",
        "content": [
            {"type": "thinking", "thinking": "", "thinkingSignature": json.dumps(reasoning)},
            {"type": "toolCall", "id": "call_1|fc_1", "name": "look", "arguments": {}},
        ],
    }
    result = {"role": "toolResult", "toolCallId": "call_1|fc_1", "toolName": "look", "content": "A map."}
    lines = [
        {"type": "message", "message": message} for message in ({"role": "user", "content": "Look"}, answer, result)
    ]
    imported = import_pi(lines)
    thinking, call = imported.messages[1].parts
    assert isinstance(thinking, Thinking)
    assert thinking.provider_data is not None
    assert thinking.provider_data["encrypted_content"] == "c2ln"
    assert isinstance(call, ToolCall)
    assert (call.tool_call_id, call.provider_data) == ("call_1", {"id": "fc_1"})
    assert imported.messages[1].meta is not None
    assert imported.messages[1].meta.invocation == ModelInvocationDescriptor("openai", "openai-responses", "gpt-5")
    assert recorded(imported).entries[-1].kind == "tool_result"


# ---------------------------------------------------------------- databases


@pytest.mark.parametrize("name", ["llm", "llm_0.27"])
def test_both_layouts_of_llm_say_the_same(name: str, tmp_path: Path) -> None:
    path = make_database(name, tmp_path)
    first, second, last = import_all_llm(path)
    assert first.system == "Be brief."
    assert said(first)[:5] == [
        ("user", "ask"),
        ("assistant", "One moment. | tool_call | tool_call"),
        ("tool", "tool_result"),
        ("tool", "tool_result"),
        ("assistant", "Rain in Paris, snow in Oslo."),
    ]
    assert said(second)[0] == ("user", "a fragment\n\nx")
    failed = next(entry for entry in recorded(second).entries if isinstance(entry, ToolResultsEntry))
    assert failed.results[0].error_code is ErrorCode.TOOL_FAILED
    assert import_llm(path) == last


def test_a_file_that_a_database_only_names_is_not_opened(tmp_path: Path) -> None:
    imported = import_llm(make_database("llm", tmp_path), "01m7jseaafwawvbb30zjz1sz8c")
    assert imported.messages[-2].parts == (Text("look"), Text("[image/png: not recorded]"))
    assert "a line of text stands for it" in imported.warnings[0]


def test_a_session_of_the_agents_sdk_is_the_conversation_that_was_held(tmp_path: Path) -> None:
    path = make_database("openai_agents", tmp_path)
    assert [each.session_id for each in import_all_openai_agents(path)] == ["one", "two"]
    one = import_openai_agents(path, "one", made_by="openai:gpt-5")
    two = import_openai_agents(path)
    assert [text for role, text in said(one) if role == "user"] == ["ask", "try", "bye"]
    assert two.session_id == "two"
    assert [message.role for message in one.messages] == [message.role for message in two.messages]
    assert (one.warnings, two.warnings) == ((), ())
    call = two.messages[1].parts[1]
    assert isinstance(call, ToolCall)
    assert call.provider_data is None  # what the SDK writes for want of an id is no id


@pytest.mark.parametrize("read", [import_llm, import_openai_agents])
def test_a_file_that_is_no_database_of_its_kind_is_refused_in_one_line(
    read: Callable[..., Imported], tmp_path: Path
) -> None:
    text, other, cut, view, empty = (tmp_path / f"{name}.db" for name in ("text", "other", "cut", "view", "empty"))
    text.write_text("hello " * 200, encoding="utf-8")
    empty.write_bytes(b"")
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("create table people (name text)")
    with closing(sqlite3.connect(view)) as connection:
        endless = "with recursive n(x) as (select 1 union all select x + 1 from n) select x as session_id from n"
        for name in ("responses", "agent_sessions", "agent_messages"):
            connection.execute(f"create view {name} as {endless}")
    cut.write_bytes(make_database("llm", tmp_path).read_bytes()[:5_000])
    for path in (text, other, cut, view, empty, tmp_path / "absent.db", tmp_path):
        with pytest.raises(UnreadableData, match=path.name) as caught:
            read(path)
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "absent.db").exists()


def test_an_id_that_a_database_does_not_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match=r"llm\.db holds no conversation with this id \(it has 3\)"):
        import_llm(make_database("llm", tmp_path), "other")


def test_a_chain_of_messages_that_is_a_circle_is_refused(tmp_path: Path) -> None:
    path = make_database("llm", tmp_path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("update messages set parent_hash = hash where role = 'user'")
        connection.commit()
    with pytest.raises(UnreadableData, match="are a circle"):
        import_llm(path)


# ---------------------------------------------------------------- files that are none


@pytest.mark.parametrize("read", [import_claude_code, import_codex, import_pi])
@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b'{"type":"user","uuid":"a"}\n{"type":"us\n', "line 2: not readable as JSON"),
        ('{"type":"user"}'.encode("utf-16"), "line 1: not readable as JSON"),
        (b'{"type":"\xff"}', "line 1: not readable as JSON"),
        (b"[" * 100_000, "line 1"),
        (b'{"a":' * 300 + b"1" + b"}" * 300, "line 1"),
        (b"5", "line 1 must be an object"),
        (b"", "line 1: there is nothing in it"),
        (b'{"hello": 1}', "line 1: this is no"),
    ],
)
def test_a_damaged_file_is_refused_with_its_name_and_line(
    read: Callable[[Any], Imported], data: bytes, told: str, tmp_path: Path
) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_bytes(data)
    with pytest.raises(UnreadableData) as caught:
        read(path)
    assert str(caught.value).startswith(f"broken.jsonl {told}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("read", [import_claude_code, import_codex, import_pi])
def test_the_name_of_a_file_as_a_str_is_refused_with_what_to_give(read: Callable[[Any], Imported]) -> None:
    with pytest.raises(UnreadableData, match="this is the name of one: give a Path"):
        read("folder/t.jsonl")


def test_parents_that_are_a_circle_are_refused() -> None:
    lines = [line("user", "a", "b", "Hello"), line("user", "b", "a", "Hi")]
    with pytest.raises(UnreadableData, match="line 2: the parents of this line are a circle"):
        import_claude_code(lines)
    entries = [{"type": "message", "id": uuid, "parentId": parent} for uuid, parent in (("a", "b"), ("b", "a"))]
    with pytest.raises(UnreadableData, match="line 2: the parents of this line are a circle"):
        import_pi(entries)


@pytest.mark.slow
def test_a_long_chain_of_lines_is_read() -> None:
    lines = [line("user", str(index), str(index - 1) if index else None, "x") for index in range(20_000)]
    assert len(import_claude_code(lines).messages) == 20_000


def test_a_folder_or_an_absent_file_is_refused_with_its_name(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent.jsonl"):
        with pytest.raises(UnreadableData, match=f"^{path.name} cannot be read"):
            import_claude_code(path)


def test_an_open_file_is_refused_with_what_to_give(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("{}\n")
    opened: Any
    with (
        file.open() as opened,
        pytest.raises(UnreadableData, match="got an open file: give its Path, or"),
    ):
        import_claude_code(opened)
