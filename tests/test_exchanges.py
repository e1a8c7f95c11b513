"""What clients of the gateway asked and were answered: the short form of bodies, what is kept of headers, the JSON."""

import json
import zlib
from base64 import b64encode
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman import InvalidValue
from dragoman.errors import IllegalAppend, UnreadableData
from dragoman.history import (
    AgentState,
    ClientAnswerEntry,
    ClientRequestEntry,
    DerivedState,
    HistoryEntry,
    ResetEntry,
    body_of,
    change_of,
    entry_from_json,
    entry_to_json,
    to_messages,
)
from dragoman.history.derived import advance
from dragoman.history.exchanges import MAX_ANSWER, MAX_BASES

LONG = "long ago " * 200


def asked(body: str = "{}", **fields: Any) -> ClientRequestEntry:
    return ClientRequestEntry("openai-chat", "/v1/chat/completions", "m", body, **fields)


def recorded(*bodies: str) -> dict[int, HistoryEntry]:
    """The requests of these bodies, each in the short form against the one before it."""
    entries: dict[int, HistoryEntry] = {}
    earlier: ClientRequestEntry | None = None
    for serial, body in enumerate(bodies):
        change = change_of(entries.get, body, earlier)
        earlier = ClientRequestEntry("openai-chat", "/v1", "m", *change, serial=serial)
        entries[serial] = earlier
    return entries


def request_at(entries: Mapping[int, HistoryEntry], serial: int) -> ClientRequestEntry:
    entry = entries[serial]
    assert isinstance(entry, ClientRequestEntry)
    return entry


# ---------------------------------------------------------------- bodies


def test_a_body_without_an_earlier_one_is_kept_whole() -> None:
    assert change_of(lambda _: None, LONG, None) == (LONG, None, 0, 0)


def test_a_longer_conversation_keeps_only_what_is_new() -> None:
    entries = recorded(f'{{"messages":["{LONG}"],"tools":[]}}', f'{{"messages":["{LONG}","more"],"tools":[]}}')
    later = request_at(entries, 1)
    assert (later.text, later.base_serial) == (',"more"', 0)
    assert body_of(entries.get, later) == f'{{"messages":["{LONG}","more"],"tools":[]}}'


def test_a_body_equal_to_the_earlier_one_keeps_no_text() -> None:
    entries = recorded(LONG, LONG)
    later = request_at(entries, 1)
    assert (later.text, later.prefix, later.suffix) == ("", len(LONG), 0)
    assert body_of(entries.get, later) == LONG


def test_a_body_that_repeats_itself_shares_no_character_twice() -> None:
    entries = recorded("a" * 2000, "a" * 3000, "a" * 1500)
    assert [len(body_of(entries.get, request_at(entries, serial))) for serial in entries] == [2000, 3000, 1500]


def test_a_body_that_shares_little_is_kept_whole() -> None:
    for shared, base_serial in ((999, None), (1_000, 0)):
        entries = recorded("a" * shared + "b", "a" * shared + "cd")
        assert request_at(entries, 1).base_serial == base_serial
        assert body_of(entries.get, request_at(entries, 1)) == "a" * shared + "cd"


@given(st.lists(st.tuples(st.integers(0, 1900), st.integers(0, 1900), st.text(max_size=20)), max_size=6))
def test_every_body_of_a_chain_is_read_back(edits: list[tuple[int, int, str]]) -> None:
    bodies = [LONG]
    for begin, end, text in edits:
        bodies.append(bodies[-1][: min(begin, end)] + text + bodies[-1][max(begin, end) :])
    entries = recorded(*bodies)
    assert [body_of(entries.get, request_at(entries, serial)) for serial in entries] == bodies


@pytest.mark.parametrize("at", range(1, 40))
def test_the_text_of_a_change_begins_and_ends_where_the_bodies_differ(at: int) -> None:
    body = "".join(chr(0x4E00 + number) for number in range(1_040))
    assert change_of(recorded(body).get, f"{body[:at]}-{body[at + 1 :]}", asked(body, serial=0)) == (
        "-",
        0,
        at,
        1_039 - at,
    )


def test_halves_of_characters_are_joined_before_bodies_are_compared() -> None:
    entries = recorded(f"{LONG}\ud83d\ude00", f"{LONG}\ud83d\ude00!")
    assert body_of(entries.get, request_at(entries, 1)) == f"{LONG}\N{GRINNING FACE}!"


def test_a_body_never_needs_more_than_so_many_others() -> None:
    entries = recorded(*(f"{LONG}{number}" for number in range(2 * MAX_BASES + 3)))
    whole = [serial for serial in entries if request_at(entries, serial).base_serial is None]
    assert whole == [0, MAX_BASES + 1, 2 * (MAX_BASES + 1)]
    assert all(body_of(entries.get, request_at(entries, serial)) == f"{LONG}{serial}" for serial in entries)


def test_a_chain_that_is_too_long_is_not_read() -> None:
    entries = recorded(LONG)
    for serial in range(1, MAX_BASES + 2):
        entries[serial] = asked("x", base_serial=serial - 1, serial=serial)
    assert body_of(entries.get, request_at(entries, MAX_BASES)) == "x"
    with pytest.raises(UnreadableData, match="builds on more than 64 others"):
        body_of(entries.get, request_at(entries, MAX_BASES + 1))


@pytest.mark.parametrize(
    ("base", "entry"),
    [
        (None, asked(base_serial=0, serial=1)),
        (ResetEntry(serial=0), asked(base_serial=0, serial=1)),
        (asked(serial=1), asked(base_serial=1, serial=1)),
        (asked(serial=2), asked(base_serial=2, serial=1)),
        (asked(serial=7), asked(base_serial=0, serial=1)),
    ],
)
def test_a_base_that_is_no_earlier_request_is_refused(base: HistoryEntry | None, entry: ClientRequestEntry) -> None:
    with pytest.raises(UnreadableData, match="is no earlier request"):
        body_of(lambda _: base, entry)


def test_a_base_that_is_too_short_is_refused() -> None:
    entries: dict[int, HistoryEntry] = {0: asked("abcd", serial=0)}
    assert body_of(entries.get, asked("-", base_serial=0, prefix=1, suffix=3, serial=1)) == "a-bcd"
    with pytest.raises(UnreadableData, match="shorter than what they share"):
        body_of(entries.get, asked("-", base_serial=0, prefix=2, suffix=3, serial=1))


# ---------------------------------------------------------------- what is kept beside the body


@pytest.mark.parametrize("name", ["authorization", "X-Api-Key", "x-goog-api-key", "cookie", "x-amz-security-token"])
def test_keys_in_headers_are_blanked_out(name: str) -> None:
    for entry in (asked(headers={name: "abc"}), ClientAnswerEntry.of(0, 200, b"", headers={name: "abc"})):
        assert entry.headers == {name: "[redacted]"}


def test_headers_that_say_how_the_body_is_meant_are_kept() -> None:
    headers = {"anthropic-version": "2023-06-01", "content-type": "application/json", "session-id": "0-1"}
    assert asked(headers=headers).headers == headers


def test_a_hundred_headers_are_kept() -> None:
    assert len(asked(headers={f"a{number}": "" for number in range(100)}).headers) == 100


def test_an_exchange_cannot_be_changed() -> None:
    for entry in (asked(), ClientAnswerEntry.of(0, 200, b"")):
        with pytest.raises(AttributeError):
            entry.model = "other"  # type: ignore[misc]  # that is the mistake


def test_headers_cannot_be_changed_afterwards() -> None:
    given_headers = {"a": "b"}
    entry = asked(headers=given_headers)
    given_headers["a"] = "c"
    assert entry.headers == {"a": "b"}
    with pytest.raises(TypeError):
        entry.headers["a"] = "c"


def test_keys_in_the_path_are_blanked_out() -> None:
    entry = ClientRequestEntry("google-gemini", "/v1beta/models/m:generateContent?key=secret1&alt=sse", "m", "{}")
    assert entry.path == "/v1beta/models/m:generateContent?key=[redacted]&alt=sse"


def test_a_mark_that_comes_twice_is_kept_once() -> None:
    assert asked(marks=["a", "b", "a"]).marks == ("a", "b")
    assert asked(marks=("a",) * 9).marks == ("a",)
    assert asked(marks=tuple("12345678")).marks == tuple("12345678")
    assert asked(marks=("a" * 200,)).marks == ("a" * 200,)


# ---------------------------------------------------------------- the bytes of an answer


def test_an_answer_is_whole_unless_it_is_said_not_to_be() -> None:
    assert ClientAnswerEntry.of(0, 999, b"").is_whole


def with_body(body: str) -> str:
    entry = json.loads(entry_to_json(ClientAnswerEntry.of(0, 200, b"", serial=1, entry_id="s:1")))
    entry["payload"]["packed"] = body
    return json.dumps(entry)


@given(st.binary(max_size=500))
def test_any_bytes_are_read_back(body: bytes) -> None:
    entry = ClientAnswerEntry.of(0, 200, body, serial=1, entry_id="s:1")
    again = entry_from_json(entry_to_json(entry))
    assert isinstance(again, ClientAnswerEntry)
    assert again.body == body


def test_a_stream_is_kept_compressed() -> None:
    events = b'event: delta\ndata: {"text": "word"}\n\n' * 1000
    assert len(entry_to_json(ClientAnswerEntry.of(0, 200, events))) < len(events) / 20


@pytest.mark.parametrize(
    "body",
    [
        "",
        "AAAA",
        b64encode(b"not compressed").decode(),
        b64encode(zlib.compress(b"some words")[:-1]).decode(),
        b64encode(zlib.compress(b"some words") + b"more").decode(),
    ],
)
def test_a_body_that_zlib_did_not_write_is_refused(body: str) -> None:
    entry = entry_from_json(with_body(body))
    assert isinstance(entry, ClientAnswerEntry)
    with pytest.raises(UnreadableData, match=r"client_answer\.packed is not"):
        _ = entry.body


@pytest.mark.parametrize("body", ["*", "eAED*AAAAAAE="])
def test_a_body_that_is_no_base64_is_refused(body: str) -> None:
    with pytest.raises(UnreadableData, match="packed must be base64"):
        entry_from_json(with_body(body))


def test_an_answer_that_is_too_long_is_neither_made_nor_read() -> None:
    most = ClientAnswerEntry.of(0, 200, bytes(MAX_ANSWER), serial=1, entry_id="s:1")
    assert entry_from_json(entry_to_json(most)) == most
    assert len(most.body) == MAX_ANSWER
    with pytest.raises(InvalidValue, match="at most 67,108,864 bytes"):
        ClientAnswerEntry.of(0, 200, bytes(MAX_ANSWER + 1))
    longer = entry_from_json(with_body(b64encode(zlib.compress(bytes(2 * MAX_ANSWER), 1)).decode()))
    assert isinstance(longer, ClientAnswerEntry)
    with pytest.raises(UnreadableData, match="at most 67,108,864 bytes"):
        _ = longer.body


# ---------------------------------------------------------------- where they may stand


def advance_all(entries: Iterable[HistoryEntry]) -> DerivedState:
    return reduce(advance, entries, DerivedState())


def test_an_exchange_changes_nothing_but_the_next_serial() -> None:
    state = AgentState.create_default(session_id="s")
    state.append_model_input("Hello.")
    before = advance_all(state.entries)
    state.append(asked())
    state.append(ClientAnswerEntry.of(1, 200, b""))
    assert advance_all(state.entries) == replace(before, next_serial=3)
    assert [message.role for message in to_messages(state.render_live_context())] == ["user"]


@pytest.mark.parametrize("entry", [asked(base_serial=1), ClientAnswerEntry.of(1, 200, b"")])
def test_an_exchange_names_only_the_past(entry: HistoryEntry) -> None:
    state = AgentState.create_default(session_id="s")
    state.append(asked())
    with pytest.raises(IllegalAppend, match="it names 1, the last is 0") as raised:
        state.append(entry)
    assert raised.value.rule == "exchange_names_the_past"
