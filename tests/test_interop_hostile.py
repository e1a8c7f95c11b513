"""Whatever is handed to an import, it gives a conversation or says where it is none, and loses nothing unsaid."""

import copy
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dragoman import ModelError, UnreadableData
from dragoman.interop import (
    Imported,
    export_anthropic,
    export_openai_chat,
    import_anthropic,
    import_langchain,
    import_openai_chat,
    import_openai_responses,
    import_pydantic_ai,
    import_vercel_ui,
    read_jsonl,
    write_jsonl,
)

from .interop_cases import ANTHROPIC, CHAT, FORMS, RESPONSES, TRANSCRIPTS, messages_of, recorded, written

SECRET = "the user's own words"

# Forms whose answers may be marked as a provider's own, which is then believed.
MADE_BY: dict[str, Callable[[Any], Imported]] = {
    "openai_chat": lambda source: import_openai_chat(source, made_by="openai-chat:gpt-4.1"),
    "openai_responses": lambda source: import_openai_responses(source, made_by="openai:gpt-5"),
    "anthropic": lambda source: import_anthropic(source, made_by="anthropic:claude-sonnet-4-5"),
}


def plain(form: str) -> Any:
    source = FORMS[form][1]
    return json.loads(source) if isinstance(source, bytes) else copy.deepcopy(source)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container in the value, with each of its keys or indexes."""
    if isinstance(value, (dict, list)):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places(value[key])


def imported_or_refused(read: Callable[[Any], Imported], source: Any) -> Imported | None:
    try:
        return read(source)
    except UnreadableData as error:
        said = str(error)
    assert SECRET not in said
    assert said.startswith(("messages", "items", "record", "system", "line"))
    return None


def check(imported: Imported) -> None:
    """Whatever was read can be recorded, written, read and exported."""
    state = recorded(imported)
    assert list(read_jsonl(b"".join(write_jsonl(state.entries)))) == list(state.entries)
    for export in (export_openai_chat, export_anthropic):
        try:
            json.dumps(export(messages_of(state)))
        except ModelError:
            pass


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", SECRET, "text", "assistant", "tool", "call_1", "data:image/png;base64,?", "2026-01-01"]),
    st.sampled_from([[], {}, [[]], [None], [SECRET], [1], {"type": "text"}, {"text": SECRET}, {"type": 5}, {"id": ""}]),
)


# The longest samples take minutes.
SAMPLED = [pytest.param(form, marks=pytest.mark.slow) if form in ("claude_code", "codex") else form for form in FORMS]


@pytest.mark.slow
@pytest.mark.parametrize("form", SAMPLED)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_value_that_does_not_belong_is_refused_with_its_place_or_read(form: str, data: st.DataObject) -> None:
    source = plain(form)
    for _ in range(data.draw(st.integers(1, 3))):
        owner, key = data.draw(st.sampled_from(list(places(source))))
        match data.draw(st.sampled_from(["replace", "remove", "double"])):
            case "replace":
                owner[key] = copy.deepcopy(data.draw(VALUES))
            case "remove":
                del owner[key]
            case "double" if isinstance(owner, list):
                owner.insert(key, copy.deepcopy(owner[key]))
        if not list(places(source)):
            break
    for read in (FORMS[form][0], *([MADE_BY[form]] if form in MADE_BY else [])):
        imported = imported_or_refused(read, source)
        if imported is not None:
            check(imported)


@pytest.mark.slow
@pytest.mark.parametrize("form", SAMPLED)
def test_every_field_of_every_wrong_type_is_refused_with_its_place_or_read(form: str) -> None:
    read = MADE_BY.get(form, FORMS[form][0])
    wrong: list[Any] = [None, True, 5, -1.5, "", SECRET, [], [SECRET], {}, {"type": SECRET}, {"a": {"b": []}}]
    source = plain(form)
    refused = 0
    every = list(places(source))
    # Each time the whole is read: of a long one, each place gets some of the values, and each value many places.
    tries = max(2, min(len(wrong), 1_500 // len(every)))
    for number, (owner, key) in enumerate(every):
        kept = owner[key]
        for value in (wrong[(number + step * 4) % len(wrong)] for step in range(tries)):
            owner[key] = copy.deepcopy(value)
            imported = imported_or_refused(read, source)
            refused += imported is None
        owner[key] = kept
    assert refused > 50
    assert read(source) == read(plain(form))


def lines_of(form: str, *kinds: str) -> str:
    """Return a pattern for the paths into lines of these kinds, which an import leaves out as a whole."""
    found = [str(index) for index, line in enumerate(FORMS[form][1]) if line.get("type") in kinds]
    return rf"\[({'|'.join(found)})\]"


# Where a field may be passed over without a word: it repeats another, or stands in what is left out as a whole.
UNSAID = {
    "agent_log": r"\.stats|\.messages\[5\]",
    "vercel_4": r"\[1\]\.toolInvocations",  # the parts of this message have them too
    "langchain_dict": r".*\.(artifact|input)$",
    "langchain_dumpd": r".*\.(artifact|input)$",
    "pydantic_ai": r"\[0\]\.parts\[1\]\.content\[4\]",  # a cache point
    "claude_code": r".*\.(usage|toolUseResult)|\[(32|36)\]|\[42\]\.message|"  # a summary, a file, a stand-in
    + lines_of("claude_code", "queue-operation", "last-prompt", "mode", "system"),
    "codex": r".*\.(metadata|internal_chat_message_metadata_passthrough)|"
    + lines_of("codex", "session_meta", "turn_context", "world_state", "event_msg", "token_usage_record"),
    "pi": r".*\.usage|" + lines_of("pi", "session", "model_change", "thinking_level_change"),
}


def objects_in(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict):
        yield path, value
        for key, inner in value.items():
            yield from objects_in(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from objects_in(inner, f"{path}[{index}]")


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_a_field_that_nobody_knows_is_kept_or_told(form: str) -> None:
    read = FORMS[form][0]
    source = plain(form)
    before, unsaid = read(source), []
    for path, owner in list(objects_in(source)):
        owner["unheard_of"] = "news"
        imported = read(source)
        del owner["unheard_of"]
        kept = "'unheard_of': 'news'" in str(imported) or '"unheard_of":"news"' in str(imported)
        told = imported.warnings != before.warnings
        if not kept and not told and not re.match(UNSAID.get(form, "never"), path):
            unsaid.append(path)
    assert unsaid == []


@pytest.mark.parametrize("form", sorted(FORMS.keys() - TRANSCRIPTS))
def test_json_that_is_cut_anywhere_is_refused(form: str) -> None:
    read = FORMS[form][0]
    whole = written(form).encode()
    for cut in range(0, len(whole), 7):
        with pytest.raises(
            UnreadableData, match=r"^(messages|items|record|line \d+): (not readable as JSON|there is no)"
        ):
            read(whole[:cut])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("source", [None, 5, True, object(), {1, 2}, b"5", "null", b"", [5], ["x"], [None], [[]], {}])
def test_what_is_no_conversation_at_all_is_refused(form: str, source: Any) -> None:
    with pytest.raises(UnreadableData):
        FORMS[form][0](source)


@pytest.mark.parametrize("form", sorted(TRANSCRIPTS))
def test_lines_of_a_coding_agent_are_no_responses_items(form: str) -> None:
    with pytest.raises(UnreadableData, match=r"^items\[\d+\]"):
        import_openai_responses(plain(form))


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("depth", [150, 199, 201, 230, 260, 5_000, 50_000])
def test_deep_nesting_is_refused_or_kept_and_never_a_crash(depth: int) -> None:
    arguments = {"deep": nested(depth)}
    block = {"type": "tool_use", "id": "t", "name": "f", "input": arguments}
    call = {"name": "f", "args": arguments, "id": "c"}
    sources: list[tuple[Callable[[Any], Imported], Any]] = [
        (import_anthropic, [{"role": "assistant", "content": [block]}]),
        (import_langchain, [{"type": "ai", "data": {"content": "", "tool_calls": [call]}}]),
        (import_openai_chat, [{"role": "user", "content": [{"type": "x", **arguments}]}]),
        (import_openai_responses, [{"type": "x", **arguments}]),
        (import_vercel_ui, [{"role": "user", "parts": [], "metadata": arguments}]),
        (import_pydantic_ai, [{"kind": "request", "metadata": arguments, "parts": []}]),
    ]
    for read, source in sources:
        imported = imported_or_refused(read, source)
        assert imported is None or depth < 201
        if imported is not None:
            check(imported)
        opened, closed = b"[" * depth, b"]" * depth
        written = json.dumps(source if depth < 201 else nested(1)).encode().replace(b'"x"', opened + closed)
        imported_or_refused(read, written)


def test_a_value_that_holds_itself_is_refused() -> None:
    message: dict[str, Any] = {"role": "user"}
    message["content"] = [message]
    with pytest.raises(UnreadableData, match="nested deeper than 200 levels"):
        import_openai_chat([message])


def test_a_huge_text_is_kept_whole_and_a_huge_wrong_one_is_not_quoted() -> None:
    huge = "x" * 5_000_000
    (message,) = import_openai_chat([{"role": "user", "content": huge}]).messages
    assert message.text == huge
    picture = {"type": "image_url", "image_url": f"data:image/png;base64,{huge}?"}
    for wrong in ({"role": huge}, {"role": "user", "content": [picture]}, {"role": "user", "content": [{huge: 1}]}):
        with pytest.raises(UnreadableData) as refused:
            import_openai_chat([wrong])
        assert len(str(refused.value)) < 300


def test_ids_that_thousands_of_turns_repeat_stay_apart() -> None:
    called = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    turn = [
        {"role": "assistant", "content": None, "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "c", "content": "x"},
    ]
    state = recorded(import_openai_chat(turn * 3_000))
    assert len(state.entries) == 9_000
    assert len({call.tool_call_id for message in messages_of(state) for call in message.tool_calls}) == 3_000


@pytest.mark.parametrize(
    ("read", "source", "where"),
    [
        (import_openai_chat, [*CHAT[:2], {"role": "tool", "content": "x"}], r"messages\[2\]\.tool_call_id"),
        (
            import_openai_chat,
            [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}],
            r"messages\[0\]\.tool_calls\[0\]\.id must be text, got nothing",
        ),
        (
            import_openai_chat,
            [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f"}}] * 2}],
            r"messages\[0\]\.tool_calls\[1\]\.id repeats the id of another call of the same turn",
        ),
        (
            import_anthropic,
            [ANTHROPIC[0], {"role": "assistant", "content": [{"type": "tool_use", "name": "f", "input": {}}]}],
            r"messages\[1\]\.content\[0\]\.id must be text, got nothing",
        ),
        (
            import_anthropic,
            [{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}],
            r"messages\[0\]\.content\[0\]\.tool_use_id must be text, got nothing",
        ),
        (import_anthropic, [{"role": "user", "content": 5}], r"messages\[0\]\.content must be text, got a number"),
        (import_anthropic, [{"role": "robot", "content": "x"}], r"messages\[0\]\.role must be user or assistant"),
        (
            import_openai_responses,
            [*RESPONSES[:3], {"type": "function_call", "name": "f", "arguments": "{}"}],
            r"items\[3\]\.call_id must be text, got nothing",
        ),
        (import_openai_responses, [{"type": "function_call_output", "output": "x"}], r"items\[0\]\.call_id"),
        (
            import_vercel_ui,
            [{"role": "assistant", "parts": [{"type": "tool-f", "state": "output-available"}]}],
            r"messages\[0\]\.parts\[0\]\.toolCallId must be text, got nothing",
        ),
        (
            import_vercel_ui,
            [{"role": "assistant", "parts": [{"type": "tool-f", "toolCallId": "c", "state": "odd"}]}],
            r"messages\[0\]\.parts\[0\]\.state is not one that a call can have",
        ),
        (
            import_langchain,
            [{"type": "ai", "data": {"content": "", "tool_calls": [{"name": "f", "args": {}, "id": None}]}}],
            r"messages\[0\]\.data\.tool_calls\[0\]\.id must be text, got nothing",
        ),
        (
            import_langchain,
            [{"type": "ai", "data": {"content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}] * 2}}],
            r"messages\[0\]\.data\.content\[1\]\.id repeats the id of another call of the same turn",
        ),
        (import_langchain, [{"type": "robot", "data": {}}], r"messages\[0\] is not a message of a kind"),
        (
            import_pydantic_ai,
            [{"kind": "response", "parts": [{"part_kind": "tool-call", "tool_name": "f"}]}],
            r"messages\[0\]\.parts\[0\]\.tool_call_id must be text, got nothing",
        ),
    ],
)
def test_the_error_says_where(read: Callable[[Any], Imported], source: Any, where: str) -> None:
    with pytest.raises(UnreadableData, match=f"^{where}"):
        read(source)
