"""Converts an MCP server's list of tools to definitions; unusable tools are left out, with the reason. Pure.

Everything a server says is hostile until read here: names, descriptions and schemas are bounded and checked one by
one, so that a bad tool never takes a good one with it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from .._jsontext import encode_json, require_json_object
from ..errors import InvalidValue
from .definition import Approval, Execute, ToolDefinition
from .mismatch import quote

__all__ = ["Listing", "MakeExecute", "ToolPolicy", "read_listing"]

MOST_TOOLS = 1_000
LONGEST_DESCRIPTION = 8_000  # characters
LARGEST_SCHEMA = 100_000  # bytes of JSON

# From the tool's name at its server, and whether it may be run again, to what runs it.
MakeExecute: TypeAlias = Callable[[str, bool], Execute]


class Listing(NamedTuple):
    """The tools that can be used, and one line for each that cannot, or not as it is."""

    tools: tuple[ToolDefinition, ...] = ()
    problems: tuple[str, ...] = ()


class ToolPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Which tools of a server are taken, what they are called here, and under which conditions they run."""

    prefix: str = ""
    include: frozenset[str] | None = None
    exclude: frozenset[str] = frozenset()
    requires_approval: Approval = False
    timeout_ms: int | None = None
    concurrency: str = ""

    def __post_init__(self) -> None:
        ToolDefinition(  # refuses what no tool may have: the caller's mistake, not the server's
            name=f"{self.prefix}tool",
            execute=_nothing,
            requires_approval=self.requires_approval,
            timeout_ms=self.timeout_ms,
        )

    def takes(self, name: object) -> bool:
        """Whether a tool of that name, as its server says it, is wanted."""
        if not isinstance(name, str):
            return True  # wanted or not, it is told that it has no name
        return (self.include is None or name in self.include) and name not in self.exclude


def read_listing(items: Sequence[object], policy: ToolPolicy, make_execute: MakeExecute) -> Listing:
    """Return the tools of a list as the server sent it; raise nothing, whatever the list holds."""
    tools: dict[str, ToolDefinition] = {}
    problems: list[str] = []
    for index, item in enumerate(items[:MOST_TOOLS]):
        name = item.get("name") if isinstance(item, dict) else None
        if not policy.takes(name):
            continue
        called = f"tool {quote(name)}" if isinstance(name, str) else f"tool number {index + 1}"
        try:
            definition, remarks = _read_tool(item, policy, make_execute)
            if definition.name in tools:
                raise InvalidValue("another tool of this server has the same name")
            tools[definition.name] = definition
            problems += [f"{called}: {remark}" for remark in remarks]
        except (InvalidValue, ValueError, TypeError, RecursionError) as error:
            problems.append(f"{called} is left out: {_first_line(error)}")
    if len(items) > MOST_TOOLS:
        problems.append(f"{len(items) - MOST_TOOLS} more tools are left out: at most {MOST_TOOLS} are read")
    problems += _missing(items, policy)
    return Listing(tuple(tools.values()), tuple(problems))


def as_names(field: str, names: Iterable[str]) -> frozenset[str]:
    """Return names as a set; raise InvalidValue for what is none."""
    given = None if isinstance(names, str) or not isinstance(names, Iterable) else tuple(names)
    if given is None or not all(isinstance(name, str) for name in given):
        raise InvalidValue.of(field, names, "names of tools, as their server says them")
    return frozenset(given)


def _read_tool(item: object, policy: ToolPolicy, make_execute: MakeExecute) -> tuple[ToolDefinition, list[str]]:
    if not isinstance(item, dict):
        raise InvalidValue(f"it must be a JSON object, got a {type(item).__name__}")
    name = item.get("name")
    if not isinstance(name, str):
        raise InvalidValue.of("its name", name, "text")
    execution = item.get("execution")
    if isinstance(execution, dict) and execution.get("taskSupport") == "required":
        raise InvalidValue("it runs only as a background task, which is not supported")
    description, remarks = _description(item.get("description"))
    idempotent = _is_idempotent(item.get("annotations"))
    definition = ToolDefinition(
        name=f"{policy.prefix}{name}",
        description=description,
        parameter_schema=_schema(item.get("inputSchema")),
        execute=make_execute(name, idempotent),
        timeout_ms=policy.timeout_ms,
        concurrency=policy.concurrency,
        requires_approval=policy.requires_approval,
        idempotent=idempotent,
    )
    return definition, remarks


def _schema(schema: object) -> dict[str, Any]:
    if type(schema) is not dict:
        raise InvalidValue.of("its schema", schema, "a JSON object")
    require_json_object(schema, "its schema")
    size = len(encode_json(schema))
    if size > LARGEST_SCHEMA:
        raise InvalidValue(f"its schema has {size} bytes, at most {LARGEST_SCHEMA} are taken")
    return schema if "type" in schema else {"type": "object", **schema}


def _description(description: object) -> tuple[str | None, list[str]]:
    if description is None:
        return None, []
    if not isinstance(description, str):
        return None, ["its description is no text"]
    if len(description) <= LONGEST_DESCRIPTION:
        return description, []
    remark = f"its description of {len(description)} characters is cut after {LONGEST_DESCRIPTION}"
    return f"{description[:LONGEST_DESCRIPTION]} […]", [remark]


def _is_idempotent(annotations: object) -> bool:
    """Whether the server says that a second run does nothing that the first has not done."""
    if not isinstance(annotations, dict):
        return False
    return annotations.get("readOnlyHint") is True or annotations.get("idempotentHint") is True


def _missing(items: Sequence[object], policy: ToolPolicy) -> list[str]:
    """Names that the caller gave and the server does not have: probably typing mistakes."""
    there = {name for item in items if isinstance(item, dict) and isinstance(name := item.get("name"), str)}
    return [
        f"include names {quote(name)}, which the server does not have"
        for name in sorted(policy.include or ())
        if name not in there
    ]


def _first_line(error: Exception) -> str:
    return (str(error).partition("\n")[0] or type(error).__name__)[:300]


async def _nothing(_arguments: dict[str, Any], _context: object) -> None:
    """The function of a definition that is only made to be checked."""
