"""Rows with right checksums and a content that no writer of ours makes: each is corrupt, and nothing else is raised."""

import asyncio
import hashlib
import json
import sqlite3
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman import ErrorCode, Message, StoreError, ToolCall, UnreadableData, open_session, start_session
from dragoman.errors import IllegalAppend
from dragoman.history import (
    AbortRequestedEntry,
    DerivedState,
    HistoryEntry,
    RunFinishedEntry,
    RunStatus,
    SystemInstructionEntry,
    ToolStartedEntry,
    entry_from_json,
)
from dragoman.history.entryform import ENTRY_LIMIT
from dragoman.interop import read_jsonl
from dragoman.store import MemoryStore, SessionStore, SQLiteStore
from dragoman.store.protocol import Snapshot
from dragoman.store.snapshots import name_snapshot, read_snapshot
from dragoman.store.sql_rows import SPAN_BYTES
from dragoman.testing.storecases import BEGINNING
from tests.store_cases import with_store

TEXT = {"kind": "text", "payload": {"text": "a"}}


def entry(kind: str, payload: Any, serial: int = 1) -> bytes:
    """Return an entry's JSON."""
    place = {"serial": serial, "id": f"v:{serial}~z", "kind": kind, "timestamp": "2026-11-16T10:38:23.827991Z"}
    return json.dumps({**place, "payload": payload}).encode()


def deep(levels: int) -> bytes:
    """Return an entry of an unknown kind, nested so deep."""
    return entry("later", {"a": 0}).replace(b"0}", b"[" * levels + b"]" * levels + b"}")


HOSTILE = {
    "a message without a role": entry("model_output", {"message": {"parts": [TEXT]}}),
    "a role that is an object": entry("model_output", {"message": {"role": {}, "parts": [TEXT]}}),
    "a part whose kind is an object": entry("model_input", {"parts": [{"kind": {}, "payload": {}}]}),
    "a part whose kind is an array": entry("steering", {"parts": [{"kind": [], "payload": {}}]}),
    "a part in a message whose kind is an array": entry(
        "model_output", {"message": {"role": "assistant", "parts": [{"kind": [], "payload": {}}]}}
    ),
    "nested 100,000 deep": deep(100_000),
    "nested 500 deep": deep(500),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_an_entry_of_another_form_is_unreadable_data(data: bytes) -> None:
    with pytest.raises(UnreadableData):
        entry_from_json(data)
    with pytest.raises(UnreadableData, match="line 1"):
        list(read_jsonl(data))


@pytest.mark.parametrize("wrong", [None, 5, "x", [], [[]], {}, {"kind": {}}, True, 1e300], ids=repr)
def test_no_value_in_any_place_of_an_entry_is_more_than_unreadable(wrong: Any) -> None:
    call = {"kind": "tool_call", "payload": {"toolCallId": "c", "toolName": "f", "arguments": {}, "rawArgsText": "{}"}}
    message = {"role": "assistant", "runId": "r", "parts": [TEXT, call], "meta": {"invocation": {"provider": "p"}}}
    result = {"toolName": "f", "toolCallId": "c", "result": {"live": [["", "a"]]}, "attachments": [TEXT]}
    whole = [
        json.loads(entry("model_output", {"message": message})),
        json.loads(entry("tool_result", {"results": [result]})),
        json.loads(entry("model_input", {"parts": [TEXT], "sections": {"live": [["", {"part": 0}]]}})),
    ]
    tried = 0
    for document in whole:
        for owner, key in places(document):
            kept, owner[key] = owner[key], wrong
            try:
                entry_from_json(json.dumps(document))
            except UnreadableData:
                pass  # and nothing else
            owner[key] = kept
            tried += 1
    assert tried > 50


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every place in a document: what holds it, and under which name."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    return [found for key in keys for found in ((value, key), *places(value[key]))]


def forge(path: Path, data: bytes) -> None:
    """Add a row with a right checksum to the session `v`, by plain SQL."""
    database = sqlite3.connect(path, isolation_level=None)
    serial, checksum, position = database.execute(
        "SELECT serial, checksum, position FROM heads WHERE session = 1"
    ).fetchone()
    after = database.execute("SELECT max(position) + 1 FROM entries").fetchone()[0]
    digest = hashlib.sha256(checksum + data).digest()
    database.execute("BEGIN")
    database.execute("INSERT INTO entries VALUES (?, 1, ?, ?, ?, ?)", (after, serial + 1, position, digest, data))
    database.execute(
        "UPDATE heads SET serial = ?, checksum = ?, position = ? WHERE session = 1", (serial + 1, digest, after)
    )
    database.execute("COMMIT")
    database.close()


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_a_forged_row_is_corrupt_and_the_other_sessions_are_listed(data: bytes, tmp_path: Path) -> None:
    async def fill(store: SQLiteStore) -> None:
        for name in ("v", "good"):
            await (await start_session(store, name)).append_model_input("hi")

    async def look(store: SQLiteStore) -> None:
        report = await store.verify("v")
        assert (report.is_sound, report.bad_serial) == (False, 1)
        for call in (open_session(store, "v"), store.load("v")):
            with pytest.raises(StoreError) as caught:
                await call
            assert caught.value.code is ErrorCode.CORRUPT
        page = await store.list()
        assert {*page.damaged, *(info.session_id for info in page.sessions)} == {"v", "good"}
        assert "good" not in page.damaged

    with_store(tmp_path / "s.db", fill)
    forge(tmp_path / "s.db", data)
    with_store(tmp_path / "s.db", look)


def test_a_snapshot_nested_too_deep_is_as_good_as_none() -> None:
    snapshot = Snapshot(0, b"[" * 100_000)
    first, after = SystemInstructionEntry("x"), name_snapshot(snapshot, SystemInstructionEntry("y"))
    assert after is not None
    assert read_snapshot(snapshot, [first, after]) == DerivedState()


def test_pieces_beyond_the_limit_of_an_entry_are_refused_before_they_are_put_together(tmp_path: Path) -> None:
    path, size = tmp_path / "s.db", 4_000_000

    async def fill(store: SQLiteStore) -> None:
        for name in ("v", "good"):
            await (await start_session(store, name)).append_model_input("hi")

    async def look(store: SQLiteStore) -> int:
        tracemalloc.start()
        report = await store.verify("v")
        for call in (open_session(store, "v"), store.load("v"), store.load("v", until_serial=1)):
            with pytest.raises(StoreError, match="serial 0 is larger than 536870912 bytes") as caught:
                await call
            assert caught.value.code is ErrorCode.CORRUPT
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (report.is_sound, report.bad_serial) == (False, 0)
        assert "larger than" in report.problem
        assert (await store.verify("good")).is_sound
        return peak

    with_store(path, fill)
    database = sqlite3.connect(path)
    database.execute("INSERT INTO blobs VALUES (999, x'00', zeroblob(?))", (size,))
    count = ENTRY_LIMIT // size + 1
    database.executemany("INSERT INTO pieces VALUES (1, 0, ?, 999, 0)", [(number,) for number in range(count)])
    database.commit()
    database.close()
    assert with_store(path, look) < size


@pytest.mark.slow
def test_pieces_of_many_entries_are_read_a_part_at_a_time(tmp_path: Path) -> None:
    text = "a word " * (SPAN_BYTES // 20)  # a third of what is read at once

    async def use(store: SQLiteStore) -> None:
        session = await start_session(store, "s")
        for number in range(4):
            await session.append_model_input(f"{number}")
            await session.append_model_input(text)
        assert (await store.verify("s")).is_sound
        assert await store.load("s") == tuple(session.entries)

    with_store(tmp_path / "s.db", use)


# ---------------------------------------------------------------- entries that no history takes

ILLEGAL: dict[str, tuple[str, Callable[..., HistoryEntry]]] = {
    "a start of no call": ("result_answers_a_call", lambda **at: ToolStartedEntry("zz", "x", **at)),
    "an end of no run": ("one_run_at_a_time", lambda **at: RunFinishedEntry(RunStatus.COMPLETED, **at)),
    "an abort of no run": ("abort_ends_a_run", lambda **at: AbortRequestedEntry("x", **at)),
    "an id of another place": (
        "serial_follows",
        lambda **at: SystemInstructionEntry("x", **{**at, "entry_id": "other:77~q"}),
    ),
}


@pytest.mark.parametrize("name", ILLEGAL)
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_an_entry_that_breaks_a_rule_is_named_by_verify_and_open(name: str, kind: str, tmp_path: Path) -> None:
    rule, make = ILLEGAL[name]

    async def use(store: SessionStore) -> None:
        session = await start_session(store, "v")
        sound = await session.append_model_input("hi")
        illegal = make(serial=1, entry_id="v:1~a", timestamp=BEGINNING)
        await store.append("v", [illegal], 1)
        report = await store.verify("v")
        assert (report.is_sound, report.bad_serial, report.head.serial) == (False, 1, sound.serial)
        assert rule in report.problem
        for call in (open_session(store, "v"), session.refresh()):
            with pytest.raises(StoreError, match=f"serial 1 .*{rule}") as caught:
                await call
            assert caught.value.code is ErrorCode.CORRUPT
        with pytest.raises(IllegalAppend):  # what the caller himself gives is still his own mistake
            await session.append(ToolStartedEntry("zz", "x"))

    if kind == "memory":
        asyncio.run(use(MemoryStore()))
    else:
        with_store(tmp_path / "s.db", use)


# ---------------------------------------------------------------- calls of earlier versions


@pytest.mark.parametrize("raw", ["x", "", '{"amount": 1}', "[]"])
def test_a_recorded_call_whose_text_says_something_else_is_read_with_what_would_run(raw: str) -> None:
    payload = {"toolCallId": "c", "toolName": "pay", "arguments": {"amount": 1000000}, "rawArgsText": raw}
    message = {"role": "assistant", "parts": [{"kind": "tool_call", "payload": payload}]}
    read = entry_from_json(entry("model_output", {"message": message}))
    assert read.message == Message.assistant(ToolCall("c", "pay", {"amount": 1000000}))  # type: ignore[attr-defined]
    assert read.message.tool_calls[0].raw_args_text == '{"amount":1000000}'  # type: ignore[attr-defined]
