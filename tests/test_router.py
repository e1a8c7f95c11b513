"""Which model gets a request, and who is asked when one fails: alone, and in an agent's runs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman import AgentConfig, AgentStatus, ErrorCode, InvalidValue, LoopConfig, Message, ModelError
from dragoman.agent import Agent
from dragoman.agent.given import as_router
from dragoman.history import InterruptionEntry
from dragoman.message import ModelInvocationDescriptor
from dragoman.router import AnyModel, LlmRequest, ProviderRouter, Route
from dragoman.testing.scripted import ScriptedModel, Turn
from tests.agent_cases import ROME, kept, require_sound, weather

BUSY = ModelError("busy", code=ErrorCode.OVERLOADED)
BROKEN = ModelError("no such key", code=ErrorCode.AUTHENTICATION)
CUT = Turn(text="It will probably rain.", breaks_after=2)
ONE_ATTEMPT = AgentConfig(loop=LoopConfig(attempts=1))


def actor(name: str, *script: Any, **options: Any) -> ScriptedModel:
    return ScriptedModel(*script, invocation=ModelInvocationDescriptor("scripted", "script", name), **options)


PLANNER, WORKER, SPARE = actor("planner"), actor("worker"), actor("spare")


def named(models: tuple[AnyModel, ...]) -> list[str]:
    return [model.invocation.model for model in models]


def routed(router: ProviderRouter, **request: Any) -> list[str]:
    return named(router.route(LlmRequest(**request)))


# ---------------------------------------------------------------- the router alone


def test_a_strategy_has_its_route_and_a_request_without_one_the_default() -> None:
    router = ProviderRouter({"plan": PLANNER, "execute": [WORKER, SPARE]}, default=SPARE)
    assert router.strategies == ("plan", "execute")
    assert routed(router, strategy="plan") == ["planner"]
    assert routed(router, strategy="execute") == ["worker", "spare"]
    assert routed(router) == ["spare"]


def test_a_request_without_a_strategy_takes_the_route_of_the_empty_name() -> None:
    assert routed(ProviderRouter({"": WORKER}, default=SPARE)) == ["worker"]


def test_a_strategy_without_route_and_default_is_refused() -> None:
    with pytest.raises(InvalidValue, match=r"no route 'dream'.*execute, plan"):
        ProviderRouter({"plan": PLANNER, "execute": WORKER}).route(LlmRequest(strategy="dream"))


def test_a_misspelt_strategy_is_refused_though_there_is_a_default() -> None:
    router = ProviderRouter({"plan": PLANNER}, default=SPARE)
    with pytest.raises(InvalidValue, match=r"no route 'paln'; routes: plan"):
        router.route(LlmRequest(strategy="paln"))
    chosen = ProviderRouter({"plan": PLANNER}, default=SPARE, choose=lambda request: "paln")
    with pytest.raises(InvalidValue, match="no route 'paln'"):
        chosen.route(LlmRequest())
    assert routed(ProviderRouter(default=SPARE), strategy="any word") == ["spare"]


def test_a_function_names_a_strategy_or_gives_a_route_or_leaves_it() -> None:
    def choose(request: LlmRequest) -> str | Route | None:
        return {"a": "plan", "b": [SPARE, WORKER], "c": None}[request.strategy]

    router = ProviderRouter({"plan": PLANNER}, default=WORKER, choose=choose)
    assert router.looks_at_context
    assert [routed(router, strategy=strategy) for strategy in "abc"] == [["planner"], ["spare", "worker"], ["worker"]]


def test_the_model_that_is_wanted_comes_first() -> None:
    router = ProviderRouter(default=[PLANNER, WORKER, SPARE])
    assert routed(router, invocation=SPARE.invocation) == ["spare", "planner", "worker"]
    elsewhere = ModelInvocationDescriptor("elsewhere", "script", "x")
    assert routed(router, invocation=elsewhere) == ["planner", "worker", "spare"]


@given(st.lists(st.sampled_from([PLANNER, WORKER, SPARE]), min_size=1), st.sampled_from([PLANNER, WORKER, SPARE]))
def test_no_wish_loses_or_doubles_a_model(route: list[ScriptedModel], wanted: ScriptedModel) -> None:
    models = ProviderRouter(default=route).route(LlmRequest(invocation=wanted.invocation))
    assert sorted(named(models)) == sorted(model.invocation.model for model in route)


@pytest.mark.parametrize(
    ("routes", "default"), [(None, None), ({}, None), ({"plan": []}, None), ({"plan": 5}, None), (None, ["planner"])]
)
def test_a_router_without_models_is_refused(routes: Any, default: Any) -> None:
    with pytest.raises(InvalidValue):
        ProviderRouter(routes, default=default)


@pytest.mark.parametrize("chosen", [5, [], ["planner"], object()])
def test_what_a_function_chooses_must_be_a_route(chosen: Any) -> None:
    with pytest.raises(InvalidValue):
        ProviderRouter(choose=lambda request: chosen).route(LlmRequest())


# ---------------------------------------------------------------- in an agent


def test_one_model_plans_and_another_executes_in_one_session() -> None:
    planner, worker = actor("planner", "First look, then tell."), actor("worker", ROME, "Rain.")
    agent = Agent(ProviderRouter({"plan": planner, "execute": worker}), tools=[weather])
    plan = agent.run_sync("Plan it.", strategy="plan")
    done = agent.run_sync("Now do it.", strategy="execute")
    invocations = [result.message.meta.invocation for result in (plan, done) if result.message and result.message.meta]
    assert [each.model for each in invocations if each] == ["planner", "worker"]
    assert [message.text for message in worker.requests[0].messages] == [
        "Plan it.",
        "First look, then tell.",
        "Now do it.",
    ]
    require_sound(kept(agent))


def test_a_function_sees_what_was_said_and_which_tools_there_are() -> None:
    seen: list[LlmRequest] = []

    def choose(request: LlmRequest) -> str:
        seen.append(request)
        return "execute"

    worker = actor("worker", ROME, "Rain.")
    agent = Agent(ProviderRouter({"execute": worker}, choose=choose), tools=[weather], instructions="Be brief.")
    agent.run_sync("The weather in Rome?", strategy="plan")
    assert [len(request.context) for request in seen] == [2, 4]
    assert {request.strategy for request in seen} == {"plan"}
    assert "weather" in [tool.name for tool in seen[0].tools]


@pytest.mark.parametrize("default", [None, SPARE])
def test_an_agent_refuses_a_strategy_that_has_no_route(default: ScriptedModel | None) -> None:
    agent = Agent(ProviderRouter({"plan": PLANNER}, default=default))
    with pytest.raises(InvalidValue, match="no route 'paln'"):
        agent.run_sync("Hi.", strategy="paln")
    with agent.override(model=SPARE), pytest.raises(InvalidValue, match="no route 'paln'"):
        agent.run_sync("Hi.", strategy="paln")
    with agent.override(model=ProviderRouter({"fast": SPARE})), pytest.raises(InvalidValue, match="routes: fast"):
        agent.run_sync("Hi.", strategy="plan")


def test_a_run_without_a_strategy_needs_a_default() -> None:
    with pytest.raises(InvalidValue, match="no route '' and no default; routes: plan"):
        Agent(ProviderRouter({"plan": PLANNER})).run_sync("Hi.")


def test_a_strategy_that_a_function_makes_up_fails_the_run() -> None:
    router = ProviderRouter({"plan": PLANNER}, choose=lambda request: "dream")
    result = Agent(router).run_sync("Hi.")
    assert result.error is not None
    assert (result.status, result.error.code) == (AgentStatus.FAILED, ErrorCode.INVALID_REQUEST)


@pytest.mark.parametrize("route", ["anthropic:claude-opus-4-5", [PLANNER, "anthropic:claude-opus-4-5"]])
def test_a_router_that_gets_a_name_says_how_to_make_the_model(route: Any) -> None:
    words = r"got the name 'anthropic:claude-opus-4-5': give model\('anthropic:claude-opus-4-5'\)"
    with pytest.raises(InvalidValue, match=f"default must have models, {words}"):
        ProviderRouter(default=route)
    with pytest.raises(InvalidValue, match=f"the route 'plan' must have models, {words}"):
        ProviderRouter({"plan": route})


def test_an_agent_takes_several_models_and_their_names() -> None:
    busy = ScriptedModel(ModelError("busy", code=ErrorCode.OVERLOADED))
    assert Agent([busy, ScriptedModel("I am here.")]).run_sync("Hi.").output == "I am here."
    assert "claude-opus-4-5" in repr(as_router([busy, "anthropic:claude-opus-4-5"], AgentConfig()))
    wrong: Any = [busy, 3]
    with pytest.raises(InvalidValue, match="model must be a model, a name"):
        Agent(wrong)


@pytest.mark.parametrize("failure", [BUSY, BROKEN], ids=["that may pass", "that stays"])
def test_the_next_model_answers_when_one_fails_before_it_has_begun(failure: ModelError) -> None:
    agent = Agent(ProviderRouter(default=[actor("first", failure), actor("second", "Rain.")]), config=ONE_ATTEMPT)
    result = agent.run_sync("And?")
    assert result.message is not None
    assert result.message.meta is not None
    assert result.message.meta.invocation is not None
    assert (result.output, result.message.meta.invocation.model) == ("Rain.", "second")
    (entry,) = [entry for entry in kept(agent).entries if isinstance(entry, InterruptionEntry)]
    assert entry.reason is failure.code


def test_a_model_that_broke_off_is_not_replaced_unless_the_caller_allows_it() -> None:
    for allowed in (False, True):
        second = actor("second", "Rain.")
        router = ProviderRouter(default=[actor("first", CUT), second], falls_back_after_start=allowed)
        agent = Agent(router, config=ONE_ATTEMPT)
        result = agent.run_sync("And?")
        assert (result.output, len(second.requests)) == (("Rain.", 1) if allowed else (None, 0))
        (entry,) = [entry for entry in kept(agent).entries if isinstance(entry, InterruptionEntry)]
        assert entry.partial is not None  # what had arrived is kept either way
        require_sound(kept(agent))


def test_a_model_that_broke_off_is_asked_again_itself() -> None:
    first, second = actor("first", CUT, "Rain."), actor("second", "Snow.")
    config = AgentConfig(loop=LoopConfig(backoff_seconds=0.0))
    assert Agent(ProviderRouter(default=[first, second]), config=config).run_sync("And?").output == "Rain."
    assert len(second.requests) == 0


def test_after_the_last_model_the_first_is_asked_again() -> None:
    first, second = actor("first", BUSY, "Rain."), actor("second", BUSY)
    config = AgentConfig(loop=LoopConfig(backoff_seconds=0.0))
    assert Agent(ProviderRouter(default=[first, second]), config=config).run_sync("And?").output == "Rain."
    assert (len(first.requests), len(second.requests)) == (2, 1)


def test_when_all_fail_the_last_failure_is_told() -> None:
    router = ProviderRouter(default=[actor("first", BUSY), actor("second", BROKEN)])
    result = Agent(router, config=ONE_ATTEMPT).run_sync("And?")
    assert result.error is not None
    assert result.error.code is ErrorCode.AUTHENTICATION


def test_a_function_that_raises_fails_the_run_and_it_can_be_carried_on() -> None:
    worker = actor("worker", "Rain.")
    works = False

    def choose(request: LlmRequest) -> ScriptedModel:
        if not works:
            raise RuntimeError("out of order")
        return worker

    agent = Agent(ProviderRouter(choose=choose))
    assert agent.run_sync("And?").status is AgentStatus.FAILED
    works = True
    assert agent.run_sync().output == "Rain."
    require_sound(kept(agent))


def test_use_takes_a_router_and_a_name() -> None:
    agent = Agent(actor("first", "One."))
    agent.run_sync("Hi.")
    agent.use(ProviderRouter(default=actor("second", "Two.")))
    assert agent.run_sync("Hi.").output == "Two."
    agent.use("anthropic:claude-sonnet-4-5")  # made without a key; it would be missed at the first request
    with pytest.raises(InvalidValue):
        agent.use("claude")


def test_a_scripted_model_can_be_routed_to() -> None:
    assert isinstance(PLANNER, AnyModel)
    assert not isinstance(Message.user("Hi."), AnyModel)


def test_a_strategy_is_refused_by_an_agent_that_has_no_routes() -> None:
    agent = Agent(ScriptedModel("Hi."))
    with pytest.raises(InvalidValue, match="there is no strategy 'fast': this agent's model has no routes"):
        agent.run_sync("Hi.", strategy="fast")
    routed_agent = Agent(ProviderRouter({"fast": PLANNER}))
    with routed_agent.override(model=ScriptedModel("Hi.")):  # what the agent's own router knows is no mistake
        assert routed_agent.run_sync("Hi.", strategy="fast").output == "Hi."
