"""Writes into docs/architecture.md which functions a value passes through, found out by following real calls.

`python scripts/follow_calls.py` rewrites the part of the page between its markers; with `--check` it writes nothing and
exits with 1 if the page is out of date or a way is too long.

A marker text travels in a prompt, an answer or a tool's argument. A profiler notes every function of ours that is given
a value with the marker inside. Such a function is a hop if it is called from another module. Not counted are the values
themselves (modules of rows 0 and 1), and helpers that a package keeps for itself: they hand the value to no other hop.
"""

import argparse
import asyncio
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import msgspec

import dragoman
from dragoman import Agent, Message, SQLiteStore, model, start_session, tool
from dragoman.history import ModelInputEntry
from dragoman.testing.transports import ReplayedResponse, ReplayTransport

PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
BEGIN, END = "<!-- made by scripts/follow_calls.py -->\n", "<!-- end of scripts/follow_calls.py -->\n"
MARKER = "followed-value"
PACKAGE = Path(dragoman.__file__).parent
DEPTH = 6  # how deep inside its arguments a function's marker is looked for
UNNAMED = ("<lambda>", "<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>", "<module>")


class Hop(NamedTuple):
    """A function that got the value, the module that it stands in, and the types of ours that held the value."""

    module: str
    function: str
    types: tuple[str, ...]


def holds(value: Any, depth: int, types: list[str]) -> bool:
    """Return whether the marker is inside a value; note the types of ours on the way to it."""
    if isinstance(value, str):
        return MARKER in value
    if isinstance(value, (bytes, bytearray, memoryview, msgspec.Raw)):
        return MARKER.encode() in bytes(value)
    if depth == 0:
        return False
    if isinstance(value, dict):
        return any(holds(item, depth - 1, types) for item in value.values())
    if isinstance(value, (list, tuple, set, frozenset)) and not hasattr(value, "_fields"):
        return any(holds(item, depth - 1, types) for item in value)
    if isinstance(value, msgspec.Struct):
        fields: Any = (getattr(value, name) for name in value.__struct_fields__)
    elif hasattr(value, "_fields"):
        fields = tuple(value)
    else:
        return False
    if any(holds(item, depth - 1, types) for item in fields):
        if type(value).__module__.startswith("dragoman"):
            types.append(type(value).__name__)
        return True
    return False


def function_name(frame: FrameType) -> tuple[str, str] | None:
    """Return module and name of a function of ours; None for other code, and for the values of rows 0 and 1."""
    code = frame.f_code
    if not code.co_filename.startswith(str(PACKAGE)) or code.co_name in UNNAMED:
        return None
    path = Path(code.co_filename).relative_to(PACKAGE).with_suffix("")
    if len(path.parts) == 1:
        return None
    return "/".join(path.parts), code.co_qualname.replace(".<locals>", "")


def callers(frame: FrameType) -> Iterator[tuple[str, str]]:
    """Yield the functions of ours that wait for this one, the nearest first."""
    above = frame.f_back
    while above is not None:
        if (name := function_name(above)) is not None:
            yield name
        above = above.f_back


def package_of(module: str) -> str:
    """Return the package that a module stands in."""
    return module.partition("/")[0]


@contextmanager
def followed() -> Iterator[list[Hop]]:
    """Note the hops of this block, in the order of their first calls; they are known when it has ended."""
    noted: dict[tuple[str, str], list[str]] = {}
    helpers: set[tuple[str, str]] = set()
    hops: list[Hop] = []

    def look(frame: FrameType, event: str, _argument: Any) -> None:
        name = function_name(frame) if event == "call" else None
        if name is None:
            return
        above = list(callers(frame))
        if above and above[0][0] == name[0]:
            return
        names = frame.f_code.co_varnames[: frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount + 2]
        types: list[str] = []
        if not any(holds(frame.f_locals.get(given), DEPTH, types) for given in names if given not in ("self", "cls")):
            return
        if name not in noted and above and package_of(above[0][0]) == package_of(name[0]):
            helpers.add(name)
        helpers.difference_update(above)  # they hand it on
        noted.setdefault(name, []).extend(types)

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        yield hops
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        hops += [Hop(*name, tuple(dict.fromkeys(types))) for name, types in noted.items() if name not in helpers]


# ---------------------------------------------------------------- the calls that are followed


def answers(*bodies: str) -> ReplayTransport:
    """Answer each request with the next of these events, as an OpenAI-compatible server writes them."""
    return ReplayTransport(
        [ReplayedResponse(chunks=(f"data: {body}\n\ndata: [DONE]\n\n".encode(),)) for body in bodies]
    )


def said(text: str) -> str:
    """Return an event that holds a whole answer."""
    return msgspec.json.encode(
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}
    ).decode()


def called(arguments: str) -> str:
    """Return an event that holds a whole call of the tool `work`."""
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "work", "arguments": arguments}}
    choice = {"index": 0, "delta": {"role": "assistant", "tool_calls": [call]}, "finish_reason": "tool_calls"}
    return msgspec.json.encode({"choices": [choice]}).decode()


def openai_chat(*bodies: str) -> Any:
    """Return a model that gives these answers."""
    return model("openai-chat:gpt-4.1", api_key="not-a-real-key", transport=answers(*bodies))


async def one_request() -> list[Hop]:
    """From `Model.stream` to the transport: a user message."""
    asked = openai_chat(said("Yes."), said("Yes."))
    await asked.stream([Message.user("Warm up.")]).collect()
    with followed() as hops:
        await asked.stream([Message.user(MARKER)]).collect()
    return until(hops, "testing/transports")


async def one_event() -> list[Hop]:
    """From the network to the assembled message: a piece of text."""
    asked = openai_chat(said("Yes."), said(MARKER))
    await asked.stream([Message.user("Warm up.")]).collect()
    with followed() as hops:
        await asked.stream([Message.user("Go.")]).collect()
    return [hop for hop in hops if not hop.module.startswith("testing/")]


@tool
def work(at: str) -> str:
    """Work."""
    return f"Worked at {len(at)}."


async def agent_run(prompt: str, *bodies: str) -> list[Hop]:
    """Follow a run of an agent on a session in a file."""
    with tempfile.TemporaryDirectory() as folder:
        async with SQLiteStore(Path(folder) / "sessions.db") as store:
            agent = Agent(openai_chat(*bodies), tools=[work], session=await start_session(store, "s"))
            await agent.run("Warm up.")
            with followed() as hops:
                await agent.run(prompt)
    return hops


async def one_prompt() -> list[Hop]:
    """From `Agent.run` to the first append: a prompt."""
    return until(await agent_run(MARKER, said("Yes."), said("Yes.")), "store/sqlite")


async def one_append() -> list[Hop]:
    """From `Session.append` to the writer of the file: an entry."""
    with tempfile.TemporaryDirectory() as folder:
        async with SQLiteStore(Path(folder) / "sessions.db") as store:
            session = await start_session(store, "s")
            await session.append(ModelInputEntry.of("Warm up."))
            with followed() as hops:
                await session.append(ModelInputEntry.of(MARKER))
    # Without the making of the entry. The writer then works in the loop or in its thread, as time demands.
    return until(hops[1:], "store/sqlite")


async def one_tool_call() -> list[Hop]:
    """From the recorded answer to the recorded result: the arguments of a call."""
    hops = await agent_run("Go.", said("Yes."), called(f'{{"at": "{MARKER}"}}'), said("Done."))
    tool_hops = [hop for hop in hops if hop.module.startswith(("agent/tooling", "tools/"))]
    return [hop for hop in tool_hops if hop.types]


# ---------------------------------------------------------------- what the page says

SCENES = (one_request, one_event, one_prompt, one_append, one_tool_call)
# How long a way may be: a longer one is hard to follow for somebody who reads the code for the first time.
LIMITS = {str(one_request.__doc__): 10, str(one_prompt.__doc__): 14}
CALL_TYPES = 4


def until(hops: list[Hop], module: str) -> list[Hop]:
    """Return the hops up to the first one in a module."""
    for index, hop in enumerate(hops):
        if hop.module == module:
            return hops[: index + 1]
    return hops


def call_types(hops: list[Hop]) -> list[str]:
    """Return the types that stand for one call on its way, its result included."""
    types = [name for hop in hops for name in hop.types if name.endswith("Call")]
    return [*dict.fromkeys(types), "HistoryToolCallResult"]


def follow_all() -> dict[str, list[Hop]]:
    """Return the hops of every scene, by its title."""
    return {str(scene.__doc__): asyncio.run(scene()) for scene in SCENES}


def page_part(followed_calls: dict[str, list[Hop]]) -> str:
    """Return the lines that stand between the markers of the page."""
    lines: list[str] = []
    for title, hops in followed_calls.items():
        lines += ["", f"**{title.removesuffix('.')}, {len(hops)} hops:**", ""]
        lines += [f"{number}. `{hop.function}` in `{hop.module}`" for number, hop in enumerate(hops, 1)]
    types = call_types(followed_calls[str(one_tool_call.__doc__)])
    lines += ["", f"A tool call is {len(types)} types on its way: {', '.join(f'`{name}`' for name in types)}.", ""]
    return "\n".join([*lines, ""])


def main() -> int:
    """Write the page, or say that it is out of date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    chosen = parser.parse_args()
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    hops = follow_all()
    new = f"{before}{BEGIN}{page_part(hops)}{END}{after}"
    if chosen.check:
        too_long = [title for title, limit in LIMITS.items() if len(hops[title]) > limit]
        if new != text:
            print(f"{PAGE.name} is out of date: run python scripts/follow_calls.py")
        for title in too_long:
            print(f"{title} More hops than {LIMITS[title]}.")
        return 1 if new != text or too_long or len(call_types(hops[str(one_tool_call.__doc__)])) > CALL_TYPES else 0
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
