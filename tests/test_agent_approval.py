"""Calls that somebody must approve: asked, answered, by a person or a policy, across restarts."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dragoman import AgentConfig, AgentStatus, ErrorCode, InvalidValue, LoopConfig, TokenUsage, ToolsConfig
from dragoman.agent import Agent, ApprovalDecision, ApprovalRequest
from dragoman.errors import IllegalAppend
from dragoman.history import ApprovalAnsweredEntry
from dragoman.store import MemoryStore, SQLiteStore, open_session, start_session
from dragoman.testing.scripted import Call, ScriptedModel, Turn
from dragoman.tools import FunctionTool, tool
from tests.agent_cases import asks, kept, kinds, require_sound, result_codes, result_texts, run


class Post:
    """A post office that notes what was sent."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    @property
    def tool(self) -> FunctionTool[Any, Any]:
        @tool(requires_approval=True)
        def send(to: str, copies: int = 1) -> str:
            """Send a letter."""
            self.sent.append(f"{copies} to {to}")
            return f"Sent to {to}."

        return send


TO_ADA = asks(Call("send", {"to": "Ada"}, "a"))


def asking(post: Post, *more: Any, calls: Any = TO_ADA) -> Agent:
    """Return an agent that waits for an answer about its calls."""
    agent = Agent(ScriptedModel(calls, "Done.", *more), tools=[post.tool])
    result = agent.run_sync("Write to Ada.")
    assert (result.status, result.output, result.error) == (AgentStatus.AWAITING_HUMAN, None, None)
    return agent


def test_a_call_that_needs_it_waits_for_an_answer_and_nothing_runs() -> None:
    post = Post()
    agent = asking(post)
    (call,) = kept(agent).state.derived.open_calls
    assert (call.awaits_answer, post.sent) == (True, [])
    assert kept(agent).state.status is AgentStatus.AWAITING_HUMAN
    again = agent.run_sync()
    assert again.status is AgentStatus.AWAITING_HUMAN
    assert [(asked.tool_name, asked.arguments) for asked in again.approvals] == [("send", {"to": "Ada"})]
    assert kinds(agent).count("approval_asked") == 1


def test_an_approved_call_runs_and_the_run_goes_on() -> None:
    async def use() -> None:
        post = Post()
        agent = Agent(ScriptedModel(TO_ADA, "Done."), tools=[post.tool])
        first = await agent.run("Write to Ada.")
        await agent.approve("a")
        result = await agent.run()
        assert (result.status, result.output, result.run_id) == (AgentStatus.COMPLETED, "Done.", first.run_id)
        assert post.sent == ["1 to Ada"]
        require_sound(kept(agent))

    run(use())


def test_a_refused_call_does_not_run_and_the_model_is_told_why() -> None:
    post = Post()
    agent = asking(post)
    asyncio.run(agent.deny("a", reason="Ada has moved."))
    assert agent.run_sync().output == "Done."
    assert (post.sent, result_codes(kept(agent))) == ([], [ErrorCode.TOOL_DENIED])
    assert "Ada has moved." in result_texts(kept(agent))[0]
    require_sound(kept(agent))


def test_an_approved_call_runs_with_the_arguments_it_was_given() -> None:
    post = Post()
    agent = asking(post)
    asyncio.run(agent.approve("a", arguments={"to": "Bob", "copies": 2}))
    assert agent.run_sync().output == "Done."
    assert post.sent == ["2 to Bob"]
    require_sound(kept(agent))


def test_changed_arguments_must_fit_the_schema() -> None:
    post = Post()
    agent = asking(post)
    for arguments in ({}, {"to": 5}, {"to": "Bob", "paper": "blue"}):
        with pytest.raises(InvalidValue, match="do not fit send"):
            asyncio.run(agent.approve("a", arguments=arguments))
    assert kept(agent).state.status is AgentStatus.AWAITING_HUMAN
    asyncio.run(agent.approve("a"))
    assert agent.run_sync().output == "Done."


@pytest.mark.parametrize("answer", ["approve", "deny"])
def test_an_answer_for_a_call_that_does_not_wait_is_refused(answer: str) -> None:
    post = Post()
    agent = asking(post, "Hm.")
    with pytest.raises(InvalidValue, match="'b'"):
        asyncio.run(getattr(agent, answer)("b"))
    asyncio.run(agent.approve("a"))
    with pytest.raises(InvalidValue, match="'a'"):
        asyncio.run(getattr(agent, answer)("a"))
    agent.run_sync()
    with pytest.raises(InvalidValue, match="'a'"):
        asyncio.run(getattr(agent, answer)("a"))
    assert kinds(agent).count("approval_answered") == 1
    assert post.sent == ["1 to Ada"]


def test_an_answer_before_the_first_run_is_refused() -> None:
    with pytest.raises(InvalidValue, match="no call 'a' waits"):
        asyncio.run(Agent(ScriptedModel("Hi.")).approve("a"))


def test_a_prompt_is_refused_while_a_call_waits() -> None:
    agent = asking(Post())
    with pytest.raises(InvalidValue, match="answer the calls a first"):
        agent.run_sync("And to Bob.")
    assert kept(agent).state.status is AgentStatus.AWAITING_HUMAN


def test_a_run_that_waits_can_be_aborted() -> None:
    post = Post()
    agent = asking(post)
    asyncio.run(agent.abort())
    assert kept(agent).state.status is AgentStatus.ABORTED
    assert (post.sent, result_codes(kept(agent))) == ([], [ErrorCode.TOOL_INTERRUPTED])
    require_sound(kept(agent))
    assert agent.run_sync("Never mind.").output == "Done."


@pytest.mark.parametrize("there", ["removed", "disabled", "changed"])
def test_a_call_waits_for_its_person_whatever_tools_the_next_agent_has(there: str) -> None:
    async def use() -> None:
        post = Post()
        session = await start_session(MemoryStore(), "s")
        first = Agent(ScriptedModel(TO_ADA), tools=[post.tool], session=session)
        assert (await first.run("Write to Ada.")).status is AgentStatus.AWAITING_HUMAN

        @tool(name="send", requires_approval=True)
        def other(number: int) -> str:
            """Send a number."""
            return str(number)

        tools = {"removed": [], "disabled": [post.tool], "changed": [other]}[there]
        config = AgentConfig(tools=ToolsConfig(disabled=("send",))) if there == "disabled" else None
        second = Agent(ScriptedModel("Done."), tools=tools, session=session, config=config)
        assert (await second.run()).status is AgentStatus.AWAITING_HUMAN
        assert session.state.derived.approvals_asked
        await second.approve("a")
        third = Agent(ScriptedModel("Done."), tools=[post.tool], session=session)
        assert ((await third.run()).output, post.sent) == ("Done.", ["1 to Ada"])

    run(use())


def test_arguments_of_an_approval_are_not_converted_whoever_gave_them() -> None:
    post = Post()
    with pytest.raises(InvalidValue, match="do not fit send"):
        asyncio.run(asking(post).approve("a", arguments={"to": "Ada", "copies": "3"}))
    policy = ApprovalDecision(True, arguments={"to": "Ada", "copies": "3"})
    agent = Agent(ScriptedModel(TO_ADA, "Done."), tools=[post.tool], approval=lambda _: policy)
    agent.run_sync("Write to Ada.")
    assert (post.sent, result_codes(kept(agent))) == ([], [ErrorCode.INVALID_ARGUMENTS])


@pytest.mark.parametrize(
    ("limits", "calls"),
    [({"max_iterations": 3}, 3), ({"max_cost": 0.5}, 2), ({"max_tool_rounds": 2}, 3), ({"max_tokens": 40}, 3)],
    ids=str,
)
def test_the_limits_of_a_run_do_not_begin_anew_with_each_approval(limits: dict[str, Any], calls: int) -> None:
    async def use() -> None:
        usage = TokenUsage(input_tokens=10, output_tokens=5, cost=0.25)
        model = ScriptedModel(Turn(calls=(Call("send", {"to": "Ada"}),), usage=usage), repeats=True)
        agent = Agent(model, tools=[Post().tool], config=AgentConfig(loop=LoopConfig(**limits)))
        result = await agent.run("Write to Ada.")
        run_id = result.run_id
        while result.status is AgentStatus.AWAITING_HUMAN:
            await agent.approve(result.approvals[0].tool_call_id)
            result = await agent.run()
        assert result.error is not None
        assert (result.error.code, len(model.requests)) == (ErrorCode.LIMIT_REACHED, calls)
        assert (result.run_id, result.usage.cost) == (run_id, 0.25 * calls)

    run(use())


def test_a_session_is_not_reset_under_a_run_that_waits_or_works() -> None:
    async def use() -> None:
        session = await start_session(MemoryStore(), "s")
        post = Post()

        @tool
        async def forget() -> str:
            """Begin anew."""
            await session.reset()
            return "forgotten"

        model = ScriptedModel(asks(Call("forget", {})), TO_ADA, "Done.")
        agent = Agent(model, tools=[post.tool, forget], session=session)
        assert (await agent.run("Write to Ada.")).status is AgentStatus.AWAITING_HUMAN
        assert "reset_between_runs" in result_texts(session)[0]
        with pytest.raises(IllegalAppend, match="reset_between_runs"):
            await session.reset()
        await agent.abort()
        await session.reset()
        require_sound(session)

    run(use())


def test_the_run_waits_until_every_call_has_its_answer() -> None:
    post = Post()
    agent = asking(post, calls=asks(Call("send", {"to": "Ada"}, "a"), Call("send", {"to": "Bob"}, "b")))
    asyncio.run(agent.approve("b"))
    result = agent.run_sync()
    assert (result.status, [call.tool_call_id for call in result.approvals]) == (AgentStatus.AWAITING_HUMAN, ["a"])
    assert post.sent == ["1 to Bob"]  # what may run does
    asyncio.run(agent.deny("a"))
    assert agent.run_sync().output == "Done."
    assert (post.sent, result_codes(kept(agent))) == (["1 to Bob"], [ErrorCode.TOOL_DENIED, None])
    require_sound(kept(agent))


def test_a_call_with_arguments_that_do_not_fit_is_not_asked_about() -> None:
    agent = Agent(ScriptedModel(asks(Call("send", {"who": "Ada"})), "I see."), tools=[Post().tool])
    assert agent.run_sync("Write to Ada.").output == "I see."
    assert "approval_asked" not in kinds(agent)
    assert result_codes(kept(agent)) == [ErrorCode.INVALID_ARGUMENTS]


def test_the_types_of_arguments_are_made_once_and_after_the_approval() -> None:
    made: list[str] = []

    @dataclass
    class Letter:
        to: str

        def __post_init__(self) -> None:
            made.append(self.to)
            if self.to == "Bob":
                raise ValueError("Bob has moved")

    @tool(requires_approval=True)
    def send(letter: Letter) -> str:
        return f"Sent to {letter.to}."

    calls = asks(Call("send", {"letter": {"to": "Ada"}}, "a"), Call("send", {"letter": {"to": "Bob"}}, "b"))
    agent = Agent(ScriptedModel(calls, "Done."), tools=[send])
    agent.run_sync("Write.")
    assert made == []
    asyncio.run(agent.approve("a"))
    asyncio.run(agent.approve("b"))
    assert agent.run_sync().output == "Done."
    assert made == ["Ada", "Bob"]
    assert result_texts(kept(agent)) == [
        "Sent to Ada.",
        (
            "The arguments of send do not fit:\n- letter: is refused: ValueError: Bob has moved\n"
            "Nothing was run. Call it again with arguments that fit its schema."
        ),
    ]
    assert kinds(agent).count("tool_started") == 1
    require_sound(kept(agent))


def test_a_question_survives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    post = Post()

    async def ask() -> str:
        async with SQLiteStore(path) as store:
            session = await start_session(store, "letters")
            result = await Agent(ScriptedModel(TO_ADA), tools=[post.tool], session=session).run("Write to Ada.")
            return result.run_id

    async def answer() -> None:
        async with SQLiteStore(path) as store:
            await Agent(ScriptedModel(), session=await open_session(store, "letters")).approve("a")

    async def go_on() -> None:
        async with SQLiteStore(path) as store:
            agent = Agent(ScriptedModel("Done."), tools=[post.tool], session=await open_session(store, "letters"))
            result = await agent.run()
            assert (result.output, result.run_id) == ("Done.", run_id)
            require_sound(kept(agent))

    run_id = run(ask())
    assert post.sent == []
    run(answer())
    run(go_on())
    assert post.sent == ["1 to Ada"]


# ---------------------------------------------------------------- who decides


def decided(policy: Any) -> tuple[Agent, Post]:
    post = Post()
    agent = Agent(ScriptedModel(TO_ADA, "Done."), tools=[post.tool], approval=policy)
    agent.run_sync("Write to Ada.")
    return agent, post


def test_a_policy_decides_and_it_is_recorded() -> None:
    def policy(request: ApprovalRequest) -> bool:
        assert (request.tool.name, request.arguments) == ("send", {"to": "Ada"})
        assert (request.session_id, request.run_id) == (kept(agent).session_id, kept(agent).run_id)
        return True

    post = Post()
    agent = Agent(ScriptedModel(TO_ADA, "Done."), tools=[post.tool], approval=policy)
    assert agent.run_sync("Write to Ada.").output == "Done."
    (answered,) = [entry for entry in kept(agent).entries if isinstance(entry, ApprovalAnsweredEntry)]
    assert (answered.by, answered.approved, post.sent) == ("policy", True, ["1 to Ada"])


def test_a_policy_may_be_async_and_change_the_arguments() -> None:
    async def policy(request: ApprovalRequest) -> ApprovalDecision:
        await asyncio.sleep(0)
        return ApprovalDecision(True, arguments={**request.arguments, "copies": 3})

    agent, post = decided(policy)
    assert post.sent == ["3 to Ada"]
    require_sound(kept(agent))


def test_a_policy_may_refuse_with_a_reason() -> None:
    agent, post = decided(lambda request: ApprovalDecision(False, "No letters today."))
    assert (post.sent, result_codes(kept(agent))) == ([], [ErrorCode.TOOL_DENIED])
    assert "No letters today." in result_texts(kept(agent))[0]


def test_a_policy_may_leave_it_to_a_person() -> None:
    agent, post = decided(lambda request: None)
    assert (post.sent, kept(agent).state.status) == ([], AgentStatus.AWAITING_HUMAN)


def test_arguments_of_a_policy_that_do_not_fit_are_told_to_the_model() -> None:
    agent, post = decided(lambda request: ApprovalDecision(True, arguments={"to": 5, "paper": "blue"}))
    assert (post.sent, result_codes(kept(agent))) == ([], [ErrorCode.INVALID_ARGUMENTS])
    require_sound(kept(agent))


@pytest.mark.parametrize("wrong", ["raises", "junk"])
def test_where_a_policy_fails_a_person_is_asked(wrong: str) -> None:
    post = Post()

    def policy(request: ApprovalRequest) -> Any:
        if wrong == "raises":
            raise RuntimeError("the policy is out")
        return "yes"

    async def run() -> Agent:
        agent = Agent(ScriptedModel(TO_ADA, "Done."), tools=[post.tool], approval=policy)
        result = await agent.run("Write to Ada.")
        assert (result.status, post.sent) == (AgentStatus.AWAITING_HUMAN, [])
        await agent.approve(result.approvals[0].tool_call_id)
        assert (await agent.run()).output == "Done."
        return agent

    agent = asyncio.run(run())
    assert post.sent == ["1 to Ada"]
    require_sound(kept(agent))


def test_settings_may_ask_about_every_call_or_about_none() -> None:
    post = Post()
    config = AgentConfig(tools=ToolsConfig(approval="never"))
    assert Agent(ScriptedModel(TO_ADA, "Done."), tools=[post.tool], config=config).run_sync("Write.").output == "Done."

    @tool
    def look() -> str:
        """Look."""
        return "Nothing."

    config = AgentConfig(tools=ToolsConfig(approval="always"))
    result = Agent(ScriptedModel(asks(Call("look"))), tools=[look], config=config).run_sync("Look.")
    assert result.status is AgentStatus.AWAITING_HUMAN


def test_a_tool_may_say_by_its_arguments_whether_it_must_be_asked_about() -> None:
    @tool(requires_approval=lambda arguments, context: arguments["amount"] > 10)
    def pay(amount: int) -> str:
        """Pay."""
        return f"{amount} paid."

    for amount, status in ((5, AgentStatus.COMPLETED), (50, AgentStatus.AWAITING_HUMAN)):
        agent = Agent(ScriptedModel(asks(Call("pay", {"amount": amount})), "Done."), tools=[pay])
        assert agent.run_sync("Pay.").status is status


def test_a_tool_that_cannot_say_it_is_asked_about() -> None:
    @tool(requires_approval=lambda arguments, context: arguments["nothing"])
    def pay(amount: int) -> str:
        """Pay."""
        return f"{amount} paid."

    agent = Agent(ScriptedModel(asks(Call("pay", {"amount": 1}))), tools=[pay])
    assert agent.run_sync("Pay.").status is AgentStatus.AWAITING_HUMAN
