"""The models that an agent asks: its own, or those that a block of code puts in their place."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from ..router import ProviderRouter

__all__ = ["Routes"]


class Routes:
    """One agent's router. Copies of the agent share it, so that a block holds for an agent that is a tool too."""

    def __init__(self, own: ProviderRouter) -> None:
        self.own = own

    @property
    def current(self) -> ProviderRouter:
        """The router of the innermost block that this task is in; the agent's own outside of all."""
        return _REPLACED.get().get(self, self.own)

    @contextmanager
    def replaced(self, router: ProviderRouter) -> Iterator[None]:
        """Use another router in a block: in this task, and in those that it starts there."""
        token = _REPLACED.set({**_REPLACED.get(), self: router})
        try:
            yield
        finally:
            _REPLACED.reset(token)


_REPLACED: ContextVar[Mapping[Routes, ProviderRouter]] = ContextVar("dragoman_routes", default={})  # noqa: B039
