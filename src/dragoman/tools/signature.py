"""Reads a function's signature: a schema for the model, and the conversion of its arguments.

Parameters annotated with `ToolContext` are given by the caller and hidden from the schema.
"""

import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from ..errors import ErrorCode, InvalidValue, ToolError
from .checking import SchemaChecker, problem_line
from .classes import RawField, class_fields, is_typed_dict, read_hints
from .docstrings import Docstring, read_docstring
from .metadata import NO_DEFAULT
from .mismatch import Mismatch
from .namedschemas import Definitions
from .nodes import Field, ObjectNode
from .pydantic_types import is_pydantic_field
from .reading import TypeReader
from .toolcontext import ToolContext

__all__ = ["Parameters", "find_unfit_runtime", "read_signature", "require_runtime"]


class Parameters:
    """The parameters of a function: `schema` for the model, `bind` for the call, `docstring` for the description."""

    def __init__(
        self, function: Callable[..., Any], node: ObjectNode, contexts: Mapping[str, Any], docstring: Docstring
    ) -> None:
        book = Definitions()
        self._function = function
        self._node = node
        self._contexts = contexts  # the annotations of the parameters that get the context
        self._context_names = tuple(contexts)
        self.docstring = docstring
        self.schema = book.finish(node.written(book))

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keyword arguments of the call, without the context, for arguments that fit the schema.

        Raise ToolError (invalid_arguments) that says what is wrong.
        """
        try:
            bound = self._node.convert_fields(arguments, {})
            for name in self._context_names:
                if name in bound:
                    raise Mismatch("is not known here", (name,))
        except Mismatch as mismatch:
            raise ToolError(problem_line(mismatch.path, mismatch.says), code=ErrorCode.INVALID_ARGUMENTS) from mismatch
        except RecursionError:
            raise ToolError("the arguments are nested too deeply", code=ErrorCode.INVALID_ARGUMENTS) from None
        return bound

    def call(self, bound: Mapping[str, Any], context: ToolContext[Any]) -> Any:
        """Call the function with what `bind` returned."""
        return self._function(**bound, **dict.fromkeys(self._context_names, context))

    def execute(self, arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        """Check, bind and call."""
        self.require_fit(arguments)
        return self.call(self.bind(arguments), context)

    async def execute_async(self, arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        """Check, bind and call a coroutine function."""
        self.require_fit(arguments)
        return await self.call(self.bind(arguments), context)

    def find_unfit(self, runtime: object) -> str | None:
        """Return the type of `ToolContext[…]` that this runtime is not of; None if it fits or cannot be checked."""
        return _find_unfit(self._contexts.values(), runtime)

    @functools.cached_property
    def _checker(self) -> SchemaChecker:
        return SchemaChecker(self.schema)

    def require_fit(self, arguments: dict[str, Any]) -> None:
        """Raise ToolError (invalid_arguments) unless the arguments fit the schema."""
        if problems := self._checker.problems(arguments):
            raise ToolError("\n".join(problems), code=ErrorCode.INVALID_ARGUMENTS)


def require_runtime(needing: str, wanted: str | None, runtime: object) -> None:
    """Raise InvalidValue if there is a type that the runtime is not of. `needing` is what needs it, with its verb."""
    if wanted is not None:
        seen = "there is none" if runtime is None else f"the agent has one of {type(runtime).__name__}"
        raise InvalidValue(f"{needing} a runtime of the type {wanted}, but {seen}")


def find_unfit_runtime(function: Callable[..., Any], runtime: object) -> str | None:
    """Return the type of `ToolContext[…]` that a function takes and this runtime is not of; None if it fits.

    None too where the types cannot be read.
    """
    annotated = _annotated_function(function)
    try:
        hints = read_hints(annotated, "the function", _closure(inspect.unwrap(annotated)))
    except InvalidValue:
        return None
    return _find_unfit((hint for name, hint in hints.items() if name != "return"), runtime)


def _find_unfit(annotations: Iterable[Any], runtime: object) -> str | None:
    for annotation in annotations:
        for wanted in _runtime_types(annotation):
            try:
                if not isinstance(runtime, wanted):
                    return getattr(wanted, "__name__", str(wanted))
            except TypeError:  # a protocol or a generic type, which Python cannot check
                continue
    return None


def read_signature(function: Callable[..., Any], name: str, namespace: Mapping[str, Any] | None) -> Parameters:
    """Return what the function takes; raise InvalidValue for a parameter that no model can give."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise InvalidValue(f"tool {name!r}: its signature cannot be read") from error
    docstring = read_docstring(inspect.getdoc(function))
    annotated = _annotated_function(function)
    unwrapped = inspect.unwrap(annotated)
    hints = read_hints(annotated, f"tool {name!r}", {**_closure(unwrapped), **(namespace or {})})
    reader = TypeReader({**getattr(unwrapped, "__globals__", {}), **(namespace or {})})
    node = ObjectNode(name, dict, closed=True)
    fields: list[Field] = []
    contexts: dict[str, Any] = {}
    for parameter in signature.parameters.values():
        where = f"tool {name!r}, parameter {parameter.name}"
        annotation = _annotation(parameter, hints, where)
        if _is_context(annotation):
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                raise InvalidValue(f"{where}: a ToolContext is one parameter, not **{parameter.name}")
            contexts[parameter.name] = annotation
            continue
        try:
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                fields += _read_rest(node, reader, annotation, namespace)
            else:
                fields.append(_read_parameter(reader, parameter, annotation, docstring))
        except InvalidValue as error:
            raise InvalidValue(f"{where}: {str(error).removeprefix(f'{parameter.name}: ')}") from error
    keys = [field.key for field in fields]
    for key in keys:
        if keys.count(key) > 1:
            raise InvalidValue(f"tool {name!r}: two parameters are called {key!r}")
    node.fields = tuple(fields)
    try:
        return Parameters(function, node, contexts, docstring)
    except RecursionError:
        raise InvalidValue(f"tool {name!r}: its types are nested too deeply") from None


def _read_parameter(reader: TypeReader, parameter: inspect.Parameter, annotation: Any, docstring: Docstring) -> Field:
    default = parameter.default
    raw = RawField(
        name=parameter.name,
        key=parameter.name,
        annotation=annotation,
        required=default is NO_DEFAULT,
        default=default,
        description=docstring.parameters.get(parameter.name),
    )
    if not is_pydantic_field(default):
        return reader.field(raw)
    # `limit: int = Field(5, ge=1)`: what Python would pass for a parameter left out is the Field itself.
    raw = msgspec.structs.replace(
        raw, annotation=typing.Annotated[annotation, default], required=True, default=NO_DEFAULT
    )
    return reader.field(raw)


def _read_rest(
    node: ObjectNode, reader: TypeReader, annotation: Any, namespace: Mapping[str, Any] | None
) -> list[Field]:
    """What `**options` takes: any names with values of one type, or the names of an unpacked TypedDict."""
    if typing.get_origin(annotation) is typing.Unpack:
        (inner,) = typing.get_args(annotation)
        origin = typing.get_origin(inner) or inner
        if is_typed_dict(origin):
            return [reader.field(raw) for raw in class_fields(origin, typing.get_args(inner), namespace) or ()]
    node.rest = reader.read(annotation)
    return []


def _annotation(parameter: inspect.Parameter, hints: dict[str, Any], where: str) -> Any:
    if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
        raise InvalidValue(f"{where}: positional-only parameters have no name that a model could give: remove the /")
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        raise InvalidValue(f"{where}: JSON arguments have names: take a list instead of *{parameter.name}")
    if parameter.name not in hints:
        if parameter.name in ("self", "cls"):
            raise InvalidValue(f"{where}: make the tool of the bound method: tool(something.method)")
        raise InvalidValue(f"{where}: it needs a type annotation, which becomes its schema")
    return hints[parameter.name]


def _is_context(annotation: Any) -> bool:
    """Whether the annotation is ToolContext, of any runtime, in Annotated or optional."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _is_context(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        return any(_is_context(member) for member in typing.get_args(annotation))
    return annotation is ToolContext or origin is ToolContext


def _runtime_types(annotation: Any) -> list[Any]:
    """The runtimes that ToolContext is written with in an annotation; none for a plain ToolContext."""
    if typing.get_origin(annotation) is ToolContext:
        return [wanted for wanted in typing.get_args(annotation) if wanted is not Any]
    return [wanted for member in typing.get_args(annotation) for wanted in _runtime_types(member)]


def _annotated_function(function: Any) -> Any:
    """The function that holds the annotations: inside a partial, a bound method, an object that can be called."""
    while isinstance(function, functools.partial):
        function = function.func
    if not hasattr(function, "__annotations__") and not inspect.isroutine(function):
        function = type(function).__call__
    return function


def _closure(function: Any) -> dict[str, Any]:
    try:
        return dict(inspect.getclosurevars(function).nonlocals)
    except (TypeError, ValueError):
        return {}
