"""A client's request to a server, by OpenTelemetry's conventions for HTTP. The model calls are spans inside it."""

from collections.abc import Mapping

from . import conventions as names
from .content import MessageTexts
from .conventions import Attributes
from .operations import Around, Recorder

__all__ = ["RequestOperation"]


class RequestOperation(Around):
    """`POST /v1/messages`: one request. `route` is the path without names and ids, empty where there is none."""

    def __init__(
        self, recorder: Recorder, *, method: str, route: str, front: str, client: str, headers: Mapping[str, str]
    ) -> None:
        from opentelemetry import propagate

        method = method if method in names.METHODS else names.UNKNOWN_METHOD
        self.session_id = ""
        self.agent: Attributes = {}
        self.texts = MessageTexts()
        self._measured: Attributes = {names.METHOD: method, names.FRONT: front}
        if route:
            self._measured[names.ROUTE] = route
        attributes: Attributes = {**self._measured, "url.scheme": "http", names.CLIENT: client}
        name = f"{'HTTP' if method == names.UNKNOWN_METHOD else method} {route}".strip()
        super().__init__(recorder, name, attributes, inside=propagate.extract(headers), kind="SERVER")

    def end(self, status: int | None, *, error_type: str | None = None, key_name: str = "", way: str = "") -> None:
        """End it with the answer's status, None where the client left before it had one.

        `error_type` is why an answer ended early. A refused request is no error of the server, a status of 5xx is.
        """
        attributes: Attributes = {}
        if status is not None:
            attributes[names.STATUS] = self._measured[names.STATUS] = status
            error_type = error_type or (str(status) if status >= 500 else None)
        for name, value in ((names.CONVERSATION, self.session_id), (names.KEY_NAME, key_name), (names.WAY, way)):
            if value:
                attributes[name] = value
        self._end(attributes, error_type=error_type)

    def _measure(self, seconds: float, error: Attributes) -> None:
        self._recorder.request_seconds.record(seconds, self._measured | error)
