"""The error code of a failed call: by the provider's error word first, then its wording for overflow, then the status.

One table for all wire APIs, since their vendors copy each other. Pure.
"""

import math
import re
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime
from itertools import islice
from typing import Any

from .._jsontext import decode_json, encode_json
from ..errors import ErrorCode, ModelError

__all__ = [
    "error_from_event",
    "error_from_response",
    "error_from_words",
    "error_words",
    "not_an_answer",
    "refused_content",
    "request_id_of",
]

STATUS_CODES: dict[int, ErrorCode] = {
    400: ErrorCode.INVALID_REQUEST,
    401: ErrorCode.AUTHENTICATION,
    402: ErrorCode.QUOTA_EXCEEDED,
    403: ErrorCode.PERMISSION,
    404: ErrorCode.NOT_FOUND,
    405: ErrorCode.NOT_FOUND,
    408: ErrorCode.TIMEOUT,
    409: ErrorCode.SERVER_ERROR,
    413: ErrorCode.CONTEXT_OVERFLOW,
    422: ErrorCode.INVALID_REQUEST,
    424: ErrorCode.SERVER_ERROR,
    429: ErrorCode.RATE_LIMITED,
    501: ErrorCode.UNSUPPORTED,
    503: ErrorCode.OVERLOADED,
    504: ErrorCode.TIMEOUT,
    529: ErrorCode.OVERLOADED,
}

# The providers' own words (error type, code or status; exception names of AWS), lower case. Words that say no more than
# that the provider failed (`server_error`, `api_error`, `internal`) are none: gateways put them beside any status, and
# a 401 with one of them is still a 401. Without a status they mean `server_error`, as every unknown word does.
ERROR_WORDS: dict[str, ErrorCode] = {
    # authentication and permission
    "authentication_error": ErrorCode.AUTHENTICATION,
    "invalid_api_key": ErrorCode.AUTHENTICATION,
    "unauthenticated": ErrorCode.AUTHENTICATION,
    "api_key_invalid": ErrorCode.AUTHENTICATION,  # a 400 of Google
    "unrecognizedclientexception": ErrorCode.AUTHENTICATION,
    "expiredtokenexception": ErrorCode.AUTHENTICATION,
    "permission_error": ErrorCode.PERMISSION,
    "permission_denied": ErrorCode.PERMISSION,
    "accessdeniedexception": ErrorCode.PERMISSION,
    # what was asked for
    "invalid_argument": ErrorCode.INVALID_REQUEST,
    "failed_precondition": ErrorCode.INVALID_REQUEST,
    "out_of_range": ErrorCode.INVALID_REQUEST,
    "unimplemented": ErrorCode.UNSUPPORTED,
    "not_found_error": ErrorCode.NOT_FOUND,
    "model_not_found": ErrorCode.NOT_FOUND,
    "not_found": ErrorCode.NOT_FOUND,
    "resourcenotfoundexception": ErrorCode.NOT_FOUND,
    "validationexception": ErrorCode.INVALID_REQUEST,
    "not_supported_error": ErrorCode.UNSUPPORTED,
    "unsupported_value": ErrorCode.UNSUPPORTED,
    "unsupported_parameter": ErrorCode.UNSUPPORTED,
    "unsupported_file": ErrorCode.UNSUPPORTED,
    "context_length_exceeded": ErrorCode.CONTEXT_OVERFLOW,
    "exceed_context_size_error": ErrorCode.CONTEXT_OVERFLOW,
    "string_above_max_length": ErrorCode.INVALID_REQUEST,
    "invalid_prompt": ErrorCode.INVALID_REQUEST,
    "invalid_image": ErrorCode.INVALID_REQUEST,
    "invalid_image_format": ErrorCode.INVALID_REQUEST,
    "invalid_image_url": ErrorCode.INVALID_REQUEST,
    "invalid_base64_image": ErrorCode.INVALID_REQUEST,
    "unsupported_image_media_type": ErrorCode.UNSUPPORTED,
    "image_content_policy_violation": ErrorCode.CONTENT_FILTERED,
    "request_too_large": ErrorCode.CONTEXT_OVERFLOW,
    "content_policy_violation": ErrorCode.CONTENT_FILTERED,
    "content_filter": ErrorCode.CONTENT_FILTERED,
    # limits and load
    "rate_limit_error": ErrorCode.RATE_LIMITED,
    "rate_limit_exceeded": ErrorCode.RATE_LIMITED,
    "resource_exhausted": ErrorCode.RATE_LIMITED,
    "throttlingexception": ErrorCode.RATE_LIMITED,
    "insufficient_quota": ErrorCode.QUOTA_EXCEEDED,
    "billing_error": ErrorCode.QUOTA_EXCEEDED,
    "servicequotaexceededexception": ErrorCode.QUOTA_EXCEEDED,
    "overloaded_error": ErrorCode.OVERLOADED,
    "overloaded": ErrorCode.OVERLOADED,
    "unavailable": ErrorCode.OVERLOADED,
    "serviceunavailableexception": ErrorCode.OVERLOADED,
    "modelnotreadyexception": ErrorCode.OVERLOADED,
    "timeout_error": ErrorCode.TIMEOUT,
    "deadline_exceeded": ErrorCode.TIMEOUT,
    "modeltimeoutexception": ErrorCode.TIMEOUT,
}

# What the caller can do, for the failures that are not about the request.
_ADVICE = {
    ErrorCode.RATE_LIMITED: "; wait before the next request, send fewer at once, or use another model",
    ErrorCode.OVERLOADED: "; try again in a while, or use another model",
}
_PROXY_ADVICE = "; the proxy wants credentials: put its user and password into its address"

# How providers say that the input is too long for the model, where they have no word for it.
_OVERFLOW = re.compile(
    r"prompt is too long|input is too long|context[ _]length|maximum context|context window|too many total text bytes"
    r"|input length and `max_tokens` exceed|exceeds the maximum number of tokens|input token count"
    r"|exceed(?:s|ed)? (?:the )?(?:model's )?(?:available )?context|reduce the length|maximum prompt length"
    r"|token limit exceeded|too large for model|longer than the model's|number of input tokens exceeds",
    re.IGNORECASE,
)
_VAGUE_CODES = frozenset({ErrorCode.INVALID_REQUEST, ErrorCode.SERVER_ERROR})
_OVERFLOW_CODES = frozenset({ErrorCode.INVALID_REQUEST, ErrorCode.CONTEXT_OVERFLOW, ErrorCode.SERVER_ERROR})
# How servers without an error word say that the model cannot read an input: llama.cpp does so with status 500.
_UNSUPPORTED = re.compile(
    r"\b(?:image|audio|video|file|multimodal)s?(?: inputs?)? (?:is|are) not supported"
    r"|does not support (?:image|audio|video|vision|multimodal|tool)|not a multimodal model",
    re.IGNORECASE,
)
# What of a request its refusal is about. The first that is found counts; the words are those of the providers.
_REFUSED: dict[str, re.Pattern[str]] = {
    # The schema of the answer.
    "schema": re.compile(
        r"output_?(?:config|format)|(?:response|text)[_.]?format|response_?(?:json_?)?schema|response[ _]?mime"
        r"|(?<![a-z]_)json_schema|structured[ _]outputs?",  # not the `parameters_json_schema` of a tool
        re.IGNORECASE,
    ),
    "tools": re.compile(
        r"does(?: not|n't) support (?:tool|function)|that support tool"
        r"|\b(?:tool|function)[ _-]?(?:s|use|call(?:s|ing))`? (?:is|are) not (?:supported|enabled)"
        r"|tools param requires|tool choice requires --",
        re.IGNORECASE,
    ),
    # Signatures, encrypted reasoning, ids of items: what only its maker can read.
    "opaque": re.compile(
        r"signature`? in `?thinking|thought[ _]?signature|encrypted[ _]content|redacted_thinking|`thinking` block"
        r"|thinking\.signature|\bitem (?:with id )?'(?:rs|fc|msg|ws)_",
        re.IGNORECASE,
    ),
    # All media: the model reads none.
    "media": re.compile(
        _UNSUPPORTED.pattern
        + r"|that support (?:image|audio|video|file) input|variant `(?:image_url|input_audio|file)`",
        re.IGNORECASE,
    ),
    # These media: a damaged picture, a dead link, a stored file that has expired.
    "these media": re.compile(
        r"(?<![a-z])(?:image|picture|photo|audio|video|pdf|document|file|media|attachment|base64|mime|inline_?data|ur[il])s?"
        r"(?![a-z])|download|image_?url|file_?(?:data|uri|id)",
        re.IGNORECASE,
    ),
}
_SCHEMA = re.compile(r"^\W*tools\b|schema", re.IGNORECASE)  # a tool's parameter may be called `file` or `url`
_REFUSAL_CODES = frozenset(
    {ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED, ErrorCode.NOT_FOUND, ErrorCode.PERMISSION}
)
# Where vendors put what they say, best first. FastAPI and its servers (vLLM) give a list of objects under `detail`.
_MESSAGE_FIELDS = (
    "message", "Message", "msg", "detail", "error_description", "description", "title", "reason", "error", "errors",
)  # fmt: skip
_MESSAGE_DEPTH, _MOST_MESSAGES, _BODY_SHOWN = 5, 10, 2_000
_GATEWAY_PREFIX = "llm_provider-"  # LiteLLM's, before each header that came from the provider behind it
_REQUEST_ID_HEADERS = ("request-id", "x-request-id", "x-amzn-requestid", "apim-request-id", "cf-ray")


def error_from_response(status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
    """Return the error that a response with an error status stands for."""
    words, message = _words_and_message(body)
    forwarded = {
        name.removeprefix(_GATEWAY_PREFIX): value for name, value in headers.items() if name.startswith(_GATEWAY_PREFIX)
    }
    headers = {**forwarded, **headers}
    exception = headers.get("x-amzn-errortype", "").split(":")[0]
    return error_from_words(
        [exception, *words],
        message,
        status=status,
        request_id=request_id_of(headers),
        retry_after=_retry_after(headers),
    )


def error_from_event(name: str, data: bytes) -> ModelError:
    """Return the error that an event of a stream stands for, by its name: `error`, or the name of an exception."""
    words, message = _words_and_message(data)
    return error_from_words([name, *words], message)


def error_from_words(
    words: list[str],
    message: str | None,
    *,
    status: int | None = None,
    request_id: str | None = None,
    retry_after: float | None = None,
) -> ModelError:
    """Return the error for a provider's own words about it, from a response or from inside a stream."""
    status = _status_in(words) if status is None else status
    code = _code_of(words, message, status)
    where = f"HTTP {status}" if status is not None else "an error inside the stream"
    advice = _PROXY_ADVICE if status == 407 else _ADVICE.get(code, "")
    return ModelError(
        f"the provider refused or failed the request: {code} ({where}){advice}",
        code=code,
        retry_after=retry_after,
        request_id=request_id,
        provider_message=message,
    )


def _code_of(words: list[str], message: str | None, status: int | None) -> ErrorCode:
    """The code for a provider's status and words: its words count more, but for a limit of rates."""
    code = STATUS_CODES.get(status) if status is not None else None
    code = _code_of_class(status) if code is None else code
    if code is not ErrorCode.RATE_LIMITED or any(word.lower() == "insufficient_quota" for word in words):
        code = next((ERROR_WORDS[word.lower()] for word in words if word.lower() in ERROR_WORDS), code)
    if not message:
        return code
    # A 429 is never an overflow, whatever it says.
    if code in _OVERFLOW_CODES and status != 429 and _OVERFLOW.search(message):
        return ErrorCode.CONTEXT_OVERFLOW
    if code in _VAGUE_CODES and _UNSUPPORTED.search(message):
        return ErrorCode.UNSUPPORTED
    if status == 413 and _REFUSED["these media"].search(message):
        return ErrorCode.INVALID_REQUEST  # one picture is too large: a shorter conversation would not help
    return code


def refused_content(code: ErrorCode, message: str) -> str | None:
    """Return the content that the provider refuses, by its words: schema, tools, opaque, media or these media; or None.

    `opaque` is what only its maker can read, such as a signature; `media` are refused altogether. Whether the request
    held such a thing the words do not tell.
    """
    if code not in _REFUSAL_CODES:
        return None
    found = (what for what, words in _REFUSED.items() if words.search(message))
    what = next(found, None)
    return None if what == "these media" and _SCHEMA.search(message) else what


def _status_in(words: list[str]) -> int | None:
    """The status that an error inside a stream stands for: gateways give its number, others only the class."""
    numbers = (int(word) for word in words if word.isdecimal() and len(word) == 3)
    return next(numbers, 400 if "invalid_request_error" in words else None)


def _code_of_class(status: int | None) -> ErrorCode:
    if status is None or status >= 500:
        return ErrorCode.SERVER_ERROR
    # A redirect is never followed: it could carry the key to another host.
    return ErrorCode.INVALID_REQUEST if status >= 400 else ErrorCode.PROTOCOL_VIOLATION


def request_id_of(headers: Mapping[str, str]) -> str | None:
    """Return the id under which the provider knows the request."""
    return next((headers[name] for name in _REQUEST_ID_HEADERS if headers.get(name)), None)


def _words_and_message(body: bytes) -> tuple[list[str], str | None]:
    """The words and the message of an error body, in any of the shapes that vendors use."""
    try:
        value = decode_json(body)
    except ValueError:
        return [], body[:_BODY_SHOWN].decode("utf-8", "replace") or None
    if isinstance(value, list) and value and isinstance(value[0], dict):  # Gemini answers a stream with an array
        value = value[0]
    return error_words(value) if isinstance(value, dict) else ([], _message_in(value))


def error_words(value: dict[str, Any]) -> tuple[list[str], str | None]:
    """Return the words and the message of an error object, nested under `error` or not."""
    inner = value.get("error", value)
    if isinstance(inner, str):
        return [inner], _message_in(value.get("message")) or inner
    if not isinstance(inner, dict):
        return [], _message_in(inner)
    words = [str(inner[name]) for name in ("code", "type", "status", "__type") if inner.get(name)]
    return [word.rsplit("#", 1)[-1] for word in words], _message_in(inner)


def not_an_answer(what: str, value: Any) -> ModelError:
    """Return the error for a body that holds something else than an answer; the provider's words are kept."""
    message = error_words(value)[1] if isinstance(value, dict) else _message_in(value)
    return ModelError(what, code=ErrorCode.PROTOCOL_VIOLATION, provider_message=message)


def _message_in(value: Any, depth: int = _MESSAGE_DEPTH) -> str | None:
    """What an error says: the text of a field for it, the texts inside such a field, or else all of it."""
    if isinstance(value, str) or not value:
        return value or None
    said: Iterable[str | None] = ()
    if isinstance(value, dict) and depth:
        said = islice(filter(None, (_message_in(value.get(name), depth - 1) for name in _MESSAGE_FIELDS)), 1)
        if isinstance(value.get("loc"), list):
            path = ".".join(map(str, value["loc"]))
            said = (f"{path[:200]}: {message}" for message in said)
    elif isinstance(value, list) and depth:
        said = (_message_in(entry, depth - 1) for entry in value[:_MOST_MESSAGES])
    return "; ".join(filter(None, said)) or encode_json(value)[:_BODY_SHOWN].decode("utf-8", "ignore")


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait. A date is compared with the response's own date: a codec has no clock."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * unit
        except (KeyError, ValueError):
            continue
        return seconds if 0 <= seconds < math.inf else None
    try:
        until, now = (parsedate_to_datetime(headers[name]) for name in ("retry-after", "date"))
        return max((until - now).total_seconds(), 0.0)
    except (KeyError, ValueError, TypeError, OverflowError):
        return None
