"""`dragoman replay` and `dragoman decode`: captured and stored answers as deltas, in their time, and as messages."""

import asyncio
import io
import json
import subprocess
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from dragoman.cli.captures import find_api, read_answers
from dragoman.cli.output import Output
from dragoman.cli.playing import Beat, Note, Player, schedule, timed
from dragoman.cli.retelling import message_deltas, retold
from dragoman.delta import (
    DoneDelta,
    ErrorDelta,
    MessageDelta,
    StartDelta,
    TextDelta,
    ThinkingDelta,
    ToolCallArgsDelta,
    ToolCallEndDelta,
    ToolCallStartDelta,
    UsageDelta,
)
from dragoman.errors import ErrorCode, InvalidValue
from dragoman.history import (
    AgentState,
    HistoryToolCallResult,
    ModelInputEntry,
    RunFinishedEntry,
    RunStartedEntry,
    RunStatus,
    ToolFinishedEntry,
    ToolStartedEntry,
)
from dragoman.jsonform import from_json
from dragoman.message import FinishReason, Message, MessageMeta, Role, Text, Thinking, ToolCall
from dragoman.store import SQLiteStore
from dragoman.stream import assemble
from dragoman.stream.eventstream import encode_frame
from dragoman.testing import RecordingTransport, ReplayedResponse, ReplayTransport, strategies
from dragoman.usage import TokenUsage
from dragoman.wire import WIRE_APIS
from tests.cli_cases import User, empty_user, require_words  # noqa: F401  # the fixture
from tests.corpus import body_of, decode, needs_corpus, records

CHAT = (
    b'data: {"object":"chat.completion.chunk","choices":[{"delta":{"content":"Hel"}}]}\n\n'
    b'data: {"object":"chat.completion.chunk","choices":[{"delta":{"content":"lo."},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)
WHOLE = json.dumps(
    {"object": "chat.completion", "choices": [{"message": {"content": "Hello."}, "finish_reason": "stop"}]}
).encode()
BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


def frame(kind: str, payload: dict[str, Any]) -> bytes:
    headers = {":message-type": "event", ":event-type": kind, ":content-type": "application/json"}
    return encode_frame(headers, json.dumps(payload).encode())


# ---------------------------------------------------------------- decode


def test_a_captured_stream_becomes_deltas(user: User) -> None:
    (user.folder / "body.sse").write_bytes(CHAT)
    ended = user.run("decode", "body.sse", "--api", "openai-chat")
    assert ended.status == 0
    assert [line["kind"] for line in ended.json_lines] == ["start", "text", "text", "done"]
    assert all(isinstance(from_json(line), object) for line in ended.out.splitlines())


@pytest.mark.parametrize("body", [CHAT, WHOLE])
@pytest.mark.parametrize("api", [[], ["--api", "openai-chat"], ["--api", "groq"]])
def test_a_captured_answer_becomes_the_message(user: User, body: bytes, api: list[str]) -> None:
    (user.folder / "body").write_bytes(body)
    message = from_json(user.run("decode", "body", "--message", *api).out.strip())
    assert isinstance(message, Message)
    assert message.text == "Hello."


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n",
        b"HTTP/2 200\ncontent-type: text/event-stream\n\n",
        b"HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n",
    ],
)
def test_an_http_head_is_read(user: User, head: bytes) -> None:
    assert user.process("decode", given=head + CHAT).json_lines[-1]["kind"] == "done"


def test_a_failed_request_is_an_error(user: User) -> None:
    head = b"HTTP/1.1 429 Too Many\r\ncontent-type: application/json\r\nretry-after: 7\r\n\r\n"
    ended = user.process("decode", "--api", "openai", given=head + b'{"error": {"message": "slow down"}}')
    (error,) = ended.json_lines
    assert (ended.status, error["payload"]["errorCode"]) == (1, "rate_limited")
    assert "slow down" in ended.err
    assert ended.err.count("\n") == 1


def test_a_stream_that_was_cut_short_is_never_a_message(user: User) -> None:
    ended = user.process("decode", "--message", given=CHAT[:100])
    assert (ended.status, ended.out) == (1, "")
    assert "stream_truncated" in ended.err


def test_a_pipe_is_decoded_while_it_is_open(user: User) -> None:
    process = subprocess.Popen(user.command("decode"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    first, rest = CHAT[: CHAT.index(b"\n\n") + 2], CHAT[CHAT.index(b"\n\n") + 2 :]
    process.stdin.write(first)
    process.stdin.flush()
    lines = [json.loads(process.stdout.readline()) for _ in range(2)]  # comes although the pipe is open
    assert [line["kind"] for line in lines] == ["start", "text"]
    assert lines[1]["timestamp"]
    process.stdin.write(rest)
    process.stdin.close()
    assert json.loads(process.stdout.read().splitlines()[-1])["kind"] == "done"
    process.stdout.close()
    assert process.wait() == 0


def test_a_binary_stream_is_recognised(user: User) -> None:
    body = (
        frame("messageStart", {"role": "assistant"})
        + frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "Hello."}})
        + frame("contentBlockStop", {"contentBlockIndex": 0})
        + frame("messageStop", {"stopReason": "end_turn"})
    )
    ended = user.process("decode", "--message", given=body)
    assert ended.json["parts"][0]["payload"]["text"] == "Hello."


@pytest.mark.parametrize("content", [b"", b"   ", b"hello", b"\xff\xfe", b"{}", b"[1]", b"HTTP/1.1 200 OK\r\n"])
def test_what_is_no_answer_is_one_line(user: User, content: bytes) -> None:
    ended = user.process("decode", given=content)
    require_words(ended)


def test_the_error_says_which_apis_there_are(user: User) -> None:
    require_words(user.process("decode", given=b"hello"), "openai-chat", "--api")
    require_words(user.process("decode", "--api", "antropic", given=CHAT), "did you mean 'anthropic'?")
    require_words(user.run("decode", "nowhere.sse"), "nowhere.sse: No such file")


def test_every_api_has_a_name() -> None:
    assert {find_api(name).specification for name in WIRE_APIS} == set(WIRE_APIS)


@needs_corpus
@pytest.mark.parametrize("protocol", ["openai-chat", "openai-responses", "anthropic-messages", "gemini"])
def test_recorded_answers_are_recognised_and_read_as_production_reads_them(protocol: str) -> None:
    for record in records(protocol)[:40]:
        if record["response"]["status"] != 200:
            continue
        (answer,) = read_answers([body_of(record)])
        found = assemble(answer.deltas)
        expected = assemble(decode(protocol, {**record, "vendor": ""}))
        assert (found.message is None) == (expected.message is None), record["id"]
        if found.message is not None and expected.message is not None:
            assert found.message.parts == expected.message.parts


@needs_corpus
def test_a_recording_is_decoded_exchange_by_exchange(user: User) -> None:
    lines = [json.dumps(record) for record in records("anthropic-messages")[:3]]
    ended = user.run("decode", user.write("recording.jsonl", "\n".join(lines)), "--message")
    assert len(ended.json_lines) == 3


def test_what_the_recording_transport_writes_can_be_decoded_and_replayed(user: User) -> None:
    from dragoman.models import model

    path = user.folder / "recording.jsonl"
    inner = ReplayTransport([ReplayedResponse(chunks=(CHAT,)), ReplayedResponse(chunks=(CHAT,))])
    transport = RecordingTransport(inner, path, protocol="openai-compatible", vendor="groq")

    async def record() -> None:
        for _ in range(2):
            await model("groq:a", api_key="key", transport=transport).stream([Message.user("Hi.")]).collect()

    asyncio.run(record())
    assert [line["parts"][0]["payload"]["text"] for line in user.run("decode", str(path), "--message").json_lines] == [
        "Hello.",
        "Hello.",
    ]
    assert user.run("replay", str(path), "--speed", "0").out == "Hello.\n[stop]\n" * 2
    assert user.run("replay", str(path), "--speed", "0", "--exchange", "1").out == "Hello.\n[stop]\n"
    require_words(user.run("replay", str(path), "--speed", "0", "--exchange", "2"), "there are 2 exchanges")


def test_a_damaged_recording_is_one_line(user: User) -> None:
    bad = {"id": "x", "protocol": "gemini", "response": {"status": 200, "body_b64": "!"}}
    require_words(user.run("decode", user.write("r", bad)), "'x' is damaged")
    unknown = {"id": "x", "response": {"status": 200, "body": "data"}}
    require_words(user.run("decode", user.write("r", unknown)), "--api")


# ---------------------------------------------------------------- time


def piece(text: str, seconds: float | None) -> TextDelta:
    time = None if seconds is None else BEGINNING + timedelta(seconds=seconds)
    return TextDelta(run_id="r", seq=0, timestamp=time, text_delta=text)


def test_deltas_come_when_they_came() -> None:
    beats = timed([piece("a", 0), piece("b", 0.5), piece("c", 2.5)])
    assert [beat.due for beat in beats] == [0.0, 0.5, 2.5]
    assert [wait.seconds for wait in schedule(beats, speed=2, longest=10)] == [0.0, 0.25, 1.0]
    assert [wait.seconds for wait in schedule(beats, speed=1, longest=1)] == [0.0, 0.5, 1.0]
    assert [wait.seconds for wait in schedule(beats, speed=0, longest=1)] == [0.0, 0.0, 0.0]


def test_deltas_without_a_time_come_at_an_even_pace() -> None:
    waits = [wait.seconds for wait in schedule(timed([piece("a", None)] * 4), speed=1, longest=1)]
    assert waits[0] == 0
    assert waits[1] > 0
    assert waits[1:] == pytest.approx([waits[1]] * 3)


def test_a_clock_that_was_set_back_makes_nobody_wait() -> None:
    beats = timed([piece("a", 5), piece("b", 1), piece("c", 2)])
    assert [beat.due for beat in beats] == [0.0, 0.0, 1.0]


def test_a_negative_speed_is_refused(user: User) -> None:
    with pytest.raises(InvalidValue):
        list(schedule([Beat(0, Note("a", "b"))], speed=-1, longest=1))
    assert user.run("replay", "x", "--speed", "-1").status == 2
    assert user.run("replay", "x", "--speed", "fast").status == 2


# ---------------------------------------------------------------- replay


def test_deltas_as_json_lines_are_played(user: User) -> None:
    (user.folder / "body.sse").write_bytes(CHAT)
    deltas = user.run("decode", "body.sse").out
    assert user.run("replay", user.write("deltas.jsonl", deltas), "--speed", "0").out == "Hello.\n[stop]\n"
    assert user.process("replay", "-", "--speed", "0", given=deltas.encode()).out == "Hello.\n[stop]\n"
    assert user.run("replay", "deltas.jsonl", "--speed", "0", "--json").out == deltas
    events = [{"kind": "status", "seq": 0, "status": "preparing"}]
    events += [{"kind": "delta", "seq": 1, "delta": json.loads(line)} for line in deltas.splitlines()]
    name = user.write("events.jsonl", "\n".join(json.dumps(event) for event in events))
    assert user.run("replay", name, "--speed", "0").out == "Hello.\n[stop]\n"


def test_a_raw_capture_is_played(user: User) -> None:
    (user.folder / "body.sse").write_bytes(CHAT)
    assert user.run("replay", "body.sse", "--speed", "0").out == "Hello.\n[stop]\n"
    assert user.run("replay", "body.sse", "--speed", "0", "--api", "groq").out == "Hello.\n[stop]\n"


def store_runs(user: User) -> AgentState:
    """Keep a session of two runs."""
    ticks = iter(range(1000))
    state = AgentState.create_default(session_id="runs", clock=lambda: BEGINNING + timedelta(seconds=next(ticks)))
    state.append(RunStartedEntry(run_id="first"))
    state.append_model_input("One?")
    state.append_model_output(Message.assistant("Two."))
    state.append(RunFinishedEntry(RunStatus.COMPLETED))
    state.append(RunStartedEntry(run_id="second"))
    state.append(ModelInputEntry.of("Look."))
    answer = Message(
        Role.ASSISTANT,
        (Thinking("Let me see."), Text("One moment."), ToolCall("c1", "look", {"at": "it"})),
        meta=MessageMeta(usage=TokenUsage(input_tokens=7, output_tokens=3)),
    )
    output = state.append_model_output(answer)
    state.append(ToolStartedEntry("c1", "look"))
    state.append(ToolFinishedEntry(HistoryToolCallResult.of_text(output.tool_calls[0], "A tree.")))
    state.append_tool_results()
    state.append_model_output(Message.assistant("It is a tree."))
    state.append(RunFinishedEntry(RunStatus.COMPLETED))

    async def keep() -> None:
        async with SQLiteStore(user.store) as store:
            await store.create("runs")
            await store.append("runs", tuple(state.entries), 0)

    asyncio.run(keep())
    return state


SECOND = """\
you: Look.
(thinking) Let me see.
One moment.
→ look({"at":"it"})
[tool_calls; 7 in, 3 out]
← look: A tree.
It is a tree.
[stop]
"""
FIRST = "you: One?\nTwo.\n[stop]\n"


def test_a_stored_run_is_played(user: User) -> None:
    store_runs(user)
    assert user.run("replay", "runs", "--speed", "0").out == SECOND
    assert user.run("replay", "runs", "--speed", "0", "--run", "fi").out == FIRST
    assert user.run("replay", "runs", "--speed", "0", "--all").out == FIRST + SECOND
    require_words(user.run("replay", "runs", "--speed", "0", "--run", "third"), "no run 'third'", "first, second")


def test_a_stored_run_as_json_is_deltas(user: User) -> None:
    store_runs(user)
    deltas = [from_json(line) for line in user.run("replay", "runs", "--speed", "0", "--json").out.splitlines()]
    kinds = [delta.kind for delta in deltas if not isinstance(delta, Message)]
    assert kinds.count("start") == kinds.count("done") == 2


def test_a_stored_run_takes_the_time_that_it_took(user: User) -> None:
    beats = list(retold(store_runs(user).entries))
    assert all(one.due <= other.due for one, other in pairwise(beats))
    assert beats[-1].due == 10


def has_different_calls(message: Message) -> bool:
    """Whether no two calls have the same id, as in every history."""
    ids = [call.tool_call_id for call in message.tool_calls]
    return len(set(ids)) == len(ids)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(strategies.messages(Role.ASSISTANT).filter(has_different_calls))
def test_a_message_is_retold_by_deltas_that_make_it_again(message: Message) -> None:
    deltas = list(message_deltas(message, run_id="r", time=BEGINNING))
    assembled = assemble(deltas)
    assert assembled.error is None
    assert assembled.message is not None
    assert assembled.message.text == message.text
    assert [call.raw_args_text for call in assembled.message.tool_calls] == [
        call.raw_args_text for call in message.tool_calls
    ]


def played(*deltas: MessageDelta) -> str:
    stream = io.StringIO()
    player = Player(Output(stream))
    for delta in deltas:
        player.show(delta)
    player.close()
    return stream.getvalue()


def test_a_character_that_comes_in_halves_is_whole() -> None:
    assert played(piece("a\ud83d", 0), piece("\udc4db", 0)) == "a👍b\n"
    assert played(piece("a\r", 0), piece("\nb", 0)) == "a\nb\n"
    assert played(piece("a\ud83d", 0)) == "a\ufffd\n"
    half = ThinkingDelta("r", 1, None, part_index=0, text_delta="a\ud83d")
    assert played(half) == "(thinking) a\ufffd\n"


def test_a_call_gets_its_bracket_when_it_is_whole() -> None:
    start = ToolCallStartDelta("r", 1, None, tool_call_id="c", tool_name="look\x1bup")
    arguments = ToolCallArgsDelta("r", 2, None, tool_call_id="c", args_text_delta='{"a": ')
    rest = ToolCallArgsDelta("r", 3, None, tool_call_id="c", args_text_delta="1}")
    end = ToolCallEndDelta("r", 4, None, tool_call_id="c")
    error = ErrorDelta("r", 3, None, error_code=ErrorCode.CONNECTION, message="gone")
    assert played(start, arguments, rest, end) == '→ look\\x1bup({"a": 1})\n'
    assert played(start, arguments, error) == '→ look\\x1bup({"a": \n[connection] gone\n'


def test_an_answer_ends_with_its_reason_and_its_tokens() -> None:
    first = UsageDelta("r", 1, None, usage=TokenUsage(input_tokens=7))
    done = DoneDelta("r", 2, None, finish_reason=FinishReason.STOP)
    again = StartDelta("r", 0, None)
    assert played(first, done, again, done) == "[stop; 7 in]\n[stop]\n"


def test_an_escape_that_comes_in_pieces_stays_harmless() -> None:
    assert "\x1b" not in played(piece("\x1b", 0), piece("[31m", 0))


def test_what_is_neither_a_file_nor_a_session_is_one_line(user: User) -> None:
    require_words(user.run("replay", "nothing"), "there is no store")
    user.imported()
    require_words(user.run("replay", "nothing"), "there is no session 'nothing'")
