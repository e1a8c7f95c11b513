"""What a failed call is called, beside the table in the docs: when to try again."""

import pytest

from dragoman import ErrorCode
from dragoman.providers.failures import error_from_response


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": "Sun, 15 Nov 2026 08:00:30 GMT", "date": "Sun, 15 Nov 2026 08:00:00 GMT"}, 30.0),
        ({"retry-after": "Sun, 15 Nov 2026 08:00:30 GMT"}, None),
        ({"retry-after": "Sun, 15 Nov 2026 08:00:99999999999 GMT", "date": "Sun, 15 Nov 2026 08:00:00 GMT"}, None),
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
