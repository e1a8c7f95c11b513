"""Answers what an MCP server asks of its client while a call is under way: elicitation and sampling.

A request belongs to a call: the call's `Asking` answers it. In the protocol of 2026 the request comes in the call's own
result, and over HTTP on the call's own stream. An older server over stdio does not say which call it asks for: then
exactly one call must be under way.
"""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ..errors import DragomanError, ToolError
from ..history import QuestionAction
from ..message import FinishReason, Message
from .asking import Asking
from .jsonvalues import copy_json
from .mcp_forms import read_question, read_sampling

if TYPE_CHECKING:
    from mcp import types
    from mcp.client.session import ClientRequestContext

__all__ = ["NOT_ALLOWED", "REFUSED_HERE", "Allowed", "ServerRequests"]

# What the SDK answers for us where a callback is not given, and what that means for the call.
NOT_ALLOWED = {
    "Elicitation not supported": "asks a person something, which is not allowed: allow_elicitation=True allows it",
    "Sampling not supported": "asks the model something, which is not allowed: allow_sampling=True allows it",
}
REFUSED_HERE = "dragoman/refused"  # marks our own errors: a newer server's call ends with them

MOST_REQUESTS = 50  # that a server may make in one call
_NO_CALL = "no call is under way that this could be asked for"
_UNCLEAR = "several calls are under way, and the request does not say which of them it belongs to"
_NO_AGENT = "the call was not made by an agent: no one can be asked"
_OVER = "the call that it belongs to has ended"

_Answer = TypeVar("_Answer")


class Allowed(NamedTuple):
    """What a server may ask. What it may not, the client does not declare."""

    elicitation: bool = False
    sampling: bool = False


class _Call:
    """A call under way: who answers what is asked in it, and what waits for an answer."""

    def __init__(self, asking: Asking | None) -> None:
        self.asking = asking
        self.context = contextvars.copy_context()
        self.waiting: set[asyncio.Task[Any]] = set()
        self.requests = 0
        self.is_over = False


_CALL: contextvars.ContextVar[_Call | None] = contextvars.ContextVar("dragoman_mcp_call", default=None)


class ServerRequests:
    """The requests of one server in one session. `hide` blanks secrets out of what the server says."""

    def __init__(self, name: str, hide: Callable[[str], str]) -> None:
        self._name = name
        self._hide = hide
        self._calls: set[_Call] = set()

    @contextmanager
    def calling(self, asking: Asking | None) -> Iterator[None]:
        """Note that a call is under way in this block; after it, what waits for an answer is given up."""
        call = _Call(asking)
        self._calls.add(call)
        token = _CALL.set(call)
        try:
            yield
        finally:
            _CALL.reset(token)
            self._calls.remove(call)
            call.is_over = True
            for task in call.waiting:
                task.cancel()

    async def elicit(
        self,
        context: "ClientRequestContext",  # noqa: ARG002  # as the SDK calls it
        params: "types.ElicitRequestParams",
    ) -> "types.ElicitResult | types.ErrorData":
        """Return what the person answers; an error where no person is asked."""
        from mcp import types

        async def ask(asking: Asking) -> types.ElicitResult:
            answer = await asking.ask_person(read_question(params, self._name))
            content = None if answer.content is None else copy_json(answer.content)
            if answer.action is QuestionAction.ACCEPT and params.mode == "form":
                content = content or {}
            return types.ElicitResult(action=answer.action.value, content=content)

        return await self._answered(ask)

    async def sample(
        self,
        context: "ClientRequestContext",  # noqa: ARG002  # as the SDK calls it
        params: "types.CreateMessageRequestParams",
    ) -> "types.CreateMessageResult | types.ErrorData":
        """Return the model's whole answer; an error where there is none."""
        from mcp import types

        async def ask(asking: Asking) -> types.CreateMessageResult:
            answer = await asking.ask_model(read_sampling(params, self._name))
            if not answer.text:
                raise ToolError("the model gave no text")
            return types.CreateMessageResult(
                role="assistant",
                content=types.TextContent(type="text", text=answer.text),
                model=_model_name(answer),
                stop_reason=_stop_reason(answer),
            )

        return await self._answered(ask)

    async def _answered(self, ask: Callable[[Asking], Coroutine[Any, Any, _Answer]]) -> "_Answer | types.ErrorData":
        from mcp import types

        def refused(says: str, code: int = types.INVALID_REQUEST) -> types.ErrorData:
            return types.ErrorData(code=code, message=says, data=REFUSED_HERE)

        call = self._find_call()
        if isinstance(call, str):
            return refused(call)
        if call.asking is None:
            return refused(_NO_AGENT)
        call.requests += 1
        if call.requests > MOST_REQUESTS:
            return refused(f"a server may ask {MOST_REQUESTS} times in one call")
        # In the context of the call: an older server's request comes in a task of the connection.
        task = asyncio.get_running_loop().create_task(ask(call.asking), context=call.context.copy())
        call.waiting.add(task)
        task.add_done_callback(call.waiting.discard)
        try:
            return await task
        except ToolError as error:
            return refused(self._hide(str(error)))
        except DragomanError:  # of the store, whose words are no business of a server
            return refused("it could not be asked: the client failed", types.INTERNAL_ERROR)
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if not call.is_over or (current is not None and current.cancelling()):
                raise
            return refused(_OVER)

    def _find_call(self) -> _Call | str:
        """The call that a request belongs to, or why that is not known."""
        call = _CALL.get()
        if call in self._calls and call is not None:
            return call
        if len(self._calls) == 1:
            return next(iter(self._calls))
        return _UNCLEAR if self._calls else _NO_CALL


def _model_name(answer: Message) -> str:
    invocation = answer.meta.invocation if answer.meta is not None else None
    return invocation.model if invocation is not None else "unknown"


def _stop_reason(answer: Message) -> str:
    is_refused = answer.meta is not None and answer.meta.finish_reason is FinishReason.REFUSAL
    return "refusal" if is_refused else "endTurn"
