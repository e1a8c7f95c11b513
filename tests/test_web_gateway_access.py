"""Who may use a gateway, how much, and what is told of it: keys, hosts, pages, limits, the log and the metrics."""

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dragoman.errors import InvalidValue, UnreadableData
from dragoman.models import Model
from dragoman.store import MemoryStore, SessionInfo
from dragoman.web.gateway.keys import KEY_VARIABLE, Keys, ServeKey, read_keys
from dragoman.web.gateway.metrics import OTHER, SERIES, Metrics
from tests.gateway_keys import ALICE, BOB, FIELDS, KEYS, status, told
from tests.gateway_stage import (
    FRONTS,
    KEY,
    Exchange,
    Upstream,
    body_of,
    endless,
    head,
    line,
    on_a_loop,
    path_of,
    served,
    staged,
    upstream_server,
    written,
)

each_front = pytest.mark.parametrize("api", FRONTS)
UNAUTHORIZED = {
    "anthropic-messages": {"type": "error", "error": {"type": "authentication_error"}},
    "openai-responses": {"error": {"type": "invalid_request_error", "code": "invalid_api_key", "param": None}},
    "openai-chat": {"error": {"type": "invalid_request_error", "code": "invalid_api_key", "param": None}},
    "gemini": {"error": {"code": 401, "status": "UNAUTHENTICATED"}},
}


# ---------------------------------------------------------------- keys


@each_front
@pytest.mark.parametrize("field", FIELDS)
@on_a_loop
async def test_every_front_takes_a_key_in_every_field(api: str, field: str) -> None:
    async with staged(keys=KEYS) as stage:
        assert await status(stage.port, written(api, None, FIELDS[field])) == 200
        sent = json.dumps(stage.upstream.headers)
        assert ALICE not in sent
        assert "of-another-vendor" not in sent
        assert KEY in sent


@on_a_loop
async def test_gemini_s_clients_may_send_the_key_in_the_query() -> None:
    async with staged(keys=KEYS) as stage:
        path = f"{path_of('gemini')}&key={ALICE}"
        body = body_of("gemini")
        request = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        assert await status(stage.port, request) == 200
        assert ALICE not in json.dumps(stage.upstream.headers)


@each_front
@pytest.mark.parametrize("field", [*FIELDS, "none", "basic"])
@on_a_loop
async def test_without_a_key_that_counts_an_api_refuses_in_its_own_form(api: str, field: str) -> None:
    wrong = {name: line.replace(ALICE, "nobody-has-such-a-key") for name, line in FIELDS.items()}
    wrong |= {"none": "x-a: b", "basic": f"Authorization: Basic {ALICE}"}
    async with staged(keys=KEYS) as stage:
        answer = await told(stage.port, written(api, None, wrong[field]))
        said = json.loads(answer.body)
        assert answer.status == 401
        assert "nobody-has" not in answer.body.decode()
        assert said["error"].pop("message")
        assert said == UNAUTHORIZED[api]
        assert stage.upstream.seen == 0


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/m", "/v1/responses/resp_1", "/metrics", "/v1/files"])
@on_a_loop
async def test_every_path_but_health_needs_the_key(path: str) -> None:
    async with staged(keys=KEYS) as stage:
        for sent, expected in ((path, 401), ("/healthz", 200)):
            async with stage.client.get(stage.url + sent) as response:
                assert response.status == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[alice]", "missing required field `key`"),
        ('[alice]\nkey = "short"', "8 characters"),
        ('[alice]\nkey = "with a space in it"', "without space"),
        ('[alice]\nkey = "alice-has-a-long-key"\nrequest = 1', "unknown field `request`"),
        ('[alice]\nkey = "alice-has-a-long-key"\ndollars = -1.0', ">= 0"),
        ('[alice]\nkey = "alice-has-a-long-key"\ndollars = nan', ">= 0"),
        ('[alice]\nkey = "alice-has-a-long-key"\n[bob]\nkey = "alice-has-a-long-key"', "the same key"),
        ('[default]\nkey = "alice-has-a-long-key"', "by another name"),
        ("alice = 1", "is wrong"),
        ("", "has no key"),
        ("# [alice]", "has no key"),
        (f'[{"a" * 51}]\nkey = "alice-has-a-long-key"', "more than 50 characters"),
        ('key = "alice-has-a-long-key', "no TOML"),
    ],
)
def test_a_file_of_keys_that_is_wrong_is_told_without_its_keys(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(text, "utf-8")
    with pytest.raises((UnreadableData, InvalidValue)) as raised:
        read_keys(file, {KEY_VARIABLE: "the-owner-s-own-key"})
    assert says in str(raised.value)
    assert "alice-has" not in str(raised.value)
    assert "the-owner" not in str(raised.value)


def test_a_file_of_keys_has_names_and_limits(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(f'[alice]\nkey = "{ALICE}"\nrequests = 3\ndollars = 2\n[bob]\nkey = "{BOB}"\n', "utf-8")
    keys = read_keys(file, {KEY_VARIABLE: "the-owner-s-own-key"})
    found = [keys.find([key]) for key in (ALICE, BOB, "the-owner-s-own-key", "nobody-has-such-a-key")]
    assert [(key.name, key.requests, key.dollars) if key else None for key in found] == [
        ("alice", 3, 2.0),
        ("bob", None, None),
        ("default", None, None),
        None,
    ]
    assert ALICE not in repr(found)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", ""])  # refused
def test_without_a_key_only_loopback_is_served(host: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dragoman", "serve", "--port", "0", "--host", host, "--store", "record.db"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert KEY_VARIABLE in ended.stderr


@on_a_loop
async def test_a_process_takes_the_key_of_its_environment(tmp_path: Path) -> None:
    async with upstream_server(Upstream()) as upstream:
        with served(upstream.url, tmp_path, environment={KEY_VARIABLE: ALICE}) as server:
            assert await status(server.port, written("openai-chat", None, FIELDS["bearer"])) == 200
            assert await status(server.port, written("openai-chat")) == 401
            assert server.log.read_text("utf-8").count("means nothing") == 0


@on_a_loop
async def test_a_file_of_keys_that_others_can_read_is_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(f'[alice]\nkey = "{ALICE}"\n', "utf-8")
    async with upstream_server(Upstream()) as upstream:
        for mode, warnings in ((0o644, 1), (0o600, 0)):
            file.chmod(mode)
            folder = tmp_path / str(mode)
            folder.mkdir()
            with served(upstream.url, folder, "--keys", str(file)) as server:
                assert await status(server.port, written("openai-chat", None, FIELDS["x-api-key"])) == 200
                assert server.log.read_text("utf-8").count("chmod 600") == warnings


@pytest.mark.parametrize("named_by", ["header", "path"])
@on_a_loop
async def test_a_key_joins_no_session_of_another(named_by: str) -> None:
    store = MemoryStore()
    async with staged(keys=KEYS, store=store) as stage:

        async def join(key: str, session: str) -> int:
            body = body_of("openai-chat", said=f"said with {key}")
            path, field = "/v1/chat/completions", f"x-dragoman-session: {session}"
            if named_by == "path":
                path, field = f"/session/{session}{path}", "x-a: b"
            lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"x-api-key: {key}", field]
            request = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body
            return await status(stage.port, request)

        await store.create("of-nobody")
        assert await join(ALICE, "of-alice") == 200
        assert await join(ALICE, "of-alice") == 200
        assert await join(BOB, "of-alice") == 403
        assert await join(BOB, "of-nobody") == 403
        assert b"alice" not in b"".join(stage.upstream.bodies[2:])


@on_a_loop
async def test_the_owner_s_key_joins_what_was_recorded_without_a_key() -> None:
    store = MemoryStore()
    await store.create("of-nobody")
    async with staged(keys=Keys([ServeKey.of("default", ALICE)]), store=store) as stage:
        request = written("openai-chat", None, FIELDS["x-api-key"], "x-dragoman-session: of-nobody")
        assert await status(stage.port, request) == 200


# ---------------------------------------------------------------- hosts and pages


@pytest.mark.parametrize(
    ("host", "is_served"),
    [
        ("127.0.0.1", True),
        ("127.0.0.1:4505", True),
        ("localhost:4505", True),
        ("LOCALHOST", True),
        ("[::1]:4505", True),
        ("gateway.example.org", True),
        ("Gateway.Example.org:80", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example", False),
        ("192.0.2.1", False),
        ("", False),
    ],
)
@each_front
@on_a_loop
async def test_a_request_to_another_host_is_refused(api: str, host: str, *, is_served: bool) -> None:
    async with staged(hosts=frozenset({"gateway.example.org"})) as stage:
        request = written(api).replace(b"Host: 127.0.0.1", f"Host: {host}".encode())
        assert await status(stage.port, request) == (200 if is_served else 403)


@on_a_loop
async def test_with_keys_an_address_is_a_host_and_a_name_is_not() -> None:
    async with staged(keys=KEYS) as stage:
        for host, expected in (("192.0.2.1:4505", 200), ("[2001:db8::1]", 200), ("evil.example", 403)):
            request = written("openai-chat", None, FIELDS["bearer"])
            assert await status(stage.port, request.replace(b"Host: 127.0.0.1", f"Host: {host}".encode())) == expected


@on_a_loop
async def test_a_request_of_http_1_0_must_name_its_host() -> None:
    async with staged() as stage:
        assert (await told(stage.port, b"GET /v1/models HTTP/1.0\r\n\r\n")).status == 403


@each_front
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:4505"])
@on_a_loop
async def test_a_page_is_refused_and_told_nothing_of_origins(api: str, origin: str) -> None:
    async with staged() as stage:
        asked = written(api, None, f"Origin: {origin}")
        before = head(api, f"Origin: {origin}", "Access-Control-Request-Method: POST").replace(b"POST ", b"OPTIONS ")
        for request in (asked, before):
            answer = await told(stage.port, request)
            assert answer.status == 403
            assert not [name for name in answer.headers if name.startswith("access-control")]
        assert stage.upstream.seen == 0


@each_front
@on_a_loop
async def test_no_cookie_passes_in_either_direction(api: str) -> None:
    async def with_cookies(exchange: Exchange) -> None:
        exchange.fields = {"set-cookie": "a=b", "access-control-allow-origin": "*"}
        await exchange.send(exchange.answer.opening + exchange.answer.piece + exchange.answer.closing)

    async with staged(script=with_cookies) as stage:
        async with line(stage.port) as connection:
            await connection.send(written(api, None, "Cookie: c=d", "Connection: close"))
            told_of = (await connection.rest()).lower()
        assert told_of.startswith(b"http/1.1 200")
        assert b"set-cookie" not in told_of
        assert b"access-control" not in told_of
        assert "c=d" not in json.dumps(stage.upstream.headers)


# ---------------------------------------------------------------- the log


class Kept(logging.Handler):
    """Keeps what every logger says, with the traceback."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(logging.Formatter("%(name)s %(message)s"))
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def log() -> Iterator[Kept]:
    """What is logged at any level by anybody."""
    kept, root = Kept(), logging.getLogger()
    level = root.level
    root.addHandler(kept)
    root.setLevel(logging.DEBUG)
    yield kept
    root.removeHandler(kept)
    root.setLevel(level)


WORDS = "planted-raspberry"
SECRETS = (WORDS, ALICE, KEY, "planted-but-wrong-key")


async def _say_back(exchange: Exchange) -> None:
    await exchange.send(
        json.dumps({"error": {"message": f"no: {WORDS} {KEY}"}}).encode(), status=400, kind="application/json"
    )


async def _fail(exchange: Exchange) -> None:
    await exchange.send(f"{WORDS} {KEY}".encode(), status=500, kind="text/html")


async def _break(exchange: Exchange) -> None:
    await exchange.send(exchange.answer.opening + exchange.answer.piece.replace(b"Hello.", WORDS.encode()) + b"data: {")


async def _whole(exchange: Exchange) -> None:
    piece = exchange.answer.piece.replace(b"Hello.", WORDS.encode())
    await exchange.send(exchange.answer.opening + piece + exchange.answer.closing)


@each_front
@pytest.mark.parametrize("way", ["passed", "translated"])
@on_a_loop
async def test_no_log_has_content_or_keys(api: str, way: str, log: Kept) -> None:
    other = {"openai-chat": "anthropic"}.get(api, "openai-chat")
    key = f"Authorization: Bearer {ALICE}"
    async with staged(*(() if way == "passed" else (f"*={other}:m",)), keys=KEYS) as stage:
        for script in (_whole, _say_back, _fail, _break):
            stage.upstream.script = script
            for stream in (True, False):
                async with line(stage.port) as connection:
                    body = body_of(api, said=WORDS, stream=stream)
                    await connection.send(written(api, body, key, "Connection: close", stream=stream))
                    await connection.rest()
        stage.upstream.script = endless
        async with line(stage.port) as connection:  # it leaves
            await connection.send(written(api, body_of(api, said=WORDS), key))
            await connection.reader.readuntil(b"Hello.")
        hostile = [
            written(api, body_of(api, said=WORDS), "Authorization: Bearer planted-but-wrong-key"),
            written(api, body_of(api, said=WORDS), key, f"Origin: http://{WORDS}"),
            written(api, f'{{"model": 1, "a": "{WORDS}"}}'.encode(), key),
            written(api, WORDS.encode(), key),
            written(api, WORDS.encode(), key, "Content-Encoding: gzip"),
            head(api, key + "\x01", f"x-a: {WORDS}\x00"),
            head(api, f"{WORDS} : {ALICE}"),
            head(api, f"{key}{'a' * 40_000}"),
            head(api, key, "Transfer-Encoding: chunked") + f"{WORDS}\r\n".encode(),
            f"GET /v1/{WORDS}?key={ALICE} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode(),
            f"GET /v1/models/{WORDS}?key={ALICE} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode(),
            f"GET /v1/responses/{WORDS} HTTP/1.1\r\nHost: 127.0.0.1\r\n{key}\r\n\r\n".encode(),
            f"{WORDS} {ALICE}\r\n\r\n".encode(),
        ]
        for request in hostile:
            async with line(stage.port) as connection:
                await connection.send(request)
                assert (await connection.answer()).status in (400, 401, 403, 404, 431) or b"models" in request
        async with asyncio.TaskGroup() as group:  # the gateway stops
            group.create_task(status(stage.port, written(api, body_of(api, said=WORDS), key)))
            await stage.upstream.until(lambda upstream: upstream.open == 1)
            await stage.gateway.stop()
    assert len([line for line in log.lines if "dragoman.serve" in line]) >= 20
    assert [line for line in log.lines if any(secret in line for secret in SECRETS)] == []


@on_a_loop
async def test_a_bug_is_logged_without_the_words_of_its_exception(log: Kept) -> None:
    def open_model(name: str) -> Model:
        raise RuntimeError(f"{name} {WORDS}")

    async with staged(open_model=open_model) as stage:
        answer = await stage.ask("openai-chat")
        assert (answer.status, WORDS in answer.body.decode()) == (500, False)
    assert [line for line in log.lines if "raised RuntimeError" in line]
    assert [line for line in log.lines if WORDS in line] == []


@on_a_loop
async def test_a_fault_of_the_store_is_logged_and_counted_without_content(log: Kept) -> None:
    class Full(MemoryStore):
        async def create(self, *arguments: Any, **options: Any) -> SessionInfo:
            raise OSError(28, "No space left on device", f"/{WORDS}")

    async with staged(store=Full()) as stage:
        answer = await stage.ask("openai-chat", said=WORDS)
        assert (answer.status, answer.headers["x-dragoman-record"]) == (200, "failed")
        assert "dragoman_store_faults_total 1\n" in stage.gateway.metrics.page()
    assert [line for line in log.lines if "not recorded" in line and "No space left" in line]
    assert [line for line in log.lines if WORDS in line] == []


@on_a_loop
async def test_a_request_is_one_line_of_json(log: Kept) -> None:
    async with staged("*=openai-chat:gpt-4.1", keys=KEYS) as stage, line(stage.port) as connection:
        await connection.send(written("openai-chat", None, FIELDS["bearer"], "Connection: close"))
        await connection.rest()
    (found,) = [json.loads(line.partition(" ")[2]) for line in log.lines if line.startswith("dragoman.serve {")]
    assert found.pop("seconds") >= 0
    assert found.pop("session").startswith("chat-")
    assert found.pop("cost") > 0
    assert found == {
        "action": "answer",
        "front": "openai-chat",
        "status": 200,
        "key": "alice",
        "model": "openai-chat:gpt-4.1",
        "way": "passed",
        "input_tokens": 3,
        "output_tokens": 2,
    }


# ---------------------------------------------------------------- metrics


def families(page: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Return what Prometheus' own parser reads: by name, the values of the labels and the amount."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(page):
        assert family.documentation
        assert family.type in ("counter", "gauge")
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


@on_a_loop
async def test_the_page_of_metrics_is_one_that_prometheus_reads() -> None:
    async with staged("*=openai-chat:gpt-4.1", keys=KEYS) as stage:
        headers = {"x-api-key": ALICE}
        for body in (body_of("openai-chat"), b"{}"):
            async with stage.client.post(stage.url + "/v1/chat/completions", data=body, headers=headers) as response:
                await response.read()
        async with stage.client.get(stage.url + "/metrics", headers=headers) as response:
            assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
            found = families(await response.text())
    assert found["dragoman_requests_total"] == {
        ("openai-chat", "passed", "200"): 1,
        ("openai-chat", "refused", "400"): 1,
    }
    assert found["dragoman_tokens_total"] == {("openai-chat:gpt-4.1", "input"): 3, ("openai-chat:gpt-4.1", "output"): 2}
    assert found["dragoman_cost_dollars_total"]["openai-chat:gpt-4.1",] > 0
    assert found["dragoman_answers_under_way"] == {(): 0}


async def _break_off(exchange: Exchange) -> None:
    exchange.closes = True
    await exchange.send(exchange.answer.opening + exchange.answer.piece)


@pytest.mark.parametrize("provider", ["openai-chat", "anthropic"])  # passed, translated
@on_a_loop
async def test_a_refusal_is_no_cut_answer(provider: str) -> None:
    async with staged(f"*={provider}:m", script=_say_back) as stage:
        for stream in (True, False):
            assert (await stage.ask("openai-chat", stream=stream)).status == 400
        assert "dragoman_cut_answers_total" not in families(stage.gateway.metrics.page())
        stage.upstream.script = _break_off
        assert (await stage.ask("openai-chat")).status == 200
        found = families(stage.gateway.metrics.page())["dragoman_cut_answers_total"]
        assert found == {("openai-chat", "stream_truncated"): 1}


def test_large_counts_are_told_to_the_last_digit_and_labels_are_escaped() -> None:
    metrics = Metrics()
    metrics.add("dragoman_tokens_total", 123_456_789, model='a"b\\c\nd', kind="input")
    metrics.add("dragoman_tokens_total", 1, model='a"b\\c\nd', kind="input")
    assert families(metrics.page())["dragoman_tokens_total"] == {('a"b\\c\nd', "input"): 123_456_790}


def test_names_that_clients_make_up_do_not_grow_the_page_without_end() -> None:
    metrics = Metrics()
    for index in range(3 * SERIES):
        metrics.add("dragoman_tokens_total", 1, model=f"m{index}", kind="input")
    found = families(metrics.page())["dragoman_tokens_total"]
    assert len(found) == SERIES + 1
    assert found[OTHER, OTHER] == 2 * SERIES
