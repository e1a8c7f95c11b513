"""Failures as an API tells them: the status of each error code, and the words that the error's message has.

The mirror of `failures`. Each API has its own words for a code; the statuses are the same. Pure.
"""

import math
from collections.abc import Mapping
from typing import Any

from .._jsontext import encode_json
from ..delta import ErrorDelta
from ..errors import ErrorCode
from ..stream import ErrorAnswer

__all__ = ["STATUSES", "error_answer", "error_message"]

# An upstream that breaks off, or sends what cannot be read, is a bad gateway to the client.
STATUSES: dict[ErrorCode, int] = {
    ErrorCode.AUTHENTICATION: 401,
    ErrorCode.PERMISSION: 403,
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.UNSUPPORTED: 400,
    ErrorCode.RATE_LIMITED: 429,
    ErrorCode.QUOTA_EXCEEDED: 429,
    ErrorCode.OVERLOADED: 503,
    ErrorCode.SERVER_ERROR: 500,
    ErrorCode.TIMEOUT: 504,
    ErrorCode.CONNECTION: 502,
    ErrorCode.CONTEXT_OVERFLOW: 400,
    ErrorCode.CONTENT_FILTERED: 400,
    ErrorCode.STREAM_TRUNCATED: 502,
    ErrorCode.PROTOCOL_VIOLATION: 502,
    ErrorCode.CANCELLED: 502,
    ErrorCode.INTERNAL: 500,
    ErrorCode.LIMIT_REACHED: 429,
    ErrorCode.BUSY: 503,
}


def error_message(error: ErrorDelta) -> str:
    """Return what the client is told: the provider's own words, which are redacted, or else ours."""
    return error.provider_message or error.message or f"the request failed: {error.error_code}"


def error_answer(error: ErrorDelta, body: dict[str, Any], statuses: Mapping[ErrorCode, int] = STATUSES) -> ErrorAnswer:
    """Return the answer to a request that failed before its stream began, with the body of its API."""
    status = statuses.get(error.error_code, STATUSES.get(error.error_code, 500))
    headers = {"content-type": "application/json"}
    if error.retry_after is not None:
        headers["retry-after"] = str(math.ceil(error.retry_after))
    return ErrorAnswer(status, encode_json(body), headers)
