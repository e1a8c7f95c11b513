"""What can go wrong, as codes and one exception tree, and the redaction of secrets.

    DragomanError                    code, retryable, retry_after, request_id, provider_message
    ├── InvalidValue    (ValueError)   a value its own kind or role forbids
    │   └── IllegalAppend              an entry that a rule of the history forbids
    ├── UnreadableData  (ValueError)   JSON or a file that is damaged, or newer than this library
    ├── ContractViolation              a delta that the stream protocol does not allow here
    ├── MissingExtra    (ImportError)  an optional package is not installed
    ├── ModelError                     a call to a model failed; carries any of the model codes
    ├── ToolError                      a tool call ended without success
    │   └── RetryTool                  the tool asks the model for another try
    ├── agent.RunFailed                a run has no output; carries its result
    ├── durable.EngineError            an engine cannot be reached, or refuses
    ├── durable.UnknownAgent           no agent of that name is registered here
    └── StoreError                     a session store refused or lost something
        ├── store.AppendConflict       another writer has appended; carries the new head
        ├── store.LeaseLost            another owner has taken the session over
        ├── store.RequestKeyTaken      a run was requested with this key before; carries the request
        └── store.SessionBusy          a run holds the session; carries its lease

Knows nothing of messages, providers or the network.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from enum import StrEnum
from functools import cache, wraps
from typing import TYPE_CHECKING, ClassVar, NamedTuple, ParamSpec, TypeVar

if TYPE_CHECKING:
    import asyncio

__all__ = [
    "RETRYABLE_CODES",
    "ContractViolation",
    "DragomanError",
    "ErrorCode",
    "IllegalAppend",
    "InvalidValue",
    "MissingExtra",
    "ModelError",
    "RetryTool",
    "StoreError",
    "ToolError",
    "UnreadableData",
    "redact",
]


class ErrorCode(StrEnum):
    """Every way a call, a tool or a store can fail, one word each."""

    AUTHENTICATION = "authentication"
    PERMISSION = "permission"
    INVALID_REQUEST = "invalid_request"
    NOT_FOUND = "not_found"
    UNSUPPORTED = "unsupported"
    RATE_LIMITED = "rate_limited"
    QUOTA_EXCEEDED = "quota_exceeded"
    OVERLOADED = "overloaded"
    SERVER_ERROR = "server_error"
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    CONTEXT_OVERFLOW = "context_overflow"
    CONTENT_FILTERED = "content_filtered"
    STREAM_TRUNCATED = "stream_truncated"
    PROTOCOL_VIOLATION = "protocol_violation"
    CANCELLED = "cancelled"
    INTERNAL = "internal"

    UNKNOWN_TOOL = "unknown_tool"
    INVALID_ARGUMENTS = "invalid_arguments"
    TOOL_FAILED = "tool_failed"
    TOOL_TIMEOUT = "tool_timeout"
    TOOL_DENIED = "tool_denied"
    TOOL_INTERRUPTED = "tool_interrupted"

    OUTPUT_CUT = "output_cut"
    OUTPUT_UNFINISHED = "output_unfinished"
    LIMIT_REACHED = "limit_reached"
    GIVEN_UP = "given_up"
    INVALID_OUTPUT = "invalid_output"

    CONFLICT = "conflict"
    CORRUPT = "corrupt"
    TOO_NEW = "too_new"
    BUSY = "busy"


# The same request, sent again unchanged, may succeed.
RETRYABLE_CODES = frozenset(
    {
        ErrorCode.RATE_LIMITED,
        ErrorCode.OVERLOADED,
        ErrorCode.SERVER_ERROR,
        ErrorCode.TIMEOUT,
        ErrorCode.CONNECTION,
        ErrorCode.STREAM_TRUNCATED,
    }
)

PROVIDER_MESSAGE_LIMIT = 2_000

REDACTED = "[redacted]"

# What a secret looks like, in three alternatives: what a vendor's keys begin with; what a name before it says; what
# stands around it. Runs are possessive or bounded, so that hostile text costs linear time.
_LEFT = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"  # a key also stands right after an escaped line break
_SECRETS = rf"""
    {_LEFT}(?:
        sk-(?:[A-Za-z0-9_-]{{20,}}|(?=[A-Za-z_-]{{0,19}}[0-9])[A-Za-z0-9_-]{{8,}})   # OpenAI, Anthropic, DeepSeek
      | (?:gsk|hf|fw|r8|tgp_v1)_[A-Za-z0-9_-]{{16,}}              # Groq, Hugging Face, Fireworks, Replicate
      | (?:xai|pplx|nvapi|csk|tvly|glpat)-[A-Za-z0-9_-]{{16,}}    # xAI, Perplexity, NVIDIA, Cerebras, Tavily
      | (?:gh[pousr]_|github_pat_|xox[abeprs]-)[A-Za-z0-9_-]{{8,}}
      | (?:AKIA|ASIA)[A-Z0-9]{{12,}} | ABSK[A-Za-z0-9+/=]{{16,}}  # AWS: a key's id, a Bedrock key
      | AIza[A-Za-z0-9_-]{{16,}} | ya29\.[A-Za-z0-9_.-]{{8,}}     # Google: a key, an access token
    )
  | (?:(?<![A-Za-z0-9_-])|(?<=\\[nrt]))eyJ[A-Za-z0-9_-]{{4,}}+\.[A-Za-z0-9_-]{{4,}}+(?:\.[A-Za-z0-9_-]*+)?   # a JWT
  | -----BEGIN[ A-Z]{{0,40}}PRIVATE\ KEY-----(?:(?!-----END)[\s\S])*+(?:-----END[ A-Z]{{0,40}}PRIVATE\ KEY-----)?
  | (?P<name>(?i:
        (?:api[_-]?key | access[_-]?key | secret(?:[_-]?(?:access[_-]?)?key)? | private[_-]?key | passw(?:or)?d
          | (?:auth|access|refresh|session|id|security|api|hf)[_-]?token
          | passphrase | pwd | authorization | x-amz-(?:signature|credential))
        (?:\\*["'])?\s{{0,4}}[:=]\s{{0,4}}
        (?:(?:\\*["'])?(?:bearer|basic|token|digest|apikey)\s{{1,4}})?+
    ))(?!\[redacted\])(?:(?P<quote>\\*")[^"\n]++ | (?P<apostrophe>\\*')[^'\n]++ | [^\s"',;&}})\]]{{4,}}+)
  | (?P<scheme>(?i:bearer|basic)\s{{1,4}})(?:
        [A-Za-z0-9+/=._~-]{{20,}}+ | (?=[A-Za-z+/=._~-]{{0,19}}[0-9])[A-Za-z0-9+/=._~-]{{8,}}+
    )
  | (?P<url>://[^\s/:@]{{0,128}}:)[^\s/@]++(?=@)                  # user:password@host
  | (?P<query>[?&](?i:key|token|sig)=)[^\s&"']{{4,}}+
    """
_KEPT = ("name", "scheme", "url", "query", "quote", "apostrophe")


def redact(text: str) -> str:
    """Return `text` with everything that looks like a key, token or password blanked out."""
    return _secrets().sub(lambda found: "".join(found[part] or "" for part in _KEPT) + REDACTED, text)


@cache  # compiled when it is first needed: that takes a quarter of the time that the package takes to load
def _secrets() -> re.Pattern[str]:
    return re.compile(_SECRETS, re.VERBOSE)


def redact_provider_message(text: str) -> str:
    """Return a provider's own words as they may be kept: secrets blanked out first, then capped."""
    return redact(text[: 32 * PROVIDER_MESSAGE_LIMIT])[:PROVIDER_MESSAGE_LIMIT]


class Secrets:
    """Texts that were given for one receiver alone, such as keys: hides them in what comes back, and shows none.

    Only what is long enough to be one is hidden: placeholders such as `EMPTY`, `none` or `not-needed` are words of
    ordinary text. What has no letter may be part of a number.
    """

    __slots__ = ("_words",)

    def __init__(self, values: Iterable[str] = ()) -> None:
        # Also the parts of a value: `Bearer abc` is told by `abc`.
        found = {word for value in values for word in (value, *_SEPARATORS.split(value)) if _may_be_secret(word)}
        self._words = sorted(found, key=len, reverse=True)

    def __repr__(self) -> str:
        return f"<Secrets {len(self._words)}>"

    def __bool__(self) -> bool:
        return bool(self._words)

    def hide(self, text: str) -> str:
        """Return words for people without them, and without whatever else looks like a secret."""
        return redact(self.hide_exactly(text))

    def hide_exactly(self, text: str) -> str:
        """Return a text without them, and without most of one where the text may be cut; otherwise as it is."""
        return self.hide_pieces((text,))[0]

    def hide_pieces(self, texts: Sequence[str]) -> list[str]:
        """Return texts that are read joined, each without its share of a secret.

        A text may be cut inside a secret, so that most of one is hidden too: its beginning where a text ends, its end
        where a text begins. The first share becomes `[redacted]`, the further shares become empty.
        """
        joined = "".join(texts)
        spans = [span for word in self._words for span in _spans(word, joined)]
        start = 0
        for text in texts if len(texts) > 1 else ():
            spans += [(start + first, start + end) for word in self._words for first, end in _cut_spans(word, text)]
            start += len(text)
        return _blanked(texts, _merged(spans)) if spans else list(texts)

    def hide_in(self, data: bytes) -> bytes:
        """Return data without them, JSON included; the very same data if it holds none."""
        for word in self._words:
            for form in {word.encode(), _escaped(word).encode()}:
                if form in data:
                    data = data.replace(form, REDACTED.encode())
        return data


_SEPARATORS = re.compile(r"[\s,;=]+")
_SHORTEST_PIECE = 12  # characters of a secret that was cut; a shorter piece may be ordinary text


def _spans(word: str, text: str) -> list[tuple[int, int]]:
    """Where a secret is in a text, and where most of it is at one of the text's ends."""
    found = [(at.start(), at.end()) for at in re.finditer(re.escape(word), text)] if word in text else []
    return found + _cut_spans(word, text)


def _cut_spans(word: str, text: str) -> list[tuple[int, int]]:
    least = max(_SHORTEST_PIECE, len(word) // 2 + 1)
    lengths = range(len(word) - 1, least - 1, -1)
    found = []
    if word[:least] in text[-len(word) :]:
        found = [(len(text) - length, len(text)) for length in lengths if text.endswith(word[:length])][:1]
    if word[-least:] in text[: len(word)]:
        found += [(0, length) for length in lengths if text.startswith(word[-length:])][:1]
    return found


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for first, end in sorted(spans):
        if merged and first < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((first, end))
    return merged


def _blanked(texts: Sequence[str], spans: list[tuple[int, int]]) -> list[str]:
    """The texts without these spans of the joined text. The spans are in order, and none overlap."""
    blanked, start, index = [], 0, 0
    for text in texts:
        kept, at, end = [], start, start + len(text)
        while index < len(spans) and spans[index][0] < end:
            first, last = spans[index]
            kept += [text[at - start : max(first, at) - start], REDACTED if first >= start else ""]
            at = min(last, end)
            if last > end:
                break  # the next text has its rest
            index += 1
        blanked.append("".join(kept) + text[at - start :])
        start = end
    return blanked


def _may_be_secret(word: str) -> bool:
    has_letter = any(map(str.isalpha, word))
    return has_letter and (len(word) >= 16 or (len(word) >= 8 and any(map(str.isdigit, word))))


def _escaped(word: str) -> str:
    return word.replace("\\", "\\\\").replace('"', '\\"')


_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")


def forget_arguments(function: Callable[_Given, _Made]) -> Callable[_Given, _Made]:
    """Return the function, but its exceptions hold no arguments: error reporters collect local variables."""

    @wraps(function)
    def call(*args: _Given.args, **kwargs: _Given.kwargs) -> _Made:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            del args, kwargs
            _clear_frames(error)
            raise

    return call


def _clear_frames(error: BaseException) -> None:
    import traceback

    chain: list[BaseException | None] = [error]
    seen: set[int] = set()
    while chain:
        link = chain.pop()
        if link is not None and id(link) not in seen:
            seen.add(id(link))
            traceback.clear_frames(link.__traceback__)
            chain += [link.__cause__, link.__context__]


class DragomanError(Exception):
    """Root of every error raised here. `str(error)` holds neither keys nor the provider's words."""

    default_code: ClassVar[ErrorCode] = ErrorCode.INTERNAL

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode | None = None,
        retryable: bool | None = None,
        retry_after: float | None = None,
        request_id: str | None = None,
        provider_message: str | None = None,
    ) -> None:
        if not isinstance(message, str):
            raise InvalidValue.of(f"the message of {type(self).__name__}", message, "text")
        super().__init__(redact(message))
        self.code = code or self.default_code
        self.retryable = self.code in RETRYABLE_CODES if retryable is None else retryable
        self.retry_after = retry_after
        self.request_id = redact(request_id) if request_id else request_id
        self.provider_message = redact_provider_message(provider_message) if provider_message else None


class InvalidValue(DragomanError, ValueError):
    """A value that its own kind or role forbids: the message says which field, what was given, what is allowed."""

    default_code = ErrorCode.INVALID_REQUEST

    # The same without the value, for fields whose value may be content.
    unquoted: str | None = None

    @classmethod
    def of(cls, field: str, value: object, allowed: str) -> "InvalidValue":
        """Return the error for one field, with the value in it if that is short."""
        error = cls(f"{field} must be {allowed}, got {_quoted(value)}")
        error.unquoted = f"{field} must be {allowed}, got a {type(value).__name__}"
        return error

    @classmethod
    def of_content(cls, field: str, value: object, allowed: str) -> "InvalidValue":
        """Return the error for a field that holds what people or models said: text is not quoted."""
        return cls(f"{field} must be {allowed}, got {'a str' if isinstance(value, str) else _quoted(value)}")


def running_loop() -> "asyncio.AbstractEventLoop":
    """Return the asyncio event loop that runs here; raise InvalidValue if there is none, as under trio."""
    import asyncio

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise InvalidValue(
            "Dragoman needs asyncio, and no asyncio event loop runs here: use asyncio.run(), or run_sync() or"
            " stream_sync() of an agent."
            " Under trio, run it in a thread: await trio.to_thread.run_sync(agent.run_sync, prompt)"
        ) from None


def _quoted(value: object) -> str:
    is_short_text = isinstance(value, str) and len(value) <= 40
    is_number = isinstance(value, float) or (isinstance(value, int) and abs(value) < 10**40)
    return repr(value) if value is None or is_short_text or is_number else f"a {type(value).__name__}"


class IllegalAppend(InvalidValue):
    """An entry that the history does not take, here or at all; `rule` is the name of the rule it breaks."""

    def __init__(self, message: str, *, rule: str = "") -> None:
        super().__init__(f"{rule}: {message}" if rule else message)
        self.rule = rule


class UnreadableData(DragomanError, ValueError):
    """JSON or a file that is damaged (`corrupt`), or written by a later version (`too_new`)."""

    default_code = ErrorCode.CORRUPT


class ContractViolation(DragomanError):
    """A delta that the stream protocol does not allow at this point."""

    default_code = ErrorCode.PROTOCOL_VIOLATION


class MissingExtra(DragomanError, ImportError):
    """An optional package is not installed; the message is the line that installs it."""

    default_code = ErrorCode.UNSUPPORTED

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an optional package: pip install 'dragoman[{extra}]'")
        self._made_of = (feature, extra)

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), self._made_of


class ModelError(DragomanError):
    """A call to a model failed; `code` says how, `retryable` whether the same request may yet succeed."""


class ToolError(DragomanError):
    """A tool call ended without success."""

    default_code = ErrorCode.TOOL_FAILED


class RetryTool(ToolError):
    """Raised by a tool: the model gets the reason, and is asked to call the tool again.

    After `ToolsConfig.retry_limit` tries in a row the model is told to go on without it.
    """


class StoreError(DragomanError):
    """A session store refused an append, or found its data changed."""

    default_code = ErrorCode.CORRUPT


# ---------------------------------------------------------------- exceptions of the user's code


class _RaisedFields(NamedTuple):
    where: str
    error_type: str


class Raised(_RaisedFields):
    """An exception that code of the user raised in a run: where, and its type. The log has its traceback.

    `error` is the exception itself. Copies in other processes have None there.
    """

    error: BaseException | None = None

    def __reduce__(self) -> tuple[type["Raised"], tuple[str, ...]]:
        return type(self), tuple(self)


class RaisedList(list[Raised]):
    """What was raised in one run. With `shows_words` the log has the words of the exceptions too."""

    shows_words = False


# What was raised in the run that this context belongs to; None outside of a run.
RAISED: ContextVar[RaisedList | None] = ContextVar("dragoman_raised", default=None)
_MOST_FRAMES = 40  # the innermost ones of a traceback


def type_name(error: BaseException) -> str:
    """Return the type of an exception as code names it: with its module, unless it is a builtin."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def report_raised(error: BaseException, where: str) -> Raised:
    """Log where it happened; tell the run around it, too. Return what the run is told.

    The exception's words may hold a prompt: only a run that records content has them in its log, without secrets.
    """
    import logging

    found, raised = Raised(where, type_name(error)), RAISED.get()
    found.error = error
    fields = {"event": "code raised", **found._asdict()}
    said = ""
    if raised is not None and raised.shows_words:
        fields["error"] = _words(error)
        said = f": {fields['error']}"
    logging.getLogger("dragoman").error("%s raised %s%s\n%s", *found, said, _trace(error), extra={"dragoman": fields})
    if raised is not None:
        raised.append(found)
    return found


def is_interrupt(error: BaseException) -> bool:
    """Return whether it is a person's Ctrl-C: a KeyboardInterrupt while Python's own handler turns the signal into one.

    Under `asyncio.run` the signal cancels the task instead, and a KeyboardInterrupt is raised by code.
    """
    if not isinstance(error, KeyboardInterrupt):
        return False
    import signal
    import threading

    is_main = threading.current_thread() is threading.main_thread()
    return is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _words(error: BaseException) -> str:
    try:
        return redact_provider_message(str(error))
    except Exception:  # noqa: BLE001
        return ""  # an exception that cannot say what it is


def _trace(error: BaseException) -> str:
    """The lines of the code that raised, and of what caused it; no values."""
    import traceback

    pieces = ["".join(traceback.format_tb(error.__traceback__, -_MOST_FRAMES))]
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    seen = {id(error)}
    while cause is not None and id(cause) not in seen and len(pieces) < 5:
        seen.add(id(cause))
        lines = "".join(traceback.format_tb(cause.__traceback__, -_MOST_FRAMES))
        pieces.append(f"after {type_name(cause)}\n{lines}")
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return "".join(pieces)
