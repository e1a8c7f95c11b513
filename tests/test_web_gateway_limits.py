"""How much a key may use, and what it reaches beside the fronts."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dragoman.errors import ModelError
from dragoman.usage import TokenUsage
from dragoman.web.gateway.keys import DailyUse, Keys, ServeKey
from tests.gateway_keys import ALICE, BOB, FIELDS, KEYS, limited, status, told
from tests.gateway_stage import FRONTS, PROVIDERS, Script, endless, line, on_a_loop, silent, staged, until, written

each_front = pytest.mark.parametrize("api", FRONTS)


@each_front
@on_a_loop
async def test_a_key_that_has_used_its_requests_is_refused_until_tomorrow(api: str) -> None:
    async with staged(keys=limited(requests=2)) as stage:
        request = written(api, None, FIELDS["bearer"])
        assert [await status(stage.port, request) for _ in range(2)] == [200, 200]
        answer = await told(stage.port, request)
        assert answer.status == 429
        assert "2 requests" in answer.error["message"]
        assert 0 < int(answer.headers["retry-after"]) <= 86_400
        assert stage.upstream.seen == 2


@pytest.mark.parametrize("way", ["passed", "translated"])
@pytest.mark.parametrize(("limits", "said"), [({"tokens": 10}, "10 tokens"), ({"dollars": 0.00004}, "4e-05 dollars")])
@on_a_loop
async def test_a_key_that_has_used_its_tokens_or_its_money_is_refused(
    way: str, limits: dict[str, Any], said: str
) -> None:
    provider = "openai-chat" if way == "passed" else "openai"
    async with staged(f"*={provider}:gpt-4.1", keys=limited(**limits)) as stage:
        request = written("openai-chat", None, FIELDS["bearer"])  # 3 tokens in, 2 out, each time
        for _ in range(2):
            async with line(stage.port) as connection:
                await connection.send(request)
                await connection.reader.readuntil(b"[DONE]")
        answer = await told(stage.port, request)
        assert answer.status == 429
        assert said in answer.error["message"]


@each_front
@pytest.mark.parametrize("way", ["passed", "translated"])
@pytest.mark.parametrize("script", [silent, endless], ids=["before", "inside"])
@pytest.mark.parametrize("limits", [{"tokens": 1}, {"dollars": 1e-9}], ids=["tokens", "dollars"])
@on_a_loop
async def test_a_client_that_leaves_before_the_usage_has_used_its_tokens_and_its_money(
    api: str, way: str, script: Script, limits: dict[str, Any]
) -> None:
    other = FRONTS[(FRONTS.index(api) + 1) % len(FRONTS)]
    provider = PROVIDERS[api if way == "passed" else other]
    model = {"anthropic": "claude-sonnet-4-5", "google": "gemini-2.5-pro"}.get(provider, "gpt-4.1")
    async with staged(f"*={provider}:{model}", keys=limited(**limits), script=script) as stage:
        async with line(stage.port) as connection:
            await connection.send(written(api, None, FIELDS["bearer"]))
            await stage.upstream.until(lambda upstream: upstream.open == 1)
            if script is endless:
                await connection.reader.readuntil(b"Hello.")
        await until(lambda: not stage.gateway.metrics.under_way)
        assert await status(stage.port, written(api, None, FIELDS["bearer"])) == 429


@pytest.mark.parametrize("path", ["/v1/responses/resp_1/cancel", "/v1/Responses/resp_1/cancel", "/v1/responses/resp_1"])
@on_a_loop
async def test_what_another_key_was_given_is_reached_by_no_spelling(path: str) -> None:
    async with staged(keys=KEYS, passes_others=True) as stage:
        assert await status(stage.port, written("openai-responses", None, FIELDS["bearer"])) == 200
        seen = stage.upstream.seen
        for spelled in (
            path,
            path.replace("/re", "/%72e"),
            path.replace("/R", "/x/../R"),
            path.replace("/v1/", "/v1//"),
        ):
            request = f"POST {spelled} HTTP/1.1\r\nHost: 127.0.0.1\r\nx-api-key: {BOB}\r\nContent-Length: 0\r\n\r\n"
            assert (spelled, await status(stage.port, request.encode())) == (spelled, 404)
        assert stage.upstream.seen == seen


@pytest.mark.parametrize("path", ["/v1/%63hat/completions", "/v1/./chat/completions", "/v1/x/..%2fadmin", "/v1/a;b"])
@on_a_loop
async def test_a_path_of_several_spellings_is_not_passed_on(path: str) -> None:
    async with staged(passes_others=True) as stage:
        request = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n"
        assert (await status(stage.port, request.encode()), stage.upstream.seen) == (404, 0)


@on_a_loop
async def test_limits_hold_for_what_is_passed_on_without_a_front() -> None:
    async with staged(keys=limited(requests=1), passes_others=True) as stage:
        request = written("openai-chat", None, FIELDS["bearer"]).replace(b"/chat/completions", b"/embeddings")
        assert [await status(stage.port, request) for _ in range(2)] == [200, 429]


@on_a_loop
async def test_the_limits_of_one_key_are_not_those_of_another() -> None:
    keys = Keys([ServeKey.of("alice", ALICE, requests=0), ServeKey.of("bob", BOB)])
    async with staged(keys=keys) as stage:
        assert await status(stage.port, written("openai-chat", None, FIELDS["bearer"])) == 429
        assert await status(stage.port, written("openai-chat", None, f"x-api-key: {BOB}")) == 200


def test_a_day_s_use_begins_anew_with_the_day() -> None:
    now = datetime(2026, 5, 1, 23, 59, 30, tzinfo=UTC)
    use = DailyUse(lambda: now)
    key = ServeKey.of("alice", ALICE, requests=1, tokens=5)
    use.admit(key)
    use.add(key, TokenUsage(input_tokens=4, output_tokens=4))
    with pytest.raises(ModelError) as raised:
        use.admit(key)
    assert raised.value.retry_after == 30
    now += timedelta(seconds=30)
    use.admit(key)
