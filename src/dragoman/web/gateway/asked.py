"""The two values of an exchange with a client: what it asked, and what it was given."""

from datetime import datetime

import msgspec

from ...errors import DragomanError
from ...request import ReadRequest
from ...stream import Assembly

__all__ = ["PASSED", "Asked", "Given"]

PASSED = "passed"  # noted with an answer whose bytes are the vendor's own


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a client, as it came and as it was read.

    `read` is None where it cannot be read here; `problem` says why. `client` is what kind of program asks, `key_name`
    which of the server's keys it used, `conversation` its own name for the conversation. `session_id` is a session that
    it joins. `previous` is the id of a response that it continues; with `knows_previous`, `read` has that conversation.
    `keeper` is the provider that gave that response its id, if it was not this gateway. A key in the query is left out.
    """

    api: str
    path: str
    model: str
    query: str = ""
    body: bytes
    headers: dict[str, str]
    read: ReadRequest | None
    problem: DragomanError | None = None
    is_stream: bool = False
    client: str = ""
    key_name: str = ""
    conversation: str = ""
    session_id: str = ""
    previous: str = ""
    knows_previous: bool = False
    keeper: str = ""


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What the gateway answered, as bytes and as it was read. `model` is `provider:model`.

    `is_whole`: the answer came to its end, with a finish or with an error of its own. `is_passed`: its bytes are those
    of the vendor. `asked_at` is when the model was asked, `tried` tells of models that failed before. Stores find it by
    `marks`.
    """

    status: int
    body: bytes
    headers: dict[str, str]
    model: str
    assembly: Assembly | None
    is_whole: bool
    is_passed: bool = False
    asked_at: datetime | None = None
    tried: tuple[dict[str, str | int], ...] = ()
    marks: tuple[str, ...] = ()
