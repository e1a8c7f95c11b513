"""Tool calls that a model writes as text: found however the text is cut, never in half a tag, and sent back as text."""

import asyncio
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import (
    Agent,
    AgentStatus,
    ErrorCode,
    FinishReason,
    InvalidValue,
    Message,
    ModelError,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
    model,
    tool,
)
from dragoman.delta import DoneDelta, MessageDelta, StartDelta, TextDelta, ThinkingDelta, ToolCallStartDelta
from dragoman.stream import Assembly, assemble
from dragoman.stream.textcalls import TextCallReader
from dragoman.testing import ReplayedResponse, ReplayTransport

LOOK = ToolSpec(
    "look",
    "Looks.",
    {
        "type": "object",
        "properties": {"at": {"type": "string"}, "times": {"type": "integer"}, "tags": {"type": ["array", "null"]}},
    },
)
WAIT = ToolSpec("wait", "Waits.", {"type": "object"})
JSON_CALL = '<tool_call>\n{"name": "look", "arguments": {"at": "sea"}}\n</tool_call>'
XML_CALL = "<tool_call>\n<function=look>\n<parameter=at>\nsea\n</parameter>\n</function>\n</tool_call>"
AT_SEA = ("look", {"at": "sea"})


def deltas_of(pieces: Iterable[str], reason: FinishReason | None = FinishReason.STOP) -> list[MessageDelta]:
    deltas: list[MessageDelta] = [StartDelta("r", 0, None)]
    deltas += [TextDelta("r", seq, None, piece) for seq, piece in enumerate(pieces, 1)]
    return deltas if reason is None else [*deltas, DoneDelta("r", len(deltas), None, reason, "stop")]


def read(pieces: Iterable[str], reason: FinishReason | None = FinishReason.STOP) -> Assembly:
    """What the answer comes to, each piece in a network read of its own."""
    reader = TextCallReader([LOOK, WAIT])
    read_deltas = [delta for each in deltas_of(pieces, reason) for delta in reader.take([each])]
    return assemble([*read_deltas, *reader.close()])


def said(assembly: Assembly) -> list[Any]:
    """The parts: text as it is, a call as name and arguments (None where they do not parse)."""
    message = assembly.message or assembly.partial
    assert message is not None
    return [part.text if isinstance(part, Text) else named(part) for part in message.parts]


def named(part: Any) -> tuple[str, Any]:
    assert isinstance(part, ToolCall)
    return part.tool_name, part.arguments


ANSWERS: dict[str, tuple[str, list[Any]]] = {
    "json": (JSON_CALL, [AT_SEA]),
    "xml": (XML_CALL, [AT_SEA]),
    "text around": (f"One. {JSON_CALL} Two.", ["One. ", AT_SEA, " Two."]),
    "calls in a row": (f"Now:\n{JSON_CALL}\n{XML_CALL}\n", ["Now:\n", AT_SEA, AT_SEA]),
    "text between": (f"{JSON_CALL}\nand\n{JSON_CALL}", [AT_SEA, "\nand\n", AT_SEA]),
    "no wrapper": ("<function=look><parameter=at>sea</parameter></function>.", [AT_SEA, "."]),
    "json in a function": ('<function=look>{"at": "sea"}</function>', [AT_SEA]),
    "both": ('<tool_call><function=look>{"at": "sea"}</function></tool_call>', [AT_SEA]),
    "parameters": ('<tool_call>{"name": "look", "parameters": {"at": "sea"}}</tool_call>', [AT_SEA]),
    "text of an object": ('<tool_call>{"name": "look", "arguments": "{\\"at\\": \\"sea\\"}"}</tool_call>', [AT_SEA]),
    "null": ('<tool_call>{"name": "look", "arguments": null}</tool_call>', [("look", {})]),
    "a tool without parameters": ('<tool_call>{"name": "wait"}</tool_call>', [("wait", {})]),
    "no parameters": ("<function=look>\n</function>", [("look", {})]),
    "an end in a string": (
        '<tool_call>{"name": "look", "arguments": {"at": "</tool_call> \\" </tool_call>"}}</tool_call>!',
        [("look", {"at": '</tool_call> " </tool_call>'}), "!"],
    ),
    "an end in a value": (
        "<tool_call><function=look><parameter=at>a</function></tool_call></parameter>b</parameter></function></tool_call>!",
        [("look", {"at": "a</function></tool_call></parameter>b"}), "!"],
    ),
    "types": (
        "<function=look><parameter=at>\n7\n</parameter><parameter=times>7</parameter><parameter=new>7</parameter></function>",
        [("look", {"at": "7", "times": 7, "new": "7"})],
    ),
    "a list": ('<function=look><parameter=tags>["a"]</parameter></function>', [("look", {"tags": ["a"]})]),
    "half a character": (
        '<tool_call>{"name": "look", "arguments": {"at": "\\ud83d"}}</tool_call>',
        [("look", {"at": "\ufffd"})],
    ),
    "lines": ("<function=look><parameter=at>\n a\n\nb \n</parameter></function>", [("look", {"at": " a\n\nb "})]),
    "a backslash": ("<function=look><parameter=at>\\</parameter></function>", [("look", {"at": "\\"})]),
    "half a character in parameters": (
        '<tool_call>{"name": "look", "parameters": {"at": "\\ud83d"}}</tool_call>', [("look", {"at": "\ufffd"})],
    ),
    "a word for a number": (
        "<function=look><parameter=times>many</parameter></function>", [("look", {"times": "many"})],
    ),
    # What is no call.
    "a number for a name": (
        '<tool_call>{"name": 3, "arguments": {}}</tool_call>', ['<tool_call>{"name": 3, "arguments": {}}</tool_call>'],
    ),
    "an empty name": (
        '<tool_call>{"name": "", "arguments": 1}</tool_call>', ['<tool_call>{"name": "", "arguments": 1}</tool_call>'],
    ),
    "no tag": ("a < b, <b>bold</b>, <tool_calls>, <func", ["a < b, <b>bold</b>, <tool_calls>, <func"]),
    "white space": (" \n", [" \n"]),
    "no name": ('<tool_call>{"arguments": {}}</tool_call>', ['<tool_call>{"arguments": {}}</tool_call>']),
    "no content": ("<tool_call></tool_call>", ["<tool_call></tool_call>"]),
    "no parameters, then a call": (f"<function=look>\n</function>{JSON_CALL}", [("look", {}), AT_SEA]),
    "a tag that never closes": (
        "<function=look><parameter=at>sea</parameter> and", ["<function=look><parameter=at>sea</parameter> and"],
    ),
    "prose, then a call": (
        f'<tool_call>X says "hi</tool_call>{JSON_CALL}', ['<tool_call>X says "hi</tool_call>', AT_SEA],
    ),
    "prose": ("<tool_call>look at the sea</tool_call>", ["<tool_call>look at the sea</tool_call>"]),
    "a thought": (f"<think>Maybe {JSON_CALL}</think>{XML_CALL}", [f"<think>Maybe {JSON_CALL}</think>", AT_SEA]),
    "thoughts in other letters": (f"<THINK >{JSON_CALL}</Think >{XML_CALL}", [f"<THINK >{JSON_CALL}</Think >", AT_SEA]),
    "thoughts in long words": (
        f"<thinking>{JSON_CALL}</thinking        >{XML_CALL}", [f"<thinking>{JSON_CALL}</thinking        >", AT_SEA],
    ),
    "a thought without an end": (f"<thinking\n>{JSON_CALL}", [f"<thinking\n>{JSON_CALL}"]),
    # Closed, and broken: the model is told, the tool is not run.
    "broken json": ('<tool_call>{"name": "look", "arguments": {"at": }}</tool_call>', [("look", None)]),
    "an open string": ('<tool_call>{"name": "look", "arguments": {"at": "sea}}</tool_call>!', [("look", None), "!"]),
    "an open parameter": ("<function=look><parameter=at>sea</function>!", [("look", None), "!"]),
    "an open function": (
        "<tool_call><function=look><parameter=at>sea</parameter></tool_call>!", [("look", None), "!"],
    ),
    "an open function of JSON": ('<tool_call><function=look>{"at": "sea"}</tool_call>!', [("look", None), "!"]),
    "a call in a value": (
        "<function=look><parameter=at>a <function=look><parameter=at>b</parameter></function> c</parameter></function>",
        [("look", None), " c</parameter></function>"],
    ),
    "no arguments": ('<tool_call>{"name": "look"}</tool_call>', [("look", None)]),
    "no arguments beside half a character": (
        '<tool_call>{"name": "look", "x": "\\ud83d"}</tool_call>', [("look", None)],
    ),
    "two names": ('<tool_call>{"name": "wait", "name": "look", "arguments": {}}</tool_call>', [("look", None)]),
    "arguments twice": ('<tool_call>{"name": "look", "arguments": {}, "parameters": {}}</tool_call>', [("look", None)]),
    "no object": ('<tool_call>{"name": "look", "arguments": [1]}</tool_call>', [("look", None)]),
}  # fmt: skip
each_answer = pytest.mark.parametrize(("text", "parts"), ANSWERS.values(), ids=ANSWERS)


@each_answer
def test_calls_stand_where_they_were_written(text: str, parts: list[Any]) -> None:
    assert said(read([text])) == parts


@each_answer
def test_it_is_the_same_wherever_the_text_is_cut(text: str, parts: list[Any]) -> None:
    assert said(read(text)) == parts
    for cut in range(1, len(text)):
        assert said(read([text[:cut], text[cut:]])) == parts


# A tag that no end closes, or whose end belongs to a value, takes in what follows it.
OPEN = {
    *("a thought without an end", "an open string", "an open parameter", "an open function", "a call in a value"),
    *("an open function of JSON", "a tag that never closes"),
}


@pytest.mark.parametrize("name", [name for name in ANSWERS if name not in OPEN])
def test_a_tag_ends_where_it_closes_so_that_a_call_after_it_is_found(name: str) -> None:
    text, parts = ANSWERS[name]
    calls = [part for part in parts if isinstance(part, tuple)]
    found = [part for part in said(read([f"{text}|{JSON_CALL}"])) if isinstance(part, tuple)]
    assert found == [*calls, AT_SEA]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (f"hm {JSON_CALL}</think>{XML_CALL}", ["hm ", ("look", None), "</think>", AT_SEA]),
        (f"<think><think></think>{JSON_CALL}</THINK>done", ["<think><think></think>", ("look", None), "</THINK>done"]),
    ],
    ids=["begun in the prompt", "nested"],
)
def test_a_call_in_reasoning_whose_beginning_was_not_seen_is_not_used(text: str, parts: list[Any]) -> None:
    assert said(read([text])) == parts
    for cut in range(1, len(text)):
        assert said(read([text[:cut], text[cut:]])) == parts


@each_answer
def test_half_a_tag_is_no_call(text: str, parts: list[Any]) -> None:
    """Every beginning of the text has calls whose tag it closes, whole, and is text else; no word is lost."""
    whole = [part for part in parts if isinstance(part, tuple)]
    for cut in range(len(text)):
        for reason in (FinishReason.STOP, FinishReason.LENGTH, None):
            assembly = read([text[:cut]], reason)
            calls = [part for part in said(assembly) if isinstance(part, tuple)]
            good = [call for call in calls if call[1] is not None]
            assert good == [call for call in whole if call[1] is not None][: len(good)]
            assert written_in(assembly).strip() == text[:cut].strip()


def written_in(assembly: Assembly) -> str:
    """The answer put together again from its parts."""
    message = assembly.message or assembly.partial
    assert message is not None
    return "".join(part.text if isinstance(part, Text) else part.provider_data["text"] for part in message.parts)  # type: ignore[union-attr,index]


TAGS = ("<tool_call>", "</tool_call>", "<function=look>", "</function>", "<parameter=at>", "</parameter>", "<think>")
WORDS = (
    *TAGS,
    "</think>",
    "</Think >",
    '{"name": "look", "arguments": {',
    '"at": "',
    "\\",
    '"',
    "}}",
    "\n",
    "sea",
    "<",
    "\ud83d",
    "\ude00",
)


@given(st.lists(st.sampled_from(WORDS), max_size=14), st.data())
def test_no_word_is_lost_and_no_cut_matters(words: list[str], data: st.DataObject) -> None:
    text = "".join(words)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assembly = read(pieces)
    assert assembly.error is None
    assert said(assembly) == said(read([text]))
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    assert "".join(written_in(assembly).split()) == "".join(joined.split())


def test_a_found_call_makes_the_finish_reason_tool_calls_and_keeps_the_providers_word() -> None:
    found = read([JSON_CALL])
    assert (found.finish_reason, found.raw_finish_reason) == (FinishReason.TOOL_CALLS, "stop")
    assert read([JSON_CALL], FinishReason.LENGTH).finish_reason is FinishReason.LENGTH
    assert read([JSON_CALL[:-1]]).finish_reason is FinishReason.STOP


def test_other_content_inside_a_tag_leaves_it_text() -> None:
    first, second = JSON_CALL[:20], JSON_CALL[20:]
    deltas = [*deltas_of([first], None), ThinkingDelta("r", 2, None, "Hm."), *deltas_of([second])[1:]]
    assembly = assemble(TextCallReader([LOOK]).take(deltas))
    assert assembly.message is not None
    assert assembly.message.parts == (Text(first), Thinking("Hm."), Text(second))


def read_deltas(*deltas: MessageDelta) -> Assembly:
    reader = TextCallReader([LOOK])
    end = DoneDelta("r", len(deltas) + 1, None, FinishReason.STOP, "stop")
    return assemble([delta for each in (StartDelta("r", 0, None), *deltas, end) for delta in reader.take([each])])


def test_a_tag_that_goes_on_in_another_part_is_text() -> None:
    first, second = JSON_CALL[:30], JSON_CALL[30:]
    assert said(read_deltas(TextDelta("r", 1, None, first, 0), TextDelta("r", 2, None, second, 1))) == [first, second]
    assert said(read_deltas(TextDelta("r", 1, None, first, 0), TextDelta("r", 2, None, second, 0))) == [AT_SEA]


@pytest.mark.parametrize("text", ["a", "a <", "a <b", " "])
def test_provider_data_end_a_text_and_no_word_is_said_twice(text: str) -> None:
    for before in ("", "said "):
        pieces = [TextDelta("r", 1, None, before)] if before else []
        signed = TextDelta("r", 2, None, text, provider_data={"id": 1})
        message = read_deltas(*pieces, signed, TextDelta("r", 3, None, "after")).message
        assert message is not None
        assert message.parts == (Text(before + text, provider_data={"id": 1}), Text("after"))


@pytest.mark.parametrize(
    ("before", "after", "parts"),
    [
        ("said", JSON_CALL, ["said", AT_SEA]),
        ("<think>", JSON_CALL, ["<think>", AT_SEA]),
        (JSON_CALL, f"\n{JSON_CALL}", [AT_SEA, AT_SEA]),
        (JSON_CALL, "\n", [AT_SEA]),
        (f"{JSON_CALL} said", "\n", [AT_SEA, " said", "\n"]),
        ("said", "\n", ["said", "\n"]),
    ],
)
def test_a_thought_between_two_texts_ends_the_first(before: str, after: str, parts: list[Any]) -> None:
    thought = ThinkingDelta("r", 2, None, "hm")
    message = read_deltas(TextDelta("r", 1, None, before), thought, TextDelta("r", 3, None, after)).message
    assert message is not None
    spoken = [part for part in message.parts if not isinstance(part, Thinking)]
    assert [part.text if isinstance(part, Text) else named(part) for part in spoken] == parts


def test_the_deltas_of_a_call_have_the_place_of_the_text_that_ended_its_tag() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    reader = TextCallReader([LOOK])
    texts = [TextDelta("r", seq, now, JSON_CALL, provider_raw={"event": seq}) for seq in (1, 2)]
    deltas = reader.take([StartDelta("r", 0, None), *texts]) + reader.close()
    assert [delta.kind for delta in deltas[1:]] == [
        *("tool_call_start", "tool_call_args", "tool_call_start", "tool_call_args"),
        *("tool_call_end", "tool_call_end"),
    ]
    assert [delta.provider_raw for delta in deltas[1:]] == [{"event": seq} for seq in (1, 1, 2, 2, 2, 2)]
    assert [delta.seq for delta in deltas] == list(range(7))
    assert {delta.timestamp for delta in deltas[1:]} == {now}
    assert [delta.tool_call_id for delta in deltas if isinstance(delta, ToolCallStartDelta)] == [
        "text_call_0",
        "text_call_1",
    ]


def test_a_parameter_that_is_given_twice_is_told() -> None:
    twice = read(["<function=look><parameter=at>a</parameter><parameter=at>b</parameter></function>"])
    assert twice.message is not None
    (call,) = twice.message.tool_calls
    assert (call.arguments, call.parse_warning) == ({"at": "b"}, "duplicate keys, last value kept: 'at'")


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["<tool_call>{" + '"a":"</tool_call>', "<function=f><parameter=a></function>", "< <t "]
)
def test_reading_takes_time_in_proportion_to_the_text(text: str) -> None:
    def seconds(times: int) -> float:
        deltas = deltas_of(text * times)
        best = []
        for _ in range(3):
            reader, began = TextCallReader(), perf_counter()
            reader.take(deltas)
            best.append(perf_counter() - began)
        return min(best)

    seconds(100)
    assert seconds(8_000) < 24 * seconds(1_000)  # eight times the text; the square would be 64 times


# ---------------------------------------------------------------- on the wire


def answer(text: str, *, cut: int = 5, reason: str = "stop") -> ReplayedResponse:
    """A Chat Completions stream that says the text in pieces."""
    pieces = [text[start : start + cut] for start in range(0, len(text), cut)]
    choices = [{"index": 0, "delta": {"content": piece}} for piece in pieces]
    choices.append({"index": 0, "delta": {}, "finish_reason": reason})
    chunks = [{"id": "a", "model": "m", "choices": [choice]} for choice in choices]
    wire = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    return ReplayedResponse(chunks=(wire.encode(),))


def whole_answer(text: str) -> ReplayedResponse:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    body = json.dumps({"id": "a", "model": "m", "choices": [choice]}).encode()
    return ReplayedResponse(headers={"content-type": "application/json"}, chunks=(body,))


def ask(name: str, response: ReplayedResponse, tools: Sequence[ToolSpec] = (LOOK,), **settings: Any) -> Assembly:
    asked = model(
        name, base_url="http://host.invalid/v1", api_key="key", transport=ReplayTransport([response]), **settings
    )
    return asyncio.run(asked.stream([Message.user("Hi")], tools).collect())


@pytest.mark.parametrize("name", ["vllm:m", "llamacpp:m", "openai-compatible:m"])
@pytest.mark.parametrize("form", ["json", "xml"])
def test_whole_answers_and_streams_of_a_server_give_the_same_calls(name: str, form: str) -> None:
    text = f"Look: {JSON_CALL}\n{XML_CALL}"
    streamed, whole = (ask(name, response, text_calls=form) for response in (answer(text), whole_answer(text)))
    assert said(streamed) == said(whole) == ["Look: ", AT_SEA, AT_SEA]
    assert streamed.finish_reason is whole.finish_reason is FinishReason.TOOL_CALLS


def test_text_stays_text_unless_the_caller_asks_and_the_request_has_tools() -> None:
    given: list[dict[str, Any]] = [{}, {"text_calls": "json", "tool_choice": "none"}]
    for settings in given:
        assert said(ask("vllm:m", answer(JSON_CALL), **settings)) == [JSON_CALL]
    assert said(ask("vllm:m", answer(JSON_CALL), (), text_calls="json")) == [JSON_CALL]


def test_a_stream_that_breaks_off_inside_a_tag_is_an_error_with_its_text() -> None:
    response = answer(f"One. {JSON_CALL[:30]}")
    (wire,) = response.chunks
    cut = ReplayedResponse(chunks=(wire[: wire.rindex(b"data: {")],))
    assembly = ask("vllm:m", cut, text_calls="json")
    assert assembly.error is not None
    assert assembly.error.error_code is ErrorCode.STREAM_TRUNCATED
    assert said(assembly) == [f"One. {JSON_CALL[:30]}"]


def body_of(*messages: Message, form: Any = "json", **settings: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(
        model("vllm:m", text_calls=form, **settings).render(messages, [LOOK], "Be brief.").body
    )
    return body


def test_tools_are_told_in_the_system_text_and_not_in_a_field() -> None:
    body = body_of(Message.user("Hi"))
    system, user = body["messages"]
    assert not {"tools", "tool_choice"} & set(body)
    assert system["content"].startswith("Be brief.\n\n# Tools")
    assert '"name":"look"' in system["content"]
    assert '{"name": <function-name>' in system["content"]
    assert "<function=example_function_name>" in body_of(Message.user("Hi"), form="xml")["messages"][0]["content"]
    assert user == {"role": "user", "content": "Hi"}


def test_a_call_goes_back_as_the_model_wrote_it_and_results_are_one_user_turn() -> None:
    text = f"Look: {JSON_CALL}\n{XML_CALL}"
    called = ask("vllm:m", answer(text), text_calls="json").message
    assert called is not None
    first, second = called.tool_calls
    results = [Message.tool(ToolResult(call.tool_call_id, "blue")) for call in (first, second)]
    _, _, back, told = body_of(Message.user("Hi"), called, *results, Message.user("And?"))["messages"]
    assert back == {"role": "assistant", "content": text}
    response = "<tool_response>\nblue\n</tool_response>"
    assert told == {"role": "user", "content": f"{response}\n{response}\nAnd?"}
    elsewhere = model("llamacpp:m").render([Message.user("Hi"), called, *results], [LOOK]).body
    assert b"<tool_call>" not in elsewhere
    assert b'"tool_calls"' in elsewhere


def test_calls_of_another_model_are_written_in_the_form_of_this_one() -> None:
    call = ToolCall("c", "look", {"at": "sea", "times": 2})
    history = (Message.user("Hi"), Message.assistant("So:", call), Message.tool(ToolResult("c", "blue")))
    back = body_of(*history)["messages"][2]["content"]
    assert said(read([back])) == ["So:\n", ("look", {"at": "sea", "times": 2})]
    back = body_of(*history, form="xml")["messages"][2]["content"]
    assert "<parameter=at>\nsea\n</parameter>\n<parameter=times>\n2\n</parameter>" in back
    assert said(read([back])) == ["So:\n", ("look", {"at": "sea", "times": 2})]
    broken = Message.assistant(ToolCall.parse("c", "look", '{"at'))
    back = body_of(history[0], broken, history[2])["messages"][2]["content"]
    assert said(read([back])) == [("look", {"unparsed_arguments": '{"at'})]


def test_a_conversation_that_grows_is_written_as_from_the_beginning() -> None:
    asked = model("vllm:m", text_calls="json")
    history = [Message.user("Hi")]
    for turn in range(4):
        call = ToolCall(f"c{turn}", "look", {"at": "sea"})
        history += [Message.assistant(call), Message.tool(ToolResult(f"c{turn}", "blue")), Message.user("And?")]
        fresh = model("vllm:m", text_calls="json").render(history, [LOOK])
        assert asked.render(history, [LOOK]).body == fresh.body


def test_what_text_cannot_do_is_refused_before_the_network() -> None:
    with pytest.raises(ModelError, match="tool_choice 'required'") as refused:
        body_of(Message.user("Hi"), tool_choice="required")
    assert refused.value.code is ErrorCode.UNSUPPORTED
    with pytest.raises(InvalidValue, match="Chat Completions"):
        model("anthropic:claude-opus-4-5", text_calls="json")
    with pytest.raises(InvalidValue, match="json or xml"):
        model("vllm:m", text_calls="yaml")  # type: ignore[arg-type]


def test_an_agent_runs_the_tool_that_was_called_in_text() -> None:
    seen: list[str] = []

    @tool
    def look(at: str) -> str:
        """Look."""
        seen.append(at)
        return "blue"

    transport = ReplayTransport([answer(f"Look: {XML_CALL}"), answer("It is blue.")])
    asked = model("vllm:m", transport=transport, text_calls="xml")
    result = asyncio.run(Agent(asked, tools=[look]).run("How is the sea?"))
    assert (result.status, result.output, seen) == (AgentStatus.COMPLETED, "It is blue.", ["sea"])
    *_, told = json.loads(transport.requests[1].body)["messages"]
    assert told == {"role": "user", "content": "<tool_response>\nblue\n</tool_response>"}
