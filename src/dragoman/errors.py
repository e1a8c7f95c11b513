"""What can go wrong, as codes and one exception tree, and the redaction of secrets.

    DragomanError                    code, retryable, retry_after, request_id, provider_message
    ├── InvalidValue    (ValueError)   a value its own kind or role forbids
    ├── UnreadableData  (ValueError)   JSON or a file that is damaged, or newer than this library
    ├── ContractViolation              a delta that the stream protocol does not allow here
    ├── MissingExtra    (ImportError)  an optional package is not installed
    ├── ModelError                     a call to a model failed; carries any of the model codes
    ├── ToolError                      a tool call ended without success
    └── StoreError                     a session store refused or lost something

Knows nothing of messages, providers or the network.
"""

import re
from enum import StrEnum
from typing import ClassVar

__all__ = [
    "RETRYABLE_CODES",
    "ContractViolation",
    "DragomanError",
    "ErrorCode",
    "InvalidValue",
    "MissingExtra",
    "ModelError",
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

    CONFLICT = "conflict"
    CORRUPT = "corrupt"
    TOO_NEW = "too_new"


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

_REDACTED = "[redacted]"

# Vendors' key shapes first, then "name: value" pairs whose name says that the value is secret. Each
# pattern is anchored on a literal and bounded, so that hostile text costs linear time.
_SECRETS = re.compile(
    r"""
    \bsk-[A-Za-z0-9_-]{8,256}                              # OpenAI, Anthropic, DeepSeek, OpenRouter
  | \b(?:gsk|xai|hf|tgp|fw|csk|nvapi|r8|pplx|tvly)[_-][A-Za-z0-9_-]{8,256}
  | \b(?:AKIA|ASIA)[A-Z0-9]{12,32}                         # AWS key id
  | \bABSK[A-Za-z0-9+/=]{16,512}                           # Bedrock API key
  | \bAIza[A-Za-z0-9_-]{16,128}                            # Google API key
  | \bya29\.[A-Za-z0-9_.-]{8,2048}                         # Google access token
  | \b(?:gh[pousr]_|github_pat_|xox[abeprs]-|glpat-)[A-Za-z0-9_-]{8,256}
  | \beyJ[A-Za-z0-9_-]{8,2048}\.[A-Za-z0-9_-]{4,4096}(?:\.[A-Za-z0-9_-]{0,2048})?   # JWT
  | -----BEGIN[ A-Z]{0,40}PRIVATE\ KEY-----[^-]{0,16384}(?:-----END[ A-Z]{0,40}PRIVATE\ KEY-----)?
  | (?P<url>://[^\s/:@]{0,128}:)[^\s/@]{1,256}(?=@)        # user:password@host
  | (?P<scheme>\b(?:bearer|basic)\s{1,4})[A-Za-z0-9+/=._~-]{8,4096}
  | (?P<name>
        \b[a-z0-9_-]{0,32}(?:api[_-]?key|access[_-]?key|secret|password|passwd|auth[_-]?token|access[_-]?token
        |session[_-]?token|authorization|credential|signature)\b["']?\s{0,4}[:=]\s{0,4}["']?
    )(?!\[redacted\]|(?:bearer|basic)\s)[^\s"',;&}]{4,4096}
  | (?P<query>[?&](?:key|token|sig)=)[^\s&"']{4,4096}
    """,
    re.VERBOSE | re.IGNORECASE,
)


def redact(text: str) -> str:
    """Return `text` with everything that looks like a key, token or password blanked out."""
    return _SECRETS.sub(lambda found: (found[found.lastgroup] if found.lastgroup else "") + _REDACTED, text)


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
        super().__init__(redact(message))
        self.code = code or self.default_code
        self.retryable = self.code in RETRYABLE_CODES if retryable is None else retryable
        self.retry_after = retry_after
        self.request_id = request_id
        self.provider_message = redact(provider_message[:PROVIDER_MESSAGE_LIMIT]) if provider_message else None


class InvalidValue(DragomanError, ValueError):
    """A value that its own kind or role forbids: the message says which field, what was given, what is allowed."""

    default_code = ErrorCode.INVALID_REQUEST

    @classmethod
    def of(cls, field: str, value: object, allowed: str) -> "InvalidValue":
        """Return the error for one field; the value is quoted only where it cannot be somebody's content."""
        quotable = (
            value is None or isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) <= 40)
        )
        return cls(f"{field} must be {allowed}, got {repr(value) if quotable else f'a {type(value).__name__}'}")


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


class ModelError(DragomanError):
    """A call to a model failed; `code` says how, `retryable` whether the same request may yet succeed."""


class ToolError(DragomanError):
    """A tool call ended without success."""

    default_code = ErrorCode.TOOL_FAILED


class StoreError(DragomanError):
    """A session store refused an append, or found its data changed."""

    default_code = ErrorCode.CORRUPT
