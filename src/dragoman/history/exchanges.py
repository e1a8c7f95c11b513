"""What a client of the gateway asked and what it was answered, byte for byte: facts that never reach a provider.

A client sends its whole conversation with each request. A request therefore names an earlier one, and holds only what
differs from that one's body: `change_of` makes this form, `body_of` gives the body back.
"""

import re
import zlib
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import force_setattr

from .._frozen import frozen
from .._jsontext import join_surrogates
from ..errors import REDACTED, InvalidValue, UnreadableData, redact
from ..message import repair_names, require_bool
from ..usage import require_count
from .entrybase import HistoryEntry, HistoryEntryKind
from .facts import repair_texts

__all__ = ["MAX_BASES", "BodyChange", "ClientAnswerEntry", "ClientRequestEntry", "EntryLookup", "body_of", "change_of"]

MAX_BASES = 64  # requests that must be read before the body of one is known
MAX_MARKS = 8  # of one entry
MAX_MARK = 200  # characters
MAX_HEADERS = 100
MAX_ANSWER = 1 << 26  # bytes. The longest answers, pictures included, have a tenth of this

_LEAST_SHARED = 1_000  # characters. Below this, an entry with the whole body is about as short
_SECRET_HEADER = re.compile(r"auth|key$|token$|secret|password|credential|cookie", re.IGNORECASE)

EntryLookup: TypeAlias = Callable[[int], HistoryEntry | None]


class ClientRequestEntry(HistoryEntry, frozen=True):
    """A client of the gateway asked for an answer: the body of its request as it came.

    `base_serial` names an earlier request of the same session, or of the sessions that it was forked from. The body has
    the first `prefix` and the last `suffix` characters of that one's body, and `text` between them. Without a base,
    `text` is the whole body. `headers` say how the body is meant. Keys in them, and in `path`, are blanked out.
    `client` names the key that the client used. Stores find the entry by its `marks`.
    """

    kind: ClassVar[HistoryEntryKind] = HistoryEntryKind.CLIENT_REQUEST
    api: str
    path: str
    model: str
    text: str
    base_serial: int | None = None
    prefix: int = 0
    suffix: int = 0
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    method: str = "POST"
    client: str = ""
    marks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        HistoryEntry.__post_init__(self)
        repair_names(self, "api", "path", "method")
        repair_texts(self, "model", "text", "client")
        force_setattr(self, "path", redact(self.path))
        require_count("client_request.prefix", self.prefix)
        require_count("client_request.suffix", self.suffix)
        if self.base_serial is not None:
            require_count("client_request.baseSerial", self.base_serial)
        elif self.prefix or self.suffix:
            raise InvalidValue("client_request: prefix and suffix belong to a baseSerial, got them without one")
        _repair_headers(self, self.headers)
        _repair_marks(self, self.marks)


class ClientAnswerEntry(HistoryEntry, frozen=True):
    """What the gateway answered to a client: the very bytes.

    `request_serial` is the serial of the `ClientRequestEntry`, `model` the provider and the model that answered. An
    answer that is not whole was cut off, or its client left. `body` has at most `MAX_ANSWER` bytes; `packed` is the
    same as zlib compressed it, which is all that is kept in memory.
    """

    kind: ClassVar[HistoryEntryKind] = HistoryEntryKind.CLIENT_ANSWER
    request_serial: int
    status: int
    packed: bytes
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    model: str = ""
    is_whole: bool = True
    marks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        HistoryEntry.__post_init__(self)
        require_count("client_answer.requestSerial", self.request_serial)
        require_count("client_answer.status", self.status)
        if self.status > 999:
            raise InvalidValue.of("client_answer.status", self.status, "an HTTP status, of three digits")
        if type(self.packed) is not bytes:
            raise InvalidValue.of("client_answer.packed", self.packed, "bytes")
        repair_texts(self, "model")
        require_bool("client_answer.isWhole", self.is_whole)
        _repair_headers(self, self.headers)
        _repair_marks(self, self.marks)

    @classmethod
    def of(cls, request_serial: int, status: int, body: bytes, **fields: Any) -> "ClientAnswerEntry":
        """Return the answer with this body; `fields` are those of the entry. Raises InvalidValue for a longer one."""
        if type(body) is not bytes or len(body) > MAX_ANSWER:
            raise InvalidValue(f"client_answer: a body must be at most {MAX_ANSWER:,} bytes")
        return cls(request_serial, status, zlib.compress(body, 1), **fields)

    @property
    def body(self) -> bytes:
        """The bytes that the client got; raise UnreadableData where they are damaged."""
        reader = zlib.decompressobj()
        try:
            body = reader.decompress(self.packed, MAX_ANSWER + 1)
        except zlib.error:
            raise UnreadableData("client_answer.packed is not what zlib compressed") from None
        if len(body) > MAX_ANSWER or not reader.eof or reader.unused_data:
            raise UnreadableData(f"client_answer.packed is not one whole stream of at most {MAX_ANSWER:,} bytes")
        return body


class BodyChange(NamedTuple):
    """The fields of a `ClientRequestEntry` that give its body, in their order there."""

    text: str
    base_serial: int | None = None
    prefix: int = 0
    suffix: int = 0


def body_of(lookup: EntryLookup, entry: ClientRequestEntry) -> str:
    """Return the body of a request. `lookup` gives the entry of the session at a serial, None if there is none.

    Raises UnreadableData if a base is missing, is no request, or does not fit.
    """
    (first, *changed) = reversed(_with_bases(lookup, entry))
    body = first.text
    for change in changed:
        if change.prefix + change.suffix > len(body):
            raise UnreadableData(f"client_request {change.serial}: its base is shorter than what they share")
        body = body[: change.prefix] + change.text + body[len(body) - change.suffix :]
    return body


def change_of(lookup: EntryLookup, body: str, earlier: ClientRequestEntry | None) -> BodyChange:
    """Return the short form of a new request's body: what differs from an earlier request of the session.

    It is the whole body if there is no earlier request, if the two share little, or if the earlier one has `MAX_BASES`
    bases already. Raises UnreadableData if the body of the earlier one cannot be read.
    """
    body = join_surrogates(body)
    if earlier is None or len(_with_bases(lookup, earlier)) > MAX_BASES:
        return BodyChange(body)
    base = body_of(lookup, earlier)
    shortest = min(len(base), len(body))
    prefix = _longest(shortest, lambda low, high: base[low:high] == body[low:high])
    suffix = _longest(
        shortest - prefix,
        lambda low, high: base[len(base) - high : len(base) - low] == body[len(body) - high : len(body) - low],
    )
    if prefix + suffix < _LEAST_SHARED:
        return BodyChange(body)
    return BodyChange(body[prefix : len(body) - suffix], earlier.serial, prefix, suffix)


def _with_bases(lookup: EntryLookup, entry: ClientRequestEntry) -> list[ClientRequestEntry]:
    """The request, then each one that the one before it builds on. The last has its whole body."""
    chain = [entry]
    while (serial := chain[-1].base_serial) is not None:
        base = lookup(serial) if serial < chain[-1].serial else None
        if not isinstance(base, ClientRequestEntry) or base.serial != serial:
            raise UnreadableData(f"client_request {chain[-1].serial}: serial {serial} is no earlier request")
        if len(chain) > MAX_BASES:
            raise UnreadableData(f"client_request {entry.serial}: it builds on more than {MAX_BASES} others")
        chain.append(base)
    return chain


def _longest(limit: int, is_same: Callable[[int, int], bool]) -> int:
    """How many characters two texts share from one end on. `is_same` compares the characters from `low` to `high`."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if is_same(low, middle):
            low = middle
        else:
            high = middle - 1
    return low


def _repair_headers(entry: HistoryEntry, headers: object) -> None:
    """Require texts by name, and blank out what may be a key."""
    if not isinstance(headers, dict) or not all(type(word) is str for pair in headers.items() for word in pair):
        raise InvalidValue(f"{entry.kind}.headers must be texts by name")
    if len(headers) > MAX_HEADERS:
        raise InvalidValue(f"{entry.kind}.headers must be at most {MAX_HEADERS}, got {len(headers)}")
    repaired = {join_surrogates(name): join_surrogates(value) for name, value in headers.items()}
    kept = {name: REDACTED if _SECRET_HEADER.search(name) else redact(value) for name, value in repaired.items()}
    force_setattr(entry, "headers", frozen(kept))


def _repair_marks(entry: HistoryEntry, marks: object) -> None:
    """Require words that every store can find; one that comes twice is kept once."""
    if not isinstance(marks, (tuple, list)) or not all(type(mark) is str for mark in marks):
        raise InvalidValue(f"{entry.kind}.marks must be a sequence of texts")
    words = tuple(dict.fromkeys(join_surrogates(mark) for mark in marks))
    for word in words:
        if not word.strip() or len(word) > MAX_MARK or not word.isprintable():
            raise InvalidValue.of(f"{entry.kind}.marks", word, f"words of at most {MAX_MARK} printable characters")
    if len(words) > MAX_MARKS:
        raise InvalidValue(f"{entry.kind}.marks must be at most {MAX_MARKS}, got {len(words)}")
    force_setattr(entry, "marks", words)
