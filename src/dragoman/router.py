"""Which model gets a request: by its strategy, by a function, and who is asked when one fails. It calls no model.

A route is one model or several: the first is asked, the others are its fallbacks, in order. The caller records
the invocation of the one that answered.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

from .delta import KnownDelta
from .errors import InvalidValue
from .history.llmrequest import LlmRequest
from .message import Message, ModelInvocationDescriptor
from .request import ModelInfo
from .stream import Assembly
from .target import TargetRules
from .toolspec import ToolChoice, ToolSpec

__all__ = ["AnyModel", "AnyStream", "LlmRequest", "ProviderRouter", "Route"]


class AnyStream(Protocol):
    """An answer as it comes, as a `ModelStream` gives it."""

    @property
    def assembly(self) -> Assembly:
        """What has arrived so far."""

    def __aiter__(self) -> AsyncIterator[KnownDelta]: ...

    async def aclose(self) -> None:
        """Stop reading and close the connection."""


@runtime_checkable
class AnyModel(Protocol):
    """What can be asked: a `Model`, or anything that does the same."""

    @property
    def invocation(self) -> ModelInvocationDescriptor:
        """Who answers: provider, specification and model."""

    @property
    def rules(self) -> TargetRules:
        """What it demands of a conversation."""

    def model_info(self) -> ModelInfo:
        """Return what is known of the model."""

    def supports(self, ability: str) -> bool:
        """Whether the model is known to have an ability."""

    def stream(
        self,
        messages: Sequence[Message],
        tool_specs: Sequence[ToolSpec] | None = None,
        system_prompt: str | None = None,
        *,
        tool_choice: ToolChoice | None = None,
        request_metadata: Mapping[str, str] | None = None,
        cache_anchors: Sequence[int] = (),
        **params: Any,
    ) -> AnyStream:
        """Ask the model."""


Route: TypeAlias = AnyModel | Sequence[AnyModel]


class ProviderRouter:
    """Picks the models for a request.

    `routes` go by strategy (`plan`, `execute` …), `default` takes requests without one. A strategy that has no route is
    refused, unless there are no routes at all or `choose` has left it to the default. `choose` may name a strategy or
    give a route by itself; None leaves it to the request's own strategy. With `falls_back_after_start` the next model
    is asked also when one failed in the middle of its answer; else only when it failed before.
    """

    def __init__(
        self,
        routes: Mapping[str, Route] | None = None,
        *,
        default: Route | None = None,
        choose: Callable[[LlmRequest], "str | Route | None"] | None = None,
        falls_back_after_start: bool = False,
    ) -> None:
        self._routes = {
            strategy: _models(f"the route {strategy!r}", route) for strategy, route in (routes or {}).items()
        }
        self._default = None if default is None else _models("default", default)
        self._choose = choose
        self.falls_back_after_start = falls_back_after_start
        if not self._routes and self._default is None and choose is None:
            raise InvalidValue("a router needs routes, a default or a function that chooses")

    def __repr__(self) -> str:
        named = {**self._routes, "default": self._default or ()}
        routes = [f"{name}: {', '.join(map(repr, models))}" for name, models in named.items() if models]
        return f"<ProviderRouter {'; '.join([*routes, *(['by a function'] if self._choose is not None else [])])}>"

    @property
    def strategies(self) -> tuple[str, ...]:
        """The strategies that have a route."""
        return tuple(self._routes)

    @property
    def models(self) -> tuple[AnyModel, ...]:
        """All models of the routes; those that a function gives by itself are not known."""
        return (*(model for route in self._routes.values() for model in route), *(self._default or ()))

    @property
    def looks_at_context(self) -> bool:
        """Whether a function chooses: without one, the request's content is not read."""
        return self._choose is not None

    def require_route(self, strategy: str) -> None:
        """Raise InvalidValue for a strategy without a route; a function that chooses may know any."""
        if self._choose is None:
            self._of_strategy(strategy, is_free=not self._routes)

    def route(self, request: LlmRequest) -> tuple[AnyModel, ...]:
        """Return the models to ask, in order; raise InvalidValue if there is none for this request."""
        strategy, is_free = request.strategy, not self._routes
        if self._choose is not None:
            chosen = self._choose(request)
            if isinstance(chosen, str):
                strategy = chosen
            elif chosen is not None:
                return _models("what the function chose", chosen)
            else:
                is_free = True  # the strategy may be a word for the function alone
        models = self._of_strategy(strategy, is_free=is_free)
        if request.invocation is None:
            return models
        wanted = tuple(model for model in models if model.invocation == request.invocation)
        return (*wanted, *(model for model in models if model.invocation != request.invocation))

    def _of_strategy(self, strategy: str, *, is_free: bool) -> tuple[AnyModel, ...]:
        """The models of a strategy; those of the default, if the strategy is empty or `is_free` to be any word."""
        default = self._default if is_free or not strategy else None
        models = self._routes.get(strategy, default)
        if models is None:
            known = ", ".join(sorted(self._routes)) or "none"
            missing = "" if self._default is not None else " and no default"
            raise InvalidValue(f"there is no route {strategy!r}{missing}; routes: {known}")
        return models


def _models(field: str, route: Route) -> tuple[AnyModel, ...]:
    models = tuple(route) if isinstance(route, Sequence) and not isinstance(route, str) else (route,)
    if not models:
        raise InvalidValue(f"{field} must have a model")
    for model in models:
        if isinstance(model, str):
            raise InvalidValue(f"{field} must have models, got the name {model!r}: give model({model!r})")
        if not isinstance(model, AnyModel):
            raise InvalidValue.of(field, model, "a model, or several in their order")
    return models
