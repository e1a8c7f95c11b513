"""What is recorded cannot be changed through a value that was handed out, and what runs is what the record says."""

import asyncio
import copy
import dataclasses
import json
import pickle
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dragoman import (
    Agent,
    Message,
    Session,
    SQLiteStore,
    Text,
    ToolCall,
    ToolContext,
    ToolResult,
    ToolSpec,
    open_session,
    start_session,
    to_json,
)
from dragoman.agent import ApprovalRequest, Hooks, MessageEvent, ModelCall, ToolStartedEvent
from dragoman.delta import DoneDelta, ProviderItemDelta, TextDelta, ToolCallStartDelta
from dragoman.history import ApprovalAnsweredEntry, EpochEntry, ModelOutputEntry, ToolSetEntry, UnknownEntry
from dragoman.message import FinishReason, MessageMeta, ModelInvocationDescriptor, ProviderItem, UnknownPart
from dragoman.stream import Assembly
from dragoman.testing import Call, ScriptedModel, Turn
from dragoman.tools import ToolDefinition

GIVEN = {"amount": "5000", "to": {"names": ["Ada"]}}  # the amount is converted: it is a number in the schema
SCHEMA = {"type": "object", "properties": {"amount": {"type": "integer"}, "to": {"type": "object"}}}
NOW = datetime(2026, 1, 2, tzinfo=UTC)
INVOCATION = ModelInvocationDescriptor("p", "s", "m")


def spoil(arguments: Any) -> None:
    """Change everything that can be changed, on every level; what refuses is left."""
    for change in (
        lambda: arguments["to"]["names"].append("Mallory"),
        lambda: arguments["to"].update(name="Mallory"),
        lambda: arguments.__setitem__("amount", 1),
        arguments.clear,
    ):
        try:
            change()
        except TypeError:
            pass


def spoil_calls(messages: Iterable[Message]) -> None:
    for message in messages:
        for call in message.tool_calls:
            spoil(call.arguments)


class Spoiler(Hooks):
    """Hooks that change the arguments of every call they are shown."""

    async def before_model(self, call: ModelCall) -> None:
        spoil_calls(call.messages)

    async def after_model(self, call: ModelCall, assembly: Assembly) -> None:
        spoil_calls([assembly.message] if assembly.message is not None else [])

    async def before_tool(self, call: ToolCall, context: ToolContext[Any]) -> None:
        spoil(call.arguments)


def spoiling_policy(request: ApprovalRequest) -> bool:
    spoil(request.arguments)
    spoil(request.call.arguments)
    return True


def paying(ran: list[Any], *, in_function: bool) -> ToolDefinition:
    def pay(arguments: dict[str, Any], context: ToolContext[Any]) -> str:
        ran.append(copy.deepcopy(arguments))
        spoil(arguments)
        return "paid"

    def needs_approval(arguments: dict[str, Any], context: ToolContext[Any]) -> bool:
        spoil(arguments)
        return True

    return ToolDefinition(
        name="pay", execute=pay, parameter_schema=SCHEMA, requires_approval=needs_approval if in_function else True
    )


def calls_of(session: Session) -> list[Any]:
    return [
        call.arguments for entry in session.entries if isinstance(entry, ModelOutputEntry) for call in entry.tool_calls
    ]


def spoil_result(agent: Agent, result: Any) -> None:
    for call in result.approvals:
        spoil(call.arguments)
    assert agent.session is not None
    spoil_calls(agent.session.messages)
    spoil_calls([result.message])


@pytest.mark.parametrize("decided_by", ["a person", "a policy"])
@pytest.mark.parametrize("in_function", [False, True], ids=["always", "by a function"])
def test_a_tool_runs_with_the_recorded_arguments_though_all_code_tries_to_change_them(
    tmp_path: Path, decided_by: str, in_function: bool
) -> None:
    ran: list[Any] = []
    recorded = {"amount": 5000, "to": {"names": ["Ada"]}}

    async def use() -> None:
        async with SQLiteStore(tmp_path / "s.db") as store:
            session = await start_session(store, "x")
            model = ScriptedModel(Turn(calls=(Call("pay", GIVEN, "c"),)), "Done.")
            policy = spoiling_policy if decided_by == "a policy" else None
            agent = Agent(
                model, tools=[paying(ran, in_function=in_function)], session=session, hooks=[Spoiler()], approval=policy
            )
            run = agent.stream("Pay.")
            async for event in run:
                if isinstance(event, MessageEvent):
                    spoil_calls([event.message])
                elif isinstance(event, ToolStartedEvent):
                    spoil(event.call.arguments)
            if decided_by == "a person":
                spoil_result(agent, await run.result())
                await agent.approve("c")
                assert (await agent.run()).output == "Done."
            again = await open_session(store, "x")
            assert calls_of(again) == calls_of(session) == [GIVEN]
            assert to_json(again.messages[1]) == to_json(session.messages[1])

    asyncio.run(use())
    assert ran == [recorded]


def test_arguments_that_an_approval_changed_run_as_they_were_recorded() -> None:
    ran: list[Any] = []
    model = ScriptedModel(Turn(calls=(Call("pay", GIVEN, "c"),)), "Done.")
    agent = Agent(model, tools=[paying(ran, in_function=False)])
    agent.run_sync("Pay.")
    other: dict[str, Any] = {"amount": 7, "to": {"names": ["Bob"]}}
    asyncio.run(agent.approve("c", arguments=other))
    spoil(other)
    assert agent.session is not None
    (answered,) = [entry for entry in agent.session.entries if isinstance(entry, ApprovalAnsweredEntry)]
    spoil(answered.arguments)
    agent.run_sync()
    assert ran == [answered.arguments] == [{"amount": 7, "to": {"names": ["Bob"]}}]


# Every value with a JSON object in it, made of a given object; and where it stands.
HOLDERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "call.arguments": lambda given: ToolCall("c", "t", given).arguments,
    "call.provider_data": lambda given: ToolCall("c", "t", {}, provider_data=given).provider_data,
    "parsed call.arguments": lambda given: ToolCall.parse("c", "t", '{"to": {"names": ["Ada"]}}').arguments,
    "text.provider_data": lambda given: Text("t", provider_data=given).provider_data,
    "text.extra": lambda given: Text("t", extra=given).extra,
    "item": lambda given: ProviderItem("i", given).item,
    "unknown part": lambda given: UnknownPart("later", given).payload,
    "result.content": lambda given: ToolResult("c", given).content,
    "meta.provider_data": lambda given: MessageMeta(provider_data=given).provider_data,
    "meta.extra": lambda given: MessageMeta(extra=given).extra,
    "message.extra": lambda given: Message("user", (), extra=given).extra,  # type: ignore[arg-type]
    "answered.arguments": lambda given: ApprovalAnsweredEntry("c", True, arguments=given).arguments,
    "epoch.choices": lambda given: EpochEntry(1, "r", given).choices,
    "tool set.settings": lambda given: ToolSetEntry(INVOCATION, settings=given).settings,
    "tool set.specs": lambda given: (
        ToolSetEntry(INVOCATION, (), (ToolSpec("f", None, given),)).specs[0].parameter_schema
    ),
    "unknown entry": lambda given: UnknownEntry("later", given).payload,
    "entry.extra": lambda given: EpochEntry(1, "r", extra=given).extra,
    "text delta": lambda given: TextDelta("r", 0, NOW, "t", provider_data=given).provider_data,
    "start delta": lambda given: ToolCallStartDelta("r", 0, NOW, "c", "t", provider_data=given).provider_data,
    "item delta": lambda given: ProviderItemDelta("r", 0, NOW, "i", given).item,
    "done delta": lambda given: DoneDelta("r", 0, NOW, FinishReason.STOP, provider_data=given).provider_data,
}


@pytest.mark.parametrize("make", HOLDERS.values(), ids=HOLDERS)
def test_no_value_changes_with_the_object_it_was_made_of_nor_through_the_one_it_hands_out(
    make: Callable[[dict[str, Any]], Any],
) -> None:
    given: dict[str, Any] = {"to": {"names": ["Ada"]}}
    held = make(given)
    given["to"]["names"].append("Mallory")
    given["more"] = 1
    spoil(held)
    assert held == {"to": {"names": ["Ada"]}}
    with pytest.raises(TypeError, match="recorded value and cannot be changed: change a copy"):
        held["to"]["names"][0] = "Mallory"


@pytest.mark.parametrize(
    "change",
    [
        lambda held: held.update(a=1),
        lambda held: held.setdefault("a", 1),
        lambda held: held.pop("names"),
        lambda held: held.popitem(),
        lambda held: held.__ior__({"a": 1}),
        lambda held: held.__delitem__("names"),
        lambda held: held["names"].extend("b"),
        lambda held: held["names"].insert(0, "b"),
        lambda held: held["names"].pop(),
        lambda held: held["names"].remove("Ada"),
        lambda held: held["names"].sort(),
        lambda held: held["names"].reverse(),
        lambda held: held["names"].clear(),
        lambda held: held["names"].__iadd__(["b"]),
        lambda held: held["names"].__imul__(2),
        lambda held: held["names"].__delitem__(0),
    ],
)
def test_every_way_to_change_a_dict_or_list_is_refused(change: Callable[[Any], Any]) -> None:
    held = ToolCall("c", "t", {"names": ["Ada"]}).arguments
    with pytest.raises(TypeError, match="cannot be changed"):
        change(held)
    assert held == {"names": ["Ada"]}


def test_a_copy_of_recorded_arguments_can_be_changed() -> None:
    call = ToolCall("c", "t", {"to": {"names": ["Ada"]}})
    assert call.arguments is not None
    for copied in (copy.deepcopy(call.arguments), pickle.loads(pickle.dumps(call.arguments))):
        copied["to"]["names"].append("Bob")
        assert copied == {"to": {"names": ["Ada", "Bob"]}}
    for shallow in (copy.copy(call.arguments), dict(call.arguments), call.arguments.copy(), {**call.arguments}):
        shallow["more"] = 1
    assert call.arguments == {"to": {"names": ["Ada"]}}
    again = copy.deepcopy(call)
    assert again == pickle.loads(pickle.dumps(call)) == call
    with pytest.raises(TypeError):
        again.arguments["to"]["names"].clear()  # type: ignore[index]


def test_a_dataclass_around_recorded_arguments_can_be_written_and_copied() -> None:
    @dataclasses.dataclass
    class Row:
        arguments: dict[str, Any]

    arguments = ToolCall("c", "t", {"to": {"names": ["Ada"]}}).arguments
    assert arguments is not None
    plain = dataclasses.asdict(Row(arguments))
    assert json.dumps(plain) == '{"arguments": {"to": {"names": ["Ada"]}}}'
    for copied in (copy.deepcopy(plain), pickle.loads(pickle.dumps(plain)), json.loads(json.dumps(plain))):
        copied["arguments"]["to"]["names"].append("Bob")
    assert plain == {"arguments": {"to": {"names": ["Ada"]}}}
