"""A client's request as its vendor gets it."""

import asyncio

from dragoman import model
from dragoman.testing import ReplayedResponse, ReplayTransport
from dragoman.web.gateway.passing import PassedAnswer, forwarded_headers, passed_request

KEY = "planted-7f3a9c-not-a-vendor-shape"
NAME = "01a1eec3-9808-7981-be6f-7297300969b3"


def test_what_a_client_says_of_itself_is_no_secret_of_ours() -> None:
    # Codex names its thread in a header and in the body, and the vendor repeats the body's field.
    asked = model("openai:gpt-5.2", api_key=KEY, transport=ReplayTransport([ReplayedResponse(chunks=(b"{}",))]))
    headers = {"thread-id": NAME, "x-codex-turn-metadata": '{"model":"gpt-5.2","sandbox":"none-at-all-of-it"}'}
    request = passed_request(asked, b'{"model":"gpt-5.2"}', headers, asked="gpt-5.2")
    assert request is not None
    _, secrets = asyncio.run(asked.client.forward(request))
    said = f'{{"prompt_cache_key":"{NAME}","sandbox":"none-at-all-of-it"}}'.encode()
    assert secrets.hide_in(said) == said
    assert KEY.encode() not in secrets.hide_in(b'{"told":"' + KEY.encode() + b'"}')


def test_the_client_s_own_credentials_go_to_no_vendor() -> None:
    own = dict.fromkeys(("authorization", "x-api-key", "x-goog-api-key", "cookie", "x-dragoman-session"), "mine")
    assert forwarded_headers({**own, "thread-id": NAME}) == {"thread-id": NAME}


def test_a_client_chooses_no_account_of_the_vendor() -> None:
    chosen = dict.fromkeys(("openai-organization", "openai-project", "x-goog-user-project"), "another")
    assert forwarded_headers({**chosen, "openai-beta": "x"}) == {"openai-beta": "x"}


def test_the_client_gets_its_own_name_of_the_model_back() -> None:
    said = (
        b'{"id":"c","object":"chat.completion%s","created":1,"model":"gpt-4.1-2025-04-14","choices":[{"index":0,%s}]}'
    )
    whole = said % (b"", b'"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"')
    event = said % (b".chunk", b'"delta":{"role":"assistant","content":"Hi"},"finish_reason":"stop"')
    stream = b"data: " + event + b"\n\ndata: [DONE]\n\n"
    for body, kind in ((whole, "application/json"), (stream, "text/event-stream")):
        for name, told in (("fast", b'"model":"fast"'), ("gpt-4.1", b'"model":"gpt-4.1-2025-04-14"')):
            answer = ReplayedResponse(chunks=(body[:70], body[70:]), headers={"content-type": kind})
            asked = model("openai-chat:gpt-4.1", api_key=KEY, transport=ReplayTransport([answer]))
            request = passed_request(asked, f'{{"model":"{name}"}}'.encode(), {}, asked=name)
            assert request is not None
            assert request.body == b'{"model":"gpt-4.1"}'
            passed = PassedAnswer(asked, request, asked=name, is_stream=body is stream)
            assert asyncio.run(_read(passed)) == body.replace(b'"model":"gpt-4.1-2025-04-14"', told)


async def _read(answer: PassedAnswer) -> bytes:
    assert await answer.open() is None
    return b"".join([piece async for piece in answer.pieces()])
