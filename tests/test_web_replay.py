"""Answers from the record, and responses by their ids: over every store."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from dragoman import Message
from dragoman.errors import ErrorCode, ModelError
from dragoman.history import ClientRequestEntry
from dragoman.store import SessionStore, open_session
from dragoman.web.gateway.asked import Asked
from dragoman.web.gateway.canonical import body_mark
from dragoman.web.gateway.differences import first_difference, shared_length
from dragoman.web.gateway.recorder import Recorder
from dragoman.web.gateway.replay import Replay
from dragoman.web.gateway.responses import delete_response, find_response, find_stream, response_mark
from tests.web_cases import answer, asked, failed, given, of_body, require_sound, store_opener

KINDS = ("memory", "sqlite", "postgres")
Test = Callable[[SessionStore], Awaitable[None]]
Run = Callable[[Test], None]
A, B, X = Message.user("A"), Message.user("B"), Message.assistant("X")


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Run:
    """Return what runs a test over a store of the kind that the test is run for."""
    open_store = store_opener(request)

    def run(test: Test) -> None:
        async def whole() -> None:
            store = open_store()
            try:
                await test(store)
                await require_sound(store)
            finally:
                await store.close()

        asyncio.run(whole())

    return run


over_stores = pytest.mark.parametrize("run", KINDS, indirect=True)
in_memory = pytest.mark.parametrize("run", ["memory"], indirect=True)


async def record(store: SessionStore, request: Asked, told: str = "X", **fields: Any) -> None:
    turn = await Recorder(store).begin(request)
    await turn.end(given(answer(told), **fields))
    assert not turn.fault


# ---------------------------------------------------------------- replays


@over_stores
def test_a_replay_is_what_was_given_to_the_byte(run: Run) -> None:
    async def test(store: SessionStore) -> None:
        body = b"event: x\r\ndata: \xf0\x9f\x98\x80\n\n"
        await record(store, asked(A), body=body, status=201)
        found = await Replay(store).find(asked(A))
        assert (found.status, found.body, found.is_recorded) == (201, body, True)
        assert found.headers == {"content-type": "text/event-stream"}

    run(test)


@over_stores
def test_the_nth_time_gives_the_nth_answer_and_then_the_last_again(run: Run) -> None:
    async def test(store: SessionStore) -> None:
        recorder = Recorder(store)
        turn = await recorder.begin(asked(A))
        await turn.end(failed())
        for told in ("X", "Y", "X"):
            await record(store, asked(A), told)
        replay = Replay(store)
        found = [await replay.find(asked(A)) for _ in range(6)]
        assert [(each.status, each.body) for each in found] == [
            *((529, b"{}"), (200, b"X"), (200, b"Y"), (200, b"X"), (200, b"X"), (200, b"X"))
        ]

    run(test)


@in_memory
def test_an_answer_that_broke_off_is_replayed_only_if_there_is_no_other(run: Run) -> None:
    async def test(store: SessionStore) -> None:
        turn = await Recorder(store).begin(asked(A))
        await turn.end(failed(ErrorCode.CANCELLED, answer("Hel")))
        assert (await Replay(store).find(asked(A))).body == b"{}"
        await record(store, asked(A))
        assert (await Replay(store).find(asked(A))).body == b"X"

    run(test)


CLAUDE_BODY: dict[str, Any] = {
    "model": "m",
    "max_tokens": 9,
    "metadata": {"user_id": '{"session_id": "a"}'},
    "system": [{"type": "text", "text": "x-anthropic-billing-header: 1"}, {"type": "text", "text": "Be brief."}],
    "messages": [{"role": "user", "content": "Hi"}],
}
CODEX_BODY: dict[str, Any] = {
    "model": "m",
    "prompt_cache_key": "a",
    "client_metadata": {"thread": "a"},
    "input": [{"type": "message", "role": "user", "id": "msg_a", "content": [{"type": "input_text", "text": "Hi"}]}],
}
CHAT_BODY: dict[str, Any] = {
    "model": "m",
    "user": "a",
    "safety_identifier": "a",
    "messages": [{"role": "user", "content": "Hi"}],
}


def marked(body: dict[str, Any], api: str, **fields: Any) -> str:
    return body_mark(of_body(json.dumps(body).encode(), api=api, **fields))


@pytest.mark.parametrize(
    ("api", "body"),
    [("anthropic-messages", CLAUDE_BODY), ("openai-responses", CODEX_BODY), ("openai-chat", CHAT_BODY)],
)
def test_names_of_conversations_and_users_are_no_difference(api: str, body: dict[str, Any]) -> None:
    text = json.dumps(body).replace('\\"a\\"', '\\"b\\"').replace('"a"', '"b"').replace("msg_a", "msg_b")
    other = json.loads(text.replace("header: 1", "header: 2"))
    assert other != body
    assert marked(other, api, conversation="b") == marked(dict(reversed(body.items())), api, conversation="a")
    assert marked({**body, "temperature": 1}, api) != marked(body, api)
    assert marked(body, api, is_stream=False) != marked(body, api)


def test_a_reference_to_an_item_keeps_its_id() -> None:
    one = {"model": "m", "input": [{"type": "item_reference", "id": "a"}]}
    other = {"model": "m", "input": [{"type": "item_reference", "id": "b"}]}
    assert marked(one, "openai-responses") != marked(other, "openai-responses")


@over_stores
def test_a_request_that_was_never_made_is_told_the_nearest_and_the_first_difference(run: Run) -> None:
    async def test(store: SessionStore) -> None:
        recorder = Recorder(store)
        for messages in ((A,), (A, X, B), (Message.user("Else."),)):
            turn = await recorder.begin(asked(*messages))
            await turn.end(given(answer("X")))
        found = await Replay(store).find(asked(A, X, Message.user("B, but now")))
        assert (found.status, found.is_recorded) == (404, False)
        assert found.nearest is not None
        difference = found.nearest.difference
        assert difference.path == "messages[2].content[0].text"
        assert (difference.recorded, difference.asked) == ("'B'", "'B, but now'")
        entry = (await store.load(found.nearest.session_id))[found.nearest.serial]
        assert entry.kind == "client_request"
        error = json.loads(found.body)
        assert error["type"] == "error"
        assert "messages[2].content[0].text" in error["error"]["message"]

    run(test)


@in_memory
def test_the_nearest_is_for_the_same_model_if_there_is_one(run: Run) -> None:
    async def test(store: SessionStore) -> None:
        await record(store, replace(asked(Message.user("Something else, far away.")), model="mine"))
        await record(store, replace(asked(A, X, B), model="other"))
        found = await Replay(store).find(replace(asked(A, X, Message.user("C")), model="mine"))
        assert found.nearest is not None
        entry = (await store.load(found.nearest.session_id))[found.nearest.serial]
        assert isinstance(entry, ClientRequestEntry)
        assert entry.model == "mine"

    run(test)


@in_memory
def test_of_requests_that_differ_in_one_value_the_nearest_has_the_most_like_text(run: Run) -> None:
    async def test(store: SessionStore) -> None:
        for text in ("rep EMPTY False", "rep MID:3 False", "something else"):
            await record(store, asked(Message.user(text)))
        found = await Replay(store).find(asked(Message.user("rep EMPTX False")))
        assert found.nearest is not None
        assert found.nearest.difference.recorded == "'rep EMPTY False'"

    run(test)


@pytest.mark.parametrize(
    ("one", "other", "length"),
    [
        (b"", b"", 0),
        (b"abc", b"abc", 3),
        (b"abXcd", b"abYYcd", 4),
        (b"aaa", b"aaaa", 3),
        (b"a", b"b", 0),
        (b"xa", b"ya", 1),
    ],
)
def test_what_two_texts_share_at_their_ends_counts_once(one: bytes, other: bytes, length: int) -> None:
    assert shared_length(one, other) == shared_length(other, one) == length


@in_memory
def test_a_record_without_requests_of_an_api_has_no_nearest(run: Run) -> None:
    async def test(store: SessionStore) -> None:
        await record(store, asked(A))
        found = await Replay(store).find(asked(A, api="openai-chat"))
        assert (found.status, found.nearest) == (404, None)
        unread = Asked(api="openai-chat", path="/", model="m", body=b"{", headers={}, read=None)
        assert (await Replay(store).find(unread)).nearest is None

    run(test)


@in_memory
def test_the_same_body_to_another_model_is_another_request(run: Run) -> None:
    async def test(store: SessionStore) -> None:
        request = asked(A, api="gemini")
        await record(store, request)
        other = asked(A, api="gemini", path="/v1beta/models/n:generateContent", is_stream=False)
        found = await Replay(store).find(other)
        assert found.nearest is not None
        assert found.nearest.difference.path == "the address"

    run(test)


@pytest.mark.parametrize(
    ("recorded", "now", "path", "pieces"),
    [
        ({"a": 1}, {"a": 2}, "a", ("1", "2")),
        ({"a": [1, {"b": "x"}]}, {"a": [1, {"b": "y"}]}, "a[1].b", ("'x'", "'y'")),
        ({"a": [1]}, {"a": [1, 2]}, "a[1]", ("nothing", "2")),
        ({"a": 1, "b": 2}, {"a": 1}, "b", ("2", "nothing")),
        ({"a": {"b": 1}}, {"a": [1]}, "a", ('{"b":1}', "[1]")),
        ({"z": 1, "a": 1}, {"z": 2, "a": 2}, "z", ("1", "2")),
        (1, 2, "the body", ("1", "2")),
        ({"a": True}, {"a": 1}, "a", ("true", "1")),
        ({"a": "ab"}, {"a": "abc"}, "a", ("'ab'", "'abc'")),
    ],
)
def test_the_first_difference_has_its_path(recorded: Any, now: Any, path: str, pieces: tuple[str, str]) -> None:
    found = first_difference(recorded, now)
    assert found is not None
    assert (found.path, (found.recorded, found.asked)) == (path, pieces)


def test_equal_values_have_no_difference() -> None:
    assert first_difference({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}) is None


def test_long_texts_are_shown_where_they_part() -> None:
    found = first_difference({"a": "x" * 500 + "y" * 500}, {"a": "x" * 500 + "z" * 500})
    assert found is not None
    assert found.recorded == f"…'{'x' * 20}{'y' * 60}'…"
    assert len(str(found)) < 300


# ---------------------------------------------------------------- responses

WHOLE = b'{"id": "resp_1", "object": "response", "output": []}'
STREAM = (
    b'event: response.created\ndata: {"type":"response.created","response":{"id":"resp_2","output":[]}}\n\n'
    b'event: response.completed\ndata: {"type":"response.completed","response":{"id":"resp_2", "output":[1]}}\n\n'
)


async def respond(store: SessionStore, response_id: str, body: bytes, key_name: str = "me") -> None:
    request = asked(Message.user(response_id), api="openai-responses", key_name=key_name)
    await record(store, request, body=body, marks=(response_mark(response_id, key_name),))


@over_stores
def test_a_response_is_found_by_its_id_whole_or_streamed(run: Run) -> None:
    async def test(store: SessionStore) -> None:
        await respond(store, "resp_1", WHOLE)
        await respond(store, "resp_2", STREAM)
        assert await find_response(store, "resp_1", "me") == WHOLE
        assert await find_response(store, "resp_2", "me") == b'{"id":"resp_2", "output":[1]}'

    run(test)


@in_memory
def test_a_response_is_streamed_again_where_it_was_a_stream(run: Run) -> None:
    async def test(store: SessionStore) -> None:
        await respond(store, "resp_1", WHOLE)
        await respond(store, "resp_2", STREAM)
        assert await find_stream(store, "resp_2", "me") == STREAM
        assert await find_stream(store, "resp_2", "you") is None
        with pytest.raises(ModelError, match="was not a stream"):
            await find_stream(store, "resp_1", "me")

    run(test)


@over_stores
def test_another_keys_response_is_not_found_and_not_deleted(run: Run) -> None:
    async def test(store: SessionStore) -> None:
        await respond(store, "resp_1", WHOLE)
        for key_name in ("", "other"):
            assert await find_response(store, "resp_1", key_name) is None
            assert await delete_response(store, "resp_1", key_name) is None
        assert await find_response(store, "resp_1", "me") == WHOLE

    run(test)


@over_stores
def test_a_deleted_response_is_not_found(run: Run) -> None:
    async def test(store: SessionStore) -> None:
        await respond(store, "resp_1", WHOLE)
        told = await delete_response(store, "resp_1", "me")
        assert told is not None
        assert json.loads(told) == {"id": "resp_1", "object": "response", "deleted": True}
        assert await find_response(store, "resp_1", "me") is None
        assert await delete_response(store, "resp_1", "me") is None

    run(test)


@over_stores
def test_a_response_of_a_session_that_a_run_has_is_deleted_too(run: Run) -> None:
    async def test(store: SessionStore) -> None:
        await respond(store, "resp_1", WHOLE)
        (info,) = (await store.list()).sessions
        session = await open_session(store, info.session_id)
        async with session.hold():
            assert await delete_response(store, "resp_1", "me") is not None
        assert await find_response(store, "resp_1", "me") is None

    run(test)


@in_memory
@pytest.mark.parametrize("response_id", ["", "no", "a" * 500, "x\ny", "resp_1:me"])
def test_an_id_that_no_response_has_is_not_found(run: Run, response_id: str) -> None:
    async def test(store: SessionStore) -> None:
        await respond(store, "resp_1", WHOLE)
        assert await find_response(store, response_id, "me") is None
        assert await delete_response(store, response_id, "me") is None

    run(test)


@in_memory
def test_a_conversation_goes_on_after_a_response_was_deleted(run: Run) -> None:
    async def test(store: SessionStore) -> None:
        await respond(store, "resp_1", WHOLE)
        await delete_response(store, "resp_1", "me")
        messages = (Message.user("resp_1"), X, B)
        await record(store, asked(*messages, api="openai-responses", key_name="me"), "Y")
        (info,) = (await store.list()).sessions
        session = await open_session(store, info.session_id)
        assert [message.text for message in session.messages] == ["resp_1", "X", "B", "Y"]

    run(test)
