"""What a person can do when something failed: a sentence for each code that a model or a store fails with."""

from typing import TYPE_CHECKING

from ..errors import ErrorCode
from .output import one_line

if TYPE_CHECKING:
    from ..agent import RunError
    from .chat.talk import Talk

__all__ = ["ANSWER_ADVICE", "STORE_ADVICE", "advice_after", "failure_words", "with_advice"]

_PROVIDER_WORDS = 300  # characters of what a provider said that a line has room for; the entry has all of it

_AGAIN = "Ask again in a while, or ask another model"
MODEL_ADVICE: dict[ErrorCode, str] = {  # the errors of a rate limit and an overload say it themselves
    ErrorCode.AUTHENTICATION: "Is the key right? {keys}",
    ErrorCode.PERMISSION: "May this key use {model}? {keys}",
    ErrorCode.NOT_FOUND: "Is there a model {model}? `dragoman models` lists those that are known",
    ErrorCode.INVALID_REQUEST: "`dragoman render @ --model {model}` shows what is sent",
    ErrorCode.QUOTA_EXCEEDED: "The provider says what your plan allows",
    ErrorCode.SERVER_ERROR: _AGAIN,
    ErrorCode.TIMEOUT: _AGAIN,
    ErrorCode.CONNECTION: "Is there a network, and is the address right?",
    ErrorCode.STREAM_TRUNCATED: _AGAIN,
    ErrorCode.PROTOCOL_VIOLATION: "Is the address right? What answers there does not speak this API",
    ErrorCode.CONTEXT_OVERFLOW: "A smaller context.budget_tokens in the settings makes it fit",
}
ANSWER_ADVICE: dict[ErrorCode, str] = {
    ErrorCode.OUTPUT_CUT: "--max-tokens lets answers be longer; say `Go on.` to have the rest",
    ErrorCode.CONTENT_FILTERED: "Say it in other words, or ask another model",
    ErrorCode.OUTPUT_UNFINISHED: _AGAIN,
}
STORE_ADVICE: dict[ErrorCode, str] = {
    ErrorCode.BUSY: "`chat` and `ask` wait for it with --wait SECONDS, `sessions erase` does not with --force,"
    " `dragoman sessions fork` begins another one that shares its entries",
    ErrorCode.TIMEOUT: "Try again when the other program is done with it",
    ErrorCode.CORRUPT: "`dragoman sessions verify` says which sessions are sound; --store names another store",
    ErrorCode.QUOTA_EXCEEDED: "Make room, then try again",
    ErrorCode.PERMISSION: "May you write there? --store names another store",
    ErrorCode.TOO_NEW: "A newer dragoman can read it",
}


def failure_words(error: "RunError") -> str:
    """Return what went wrong in one line, and what the provider said of it."""
    words = one_line(error.message) or str(error.code)
    said = one_line(error.provider_message)
    if len(said) > _PROVIDER_WORDS:
        said = f"{said[:_PROVIDER_WORDS]}…"
    return f"{words}; the provider said: {said}" if said else words


def with_advice(words: str, advice: str) -> str:
    """Return what happened and what to do in one line."""
    return f"{words}. {advice}" if advice else words


def advice_after(talk: "Talk", code: ErrorCode) -> str:
    """Return what to do after the last run failed with a code: because of its model, its answer, or the store."""
    from ..history import InterruptionEntry, ModelOutputEntry

    entries = talk.session.entries if talk.session is not None else ()
    last = next(
        (entry for entry in reversed(entries) if isinstance(entry, (InterruptionEntry, ModelOutputEntry))), None
    )
    if isinstance(last, ModelOutputEntry) and code in ANSWER_ADVICE:
        return ANSWER_ADVICE[code]
    if not isinstance(last, InterruptionEntry) or last.reason is not code:
        return STORE_ADVICE.get(code, "")
    keys = " or ".join(talk.key_variables)
    from_where = f"It is taken from {keys}" if keys else ""
    return MODEL_ADVICE.get(code, "").format(model=talk.model_name, keys=from_where).strip()
