"""What a client's request says, ready to be recorded: its messages with their digests, its frame, its body."""

import asyncio
import base64
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...errors import UnreadableData
from ...history import ClientRequestEntry, HistoryEntry
from ...history.exchanges import BodyChange, change_of
from .canonical import body_mark
from .conversations import FRAME, Chain, Frame, Prefix, digest_prefixes, frame_of, mark_of
from .placing import last_request
from .reading import LARGE
from .seals import unseal

if TYPE_CHECKING:
    from ...message import Message
    from .asked import Asked

__all__ = ["Said"]

LONGEST = 100  # characters of a name, in ids and metadata
_NO_NAME = re.compile(r"[^A-Za-z0-9._:-]+")


class Said:
    """A request as it is recorded.

    The digests begin with whose conversation it is: a session that is joined has its own. Otherwise it is that of the
    key, and of the conversation if the client names it, or else of the program.
    """

    def __init__(self, asked: "Asked") -> None:
        self.asked = asked
        self.is_readable = asked.read is not None
        self.is_named = bool(asked.conversation) and not asked.session_id
        self.messages: tuple[Message, ...] = () if asked.read is None else asked.read.request.messages
        self.system = None if asked.read is None else asked.read.request.system
        self.frame: Frame | None = None
        self.chain = Chain(*self._seed())
        # The word by which stores find the first request of each session of a conversation that the client names.
        self.conversation_mark = f"conversation:{self.chain.digest}" if self.is_named else ""
        self.prefixes: dict[str, Prefix] = {}  # by their digests, shortest first
        self.digest = ""
        self.body_mark = ""  # the word by which stores find the answers to this body

    async def read(self) -> None:
        """Make the digests: those of a large body in a thread, beside other clients."""
        if len(self.asked.body) > LARGE:
            await asyncio.to_thread(self._read)
        else:
            self._read()

    def _read(self) -> None:
        self.body_mark = body_mark(self.asked)
        if self.asked.read is not None:
            self.messages = unseal(self.messages)
            self.frame = frame_of(self.asked.read)
            for prefix in digest_prefixes(self.chain, self.messages):
                self.prefixes.pop(prefix.digest, None)  # of two with one digest the longer counts
                self.prefixes[prefix.digest] = prefix
        self.digest = self.chain.digest

    def _seed(self) -> tuple[str, ...]:
        asked = self.asked
        if asked.session_id:
            return ("session", asked.session_id)
        if asked.conversation:
            return ("conversation", asked.key_name, asked.conversation)
        return ("client", asked.key_name, asked.client or asked.api)

    @property
    def mark(self) -> str:
        """The word by which stores find this request; empty where it says nothing."""
        return mark_of(self.digest) if self.prefixes else ""

    @property
    def program(self) -> str:
        """What kind of program asks, as a part of session ids."""
        return _NO_NAME.sub("-", self.asked.client or self.asked.api)[:LONGEST] or "client"

    @property
    def base_name(self) -> str:
        """What the ids of its sessions begin with; empty where the client does not name its conversation."""
        if self.asked.session_id:
            return self.asked.session_id[:LONGEST]
        name = _NO_NAME.sub("-", self.asked.conversation)[:LONGEST]
        return f"{self.program}-{name}" if name else ""

    def metadata(self, *, is_side: bool) -> dict[str, Any]:
        """Return what is noted of a session that begins with this request."""
        asked = self.asked
        noted = {"client": asked.client[:LONGEST], "conversation": asked.conversation[:LONGEST], "api": asked.api}
        if asked.key_name:
            noted["key"] = asked.key_name[:LONGEST]
        return {"gateway": noted, **({"side": True} if is_side else {})}

    def request_entry(self, entries: Sequence[HistoryEntry], *, marks: Sequence[str] = ()) -> ClientRequestEntry:
        """Return the fact that this was asked, to follow these entries. It has what differs from the last request."""
        asked = self.asked
        noted: dict[str, Any] = {"program": asked.client[:LONGEST]}
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
            *_changed(entries, body, last_request(entries)),
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
