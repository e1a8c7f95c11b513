"""The system instruction of an agent: a text, or a function that writes it at the start of each run."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

from .._jsontext import join_surrogates
from ..errors import DragomanError, ErrorCode, InvalidValue, type_name
from ..message import require_text
from ..store import Session
from ..tools import ToolContext
from ..tools.containing import Containing
from ..tools.signature import find_unfit_runtime, require_runtime

__all__ = ["Instructions", "record_instructions", "require_instructions"]

_D = TypeVar("_D")

Instructions: TypeAlias = str | Callable[[ToolContext[_D]], str | Awaitable[str]]


_ALLOWED = "text, or a function of a ToolContext that returns text"


def require_instructions(given: object, runtime: object) -> None:
    """Raise InvalidValue unless it is a text, a function of one argument that may have this runtime, or None."""
    if isinstance(given, str):
        require_text("instructions", given)
    elif callable(given):
        try:
            inspect.signature(given).bind(None)
        except ValueError:  # a function of C, whose signature Python does not know
            return
        except TypeError:
            taken = "def instructions(context: ToolContext) -> str"
            raise InvalidValue(f"instructions must be {_ALLOWED}, with one argument: {taken}") from None
        require_runtime("the instructions need", find_unfit_runtime(given, runtime), runtime)
    elif given is not None:
        raise InvalidValue.of("instructions", given, _ALLOWED)


async def record_instructions(wanted: Instructions[Any] | None, context: ToolContext[Any], session: Session) -> None:
    """Append the instructions if they differ from those in force. A run that goes on keeps what a function wrote.

    Raise DragomanError (internal) if a function raises, which is reported too, and InvalidValue if it returns no text.
    """
    if wanted is None or (session.run_id and not isinstance(wanted, str)):
        return
    written = join_surrogates(wanted if isinstance(wanted, str) else await _written(wanted, context))
    if written != (session.state.system_instruction or ""):
        await session.set_system_instruction(written)


async def _written(write: Callable[[ToolContext[Any]], str | Awaitable[str]], context: ToolContext[Any]) -> str:
    text: object = None
    with Containing("the instructions") as contained:
        text = write(context)
        if inspect.isawaitable(text):
            text = await text
    if contained.error is not None:
        why = f"{type_name(contained.error)} in the instructions: the log has its traceback"
        raise DragomanError(why, code=ErrorCode.INTERNAL) from contained.error
    if not isinstance(text, str):
        raise InvalidValue.of("what the instructions return", text, "text")
    return text
