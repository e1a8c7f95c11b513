"""What a client's request says, ready to be recorded: its messages with their digests, its frame, its body. Pure."""

import base64
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import UnreadableData
from ..history import ClientRequestEntry, HistoryEntry
from ..history.exchanges import BodyChange, change_of
from .conversations import FRAME, Chain, Prefix, digest_prefixes, frame_of, mark_of
from .placing import last_request
from .seals import unseal

if TYPE_CHECKING:
    from ..message import Message
    from .asked import Asked

__all__ = ["Said"]

NAME_LIMIT = 120
_NO_NAME = re.compile(r"[^A-Za-z0-9._:-]+")


class Said:
    """A request as it is recorded.

    The digests begin with whose conversation it is: of a session that is joined, that session; else of the key, the
    conversation if the client names it, or else the program.
    """

    def __init__(self, asked: "Asked") -> None:
        self.asked = asked
        self.is_readable = asked.read is not None
        self.is_named = bool(asked.conversation) and not asked.session_id
        self.messages: tuple[Message, ...] = ()
        self.system: str | None = None
        self.frame = None if asked.read is None else frame_of(asked.read)
        seed: tuple[str, ...]
        if asked.session_id:
            seed = ("session", asked.session_id)
        elif asked.conversation:
            seed = ("conversation", asked.key_name, asked.conversation)
        else:
            seed = ("client", asked.key_name, asked.client or asked.api)
        self.chain = Chain(*seed)
        # The word by which stores find the first request of each session of a conversation that the client names.
        self.conversation_mark = f"conversation:{self.chain.digest}" if self.is_named else ""
        self.prefixes: dict[str, Prefix] = {}  # by their digests, shortest first
        if asked.read is not None:
            self.messages = unseal(asked.read.request.messages)
            self.system = asked.read.request.system
            for prefix in digest_prefixes(self.chain, self.messages):
                self.prefixes.pop(prefix.digest, None)  # of two with one digest the longer counts
                self.prefixes[prefix.digest] = prefix
        self.digest = self.chain.digest

    @property
    def mark(self) -> str:
        """The word by which stores find this request; empty where it says nothing."""
        return mark_of(self.digest) if self.prefixes else ""

    @property
    def program(self) -> str:
        """What kind of program asks, as a part of session ids."""
        return _NO_NAME.sub("-", self.asked.client or self.asked.api)[:NAME_LIMIT] or "client"

    @property
    def base_name(self) -> str:
        """What the ids of its sessions begin with; empty where the client does not name its conversation."""
        if self.asked.session_id:
            return self.asked.session_id[:NAME_LIMIT]
        name = _NO_NAME.sub("-", self.asked.conversation)[:NAME_LIMIT]
        return f"{self.program}-{name}" if name else ""

    def metadata(self, *, is_side: bool) -> dict[str, Any]:
        """Return what is noted of a session that begins with this request."""
        asked = self.asked
        noted = {"client": asked.client[:200], "conversation": asked.conversation[:200], "api": asked.api}
        if asked.key_name:
            noted["key"] = asked.key_name[:200]
        return {"gateway": noted, **({"side": True} if is_side else {})}

    def request_entry(
        self,
        entries: Sequence[HistoryEntry],
        *,
        marks: Sequence[str] = (),
        earlier: ClientRequestEntry | None = None,
    ) -> ClientRequestEntry:
        """Return the fact that this was asked, to follow these entries. It has what differs from an earlier request."""
        asked = self.asked
        noted: dict[str, Any] = {"program": asked.client[:200]}
        if self.frame is not None:
            noted[FRAME] = list(self.frame)
        try:
            body = asked.body.decode()
        except UnicodeDecodeError:
            body, noted["encoding"] = base64.b64encode(asked.body).decode(), "base64"
        path = f"{asked.path}?{asked.query}" if asked.query else asked.path
        return ClientRequestEntry(
            asked.api,
            path,
            asked.model,
            *_changed(entries, body, earlier or last_request(entries)),
            headers=asked.headers,
            client=asked.key_name,
            marks=tuple(mark for mark in marks if mark),
            metadata=noted,
        )


def _changed(entries: Sequence[HistoryEntry], body: str, earlier: ClientRequestEntry | None) -> BodyChange:
    try:
        return change_of(lambda serial: entries[serial] if serial < len(entries) else None, body, earlier)
    except UnreadableData:
        return BodyChange(body)
