"""The models that an agent asks: its own, or those that a block of code puts in their place."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from ..errors import InvalidValue
from ..message import require_text
from ..router import ProviderRouter

__all__ = ["Routes"]


class Routes:
    """One agent's router. Copies of the agent share it, so that a block holds for an agent that is a tool too."""

    def __init__(self, own: ProviderRouter) -> None:
        self.own = own

    def require(self, strategy: object) -> None:
        """Raise InvalidValue for a strategy that has no route, in the routers of a block and of the agent."""
        require_text("strategy", strategy)
        assert isinstance(strategy, str)
        router = self.current
        if strategy and not _has_routes(router):  # a block may put one model in the place of all routes
            router = self.own
        if strategy and not _has_routes(router):
            raise InvalidValue(
                f"there is no strategy {strategy!r}: this agent's model has no routes."
                " Give it ProviderRouter({strategy: model, ...})"
            )
        router.require_route(strategy)

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


def _has_routes(router: ProviderRouter) -> bool:
    return bool(router.strategies) or router.looks_at_context


_REPLACED: ContextVar[Mapping[Routes, ProviderRouter]] = ContextVar("dragoman_routes", default={})  # noqa: B039
