"""A tool: its description for models, its implementation, its settings. `@tool` makes one of a function.

Runs nothing (`executor` does). What can be wrong with a tool is found when it is made.
"""

import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

import msgspec

from ..errors import InvalidValue, ToolError
from ..history.sections import LevelOfDetailSections, Section
from ..history.toolresults import Attachment
from ..message import MEDIA_KINDS, require_part
from ..toolspec import ToolSpec
from .checking import SchemaChecker
from .containing import Containing
from .jsonvalues import copy_json
from .signature import Parameters, read_signature
from .toolcontext import ToolContext

__all__ = ["Approval", "FunctionTool", "ToolContext", "ToolDefinition", "ToolOutput", "tool"]

P = ParamSpec("P")
R = TypeVar("R")
D = TypeVar("D")
if TYPE_CHECKING:
    import typing_extensions

    # The runtime that a tool needs; Any where it needs none, and where checkers cannot know it.
    NeedT_contra = typing_extensions.TypeVar("NeedT_contra", contravariant=True, default=Any)
else:  # only checkers need the default
    NeedT_contra = TypeVar("NeedT_contra", contravariant=True)

Approval: TypeAlias = bool | Callable[[dict[str, Any], ToolContext[Any]], bool]
Execute: TypeAlias = Callable[[dict[str, Any], ToolContext[NeedT_contra]], Any | Awaitable[Any]]
Start: TypeAlias = Callable[[ToolContext[Any]], Any | Awaitable[Any]]


class _Content(msgspec.Struct, frozen=True):
    content: str | Sequence[Section]


class ToolOutput(_Content, frozen=True, kw_only=True):
    """What a tool returns to give more than a value: shorter versions of its text, pictures and files.

    Texts, or sequences of sections. Without a summary the content is used, without a gist the summary.
    """

    summary: str | Sequence[Section] | None = None
    gist: str | Sequence[Section] | None = None
    attachments: Sequence[Attachment] = ()

    def __post_init__(self) -> None:
        self.levels()
        if not isinstance(self.attachments, (tuple, list)):
            raise InvalidValue.of_content("tool output: attachments", self.attachments, "a sequence of parts")
        for part in self.attachments:
            require_part("tool output: attachments", part, MEDIA_KINDS)

    def levels(self) -> LevelOfDetailSections:
        """Return the text at its three levels of detail."""
        live = _as_sections("content", self.content)
        summary = live if self.summary is None else _as_sections("summary", self.summary)
        gist = summary if self.gist is None else _as_sections("gist", self.gist)
        return LevelOfDetailSections(live, summary, gist)


class ToolDefinition(msgspec.Struct, Generic[NeedT_contra], frozen=True, kw_only=True, eq=False, dict=True):
    """A tool. `execute(arguments, context)` gets the arguments as JSON has them; it may be sync or async.

    `timeout_ms` None is the executor's, which is 60,000 in an agent; 0 is no limit. `requires_approval` may be a
    function of the arguments and the context. `requires_runtime` and `requires_agent` say that it cannot do without.
    An `idempotent` tool may be run again after a crash. Tools of one agent that share a `concurrency` class run one at
    a time, in the order of the calls; the empty class runs beside all others. With `strict` a provider holds the
    model to the schema, if its strict mode can take it.
    """

    name: str
    execute: Execute[NeedT_contra]
    description: str | None = None
    parameter_schema: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object", "properties": {}})
    timeout_ms: int | None = None
    requires_approval: Approval = False
    requires_runtime: bool = False
    requires_agent: bool = False
    idempotent: bool = False
    concurrency: str = ""
    strict: bool | None = None

    def __post_init__(self) -> None:
        named = f"tool {self.spec.name!r}"
        if not callable(self.execute):
            raise InvalidValue.of(f"{named}: execute", self.execute, "a function of arguments and context")
        if self.timeout_ms is not None and (type(self.timeout_ms) is not int or self.timeout_ms < 0):
            allowed = "a whole number of milliseconds, or 0 for no limit"
            raise InvalidValue.of(f"{named}: timeout_ms", self.timeout_ms, allowed)
        for field in ("requires_runtime", "requires_agent", "idempotent"):
            if type(getattr(self, field)) is not bool:
                raise InvalidValue.of(f"{named}: {field}", getattr(self, field), "true or false")
        if type(self.concurrency) is not str:
            raise InvalidValue.of(f"{named}: concurrency", self.concurrency, "text")
        approval = self.requires_approval
        if type(approval) is not bool and (not callable(approval) or is_async(approval)):
            allowed = "true, false or a plain function of arguments and context"
            raise InvalidValue.of(f"{named}: requires_approval", approval, allowed)
        _ = self.checker

    @cached_property
    def spec(self) -> ToolSpec:
        """The tool as a model sees it."""
        return ToolSpec(self.name, self.description, self.parameter_schema, self.strict)

    @cached_property
    def checker(self) -> SchemaChecker:
        """What checks arguments against the schema."""
        return SchemaChecker(self.parameter_schema, f"parameterSchema of tool {self.name!r}")

    @cached_property
    def is_async(self) -> bool:
        """Whether `execute` is a coroutine function; any other runs in a thread."""
        return is_async(self.execute)

    def needs_approval(self, arguments: dict[str, Any], context: ToolContext[Any]) -> bool:
        """Return whether a person must agree to this call. A function that fails to say so means yes."""
        if isinstance(self.requires_approval, bool):
            return self.requires_approval
        with Containing(f"requires_approval of the tool {self.name!r}"):
            return bool(self.requires_approval(arguments, context))
        return True  # in doubt a person is asked

    def find_problems(self, arguments: dict[str, Any]) -> list[str]:
        """Return what is wrong with the arguments of a call: at most five lines that a model can act on, or none.

        Any draft 7 or 2020-12 schema is understood; references to other documents are never followed. `format` is not
        checked: the tool decides what a text means, and a tool made of a function does so here.
        """
        return self.checker.problems(arguments)

    def bind(self, arguments: dict[str, Any]) -> Start:
        """Return the call that lacks only its context, for arguments that fit the schema.

        Raise ToolError (invalid_arguments) for arguments that the types of a function refuse.
        """
        return partial(self.execute, copy_json(arguments))


class FunctionTool(
    ToolDefinition[NeedT_contra], Generic[P, R, NeedT_contra], frozen=True, kw_only=True, eq=False, dict=True
):
    """A tool made of a function; it can still be called like the function."""

    if not TYPE_CHECKING:

        def __class_getitem__(cls, given):
            """Return the type with Any for a runtime that is left out."""
            return super().__class_getitem__(given if len(given) > 2 else (*given, Any))

    function: Callable[P, R]
    parameters: Parameters

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, with Python values."""
        return self.function(*args, **kwargs)

    def find_problems(self, arguments: dict[str, Any]) -> list[str]:
        """Return the problems of the arguments; the types of the function are tried too."""
        problems = self.checker.problems(arguments)
        if not problems:
            try:
                self.bind(arguments)
            except ToolError as error:
                problems = [str(error)]
        return problems

    def bind(self, arguments: dict[str, Any]) -> Start:
        """Return the call of the function with values of its types; raise ToolError for what they refuse."""
        if getattr(self.execute, "__self__", None) is not self.parameters:
            return super().bind(arguments)  # the caller has replaced `execute`, which takes JSON
        if self.parameter_schema is not self.parameters.schema:  # the caller has replaced what was checked
            self.parameters.require_fit(arguments)
        return partial(self.parameters.call, self.parameters.bind(copy_json(arguments)))


class PlainFunction(Protocol):
    """A function or method that is not made a tool yet. A FunctionTool, which can be called too, has no code."""

    @property
    def __code__(self) -> Any: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


class _Decorator(Protocol):
    """What `@tool(…)` is: the tool of a function, and of one whose first parameter is the context."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[ToolContext[D], P], R], /
    ) -> FunctionTool[Concatenate[ToolContext[D], P], R, D]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> FunctionTool[P, R]: ...


class _Settings(TypedDict, total=False):
    timeout_ms: int | None
    requires_approval: Approval
    requires_runtime: bool
    requires_agent: bool
    idempotent: bool
    concurrency: str
    strict: bool | None


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    **settings: Unpack[_Settings],
) -> _Decorator:
    """As `@tool(timeout_ms=…)`."""


@overload
def tool(
    function: Callable[Concatenate[ToolContext[D], P], R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **settings: Unpack[_Settings],
) -> FunctionTool[Concatenate[ToolContext[D], P], R, D]:
    """As `@tool`, of a function whose first parameter is the context: checkers know the runtime that it needs."""


@overload
def tool(
    function: Callable[P, R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **settings: Unpack[_Settings],
) -> FunctionTool[P, R]:
    """As `@tool`, or `tool(function, timeout_ms=…)`."""


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **settings: Unpack[_Settings],
) -> Any:
    """Make a tool of a typed function, as `@tool` or `@tool(timeout_ms=…)`.

    The name is the function's, the description its docstring's first paragraph, the schema comes from its type hints;
    parameters are described in `Annotated[int, "…"]` or in the docstring. A parameter annotated with ToolContext is
    given by the agent and not shown to models; where it is the first one, checkers compare its runtime with that of
    the agent. Raises InvalidValue for a parameter that no model can give.
    """
    frame = sys._getframe(1)
    # Types that were defined inside the function around this one, for annotations written as text.
    namespace = None if frame.f_locals is frame.f_globals else dict(frame.f_locals)

    def decorate(function: Callable[..., Any]) -> Any:
        return make_tool(function, name=name, description=description, namespace=namespace, **settings)

    return decorate if function is None else decorate(function)


def make_tool(
    function: Callable[P, R],
    *,
    name: str | None = None,
    description: str | None = None,
    namespace: Mapping[str, Any] | None = None,
    **settings: Unpack[_Settings],
) -> FunctionTool[P, R]:
    """Return the tool of a function."""
    if not callable(function) or isinstance(function, type):
        raise InvalidValue.of("tool", function, "a function")
    called = name or getattr(function, "__name__", "")
    if not called or called == "<lambda>":
        raise InvalidValue(f"a {type(function).__name__} without a name needs one: tool(…, name='…')")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidValue(f"tool {called!r} must return once: a function that yields is no tool")
    parameters = read_signature(function, called, namespace)
    return FunctionTool(
        name=called,
        description=parameters.docstring.summary if description is None else description,
        parameter_schema=parameters.schema,
        execute=parameters.execute_async if is_async(function) else parameters.execute,
        function=function,
        parameters=parameters,
        **settings,
    )


def is_async(function: object) -> bool:
    """Whether a call of this gives a coroutine: of a function, a partial, or an object that can be called."""
    called = inspect.getattr_static(type(function), "__call__", None)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def _as_sections(field: str, given: object) -> tuple[Section, ...]:
    if isinstance(given, str):
        return (Section("", given),)
    if not isinstance(given, (tuple, list)):
        raise InvalidValue.of_content(f"tool output: {field}", given, "text or sections")
    return tuple(given)
