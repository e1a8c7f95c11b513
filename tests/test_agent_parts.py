"""The small parts that a run is made of: its last message, its limits, what it is told of its session."""

import asyncio
import dataclasses
import hashlib
import json
import warnings
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman import (
    Agent,
    AgentStatus,
    ErrorCode,
    FileRef,
    Image,
    InvalidValue,
    LoopConfig,
    MemoryStore,
    Message,
    ProviderRouter,
    RuntimeConfig,
    ToolCall,
    open_session,
    start_session,
    tool,
)
from dragoman.agent import Hooks
from dragoman.agent.answers import last_message
from dragoman.agent.budget import Budget
from dragoman.agent.contexts import Contexts
from dragoman.agent.eventform import event_to_json
from dragoman.agent.events import ApprovalAskedEvent, EventLog, FinishedEvent, ToolStartedEvent
from dragoman.agent.hooks import HookChain
from dragoman.agent.media import MediaReader, _key
from dragoman.agent.output import OutputReader
from dragoman.agent.tooling import tools_of
from dragoman.context import RECALL_TOOL
from dragoman.history import (
    HistoryEntry,
    HistoryToolCallResult,
    InterruptionEntry,
    ModelInputEntry,
    ModelOutputEntry,
    RunStartedEntry,
)
from dragoman.message import MessageMeta
from dragoman.request import AgentConfig, ToolsConfig
from dragoman.testing import ScriptedModel
from dragoman.tools import ToolRegistry
from dragoman.usage import TokenUsage
from tests.agent_cases import Gate, read, run
from tests.agent_stage import says

# ---------------------------------------------------------------- the last message of a run


def said(text: str, *parts: Any) -> ModelOutputEntry:
    return ModelOutputEntry(Message.assistant(text, *parts))


def goes_on() -> ModelInputEntry:
    return ModelInputEntry.of("Go on.", metadata={"continues": True})  # as stores keep it


def texts(*entries: HistoryEntry, run_id: str = "r") -> str | None:
    message = last_message(entries, run_id)
    return None if message is None else message.text


def test_a_run_without_an_answer_has_no_message_though_an_earlier_run_has_one() -> None:
    earlier = (RunStartedEntry(run_id="e"), said("before"))
    assert texts(*earlier, RunStartedEntry(run_id="r")) is None
    assert texts(*earlier, RunStartedEntry(run_id="r"), said("now")) == "now"
    assert texts(RunStartedEntry(run_id="r"), goes_on(), said("now")) == "now"


def test_the_pieces_of_a_cut_answer_are_one_message_and_each_is_there_once() -> None:
    assert texts(said("a"), goes_on(), said("b"), goes_on(), said("c")) == "abc"
    assert texts(goes_on(), said("b")) == "b", "a record that begins with a piece"
    assert texts(said("a"), ModelInputEntry.of("And?"), said("b"), goes_on(), said("c")) == "bc"


def test_the_calls_of_a_piece_that_was_cut_are_not_part_of_the_message() -> None:
    message = last_message((said("a", ToolCall("c", "f", {})), goes_on(), said("b", ToolCall("d", "f", {}))), "r")
    assert message is not None
    assert [call.tool_call_id for call in message.tool_calls] == ["d"]


# ---------------------------------------------------------------- limits


USED = TokenUsage(input_tokens=60, output_tokens=40, cost=0.25)


def partial(usage: TokenUsage | None) -> Message:
    return says("half", usage=usage)


def budget_after(limits: LoopConfig, *entries: HistoryEntry) -> Budget:
    budget = Budget(limits, seconds=lambda: 0.0)
    budget.note_record(entries, "r")
    return budget


def test_a_resumed_run_knows_what_it_has_used() -> None:
    budget = budget_after(
        LoopConfig(),
        said("of an earlier run"),
        RunStartedEntry(run_id="r"),
        InterruptionEntry(ErrorCode.OVERLOADED, "busy", partial(USED)),
        InterruptionEntry(ErrorCode.OVERLOADED, "busy", partial(None)),
        InterruptionEntry(ErrorCode.OVERLOADED, "busy", Message.assistant("without notes")),
        InterruptionEntry(ErrorCode.OVERLOADED, "busy"),
        ModelOutputEntry(says("a", usage=USED)),
        goes_on(),
        said("b"),
        goes_on(),
        said("c"),
    )
    assert (budget.model_calls, budget.tool_rounds, budget.continuations) == (3, 0, 2)
    assert budget.usage == USED + USED


@pytest.mark.parametrize(
    ("limits", "is_reached"),
    [
        (LoopConfig(max_tokens=100), True),
        (LoopConfig(max_tokens=101), False),
        (LoopConfig(max_cost=0.25), True),
        (LoopConfig(max_cost=0.26), False),
        (LoopConfig(max_iterations=1), True),
        (LoopConfig(max_iterations=2), False),
    ],
)
def test_a_limit_is_reached_when_all_of_it_is_used(limits: LoopConfig, is_reached: bool) -> None:
    output = ModelOutputEntry(says("a", usage=USED))
    assert (budget_after(limits, output).reached() is not None) == is_reached


def test_a_limit_of_the_run_alone_is_no_limit_of_the_run_inside() -> None:
    outer = Budget(LoopConfig(max_tool_rounds=1), seconds=lambda: 0.0)
    inner = Budget(LoopConfig(max_tool_rounds=5), seconds=lambda: 0.0, around=outer)
    assert inner.reached(before_tools=True) is None
    inner.note_tool_round()
    assert inner.reached(before_tools=True) == "a run may have 1 rounds of tools"
    assert inner.reached() is None
    outer.note_tool_round()
    assert inner.tool_rounds == 1


# ---------------------------------------------------------------- contexts


def test_entries_are_measured_once_and_anew_where_they_are_others() -> None:
    entries = tuple(map(ModelInputEntry.of, ("one", "three", "eleven chars")))
    contexts = Contexts(AgentConfig())
    sizes = [contexts._size(entries[:count]) for count in (1, 2, 2, 3, 1, 3, 0, 2)]
    assert sizes == [3, 8, 8, 20, 3, 20, 0, 8]
    assert contexts._size(tuple(map(ModelInputEntry.of, ("other", "words")))) == 10


# ---------------------------------------------------------------- hooks and readers of events


def test_a_hook_that_waits_is_ended_soon_after_its_run_was_stopped() -> None:
    class Waits(Hooks):
        is_ended = False

        async def before_run(self, session_id: str, run_id: str) -> None:
            reached.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.is_ended = True

    reached = asyncio.Event()

    async def use() -> None:
        hook = Waits()
        chain = HookChain([hook])
        waiting = asyncio.ensure_future(chain.before_run("s", "r"))
        await reached.wait()
        assert not chain.is_stopped
        chain.stop()
        chain.stop()  # and again: the time that is left does not begin anew
        assert chain.is_stopped
        await waiting
        assert hook.is_ended

    run(use())


def test_a_reader_of_events_that_was_cancelled_is_not_remembered() -> None:
    async def use() -> None:
        log = EventLog()

        async def read_all() -> None:
            async for _event in log.follow(-1, lambda: None):
                pass

        reading = asyncio.ensure_future(read_all())
        await asyncio.sleep(0)
        assert len(log._waiting) == 1
        reading.cancel()
        await asyncio.wait((reading,))
        assert log._waiting == []

    run(use())


# ---------------------------------------------------------------- what an agent is told


def test_a_run_that_could_not_begin_says_so_in_events_of_no_model_call() -> None:
    class Down(MemoryStore):
        is_down = False

        async def _acquire_lease(self, session_id: str, token: str, seconds: float) -> Any:
            if self.is_down:
                raise OSError("the network is gone")
            return await super()._acquire_lease(session_id, token, seconds)

    async def use() -> None:
        store = Down()
        session = await start_session(store)
        store.is_down = True
        started = Agent(ScriptedModel("Hi."), session=session).stream("go")
        events = await read(started)
        assert (await started.result()).status is AgentStatus.FAILED
        assert [(event.kind, event.call_index, event.seq) for event in events] == [("error", 0, 0), ("finished", 0, 1)]

    run(use())


def test_a_run_that_has_lost_its_session_does_not_wait_for_its_model() -> None:
    async def use() -> None:
        store, gate = MemoryStore(), Gate(1)
        session = await start_session(store, "s")
        config = AgentConfig(loop=LoopConfig(lease_seconds=0.05))
        started = Agent(ScriptedModel("One.", between=gate), session=session, config=config).stream("go")
        await gate.reached.wait()
        held = store._sessions["s"].held  # also if it has expired meanwhile
        assert held is not None
        await store.release_lease(held.lease)
        await store.acquire_lease("s")
        result = await started.result()  # the gate is never opened
        assert result.error is not None
        assert result.error.code is ErrorCode.CONFLICT
        later = await open_session(store, "s")
        assert later.run_id == result.run_id, "nothing more is recorded here"

    run(use())


def test_what_chooses_a_model_sees_the_whole_conversation_before_a_picture_is_taken() -> None:
    seen: list[int] = []
    model = ScriptedModel("One.", "Two.")

    def choose(request: Any) -> Any:
        seen.append(len(request.context))
        return model

    async def use() -> None:
        agent = Agent(ProviderRouter(choose=choose))
        await agent.run("first")
        assert seen == [1]
        await agent.run(["second", Image("image/png", b"\x89PNG")])
        assert seen[1:] == [3, 3], "once to admit the picture, once to ask"

    run(use())


@tool
def weather(city: str) -> str:
    """Return the weather of a city."""
    return f"Rain in {city}."


class WithoutTools(ScriptedModel):
    def supports(self, ability: str) -> bool:
        return ability != "tools" and super().supports(ability)


def test_an_agent_warns_of_tools_that_its_model_cannot_use_and_of_nothing_else() -> None:
    with pytest.warns(UserWarning, match="cannot use tools, and runs without weather"):
        agent = Agent(WithoutTools("Hi."), tools=[weather])
    with pytest.warns(UserWarning, match="runs without weather"):
        agent.use(WithoutTools("Hi."))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Agent(WithoutTools("Hi."))
        Agent(ScriptedModel("Hi."), tools=[weather])


def test_a_file_of_a_result_is_recorded_by_its_path_and_digest_and_not_by_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"hello")
    reader, call = MediaReader(RuntimeConfig(root=str(tmp_path))), ToolCall("c", "f", {})
    result = HistoryToolCallResult.of_text(call, "done")
    result = msgspec.structs.replace(result, attachments=(FileRef(path="a.txt"), Image("image/png", b"\x89PNG")))
    file, picture = reader.admit_result(result, call).attachments
    assert isinstance(file, FileRef)
    assert (file.path, file.data, file.size, file.mime_type) == ("a.txt", None, 5, "text/plain")
    assert file.sha256 == hashlib.sha256(b"hello").hexdigest()
    assert picture is result.attachments[1]
    lost = msgspec.structs.replace(result, attachments=(FileRef(path="b.txt"),), elapsed_seconds=2.0)
    refused = reader.admit_result(lost, call)
    assert (refused.error_code, refused.elapsed_seconds) == (ErrorCode.TOOL_FAILED, 2.0)
    assert "f failed: the file 'b.txt'" in refused.text()


# ---------------------------------------------------------------- outputs, tools of the agent itself, endings


@dataclasses.dataclass
class Node:
    name: str
    children: "list[Node]"


def answer(text: str) -> Message:
    return Message.assistant(text)


@pytest.mark.parametrize("text", ['{"value": 5, "more": 1}', '{"more": 5}', "{}", "5", '["value"]', '"value"'])
def test_a_value_that_does_not_stand_alone_in_its_field_is_refused(text: str) -> None:
    reader = OutputReader(int)
    assert reader.read(answer('{"value": 5}')) == 5
    with pytest.raises(InvalidValue, match='with the one field "value"'):
        reader.read(answer(text))


def test_the_definitions_of_a_wrapped_type_stand_at_the_top() -> None:
    schema = OutputReader(list[Node])._wrapped_schema()
    assert set(schema) == {"type", "properties", "required", "additionalProperties", "$defs"}
    assert set(schema["$defs"]) == {"Node"}
    assert "$defs" not in schema["properties"]["value"]
    nested = '{"value": [{"name": "a", "children": [{"name": "b", "children": []}]}]}'
    assert OutputReader(list[Node]).read(answer(nested)) == [Node("a", [Node("b", [])])]


def test_recall_may_run_again_and_widgets_run_one_at_a_time() -> None:
    async def use() -> None:
        session = await start_session(MemoryStore())
        offered, tools = tools_of(session, ToolRegistry(), ToolsConfig(notebook=True), has_recall=True)
        recall, widget = tools.find(RECALL_TOOL.name), tools.find(session.state.enumerate_widget_tools()[0].name)
        assert recall is not None
        assert recall.idempotent
        assert widget is not None
        assert (widget.concurrency, widget.idempotent) == ("widgets", False)
        assert widget.name in [spec.name for spec in offered]
        assert recall.name not in [spec.name for spec in offered]

    run(use())


def test_a_run_that_was_stopped_by_its_time_says_which_limit_that_was() -> None:
    async def use() -> None:
        config = AgentConfig(loop=LoopConfig(max_seconds=0.05))
        result = await Agent(ScriptedModel("One.", between=Gate(1)), config=config).run("go")  # never opened
        assert result.error is not None
        assert result.error.code is ErrorCode.LIMIT_REACHED
        assert result.error.message == "a run may take 0.05 seconds"

    run(use())


def test_all_events_of_a_run_with_one_answer_belong_to_its_first_model_call() -> None:
    async def use() -> None:
        events = await read(Agent(ScriptedModel("One.")).stream("go"))
        assert {event.call_index for event in events} == {0}

    run(use())


def test_a_context_that_fits_needs_no_update_unless_it_was_refused_as_too_long() -> None:
    async def use() -> None:
        agent, model = Agent(ScriptedModel(*["Yes. " * 200] * 6)), ScriptedModel()
        for number in range(6):
            await agent.run(f"{number}: {'word ' * 200}")
        assert agent.session is not None
        entries, contexts = agent.session.entries, Contexts(AgentConfig())
        assert not (await contexts.update(model, entries, ())).entries
        assert (await contexts.update(model, entries, (), overflow=True)).entries

    run(use())


def test_a_run_that_ended_well_and_a_call_that_was_repaired_have_their_form() -> None:
    ended = json.loads(event_to_json(FinishedEvent("r", 0, 1, AgentStatus.COMPLETED)))
    assert ended["payload"] == {"status": "completed"}
    call = ToolCall("c", "f", {"a": 1}, parse_warning="a comma was missing")
    started = json.loads(event_to_json(ToolStartedEvent("r", 0, 1, call)))
    assert started["payload"]["call"]["parseWarning"] == "a comma was missing"
    broken = ToolCall("c", "f", None, raw_args_text="{", parse_error="it ends too soon")
    asked = json.loads(event_to_json(ApprovalAskedEvent("r", 0, 1, broken)))
    assert asked["payload"]["call"] == {
        "toolName": "f",
        "toolCallId": "c",
        "rawArguments": "{",
        "parseError": "it ends too soon",
    }


def test_a_model_that_refused_what_only_its_maker_reads_gets_messages_that_no_model_made() -> None:
    async def use() -> None:
        model, reader = ScriptedModel(), MediaReader(RuntimeConfig())
        made = msgspec.structs.replace(says("one"), meta=MessageMeta(invocation=model.invocation))
        given = (Message.user("hi"), made)
        sent, unshown = await reader.fit(given, model)
        assert sent is given
        assert unshown == []
        assert reader.give_up("opaque", model)
        (first, second), _ = await reader.fit(given, model)
        assert first is given[0]
        assert second.meta is not None
        assert second.meta.invocation is None
        assert not reader.give_up("opaque", model), "it cannot be left out twice"

    run(use())


def test_a_medium_is_known_by_its_bytes_or_else_by_its_address() -> None:
    assert _key(FileRef(file_id="f1", mime_type="text/plain")) == "f1"
    assert _key(Image("image/png", url="https://a.test/b.png")) == "https://a.test/b.png"
    assert _key(Image("image/png", b"x")) == hashlib.sha256(b"x").hexdigest()
