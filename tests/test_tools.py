"""Tools as they are made: functions by the decorator, definitions by hand, registries; and what is refused at once."""

import functools
import importlib
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Optional, TypedDict, Unpack, assert_type

import msgspec
import pytest
from pydantic import BaseModel, Field

from dragoman import ErrorCode, FileRef, Image, InvalidValue, Text, ToolError, ToolSpec
from dragoman.history import LevelOfDetail, LevelOfDetailSections, Section
from dragoman.tools import (
    FunctionTool,
    ToolContext,
    ToolDefinition,
    ToolOutput,
    ToolRegistry,
    tool,
)

OBJECT: dict[str, Any] = {"type": "object", "properties": {}}
CONTEXT: ToolContext[Any] = ToolContext()


def nothing(arguments: dict[str, Any], context: ToolContext[Any]) -> None: ...


@dataclass
class Deps:
    answer: int = 42


@tool
def search(query: str, limit: Annotated[int, "How many at most."] = 5) -> str:
    """Search the archive
    for documents.

    Slow on Sundays.

    Args:
        query: What to look for.
        limit: Not this one: the annotation says more.
    """
    return f"{query}/{limit}"


# ---------------------------------------------------------------- the decorator


def test_a_function_becomes_a_tool_by_its_name_its_docstring_and_its_types() -> None:
    assert search.spec == ToolSpec(
        "search",
        "Search the archive for documents.",
        {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What to look for."},
                "limit": {"type": "integer", "description": "How many at most.", "default": 5},
            },
            "required": ["query"],
            "additionalProperties": False,
        },
    )


def test_the_tool_can_still_be_called_like_the_function() -> None:
    assert_type(search("x", limit=2), str)
    assert search("x", limit=2) == "x/2"
    assert isinstance(search, FunctionTool)
    assert isinstance(search, ToolDefinition)


def test_execute_gives_the_function_values_of_its_types_and_its_own_defaults() -> None:
    assert search.execute({"query": "x"}, CONTEXT) == "x/5"
    assert search.execute({"query": "x", "limit": 3.0}, CONTEXT) == "x/3"


def test_execute_refuses_what_does_not_fit_even_where_nobody_has_checked() -> None:
    with pytest.raises(ToolError, match="limit: must be a whole number, got 'x'") as caught:
        search.execute({"query": "x", "limit": "x"}, CONTEXT)
    assert caught.value.code is ErrorCode.INVALID_ARGUMENTS
    with pytest.raises(ToolError, match="more: is not known here"):
        search.execute({"query": "x", "more": 1}, CONTEXT)
    with pytest.raises(ToolError, match="query: is missing"):
        search.execute({}, CONTEXT)


def test_everything_can_be_said_in_the_decorator() -> None:
    def ask(arguments: dict[str, Any], context: ToolContext[Any]) -> bool:
        return bool(arguments["force"])

    @tool(
        name="wipe_disk",
        description="Careful.",
        timeout_ms=500,
        requires_approval=ask,
        requires_runtime=True,
        requires_agent=True,
        idempotent=True,
        concurrency="disk",
        strict=True,
    )
    async def wipe(force: bool) -> None:
        """Not this."""

    assert (wipe.name, wipe.description, wipe.timeout_ms, wipe.concurrency) == ("wipe_disk", "Careful.", 500, "disk")
    assert wipe.requires_runtime
    assert wipe.requires_agent
    assert wipe.idempotent
    assert wipe.is_async
    assert wipe.spec.strict is True
    assert wipe.needs_approval({"force": True}, CONTEXT)
    assert not wipe.needs_approval({"force": False}, CONTEXT)
    assert wipe.needs_approval({}, CONTEXT), "a function that fails means that a person is asked"


def test_a_tool_of_something_that_can_be_called() -> None:
    class Greeter:
        def __init__(self, word: str) -> None:
            self.word = word

        def greet(self, name: str) -> str:
            """Greet somebody."""
            return f"{self.word} {name}"

        async def __call__(self, name: str) -> str:
            return f"{self.word} {name}"

    greeter = Greeter("Hello")
    bound = tool(greeter.greet)
    assert bound.name == "greet"
    assert bound.description == "Greet somebody."
    assert bound.execute({"name": "you"}, CONTEXT) == "Hello you"
    called = tool(greeter, name="greeter")
    assert called.is_async
    assert list(called.parameter_schema["properties"]) == ["name"]
    partly = tool(functools.partial(greeter.greet), name="partly")
    assert partly.execute({"name": "all"}, CONTEXT) == "Hello all"


def test_a_wrapped_function_keeps_its_parameters() -> None:
    def loud(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> str:
            return str(function(*args, **kwargs)).upper()

        return wrapper

    @tool
    @loud
    def whisper(text: str) -> str:
        """Say it."""
        return text

    assert whisper.execute({"text": "x"}, CONTEXT) == "X"


def test_names_in_annotations_may_be_text_and_of_the_function_around() -> None:
    @dataclass
    class Inner:
        x: "int"

    @tool
    def local(inner: "Inner", others: "list[Inner] | None" = None) -> str:
        return str(inner.x)

    assert local.execute({"inner": {"x": 3}}, CONTEXT) == "3"


class More(TypedDict, total=False):
    color: str
    size: int


def test_more_names_are_taken_where_the_function_takes_them() -> None:
    @tool
    def any_number(first: int, **rest: int) -> str:
        return f"{first} {rest}"

    assert any_number.parameter_schema["additionalProperties"] == {"type": "integer"}
    assert any_number.execute({"first": 1, "second": 2}, CONTEXT) == "1 {'second': 2}"
    assert any_number.find_problems({"first": 1, "second": "x"}) == ["second: must be a whole number, got 'x'"]

    @tool
    def named(first: int, **rest: Unpack[More]) -> str:
        return f"{first} {rest}"

    assert list(named.parameter_schema["properties"]) == ["first", "color", "size"]
    assert named.parameter_schema["required"] == ["first"]
    assert named.execute({"first": 1, "size": 2}, CONTEXT) == "1 {'size': 2}"


def test_what_pydantic_says_of_a_parameter_counts() -> None:
    class Person(BaseModel):
        """Somebody."""

        name: str
        age: int = Field(ge=0, description="In years.")

    @tool
    def meet(
        person: Person, times: int = Field(1, ge=1, description="How often."), tag: str = Field("x", alias="theTag")
    ) -> str:
        return f"{person.name} {times} {tag}"

    properties = meet.parameter_schema["properties"]
    assert properties["times"] == {"type": "integer", "minimum": 1, "description": "How often.", "default": 1}
    assert properties["person"]["properties"]["age"] == {"description": "In years.", "minimum": 0, "type": "integer"}
    assert properties["person"]["description"] == "Somebody."
    assert "theTag" in properties
    assert meet.execute({"person": {"name": "A", "age": 3}}, CONTEXT) == "A 1 x"
    assert meet.execute({"person": {"name": "A", "age": 3}, "theTag": "y"}, CONTEXT) == "A 1 y"
    assert meet.find_problems({"person": {"name": "A", "age": -1}}) == ["person.age: must be at least 0, got -1"]


class Street(BaseModel):
    name: str
    houses: list[int] = Field(default=[], description="Their numbers, all of them, even those that nobody can find.")
    crossing: "list[Street]" = Field(default=[], description="Streets that cross it, without those under ground.")


class Home(BaseModel):
    street: Street


class Office(BaseModel):
    street: Street
    floor: int = Field(description="From the ground up, where the ground is 0; below it, with a minus in front of it.")
    opens: str = Field(description="The time at which it opens, on the days on which it does open at all.")


def test_a_model_that_several_others_hold_is_defined_once() -> None:
    @tool
    def move(home: Home, office: Office, old_office: Office | None = None) -> str:
        return type(home.street).__name__ + type(office).__name__

    assert sorted(move.parameter_schema["$defs"]) == ["Office", "Street"]
    street = {"name": "x", "crossing": [{"name": "y"}]}
    arguments: dict[str, Any] = {"home": {"street": street}, "office": {"street": street, "floor": 1, "opens": "9"}}
    assert move.find_problems(arguments) == []
    assert move.execute(arguments, CONTEXT) == "StreetOffice"
    arguments["office"]["floor"] = "x"
    assert move.find_problems(arguments) == ["office.floor: must be a whole number, got 'x'"]


def test_a_model_of_the_same_name_that_says_something_else_is_another() -> None:
    def other() -> Any:
        class Street(BaseModel):
            name: str
            crossing: "list[Street]" = []

        return Street

    made = other()
    made.model_rebuild(_types_namespace={"Street": made})

    def move(a: Street, b: Any) -> None: ...

    move.__annotations__["b"] = made
    assert sorted(tool(move).parameter_schema["$defs"]) == ["Street", "Street_2"]


# ---------------------------------------------------------------- the context


def test_the_context_is_given_and_hidden() -> None:
    @tool
    def plain(context: ToolContext[Deps], x: int) -> int:
        return context.runtime.answer + x

    @tool
    def maybe(x: int, context: ToolContext[Deps] | None = None) -> int:
        return x if context is None else context.runtime.answer + x

    @tool
    def old(x: int, context: Optional[ToolContext] = None) -> int:  # noqa: UP045
        return x if context is None else x + 1

    @tool
    def text(x: int, *, here: "Annotated[ToolContext[Deps], 'the context']") -> int:
        return here.runtime.answer + x

    context = ToolContext(runtime=Deps(), tool_call_id="c1")
    for made in (plain, maybe, old, text):
        assert list(made.parameter_schema["properties"]) == ["x"]
    assert plain.execute({"x": 1}, context) == 43
    assert maybe.execute({"x": 1}, context) == 43
    assert old.execute({"x": 1}, context) == 2
    assert text.execute({"x": 1}, context) == 43
    assert maybe(1) == 1


def test_a_model_cannot_give_the_context_itself() -> None:
    @tool
    def closed(x: int, context: ToolContext[Deps]) -> str:
        return type(context).__name__

    @tool
    def opened(context: ToolContext[Deps], **rest: Any) -> str:
        return type(context).__name__

    assert closed.find_problems({"x": 1, "context": {}}) == ["context: is not known here: allowed are x"]
    assert opened.find_problems({"context": {}}) == ["context: is not known here"]
    with pytest.raises(ToolError, match="context: is not known here"):
        opened.execute({"context": {}}, CONTEXT)


def test_a_context_has_defaults() -> None:
    assert ToolContext() == ToolContext(
        session_id="", run_id="", tool_call_id="", tool_name="", runtime=None, agent=None
    )


# ---------------------------------------------------------------- what is refused


def refused(function: Any, **settings: Any) -> str:
    with pytest.raises(InvalidValue) as caught:
        tool(function, **settings)
    return str(caught.value)


def test_parameters_that_no_model_can_give_are_refused() -> None:
    def bare(x): ...  # type: ignore[no-untyped-def]
    def bare_default(x=3): ...  # type: ignore[no-untyped-def]
    def positional(x: int, /) -> None: ...
    def many(*x: int) -> None: ...
    def bare_rest(**x): ...  # type: ignore[no-untyped-def]
    def odd(x: complex) -> None: ...
    def odd_rest(**x: complex) -> None: ...
    def method(self, x: int) -> None: ...  # type: ignore[no-untyped-def]
    def contexts(**x: ToolContext[Any]) -> None: ...
    def unknown(x: "Unheard") -> None: ...  # type: ignore[name-defined]  # noqa: F821
    def clash(x: int, y: int = Field(alias="x")) -> None: ...

    assert refused(bare) == "tool 'bare', parameter x: it needs a type annotation, which becomes its schema"
    assert "it needs a type annotation" in refused(bare_default)
    assert "positional-only" in refused(positional)
    assert "take a list instead of *x" in refused(many)
    assert "it needs a type annotation" in refused(bare_rest)
    assert refused(odd) == "tool 'odd', parameter x: complex is not supported: JSON has no such type"
    assert "complex is not supported" in refused(odd_rest)
    assert "make the tool of the bound method" in refused(method)
    assert "a ToolContext is one parameter" in refused(contexts)
    assert "the name 'Unheard' in its annotations means nothing here" in refused(unknown)
    assert refused(clash) == "tool 'clash': two parameters are called 'x'"


def test_what_is_no_function_is_refused() -> None:
    async def endless() -> AsyncIterator[int]:
        yield 1

    def generator() -> Iterator[int]:
        yield 1

    assert "without a name needs one" in refused(lambda: 1)
    assert "must be a function" in refused(3)
    assert "must be a function" in refused(Deps)
    assert "a function that yields is no tool" in refused(generator)
    assert "a function that yields is no tool" in refused(endless)
    assert "tool name must be 1 to 128 visible characters" in refused(nothing_at_all, name="two words")
    assert "without a name needs one" in refused(functools.partial(nothing_at_all))


def test_a_setting_that_no_tool_has_is_refused() -> None:
    with pytest.raises(TypeError, match="timeout"):
        tool(nothing_at_all, timeout=3)  # type: ignore[call-overload]


def nothing_at_all() -> None: ...


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"name": ""}, "tool name must be"),
        ({"name": "a b"}, "tool name must be"),
        ({"description": 3}, "description of tool 'x' must be text"),
        ({"parameter_schema": {"type": "array"}}, "parameterSchema of tool 'x': type must be 'object'"),
        ({"parameter_schema": []}, "parameterSchema of tool 'x' must be a JSON object"),
        ({"parameter_schema": {"type": "object", "required": 3}}, "is no JSON Schema that can be used"),
        ({"execute": None}, "tool 'x': execute must be a function"),
        ({"timeout_ms": -1}, "timeout_ms must be a whole number of milliseconds, or 0 for no limit, got -1"),
        ({"timeout_ms": 1.5}, "timeout_ms must be"),
        ({"timeout_ms": True}, "timeout_ms must be"),
        ({"requires_approval": "yes"}, "requires_approval must be true, false or a plain function"),
        ({"requires_runtime": 1}, "requires_runtime must be true or false, got 1"),
        ({"requires_agent": None}, "requires_agent must be true or false"),
        ({"idempotent": "no"}, "idempotent must be true or false"),
        ({"concurrency": None}, "concurrency must be text"),
        ({"strict": 1}, "strict of tool 'x' must be true or false"),
    ],
)
def test_a_definition_says_what_is_wrong_with_it(changes: dict[str, Any], says: str) -> None:
    given: dict[str, Any] = {"name": "x", "execute": nothing, **changes}
    with pytest.raises(InvalidValue) as caught:
        ToolDefinition(**given)
    assert says in str(caught.value)


def test_approval_cannot_be_asked_of_a_coroutine() -> None:
    async def later(arguments: dict[str, Any], context: ToolContext[Any]) -> bool:
        return True

    with pytest.raises(InvalidValue, match="plain function"):
        ToolDefinition(name="x", execute=nothing, requires_approval=later)  # type: ignore[arg-type]


def test_a_definition_made_by_hand_is_checked_against_its_schema_only() -> None:
    made = ToolDefinition(name="x", execute=nothing, parameter_schema={"type": "object", "required": ["a"]})
    assert made.spec == ToolSpec("x", None, {"type": "object", "required": ["a"]})
    assert made.find_problems({}) == ["a: is missing: give a value"]
    assert made.find_problems({"a": object}) != []
    assert not made.is_async


def test_a_definition_can_be_changed_into_another_one() -> None:
    hurried = msgspec.structs.replace(search, timeout_ms=10)
    assert hurried.timeout_ms == 10
    assert hurried.execute({"query": "x"}, CONTEXT) == "x/5"
    assert search.timeout_ms is None
    with pytest.raises(AttributeError):
        search.timeout_ms = 3  # type: ignore[misc]


# ---------------------------------------------------------------- outputs


def test_an_output_without_a_summary_is_the_same_at_every_level() -> None:
    assert ToolOutput("x").levels() == LevelOfDetailSections.of_text("x")


def test_an_output_has_what_its_tool_gave_for_each_level() -> None:
    output = ToolOutput([Section("A", "long"), Section("B", "longer")], summary="short")
    levels = output.levels()
    assert [section.value for section in levels.get_sections(LevelOfDetail.LIVE)] == ["long", "longer"]
    assert levels.summary == levels.gist == (Section("", "short"),)
    assert ToolOutput("a", summary="b", gist="c").levels().gist == (Section("", "c"),)


@pytest.mark.parametrize(
    "given",
    [
        {"content": 3},
        {"content": [3]},
        {"content": "x", "summary": 3},
        {"content": "x", "attachments": [Text("x")]},
        {"content": "x", "attachments": "x"},
        {"content": "x", "attachments": [3]},
    ],
)
def test_an_output_of_something_else_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        ToolOutput(**given)


def test_an_output_may_have_pictures_and_files() -> None:
    parts = (Image(mime_type="image/png", data=b"x"), FileRef(path="a.txt"))
    assert ToolOutput("x", attachments=parts).attachments == parts


# ---------------------------------------------------------------- registries


def test_a_registry_holds_tools_in_order_and_makes_tools_of_functions() -> None:
    def add(a: int, b: int) -> int:
        return a + b

    made = ToolDefinition(name="made", execute=nothing)
    registry = ToolRegistry([search, made, add])
    assert registry.names == ("search", "made", "add")
    assert [spec.name for spec in registry.specs] == ["search", "made", "add"]
    assert registry.find("made") is made
    assert registry.find("nothing") is None
    assert list(registry) == [search, made, registry.find("add")]
    assert len(registry) == 3
    assert "add" in registry
    assert "nothing" not in registry


def test_two_tools_of_one_name_are_refused_and_both_are_named() -> None:
    def search(query: str) -> str:
        return query

    with pytest.raises(InvalidValue) as caught:
        ToolRegistry([globals()["search"], search])
    assert str(caught.value).startswith(
        "two tools are called 'search': tests.test_tools.search and tests.test_tools.test_two"
    )
    with pytest.raises(InvalidValue, match="two tools are called 'x'"):
        ToolRegistry([ToolDefinition(name="x", execute=nothing)]).with_tools(ToolDefinition(name="x", execute=nothing))


def test_with_tools_leaves_the_registry_as_it_is() -> None:
    registry = ToolRegistry([search])
    more = registry.with_tools(ToolDefinition(name="x", execute=nothing))
    assert registry.names == ("search",)
    assert more.names == ("search", "x")


def test_what_tools_cannot_do_without_must_be_there() -> None:
    needy = ToolDefinition(name="needy", execute=nothing, requires_runtime=True)
    social = ToolDefinition(name="social", execute=nothing, requires_agent=True, requires_runtime=True)
    registry = ToolRegistry([search, needy, social])
    with pytest.raises(InvalidValue, match="a runtime must be given: needy, social cannot do without"):
        registry.require(agent=object())
    with pytest.raises(InvalidValue, match="an agent must be given: social cannot do without"):
        registry.require(runtime=Deps())
    registry.require(runtime=Deps(), agent=object())
    ToolRegistry([search]).require()


def test_what_is_no_tool_is_refused() -> None:
    with pytest.raises(InvalidValue, match="must be a function"):
        ToolRegistry([3])  # type: ignore[list-item]


# ---------------------------------------------------------------- the package


def test_the_package_loads_what_is_asked_for_and_nothing_heavy() -> None:
    program = (
        "import sys; from dragoman.tools import *; "
        "heavy = {'pydantic', 'jsonschema_rs', 'aiohttp'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-I", "-W", "error", "-c", program], check=True)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    package = importlib.import_module("dragoman.tools")
    assert not hasattr(package, "nothing")
    assert set(package.__all__) <= set(dir(package))
    assert all(hasattr(package, name) for name in package.__all__)
