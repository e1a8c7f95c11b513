"""Whatever is acknowledged can be read back: a value at the edge of what JSON holds is refused or the same again."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from dragoman import (
    Agent,
    AgentStatus,
    ErrorCode,
    FinishReason,
    InvalidValue,
    Message,
    MessageDelta,
    ModelError,
    Text,
    TextDelta,
    TokenUsage,
    ToolCall,
    UnreadableData,
    blocks,
    from_json,
    model,
    to_json,
)
from dragoman.delta import (
    DELTA_CLASSES,
    DoneDelta,
    ErrorDelta,
    ImageDelta,
    ProviderItemDelta,
    StartDelta,
    ThinkingDelta,
    ToolCallArgsDelta,
    ToolCallEndDelta,
    ToolCallStartDelta,
    UnknownDelta,
    UsageDelta,
)
from dragoman.history import (
    AgentState,
    ModelInputEntry,
    ModelOutputEntry,
    RunStartedEntry,
    UnknownEntry,
    entry_from_json,
    entry_to_json,
    entryform,
)
from dragoman.history.entries import ENTRY_CLASSES
from dragoman.message import PART_CLASSES, MessageMeta
from dragoman.store import Head, MemoryStore, SessionStore, SQLiteStore, open_session, start_session
from dragoman.store.chain import chained
from dragoman.store.session import SNAPSHOT_EVERY
from dragoman.store.sql import SQLStore
from dragoman.store.sql_leases import Claim
from dragoman.stream import assemble
from dragoman.stream.guard import Guard
from dragoman.testing import ReplayedResponse, ReplayTransport, decode_recorded
from dragoman.usage import NUMBER_LIMIT, Prices, amount_of, count_of
from tests.extreme_values import ENTRIES, MESSAGE, NOW, PARTS, USAGE, Changed, changed, extreme_entries, nested
from tests.postgres_server import Place

DELTAS: tuple[MessageDelta, ...] = (
    StartDelta("r", 0, NOW, "m", "q"),
    TextDelta("r", 0, NOW, "hello", 1, {"a": 1}, provider_raw={"a": 1}, extra={"own": 1}),
    TextDelta("r", 0, NOW, "hello"),
    ThinkingDelta("r", 0, NOW, "hm", 1),
    ToolCallStartDelta("r", 0, NOW, "c", "f", {"a": 1}),
    ToolCallArgsDelta("r", 0, NOW, "c", "{}"),
    ToolCallEndDelta("r", 0, NOW, "c"),
    ImageDelta("r", 0, NOW, "image/png", b"x"),
    ProviderItemDelta("r", 0, NOW, "search", {"a": 1}, "said"),
    UsageDelta("r", 0, NOW, USAGE),
    DoneDelta("r", 0, NOW, FinishReason.STOP, "end", {"a": 1}),
    ErrorDelta("r", 0, NOW, ErrorCode.TIMEOUT, "late", True, 1.5, "q", "words"),
    UnknownDelta("r", 0, NOW, "omen", {"a": 1}),
)


@pytest.fixture
def open_store(request: pytest.FixtureRequest) -> Callable[[], SessionStore]:
    """Return what opens a store of one new place, of the kind that the test is run for."""
    if request.param == "memory":
        store = MemoryStore()
        return lambda: store
    if request.param == "sqlite":
        path = request.getfixturevalue("tmp_path") / "sessions.db"
        return lambda: SQLiteStore(path)
    place: Place = request.getfixturevalue("postgres")
    return lambda: place.store(poll_seconds=3600)


every_store = pytest.mark.parametrize("open_store", ["memory", "sqlite", "postgres"], indirect=True)


# ---------------------------------------------------------------- values


def test_the_samples_are_of_every_class_that_is_recorded() -> None:
    assert {type(entry) for entry in ENTRIES} == {*ENTRY_CLASSES.values(), UnknownEntry}
    assert {part.kind for part in PARTS} > PART_CLASSES.keys()
    assert {type(delta) for delta in DELTAS} == {*DELTA_CLASSES.values(), UnknownDelta}


@pytest.mark.slow  # many seconds
def test_an_entry_is_refused_where_it_is_made_or_is_read_back_as_the_same_bytes() -> None:
    made = 0
    for what, entry in extreme_entries():
        written = entry_to_json(entry)
        read = entry_from_json(written)
        assert entry_to_json(read) == written, what
        made += 1
    assert made > 10_000


def test_messages_and_deltas_are_refused_where_they_are_made_or_are_read_back_as_the_same_bytes() -> None:
    made = 0
    for value in (MESSAGE, *DELTAS):
        for what, extreme in changed(value):
            written = to_json(extreme)
            assert to_json(from_json(written)) == written, what
            made += 1
    assert made > 1_000


def test_blocks_and_chunks_are_refused_where_they_are_made_or_are_read_back_as_the_same_bytes() -> None:
    samples: tuple[Any, ...] = (
        blocks.ToolUseBlock("a", "b", {"x": 1}),
        blocks.Error("late", retry_after=1.5),
        blocks.ContentBlockStart(0),
        blocks.MessageStop(blocks.TokenUsage(1, 2)),
    )
    made = [one for sample in samples for one in changed(sample)]
    made += [Changed(what, blocks.MessageStop(usage)) for what, usage in changed(blocks.TokenUsage(1, 2, 3))]
    for what, value in made:
        written = blocks.to_json(value)
        assert blocks.to_json(blocks.from_json(written)) == written, what
    assert len(made) > 100


@pytest.mark.parametrize("number", [10**400, 2**53 + 1, 1e308, float("inf"), float("nan"), -1, "1e400", "\ud800", True])
def test_a_number_that_no_call_comes_to_is_not_reported(number: Any) -> None:
    assert (count_of(number), amount_of(number)) == (None, None)
    assert TokenUsage.reported(input_tokens=number, cost=number) == TokenUsage()


def test_a_cost_is_written_as_it_is_read() -> None:
    delta = UsageDelta("r", 0, NOW, TokenUsage(cost=2))
    assert b'"cost":2.0' in to_json(delta)
    assert from_json(to_json(delta)) == delta


def test_usage_that_adds_up_beyond_the_limit_stays_at_the_limit() -> None:
    most = TokenUsage(input_tokens=NUMBER_LIMIT, cost=float(NUMBER_LIMIT))
    assert most + most == most
    assert Prices(input=NUMBER_LIMIT, output=0).cost_of(most) == NUMBER_LIMIT


def test_fields_of_a_later_version_inside_plain_sections_are_read_back() -> None:
    head = '{"serial":0,"id":"s:0","kind":"model_input","payload":{"parts":[{"kind":"text","payload":{"text":"hi"}}],'
    written = head + '"sections":{"live":[["",{"part":0}]],"mood":1}}}'
    assert entry_to_json(entry_from_json(written)) == written.encode()


@pytest.mark.parametrize("depth", [190, 201, 250, 300, 100_000])
def test_unknown_fields_are_read_or_refused_as_unreadable_however_deep(depth: int) -> None:
    deep = '{"a":' * depth + "1" + "}" * depth
    for form, read in (
        ('{"role":"user","parts":[],"later":%s}', from_json),
        ('{"role":"user","parts":[{"kind":"text","payload":{"text":"a","later":%s}}]}', from_json),
        ('{"seq":0,"kind":"text","payload":{"textDelta":"a"},"later":%s}', from_json),
        ('{"serial":0,"id":"s:0","kind":"reset","payload":{},"later":%s}', entry_from_json),
        ('{"serial":0,"id":"s:0","kind":"omen","payload":%s}', entry_from_json),
    ):
        if depth <= 190:
            read(form % deep)
        else:
            with pytest.raises(UnreadableData):
                read(form % deep)


def test_a_message_inside_an_entry_may_have_a_version_of_its_own() -> None:
    written = '{"serial":0,"id":"s:0","kind":"model_output","payload":{"message":{"role":"assistant","parts":[],%s}}}'
    assert entry_from_json(written % '"schemaVersion":1') == ModelOutputEntry(
        Message.assistant(), serial=0, entry_id="s:0"
    )


def test_calls_whose_ids_are_the_same_once_they_are_recorded_are_told_apart_before() -> None:
    state = AgentState("s", clock=lambda: NOW)
    state.append_model_input("go")
    said = Message.assistant(ToolCall("\ud800", "f", {}), ToolCall("\udc00", "f", {}))
    first, second = state.append_model_output(said).tool_calls
    assert first.tool_call_id != second.tool_call_id
    assert entry_from_json(entry_to_json(state.entries[-1])) == state.entries[-1]


# ---------------------------------------------------------------- what comes off the wire

# Whole answers of every API with N wherever a number, or JSON that is not looked into, may stand.
ANSWERS = {
    "anthropic-messages": """{"id": "a", "type": "message", "role": "assistant", "model": "m", "content": [
        {"type": "text", "text": "hi"}, {"type": "server_tool_use", "id": "s", "name": "w", "input": {"x": N}},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"x": N}}], "stop_reason": "tool_use",
        "usage": {"input_tokens": N, "output_tokens": N, "cache_read_input_tokens": N, "cache_creation": {"a": N},
        "output_tokens_details": {"thinking_tokens": N}}, "further": N}""",
    "openai-compatible": """{"id": "a", "model": "m", "created": N, "choices": [{"index": 0, "finish_reason": "stop",
        "message": {"role": "assistant", "content": "hi", "further": N}}], "usage": {"prompt_tokens": N,
        "completion_tokens": N, "cost": N, "further": N, "prompt_tokens_details": {"cached_tokens": N}}}""",
    "openai-responses": """{"id": "a", "object": "response", "model": "m", "created_at": N, "status": "completed",
        "output": [{"type": "message", "id": "i", "role": "assistant", "status": "completed", "content": [
        {"type": "output_text", "text": "hi", "annotations": [N]}]}, {"type": "web_search_call", "id": "w",
        "status": "completed", "further": N}], "usage": {"input_tokens": N, "output_tokens": N, "cost": N}}""",
    "gemini": """{"candidates": [{"index": 0, "content": {"parts": [{"text": "hi"}, {"functionCall": {"name": "f",
        "args": {"x": N}}}, {"executableCode": {"language": "x", "code": "y", "z": N}}]}, "finishReason": "STOP",
        "further": N}], "usageMetadata": {"promptTokenCount": N, "candidatesTokenCount": N, "thoughtsTokenCount": N,
        "totalTokenCount": N, "further": N}, "modelVersion": "m"}""",
    "bedrock-converse": """{"output": {"message": {"role": "assistant", "content": [{"text": "hi"}, {"toolUse":
        {"toolUseId": "t", "name": "f", "input": {"x": N}}}]}}, "stopReason": "tool_use", "usage": {"inputTokens": N,
        "outputTokens": N, "totalTokens": N, "cacheReadInputTokens": N}, "metrics": {"latencyMs": N}}""",
}


@pytest.mark.parametrize("number", ["1" + "0" * 400, "9" * 4300, "1e308", "9007199254740992", "-1", "5e-324", "null"])
@pytest.mark.parametrize("protocol", ANSWERS)
def test_an_answer_of_any_numbers_is_recorded_and_read_back(protocol: str, number: str) -> None:
    body = ANSWERS[protocol].replace("N", number).encode()
    assembly = assemble(decode_recorded(protocol, body, vendor="openrouter", content_type="application/json"))
    assert assembly.message is not None, assembly.error
    written = entry_to_json(ModelOutputEntry(assembly.message))
    assert entry_to_json(entry_from_json(written)) == written
    usage = assembly.message.meta.usage if assembly.message.meta else None
    assert all(0 <= count <= NUMBER_LIMIT for count in msgspec.structs.astuple(usage or TokenUsage()) if count)


@pytest.mark.parametrize(
    "value", ["1e400", "-" + "9" * 4300, '{"a":' * 250 + "1" + "}" * 250, "[" * 9_999 + "]" * 9_999]
)
@pytest.mark.parametrize("protocol", ANSWERS)
def test_an_answer_that_cannot_be_recorded_is_the_providers_fault(protocol: str, value: str) -> None:
    body = ANSWERS[protocol].replace("N", value).encode()
    assembly = assemble(decode_recorded(protocol, body, vendor="openrouter", content_type="application/json"))
    assert assembly.error is not None
    assert assembly.error.error_code is ErrorCode.PROTOCOL_VIOLATION


def test_a_wait_that_nobody_sits_out_is_not_reported() -> None:
    guard = Guard()
    closing = guard.close(ModelError("later", code=ErrorCode.RATE_LIMITED, retry_after=1e300))
    assert closing is not None
    assert closing.retry_after is None


def test_an_entry_that_no_store_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entryform, "ENTRY_LIMIT", 1_000)
    entry_to_json(ModelInputEntry.of("a" * 500))
    with pytest.raises(InvalidValue, match="larger than 1000"):
        entry_to_json(ModelInputEntry.of("a" * 1_000))


# ---------------------------------------------------------------- stores


@every_store
def test_a_store_gives_back_every_entry_that_it_took(open_store: Callable[[], SessionStore]) -> None:
    found = {what: entry for what, entry in extreme_entries() if not entry.extra}
    entries = [
        replace(entry, serial=serial, entry_id=f"s:{serial}") for serial, entry in enumerate(list(found.values())[::7])
    ]
    written = [entry_to_json(entry) for entry in entries]

    async def run() -> None:
        store = open_store()
        await store.create("s")
        for first in range(0, len(entries), 500):
            await store.append("s", entries[first : first + 500], first)
        report = await store.verify("s")
        assert "breaks a rule of the history" in report.problem  # all can be read, but their order follows no rule
        assert [entry_to_json(entry) for entry in await store.load("s")] == written
        await store.close()

    asyncio.run(run())


@every_store
def test_metadata_of_a_session_is_refused_or_read_back(open_store: Callable[[], SessionStore]) -> None:
    extremes: list[dict[str, Any]] = [
        dict.fromkeys(("\x00", "\ud800", "\ufffd"), "\x00\ud800"),
        {"": 10**400, "a": 5e-324, "b": -0.0, "c": 1.7e308, "d": [None, [], {}]},
        {"deep": nested(199)},
        {"k" * 2_000: None},
    ]

    async def run() -> None:
        store = open_store()
        for number, metadata in enumerate(extremes):
            made = await store.create(f"s{number}", metadata=metadata)
            assert made.metadata == (await store.info(f"s{number}")).metadata
            assert (await store.verify(f"s{number}")).is_sound
            assert (await open_session(store, f"s{number}")).metadata == made.metadata
        await store.close()

    asyncio.run(run())


def test_a_session_is_open_whatever_its_answers_cost() -> None:
    async def run() -> None:
        store = MemoryStore()
        session = await start_session(store, "s")
        usage = TokenUsage(input_tokens=NUMBER_LIMIT, cost=float(NUMBER_LIMIT))
        for _ in range(3):
            await session.append_model_input("go")
            await session.append_model_output(replace(Message.assistant(Text("a")), meta=MessageMeta(usage=usage)))
        assert (await open_session(store, "s")).state.derived.token_usage == usage

    asyncio.run(run())


COSTLY = """data: {"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}],\
 "usage": {"prompt_tokens": %(number)s, "completion_tokens": 1, "total_tokens": %(number)s, "cost": %(number)s}}

data: [DONE]

"""


@pytest.mark.parametrize("number", ["1" + "0" * 400, "1.7e308", "9007199254740992", "-1", '"\\ud800"'])
def test_a_run_on_a_provider_of_absurd_numbers_leaves_a_session_that_opens(number: str, tmp_path: Path) -> None:
    body = (COSTLY % {"number": number}).encode()
    answer = ReplayedResponse(chunks=(body,), headers={"content-type": "text/event-stream"})

    async def run() -> None:
        async with SQLiteStore(tmp_path / "s.db") as store:
            costly = model("openrouter:a/b", api_key="not-a-key", transport=ReplayTransport([answer, answer]))
            agent = Agent(costly, session=await start_session(store, "s"))
            for _ in range(2):
                result = await agent.run("hello")
                assert (result.status, result.output) == (AgentStatus.COMPLETED, "hi")
        async with SQLiteStore(tmp_path / "s.db") as store:
            session = await open_session(store, "s")
            assert [type(entry) for entry in session.entries].count(ModelOutputEntry) == 2
            assert (await store.verify("s")).is_sound

    asyncio.run(run())


def test_a_snapshot_can_be_taken_whatever_the_texts_are() -> None:
    async def run() -> None:
        store = MemoryStore()
        session = await start_session(store, "s")
        await session.append(RunStartedEntry(run_id="\ud800"))
        for first in range(0, SNAPSHOT_EVERY + 100, 100):
            await session.append(*(ModelInputEntry.of(f"{first + place}") for place in range(100)))
        opened = await store.open("s")
        assert opened.snapshot is not None
        assert (await open_session(store, "s")).run_id == "\ufffd"

    asyncio.run(run())


UNREADABLE = (
    b'{"serial":1,"id":"s:1","kind":"compaction","payload":{"firstSerial":0,"lastSerial":0,"summary":"a","usage":%s}}'
)


async def put(store: SessionStore, data: bytes) -> None:
    """Append bytes as they are, with a sound checksum: as a writer with another limit than the reader's would."""
    if isinstance(store, MemoryStore):
        kept = store._find("s")
        head = kept.info.head
        kept.entries.append(data)
        kept.checksums.append(chained(kept.checksum(head.serial), data))
        kept.info = replace(kept.info, head=Head(head.next_serial, kept.checksums[-1].hex()))
    else:
        assert isinstance(store, SQLStore)
        await store._append("s", [data], 1, Claim())


@every_store
def test_verify_calls_nothing_sound_that_cannot_be_read(open_store: Callable[[], SessionStore]) -> None:
    async def run() -> None:
        store = open_store()
        session = await start_session(store, "s")
        await session.append_model_input("hello")
        await put(store, UNREADABLE % (b'{"cost":1' + b"0" * 400 + b"}"))
        report = await store.verify("s")
        assert (report.is_sound, report.bad_serial, report.head.serial) == (False, 1, 0)
        assert "cannot be read" in report.problem
        await store.close()

    asyncio.run(run())
