"""Whether an answer arrived whole, asked in the same way for every wire API. Pure; knows no events.

A finish word alone is not enough: a provider may finish with a call still open, or announce a call and send none.
"""

from collections.abc import Sized
from typing import Any

from ..errors import ErrorCode, ModelError
from ..jsontext import parse_arguments
from ..message import FinishReason

__all__ = ["NOT_CLOSED", "WHOLE_FINISHES", "input_of", "lost", "require_call", "why_unusable"]

# After these the provider had nothing more to say; the others cut an answer, or are not known to be good.
WHOLE_FINISHES = frozenset({FinishReason.STOP, FinishReason.TOOL_CALLS, FinishReason.PAUSE})

# The `parse_error` of a call whose arguments the provider has not said to be whole.
NOT_CLOSED = "the answer ended before the arguments of the call were whole"


def lost(what: str) -> ModelError:
    """Return the error for an answer of which a part did not arrive; sent again, the request may get all of it."""
    return ModelError(f"part of the answer did not arrive: {what}", code=ErrorCode.STREAM_TRUNCATED)


def require_call(reason: FinishReason, calls: Sized) -> None:
    """Raise ModelError where the provider says that it finished for a tool call and there is none."""
    if reason is FinishReason.TOOL_CALLS and not calls:
        raise lost("the provider finished for a tool call, and none came")


def why_unusable(arguments_text: str) -> str | None:
    """Return why a call that no event closed is not used; None where its arguments are a whole object already.

    Nothing can follow a whole object; Kimi (Messages) and older versions of Bifrost (Converse) close no call.
    """
    return NOT_CLOSED if parse_arguments(arguments_text).arguments is None else None


def input_of(written: str) -> tuple[dict[str, Any], bool]:
    """Return the input of a server tool, and whether it is whole; text that does not parse is kept as text."""
    arguments = parse_arguments(written).arguments
    return ({"unparsed_arguments": written}, False) if arguments is None else (arguments, True)
