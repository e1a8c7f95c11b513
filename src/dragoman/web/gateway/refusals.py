"""Requests that are refused before a model is asked, each told in the client's own API."""

import msgspec
from aiohttp import web

from ...delta import ErrorDelta
from ...errors import DragomanError, ErrorCode, ModelError
from ...wire import find_codec
from .fronts import ANTHROPIC, GEMINI, find_wanted

__all__ = ["RefusedRequest", "refuse", "refuse_unread"]


class RefusedRequest(ModelError):
    """A request that HTTP has a status for, and no error code of ours."""

    def __init__(self, status: int, message: str, *, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> None:
        super().__init__(message, code=code)
        self.status = status


# The codes of refusals that a client may send again as they are.
_CODES = {408: ErrorCode.TIMEOUT, 500: ErrorCode.INTERNAL, 503: ErrorCode.OVERLOADED}


def refuse(api: str, error: DragomanError) -> web.Response:
    """Return the answer that tells a client of this API why it gets none."""
    write_error = find_codec(api).write_error
    assert write_error is not None
    facts = (error.code, str(error), error.retryable, error.retry_after, None, error.provider_message)
    answer = write_error(ErrorDelta("", 0, None, *facts))
    status, body = answer.status, answer.body
    if isinstance(error, RefusedRequest) and error.status != status:
        status, body = error.status, _restated(api, body, error.status)
    return web.Response(status=status, body=body, headers=answer.headers)


def refuse_unread(target: str, status: int, message: str) -> web.Response:
    """Return the answer to a request that is no HTTP, or comes too slowly: its target tells the API, if it came."""
    wanted = find_wanted("POST", target.partition("?")[0] or "/", {})
    return refuse(wanted.api, RefusedRequest(status, message, code=_CODES.get(status, ErrorCode.INVALID_REQUEST)))


def _restated(api: str, body: bytes, status: int) -> bytes:
    """The body of an error, where it tells the status too."""
    told = msgspec.json.decode(body)
    if api == GEMINI:
        told["error"]["code"] = status
    elif api == ANTHROPIC and status == 413:
        told["error"]["type"] = "request_too_large"
    return msgspec.json.encode(told)
