"""A client's messages as digests, and answers compared. Pure: knows no store and no wire API.

A client sends its whole conversation with each request. Each beginning of it has a digest, so that a store finds the
turn that a request continues. Clients write one message in several ways: the digests do not see ids of calls, thinking,
signatures, cache marks, empty texts, and where a text is cut into parts.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from operator import attrgetter
from typing import Any, NamedTuple

from ..._jsontext import sorted_json
from ...history import HistoryEntry
from ...message import FileRef, Image, Message, Part, ProviderItem, Role, Text, Thinking, ToolCall, ToolResult
from ...request import ReadRequest
from ...wire.request_reading import CACHE_MARKS

__all__ = [
    "FRAME",
    "Chain",
    "Frame",
    "Prefix",
    "answer_key",
    "digest_prefixes",
    "frame_of",
    "is_same_answer",
    "mark_of",
    "whole_parts",
]

DIGITS = 40  # of a digest, in hexadecimal
FRAME = "frame"  # the key in a request's metadata that has its frame, as a list
EXACT = 2**53  # JavaScript clients write smaller whole numbers without a point
# The first paragraph of Claude Code's system text. It differs between conversations that say the same.
BILLING_LINE = "x-anthropic-billing-header"
# No text in UTF-8 has this byte, so that no text can look like a call, a result or another speaker.
_BREAK = b"\xff"
_name_of = attrgetter("name")


class Prefix(NamedTuple):
    """A beginning of a conversation: all messages before `message`, and the first `parts` parts of that one."""

    digest: str
    message: int
    parts: int

    def rest_of(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """Return what comes after it."""
        if not self.parts:
            return tuple(messages[self.message :])
        begun = messages[self.message]
        rest = (Message(begun.role, begun.parts[self.parts :], begun.run_id, begun.timestamp, begun.meta),)
        return (*rest, *messages[self.message + 1 :])


class Chain:
    """The digest of a conversation that grows. Assistant messages in a row count as one answer.

    `seed` says whose conversation it is: equal messages of two seeds have different digests.
    """

    __slots__ = ("_answer", "_hash", "_role")

    def __init__(self, *seed: str) -> None:
        self._hash = sha256(b"".join(word.encode("utf-8", "surrogatepass") + _BREAK for word in seed))
        self._role = ""
        self._answer: _AnswerKey | None = None

    @property
    def digest(self) -> str:
        """The digest of what was added so far."""
        if self._answer is None:
            return self._hash.hexdigest()[:DIGITS]
        grown = self._hash.copy()
        grown.update(self._answer.digest())
        return grown.hexdigest()[:DIGITS]

    def copy(self) -> "Chain":
        """Return a chain that grows by itself."""
        chain = Chain.__new__(Chain)
        chain._hash, chain._role = self._hash.copy(), self._role
        chain._answer = None if self._answer is None else self._answer.copy()
        return chain

    def add(self, message: Message) -> Iterator[int]:
        """Add a message. Yield how many of its parts are added, each time that the digest may have changed."""
        if message.role is Role.ASSISTANT:
            self._add_answer(message.parts)
            yield len(message.parts)
            return
        # A system message inside a conversation is recorded as what a user says.
        role = Role.TOOL if message.role is Role.TOOL else Role.USER
        for count, part in enumerate(message.parts, 1):
            if said := _normal(part):
                self._end_answer()
                if role != self._role:
                    self._hash.update(_BREAK + role.encode() + _BREAK)
                    self._role = role
                self._hash.update(said)
                yield count

    def after(self, answer: Message) -> str:
        """Return the digest that this conversation has when a model has given this answer."""
        grown = self.copy()
        grown._add_answer(answer.parts)
        return grown.digest

    def _add_answer(self, parts: Iterable[Part]) -> None:
        grown = self._answer or _AnswerKey()
        grown.add(parts)
        self._answer = None if grown.is_empty else grown

    def _end_answer(self) -> None:
        if self._answer is not None:
            self._hash.update(self._answer.digest())
            self._answer, self._role = None, ""


def digest_prefixes(chain: Chain, messages: Iterable[Message]) -> list[Prefix]:
    """Add the messages to a chain and return each prefix of them that a request may have ended with, shortest first."""
    found: list[Prefix] = []
    for index, message in enumerate(messages):
        for parts in chain.add(message):
            place = (index + 1, 0) if parts == len(message.parts) else (index, parts)
            found.append(Prefix(chain.digest, *place))
    return found


def mark_of(digest: str) -> str:
    """Return the word by which stores find the turn that a conversation of this digest ended with."""
    return f"turn:{digest}"


# ---------------------------------------------------------------- answers


class _AnswerKey:
    """The digest of one answer: its text without space around it, and its calls. Each grows by itself.

    Some APIs keep texts and calls apart, so that their order is lost.
    """

    __slots__ = ("_calls", "_held", "_text", "is_empty")

    def __init__(self) -> None:
        self.is_empty = True
        self._text, self._calls = sha256(), sha256()
        self._held: list[str] = []  # space that counts only if more text comes

    def add(self, parts: Iterable[Part]) -> None:
        for part in parts:
            if isinstance(part, Text):
                self._add_text(part.text)
            elif isinstance(part, ToolCall):
                self._calls.update(_BREAK + _encoded(part.tool_name) + _BREAK + _arguments(part))
                self.is_empty = False
            elif isinstance(part, Image):
                self._calls.update(_normal(part))
                self.is_empty = False

    def _add_text(self, text: str) -> None:
        said = text.rstrip()
        if said:
            is_first = not self._held
            self._text.update(_encoded("".join(self._held) + said if not is_first else said.lstrip()))
            self._held = [text[len(said) :]]
            self.is_empty = False
        elif self._held:
            self._held.append(text)

    def digest(self) -> bytes:
        return _BREAK + self._text.digest() + self._calls.digest()

    def copy(self) -> "_AnswerKey":
        other = _AnswerKey.__new__(_AnswerKey)
        other._text, other._calls = self._text.copy(), self._calls.copy()
        other._held, other.is_empty = [*self._held], self.is_empty
        return other


def answer_key(parts: Iterable[Part]) -> bytes:
    """Return what two answers have in common that say the same; empty for one that says nothing."""
    key = _AnswerKey()
    key.add(parts)
    return b"" if key.is_empty else key.digest()


def is_same_answer(recorded: Sequence[Part], said: Sequence[Part]) -> bool:
    """Whether a client repeats a recorded answer. It may leave out calls whose arguments never became whole."""
    key = answer_key(said)
    return key == answer_key(recorded) or key == answer_key(whole_parts(recorded))


def whole_parts(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Return the parts without calls whose arguments did not parse."""
    return tuple(part for part in parts if not isinstance(part, ToolCall) or part.arguments is not None)


# ---------------------------------------------------------------- parts


def _normal(part: Part) -> bytes:
    """Return the bytes of a user's or a tool's part for the digest; empty if it does not count."""
    match part:
        case Text():
            return _encoded(part.text) if part.text.strip() else b""
        case ToolResult():
            return _BREAK + b"result" + _BREAK + _result(part)
        case Image() | FileRef():
            return _BREAK + b"medium" + _BREAK + _medium(part)
        case Thinking() | ToolCall() | ProviderItem():
            return b""
        case _:
            return _BREAK + _encoded(part.kind) + _BREAK + sorted_json(_without_marks(part.payload))


def _result(result: ToolResult) -> bytes:
    content = result.content
    if isinstance(content, str):
        return _encoded(content)
    if isinstance(content, dict):
        return sorted_json(content)
    texts = "\n\n".join(part.text for part in content if isinstance(part, Text))
    return _encoded(texts) + b"".join(_normal(part) for part in content if not isinstance(part, Text))


def _medium(part: Image | FileRef) -> bytes:
    if part.data is not None:
        return sha256(part.data).digest()
    named = part.url if isinstance(part, Image) else part.url or part.file_id or part.path
    return _encoded(named or "")


def _arguments(call: ToolCall) -> bytes:
    """The arguments as JSON; the model's own text where it is none, which encoders send in an object."""
    arguments = call.arguments
    if arguments is None:
        return _encoded(call.raw_args_text)
    if arguments.keys() == {"unparsed_arguments"} and isinstance(raw := arguments["unparsed_arguments"], str):
        return _encoded(raw)
    written = sorted_json(arguments)
    return sorted_json(_with_whole_numbers(arguments)) if b".0" in written or b"e" in written else written


def _with_whole_numbers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) < EXACT:
        return int(value)
    if isinstance(value, dict):
        return {name: _with_whole_numbers(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_whole_numbers(item) for item in value]
    return value


def _without_marks(payload: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in payload.items() if name not in CACHE_MARKS}


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


# ---------------------------------------------------------------- what a conversation is asked with


class Frame(NamedTuple):
    """What a request has beside its messages: digests of its system text and its tools, and how many tools."""

    system: str
    tools: str
    tool_count: int

    def shares_nothing(self, other: "Frame") -> bool:
        """Whether system text and tools are both others."""
        return self.system != other.system and self.tools != other.tools

    def is_side_of(self, other: "Frame") -> bool:
        """Whether the same words under this frame ask for something else: a title, or the start of a helper."""
        return self.system != other.system and (self.tool_count < other.tool_count or not other.tool_count)

    def likeness(self, other: "Frame") -> int:
        """Return how many of the two are the same."""
        return (self.system == other.system) + (self.tools == other.tools)

    @classmethod
    def of(cls, request: HistoryEntry) -> "Frame | None":
        """Return the frame that is noted with a request; None if there is none."""
        match request.metadata.get(FRAME):
            case [str(system), str(tools), int(tool_count)]:
                return cls(system, tools, tool_count)
            case _:
                return None


def frame_of(read: ReadRequest) -> Frame:
    """Return the frame of a request."""
    system = read.request.system or ""
    if system.startswith(BILLING_LINE):
        system = system.partition("\n\n")[2]
    tools = [(tool.name, tool.description, tool.parameter_schema) for tool in sorted(read.request.tools, key=_name_of)]
    hosted = [(tool.kind, tool.options) for tool in read.hosted_tools]
    return Frame(_short(_encoded(system)), _short(sorted_json([tools, hosted])), len(tools) + len(hosted))


def _short(data: bytes) -> str:
    return sha256(data).hexdigest()[:16]
