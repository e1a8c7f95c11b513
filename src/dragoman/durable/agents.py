"""Agents by their names: a user says how each is made for a session."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from ..agent import Agent
from ..errors import DragomanError, ErrorCode, InvalidValue
from ..history.entries import require_word
from ..store import Session

__all__ = ["Agents", "MakeAgent", "UnknownAgent"]

MakeAgent: TypeAlias = Callable[[Session], Agent[Any, Any] | Awaitable[Agent[Any, Any]]]


class UnknownAgent(DragomanError):
    """No agent of that name is registered here. A worker with another registry may know it."""

    default_code = ErrorCode.NOT_FOUND


class Agents:
    """A registry: the name of each agent, and the function that makes it for a session.

    `Agents({"support": make_support})`, where `make_support(session)` returns `Agent(…, session=session)`; it may be a
    coroutine function. It is called for each attempt, so it should be quick.
    """

    def __init__(self, makers: Mapping[str, MakeAgent]) -> None:
        if not isinstance(makers, Mapping):
            raise InvalidValue.of_content("the agents", makers, "a mapping from names to functions that make agents")
        for name, make in makers.items():
            require_word("the name of an agent", name)
            if not callable(make):
                raise InvalidValue.of(f"agent {name!r}", make, "a function that takes a Session and returns an Agent")
        self._makers = dict(makers)

    def __repr__(self) -> str:
        return f"<Agents {', '.join(self._makers) or 'none'}>"

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in the order in which they were given."""
        return tuple(self._makers)

    async def make(self, name: str, session: Session) -> Agent[Any, Any]:
        """Return the agent of that name for the session; raise UnknownAgent, or what its function raises."""
        make = self._makers.get(name)
        if make is None:
            known = ", ".join(self._makers) or "none"
            raise UnknownAgent(
                f"no agent is called {name!r} here; known are {known}: add it, or start a worker that has it"
            )
        made = make(session)
        agent = await made if inspect.isawaitable(made) else made
        if not isinstance(agent, Agent):
            raise InvalidValue.of_content(f"what makes the agent {name!r}", agent, "a function that returns an Agent")
        if agent.session is not session:
            raise InvalidValue(f"agent {name!r} has another session: make it with Agent(…, session=session)")
        return agent
