"""Parses the arguments of a call, for tools that take them as JSON."""

from collections.abc import Mapping
from typing import Any, TypeVar, overload

from .._jsontext import decode_json
from ..errors import ErrorCode, InvalidValue, ToolError, UnreadableData
from ..message import ToolCall
from .checking import problem_line
from .coercion import coerce_value
from .schema import TypeSchema

__all__ = ["ToolArgumentParser"]

T = TypeVar("T")
D = TypeVar("D")


class ToolArgumentParser:
    """Reads a call's arguments one by one, for tools that get them as JSON. What had to be repaired is told.

    Raises ToolError with the code invalid_arguments, in words that a model can act on.
    """

    def __init__(self, arguments: Mapping[str, Any] | ToolCall) -> None:
        self._warnings: list[str] = []
        self._error: str | None = None
        if isinstance(arguments, ToolCall):
            if arguments.arguments is None:
                raise _refusal(f"the arguments could not be read: {arguments.parse_error}")
            if arguments.parse_warning is not None:
                self._warnings.append(arguments.parse_warning)
            arguments = arguments.arguments
        if not isinstance(arguments, Mapping):
            raise InvalidValue.of_content("arguments", arguments, "a mapping")
        self._arguments = arguments

    @property
    def parse_warning(self) -> str | None:
        """What was repaired so far, or None."""
        return "; ".join(self._warnings) or None

    @property
    def parse_error(self) -> str | None:
        """Why the last `parse_json_safely` gave None, or None if it gave a value."""
        return self._error

    @overload
    def get_required(self, name: str, kind: type[T]) -> T:
        """For a class."""

    @overload
    def get_required(self, name: str, kind: Any) -> Any:
        """For a union, a Literal, anything that may stand in an annotation."""

    def get_required(self, name: str, kind: Any) -> Any:
        """Return the argument as a value of that type; raise ToolError if it is missing or does not fit."""
        if self._arguments.get(name) is None and not _takes_null(kind):
            raise _refusal(problem_line((name,), "is missing"))
        return self._read(name, self._arguments.get(name), kind)

    @overload
    def get(self, name: str, kind: type[T], default: D) -> T | D:
        """For a class and a default."""

    @overload
    def get(self, name: str, kind: type[T]) -> T | None:
        """For a class."""

    @overload
    def get(self, name: str, kind: Any, default: Any = None) -> Any:
        """For a union, a Literal, anything that may stand in an annotation."""

    def get(self, name: str, kind: Any, default: Any = None) -> Any:
        """Return the argument as a value of that type, or the default if it is missing or null."""
        value = self._arguments.get(name)
        return default if value is None else self._read(name, value, kind)

    @overload
    def parse_list(self, name: str, item_kind: type[T]) -> list[T]:
        """For items of a class."""

    @overload
    def parse_list(self, name: str, item_kind: Any) -> list[Any]:
        """For items of anything that may stand in an annotation."""

    def parse_list(self, name: str, item_kind: Any) -> list[Any]:
        """Return the argument as a list: of an array, of text that says one, or of a single value. Missing is empty."""
        value = self._arguments.get(name)
        return [] if value is None else list(self._read(name, value, list[item_kind]))

    def parse_json_safely(self, text: str) -> Any:
        """Return what the text says as JSON, or None; then `parse_error` says why."""
        self._error = None
        try:
            if not isinstance(text, str):
                raise UnreadableData(f"not readable as JSON: a {type(text).__name__}, no text")
            return decode_json(text)
        except UnreadableData as error:
            self._error = str(error)
            return None

    def _read(self, name: str, value: Any, kind: Any) -> Any:
        known = TypeSchema.of(kind)
        value, warnings = coerce_value(value, known.schema, known.schema, name)
        self._warnings += warnings
        converted, problems = known.read(value)
        if problems:
            raise _refusal("\n".join(_renamed(problem, name) for problem in problems))
        return converted


def _takes_null(kind: Any) -> bool:
    return not TypeSchema.of(kind).problems(None)


def _renamed(problem: str, name: str) -> str:
    """The problem line of a single value, which begins with `arguments`, with the name of the argument instead."""
    path, _, says = problem.partition(": ")
    if path == "arguments":
        return f"{name}: {says}"
    return f"{name}{path}: {says}" if path.startswith("[") else f"{name}.{path}: {says}"


def _refusal(says: str) -> ToolError:
    return ToolError(says, code=ErrorCode.INVALID_ARGUMENTS)
