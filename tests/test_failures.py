"""What a failed call is called, beside the table in the docs: when to try again."""

import json

import pytest

from dragoman import ErrorCode
from dragoman.delta import ErrorDelta
from dragoman.errors import PROVIDER_MESSAGE_LIMIT
from dragoman.testing import decode_recorded
from dragoman.wire.failures import error_from_response
from tests.corpus import PROTOCOLS


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": "Sun, 15 Nov 2026 08:00:30 GMT", "date": "Sun, 15 Nov 2026 08:00:00 GMT"}, 30.0),
        ({"retry-after": "Sun, 15 Nov 2026 08:00:30 GMT"}, None),
        ({"retry-after": "Sun, 15 Nov 2026 08:00:99999999999 GMT", "date": "Sun, 15 Nov 2026 08:00:00 GMT"}, None),
        ({"llm_provider-retry-after": "7"}, 7.0),  # LiteLLM, for the provider behind it
        ({"llm_provider-retry-after": "7", "retry-after": "3"}, 3.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "-1"}, None),
        ({}, None),
    ],
)
def test_the_time_to_wait_is_read_in_every_form(headers: dict[str, str], seconds: float | None) -> None:
    error = error_from_response(429, headers, b"{}")
    assert error.code is ErrorCode.RATE_LIMITED
    assert error.retry_after == seconds


@pytest.mark.parametrize("word", ["server_error", "api_error", "internal", "internal_server_error"])
@pytest.mark.parametrize(
    ("status", "code"),
    [(400, "invalid_request"), (401, "authentication"), (403, "permission"), (404, "not_found"), (503, "overloaded")],
)
def test_a_word_that_says_no_more_than_failed_yields_to_the_status(word: str, status: int, code: str) -> None:
    # aimock and gateways put `server_error` beside a 401, which must not be tried again.
    error = error_from_response(status, {}, b'{"error": {"type": "%s", "message": "no"}}' % word.encode())
    assert error.code == code
    assert error.retryable == (status == 503)


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (500, "server_error", "image input is not supported - hint: you may need to provide the mmproj"),  # llama.cpp
        (500, "server_error", "audio input is not supported - hint: you may need to provide the mmproj"),
        (501, "not_supported_error", "This server does not support embeddings."),
        (400, "BadRequestError", "SmolLM2 is not a multimodal model"),  # vLLM
        (400, "api_error", "registry.ollama.ai/library/tinyllama does not support tools"),
    ],
)
def test_what_the_model_cannot_read_is_not_asked_again(status: int, kind: str, message: str) -> None:
    body = json.dumps({"error": {"code": status, "type": kind, "message": message}}).encode()
    error = error_from_response(status, {}, body)
    assert (error.code, error.retryable) == (ErrorCode.UNSUPPORTED, False)


def test_a_server_that_fails_is_asked_again() -> None:
    body = b'{"error": {"code": 500, "type": "server_error", "message": "the image could not be read"}}'
    assert error_from_response(500, {}, body).retryable


def test_a_request_id_behind_a_gateway_is_found() -> None:
    assert error_from_response(500, {"llm_provider-x-request-id": "r-1"}, b"{}").request_id == "r-1"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            {"detail": [{"type": "missing", "loc": ["body", "n", 0], "msg": "Field required"}]},
            "body.n.0: Field required",
        ),
        ({"detail": "Not Found"}, "Not Found"),
        ({"error": {"message": {"detail": [{"msg": "Field required"}]}}}, "Field required"),
        ({"error": ["one", {"message": "two"}]}, "one; two"),
        ({"error": "busy", "message": {"text": "come back"}}, '{"text":"come back"}'),
        ({"errors": [{"message": "the model is being retired"}, "soon"]}, "the model is being retired; soon"),
        ({"error_description": "tenant is disabled"}, "tenant is disabled"),
        ({"error": {"code": 7}}, '{"code":7}'),
        ({"odd": {"a": ["b"]}}, '{"odd":{"a":["b"]}}'),
        (["model overloaded"], "model overloaded"),
        ([{"error": {"message": "of Google"}}], "of Google"),
        ("plain", "plain"),
        (5, "5"),
        ({}, None),
    ],
)
def test_the_words_of_the_provider_are_found_in_any_body(body: object, said: str | None) -> None:
    assert error_from_response(400, {}, json.dumps(body).encode()).provider_message == said


def test_the_words_of_the_provider_are_cut() -> None:
    body = {"errors": [{"x": ["y" * 900] * 9}] * 9}
    said = error_from_response(400, {}, json.dumps(body).encode()).provider_message
    assert said is not None
    assert 0 < len(said) <= PROVIDER_MESSAGE_LIMIT


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        ("text/html", b"<html>Your network login has expired</html>", "<html>Your network login has expired</html>"),
        ("application/json", b'{"message":"account suspended"}', "account suspended"),
        ("application/json", b'["account suspended"]', "account suspended"),
        ("application/json", b'"account suspended"', "account suspended"),
    ],
)
def test_a_good_status_with_something_else_than_an_answer_tells_what_came(
    protocol: str, kind: str, body: bytes, said: str
) -> None:
    (error,) = decode_recorded(protocol, body, content_type=kind)
    assert isinstance(error, ErrorDelta)
    assert error.provider_message == said


def test_broken_json_of_an_answer_is_not_told() -> None:
    (error,) = decode_recorded("openai-chat", b'{"choices": [{"message": {"content": "secret', content_type="")
    assert isinstance(error, ErrorDelta)
    assert error.provider_message is None


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (429, "wait before the next request, send fewer at once, or use another model"),
        (503, "try again in a while, or use another model"),
        (529, "try again in a while, or use another model"),
        (407, "the proxy wants credentials: put its user and password into its address"),
    ],
)
def test_a_failure_that_is_not_about_the_request_says_what_to_do(status: int, advice: str) -> None:
    assert str(error_from_response(status, {}, b"")).endswith(f"(HTTP {status}); {advice}")
