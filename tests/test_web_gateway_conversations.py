"""Conversations over several requests to the gateway: other models, other keys, other clients in the middle."""

import asyncio
import json
from base64 import b64encode
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from dragoman.history import ModelOutputEntry
from dragoman.models import Model, model
from dragoman.models.local import LocalModel, read_local_name
from dragoman.models.recorded import FIRST_PIECE_KEY
from dragoman.store import MemoryStore, SQLiteStore, open_session
from dragoman.web.gateway.keys import Keys, ServeKey
from tests.gateway_stage import (
    FRONTS,
    PROVIDERS,
    Exchange,
    Stage,
    Told,
    body_of,
    on_a_loop,
    path_of,
    staged,
    told_by,
    whole,
)

CHAT, RESPONSES, MESSAGES = "openai-chat", "openai-responses", "anthropic-messages"
ALICE, BOB = "the-key-of-alice", "the-key-of-bob"
OVERLOADED = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'


async def ask_at(stage: Stage, place: str, api: str = CHAT, *, key: str = "", **more: Any) -> Told:
    """Ask with a path before the front's own."""
    headers = {"x-api-key": key} if key else {}
    body = BytesIO(body_of(api, stream=False, **more))
    async with stage.client.post(stage.url + place + path_of(api, stream=False), data=body, headers=headers) as it:
        return await told_by(it)


def streamed_id(told: Told) -> str:
    """The id of a response in a stream."""
    line = next(line for line in told.body.splitlines() if line.startswith(b"data: "))
    return str(json.loads(line[6:])["response"]["id"])


# ---------------------------------------------------------------- joined sessions


@on_a_loop
async def test_a_key_does_not_read_the_session_of_another_one() -> None:
    keys = Keys([ServeKey.of("alice", ALICE), ServeKey.of("bob", BOB)])
    async with staged(f"*={PROVIDERS[MESSAGES]}:m", keys=keys) as stage:
        told = await ask_at(stage, "/session/work", key=ALICE, said="The secret of Alice.")
        assert (told.status, told.headers["x-dragoman-session"]) == (200, "work")
        refused = await ask_at(stage, "/session/work", key=BOB, said="What did she say?")
        assert refused.status == 403
        assert "another key" in refused.error["message"]
        assert stage.upstream.seen == 1
        assert (await ask_at(stage, "/session/work", key=ALICE, said="Go on.")).status == 200
        assert b"The secret of Alice." in stage.upstream.bodies[-1]


@on_a_loop
async def test_keys_that_begin_a_session_at_once_do_not_share_it(tmp_path: Path) -> None:
    keys = Keys([ServeKey.of("alice", ALICE), ServeKey.of("bob", BOB)])
    async with (
        SQLiteStore(tmp_path / "s.db") as store,
        staged(f"*={PROVIDERS[MESSAGES]}:m", keys=keys, store=store) as stage,
    ):
        asking = [ask_at(stage, "/session/work", key=key, said=key) for key in (ALICE, BOB) * 3]
        answers = await asyncio.gather(*asking)
        assert {told.status for told in answers} == {200, 403}
        assert {told.status for told in answers[::2]} != {told.status for told in answers[1::2]}
        assert all(told.headers.get("x-dragoman-record") is None for told in answers)


@on_a_loop
async def test_a_store_that_fails_breaks_no_answer_in_a_joined_session() -> None:
    store = MemoryStore()
    async with staged(keys=Keys([ServeKey.of("alice", ALICE)]), store=store) as stage:
        await store.close()
        told = await ask_at(stage, "/session/work", key=ALICE)
        assert (told.status, told.headers["x-dragoman-record"]) == (200, "failed")


@on_a_loop
async def test_clients_that_begin_a_session_at_once_are_all_recorded(tmp_path: Path) -> None:
    async with (
        SQLiteStore(tmp_path / "s.db") as store,
        staged(f"*={PROVIDERS[MESSAGES]}:m", store=store) as stage,
    ):
        asking = [ask_at(stage, "/session/work", said=f"I am {number}.") for number in range(8)]
        answers = await asyncio.gather(*asking)
        assert [told.headers.get("x-dragoman-record") for told in answers] == [None] * 8
        assert len({told.headers["x-dragoman-session"] for told in answers} - {"work"}) >= 1


@pytest.mark.parametrize("name", ["a" * 256, "a%00b", "%40", "-"])
@on_a_loop
async def test_a_session_that_cannot_be_called_so_is_refused(name: str) -> None:
    async with staged() as stage:
        told = await ask_at(stage, f"/session/{name}")
        assert (told.status, stage.upstream.seen) == (400, 0)


@on_a_loop
async def test_a_session_of_any_name_is_told_so_that_it_can_be_joined_by_that() -> None:
    async with staged(f"*={PROVIDERS[MESSAGES]}:m") as stage:
        told = (await ask_at(stage, "/session/%C3%A9t%C3%A9%20100%25")).headers["x-dragoman-session"]
        assert told == "%C3%A9t%C3%A9%20100%25"
        body = BytesIO(body_of(CHAT, stream=False))
        async with stage.client.post(stage.url + path_of(CHAT), data=body, headers={"x-dragoman-session": told}) as it:
            assert it.headers["x-dragoman-session"] == told
        assert len(json.loads(stage.upstream.bodies[-1])["messages"]) == 3


@on_a_loop
async def test_a_gateway_that_only_forwards_says_that_no_session_can_be_joined() -> None:
    store = MemoryStore()
    async with staged(store=store, translates=False) as stage:
        told = await ask_at(stage, "/session/work")
        assert (told.status, stage.upstream.seen) == (400, 0)
        assert "none can be joined" in told.error["message"]
        assert not (await store.list()).sessions


# ---------------------------------------------------------------- other models


@on_a_loop
async def test_a_vendor_is_asked_to_continue_only_its_own_responses() -> None:
    routes = (f"*={PROVIDERS[MESSAGES]}:m", f"own={PROVIDERS[RESPONSES]}:own")
    async with staged(*routes) as stage:
        first = streamed_id(await stage.ask(RESPONSES, said="First."))
        told = await stage.ask(RESPONSES, model="own", said="Second.", previous_response_id=first)
        assert told.status == 200
        sent = json.loads(stage.upstream.bodies[-1])
        assert "previous_response_id" not in sent
        assert all(word in stage.upstream.bodies[-1] for word in (b"First.", b"Hello.", b"Second."))
        # That answer was translated, so its id is the gateway's, too.
        told = await stage.ask(RESPONSES, model="own", said="Third.", previous_response_id=streamed_id(told))
        assert "previous_response_id" not in json.loads(stage.upstream.bodies[-1])
        assert b"First." in stage.upstream.bodies[-1]
        # A response of the vendor's own is continued by its id, and the bytes pass.
        own = streamed_id(await stage.ask(RESPONSES, model="own", said="Fourth."))
        assert own == "resp_1"
        body = body_of(RESPONSES, model="own", said="Fifth.", previous_response_id=own)
        await stage.ask(RESPONSES, model="own", said="Fifth.", previous_response_id=own)
        assert stage.upstream.bodies[-1] == body
        # Another one is told what was said.
        await stage.ask(RESPONSES, said="Sixth.", previous_response_id=own)
        assert b"Fourth." in stage.upstream.bodies[-1]


@on_a_loop
async def test_a_stream_that_begins_with_an_error_makes_room_for_the_next_model() -> None:
    async def script(exchange: Exchange) -> None:
        if b'"first"' in exchange.body:
            await exchange.send(OVERLOADED)
        else:
            await whole(exchange)

    provider = PROVIDERS[MESSAGES]
    async with staged(f"m={provider}:first", f"m={provider}:second", script=script) as stage:
        told = await stage.ask(MESSAGES)
        assert (told.status, told.headers["x-dragoman-model"]) == (200, f"{provider}:second")
        assert b"message_stop" in told.body
        assert b"Overloaded" not in told.body
    async with staged(f"m={provider}:first", script=script) as stage:
        told = await stage.ask(MESSAGES)
        assert (told.status, told.body) == (200, OVERLOADED)


# ---------------------------------------------------------------- responses of other keys


async def continued(stage: Stage, key: str, response_id: str, *, model: str = "m") -> Told:
    """Continue a response, with a key."""
    return await ask_at(stage, "", RESPONSES, key=key, model=model, said="Go on.", previous_response_id=response_id)


@on_a_loop
async def test_a_key_does_not_continue_the_response_of_another_one() -> None:
    keys = Keys([ServeKey.of("alice", ALICE), ServeKey.of("bob", BOB)])
    routes = (f"m={PROVIDERS[RESPONSES]}:m", f"other={PROVIDERS[MESSAGES]}:m")
    async with staged(*routes, keys=keys, passes_others=True) as stage:
        headers, body = {"x-api-key": ALICE}, body_of(RESPONSES, said="A secret.")
        async with stage.client.post(stage.url + path_of(RESPONSES), data=BytesIO(body), headers=headers) as told:
            assert b'"resp_1"' in await told.read()
        for model in ("m", "other"):
            refused = await continued(stage, BOB, "resp_1", model=model)
            assert (refused.status, stage.upstream.seen) == (404, 1)
            assert "no response 'resp_1'" in refused.error["message"]
        parts, headers = f"{stage.url}/v1/responses/resp_1/input_items", {"x-api-key": BOB}
        async with stage.client.get(parts, headers=headers) as told:
            assert (told.status, stage.upstream.seen) == (404, 1)
        await continued(stage, ALICE, "resp_1")
        assert json.loads(stage.upstream.bodies[-1])["previous_response_id"] == "resp_1"
        await continued(stage, BOB, "resp_of_the_vendor")  # the record does not know it
        assert json.loads(stage.upstream.bodies[-1])["previous_response_id"] == "resp_of_the_vendor"


@on_a_loop
async def test_a_response_that_broke_off_is_continued_by_its_own_key_alone() -> None:
    async def cut(exchange: Exchange) -> None:
        exchange.closes = True
        await exchange.send(exchange.answer.opening + exchange.answer.piece)

    keys = Keys([ServeKey.of("alice", ALICE), ServeKey.of("bob", BOB)])
    async with staged(keys=keys, script=cut) as stage:
        body, headers = BytesIO(body_of(RESPONSES)), {"x-api-key": ALICE}
        async with stage.client.post(stage.url + path_of(RESPONSES), data=body, headers=headers) as told:
            assert b"response.failed" in await told.read()
        assert (await continued(stage, BOB, "resp_1")).status == 404
        assert stage.upstream.seen == 1
        await continued(stage, ALICE, "resp_1")
        assert stage.upstream.seen == 2


@on_a_loop
async def test_a_response_that_was_deleted_is_not_continued_at_its_vendor() -> None:
    async with staged() as stage:
        await stage.ask(RESPONSES)
        async with stage.client.delete(f"{stage.url}/v1/responses/resp_1") as told:
            assert told.status == 200
        assert (await continued(stage, "", "resp_1")).status == 404
        assert stage.upstream.seen == 1


# ---------------------------------------------------------------- chats of SDKs


@pytest.mark.parametrize("api", FRONTS[:-1])  # what Gemini itself says passes as it is
@on_a_loop
async def test_a_chat_of_the_gemini_sdk_remembers_what_was_said(api: str) -> None:
    genai = pytest.importorskip("google.genai")

    def talk(url: str) -> None:
        with closing(genai.Client(api_key="none", http_options={"base_url": url})) as client:
            chat = client.chats.create(model="m")
            for said in ("First.", "Second.", "Third."):
                assert list(chat.send_message_stream(said))

    async with staged(f"*={PROVIDERS[api]}:m") as stage:
        await asyncio.to_thread(talk, stage.url)
        assert all(word in stage.upstream.bodies[-1] for word in (b"First.", b"Second.", b"Third."))


# ---------------------------------------------------------------- answers that are none of the kind that was asked for

WHOLE_CHAT = (
    b'{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":'
    b'{"role":"assistant","content":"Hello"},"finish_reason":"stop"}]}'
)


@on_a_loop
async def test_a_whole_answer_where_a_stream_was_asked_for_is_an_error() -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(WHOLE_CHAT, kind="application/json")

    async with staged(script=answer) as stage:
        told = await stage.ask(CHAT)
        assert (told.status, told.error["type"]) == (502, "server_error")
        told = await stage.ask(CHAT, stream=False)
        assert (told.status, told.body) == (200, WHOLE_CHAT)


@on_a_loop
async def test_the_next_model_is_asked_where_the_first_sends_a_page() -> None:
    async def answer(exchange: Exchange) -> None:
        if exchange.request.path.endswith("/messages"):
            await exchange.send(b"<html>maintenance</html>", kind="text/html")
        else:
            await exchange.send(WHOLE_CHAT, kind="application/json")

    async with staged(f"*={PROVIDERS[MESSAGES]}:a", f"*={PROVIDERS[CHAT]}:b", script=answer) as stage:
        told = await stage.ask(CHAT, stream=False)
        assert (told.status, stage.upstream.seen) == (200, 2)


@on_a_loop
async def test_what_only_another_vendor_keeps_is_refused_by_its_name() -> None:
    async with staged(f"*={PROVIDERS[MESSAGES]}:a") as stage:
        told = await stage.ask(RESPONSES, stream=False, conversation="conv_1")
        assert (told.status, "'conversation'" in told.error["message"]) == (400, True)
        assert stage.upstream.seen == 0


@on_a_loop
async def test_a_stored_response_is_told_as_it_is_asked_for() -> None:
    async with staged() as stage:
        sent = (await stage.ask(RESPONSES)).body
        for query, status, kind, body in (
            ("", 200, "application/json", None),
            ("?stream=false", 200, "application/json", None),
            ("?stream=true", 200, "text/event-stream", sent),
            ("?stream=true&starting_after=2", 400, "application/json", None),
        ):
            async with stage.client.get(f"{stage.url}/v1/responses/resp_1{query}") as told:
                assert (query, told.status, told.content_type) == (query, status, kind)
                assert body in (None, await told.read())


@pytest.mark.parametrize("replays", [False, True], ids=["", "replayed"])
@on_a_loop
async def test_a_404_that_is_about_no_model_names_none(replays: bool) -> None:
    async with staged("known=openai:m", replays=replays) as stage:
        missing = [("GET", "/v1/responses/resp_9"), ("DELETE", "/v1/responses/resp_9"), ("GET", "/v1/chat/completions")]
        missing += [
            ("POST", "/v1/embeddings"),
            *([("POST", path_of(RESPONSES)), ("POST", path_of(CHAT))] if replays else []),
        ]
        for method, path in missing:
            body = BytesIO(body_of(RESPONSES if "resp" in path else CHAT)) if method == "POST" else None
            async with stage.client.request(method, stage.url + path, data=body) as told:
                assert (path, told.status, (await told.json())["error"]["code"]) == (path, 404, None)
        if not replays:
            assert (await stage.ask(CHAT)).error["code"] == "model_not_found"


@on_a_loop
async def test_a_replay_opens_no_model() -> None:
    def open_none(name: str) -> Model:
        raise AssertionError(f"{name} is opened")

    async with staged(open_model=open_none, replays=True) as stage:
        url = f"{stage.url}/v1/messages/count_tokens"
        async with stage.client.post(url, data=BytesIO(body_of(MESSAGES))) as told:
            assert (told.status, (await told.json())["input_tokens"] > 0) == (200, True)


# ---------------------------------------------------------------- pictures

PICTURE = b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 40).decode()
_IN_BASE64 = {"type": "base64", "media_type": "image/png", "data": PICTURE}
SHOWN: dict[str, list[dict[str, Any]]] = {
    MESSAGES: [{"role": "user", "content": [{"type": "image", "source": _IN_BASE64}]}],
    CHAT: [
        {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}}],
        }
    ],
}


@pytest.mark.parametrize("place", ["", "/session/work"], ids=["own", "joined"])
@pytest.mark.parametrize("fold", [None, 10_000], ids=["whole", "folded"])
@on_a_loop
async def test_a_picture_that_the_model_cannot_read_becomes_a_line(place: str, fold: int | None) -> None:
    plain = [{"role": "user", "content": "Go on."}]
    async with staged(f"*={PROVIDERS[CHAT]}:gpt-3.5-turbo", fold=fold) as stage:
        for messages in (SHOWN[MESSAGES], [*SHOWN[MESSAGES], *plain], plain if place else [*SHOWN[MESSAGES], *plain]):
            told = await ask_at(stage, place, MESSAGES, messages=messages)
            assert told.status == 200
            assert b"image/png, 48 bytes: not shown" in stage.upstream.bodies[-1]
            assert PICTURE.encode() not in stage.upstream.bodies[-1]


@on_a_loop
async def test_a_picture_for_a_model_on_this_machine_becomes_a_line_on_its_own_api_too() -> None:
    here: list[LocalModel] = []

    def open_local(_: str) -> Model:
        here.append(
            LocalModel(model("llamacpp:m", base_url=stage.upstream.url + "/v1"), read_local_name("local:smollm2"))
        )
        return here[-1]

    async def answer(exchange: Exchange) -> None:
        await exchange.send(WHOLE_CHAT, kind="application/json")

    async with staged("*=local:smollm2", open_model=open_local, script=answer) as stage:
        told = await ask_at(stage, "", CHAT, messages=SHOWN[CHAT])
        assert told.status == 200
        assert b"not shown" in stage.upstream.bodies[-1]


# ---------------------------------------------------------------- time


@pytest.mark.parametrize("api", [MESSAGES, CHAT])  # translated, passed
@on_a_loop
async def test_the_record_says_how_long_the_first_piece_took(api: str) -> None:
    store = MemoryStore()
    async with staged(f"*={PROVIDERS[api]}:m", store=store) as stage:
        told = await stage.ask(CHAT)
    session = await open_session(store, told.headers["x-dragoman-session"])
    (output,) = (entry for entry in session.entries if isinstance(entry, ModelOutputEntry))
    assert isinstance(output.metadata[FIRST_PIECE_KEY], float)
