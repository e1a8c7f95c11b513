"""What servers say of their tools: lists that change, go on and on, or hold what no tool can be."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import InvalidValue
from dragoman.tools import ToolContext, ToolRegistry
from dragoman.tools.mcp_listing import ToolPolicy, read_listing
from tests.mcp_cases import plain, run, say


def test_a_list_that_has_changed_is_read_again() -> None:
    async def work() -> None:
        changed: asyncio.Queue[list[str]] = asyncio.Queue()
        server = plain(on_tools_changed=lambda server: changed.put_nowait([tool.name for tool in server.tools]))
        async with server:
            assert "grown" not in [tool.name for tool in server.tools]
            assert server.instructions == "Be gentle."
            await say(server, "grow")
            assert (await changed.get())[-1] == "grown"
            assert server.tools[-1].name == "grown"

    run(work())


def test_a_list_on_several_pages_is_read_whole() -> None:
    async def work() -> None:
        async with plain() as whole, plain("--page", "3") as paged:
            assert [tool.spec for tool in paged.tools] == [tool.spec for tool in whole.tools]

    run(work())


@pytest.mark.parametrize("page", ["0", "2"])
def test_what_is_wrong_with_a_hostile_list_is_told_and_the_rest_works(page: str) -> None:
    async def work() -> None:
        async with plain("--hostile", "--page", page) as server:
            assert [tool.name for tool in server.tools] == ["good", "long", "strange", "untyped", "output", "annotated"]
            assert await say(server, "good", text="x") == "good"
            told = "\n".join(server.problems)
            for wrong in ("'bad name'", "'huge'", "'wrong_type'", "'elsewhere'", "'tasks'", "number 19", "number 22"):
                assert f"tool {wrong} is left out" in told
            assert "tool 'good' is left out: another tool of this server has the same name" in told
            assert "tool 'long': its description of 100000 characters is cut after 8000" in told
            assert len(server.tools[1].description or "") < 8_100
            assert max(map(len, server.problems)) < 400

    run(work())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
WORDS = st.sampled_from(["type", "properties", "$ref", "items", "pattern", "allOf", "enum", "minimum", "$defs", "a"])
SCHEMA = st.recursive(
    JSON | st.sampled_from(["object", "string", "#/$defs/a", "#", "(", "(a+)+$", 10**400]),
    lambda inner: st.dictionaries(WORDS, inner, max_size=4) | st.lists(inner, max_size=3),
    max_leaves=12,
)
TOOL = st.fixed_dictionaries(
    {"name": st.text(max_size=5) | JSON, "inputSchema": SCHEMA},
    optional={"description": JSON, "annotations": JSON, "execution": JSON},
)


@given(st.lists(TOOL | JSON, max_size=6))
def test_a_list_may_hold_anything(items: list[Any]) -> None:
    listing = read_listing(items, ToolPolicy(), lambda _name, _idempotent: nothing)
    assert len(listing.tools) + len(listing.problems) >= len(items)
    ToolRegistry(listing.tools)


async def nothing(_arguments: dict[str, Any], _context: ToolContext[Any]) -> None:
    """Do nothing."""


def test_a_list_without_end_is_read_up_to_a_bound() -> None:
    items = [{"name": f"tool{number}", "inputSchema": {"type": "object"}} for number in range(1_200)]
    listing = read_listing(items, ToolPolicy(), lambda _name, _idempotent: nothing)
    assert len(listing.tools) == 1_000
    assert listing.problems == ("200 more tools are left out: at most 1000 are read",)


def test_a_list_whose_pages_repeat_is_read_once_and_told() -> None:
    async def work() -> None:
        async with plain("--endless") as server:
            assert server.tools[0].name == "echo"
            assert server.problems[-1] == "the list of tools has no end: 2 pages of it were read"

    run(work())


def test_a_tool_whose_schema_no_parser_takes_is_left_out_alone() -> None:
    async def work() -> None:
        async with plain("--hostile", "--deep") as server:
            assert "good" in [each.name for each in server.tools]
            assert "deep" not in [each.name for each in server.tools]
            assert any("'deep' is left out" in each and "too deeply" in each for each in server.problems)

    run(work())


@pytest.mark.parametrize("name", ["\u202e", "a\u200bb", "\x1b[2J", "a\nb"])
def test_a_tool_with_a_name_that_cannot_be_seen_is_left_out(name: str) -> None:
    items = [{"name": name, "inputSchema": {"type": "object"}}]
    listing = read_listing(items, ToolPolicy(), lambda _name, _idempotent: nothing)
    assert listing.tools == ()
    assert "visible characters" in listing.problems[0]


def test_only_the_tools_that_are_wanted_are_taken() -> None:
    async def work() -> None:
        async with plain(include=["echo", "pid", "ecko"], exclude=["pid"], prefix="p.") as server:
            assert [tool.name for tool in server.tools] == ["p.echo"]
            assert server.problems == ("include names 'ecko', which the server does not have",)
            assert await say(server, "p.echo", text="hello") == "hello"

    run(work())


def test_approval_and_time_limit_are_those_that_were_given() -> None:
    def asks(arguments: dict[str, Any], context: ToolContext[Any]) -> bool:
        return context.tool_name == "die"

    async def work() -> None:
        async with plain(requires_approval=asks, timeout_ms=5_000) as server:
            wanted = {tool.name for tool in server.tools if tool.needs_approval({}, ToolContext(tool_name=tool.name))}
            assert wanted == {"die"}
            assert {tool.timeout_ms for tool in server.tools} == {5_000}
            assert {tool.name for tool in server.tools if tool.idempotent} == {"echo", "die_once", "die_always"}

    run(work())


def test_tools_of_one_name_of_two_servers_are_told_apart() -> None:
    async def work() -> None:
        options: dict[str, Any] = {"include": ["echo"]}
        async with plain(name="left", **options) as left, plain(name="right", **options) as right:
            with pytest.raises(InvalidValue, match=r"MCP server 'left'[.]echo and MCP server 'right'[.]echo"):
                ToolRegistry([*left.tools, *right.tools])

    run(work())
