"""Requests that are refused before a model is asked, each told in the client's own API."""

import msgspec
from aiohttp import web

from ...delta import ErrorDelta
from ...errors import DragomanError, ErrorCode, ModelError
from ...stream import ErrorAnswer
from ...wire import find_codec
from .fronts import ANTHROPIC, CHAT, GEMINI, RESPONSES, find_wanted

__all__ = ["RefusedRequest", "nothing_there", "refuse", "refuse_unread", "write_refusal"]


class RefusedRequest(ModelError):
    """A refusal with an HTTP status of its own, whatever the status of its code is."""

    def __init__(self, status: int, message: str, *, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> None:
        super().__init__(message, code=code)
        self.status = status


# The codes of refusals that a client may send again as they are.
_CODES = {408: ErrorCode.TIMEOUT, 500: ErrorCode.INTERNAL, 503: ErrorCode.OVERLOADED}


def nothing_there(message: str) -> RefusedRequest:
    """Return the refusal of a request for something that is not there, other than a model."""
    return RefusedRequest(404, message, code=ErrorCode.NOT_FOUND)


def refuse(api: str, error: DragomanError) -> web.Response:
    """Return the answer that tells a client of this API why it gets none."""
    answer = write_refusal(api, error)
    return web.Response(status=answer.status, body=answer.body, headers=answer.headers)


def write_refusal(api: str, error: DragomanError) -> ErrorAnswer:
    """Return that answer as values."""
    write_error = find_codec(api).write_error
    assert write_error is not None
    facts = (error.code, str(error), error.retryable, error.retry_after, None, error.provider_message)
    answer = write_error(ErrorDelta("", 0, None, *facts))
    if not isinstance(error, RefusedRequest):
        return answer
    return ErrorAnswer(error.status, _restated(api, answer.body, error.status), answer.headers)


def refuse_unread(target: str, status: int, message: str) -> web.Response:
    """Return the answer to a request that is no HTTP, or comes too slowly: its target tells the API, if it came."""
    wanted = find_wanted("POST", target.partition("?")[0] or "/", {})
    return refuse(wanted.api, RefusedRequest(status, message, code=_CODES.get(status, ErrorCode.INVALID_REQUEST)))


def _restated(api: str, body: bytes, status: int) -> bytes:
    """The body of an error that tells the status too. OpenAI's code for 404 names a model, and none is meant."""
    told = msgspec.json.decode(body)
    if api == GEMINI:
        told["error"]["code"] = status
    elif api == ANTHROPIC and status == 413:
        told["error"]["type"] = "request_too_large"
    elif api in (CHAT, RESPONSES) and status == 404:
        told["error"]["code"] = None
    return msgspec.json.encode(told)
