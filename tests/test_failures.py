"""What a failed call is called, beside the table in the docs: when to try again."""

import json

import pytest

from dragoman import ErrorCode
from dragoman.wire.failures import error_from_response


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
