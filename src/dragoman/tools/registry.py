"""The tools of an agent, by name. Immutable."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from ..errors import InvalidValue
from ..toolspec import ToolSpec
from .definition import FunctionTool, NeedT_contra, PlainFunction, ToolDefinition, make_tool
from .signature import require_runtime

__all__ = ["ToolLike", "ToolRegistry"]

ToolLike: TypeAlias = ToolDefinition[NeedT_contra] | PlainFunction


class ToolRegistry:
    """Tools in the order they were given, each under a name of its own. Plain functions are made tools."""

    def __init__(self, tools: Iterable[ToolLike] = ()) -> None:
        if not isinstance(tools, Iterable) or isinstance(tools, str | bytes | Mapping):
            raise InvalidValue.of("tools", tools, "a list of tools, such as [one_tool]")
        self._tools: dict[str, ToolDefinition] = {}
        for given in tools:
            definition = given if isinstance(given, ToolDefinition) else make_tool(given)
            other = self._tools.get(definition.name)
            if other is not None:
                raise InvalidValue(
                    f"two tools are called {definition.name!r}: {_origin(other)} and {_origin(definition)}"
                )
            self._tools[definition.name] = definition
        self._specs = tuple(definition.spec for definition in self._tools.values())

    def __iter__(self) -> Iterator[ToolDefinition]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in order."""
        return tuple(self._tools)

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools as a model sees them, in order."""
        return self._specs

    def find(self, name: str) -> ToolDefinition | None:
        """Return the tool of that name, or None."""
        return self._tools.get(name)

    def with_tools(self, *tools: ToolLike) -> "ToolRegistry":
        """Return a registry with more tools at its end; raise InvalidValue if a name is taken."""
        return ToolRegistry((*self, *tools))

    def require(self, *, runtime: object = None, agent: object = None) -> None:
        """Raise InvalidValue if a tool needs a runtime or an agent that is not given, or a runtime of another type."""
        for what, given, needing in (
            ("a runtime", runtime, [tool.name for tool in self if tool.requires_runtime]),
            ("an agent", agent, [tool.name for tool in self if tool.requires_agent]),
        ):
            if needing and given is None:
                raise InvalidValue(f"{what} must be given: {', '.join(needing)} cannot do without")
        for tool in self:
            wanted = tool.parameters.find_unfit(runtime) if isinstance(tool, FunctionTool) else None
            require_runtime(f"tool {tool.name!r} needs", wanted, runtime)


def _origin(definition: ToolDefinition) -> str:
    """The origin of a tool, in words, to tell two tools of the same name apart."""
    function = getattr(definition, "function", definition.execute)
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    return f"{module}.{name}" if name else f"a {type(function).__name__}"
