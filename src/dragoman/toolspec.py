"""What a model is told about tools: their specs, and which of them it may or must use."""

import re
from typing import Any, Literal, TypeAlias

import msgspec

from ._jsontext import require_json_object
from .errors import InvalidValue
from .message import require_name

__all__ = ["OneTool", "ToolChoice", "ToolSpec", "require_tool_choice"]

_NAME = re.compile(r"[^\s\x00-\x1f]{1,128}")


class ToolSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A tool as a model sees it: `parameter_schema` is an object's JSON Schema, `strict` None is the provider's."""

    name: str
    description: str | None = None
    parameter_schema: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object", "properties": {}})
    strict: bool | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name) or not self.name.isprintable():
            raise InvalidValue.of("tool name", self.name, "1 to 128 visible characters without spaces")
        if self.description is not None and not isinstance(self.description, str):
            raise InvalidValue.of(f"description of tool {self.name!r}", self.description, "text")
        require_json_object(self.parameter_schema, f"parameterSchema of tool {self.name!r}")
        if self.parameter_schema.get("type", "object") != "object":
            kind = self.parameter_schema["type"]
            raise InvalidValue.of(f"parameterSchema of tool {self.name!r}: type", kind, "'object'")
        if self.strict is not None and type(self.strict) is not bool:
            raise InvalidValue.of(f"strict of tool {self.name!r}", self.strict, "true or false")


class OneTool(msgspec.Struct, frozen=True, rename="camel"):
    """The choice of one tool, which the model must call."""

    tool_name: str

    def __post_init__(self) -> None:
        require_name("toolName", self.tool_name)


ToolChoice: TypeAlias = Literal["auto", "required", "none"] | OneTool


def require_tool_choice(choice: object) -> None:
    """Raise InvalidValue unless `choice` is one of the words or a OneTool."""
    if not isinstance(choice, OneTool) and choice not in ("auto", "required", "none"):
        raise InvalidValue.of("toolChoice", choice, "'auto', 'required', 'none' or OneTool(name)")
